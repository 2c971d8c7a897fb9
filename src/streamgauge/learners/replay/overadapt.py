"""OverAdapt: trains the classifier on a frozen network with the newest samples, and forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamgauge.learners.replay import replay_only


@dataclass(frozen=True)
class Config(replay_only.Config):
    sampler: Literal["uniform", "fifo", "mixed"] = "fifo"  # how samples are drawn from the memory
    train: Literal["all", "head"] = "head"  # which layers learn


class OverAdapt(replay_only.ReplayOnly):
    """The near-future paper's warning (Hammoud et al. 2023, section 3.3): made to do well in online
    accuracy, where labels repeat, and in nothing else."""
