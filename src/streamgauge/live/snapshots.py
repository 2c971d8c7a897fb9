"""Near-future accuracy without looking ahead: snapshots of a few versions answer later steps.

A snapshot taken at the beginning of a step answers once for every shift S, on the first step that
begins at least S samples later, and is then discarded. So J snapshots answer only a share of the
steps, at most J times the step size over the largest shift; the shift in the log is the true age.
A deployed system, which cannot see the future, can do the same; RealtimeOCL and EvalOCL look ahead
in stored data instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streamgauge.bridges.foreign import load_own_state
from streamgauge.engine import Eager
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live.dispatcher import Dispatcher, Finished
from streamgauge.live.monitoring import WINDOW
from streamgauge.live.trainer import pack, unpack
from streamgauge.running.rows import append_training

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.live.journal import Journal

MAX_DELAYED = 64  # answers of snapshots that may be delayed before some are left out


class DueSnapshot(NamedTuple):
    """A snapshot that answers a step."""

    version: int
    state: dict[str, Any]
    age: int  # samples between the beginnings of the two steps


class _Snapshot(NamedTuple):
    start: int
    version: int
    state: dict[str, Any]
    shifts: list[int]  # not yet answered


class Snapshots:
    """At most `keep` snapshots at a time, taken at equal distances.

    >>> snapshots = Snapshots(shifts=(20,), keep=2)
    >>> for start in range(0, 60, 10):
    ...     due = snapshots.begin(start, version=start // 10, state={})
    ...     print(start, [(d.version, d.age) for d in due])
    0 []
    10 []
    20 [(0, 20)]
    30 [(1, 20)]
    40 [(2, 20)]
    50 [(3, 20)]
    """

    def __init__(self, shifts: Sequence[int], keep: int) -> None:
        for shift in shifts:
            if shift < 1:
                raise StreamgaugeError(f"A shift is a number of samples above 0, not {shift}.")
        if shifts and keep < 1:
            raise StreamgaugeError(f"Shifts need at least one snapshot, not {keep}.")
        self.shifts = sorted(set(shifts))
        self.keep = keep
        self._distance = -(-self.shifts[-1] // keep) if self.shifts else 0
        self._snapshots: list[_Snapshot] = []
        self._last: int | None = None  # start of the newest snapshot

    def __len__(self) -> int:
        return len(self._snapshots)

    def begin(self, start: int, version: int, state: dict[str, Any]) -> list[DueSnapshot]:
        """The snapshots that answer too in the step that begins after `start` samples."""
        due = []
        for snapshot in self._snapshots:
            age = start - snapshot.start
            reached = [shift for shift in snapshot.shifts if age >= shift]
            if reached:
                due.append(DueSnapshot(snapshot.version, snapshot.state, age))
                del snapshot.shifts[: len(reached)]
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.shifts]
        far_enough = self._last is None or start - self._last >= self._distance
        if self.shifts and far_enough and len(self._snapshots) < self.keep:
            self._snapshots.append(_Snapshot(start, version, state, list(self.shifts)))
            self._last = start
        return due


class DelayedAnswer(NamedTuple):
    item: int  # a step, or the number of a sample
    due: DueSnapshot
    column: int  # number of `due` among the snapshots of this item


class Answering:
    """A learner that answers, the dispatcher that updates it, and snapshots of it. `build` makes a
    second learner, for snapshots; it is called at its first use."""

    def __init__(
        self,
        learner: Learner,
        build: Callable[[], Learner],
        classes: int,
        dispatcher: Dispatcher,
        journal: Journal,
        device: torch.device,
        snapshots: Snapshots,
    ) -> None:
        self.learner, self.dispatcher, self.journal = learner, dispatcher, journal
        self.device, self.snapshots = device, snapshots
        self.near_future_left_out = 0
        self.state: dict[str, Any] = unpack(pack(learner.state_dict()))
        self._build, self._classes = build, classes
        self._adapter = LearnerAdapter(learner)
        self._engine = _engine(learner, classes)
        self._snapshot_engine: Eager | None = None
        self._snapshot_version = -1
        self.delayed: deque[DelayedAnswer] = deque()
        self.latencies: deque[float] = deque(maxlen=WINDOW)  # seconds of the newest answers

    @property
    def version(self) -> int:
        return self.dispatcher.version

    def facts(self, restarts: list[str]) -> dict[str, Any]:
        """What `live.json` holds of every live run."""
        return {
            "offered": self.dispatcher.offered,
            "skipped": self.dispatcher.offered - self.dispatcher.finished,
            "lost": self.dispatcher.lost,
            "restarts": restarts,
            "near_future_left_out": self.near_future_left_out,
        }

    def _append_latency(self, step: int, seconds: float) -> None:
        self.latencies.append(seconds)
        self.journal.rows["timing"].append(1, step=step, part="latency", seconds=seconds)

    def _apply(self, finished: Finished) -> None:
        """Answer with a new version from here on, and append the rows of its training; `job` in
        `timing` is the time from the start of the request until its version answers."""
        request, update, version, seconds = finished
        with self.journal.timed("apply"):
            load_own_state(self.learner, update.state)
        self.state = update.state
        self.journal.add_seconds("learn", update.seconds)
        rows = self.journal.rows
        append_training(rows, request.step, version, update.scalars, update.flops, update.bytes)
        rows["timing"].append(1, step=request.step, part="job", seconds=float(seconds))

    def _delay(self, item: int, snapshots: list[DueSnapshot], most: int = MAX_DELAYED) -> None:
        """Let snapshots answer later; the oldest answers are left out if there are too many."""
        for column, due in enumerate(snapshots):
            self.delayed.append(DelayedAnswer(item, due, column))
        while len(self.delayed) > most:
            self.delayed.popleft()
            self.near_future_left_out += 1

    def _load_snapshot(self, due: DueSnapshot) -> Eager:
        """The engine that answers with a snapshot."""
        if self._snapshot_engine is None:
            self._snapshot_engine = _engine(self._build(), self._classes)
        if self._snapshot_version != due.version:
            load_own_state(self._snapshot_engine.learner, due.state)
            self._snapshot_version = due.version
        return self._snapshot_engine


def _engine(learner: Learner, classes: int) -> Eager:
    """An engine that answers with a learner as the loop does."""
    engine = Eager()
    engine.adopt(LearnerAdapter(learner), classes)
    return engine
