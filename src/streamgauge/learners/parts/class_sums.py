"""Frozen features summed by class: what NCM and SLDA share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.learners.published import HasPublishedVariant
from streamgauge.models import features
from streamgauge.streams import Gate, Spec


class ClassSums(Checkpointed, HasPublishedVariant):
    """Sums and counts by class of the features of a frozen network, or of the inputs as they are;
    no gradient and no memory of samples."""

    config: Any
    answers_cheaply = True
    checkpointed = "sums counts"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Any
    ) -> None:
        self.config = config
        self.features = features.Backbone(spec, config, seed, device, source)
        self.counts = torch.zeros(spec.classes, dtype=torch.float64, device=device)
        self.sums = self.counts.new_zeros(spec.classes, self.features.size)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Features in float64, and their labels."""
        self.sums.index_add_(0, y, x)
        self.counts.index_add_(0, y, torch.ones_like(y, dtype=torch.float64))

    def means(self) -> Tensor:
        """[C, D]; 0 for a class without samples."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def memory_bytes(self) -> int:
        return self.sums.nbytes + self.counts.nbytes
