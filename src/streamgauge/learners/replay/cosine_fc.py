"""CosineFC: replay with a classifier by cosine, its scale learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.learners.base import Batch
from streamgauge.learners.replay import replay_only


@dataclass(frozen=True)
class Config(replay_only.Config):
    head: Literal["linear", "cosine"] = "cosine"  # the last layer


class CosineFC(replay_only.ReplayOnly):
    """Hou et al. 2019 without distillation, as the near-future paper uses it (Hammoud et al. 2023):
    logits = sigma · cos(W, f), sigma from 1 on."""

    def learn(self, batch: Batch, predicted: Any) -> dict[str, Any]:
        scalars = super().learn(batch, predicted)
        if self.config.head == "cosine":
            scalars["sigma"] = self.model.head.sigma.detach().clone()  # type: ignore[operator]
        return scalars
