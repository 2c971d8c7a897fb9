"""Does a measured number agree with a published one? Intervals, p-values and joint statements.

One published number (a mean over n1 runs, or one run) against the mean of our n2 runs:

    difference d = ours - published,  interval d ± t s.e.(d),  p by Student's t

    n1 > 1   s.e.² = s1²/n1 + s2²/n2 + u²/12, freedom by Welch and Satterthwaite (Welch 1947)
    n1 = 1   s.e.² = s2² (1 + 1/n2)  + u²/12: the published run is taken to vary as ours do

u is the unit of the last printed digit. Deviations come from few runs, so small ones are raised
towards those of their column (`moderate`), and none is below that of a binomial count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.student import quantile, two_sided_p
from streamgauge.metrics import holm

LEVEL = 0.05
MARGIN = 1.0  # points: differences below it do not matter
WIDEST = 2.0  # points: half of the widest interval that says anything
ROTATIONS = 9_999  # of a table, for its joint statement
Verdict = Literal["equivalent", "consistent", "differs", "uninformative"]


@dataclass(frozen=True)
class Side:
    """Runs of one side of a comparison: NaN as deviation where it is not known."""

    mean: float
    deviation: float
    runs: int
    floor: float = 0.0  # smaller deviations are raised to this one

    @property
    def freedom(self) -> int:
        return 0 if math.isnan(self.deviation) else self.runs - 1


@dataclass(frozen=True)
class Agreement:
    """A difference in points with its standard error, degrees of freedom and 95 % interval."""

    difference: float
    error: float  # NaN where neither side has a deviation
    freedom: float
    adjusted: float = math.nan  # p by Holm within the table

    @property
    def p(self) -> float:
        return two_sided_p(self.difference / self.error, self.freedom)

    @property
    def half(self) -> float:
        """Of the 95 % interval."""
        return _t(1 - LEVEL, self.freedom) * self.error if self.error > 0 else math.inf

    @property
    def verdict(self) -> Verdict:
        if self.adjusted <= LEVEL:
            return "differs"
        if self.equivalent:
            return "equivalent"
        return "consistent" if self.half <= WIDEST else "uninformative"

    @property
    def equivalent(self) -> bool:
        """Two one-sided tests at 2.5 % each: the 95 % interval lies within the margin."""
        to_limit = MARGIN - abs(self.difference)
        return to_limit > 0 and two_sided_p(to_limit / self.error, self.freedom) <= LEVEL


@dataclass(frozen=True)
class Joint:
    """All differences of a table at once, of the seeds of ours that all cells have."""

    cells: int
    seeds: int
    chi2: float  # by chance as large as the number of cells; NaN with less than two seeds
    p: float
    offset: float  # mean difference over the cells
    offset_half: float  # of its 95 % interval
    offset_p: float
    free: float  # p of χ² without floors


def binomial_floor(mean: float, samples: int | None) -> float:
    """Deviation, in points, of an accuracy in % over so many independent samples. Runs that answer
    the same samples can vary less, since some samples are easier than others.

    >>> round(binomial_floor(50.0, 49_000), 3)
    0.226
    """
    share = min(max(mean / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / samples) if samples else 0.0


def moderate(sides: Sequence[Side]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Deviations and degrees of freedom of the rows of one column of a table.

    A variance from few runs is uncertain, and one variance for all rows is wrong, as methods
    differ. So the rows' typical variance (the geometric mean, without the bias of logs of few
    runs) only raises small ones: a row below it takes the mean of both, with twice its own degrees
    of freedom, no more than all rows have together; a row above it keeps its own. With this rule
    the rate of false alarms stays below 5 % where rows differ up to tenfold
    (tests/suites/test_criterion.py). A row without a deviation takes the typical one, with the mean
    degrees of freedom of the others.
    """
    freedom = np.array([side.freedom for side in sides], dtype=np.float64)
    floor = np.array([max(side.floor, 1e-9) for side in sides])
    own = np.array([side.deviation if side.freedom else 0.0 for side in sides])
    variance = np.maximum(own, floor) ** 2
    known = freedom > 0
    if not known.any():
        return np.full(len(sides), np.nan), np.zeros(len(sides))
    total, mean_freedom = freedom.sum(), freedom[known].mean()
    typical = _typical(variance[known], freedom[known])
    raised = known & (variance < typical) & (known.sum() > 1)
    variance = np.where(raised, (variance + typical) / 2, np.where(known, variance, typical))
    freedom = np.where(raised, np.minimum(2 * freedom, total), freedom)
    return np.maximum(np.sqrt(variance), floor), np.where(known, freedom, mean_freedom)


