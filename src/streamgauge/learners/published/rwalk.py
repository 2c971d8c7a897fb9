"""RWalk in the real-time paper's code (Ghunaim et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import flat
from streamgauge.learners.parts.warmup import WarmUp
from streamgauge.learners.replay.rwalk import PathStep, RWalk

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Spec


class PublishedRWalk(RWalk):
    """Consolidates after a step, the first one after the warm-up too, and from then on by a counter
    of steps that each time is set to the number of the batch in the stream. The first path is the
    whole warm-up, a path begins one step after the last one ended, and g is taken before the step's
    own pass moves batch norm."""

    checkpointed = "ended"
    ended = False  # whether the step before was the last of a path

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        passes = self.config.passes
        if passes != 1:
            raise StreamgaugeError(
                f"RWalk as published counts batches: take one pass over each, not {passes}."
            )
        self.walk["start"].copy_(flat(self.weights))

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        scalars = WarmUp.learn(self, batch, predicted)
        if self.progress.begun:
            self.ended = self.ends()
            if self.steps == 0 or (self.steps + 1) % self.config.refresh == 0:
                if self.steps == 0:
                    self.walk["kept_score"].copy_(self.walk["score"])
                super().renew()
                self.steps = (self.progress.batches - 1) * self.config.stride
            self.steps += 1
        return scalars

    def renew(self) -> None:
        """Not before a step."""

    def ends(self) -> bool:
        """Whether this step is the last of a path."""
        return self.steps == 0 or (self.steps + 1) % self.config.path_steps == 0

    def variant(self) -> tuple[Any, ...]:
        if not self.progress.begun:
            return ((),)
        return ((PathStep(self.ended, self.ends(), first=self.steps == 0),),)

    def begin_pass(self, batch: Batch, recalled: Batch) -> None:
        super().begin_pass(batch, recalled)
        if self.path_step is not None:
            self.slope = super().gradient()

    def gradient(self) -> Tensor:
        return self.slope
