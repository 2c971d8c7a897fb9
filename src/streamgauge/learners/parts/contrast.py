"""What a contrastive learner has instead of a classifier: a projection, and class means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge import models
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.learners.replay import er
from streamgauge.streams import Spec

NO_MEAN = torch.inf  # entries of a mean whose class has no sample
NEVER = -1e4  # score of a class without a mean
BLOCK = 256  # samples whose features are computed at once


class Projection(models.Head):
    """Two layers to 128 numbers of unit length."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes, masked=False)
        self.layers = nn.Sequential(
            nn.Linear(features, features), nn.ReLU(), nn.Linear(features, 128)
        )

    def scores(self, features: Tensor) -> Tensor:
        return F.normalize(self.layers(features))


class NearestMean(Checkpointed):
    """Class means to compare features with."""

    checkpointed = "means newest"

    def __init__(self, classes: int, width: int, device: torch.device) -> None:
        self.means = torch.full((classes, width), NO_MEAN, device=device)
        self.newest = self.means.clone()

    def renew(self, blocks: Iterable[tuple[Tensor, Tensor]]) -> None:
        """From blocks of features and labels; in place, for recorded steps."""
        self.means.copy_(class_means(blocks, self.means))
        self.newest.copy_(self.means)

    def scores(self, features: Tensor) -> Tensor:
        """Minus the distance to each mean; a class without a mean cannot win."""
        missing = self.means[:, 0] == NO_MEAN
        means = self.means.masked_fill(missing[:, None], 0)
        # Not by a product, whose rounding would depend on how many are asked at once.
        distance = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist")
        return (-distance).masked_fill(missing, NEVER)


class MeanClassifier(er.ER):
    """A learner that answers by the nearest mean of the samples in its memory, features at unit
    length. Means are computed anew before an evaluation, and every `refresh` batches."""

    config: Any
    checkpointed = "nearest age"
    means_class = NearestMean

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.nearest = self.means_class(spec.classes, self.model.feature_size, self.device)
        self.age = self.config.refresh - 1  # batches since the means; the first batch gives some

    def predict(self, x: Tensor) -> Tensor:
        return self.nearest.scores(self.features(x))

    def features(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return F.normalize(super().features(x, generator))

    def store(self, batch: Batch) -> None:
        super().store(batch)
        self.age += 1
        if self.age >= self.config.refresh:
            self.refresh_means()

    def prepare(self) -> None:
        if self.age:
            self.refresh_means()

    def refresh_means(self) -> None:
        """From all samples in the memory, in blocks that are always full: the last one is filled up
        with copies whose label, -1, does not count."""
        stored = self.memory.index[self.memory.slots()]
        size = min(BLOCK, self.config.memory)
        blocks: list[Tensor] = []
        for start in range(0, len(stored), size):
            some = stored[start : start + size]
            block = self.read(np.resize(some, size) if self.memory.bounded else some)
            block.y[len(some) :] = -1
            blocks += [block.x, block.y]
        self.execute_extra(self.renew_means, *blocks)
        self.age = 0

    def renew_means(self, *blocks: Tensor) -> None:
        pairs = zip(blocks[::2], blocks[1::2], strict=True)
        with self.inference():
            self.nearest.renew((self.features(x), y) for x, y in pairs)

    def job_kind(self) -> str:
        kind = super().job_kind()
        due = self.config.refresh > 1 and self.age + 1 >= self.config.refresh
        return "refresh" if due and kind == "steady" else kind

    def cycle(self, batch: int) -> int:
        return int(self.config.refresh)


def class_means(blocks: Iterable[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """The mean direction of each class, [C, D] as `like`; infinite where a class has no sample.
    A label of -1 is no sample.

    >>> features, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1])
    >>> class_means([(features, y)], torch.empty(2, 2))
    tensor([[   inf,    inf],
            [0.7071, 0.7071]])
    """
    sums, counts = torch.zeros_like(like), like.new_zeros(len(like), 1)
    for features, y in blocks:
        classes = torch.arange(len(like), device=y.device)
        member = (classes[:, None] == y).to(features.dtype)  # a product: its order is fixed
        sums += member @ features
        counts += member.sum(1, keepdim=True)
    return F.normalize(sums).masked_fill(counts == 0, NO_MEAN)
