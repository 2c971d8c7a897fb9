"""Is it the inputs, or the people, that repeat?

A high blind accuracy says that labels repeat. Two questions remain: whether the inputs repeat too
(then a nearest neighbour among the last few samples does as well as one among all), and whether it
is one person, or one album, that repeats (then it goes away when that person's other samples are
left out).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import check_step, check_windows, encode, running_modes
from streamgauge.audit.intervals import interval, ratio_error
from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TARGETS = 2_000
USER_TARGETS = 200_000


class Level(NamedTuple):
    """An accuracy with its 95 % interval and the number of samples behind it."""

    value: float
    low: float
    high: float
    samples: int


NOTHING = Level(math.nan, math.nan, math.nan, 0)


def level(hits: Floats, tries: Floats, run: int) -> Level:
    """The accuracy over small blocks, with an interval from blocks of ``run`` of them."""
    total = float(tries.sum())
    if total == 0:
        return NOTHING
    value = float(hits.sum()) / total
    error, blocks = ratio_error(hits, tries, run)
    low, high = interval(value, error, blocks)
    # Hits that never vary, or a single block, leave the interval unknown and not empty.
    if math.isnan(error) or error < 1e-12:
        return Level(value, math.nan, math.nan, int(total))
    return Level(value, max(0.0, low), min(1.0, high), int(total))


def level_of(right: NDArray[np.bool_], burst: int = 1) -> Level:
    """The accuracy of answers in stream order; blocks of a hundredth, or longer than a burst."""
    if right.size == 0:
        return NOTHING
    block = max(1, right.size // 2048)
    edges = np.arange(0, right.size, block)
    hits = np.add.reduceat(right.astype(np.float64), edges)
    tries = np.diff(np.append(edges, right.size)).astype(np.float64)
    return level(hits, tries, math.ceil(max(right.size / 100, burst) / block))


def starts(step: ArrayLike, length: int) -> Ints:
    """First sample of every sample's own step."""
    steps, size = check_step(step, length)
    at = np.arange(length, dtype=np.int64)
    if np.ndim(step) == 0:
        return at - at % size
    if length == 0:
        return at
    begins = np.concatenate([[True], steps[1:] != steps[:-1]])
    return np.maximum.accumulate(np.where(begins, at, 0))


def albums_of(users: ArrayLike) -> Ints:
    """Album numbers: an album is a run of samples of one user, as in CLOC.

    >>> albums_of(["a", "a", "b", "a"])
    array([0, 0, 1, 2])
    """
    who, _ = encode(users)
    new: Ints = np.concatenate([[0], np.cumsum(who[1:] != who[:-1])]).astype(np.int64)
    return new[: who.size]


def blind_without_album(
    labels: ArrayLike, albums: ArrayLike, window: float, step: ArrayLike = 1
) -> NDArray[np.int8]:
    """Blind answers that know no label of the sample's own album: 1 right, 0 wrong, -1 none.

    ``albums`` are album numbers that never decrease. The mode of the last ``window`` labels before
    the album began, or before the step began where that is earlier.
    """
    codes, classes = encode(labels)
    known = np.minimum(starts(step, codes.size), starts(albums, codes.size))
    predictions = running_modes(codes, classes, float(check_windows([window])[0]))[known]
    return np.where(predictions < 0, -1, predictions == codes).astype(np.int8)


def blind_without_user(
    labels: ArrayLike,
    users: ArrayLike,
    window: int,
    step: ArrayLike = 1,
    targets: int = USER_TARGETS,
) -> tuple[Ints, NDArray[np.int8]]:
    """Blind answers from the labels of other people: samples asked, and 1 right, 0 wrong, -1 none.

    The mode of the last ``window`` labels by anyone but the sample's own user; of a long stream
    only ``targets`` evenly spread samples are asked.
    """
    from streamgauge.audit import kernels

    codes, classes = encode(labels)
    who, _ = encode(users)
    asked = np.unique(np.linspace(0, codes.size - 1, min(targets, codes.size)).astype(np.int64))
    known = starts(step, codes.size)[asked]
    guess = np.empty(asked.size, np.int32)
    reach = 50 * window + 10_000
    kernels.guess_without_user(codes, who, known, asked, window, reach, max(1, classes), guess)
    return asked, np.where(guess < 0, -1, guess == codes[asked]).astype(np.int8)


class NeighbourLevels(NamedTuple):
    """Accuracy of the label of the nearest earlier input, by how many of the last are searched."""

    windows: tuple[float, ...]
    levels: tuple[Level, ...]


def neighbour_accuracy(
    features: ArrayLike,
    labels: ArrayLike,
    windows: Sequence[float] = (10, 100, 1000, math.inf),
    *,
    shift: int = 0,
    step: ArrayLike = 1,
    users: ArrayLike | None = None,
    targets: int = TARGETS,
    burst: int = 1,
) -> NeighbourLevels:
    """Is it the inputs that repeat? The covariate counterpart of the blind classifier.

    Each of ``targets`` evenly spread samples behind the first fifth is given the label of its
    nearest neighbour (Euclidean, features scaled by the first fifth) among the last k inputs whose
    labels are known, for every window k; infinity is all of them. Where a short window does as
    well as all, what helps is that the last inputs come again. With ``users``, samples of the
    same user are left out; ``shift`` and ``step`` are as in :func:`blind_accuracy`.
    """
    codes, _ = encode(labels)
    x = np.asarray(features, dtype=np.float32).reshape(len(codes), -1)
    if not np.isfinite(x).all():
        raise StreamgaugeError("some features are missing or infinite: leave those columns out")
    who = None if users is None else encode(users)[0]
    cut = codes.size // 5
    scale = x[: max(1, cut)].std(axis=0)
    x = (x - x[: max(1, cut)].mean(axis=0)) / np.where(scale > 0, scale, 1)
    length = (x**2).sum(axis=1)
    first = cut + shift
    if first >= codes.size:
        return NeighbourLevels(tuple(windows), tuple(NOTHING for _ in windows))
    spread = np.linspace(first, codes.size - 1, min(targets, codes.size - first))
    asked = np.unique(spread.astype(np.int64))
    known = starts(step, codes.size)[asked - shift]
    right = np.full((len(windows), asked.size), -1, np.int8)
    chunk = max(1, 16_000_000 // codes.size)
    for a in range(0, asked.size, chunk):
        rows = slice(a, a + chunk)
        end = int(known[rows].max(initial=0))
        if end == 0:
            continue
        apart = length[:end] - 2 * (x[asked[rows]] @ x[:end].T)
        for i, (j, k) in enumerate(zip(asked[rows], known[rows], strict=True)):
            if who is not None:
                apart[i, who[:end] == who[j]] = np.inf
            for w, window in enumerate(windows):
                low = 0 if math.isinf(window) else max(0, int(k) - int(window))
                if k > low:
                    best = low + int(np.argmin(apart[i, low:k]))
                    if np.isfinite(apart[i, best]):
                        right[w, a + i] = codes[best] == codes[j]
    thin = max(1, burst * asked.size // codes.size)
    found = tuple(level_of(row[row >= 0] == 1, thin) for row in right)
    return NeighbourLevels(tuple(windows), found)
