"""Where the class frequencies of a stream, or the accuracy of its learners, change.

The stream is cut into bins that are longer than the correlation of its labels. For a cut of m bins
after the k-th, with S(k) the sum of the bins up to it and v the variance of each column,

    score(k) = sum over columns of (S(k) - k/m S(m))^2 / v, divided by k (m - k) / m

is large where the means before and after differ. The test compares its maximum over k with that of
bins in random order. Where it is larger than in all but `chance` of them, there is a change, and
both sides are searched again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BINS = 256  # of a stream, at most
COLUMNS = 32  # the most frequent classes; the others are one more
LEAST = 4  # bins on either side of a change
APART = 8  # bins are so many times the correlation of the labels
PERMUTATIONS = 399


class Change(NamedTuple):
    """A position from which on the frequencies, or the accuracy, differ from those before it."""

    position: int  # first sample after it
    before: Floats  # means from the change before it, or the beginning
    after: Floats  # to the change after it, or the end

    @property
    def moved(self) -> float:
        """Half the sum of the differences: the share of the labels that changed, where the columns
        are class frequencies."""
        return float(np.abs(self.after - self.before).sum() / 2)


def label_changes(label: ArrayLike, *, chance: float = 0.01, seed: int = 0) -> list[Change] | None:
    """Where class frequencies change. About `chance` of the streams without any change get one; the
    classes are the most frequent ones, the others are one more. None where the stream is too short,
    or its labels are correlated over too long, to tell.

    >>> still = np.random.default_rng(0).integers(0, 5, 4000)
    >>> label_changes(still), [c.position for c in label_changes(np.append(still, 5 + still))]
    ([], [4000])
    """
    codes = np.unique(np.asarray(label), return_inverse=True)[1]
    size = bin_size(codes)
    bins = len(codes) // size
    if bins < 2 * LEAST:
        return None
    count = np.bincount(codes)
    frequent = np.argsort(-count, kind="stable")[:COLUMNS]
    column = np.full(len(count), len(frequent))
    column[frequent] = np.arange(len(frequent))
    columns = len(frequent) + 1
    cell = np.arange(bins * size) // size * columns + column[codes[: bins * size]]
    shares = np.bincount(cell, minlength=bins * columns).reshape(bins, columns) / size
    return changes(shares, size, chance=chance, seed=seed)


def bin_size(codes: NDArray[np.integer[Any]]) -> int:
    """Samples per bin, so that bins are nearly independent."""
    return max(-(-len(codes) // BINS), APART * burst_length(codes), 1)


def burst_length(codes: NDArray[np.integer[Any]]) -> int:
    """The distance in samples at which labels are no longer alike by bursts (albums, hours).

    As in :func:`streamgauge.drift.layout.correlation_length`, but the base level is a line over the
    distance: where frequencies change at some positions, the share of equal labels falls in
    proportion to the distance. The result is the first distance of small excess.

    >>> drawn = np.random.default_rng(0).integers(0, 50, 2000)
    >>> burst_length(drawn), burst_length(np.repeat(drawn, 10))
    (1, 11)
    """
    count = len(codes)
    most = count // 40
    if most < 4:
        return 1

    def equal(distances: Any) -> Floats:
        return np.array([np.mean(codes[d:] == codes[:-d]) for d in distances.tolist()])

    near = np.unique(np.floor(2 ** np.arange(0, np.log2(most) + 0.25, 0.25))).astype(np.int64)
    near = near[near <= most]
    far = np.unique(np.linspace(max(1, count // 100), most, 12).astype(np.int64))
    slope, level = np.polyfit(far, equal(far), 1) if len(far) > 2 else (0.0, equal(far).mean())
    excess = equal(near) - (level + slope * near)
    burst = 1 / max(1 - excess[0], 1e-3)
    error = np.sqrt(max(level * (1 - level), 1e-9) * burst / count)
    small = excess < max(0.05 * excess[0], 0.005, 2 * error)
    return int(near[small.argmax()]) if small.any() else most


def changes(bins: Floats, size: int = 1, *, chance: float = 0.01, seed: int = 0) -> list[Change]:
    """Where the rows of `bins` change, in order of time. `size` is the samples per bin."""
    rng = np.random.default_rng([seed, 29])
    cuts: list[int] = []
    open_parts = [(0, len(bins))]
    while open_parts:
        first, end = open_parts.pop()
        cut = _cut(bins[first:end], chance, rng)
        if cut is not None:
            cuts.append(first + cut)
            open_parts += [(first, first + cut), (first + cut, end)]
    ends = [0, *sorted(cuts), len(bins)]
    means = [bins[a:b].mean(axis=0) for a, b in pairwise(ends)]
    return [
        Change(at * size, before, after)
        for at, before, after in zip(ends[1:-1], means[:-1], means[1:], strict=True)
    ]


def _cut(part: Floats, chance: float, rng: np.random.Generator) -> int | None:
    """The bin at which a part changes, if it does."""
    m = len(part)
    if m < 2 * LEAST:
        return None
    part = part[:, np.ptp(part, axis=0) > 0]  # not the variance: of equal numbers it is rounded
    if not part.shape[1]:
        return None
    part = part / part.std(axis=0)
    k = np.arange(LEAST, m - LEAST + 1)
    weight = k * (m - k) / m
    centred = part - part.mean(axis=0)

    def scores(rows: Floats) -> Floats:
        sums = np.cumsum(rows, axis=0)[LEAST - 1 : m - LEAST]
        return np.asarray((sums**2).sum(axis=1) / weight)

    own = scores(centred)
    best = float(own.max())
    reached = 1
    most = chance * (PERMUTATIONS + 1)
    for _ in range(PERMUTATIONS):
        reached += float(scores(centred[rng.permutation(m)]).max()) >= best - 1e-12
        if reached > most:
            return None
    return int(k[own.argmax()])
