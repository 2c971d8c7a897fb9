"""SCR: contrast of new and recalled samples by class; answers by the nearest mean of the memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from streamgauge import models
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.contrast import MeanClassifier, Projection
from streamgauge.learners.parts.losses import supervised_contrastive
from streamgauge.learners.replay import er
from streamgauge.models.augment import contrastive_view
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 100
    temperature: float = 0.07  # of the contrastive loss
    refresh: int = 10  # batches from one computation of the class means to the next
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class SCR(MeanClassifier):
    """Mai et al. 2021: supervised contrastive loss over new and recalled samples, each as it is and
    in a random view, in one forward pass, on a projection of unit length. The answer is the class
    with the nearest mean of its samples in the memory, features at unit length. Means are new at
    an evaluation, and up to `refresh` batches old online."""

    config: Config
    published = "survey.PublishedSCR"
    projection = Projection

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            model.fc = self.projection(model.feature_size, spec.classes)
        return model

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = torch.cat([batch.x, recalled.x]), torch.cat([batch.y, recalled.y])
        z = self.scores(torch.cat([self.normalise(x), self.random_view(x)]))
        return supervised_contrastive(z, torch.cat([y, y]), self.config.temperature)

    def random_view(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8:  # not colours
            return contrastive_view(self.normalise(x), self.generator, colours=False)
        view = contrastive_view(x / 255, self.generator)
        return (view - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)
