"""Who trains on what, and when: the newest batch goes to the trainer as soon as it is free.

Nothing here knows a process, a thread or a clock. A trainer is anything that can begin a job and
be asked for the outcome, so that the rules can be tested with one that takes exactly as long as a
test wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Job(NamedTuple):
    """A batch to train on. All of its labels are known."""

    step: int
    index: Ints  # type: ignore[assignment]  # addresses in the source
    predicted: NDArray[Any] | None = None  # the scores that were answered when it was revealed
    places: Ints | None = None  # where a spool holds the samples
    told: tuple[Mapping[str, Any], ...] = ()  # task boundaries that come before it


class Update(NamedTuple):
    """What a finished job gives: the learner's whole state, to be served from now on."""

    state: dict[str, Any]
    scalars: Mapping[str, float]
    seconds: float  # of learning alone
    bytes: float  # what the learner's memory holds, NaN where it does not say
    held: Ints  # addresses that the learner may still read
    flops: float = float("nan")


class Lost(NamedTuple):
    """The trainer died with its job. `for_good`: it could not be started again."""

    why: str
    for_good: bool = False


class Trainer(Protocol):
    def begin(self, job: Job) -> None:
        """Start on a job and return at once. Called only while there is none."""

    def collect(self) -> Update | Lost | None:
        """The outcome of the job, once; None while it is not done."""


class Finished(NamedTuple):
    job: Job
    update: Update
    version: int
    seconds: float  # from the start of the job until its version could answer


class Desk:
    """One place for a waiting batch, and one trainer.

    As in the real-time paper a batch that arrives while the trainer is busy replaces the one that
    waits, so a trainer that becomes free takes the newest batch, and nothing ever queues up.
    """

    def __init__(self, trainer: Trainer, version: int = 0) -> None:
        self.trainer = trainer
        self.version = version  # finished updates
        self.training: Job | None = None
        self.waiting: Job | None = None
        self.idle_for_good = False  # whether training has ended while answers go on
        self.offered = self.finished = self.lost = 0
        self._began: Any = 0.0
        self._untold: tuple[Mapping[str, Any], ...] = ()  # of jobs that were lost

    @property
    def skipped(self) -> int:
        """Batches that were never trained on and never will be."""
        pending = (self.training is not None) + (self.waiting is not None)
        return self.offered - self.finished - pending

    def take_in(self, now: Any) -> Finished | None:
        """A job that has ended since the last time. Its version is in force from here on."""
        if self.training is None:
            return None
        outcome = self.trainer.collect()
        if outcome is None:
            return None
        job, self.training = self.training, None
        if isinstance(outcome, Lost):
            self.lost += 1
            self._untold += job.told
            self.idle_for_good = outcome.for_good
            return None
        self.finished += 1
        self.version += 1
        return Finished(job, outcome, self.version, now - self._began)

    def offer(self, job: Job) -> None:
        """A new batch; the one that still waits is dropped, but not what it was to be told."""
        if self.waiting is not None:
            job = job._replace(told=self.waiting.told + job.told)
        self.waiting = job
        self.offered += 1

    def assign(self, now: Any) -> None:
        """Give the trainer what waits, if it is free."""
        if self.waiting is None or self.training is not None or self.idle_for_good:
            return
        job, self.waiting = self.waiting, None
        self.training = job._replace(told=self._untold + job.told)
        self._untold = ()
        self._began = now
        self.trainer.begin(self.training)
