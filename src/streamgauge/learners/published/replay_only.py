"""Replay only, and what extends it, in the near-future paper's code (Hammoud et al. 2023)."""

from __future__ import annotations

from streamgauge.learners.replay.replay_only import ReplayOnly


class PublishedReplayOnly(ReplayOnly):
    """The batch norm of a frozen network goes on training."""

    def trains_batch_norm(self) -> bool:
        return True
