"""Nearest class mean: running mean of each class, no gradient and no memory of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F

from streamgauge.models import to_float

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config:
    distance: Literal["l2", "cosine"] = "l2"


class NCM:
    """Mensink et al. 2013, on the inputs as they are (pixels, or features where the stream gives
    features). A class without a mean cannot win."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        self.distance = config.distance
        width = 1
        for size in spec.input_shape:
            width *= size
        self.sums = torch.zeros(spec.classes, width, dtype=torch.float64, device=device)
        self.counts = torch.zeros(spec.classes, dtype=torch.float64, device=device)

    def predict(self, x: Tensor) -> Tensor:
        features = _flat(x)
        means = (self.sums / self.counts.clamp(min=1)[:, None]).float()
        if self.distance == "cosine":
            scores = F.normalize(features) @ F.normalize(means).T
        else:
            scores = -torch.cdist(features, means)
        return scores.masked_fill(self.counts == 0, -1e4)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.sums.index_add_(0, batch.y, _flat(batch.x).double())
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=torch.float64))
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums.clone(), "counts": self.counts.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums = state["sums"].to(self.sums.device)
        self.counts = state["counts"].to(self.counts.device)


def _flat(x: Tensor) -> Tensor:
    return to_float(x, (0.5,), (0.25,)).flatten(1)
