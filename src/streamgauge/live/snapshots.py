"""Near-future accuracy without looking ahead: snapshots of a few versions answer later steps.

A snapshot taken at the beginning of a step answers once for every shift S, on the first step that
begins at least S samples later, and is then discarded. So J snapshots answer only a share of the
steps, at most J times the step size over the largest shift; the shift in the log is the true age.
A deployed system, which cannot see the future, can do the same; RealtimeOCL and EvalOCL look ahead
in stored data instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streamgauge.engine import Eager
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter

if TYPE_CHECKING:
    from streamgauge.learners.base import Learner


class Due(NamedTuple):
    """A snapshot that answers a step."""

    version: int
    state: dict[str, Any]
    age: int  # samples between the beginnings of the two steps


class _Snapshot:
    def __init__(self, start: int, version: int, state: dict[str, Any], shifts: list[int]) -> None:
        self.start, self.version, self.state = start, version, state
        self.shifts = shifts  # not yet answered


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

    def begin(self, start: int, version: int, state: dict[str, Any]) -> list[Due]:
        """A step begins after `start` samples with this version in force. Returns the snapshots
        that answer the step too."""
        due = []
        for snapshot in self._snapshots:
            age = start - snapshot.start
            reached = [shift for shift in snapshot.shifts if age >= shift]
            if reached:
                due.append(Due(snapshot.version, snapshot.state, age))
                del snapshot.shifts[: len(reached)]
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.shifts]
        far_enough = self._last is None or start - self._last >= self._distance
        if self.shifts and far_enough and len(self._snapshots) < self.keep:
            self._snapshots.append(_Snapshot(start, version, state, list(self.shifts)))
            self._last = start
        return due


class SnapshotLearner:
    """A second learner that takes the states of snapshots; built at its first use."""

    def __init__(self, build: Callable[[], Learner], classes: int) -> None:
        self.build, self._classes = build, classes
        self._engine: Eager | None = None
        self._version = -1

    def load(self, due: Due) -> Eager:
        """The engine that answers with a snapshot."""
        if self._engine is None:
            self._engine = engine_of(self.build(), self._classes)
        if self._version != due.version:
            self._engine.learner.load_state_dict(due.state)
            self._version = due.version
        return self._engine


def engine_of(learner: Learner, classes: int) -> Eager:
    """An engine that answers with a learner as the loop does."""
    engine = Eager()
    engine.adopt(LearnerAdapter(learner), classes)
    return engine
