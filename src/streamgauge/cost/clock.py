"""The event clock: when jobs begin and end, in exact rational arithmetic.

A stream step lasts one unit of time. A training job on the batch of step t starts when the batch is
revealed or when the learner becomes free, whichever is later, and lasts `cost` units. The new
version answers at every step that begins at or after the end of the job. A learner that is busy
until the end of a step never trains on the batch of that step. Cost 1 is the ordinary protocol:
every batch is trained before the next one is revealed. With a cost below 1 the learner trains once
per step and is idle for the rest.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

Cost = str | int | float | Fraction

# Pattern of the real-time paper's code at its two fractional costs: the same batches are trained,
# but versions answer too early (RealtimeOCL, `delay.py`). Per cycle: trained, then version.
_PUBLISHED = {
    Fraction(4, 3): ((True, True, True, False), (0, 1, 2, 2)),
    Fraction(5, 2): ((True, False, True, False, False), (0, 0, 1, 1, 1)),
}


class StepVersions(NamedTuple):
    """Per step: whether its batch is trained, and the version (finished updates) that answers."""

    trained: NDArray[np.bool_]
    version: NDArray[np.int64]


def as_cost(cost: Cost, zero: bool = False) -> Fraction:
    """A cost as an exact positive fraction (or 0 if `zero`); a float becomes the nearest fraction
    with a denominator up to 1,000.

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
    if exact < 0 or (exact == 0 and not zero):
        raise StreamgaugeError(f"A cost must be above 0, not {cost}.")
    return exact


class Clock:
    """When the learner of one run is free, and which of its jobs have ended. `predict_cost` is the
    share of every step that prediction takes from training on one device; a job then lasts cost /
    (1 - predict_cost) steps."""

    def __init__(self, predict_cost: Cost = 0) -> None:
        self._left = 1 - as_cost(predict_cost, zero=True)
        if self._left <= 0:
            raise StreamgaugeError(
                f"Answering takes {predict_cost} of every step, which leaves nothing for training."
            )
        self._free_at: int | Fraction = 0
        self._ends: list[int | Fraction] = []  # of unfinished jobs, oldest first
        self._cached: tuple[Fraction, int | Fraction] = (Fraction(0), 0)  # a cost and its length

    def free_within(self, step: int) -> bool:
        """Whether the learner is free at some time within the step."""
        return self._free_at < step + 1

    def busy(self, step: int) -> bool:
        """Whether the learner is busy at the start of a step."""
        return self._free_at > step

    def ends_in_time(self, cost: Fraction) -> bool:
        """Whether a job that begins with a step ends with it at the latest."""
        return self._length(cost) <= 1

    def begin(self, step: int, cost: Fraction) -> None:
        """Begin a job at the start of this step, or as soon as the learner is free."""
        self._free_at = max(self._free_at, step) + self._length(cost)
        self._ends.append(self._free_at)

    def stop(self, step: int) -> None:
        """Abort all unfinished jobs at the start of this step."""
        self._ends.clear()
        self._free_at = step

    def charge(self, step: int, cost: Fraction) -> None:
        """Occupy the learner from the end of this step, without a new version."""
        self._free_at = max(self._free_at, step + 1) + self._length(cost)

    def _length(self, cost: Fraction) -> int | Fraction:
        """Duration of a job in steps; an int where it is whole, as ints are much faster."""
        if self._cached[0] is not cost:  # comparing or hashing fractions is slow
            length = cost / self._left
            self._cached = cost, int(length) if length.denominator == 1 else length
        return self._cached[1]

    def finished(self, step: int) -> int:
        """Number of jobs that ended by the start of this step and were not reported before."""
        count = 0
        while count < len(self._ends) and self._ends[count] <= step:
            count += 1
        del self._ends[:count]
        return count

    def state_dict(self) -> dict[str, Any]:
        return {"free_at": str(self._free_at), "ends": [str(end) for end in self._ends]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._free_at = Fraction(state["free_at"])
        self._ends = [Fraction(end) for end in state["ends"]]


class PublishedClock(Clock):
    """The pattern of the real-time paper's code at its two fractional costs: versions answer before
    their training has ended (`schedule(..., as_published=True)`)."""

    def __init__(self, cost: Fraction) -> None:
        super().__init__()
        if cost not in _PUBLISHED:
            known = " and ".join(str(c) for c in _PUBLISHED)
            raise StreamgaugeError(
                f"The published code has whole costs and {known} only; {cost} needs the exact "
                "clock."
            )
        self._trained, self._version = _PUBLISHED[cost]
        self._begun = self._reported = 0

    def free_within(self, step: int) -> bool:
        return self._trained[step % len(self._trained)]

    def begin(self, step: int, cost: Fraction) -> None:
        self._begun += 1  # its end is in the pattern

    def finished(self, step: int) -> int:
        cycle, position = divmod(step, len(self._trained))
        visible = min(cycle * sum(self._trained) + self._version[position], self._begun)
        new, self._reported = visible - self._reported, visible
        return new

    def state_dict(self) -> dict[str, Any]:
        return {"begun": self._begun, "reported": self._reported}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun, self._reported = state["begun"], state["reported"]


def schedule(cost: Cost, steps: int, as_published: bool = False) -> StepVersions:
    """Which batches are trained and which version answers, for a method of this relative cost.

    >>> schedule("4/3", 8).version.tolist()
    [0, 0, 1, 2, 3, 3, 4, 5]
    >>> schedule("4/3", 8, as_published=True).version.tolist()
    [0, 1, 2, 2, 3, 4, 5, 5]
    """
    exact = as_cost(cost)
    if steps < 0:
        raise StreamgaugeError(f"A schedule has 0 steps or more, not {steps}.")
    clock = PublishedClock(exact) if as_published and exact.denominator > 1 else Clock()
    trained = np.zeros(steps, bool)
    version = np.zeros(steps, np.int64)
    done = 0
    for step in range(steps):
        done += clock.finished(step)
        version[step] = done
        if clock.free_within(step):
            clock.begin(step, exact)
            trained[step] = True
    return StepVersions(trained, version)


def updates_within(budget: Cost, relative_cost: Cost) -> int:
    """Whole updates per batch that a budget (in updates of ER) pays for, at a relative cost; the
    budgets of EvalOCL are 1, 5 and 10.

    >>> updates_within(10, "4/3")
    7
    """
    return int(as_cost(budget) / as_cost(relative_cost))
