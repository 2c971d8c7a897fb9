"""ER until so many samples were learnt, then ER and more: what LwF and RWalk share."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er


class WarmUp(er.ER):
    """`config` has `warmup` and `refresh`."""

    config: Any

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.progress.due(self.config.warmup, self.config.refresh):
            self.renew()
        return super().learn(batch, predicted)

    def renew(self) -> None:
        """What is due after the warm-up, and every `refresh` batches from then on."""

    def variant(self) -> tuple[Any, ...]:
        return (self.progress.begun,)

    def job_kind(self) -> str:
        return super().job_kind() if self.progress.warm(self.config.warmup) else "warmup"

    def work(self) -> tuple[Any, ...]:
        """`variant` of the next job: it is asked before `due` ends the warm-up."""
        warm = self.progress.warm(self.config.warmup)
        return (min(len(self.memory), self.largest_draw()), int(warm))
