"""ER with distillation from the model as it was at the last task boundary (LwF)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.learners.parts.teacher import Taught
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 1.0  # weight of the distillation
    temperature: float = 2.0  # of the distillation loss
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class ERLwF(Taught):
    """Li and Hoiem 2017 with replay: loss = CE(new and recalled) + alpha T² KL(teacher || model) on
    the same inputs, over the classes that the teacher knew, the teacher in evaluation mode."""

    config: Config
    needs = frozenset({"boundaries"})
    published = "survey.PublishedERLwF"
    boundary_passed = False  # there is no teacher before the second task

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.known = torch.zeros_like(self.model.head.seen)  # the classes distilled

    def tell(self, boundary: int, classes: NDArray[Any]) -> None:
        """Called before the first batch of a task."""
        if boundary > 0:
            self.keep_teacher(self.model.head.seen)

    def keep_teacher(self, known: Tensor) -> None:
        self.boundary_passed = True
        self.known.copy_(known)
        self.copy_teacher()

    def has_teacher(self) -> bool:
        return self.boundary_passed

    def known_classes(self) -> Tensor:
        return self.known

    def state_dict(self) -> dict[str, Any]:
        teacher = {"teacher": self.teacher.state_dict(), "known": self.known}
        return super().state_dict() | (teacher if self.boundary_passed else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.boundary_passed = "teacher" in state
        if self.boundary_passed:
            self.known.copy_(state["known"])
            self.teacher.load_state_dict(state["teacher"])
