"""ER with a learning rate that falls along a cosine, from `lr` to 0 at the end of the stream (a
learner that is delayed trains on fewer batches and ends above 0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from streamgauge.learners.adaptive import er_batch
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.sgd import cosine, movable_sgd, set_rate
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er_batch.Config):
    as_published: bool = False  # the rate changes only 90 times, as in CLOC's code


class ERCosine(er_batch.ERBatch):
    """CLOC (Cai et al. 2021), section 5.2: rate = lr (1 + cos(pi t / H)) / 2 at the t-th trained
    batch of H steps: one cycle, down to 0. It must know how long the stream is."""

    config: Config
    checkpointed = "horizon revealed"
    needs = frozenset({"horizon"})
    published = "cloc.PublishedERCosine"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.optimizer = movable_sgd(self.model.parameters(), self.config, self.config.lr)
        self.horizon, self.revealed = 1, 0

    def tell(self, horizon: int) -> None:
        self.horizon = horizon

    def done(self, t: int) -> float:
        """The share of the stream that is over."""
        return min(t / self.horizon, 1.0)

    def rate(self, t: int) -> float:
        return cosine(self.config.lr, self.done(t))

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        rate = self.rate(self.revealed)
        set_rate(self.optimizer, rate)
        self.revealed += 1
        return {**super().learn(batch, predicted), "lr": rate}
