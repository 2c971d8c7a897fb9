"""PoLRS in the real-time paper's code (Ghunaim et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgauge.learners.adaptive.polrs import PoLRS
from streamgauge.learners.base import Batch

if TYPE_CHECKING:
    from torch import Tensor


class TiesToHighestRate(PoLRS):
    """Ties go to the highest rate; and, where the protocol is as published too, models are also
    judged by their answers to batches that are dropped."""

    prefer_middle = False

    def skipped(self, batch: Batch) -> None:
        if self.config.judge == "answers":
            self.execute(self.reconsider, batch.x, batch.y)

    def reconsider(self, x: Tensor, y: Tensor) -> None:
        self.examine(x, y)
        self.pool.choose()
        self.pool.copy_best(self.model)


class PublishedPoLRS(TiesToHighestRate):
    """Also adjusts the rates before the first step."""

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.progress.batches == 0:
            self.pool.choose()
            self.pool.recentre()
        return super().learn(batch, predicted)
