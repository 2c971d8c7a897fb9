"""SCR in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.contrast import NO_MEAN, NearestMean, Projection, class_means
from streamgauge.learners.replay.scr import SCR
from streamgauge.models.contrast_views import contrastive_view


class EarlyProjection(Projection):
    """Gives unit length to the features and not to their projection."""

    def scores(self, features: Tensor) -> Tensor:
        projected: Tensor = self.layers(F.normalize(features))
        return projected


class LateMeans(NearestMean):
    """New means are averaged with the means before, and used when the next ones are computed."""

    def renew(self, blocks: Iterable[tuple[Tensor, Tensor]]) -> None:
        fresh = class_means(blocks, self.means)
        self.means.copy_(self.newest)
        mixed = torch.where(self.means == NO_MEAN, fresh, (fresh + self.means) / 2)
        self.newest.copy_(torch.where(fresh == NO_MEAN, self.means, mixed))

    def use_newest(self) -> None:
        self.means.copy_(self.newest)


class PublishedSCR(SCR):
    """The projection keeps its length and its input has unit length, the loss is multiplied by
    temperature / 0.07, the random view is one of normalised values cut to 0..1, and means come into
    use one batch late, except on the test set at the end of a task, which sees the newest."""

    projection = EarlyProjection
    means_class = LateMeans
    nearest: LateMeans

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        return super().loss(batch, recalled) * (self.config.temperature / 0.07)

    def random_view(self, x: Tensor) -> Tensor:
        return contrastive_view(self.normalise(x), self.generator, x.dtype == torch.uint8)

    def prepare(self) -> None:
        """Means are not computed for an evaluation."""

    def prepare_test(self) -> None:
        self.nearest.use_newest()
