"""Nearest class mean: running mean of each class, no gradient and no memory of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F

from streamgauge.learners.published import HasPublishedVariant
from streamgauge.models import features

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(features.Config):
    distance: Literal["l2", "cosine"] = "l2"
    as_published: bool = False  # a class not seen yet has the mean 0, and may win


class NCM(HasPublishedVariant):
    """Mensink et al. 2013, on frozen features or on the inputs as they are. A class without a mean
    cannot win."""

    answers_cheaply = True
    published = "ncm.PublishedNCM"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        self.config = config
        self.features = features.Backbone(spec, config, seed, device, source)
        self.sums = torch.zeros(
            spec.classes, self.features.size, dtype=torch.float64, device=device
        )
        self.counts = torch.zeros(spec.classes, dtype=torch.float64, device=device)

    def predict(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        return scores.masked_fill(self.counts == 0, torch.finfo(scores.dtype).min)

    def scores(self, x: Tensor) -> Tensor:
        """By similarity to each mean; a mean of no samples is 0."""
        means = (self.sums / self.counts.clamp(min=1)[:, None]).float()
        if self.config.distance == "cosine":
            return F.normalize(self.features(x)) @ F.normalize(means).T
        return -torch.cdist(self.features(x), means)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.sums.index_add_(0, batch.y, self.features(batch.x).double())
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=torch.float64))
        return {}

    def memory_bytes(self) -> int:
        return self.sums.nbytes + self.counts.nbytes

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums.clone(), "counts": self.counts.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums = state["sums"].to(self.sums.device)
        self.counts = state["counts"].to(self.counts.device)
