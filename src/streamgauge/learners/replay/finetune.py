"""Finetuning: train on the newest batch alone, keep nothing."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 0
    memory: int = 1


class Finetune(er.ER):
    """ER whose memory stays empty."""

    def store(self, batch: Batch) -> None:
        """Nothing is kept."""
