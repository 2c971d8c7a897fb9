"""Head only: replay that trains the classifier on top of a frozen network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamgauge.learners.replay import replay_only


@dataclass(frozen=True)
class Config(replay_only.Config):
    train: Literal["all", "head"] = "head"  # which layers learn


class FCOnly(replay_only.ReplayOnly):
    """FC-Only of the near-future paper (Hammoud et al. 2023)."""
