"""Finetuning: train on the newest batch alone, keep nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from streamgauge.learners import er

if TYPE_CHECKING:
    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config:
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    passes: int = 1
    model: str = "cnn4"


class Finetune(er.ER):
    """ER whose memory stays empty."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, er.Config(**vars(config), recall=0, memory=1))

    def store(self, batch: Batch) -> None:
        """Nothing is kept."""
