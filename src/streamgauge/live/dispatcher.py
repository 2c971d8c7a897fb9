"""Which batch is trained, and when: the newest batch goes to the trainer as soon as it is free.

This module knows no process, thread or clock. A trainer is anything that can begin a request and
be asked for its outcome, so tests can use one that takes exactly as long as they want.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TrainingRequest(NamedTuple):
    """A batch to train on. All of its labels are known."""

    step: int
    index: Ints  # type: ignore[assignment]  # addresses in the source
    predicted: NDArray[Any] | None = None  # the scores that were answered when it was revealed
    slots: Ints | None = None  # of the samples in a spool
    facts: tuple[Mapping[str, Any], ...] = ()  # task boundaries that come before it


class Update(NamedTuple):
    """The result of a finished request: the learner's whole state, which answers from now on."""

    state: dict[str, Any]
    scalars: Mapping[str, float]
    seconds: float  # of learning alone
    bytes: float  # of the learner's memory, NaN if the learner does not report them
    addresses: Ints  # that the learner may still read
    flops: float = float("nan")


class Lost(NamedTuple):
    """The trainer died while it worked on a request. `permanent`: it could not be restarted."""

    why: str
    permanent: bool = False


class Finished(NamedTuple):
    request: TrainingRequest
    update: Update
    version: int
    seconds: float  # from the start of the request until its version could answer


class Dispatcher:
    """A queue of length one, and one trainer. As in the real-time paper, a batch that arrives while
    the trainer is busy replaces the batch that waits, so a trainer that becomes free gets the
    newest batch. `trainer.begin(request)` returns at once, and is called only while there is no
    request; `trainer.collect()` gives the outcome once, None while there is none."""

    def __init__(self, trainer: Any, version: int = 0) -> None:
        self.trainer = trainer
        self.version = version  # finished updates
        self.training: TrainingRequest | None = None
        self.waiting: TrainingRequest | None = None
        self.training_ended = False  # whether training has ended for good while answers go on
        self.offered = self.finished = self.lost = 0
        self.lost_reason = ""  # of the last request that was lost
        self._began: Any = 0.0
        self._undelivered: tuple[Mapping[str, Any], ...] = ()  # facts of requests that were lost

    @property
    def skipped(self) -> int:
        """Batches that were never trained on and never will be."""
        pending = (self.training is not None) + (self.waiting is not None)
        return self.offered - self.finished - pending

    def collect(self, now: Any) -> Finished | None:
        """A request that has finished since the last call. Its version answers from now on."""
        if self.training is None:
            return None
        outcome: Update | Lost | None = self.trainer.collect()
        if outcome is None:
            return None
        request, self.training = self.training, None
        if isinstance(outcome, Lost):
            self.lost += 1
            self.lost_reason = outcome.why
            self._undelivered += request.facts
            self.training_ended = outcome.permanent
            return None
        self.finished += 1
        self.version += 1
        return Finished(request, outcome, self.version, now - self._began)

    def offer(self, request: TrainingRequest) -> None:
        """A new batch replaces the one that waits, whose facts are kept."""
        if self.waiting is not None:
            request = request._replace(facts=self.waiting.facts + request.facts)
        self.waiting = request
        self.offered += 1

    def dispatch(self, now: Any) -> None:
        """Send the waiting batch to the trainer, if the trainer is free."""
        if self.waiting is None or self.training is not None or self.training_ended:
            return
        request, self.waiting = self.waiting, None
        self.training = request._replace(facts=self._undelivered + request.facts)
        self._undelivered = ()
        self._began = now
        self.trainer.begin(self.training)
