"""What the real-time paper's code does differently (Ghunaim et al. 2023)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adaptive.polrs import PoLRS
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import flat, gradients, set_gradients
from streamgauge.learners.parts.replay_batch import NONE
from streamgauge.learners.parts.teacher import WarmUp
from streamgauge.learners.parts.weight_paths import PathStep
from streamgauge.learners.replay.er_plus import ERPlus
from streamgauge.learners.replay.gss import GSS
from streamgauge.learners.replay.lwf import LwF
from streamgauge.learners.replay.mir import MIR
from streamgauge.learners.replay.rwalk import RWalk
from streamgauge.streams import Spec

PATTERNS = {Fraction(4, 3): (2, 1, 1), Fraction(5, 2): (2, 3)}


class PublishedERPlus(ERPlus):
    """4/3 is 2, 1, 1 steps in turn, 5/2 is 2, 3; other fractions are not in that code."""

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        if self.pace.denominator > 1 and self.pace not in PATTERNS:
            known = " and ".join(map(str, PATTERNS))
            raise StreamgaugeError(
                f"The published code takes whole numbers of steps, {known}, not {self.pace}."
            )

    def steps_of(self, i: int) -> int:
        pattern = PATTERNS.get(self.pace, (int(self.pace),))
        return pattern[i % len(pattern)]


class PublishedGSS(GSS):
    """As its authors' code (Aljundi et al. 2019): candidates are drawn by scores from 0 to 1, and
    gradients are those of augmented images."""

    def above_lowest(self, score: NDArray[Any]) -> NDArray[Any]:
        lowest: NDArray[Any] = score - score.min()
        return lowest

    def look(self, x: Tensor) -> Tensor:
        return self.view(x)


class PublishedLwF(LwF):
    """The teacher stays in training mode, and the distillation has no factor T^2."""

    scaled = False
    teacher_trains = True


class PublishedMIR(MIR):
    """Probing under theta moves batch norm's statistics, in both codes."""

    moves_statistics = True
    checkpointed = "before=previous_labels gradient=last_gradient"
    previous_labels = NONE  # of the batch before (the survey's code)

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.last_gradient: dict[str, torch.Tensor] = {}  # by name (the real-time paper's code)


class RealTimeMIR(PublishedMIR):
    """g is the gradient of the step before, and new and recalled samples are forwarded together."""

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        # Changed in place for recorded steps. 0 before the first step, which is as none.
        self.last_gradient = {
            name: torch.zeros_like(weight) for name, weight in self.model.named_parameters()
        }

    def take_gradient(self, batch: Batch) -> None:
        set_gradients(self.model, self.last_gradient)

    def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.scores(torch.cat([self.view(batch.x), recalled.x]))
        return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))

    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)
        now = gradients(self.model)
        torch._foreach_copy_([self.last_gradient[name] for name in now], list(now.values()))


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
