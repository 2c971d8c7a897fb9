"""The blind classifier: answers the most frequent of the last k labels, never sees an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config:
    window: int = 10  # labels that count


class Blind(Checkpointed):
    """EvalOCL's warning: on a stream whose labels repeat, this has a high online accuracy. Ties go
    to the label seen most recently."""

    answers_cheaply = True
    checkpointed = "recent"
    sees_input = False

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        if config.window < 1:
            raise StreamgaugeError(f"blind.window must be at least 1, not {config.window}.")
        self.window, self.classes, self.device = config.window, spec.classes, device
        self.recent = np.empty(0, np.int64)  # oldest first

    def predict(self, x: Tensor) -> Tensor:
        counts = np.bincount(self.recent, minlength=self.classes).astype(np.float32)
        if len(self.recent):
            newest_first = self.recent[::-1]
            mode = newest_first[counts[newest_first].argmax()]  # the first among equals
            counts[mode] += 0.5  # settles the tie and no more
        share = torch.from_numpy((counts + 1e-3) / (counts + 1e-3).sum())
        return share.log().to(self.device).expand(len(x), -1)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        labels = np.concatenate([self.recent, batch.labels()])
        self.recent = labels[-self.window :]
        return {}
