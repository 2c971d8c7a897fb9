"""Streaming linear discriminant analysis: class means and one shared covariance, no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradient_free import ClassSums
from streamgauge.models import features
from streamgauge.streams import Gate, Spec

NEVER = -1e30  # the score of a class without a mean: lower than any that has one


@dataclass(frozen=True)
class Config(features.Config):
    shrinkage: float = 1e-4  # share of the identity in the covariance
    refresh: int = 1  # samples after which the classifier is solved for again
    as_published: bool = False  # a class not seen yet has the mean 0, and may win


class SLDA(ClassSums):
    """Hayes and Kanan 2020. For the sample x of class y that comes after n others,

        Sigma <- (n Sigma + n / (n + 1) (x − mu_y) (x − mu_y)ᵀ) / (n + 1),   then mu_y moves,

    and score_c = mu_cᵀ P x − mu_cᵀ P mu_c / 2 with P the inverse of (1 − s) Sigma + s I. A batch is
    taken in at once; what comes out is what its samples one after the other give. The first
    sample of a class is its mean, so it has no deviation to add; a class without a mean cannot win.
    """

    published = "near_future.PublishedSLDA"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        if not 0 < config.shrinkage <= 1 or config.refresh < 1:
            raise StreamgaugeError("slda.shrinkage lies in (0, 1], slda.refresh is 1 or more.")
        super().__init__(spec, source, seed, device, config)
        self.weight, self.bias = torch.zeros_like(self.sums), torch.zeros_like(self.counts)
        self.scatter = self.sums.new_zeros(self.features.size, self.features.size)
        self.known = self.counts > 0  # classes in the classifier
        self.waiting = 0  # samples since the classifier was solved for

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        x, y = self.features(batch.x).double(), batch.y
        earlier = (y[:, None] == y).double().tril(-1)  # of the same class, earlier in the batch
        before = self.counts[y] + earlier.sum(1)
        away = x - (self.sums[y] + earlier @ x) / before.clamp(min=1)[:, None]
        away = self.deviation(away, before)
        n = self.counts.sum() + torch.arange(len(y), device=x.device)
        self.scatter += (away * (n / (n + 1))[:, None]).T @ away
        self.add(x, y)
        self.waiting += len(y)
        # Solved now, so that it does not depend on when `predict` is called.
        if self.waiting >= self.config.refresh > 1:
            self.solve()
        return {}

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        super().rescale(factor, offset)
        if self.config.model == "linear":
            self.scatter *= factor[:, None] * factor
            self.waiting = self.config.refresh  # solve again at once

    def deviation(self, away: Tensor, before: Tensor) -> Tensor:
        """None of the first sample of a class."""
        return away * (before > 0)[:, None]

    def mask(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(~self.known, NEVER)

    def solve(self) -> None:
        """Weights and bias from one Cholesky factor."""
        shrunk = self.scatter * (1 - self.config.shrinkage) / self.counts.sum().clamp(min=1)
        shrunk.diagonal().add_(self.config.shrinkage)
        means = self.means()
        self.weight = torch.cholesky_solve(means.T, torch.linalg.cholesky_ex(shrunk)[0]).T
        self.bias = -(means * self.weight).sum(1) / 2
        self.known, self.waiting = self.counts > 0, 0

    def predict(self, x: Tensor) -> Tensor:
        if self.config.refresh == 1 and self.waiting:
            self.solve()
        scores = self.mask(self.features(x).double() @ self.weight.T + self.bias)
        return (scores - scores.amax(1, keepdim=True)).float()  # large numbers, small differences

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.scatter.nbytes

    def state_dict(self) -> dict[str, Any]:
        if self.config.refresh == 1 and self.waiting:
            self.solve()  # so that the state does not depend on calls of `predict`
        arrays = {k: v.clone() for k, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return {"waiting": self.waiting, **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Not in place: `solve` may have run in inference mode, and layouts decide on rounding."""
        for name, value in state.items():
            setattr(self, name, value if name == "waiting" else value.to(self.sums.device))
