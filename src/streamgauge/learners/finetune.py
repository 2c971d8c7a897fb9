"""Finetuning: train on the newest batch alone, keep nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamgauge.learners import er
from streamgauge.learners.base import Batch

if TYPE_CHECKING:
    import torch

    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 0
    memory: int = 1


class Finetune(er.ER):
    """ER whose memory stays empty."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)

    def store(self, batch: Batch) -> None:
        """Nothing is kept."""
