"""ER until so many samples were learnt, then ER and more: what LwF and RWalk share."""

from __future__ import annotations

from typing import Any

from streamgauge.learners.replay import er


class WarmUp(er.ER):
    """`config` has `warmup` and `refresh`; `progress.due` says when something is to be renewed."""

    config: Any

    def variant(self) -> tuple[Any, ...]:
        return (self.progress.begun,)

    def job_kind(self) -> str:
        return super().job_kind() if self.progress.warm(self.config.warmup) else "warmup"

    def work(self) -> tuple[Any, ...]:
        """`variant` of the next job: it is asked before `due` ends the warm-up."""
        warm = self.progress.warm(self.config.warmup)
        return (min(len(self.memory), self.largest_draw()), int(warm))
