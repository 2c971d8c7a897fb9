"""What a contrastive learner has in place of a classifier: a projection, and the nearest mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge import models

NONE = torch.inf  # in place of the numbers of a mean that there is not
NEVER = -1e4  # score of a class without a mean


class Projection(models.Head):
    """Two layers to 128 numbers of unit length. `early` gives unit length to what is projected, and
    none to the result."""

    def __init__(self, features: int, classes: int, early: bool = False) -> None:
        super().__init__(features, classes, masked=False)
        self.early = early
        self.layers = nn.Sequential(
            nn.Linear(features, features), nn.ReLU(), nn.Linear(features, 128)
        )

    def scores(self, features: Tensor) -> Tensor:
        if self.early:
            projected: Tensor = self.layers(F.normalize(features))
            return projected
        return F.normalize(self.layers(features))


class NearestMean:
    """Class means to compare features with. `late`, as the survey's code does it: a new mean is
    averaged with the one before, and comes into use when the next is there."""

    def __init__(self, classes: int, width: int, device: torch.device, late: bool = False) -> None:
        self.late = late
        self.means = torch.full((classes, width), NONE, device=device)
        self.newest = self.means.clone()

    def renew(self, blocks: Iterable[tuple[Tensor, Tensor]]) -> None:
        """From blocks of features and labels; in place, so that a recorded step finds them."""
        fresh = class_means(blocks, self.means)
        if self.late:
            self.means.copy_(self.newest)
            mixed = torch.where(self.means == NONE, fresh, (fresh + self.means) / 2)
            self.newest.copy_(torch.where(fresh == NONE, self.means, mixed))
        else:
            self.means.copy_(fresh)
            self.newest.copy_(fresh)

    def use_newest(self) -> None:
        self.means.copy_(self.newest)

    def scores(self, features: Tensor) -> Tensor:
        """Minus the distance to each mean; a class without a mean cannot win."""
        missing = self.means[:, 0] == NONE
        means = self.means.masked_fill(missing[:, None], 0)
        # Not by a product, whose rounding would depend on how many are asked at once.
        distance = torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist")
        return (-distance).masked_fill(missing, NEVER)

    def state_dict(self) -> dict[str, Any]:
        return {"means": self.means, "newest": self.newest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.means.copy_(state["means"])
        self.newest.copy_(state["newest"])


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
    return F.normalize(sums).masked_fill(counts == 0, NONE)
