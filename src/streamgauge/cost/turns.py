"""Two jobs timed in turns, so that what else the machine does slows both alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

LEAST, MOST = 7, 41  # pairs
SECONDS = 3.0  # after which no more than LEAST pairs are timed
NARROW = 1.05  # an interval whose ends differ by less is not measured further
# The machine was too busy to tell if the ends of the interval differ by more than WIDE times and by
# more than SMALL, or the quartiles of the reference's times by more than UNEVEN times.
WIDE, SMALL, UNEVEN = 1.25, 0.02, 1.6


class TurnSeconds(NamedTuple):
    """Seconds of a job and of its reference, pair by pair."""

    own: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over pairs."""
        return statistics.median(self._ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the median, from order statistics; of fewer than 6 pairs,
        the least and the greatest ratio."""
        ratios, count = sorted(self._ratios), len(self.own)
        rank, below = 0, 2 / 2**count
        while below <= 0.05:
            rank += 1
            below += 2 * math.comb(count, rank) / 2**count
        rank = max(0, rank - 1)
        return ratios[rank], ratios[count - 1 - rank]

    @property
    def busy(self) -> bool:
        low, high = self.interval
        times, last = sorted(self.reference), len(self.reference) - 1
        uneven = times[round(0.75 * last)] > UNEVEN * times[round(0.25 * last)]
        return uneven or (high > WIDE * low and high > low + SMALL)

    @property
    def _ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.own, self.reference, strict=True)]


def time_in_turns(
    own: Callable[[], float],
    reference: Callable[[], float],
    jobs: int = 1,
    least: int = LEAST,
    seconds: float = SECONDS,
) -> TurnSeconds:
    """Call two functions that return the seconds of their next job, each first in every second
    pair. A pair is `jobs` of both."""
    end, turns = time.perf_counter() + seconds, TurnSeconds((), ())
    while (count := len(turns.own)) < most_pairs(jobs):
        if count >= least:
            low, high = turns.interval
            if time.perf_counter() > end or high < NARROW * low:
                break
        mine = other = 0.0
        for job in range(jobs):
            if (count + job) % 2:
                mine, other = mine + own(), other + reference()
            else:
                other, mine = other + reference(), mine + own()
        turns = TurnSeconds((*turns.own, mine / jobs), (*turns.reference, other / jobs))
    return turns


def most_pairs(jobs: int) -> int:
    """At most so many pairs of `jobs` jobs are timed."""
    return max(LEAST, MOST // jobs)
