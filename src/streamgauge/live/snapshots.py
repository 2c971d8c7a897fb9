"""Near-future accuracy without looking ahead: a few versions are kept until their time comes.

A version kept at the beginning of a step is asked once for every shift S, on the first step that
begins at least S samples later, and is then let go. So J kept versions answer a share of the steps
only, at most J times the step size over the largest shift; what is written down as the shift is
the true age. The scheme is that of a deployed system, which cannot see the future: RealtimeOCL and
EvalOCL look ahead in stored data instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from streamgauge.errors import StreamgaugeError


class Due(NamedTuple):
    """A step to be answered by a version of the past."""

    version: int
    state: dict[str, Any]
    age: int  # samples between the beginnings of the two steps


class _Kept:
    def __init__(self, at: int, version: int, state: dict[str, Any], left: list[int]) -> None:
        self.at, self.version, self.state, self.left = at, version, state, left


class Snapshots:
    """At most `keep` versions at a time, taken at equal distances.

    >>> kept = Snapshots(shifts=(20,), keep=2)
    >>> for start in range(0, 60, 10):
    ...     due = kept.begin(start, version=start // 10, state={})
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
            raise StreamgaugeError(f"Shifts need at least one snapshot to be kept, not {keep}.")
        self.shifts = sorted(set(shifts))
        self.keep = keep
        self._distance = -(-self.shifts[-1] // keep) if self.shifts else 0
        self._kept: list[_Kept] = []
        self._last: int | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, start: int, version: int, state: dict[str, Any]) -> list[Due]:
        """A step begins after `start` samples with this version in force: who answers it too."""
        due = []
        for kept in self._kept:
            reached = [shift for shift in kept.left if start - kept.at >= shift]
            if reached:
                due.append(Due(kept.version, kept.state, start - kept.at))
                del kept.left[: len(reached)]
        self._kept = [kept for kept in self._kept if kept.left]
        far_enough = self._last is None or start - self._last >= self._distance
        if self.shifts and far_enough and len(self._kept) < self.keep:
            self._kept.append(_Kept(start, version, state, list(self.shifts)))
            self._last = start
        return due
