"""ER++: ER with as many gradient steps per batch as a costlier method could pay for."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Any

from torch import Tensor

from streamgauge.cost.clock import as_cost
from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    steps: str = "2"  # gradient steps per batch on average, such as 3, 4/3 or 2.5; not `passes`
    as_published: bool = False  # 4/3 is 2, 1, 1 steps in turn and not 1, 1, 2


class ERPlus(er.ER):
    """Ghunaim et al. 2023: floor((i + 1) g) - floor(i g) gradient steps on the i-th trained batch,
    each with a new recall, so that any rational g is met exactly over time."""

    config: Config
    published = "realtime.PublishedERPlus"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.pace = as_cost(self.config.steps)

    def steps_of(self, i: int) -> int:
        return floor((i + 1) * self.pace) - floor(i * self.pace)

    def passes_of_batch(self) -> int:
        return self.steps_of(self.progress.batches)

    def cycle(self, batch: int) -> int:
        return self.pace.denominator

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        steps = self.passes_of_batch()
        if steps == 0:  # fewer steps than batches: this one is stored, and trained on when recalled
            self.progress.count(len(batch.y))
            self.store(batch)
            return {"recalled": 0, "memory": len(self.memory), "steps": 0}
        return {**super().learn(batch, predicted), "steps": steps}
