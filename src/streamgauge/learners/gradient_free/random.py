"""The random classifier: answers a class drawn uniformly from those seen; the floor of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.streams import Gate, Spec


class Random(Checkpointed):
    """Its expected accuracy is 1 / classes seen, whatever the labels do. The draw is a function of
    the seed, the number of batches learnt and the row, so that asking changes nothing."""

    answers_cheaply = True
    checkpointed = "seen learnt"
    sees_input = False

    def __init__(self, spec: Spec, source: Gate, seed: int, device: torch.device) -> None:
        self.seed, self.device, self.learnt = seed, device, 0
        self.seen = np.zeros(spec.classes, bool)

    def predict(self, x: Tensor) -> Tensor:
        among = np.flatnonzero(self.seen) if self.seen.any() else np.arange(len(self.seen))
        drawn = np.random.default_rng((self.seed, self.learnt)).choice(among, len(x))
        scores = np.full((len(x), len(self.seen)), -1e4, np.float32)
        scores[:, among] = 0
        scores[np.arange(len(x)), drawn] = 1e-3  # wins, at a confidence of 1 / classes seen
        return torch.from_numpy(scores).to(self.device)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.seen[batch.labels()] = True
        self.learnt += 1
        return {}
