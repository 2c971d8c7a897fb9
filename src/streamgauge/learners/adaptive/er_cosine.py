"""ER with a learning rate that falls along a cosine, from `lr` to 0 at the end of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import TYPE_CHECKING, Any

from streamgauge.learners.adaptive import er_batch
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.rate import movable_sgd, set_rate, settle

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(er_batch.Config):
    as_published: bool = False  # the rate changes only 90 times, as in CLOC's code


class ERCosine(er_batch.ERBatch):
    """CLOC (Cai et al. 2021), section 5.2: rate = lr (1 + cos(pi t / H)) / 2 at the t-th trained
    batch of H steps: one cycle, down to 0. It must know how long the stream is."""

    config: Config
    needs = frozenset({"horizon"})
    published = "er_cosine.PublishedERCosine"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.optimizer = movable_sgd(self.model.parameters(), config, config.lr)
        self.horizon, self.revealed = 1, 0

    def tell(self, horizon: int) -> None:
        self.horizon = horizon

    def done(self, t: int) -> float:
        """The share of the stream that is over."""
        return min(t / self.horizon, 1.0)

    def rate(self, t: int) -> float:
        return self.config.lr * (1 + cos(pi * self.done(t))) / 2

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        rate = self.rate(self.revealed)
        set_rate(self.optimizer, rate)
        self.revealed += 1
        return {**super().learn(batch, predicted), "lr": rate}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "horizon": self.horizon, "revealed": self.revealed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        settle(self.optimizer, self.device)
        self.horizon, self.revealed = state["horizon"], state["revealed"]
