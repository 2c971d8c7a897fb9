"""Comparison of learners: differences with confidence intervals, p-values and leaderboards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.history.student import quantile, two_sided_p
from streamgauge.metrics._arrays import Floats, Integers, block_variance

BLOCKS = 10


class Spread(NamedTuple):
    """Mean and standard deviation over seeds; floats for numbers, arrays for curves."""

    mean: Any
    deviation: Any  # divided by seeds - 1; NaN for a single seed
    seeds: int


class Comparison(NamedTuple):
    """The difference A - B with its uncertainty."""

    difference: float
    error: float  # standard error of the difference
    low: float  # confidence interval
    high: float
    p: float  # two-sided p-value of no difference
    freedom: float  # degrees of freedom
    seeds: int
    blocks: int  # 0 if only seeds were compared


class Standing(NamedTuple):
    """One line of a leaderboard."""

    name: str
    mean: float
    deviation: float
    rank: int  # 1 + the number of learners that are significantly better
    groups: str  # learners that share a letter are not significantly different
    tied_with: tuple[str, ...]


def spread(values: ArrayLike) -> Spread:
    """Mean and standard deviation (divided by n - 1) over the first axis, the seeds.

    NaN values are not skipped: one NaN makes the mean NaN.

    >>> spread([0.2895, 0.2969, 0.2698, 0.2824, 0.2689])
    Spread(mean=0.2815, deviation=0.0122..., seeds=5)
    """
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim == 0 or not len(runs):
        raise StreamgaugeError("spread needs one value per seed, but got none.")
    mean = runs.mean(axis=0)
    deviation = runs.std(axis=0, ddof=1) if len(runs) > 1 else np.full(runs.shape[1:], np.nan)
    if runs.ndim == 1:
        return Spread(float(mean), float(deviation), len(runs))
    return Spread(mean, deviation, len(runs))


def compare(
    A: Any, B: Any, blocks: int | ArrayLike = BLOCKS, confidence: float = 0.95
) -> Comparison:
    """The difference between two learners, paired over seeds and over blocks of stream time.

    ``A`` and ``B`` hold, per seed, whether each sample was predicted correctly: lists of arrays, or
    arrays ``[seeds, samples]``; entry s of both must come from the same seed, so that both learners
    saw the same stream. Or one number per seed (for example retained accuracies): then the
    comparison is paired over seeds only.

    Why blocks: neighbouring samples of a stream are correlated, and so are a learner's mistakes on
    them; treating samples as independent makes p-values far too small. The stream is cut into
    ``blocks`` equally long blocks (or pass a block number per sample, for example the day). A block
    should be ten times as long as the bursts or albums of the stream, so use few blocks (simulated:
    with blocks of ten times that length, 5 % of the comparisons of equal learners give p < .05; of
    five times, 6 %; of two and a half times, 8 %). Within each seed and block both learners
    predicted the same samples, and only the difference of their accuracies is used.

    With d[s, b] that difference, w_b the share of samples in block b, d_s and d_b the means over
    blocks and over seeds, d their mean, r the residuals d[s, b] - d_s - d_b + d:

        V_seeds  = sum over s of (d_s - d)^2 / (S (S - 1))
        e_b      = w_b (d_b - d),   n the number of blocks
        V_blocks = n/(n - 1) * (sum over b of e_b^2 + max(0, 2 * sum over b of e_b e_(b+1)))
        V_rest   = n/(n - 1) * sum over b, s of w_b^2 r^2 / (S (S - 1))
        error^2  = max(V_seeds, V_blocks, V_seeds + V_blocks - V_rest),

    the variance of a mean over two crossed factors, seeds and blocks. It is valid whether all seeds
    saw the same stream (then the variance over seeds alone would ignore that B may be better on
    another stream) or each seed a stream of its own. The maximum protects against an estimate that
    is too small by chance. Interval and p-value come from Student's t with Satterthwaite's degrees
    of freedom. With one seed, only the variance over blocks is used and the result does not
    generalise to other seeds; with two seeds, false alarms reach 11 % if seeds differ much; use
    three or more. NaN with one seed and one block.

    >>> a = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    >>> b = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    >>> compare(a, b, blocks=2).difference
    0.25
    >>> round(compare([0.30, 0.32, 0.31], [0.28, 0.31, 0.28]).p, 4)
    0.0742
    """
    if not 0 < confidence < 1:
        raise StreamgaugeError(f"confidence is between 0 and 1, such as 0.95, not {confidence}")
    estimates = estimate(A, B, blocks)
    difference, freedom = estimates.difference, estimates.freedom
    error = math.sqrt(estimates.variance)
    half_width = quantile(confidence, freedom) * error
    return Comparison(
        difference,
        error,
        difference - half_width,
        difference + half_width,
        _p_value(estimates),
        freedom,
        estimates.seed_count,
        estimates.block_count,
    )


def _p_value(estimates: Estimates) -> float:
    error = math.sqrt(estimates.variance)
    # A smaller difference is a rounding error.
    if abs(estimates.difference) < 1e-13 and error < 1e-13:
        return 1.0
    return two_sided_p(estimates.difference / error if error else math.inf, estimates.freedom)


class Estimates(NamedTuple):
    """The difference A - B and its variance, by what it varies with; see :func:`compare`."""

    difference: float
    variance: float  # error^2; NaN with one seed and one block
    freedom: float
    seeds: float | None  # V_seeds; None for one seed
    blocks: float | None  # V_blocks; None without blocks
    both: float | None  # V_rest; None where one of the others is
    seed_count: int
    block_count: int  # 0 without blocks


def estimate(A: Any, B: Any, blocks: int | ArrayLike = BLOCKS) -> Estimates:
    """What :func:`compare` computes before interval and p-value."""
    cells, weights, means = _differences(A, B, blocks)
    seeds, block_count = cells.shape
    difference = float(means.mean())
    of_seeds = of_blocks = of_both = None
    candidates: list[tuple[float, float]] = []  # variance, degrees of freedom
    if seeds > 1:
        of_seeds = float(np.sum((means - difference) ** 2)) / (seeds * (seeds - 1))
        candidates.append((of_seeds, seeds - 1))
    if block_count > 1:
        per_block = cells.mean(axis=0)
        block_mean = float(np.sum(weights * per_block))
        of_blocks = block_variance(weights * (per_block - block_mean))
        candidates.append((of_blocks, block_count - 1))
    if len(candidates) == 2:
        residuals = cells - means[:, None] - per_block[None, :] + block_mean
        correction = block_count / (block_count - 1)
        squares = float(np.sum((weights * residuals) ** 2))
        of_both = correction * squares / (seeds * (seeds - 1))
        residual = (of_both, (seeds - 1) * (block_count - 1))
        candidates.append(satterthwaite(candidates[0], candidates[1], residual))
    variance, freedom = max(candidates) if candidates else (math.nan, math.nan)
    return Estimates(
        difference,
        variance,
        freedom,
        of_seeds,
        of_blocks,
        of_both,
        seeds,
        block_count if block_count > 1 else 0,
    )


def satterthwaite(
    seeds: tuple[float, float], blocks: tuple[float, float], residual: tuple[float, float]
) -> tuple[float, float]:
    """V_seeds + V_blocks - V_rest and its degrees of freedom (Satterthwaite)."""
    total = seeds[0] + blocks[0] - residual[0]
    uncertainty = sum(variance**2 / freedom for variance, freedom in (seeds, blocks, residual))
    freedom = total**2 / uncertainty if uncertainty > 0 else seeds[1]
    return total, max(freedom, min(seeds[1], blocks[1]))


def _differences(A: Any, B: Any, blocks: int | ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Differences per [seed, block], weights of the blocks, and differences per seed."""
    runs_a, runs_b = _runs(A), _runs(B)
    if len(runs_a) != len(runs_b) or not runs_a:
        raise StreamgaugeError(
            f"compare pairs runs by seed, but there are {len(runs_a)} runs of A and {len(runs_b)} "
            "of B; pass one run per seed for both."
        )
    for run_a, run_b in zip(runs_a, runs_b, strict=True):
        if run_a.shape != run_b.shape:
            raise StreamgaugeError(
                "compare pairs samples, but for one seed A and B have different lengths "
                f"({len(run_a)} and {len(run_b)}); score both on the samples they share."
            )
    differences = [run_a - run_b for run_a, run_b in zip(runs_a, runs_b, strict=True)]
    means = np.array([difference.mean() for difference in differences])
    if all(difference.size == 1 for difference in differences):
        return means[:, None], np.ones(1), means
    cells, weights = [], []
    for difference in differences:
        block, block_count = _blocks(blocks, len(difference))
        sizes = np.bincount(block, minlength=block_count)
        cells.append(np.bincount(block, weights=difference, minlength=block_count) / sizes)
        weights.append(sizes / len(difference))
    return np.array(cells), np.mean(weights, axis=0), means


