"""What the near-future paper's code does differently (Hammoud et al. 2023)."""

from __future__ import annotations

from torch import Tensor

from streamgauge.learners.gradient_free.ncm import NCM
from streamgauge.learners.gradient_free.slda import SLDA
from streamgauge.learners.replay.replay_only import ReplayOnly


class PublishedNCM(NCM):
    """A class not seen yet has the mean 0, and may win."""

    def predict(self, x: Tensor) -> Tensor:
        return self.scores(x)


class PublishedReplayOnly(ReplayOnly):
    """The batch norm of a frozen network goes on training."""

    def trains_batch_norm(self) -> bool:
        return True


class PublishedSLDA(SLDA):
    """A class not seen yet has the mean 0: its first sample deviates from 0, and it may win."""

    def deviation(self, away: Tensor, before: Tensor) -> Tensor:
        return away

    def mask(self, scores: Tensor) -> Tensor:
        return scores
