"""Is one learner better than another, and how sure can one be?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats, Integers
from streamgauge.metrics._student import quantile, two_sided_p

BLOCKS = 10


class Spread(NamedTuple):
    """Mean and sample deviation over seeds; floats for numbers, arrays for curves."""

    mean: Any
    deviation: Any  # divided by seeds - 1; NaN for a single seed
    seeds: int


class Comparison(NamedTuple):
    """What is known about the difference A - B."""

    difference: float
    error: float  # standard error of the difference
    low: float  # confidence interval
    high: float
    p: float  # two-sided, of no difference
    freedom: float  # degrees of freedom
    seeds: int
    blocks: int  # 0 if only seeds were compared


class Standing(NamedTuple):
    """One line of a leaderboard."""

    name: str
    mean: float
    deviation: float
    rank: int  # 1 + the number of learners that are significantly better
    groups: str  # learners that share a letter cannot be told apart
    tied_with: tuple[str, ...]


def spread(values: ArrayLike) -> Spread:
    """Mean and sample deviation (divided by n - 1) over the first axis, the seeds.

    A NaN stays a NaN: a seed that failed is not left out in silence.

    >>> spread([0.2895, 0.2969, 0.2698, 0.2824, 0.2689])
    Spread(mean=0.2815, deviation=0.0122..., seeds=5)
    """
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim == 0 or not len(runs):
        raise StreamgaugeError("spread wants one value a seed, and got none.")
    mean = runs.mean(axis=0)
    deviation = runs.std(axis=0, ddof=1) if len(runs) > 1 else np.full(runs.shape[1:], np.nan)
    if runs.ndim == 1:
        return Spread(float(mean), float(deviation), len(runs))
    return Spread(mean, deviation, len(runs))


def compare(
    A: Any, B: Any, blocks: int | ArrayLike = BLOCKS, confidence: float = 0.95
) -> Comparison:
    """The difference between two learners, paired over seeds and over blocks of stream time.

    ``A`` and ``B`` hold, for each seed, whether each sample was answered right: lists of arrays, or
    arrays ``[seeds, samples]``; entry s of both must come from the same seed, so that
    both saw one stream. Or one number a seed (say, retained accuracies): then only seeds are
    compared.

    Why blocks: neighbouring samples of a stream are alike, and so are a learner's mistakes on them.
    Counting samples as if they were independent makes everything significant. The stream is cut
    into ``blocks`` equally long pieces (or give a block number for each sample, a day for
    instance); a block should be ten times as long as whatever makes neighbours alike, bursts and
    albums, so use fewer blocks rather than more (simulated: at ten times, 5 % of the comparisons of
    equal learners come out below p = .05, at five times 6 %, at two and a half times 8 %). Within
    each seed and block both learners answered the same samples, and only the difference of their
    accuracies is used.

    With d[s, b] that difference, w_b the share of samples in block b, d_s and d_b the means over
    blocks and over seeds, d their mean, r the residuals d[s, b] - d_s - d_b + d:

        V_seeds  = sum over s of (d_s - d)^2 / (S (S - 1))
        e_b      = w_b (d_b - d),   n the number of blocks
        V_blocks = n/(n - 1) * (sum over b of e_b^2 + max(0, 2 * sum over b of e_b e_(b+1)))
        V_rest   = n/(n - 1) * sum over b, s of w_b^2 r^2 / (S (S - 1))
        error^2  = max(V_seeds, V_blocks, V_seeds + V_blocks - V_rest),

    the variance of a mean over two crossed samples, seeds and stretches of stream; it is right
    whether all seeds saw one stream (then seeds alone would overlook that another stream might
    favour B) or each its own. The maximum keeps chance from making it too small. Interval and
    p-value are from Student's t with Satterthwaite's degrees of freedom. With a single seed only
    blocks are left, and nothing is said about other seeds; with two, what is known about seeds
    rests on one number, and false alarms reach 11 % where seeds differ much; take three or more.
    NaN where neither seeds nor blocks are repeated.

    >>> a = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    >>> b = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    >>> compare(a, b, blocks=2).difference
    0.25
    >>> round(compare([0.30, 0.32, 0.31], [0.28, 0.31, 0.28]).p, 4)
    0.0742
    """
    cells, weights, means = _differences(A, B, blocks)
    seeds, number = cells.shape
    difference = float(means.mean())
    parts: list[tuple[float, float]] = []  # variance, degrees of freedom
    if seeds > 1:
        parts.append((float(np.sum((means - difference) ** 2)) / (seeds * (seeds - 1)), seeds - 1))
    if number > 1:
        each = cells.mean(axis=0)
        stretch = number / (number - 1)
        centre = float(np.sum(weights * each))
        away = weights * (each - centre)
        # A burst may reach over the edge of its block, and then neighbouring blocks are alike too.
        beside = max(0.0, 2 * float(np.sum(away[1:] * away[:-1])))
        parts.append((stretch * (float(np.sum(away**2)) + beside), number - 1))
    if len(parts) == 2:
        rest = cells - means[:, None] - each[None, :] + centre
        left = stretch * float(np.sum((weights * rest) ** 2)) / (seeds * (seeds - 1))
        parts.append(_crossed(parts[0], parts[1], (left, (seeds - 1) * (number - 1))))
    blocks_used = number if number > 1 else 0
    if not parts:
        nan = float("nan")
        return Comparison(difference, nan, nan, nan, nan, nan, seeds, blocks_used)
    variance, freedom = max(parts)
    error = math.sqrt(variance)
    # Accuracies are sums of ones over counts: what is below this is rounding, not a difference.
    if abs(difference) < 1e-13 and error < 1e-13:
        p = 1.0
    else:
        p = two_sided_p(difference / error if error else math.inf, freedom)
    reach = quantile(confidence, freedom) * error
    return Comparison(
        difference, error, difference - reach, difference + reach, p, freedom, seeds, blocks_used
    )


def _crossed(
    seeds: tuple[float, float], blocks: tuple[float, float], rest: tuple[float, float]
) -> tuple[float, float]:
    """V_seeds + V_blocks - V_rest and its degrees of freedom (Satterthwaite)."""
    total = seeds[0] + blocks[0] - rest[0]
    doubt = sum(variance**2 / freedom for variance, freedom in (seeds, blocks, rest))
    freedom = total**2 / doubt if doubt > 0 else seeds[1]
    return total, max(freedom, min(seeds[1], blocks[1]))


def _differences(A: Any, B: Any, blocks: int | ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Differences per [seed, block], the blocks' weights, and the differences per seed."""
    first, second = _runs(A), _runs(B)
    if len(first) != len(second) or not first:
        raise StreamgaugeError(
            f"compare pairs seed with seed, and there are {len(first)} runs of A and "
            f"{len(second)} of B."
        )
    for one, other in zip(first, second, strict=True):
        if one.shape != other.shape:
            raise StreamgaugeError(
                "compare pairs sample with sample, and in some seed A and B have different lengths "
                f"({len(one)} and {len(other)}); score both on the samples they share."
            )
    gaps = [one - other for one, other in zip(first, second, strict=True)]
    means = np.array([gap.mean() for gap in gaps])
    if all(gap.size == 1 for gap in gaps):
        return means[:, None], np.ones(1), means
    cells, shares = [], []
    for gap in gaps:
        block, number = _blocks(blocks, len(gap))
        size = np.bincount(block, minlength=number)
        cells.append(np.bincount(block, weights=gap, minlength=number) / size)
        shares.append(size / len(gap))
    return np.array(cells), np.mean(shares, axis=0), means


