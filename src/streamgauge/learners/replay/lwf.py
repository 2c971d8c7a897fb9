"""LwF without boundaries: ER that also keeps the answers of a recent copy of itself."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.learners.parts.teacher import Taught, WarmUp
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 1.0  # weight of the distillation
    temperature: float = 2.0  # of the distillation loss
    warmup: int = 1000  # samples learnt before there is a teacher
    refresh: int = 1000  # trained batches from one teacher to the next
    as_published: bool = False  # teacher in training mode, no factor of temperature squared


class LwF(WarmUp, Taught):
    """Learning without forgetting (Li & Hoiem 2017), as the real-time paper runs it without tasks:
    cross-entropy plus alpha T^2 KL(teacher || model) on new and recalled samples, over the classes
    that the teacher knows; the teacher is a copy of the model every `refresh` batches."""

    config: Config
    checkpointed = "teacher"
    published = "realtime.PublishedLwF"

    def has_teacher(self) -> bool:
        return self.progress.begun

    def renew(self) -> None:
        self.copy_teacher()
