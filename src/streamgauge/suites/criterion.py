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
from statistics import NormalDist, mean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamgauge.metrics import holm
from streamgauge.metrics.student import quantile, two_sided_p

LEVEL = 0.05
MARGIN = 1.0  # points: differences below it do not matter
WIDEST = 2.0  # points: half of the widest interval that says anything
Verdict = Literal["equivalent", "consistent", "differs", "uninformative"]


@dataclass(frozen=True)
class Side:
    """Runs of one side of a comparison: NaN as deviation where it is not known."""

    mean: float
    deviation: float
    runs: int
    floor: float = 0.0  # the least deviation that is possible

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
        return abs(self.difference) + self.half <= MARGIN


@dataclass(frozen=True)
class Joint:
    """All differences of a table at once."""

    cells: int
    chi2: float
    freedom: float
    p: float
    offset: float = math.nan  # common to all cells, where the published runs share one seed
    offset_half: float = math.nan  # of the interval that our seeds give for it
    offset_p: float = math.nan


def binomial_floor(mean: float, samples: int | None) -> float:
    """Deviation, in points, of an accuracy in % over so many independent samples.

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
    tests: Sequence[Agreement], runs: Sequence[Mapping[int, float]], shared_seed: bool = False
) -> Joint:
    """The sum of squared differences, each as the normal deviate of its p-value.

    Cells of a table are not independent: columns come from the same runs, and a seed is the same
    order of classes in every row. `runs` has our value of every cell by seed; their correlations
    give the χ² its degrees of freedom (Satterthwaite: k² / Σ r², multiplied by Σ r² / k).

    With `shared_seed` all published runs have one seed, whose stream is common to all. The mean
    difference is an offset, tested against the spread of the same mean over our seeds. The χ² is
    about the weighted mean difference, with one degree of freedom less.
    """
    count = len(tests)
    values = _by_seed(runs)
    if shared_seed:
        differences = np.array([test.difference for test in tests])
        offset = float(differences.mean())
        half, offset_p = _offset(offset, values.mean(axis=0))
        centre = float(np.average(differences, weights=[test.error**-2 for test in tests]))
        deviates = [_deviate((t.difference - centre) / t.error, t.freedom) for t in tests]
        chi2 = math.fsum(z * z for z in deviates)
        p = chi2_p(chi2, count - 1) if count > 1 else math.nan
        return Joint(count, chi2, count - 1, p, offset, half, offset_p)
    chi2 = math.fsum(_deviate(t.difference / t.error, t.freedom) ** 2 for t in tests)
    squares = squared_correlations(values)
    freedom = count**2 / squares
    return Joint(count, chi2, freedom, chi2_p(chi2 * count / squares, freedom))


def _by_seed(runs: Sequence[Mapping[int, float]]) -> NDArray[np.float64]:
    """Cells by seeds, of the seeds that all cells have."""
    seeds = sorted(set.intersection(*(set(cell) for cell in runs)))
    return np.array([[cell[seed] for seed in seeds] for cell in runs], dtype=np.float64)


def _offset(offset: float, means: NDArray[np.float64]) -> tuple[float, float]:
    """Half the 95 % interval, and p, of an offset that is one seed's, from the means of ours."""
    seeds = len(means)
    if seeds < 2:
        return math.inf, math.nan
    error = float(np.std(means, ddof=1)) * math.sqrt(1 + 1 / seeds)
    return _t(1 - LEVEL, seeds - 1) * error, two_sided_p(offset / error, seeds - 1)


def squared_correlations(values: NDArray[np.float64]) -> float:
    """Σ r² over all pairs of rows of an array (cells, seeds). r² of n seeds is corrected for
    chance, (r² - 1/(n-1)) (n-1)/(n-2), and the sum is no less than that of independent cells."""
    count, seeds = values.shape
    if seeds < 3:
        return float(count)
    centred = values - values.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    units = centred / np.where(norms > 0, norms, np.inf)[:, None]
    squares = (units @ units.T) ** 2
    chance = 1 / (seeds - 1)
    others = (squares.sum() - np.trace(squares)) - chance * count * (count - 1)
    excess = others * (seeds - 1) / (seeds - 2)
    return float(min(count + max(excess, 0.0), count**2))


def _deviate(t: float, freedom: float) -> float:
    """The normal deviate with the p-value of t."""
    p = max(two_sided_p(t, freedom), 1e-300)
    return math.copysign(NormalDist().inv_cdf(p / 2), t)


def detectable(tests: Sequence[Agreement]) -> float:
    """The true difference, in points, that a cell calls different with probability 80 %, where
    Holm asks most; mean over the cells. By an approximation of the noncentral t distribution with
    ν degrees of freedom: (δ - q (1 - 1/4ν)) / √(1 + q²/2ν) is normal (Johnson and Welch 1940)."""
    needed = []
    for test in tests:
        q, freedom = _t(1 - LEVEL / len(tests), test.freedom), test.freedom
        spread = math.sqrt(1 + q * q / (2 * freedom))
        needed.append(
            test.error * (q * (1 - 1 / (4 * freedom)) + NormalDist().inv_cdf(0.8) * spread)
        )
    return mean(needed)


_t = lru_cache(maxsize=4096)(quantile)


def chi2_p(chi2: float, freedom: float) -> float:
    """P(χ² >= chi2).

    >>> round(chi2_p(3.841459, 1), 6)
    0.05
    """
    a, x = freedom / 2, chi2 / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # the series of the lower tail
        term = total = 1 / a
        for n in range(1, 10_000):
            term *= x / (a + n)
            total += term
            if term < 1e-16 * total:
                break
        return 1 - front * total
    value = 0.0  # the continued fraction of the upper tail, from its end
    for n in range(200 + int(20 * math.sqrt(x)), 0, -1):
        value = n * (n - a) / (x + 2 * n + 1 - a - value)
    return front / (x + 1 - a - value)


def _digamma(x: float) -> float:
    """By its recurrence, then its asymptotic series."""
    shift = 0.0
    while x < 8:
        shift, x = shift - 1 / x, x + 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return shift + math.log(x) - 0.5 / x - tail