def _runs(values: Any) -> list[Floats]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == bool:
        raise StreamgaugeError(
            "compare wants one array of samples for each seed; put the single seed's in a list."
        )
    runs = [np.atleast_1d(np.asarray(run, dtype=np.float64)) for run in values]
    if any(run.ndim != 1 or not run.size for run in runs):
        raise StreamgaugeError("compare wants, for each seed, a number or one entry a sample.")
    return runs


def _blocks(blocks: int | ArrayLike, samples: int) -> tuple[Integers, int]:
    """The block of each sample, and how many there are."""
    if isinstance(blocks, int | np.integer):
        if not 1 <= blocks <= samples:
            raise StreamgaugeError(
                f"{samples} samples cannot be cut into {blocks} blocks; give 1 up to {samples}."
            )
        return np.arange(samples) * int(blocks) // samples, int(blocks)
    names = np.asarray(blocks)
    if names.shape != (samples,):
        raise StreamgaugeError(
            f"blocks must be a number, or a block number for each of the {samples} samples."
        )
    known, block = np.unique(names, return_inverse=True)
    return block, len(known)


def holm(p: ArrayLike) -> Floats:
    """p-values corrected for having made several comparisons (Holm's step-down method).

    The i-th smallest of m is multiplied by m - i + 1, never below its predecessor, never above 1.
    If those below alpha are called different, the chance of even one false call is at most alpha,
    however the comparisons hang together. NaN, a comparison that could not be made, stays NaN and
    does not count.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p, dtype=np.float64)
    corrected = np.full(values.shape, np.nan)
    made = np.flatnonzero(~np.isnan(values))
    order = made[np.argsort(values[made], kind="stable")]
    steps = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def leaderboard(
    results: Mapping[str, Any], blocks: int | ArrayLike = BLOCKS, level: float = 0.05
) -> list[Standing]:
    """Learners by their mean, best first, with ties shown as ties.

    ``results`` maps a name to what :func:`compare` takes. All pairs are compared, corrected by
    :func:`holm`, and called different below ``level``. A learner's rank is 1 + the number of
    learners that are significantly better. Learners that share a letter in ``groups`` could not be
    told apart; every pair that could not be told apart shares one, and no other pair does.

    >>> board = leaderboard({"x": [0.9, 0.91, 0.92], "y": [0.2, 0.21, 0.23], "z": [0.9, 0.92, 0.9]})
    >>> [(line.name, line.rank, line.groups) for line in board]
    [('x', 1, 'a'), ('z', 1, 'a'), ('y', 3, 'b')]
    """
    spreads = {name: spread([run.mean() for run in _runs(runs)]) for name, runs in results.items()}
    # A mean that is unknown comes last; compared with the others it would leave them unsorted.
    names = sorted(results, key=lambda name: (math.isnan(spreads[name].mean), -spreads[name].mean))
    pairs = list(combinations(range(len(names)), 2))
    made = [compare(results[names[i]], results[names[j]], blocks) for i, j in pairs]
    corrected = holm([one.p for one in made])
    different = [
        pair if one.difference > 0 else pair[::-1]
        for pair, one, p in zip(pairs, made, corrected, strict=True)
        if p < level
    ]
    groups = _groups(len(names), different)
    apart = {frozenset(pair) for pair in different}
    return [
        Standing(
            name=name,
            mean=spreads[name].mean,
            deviation=spreads[name].deviation,
            rank=1 + sum(worse == i for _, worse in different),
            groups="".join(letter for letter, group in groups if i in group),
            tied_with=tuple(
                other for j, other in enumerate(names) if j != i and frozenset((i, j)) not in apart
            ),
        )
        for i, name in enumerate(names)
    ]


def _groups(number: int, different: Sequence[tuple[int, int]]) -> list[tuple[str, frozenset[int]]]:
    """Letters for the largest sets of learners no two of which differ (Piepho 2004)."""
    sets = [frozenset(range(number))]
    for i, j in different:
        split = [
            part
            for group in sets
            for part in ((group - {i}, group - {j}) if {i, j} <= group else (group,))
        ]
        unique = list(dict.fromkeys(split))
        sets = [group for group in unique if not any(group < other for other in unique)]
    sets.sort(key=sorted)
    return [(_letter(i), group) for i, group in enumerate(sets)]


def _letter(i: int) -> str:
    return ascii_lowercase[i] if i < len(ascii_lowercase) else f"({i + 1})"
