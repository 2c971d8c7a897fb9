"""LwF without boundaries: ER that also keeps the answers of a recent copy of itself."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import distillation
from streamgauge.learners.parts.warmup import WarmUp
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 1.0  # weight of the distillation
    temperature: float = 2.0
    warmup: int = 1000  # samples learnt before there is a teacher
    refresh: int = 1000  # trained batches from one teacher to the next
    as_published: bool = False  # teacher in training mode, no factor of temperature squared


class LwF(WarmUp):
    """Learning without forgetting (Li & Hoiem 2017), as the real-time paper runs it without tasks:
    cross-entropy plus alpha T^2 KL(teacher || model) on new and recalled samples, over the classes
    that the teacher knows."""

    config: Config
    published = "lwf.PublishedLwF"
    scaled = True  # the factor T^2

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        self.teacher.eval()

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.progress.due(self.config.warmup, self.config.refresh):
            self.teacher.load_state_dict(self.model.state_dict())
        return super().learn(batch, predicted)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        scores = self.scores(x)
        loss = F.cross_entropy(scores, y)
        if not self.progress.begun:
            return loss
        with torch.no_grad():
            taught = self.teacher(x)
        known, temperature = self.teacher.head.seen, self.config.temperature
        distance = distillation(scores, taught, temperature, known, self.scaled)
        self.scalars["distillation"] = distance.detach()
        return loss + self.config.alpha * distance

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.teacher.load_state_dict(state["teacher"])
