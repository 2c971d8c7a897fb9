"""The majority classifier: answers the most frequent label so far, never sees an input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.streams import Gate, Spec


class Majority(Checkpointed):
    """What is left for a blind classifier once labels no longer repeat."""

    answers_cheaply = True
    checkpointed = "counts"
    sees_input = False

    def __init__(self, spec: Spec, source: Gate, seed: int, device: torch.device) -> None:
        self.counts = torch.zeros(spec.classes, dtype=torch.float64, device=device)

    def predict(self, x: Tensor) -> Tensor:
        share = (self.counts + 1e-3) / (self.counts + 1e-3).sum()
        return share.log().float().expand(len(x), -1)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=self.counts.dtype))
        return {}
