"""ER with distillation from the model as it was at the last task boundary (LwF)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import distillation
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from streamgauge.models import Model


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 1.0  # weight of the distillation
    temperature: float = 2.0
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class ERLwF(er.ER):
    """Li and Hoiem 2017 with replay: loss = CE(new and recalled) + alpha T² KL(teacher || model) on
    the same inputs, over the classes that the teacher knew, the teacher in evaluation mode."""

    config: Config
    needs = frozenset({"boundaries"})
    published = "er_lwf.PublishedERLwF"
    scaled = True  # the factor T²
    teacher: Model | None = None
    known: Tensor  # the classes distilled

    def tell(self, boundary: int, classes: NDArray[Any]) -> None:
        """Called before the first batch of a task."""
        if boundary > 0:
            self.keep_teacher(self.model.head.seen.clone())

    def keep_teacher(self, known: Tensor) -> None:
        """In place once there is one, for recorded steps."""
        if self.teacher is None:
            self.known = known.clone()
            self.teacher = copy.deepcopy(self.model).eval()
            self.teacher.requires_grad_(False)
        else:
            self.known.copy_(known)
            self.teacher.load_state_dict(self.model.state_dict())

    def variant(self) -> tuple[Any, ...]:
        return (self.teacher is not None,)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x = self.view(torch.cat([batch.x, recalled.x]))
        scores = self.scores(x)
        loss = F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))
        if self.teacher is None:
            return loss
        with torch.no_grad():
            old = self.teacher(x)
        distance = distillation(scores, old, self.config.temperature, self.known, self.scaled)
        self.scalars["distillation"] = distance.detach()
        return loss + self.config.alpha * distance

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.teacher is not None:
            state |= {"teacher": self.teacher.state_dict(), "known": self.known}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "teacher" in state:
            self.keep_teacher(state["known"].to(self.device))
            self.teacher.load_state_dict(state["teacher"])  # type: ignore[union-attr]
