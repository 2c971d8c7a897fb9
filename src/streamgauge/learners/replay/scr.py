"""SCR: contrast of new and recalled samples by class; answers by the nearest mean of the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge import models
from streamgauge.cost.flops import part
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.contrast import NearestMean, Projection
from streamgauge.learners.parts.losses import supervised_contrastive
from streamgauge.learners.replay import er
from streamgauge.models.contrast_views import contrastive_view

if TYPE_CHECKING:
    from streamgauge.streams import Gate, Spec


BLOCK = 256  # samples whose features are computed at once


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 100
    temperature: float = 0.07
    refresh: int = 10  # batches from one computation of the class means to the next
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class SCR(er.ER):
    """Mai et al. 2021: supervised contrastive loss over new and recalled samples, each as it is and
    in a random view, in one forward pass, on a projection of unit length. The answer is the class
    with the nearest mean of its samples in the memory, features at unit length. Means are fresh at
    an evaluation, and up to `refresh` batches old online.

    In the survey's code the projection keeps its length and what it projects has unit length, the
    loss is multiplied by temperature / 0.07, the random view is one of normalised values and cut to
    0..1, and new means are averaged with the old ones and come into use one batch late, but for the
    test set at a task's end, which sees the newest.
    """

    config: Config

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        width = self.model.feature_size
        self.nearest = NearestMean(spec.classes, width, device, late=config.as_published)
        self.age = config.refresh - 1  # batches since the means; so there are some after the first

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            model.fc = Projection(model.feature_size, spec.classes, self.config.as_published)
        return model

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = torch.cat([batch.x, recalled.x]), torch.cat([batch.y, recalled.y])
        z = self.scores(torch.cat([self.normalise(x), self._random_view(x)]))
        loss = supervised_contrastive(z, torch.cat([y, y]), self.config.temperature)
        return loss * (self.config.temperature / 0.07 if self.config.as_published else 1)

    def _random_view(self, x: Tensor) -> Tensor:
        colours = x.dtype == torch.uint8
        if self.config.as_published or not colours:
            return contrastive_view(self.normalise(x), self.generator, colours)
        view = contrastive_view(x / 255, self.generator)
        return (view - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)

    def job_kind(self) -> str:
        kind = super().job_kind()
        due = self.config.refresh > 1 and self.age + 1 >= self.config.refresh
        return "refresh" if due and kind == "steady" else kind

    def cycle(self, batch: int) -> int:
        return self.config.refresh

    def store(self, batch: Batch) -> None:
        super().store(batch)
        self.age += 1
        if self.age >= self.config.refresh:
            self._refresh()

    def prepare(self) -> None:
        if self.age and not self.config.as_published:
            self._refresh()

    def prepare_test(self) -> None:
        if self.config.as_published:
            self.nearest.use_newest()

    def _refresh(self) -> None:
        """Of all that the memory holds, in blocks that are always full: what is missing in the last
        is a sample again, with a label that counts for nothing."""
        held = self.memory.index[self.memory.slots()]
        size = min(BLOCK, self.config.memory)
        blocks: list[Tensor] = []
        for start in range(0, len(held), size):
            some = held[start : start + size]
            block = self.read(np.resize(some, size) if self.memory.bounded else some)
            block.y[len(some) :] = -1
            blocks += [block.x, block.y]
        with part("means", len(blocks)):
            self.execute(self.renew, *blocks)
        self.age = 0

    def renew(self, *blocks: Tensor) -> None:
        pairs = zip(blocks[::2], blocks[1::2], strict=True)
        with self.inference():
            self.nearest.renew((self.features(x), y) for x, y in pairs)

    def predict(self, x: Tensor) -> Tensor:
        return self.nearest.scores(self.features(x))

    def features(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return F.normalize(super().features(x, generator))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"nearest": self.nearest.state_dict(), "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.nearest.load_state_dict(state["nearest"])
        self.age = state["age"]
