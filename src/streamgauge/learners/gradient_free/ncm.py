"""Nearest class mean: running mean of each class, no gradient and no memory of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradient_free import ClassSums
from streamgauge.models import features


@dataclass(frozen=True)
class Config(features.Config):
    distance: Literal["l2", "cosine"] = "l2"  # to the class means
    as_published: bool = False  # a class not seen yet has the mean 0, and may win


class NCM(ClassSums):
    """Mensink et al. 2013, on frozen features or on inputs. A class without a mean cannot win."""

    published = "near_future.PublishedNCM"

    def predict(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        return scores.masked_fill(self.counts == 0, torch.finfo(scores.dtype).min)

    def scores(self, x: Tensor) -> Tensor:
        """By similarity to each mean; a mean of no samples is 0."""
        means = self.means().float()
        if self.config.distance == "cosine":
            return F.normalize(self.features(x)) @ F.normalize(means).T
        return -torch.cdist(self.features(x), means)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.add(self.features(batch.x).double(), batch.y)
        return {}
