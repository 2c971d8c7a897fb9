"""Streaming linear discriminant analysis: class means and one shared covariance, no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.covariance import SharedCovariance
from streamgauge.models import features

NEVER = -1e30  # the score of a class without a mean: lower than any that has one


@dataclass(frozen=True)
class Config(features.Config):
    shrinkage: float = 1e-4  # share of the identity in the covariance
    refresh: int = 1  # samples after which the classifier is solved for again
    as_published: bool = False  # a class not seen yet has the mean 0, and may win


class SLDA(SharedCovariance):
    """Hayes and Kanan 2020. For the sample x of class y that comes after n others,

        Sigma <- (n Sigma + n / (n + 1) (x − mu_y) (x − mu_y)ᵀ) / (n + 1),   then mu_y moves,

    and score_c = mu_cᵀ P x − mu_cᵀ P mu_c / 2 with P the inverse of (1 − s) Sigma + s I. A batch is
    taken in at once; what comes out is what its samples one after the other give. The first
    sample of a class is its mean, so it has no deviation to add; a class without a mean cannot win.
    """

    config: Config
    published = "near_future.PublishedSLDA"

    def check(self) -> None:
        if not 0 < self.config.shrinkage <= 1 or self.config.refresh < 1:
            raise StreamgaugeError("slda.shrinkage lies in (0, 1], slda.refresh is 1 or more.")

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        x, y = self.features(batch.x).double(), batch.y
        earlier = (y[:, None] == y).double().tril(-1)  # of the same class, earlier in the batch
        before = self.counts[y] + earlier.sum(1)
        away = x - (self.sums[y] + earlier @ x) / before.clamp(min=1)[:, None]
        away = self.deviation(away, before)
        n = self.counts.sum() + torch.arange(len(y), device=x.device)
        self.scatter += (away * (n / (n + 1))[:, None]).T @ away
        self.add(x, y)
        self.count(len(y))
        return {}

    def deviation(self, away: Tensor, before: Tensor) -> Tensor:
        """None of the first sample of a class."""
        return away * (before > 0)[:, None]

    def mask(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self.known, NEVER)

    def solution(self) -> tuple[Tensor, Tensor]:
        """Weights and bias from one Cholesky factor."""
        shrunk = self.scatter * (1 - self.config.shrinkage) / self.counts.sum().clamp(min=1)
        shrunk.diagonal().add_(self.config.shrinkage)
        means = self.means()
        weight = torch.cholesky_solve(means.T, torch.linalg.cholesky_ex(shrunk)[0]).T
        return weight, -(means * weight).sum(1) / 2

    def predict(self, x: Tensor) -> Tensor:
        self.solve_if_due()
        scores = self.mask(self.features(x).double() @ self.weight.T + self.bias)
        return (scores - scores.amax(1, keepdim=True)).float()  # large numbers, small differences