def _runs(values: Any) -> list[Floats]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == bool:
        raise StreamgaugeError(
            "compare needs one array of samples per seed; put the array of a single seed in a list."
        )
    runs = [np.atleast_1d(np.asarray(run, dtype=np.float64)) for run in values]
    if any(run.ndim != 1 or not run.size for run in runs):
        raise StreamgaugeError("compare needs, per seed, one number or one entry per sample.")
    return runs


def _blocks(blocks: int | ArrayLike, samples: int) -> tuple[Integers, int]:
    """The block of each sample, and the number of blocks."""
    if isinstance(blocks, int | np.integer):
        if not 1 <= blocks <= samples:
            raise StreamgaugeError(
                f"{samples} samples cannot be cut into {blocks} blocks; use 1 to {samples} blocks."
            )
        return np.arange(samples) * int(blocks) // samples, int(blocks)
    block_ids = np.asarray(blocks)
    if block_ids.shape != (samples,):
        raise StreamgaugeError(
            f"blocks must be a number of blocks, or a block number for each of {samples} samples."
        )
    distinct, block = np.unique(block_ids, return_inverse=True)
    return block, len(distinct)


def holm(p: ArrayLike) -> Floats:
    """p-values corrected for multiple comparisons (Holm's step-down method).

    The i-th smallest of m p-values is multiplied by m - i + 1, never below its predecessor, never
    above 1. If pairs with a corrected p-value below alpha are called different, the probability of
    one or more false calls is at most alpha, also for dependent comparisons. NaN (a comparison that
    was not possible) stays NaN and is not counted in m.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p, dtype=np.float64)
    corrected = np.full(values.shape, np.nan)
    defined = np.flatnonzero(~np.isnan(values))
    order = defined[np.argsort(values[defined], kind="stable")]
    steps = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def leaderboard(
    results: Mapping[str, Any], blocks: int | ArrayLike = BLOCKS, level: float = 0.05
) -> list[Standing]:
    """Learners sorted by mean, best first, with ranks and groups of ties.

    ``results`` maps a name to an argument of :func:`compare`. All pairs are compared, p-values are
    corrected by :func:`holm`, and pairs with p below ``level`` are called different. The rank of a
    learner is 1 + the number of learners that are significantly better. Two learners share a letter
    in ``groups`` if and only if they are not significantly different.

    >>> board = leaderboard({"x": [0.9, 0.91, 0.92], "y": [0.2, 0.21, 0.23], "z": [0.9, 0.92, 0.9]})
    >>> [(line.name, line.rank, line.groups) for line in board]
    [('x', 1, 'a'), ('z', 1, 'a'), ('y', 3, 'b')]
    """
    spreads = {name: spread([run.mean() for run in _runs(runs)]) for name, runs in results.items()}
    # NaN means come last; NaN as a sort key would leave the list unsorted.
    names = sorted(results, key=lambda name: (math.isnan(spreads[name].mean), -spreads[name].mean))
    pairs = list(combinations(range(len(names)), 2))
    # Without intervals, which would take most of the time.
    estimates = [estimate(results[names[i]], results[names[j]], blocks) for i, j in pairs]
    corrected = holm([_p_value(each) for each in estimates])
    different = [
        pair if each.difference > 0 else pair[::-1]
        for pair, each, p in zip(pairs, estimates, corrected, strict=True)
        if p < level
    ]
    groups = _groups(len(names), different)
    different_pairs = {frozenset(pair) for pair in different}
    return [
        Standing(
            name=name,
            mean=spreads[name].mean,
            deviation=spreads[name].deviation,
            rank=1 + sum(worse == i for _, worse in different),
            groups="".join(letter for letter, group in groups if i in group),
            tied_with=tuple(
                other
                for j, other in enumerate(names)
                if j != i and frozenset((i, j)) not in different_pairs
            ),
        )
        for i, name in enumerate(names)
    ]


def _groups(
    learners: int, different: Sequence[tuple[int, int]]
) -> list[tuple[str, frozenset[int]]]:
    """A letter per maximal set of learners without a significant difference (Piepho 2004)."""
    sets = [frozenset(range(learners))]
    for i, j in different:
        parts = [
            part
            for group in sets
            for part in ((group - {i}, group - {j}) if {i, j} <= group else (group,))
        ]
        unique = list(dict.fromkeys(parts))
        sets = [group for group in unique if not any(group < other for other in unique)]
    sets.sort(key=sorted)
    return [(_letter(i), group) for i, group in enumerate(sets)]


def _letter(i: int) -> str:
    return ascii_lowercase[i] if i < len(ascii_lowercase) else f"({i + 1})"
