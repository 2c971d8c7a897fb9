"""Counts of the batches and samples that a learner was trained on."""

from __future__ import annotations

from typing import Any


class Progress:
    """Counts for warm-ups, refreshes and intervals; part of a learner's state. Batches that were
    skipped because the learner was busy are not counted.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.samples = 0
        self.begun = False  # whether `due` has been true once

    def count(self, samples: int) -> None:
        self.batches += 1
        self.samples += samples

    def warm(self, warmup: int) -> bool:
        """Whether the next batch comes after the warm-up."""
        return self.begun or self.samples >= max(warmup, 1)

    def due(self, warmup: int, every: int) -> bool:
        """Called before a batch: whether a copy of the model (a teacher, an anchor) is due.

        First once `warmup` samples have been learnt, and never before anything was; from then on
        whenever the number of batches is a multiple of `every`.

        >>> progress = Progress()
        >>> due = []
        >>> for _ in range(7):
        ...     due.append(progress.due(warmup=20, every=3))
        ...     progress.count(10)
        >>> due
        [False, False, True, True, False, False, True]
        """
        first = not self.begun and self.warm(warmup)
        again = self.begun and self.batches % every == 0
        self.begun = self.begun or first
        return first or again

    def passed(self, interval: int, samples: int) -> bool:
        """Called after a batch of so many samples: whether it reached a multiple of `interval`."""
        return self.samples // interval > (self.samples - samples) // interval

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