def _typical(variance: NDArray[np.float64], freedom: NDArray[np.float64]) -> float:
    """exp of the mean of log s² - E log(χ²(d)/d), weighted by the degrees of freedom d."""
    bias = [_digamma(d / 2) - math.log(d / 2) for d in freedom]
    return float(np.exp(np.average(np.log(variance) - bias, weights=freedom)))


def compare_column(
    published: Sequence[Side], ours: Sequence[Side], units: Sequence[float]
) -> list[Agreement]:
    """The tests of one column of a table; NaN where neither side has a deviation."""
    own, own_freedom = moderate(ours)
    theirs, their_freedom = moderate(published)
    tests = []
    parts: tuple[tuple[float, float], ...]
    for row, (side, mine, unit) in enumerate(zip(published, ours, units, strict=True)):
        known = ((unit**2 / 12, math.inf),)
        if side.runs > 1:
            parts = (
                (theirs[row] ** 2 / side.runs, their_freedom[row]),
                (own[row] ** 2 / mine.runs, own_freedom[row]),
            )
        else:
            parts = ((own[row] ** 2 * (1 + 1 / mine.runs), own_freedom[row]),)
        tests.append(of_parts(mine.mean - side.mean, [*parts, *known]))
    return tests


def of_parts(difference: float, parts: Sequence[tuple[float, float]]) -> Agreement:
    """By the parts of its variance, each with its degrees of freedom (Satterthwaite 1946)."""
    variance = math.fsum(value for value, _ in parts)
    if math.isnan(variance):
        return Agreement(difference, math.nan, 0.0)
    freedom = variance**2 / math.fsum(value**2 / of for value, of in parts)
    return Agreement(difference, math.sqrt(variance), freedom)


def judged(tests: Sequence[Agreement]) -> list[Agreement]:
    """The tests of a table with p by Holm."""
    adjusted = holm([test.p for test in tests])
    return [replace(test, adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)]


def joint(
    published: Sequence[Side],
    runs: Sequence[Mapping[int, float]],
    units: Sequence[float],
    floors: Sequence[float] = (),
) -> Joint:
    """Could the published numbers be drawn as ours are? `runs` has our value of every cell by seed,
    `floors` the least deviation that a cell can have (none: 0).

    χ² is the sum over cells of the likelihood ratio of a t test with n seeds of ours, whose
    variance is not below that of the floor: without a floor it is log(1 + t²/(n-1)). Divided by its
    mean under the hypothesis. Cells of a table are correlated in an unknown way: columns come from
    the same runs, and a seed is the same order of classes in every row. So p comes from rotations
    (Langsrud 2005): if the published runs are drawn as ours are, then for every cell the scaled
    difference and the n - 1 independent contrasts of our seeds are n normal values of mean 0 and
    equal variance, with the same correlations between cells in each. They are then as likely as any
    rotation of them, and χ² is computed for random ones. This needs no estimate of the
    correlations, and its level is exact but for the rounding of printed numbers, by which a
    difference is scaled down, and for floors that are computed from our means. The offset is
    tested likewise, without floors: Student's t with n - 1 degrees of freedom, exact where all
    cells have as many published runs.
    """
    values = _by_seed(runs)
    count, seeds = values.shape
    if seeds < 2:
        return Joint(count, seeds, *[math.nan] * 6)
    means, deviations = values.mean(axis=1), values.std(axis=1, ddof=1)
    difference = means - [side.mean for side in published]
    offset = float(difference.mean())
    share = 1 / seeds + np.array([1 / side.runs for side in published])
    rounding = np.array(units) ** 2 / 12
    least = np.array(floors or [0.0] * count)
    sides = [Side(m, s, seeds, f) for m, s, f in zip(means, deviations, least, strict=True)]
    raised, _ = moderate(sides)
    scaled = difference / np.sqrt(share + rounding / raised**2)
    data = np.column_stack([scaled, values - means[:, None]])
    statistic = _by_rotations(data, least)
    plain = _by_rotations(data, np.zeros(count)) if least.any() else statistic
    by_chance = float(statistic[1:].mean())  # the first one is that of the data
    chi2 = count * float(statistic[0]) / by_chance if by_chance else 0.0
    p = float(np.mean(statistic >= statistic[0]))
    by_seed = values.mean(axis=0)
    error = math.sqrt(by_seed.var(ddof=1) * share.mean() + rounding.mean() / count)
    half = _t(1 - LEVEL, seeds - 1) * error
    offset_p = two_sided_p(offset / error, seeds - 1) if error else math.nan
    free = float(np.mean(plain >= plain[0]))
    return Joint(count, seeds, chi2, p, offset, half, offset_p, free)


