"""When things happen: one exact event clock in rational arithmetic.

A stream step lasts one unit of time. A training job on the batch of step t starts at the later of
the time the learner is free and the reveal of the batch, lasts `cost` units, and its new version
answers at every step that begins at or after its end. A learner that is still busy when a step ends
never trains on that step's batch. Cost 1 is the ordinary protocol, in which every batch is learnt
before the next one is revealed; a cost below 1 trains once a step and idles.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

# What the real-time paper's code did at its two fractional costs: the same batches are trained, but
# versions become visible too early (RealtimeOCL, `delay.py`). Per cycle: trained, then version.
_PUBLISHED = {
    Fraction(4, 3): ((True, True, True, False), (0, 1, 2, 2)),
    Fraction(5, 2): ((True, False, True, False, False), (0, 0, 1, 1, 1)),
}


class Schedule(NamedTuple):
    """For each step: whether its batch is trained, and how many finished updates answer it."""

    trained: NDArray[np.bool_]
    version: NDArray[np.int64]


def as_cost(cost: str | int | float | Fraction) -> Fraction:
    """A positive rational; floats go to the nearest fraction with denominator up to 1,000.

    >>> as_cost("4/3"), as_cost(1.3333333)
    (Fraction(4, 3), Fraction(4, 3))
    """
    try:
        exact = Fraction(cost)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise StreamgaugeError(
            f"A cost is a positive number or fraction such as 2 or '4/3', not {cost!r}."
        ) from error
    if isinstance(cost, float):
        exact = exact.limit_denominator(1000)
    if exact <= 0:
        raise StreamgaugeError(f"A cost must be above 0, not {cost}.")
    return exact


class Clock:
    """The event clock of one run. All times are whole numbers of 1/denominator of a step."""

    def __init__(self, cost: str | int | float | Fraction = 1) -> None:
        self.cost = as_cost(cost)
        self._tick = self.cost.denominator
        self._free_at = 0
        self._ends: list[int] = []  # of jobs begun and not yet finished, oldest first

    def begin(self, step: int) -> bool:
        """Begin training on this step's batch if the learner is or becomes free within the step."""
        if self._free_at >= (step + 1) * self._tick:
            return False
        self._free_at = max(self._free_at, step * self._tick) + self.cost.numerator
        self._ends.append(self._free_at)
        return True

    def finished(self, step: int) -> int:
        """How many jobs have ended by the beginning of this step, and were not reported before."""
        count = 0
        while count < len(self._ends) and self._ends[count] <= step * self._tick:
            count += 1
        del self._ends[:count]
        return count

    def state_dict(self) -> dict[str, Any]:
        return {"free_at": self._free_at, "ends": list(self._ends)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._free_at, self._ends = state["free_at"], list(state["ends"])


def schedule(
    cost: str | int | float | Fraction, steps: int, as_published: bool = False
) -> Schedule:
    """Which batches are trained and which version answers, for a method of a given relative cost.

    >>> schedule("4/3", 8).version.tolist()
    [0, 0, 1, 2, 3, 3, 4, 5]
    >>> schedule("4/3", 8, as_published=True).version.tolist()
    [0, 1, 2, 2, 3, 4, 5, 5]
    """
    exact = as_cost(cost)
    if as_published and exact.denominator > 1:
        return _published(exact, steps)
    clock = Clock(exact)
    trained = np.zeros(steps, bool)
    version = np.zeros(steps, np.int64)
    done = 0
    for step in range(steps):
        done += clock.finished(step)
        version[step] = done
        trained[step] = clock.begin(step)
    return Schedule(trained, version)


def _published(cost: Fraction, steps: int) -> Schedule:
    if cost not in _PUBLISHED:
        known = " and ".join(str(c) for c in _PUBLISHED)
        raise StreamgaugeError(
            f"The published code has whole costs and {known} only; {cost} needs the exact clock."
        )
    trained, version = _PUBLISHED[cost]
    cycle = np.arange(steps) // len(trained)
    place = np.arange(steps) % len(trained)
    return Schedule(
        np.array(trained)[place], cycle * sum(trained) + np.array(version, np.int64)[place]
    )
