"""ER++: ER with as many gradient steps a batch as a costlier method could pay for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

from streamgauge.cost.clock import as_cost
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from streamgauge.streams import Gate, Spec

PUBLISHED = {Fraction(4, 3): (2, 1, 1), Fraction(5, 2): (2, 3)}


@dataclass(frozen=True)
class Config(er.Config):
    steps: str = "2"  # gradient steps a batch on average, such as 3, 4/3 or 2.5; not `passes`
    as_published: bool = False  # 4/3 is 2, 1, 1 steps in turn and not 1, 1, 2


class ERPlus(er.ER):
    """Ghunaim et al. 2023: floor((i + 1) g) - floor(i g) gradient steps on the i-th trained batch,
    each with a fresh recall, so that any rational g is met exactly over time."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.pace, self.pattern = as_cost(config.steps), None
        if config.as_published and self.pace.denominator > 1:
            if self.pace not in PUBLISHED:
                known = " and ".join(map(str, PUBLISHED))
                raise StreamgaugeError(
                    f"The published code takes whole numbers of steps, {known}, not {self.pace}."
                )
            self.pattern = PUBLISHED[self.pace]

    def steps_of(self, i: int) -> int:
        if self.pattern is not None:
            return self.pattern[i % len(self.pattern)]
        return floor((i + 1) * self.pace) - floor(i * self.pace)

    def cycle(self, batch: int) -> int:
        return self.pace.denominator

    def work(self) -> tuple[int, ...]:
        return (*super().work(), self.steps_of(self.progress.batches))

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        steps = self.steps_of(self.progress.batches)
        if steps == 0:  # fewer steps than batches: this one is kept, and trained on when recalled
            self.progress.count(len(batch.y))
            self.store(batch)
            return {"recalled": 0, "memory": len(self.memory), "steps": 0}
        self.config = replace(self.config, passes=steps)
        return {**super().learn(batch, predicted), "steps": steps}