def _by_seed(runs: Sequence[Mapping[int, float]]) -> NDArray[np.float64]:
    """Cells by seeds, of the seeds that all cells have."""
    seeds = sorted(set.intersection(*(set(cell) for cell in runs)))
    return np.array([[cell[seed] for seed in seeds] for cell in runs], dtype=np.float64)


def _by_rotations(y: NDArray[np.float64], floors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Twice the log likelihood ratio per value, summed over the cells: of the data, then of random
    rotations. `y` has a row per cell: its scaled difference, then the deviations of n seeds from
    their mean, which have n - 1 dimensions."""
    seeds = y.shape[1] - 1
    length = np.linalg.norm(y, axis=1, keepdims=True)
    cosine = (y / np.where(length > 0, length, 1)) @ _directions(seeds)
    whole = np.maximum(length**2 / seeds, 1e-18)
    rest = whole * np.maximum(1 - cosine**2, 1e-12)  # without the difference
    least = floors[:, None] ** 2
    null, other = np.maximum(whole, least), np.maximum(rest, least)
    ratio = np.log(null / other) + whole / null - rest / other
    total: NDArray[np.float64] = ratio.sum(axis=0)
    return total


@lru_cache
def _directions(seeds: int) -> NDArray[np.float64]:
    """Of unit length, in columns: that of the difference, then random ones."""
    directions = np.random.default_rng(0).normal(size=(seeds + 1, ROTATIONS))
    directions[1:] -= directions[1:].mean(axis=0)
    directions /= np.linalg.norm(directions, axis=0)
    first = np.eye(seeds + 1)[:, :1]
    return np.hstack([first, directions])


def detectable(tests: Sequence[Agreement]) -> list[float]:
    """The true difference, in points, that each cell calls different with probability 80 %, where
    Holm asks most. By an approximation of the noncentral t distribution with
    ν degrees of freedom: (δ - q (1 - 1/4ν)) / √(1 + q²/2ν) is normal (Johnson and Welch 1940)."""
    needed = []
    for test in tests:
        q, freedom = _t(1 - LEVEL / len(tests), test.freedom), test.freedom
        spread = math.sqrt(1 + q * q / (2 * freedom))
        needed.append(
            test.error * (q * (1 - 1 / (4 * freedom)) + NormalDist().inv_cdf(0.8) * spread)
        )
    return needed


_t = lru_cache(maxsize=4096)(quantile)


def _digamma(x: float) -> float:
    """By its recurrence, then its asymptotic series."""
    shift = 0.0
    while x < 8:
        shift, x = shift - 1 / x, x + 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return shift + math.log(x) - 0.5 / x - tail
