"""What LwF, ER-LwF and RWalk share: a warm-up, and a teacher to distil from."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import distillation
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


class Taught(er.ER):
    """Li and Hoiem 2017: loss = CE(new and recalled) + alpha T² KL(teacher || model) on the same
    inputs, over the classes that the teacher knows."""

    config: Any  # has `alpha` and `temperature`
    scaled = True  # the factor T²
    teacher_trains = False  # whether the teacher is in training mode, as in published codes

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.teacher = copy.deepcopy(self.model).requires_grad_(False).train(self.teacher_trains)

    def has_teacher(self) -> bool:
        """Whether `copy_teacher` was called."""
        raise NotImplementedError

    def copy_teacher(self) -> None:
        """In place, for recorded steps."""
        self.teacher.load_state_dict(self.model.state_dict())

    def known_classes(self) -> Tensor:
        return self.teacher.head.seen

    def variant(self) -> tuple[Any, ...]:
        return (self.has_teacher(),)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        scores = self.scores(x)
        loss = F.cross_entropy(scores, y)
        if not self.has_teacher():
            return loss
        with torch.no_grad():
            taught = self.teacher(x)
        temperature, known = self.config.temperature, self.known_classes()
        distance = distillation(scores, taught, temperature, known, self.scaled)
        self.scalars["distillation"] = distance.detach()
        alpha: float = self.config.alpha
        return loss + alpha * distance


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
