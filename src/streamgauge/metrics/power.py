"""How many seeds or samples a comparison needs: the power of :func:`streamgauge.metrics.compare`.

The difference between two learners varies between seeds, between blocks of the stream (in the same
way for all seeds), and between both. With S seeds and a stream F times as long as measured,

    error^2 = V_seeds/S + V_blocks/F + V_both/(S F),

so more seeds cannot remove V_blocks, and a longer stream cannot remove V_seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.history.student import quantile
from streamgauge.metrics._arrays import Floats
from streamgauge.metrics.compare import BLOCKS, Estimates, satterthwaite

LEVEL = 0.05
FEWEST_SEEDS = 3  # two leave one degree of freedom
# `compare` adds the covariance of neighbouring blocks where it is above 0. For independent blocks
# that makes their variance so many times too large on average.
NEIGHBOURS = 1.125
MOST_SEEDS = 10_000
LONGEST = 1e6  # times the measured stream
NODES, FEW_NODES = 64, 10  # of an integral; of each integral where there are three


class Variances(NamedTuple):
    """What the difference between two learners varies with; variances of one seed, of one stream as
    long as measured."""

    seeds: float  # NaN: not known, as one seed was run
    blocks: float = 0.0
    both: float = 0.0
    block_count: int = 0  # 0: one number per seed, without blocks
    # What they may be instead, where they were measured: arrays of seeds, blocks, both and weights.
    possible: tuple[Floats, Floats, Floats, Floats] | None = None

    def error(self, seeds: int, longer: float = 1.0) -> float:
        """Standard error of the difference with so many seeds and a stream `longer` times as long.

        >>> round(Variances(seeds=0.04).error(4), 3)
        0.1
        """
        of_seeds = 0.0 if seeds == 1 and self.block_count else self.seeds / seeds
        return math.sqrt(of_seeds + self.blocks / longer + self.both / (seeds * longer))

    def test_freedom(self, seeds: int, longer: float = 1.0) -> float:
        """Degrees of freedom that :func:`compare` will have."""
        if not self.block_count:
            return seeds - 1
        both = self.both / (seeds * longer)
        of_blocks = (self.blocks / longer + both, self.block_count - 1)
        if seeds == 1:
            return of_blocks[1]
        of_seeds = (self.seeds / seeds + both, seeds - 1)
        of_both = (both, (seeds - 1) * (self.block_count - 1))
        return satterthwaite(of_seeds, of_blocks, of_both)[1]


def measured(estimates: Estimates) -> Variances:
    """The variances behind a comparison. `error(S)` with its own number of seeds is its error.

    Each measured variance V with n degrees of freedom may truly be V n / chi-square(n); these
    possible variances are averaged over where a number of seeds or samples is computed.
    """
    of_seeds, of_blocks, of_both = estimates.seeds, estimates.blocks, estimates.both
    count, n = estimates.seed_count, estimates.block_count
    if of_seeds is None and of_blocks is None:
        raise StreamgaugeError("One number of one seed has no variance: run three seeds or more.")
    if of_seeds is None or of_blocks is None:
        scale, weight = _scales(count - 1 if of_seeds is not None else n - 1, NODES)
        none = np.zeros_like(scale)
        if of_seeds is not None:
            possible = (count * of_seeds / scale**2, none, none, weight)
            return Variances(count * of_seeds, possible=possible)
        assert of_blocks is not None
        return Variances(math.nan, 0.0, of_blocks, n, (none, none, of_blocks / scale**2, weight))
    assert of_both is not None
    freedoms = (count - 1, n - 1, (count - 1) * (n - 1))
    scales, weights = zip(*(_scales(freedom, FEW_NODES) for freedom in freedoms), strict=True)
    grid = np.meshgrid(*scales, indexing="ij")
    true = [v / s.ravel() ** 2 for v, s in zip((of_seeds, of_blocks, of_both), grid, strict=True)]
    weight = np.einsum("i,j,k->ijk", *weights).ravel()
    seeds, blocks, both = (float(v) for v in _parts(of_seeds, of_blocks, of_both, count))
    return Variances(seeds, blocks, both, n, (*_parts(true[0], true[1], true[2], count), weight))


def _parts(of_seeds: Any, of_blocks: Any, of_both: Any, count: int) -> tuple[Any, Any, Any]:
    """The parts that belong to seeds alone, to blocks alone and to both."""
    both = np.minimum(of_both, np.maximum(of_seeds, of_blocks))
    return count * np.maximum(0, of_seeds - both), np.maximum(0, of_blocks - both), count * both


def given(deviation: float) -> Variances:
    """Known: the standard deviation over seeds of the difference, without blocks."""
    return Variances(seeds=_positive(deviation) ** 2)


def given_blocks(deviation: float) -> Variances:
    """Known: the standard deviation of the difference over blocks, a tenth of the stream each."""
    return Variances(math.nan, 0.0, NEIGHBOURS * _positive(deviation) ** 2 / BLOCKS, BLOCKS)


def _positive(deviation: float) -> float:
    if not 0 < deviation < math.inf:
        raise StreamgaugeError(f"A standard deviation is above 0, not {deviation:g}.")
    return deviation


def detection(
    difference: float,
    variances: Variances,
    seeds: int,
    longer: float = 1.0,
    level: float = LEVEL,
) -> float:
    """The probability that `compare` finds a true difference of this size (p < level).

    Noncentral t, averaged over what measured variances may truly be. So it holds on average over
    pilot runs, and is below that of variances known exactly.

    >>> round(detection(0.5, Variances(seeds=1.0), seeds=34), 2)
    0.81
    """
    error = variances.error(seeds, longer)
    if math.isnan(error):
        return math.nan
    if error == 0:
        return float(difference != 0)
    freedom = variances.test_freedom(seeds, longer)
    limit = _limit(1 - level, round(freedom, 6))
    ratio, weight = _scales(freedom, NODES)
    errors, error_weight = np.array([error]), np.ones(1)
    if variances.possible is not None:
        of_seeds, of_blocks, of_both, error_weight = variances.possible
        errors = np.sqrt(of_seeds / seeds + of_blocks / longer + of_both / (seeds * longer))
    with np.errstate(divide="ignore"):
        centre = abs(difference) / errors[:, None]
    detected = _normal(centre - limit * ratio) + _normal(-centre - limit * ratio)
    return float(np.einsum("i,ij,j", error_weight, detected, weight))


def seeds_needed(
    difference: float,
    variances: Variances,
    power: float = 0.8,
    longer: float = 1.0,
    level: float = LEVEL,
) -> int | None:
    """The least number of seeds (three or more) with this power; None where no number up to 10,000
    has it, because blocks of the stream differ, or where one seed does not tell.

    >>> seeds_needed(0.5, Variances(seeds=1.0))
    34
    """
    check_power(power)
    if math.isnan(variances.seeds):
        return None

    def enough(seeds: int) -> bool:
        return detection(difference, variances, seeds, longer, level) >= power

    if not enough(MOST_SEEDS):
        return None
    low, high = FEWEST_SEEDS - 1, FEWEST_SEEDS  # low does not suffice, high is being tried
    while not enough(high):
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def longer_needed(
    difference: float,
    variances: Variances,
    seeds: int,
    power: float = 0.8,
    level: float = LEVEL,
) -> float | None:
    """How many times as long as measured the stream has to be; None where no length up to a million
    times suffices, because seeds differ, or where lengths do not matter (one number per seed)."""
    check_power(power)
    if not variances.block_count:
        return None
    if not detection(difference, variances, seeds, LONGEST, level) >= power:
        return None
    return _least(lambda f: detection(difference, variances, seeds, f, level) >= power, LONGEST)


def together_needed(
    difference: float,
    variances: Variances,
    seeds: int,
    power: float = 0.8,
    level: float = LEVEL,
) -> tuple[int, float] | None:
    """Seeds, and how many times as long as measured the stream has to be, where both grow by the
    same factor; None where 10,000 seeds do not suffice, or where one of both does not matter.

    >>> together_needed(0.5, Variances(seeds=1.0, blocks=1.0, block_count=10), seeds=3)
    (143, 47.52...)
    """
    check_power(power)
    if not variances.block_count or math.isnan(variances.seeds):
        return None

    def enough(factor: float) -> bool:
        factor = max(1.0, factor)
        found = detection(difference, variances, math.ceil(seeds * factor), factor, level)
        return found >= power

    most = MOST_SEEDS / seeds
    if not enough(most):
        return None
    factor = max(1.0, _least(enough, most))
    return math.ceil(seeds * factor), factor


def smallest_difference(
    variances: Variances,
    seeds: int,
    longer: float = 1.0,
    power: float = 0.8,
    level: float = LEVEL,
) -> float:
    """The smallest true difference that is found with this power; NaN where it is not known."""
    check_power(power)
    error = variances.error(seeds, longer)
    if not error > 0:
        return error  # 0 or NaN
    return _least(lambda d: detection(d, variances, seeds, longer, level) >= power, 1e9 * error)


def check_power(power: float) -> None:
    """Refuse a power that is no probability above the level."""
    if not LEVEL < power < 1:
        percent = f": {power:g} % are {power / 100:g}" if 5 < power < 100 else ""
        raise StreamgaugeError(f"The power is a probability such as 0.8, not {power:g}{percent}.")


def _least(enough: Callable[[float], bool], most: float) -> float:
    """The least positive value that is enough, to one part in 10,000; `most` is enough."""
    low, high = math.log(most) - 70, math.log(most)
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
    return math.exp(high)


@lru_cache(maxsize=4096)
def _limit(confidence: float, freedom: float) -> float:
    return quantile(confidence, freedom)


@lru_cache(maxsize=512)
def _scales(freedom: float, count: int) -> tuple[Floats, Floats]:
    """Nodes and weights for means over sqrt(chi-square(freedom) / freedom)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    reach = 7 / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - reach), 1 + reach
    scale = low + (nodes + 1) / 2 * (high - low)
    density = (freedom - 1) * np.log(scale) - freedom * scale**2 / 2
    weights = weights * np.exp(density - density.max())
    return scale, weights / weights.sum()


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _normal(x: Floats) -> Floats:
    """The normal distribution function."""
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2))), dtype=np.float64)
