"""Whether repeated inputs, or repeated users and albums, explain a high blind accuracy.

A high blind accuracy means that labels repeat. If inputs repeat too, a nearest neighbour among the
last few samples is as accurate as one among all samples. If labels repeat within users or albums,
the accuracy drops when the other samples of the same user or album are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import (
    check_windows,
    running_modes,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.history.intervals import interval, ratio_error
from streamgauge.history.known import Floats, Ints, encode, evenly_spaced, step_starts

TARGETS = 2_000
USER_TARGETS = 200_000


class Level(NamedTuple):
    """An accuracy with its 95 % interval and the number of scored samples."""

    value: float
    low: float
    high: float
    samples: int


UNKNOWN_LEVEL = Level(math.nan, math.nan, math.nan, 0)


def level_from_blocks(hits: Floats, tries: Floats, run: int) -> Level:
    """Accuracy from hits and tries per block; the interval uses runs of ``run`` blocks."""
    total = float(tries.sum())
    if total == 0:
        return UNKNOWN_LEVEL
    value = float(hits.sum()) / total
    error, blocks = ratio_error(hits, tries, run)
    low, high = interval(value, error, blocks)
    # With constant hits or a single block, the interval is unknown.
    if math.isnan(error) or error < 1e-12:
        return Level(value, math.nan, math.nan, int(total))
    return Level(value, max(0.0, low), min(1.0, high), int(total))


def level_from_answers(correct: NDArray[np.bool_], burst: int = 1) -> Level:
    """Accuracy of answers in stream order; bootstrap blocks of a hundredth, or of a burst."""
    if correct.size == 0:
        return UNKNOWN_LEVEL
    block = max(1, correct.size // 2048)
    edges = np.arange(0, correct.size, block)
    hits = np.add.reduceat(correct.astype(np.float64), edges)
    tries = np.diff(np.append(edges, correct.size)).astype(np.float64)
    return level_from_blocks(hits, tries, math.ceil(max(correct.size / 100, burst) / block))


def albums_of(users: ArrayLike) -> Ints:
    """Album numbers: an album is a run of samples of one user, as in CLOC.

    >>> albums_of(["a", "a", "b", "a"])
    array([0, 0, 1, 2])
    """
    user_codes, _ = encode(users)
    albums: Ints = np.concatenate([[0], np.cumsum(user_codes[1:] != user_codes[:-1])]).astype(
        np.int64
    )
    return albums[: user_codes.size]


def blind_without_album(
    labels: ArrayLike, albums: ArrayLike, window: float, step: ArrayLike = 1
) -> NDArray[np.int8]:
    """Blind predictions without labels of the sample's own album: 1 correct, 0 wrong, -1 none.

    ``albums`` are album numbers that never decrease. The prediction is the mode of the last
    ``window`` labels before the start of the album, or of the step if that is earlier.
    """
    codes, classes = encode(labels)
    known = np.minimum(step_starts(step, codes.size), step_starts(albums, codes.size))
    predictions = running_modes(codes, classes, float(check_windows([window])[0]))[known]
    return np.where(predictions < 0, -1, predictions == codes).astype(np.int8)


def blind_without_user(
    labels: ArrayLike,
    users: ArrayLike,
    window: int,
    step: ArrayLike = 1,
    targets: int = USER_TARGETS,
) -> tuple[Ints, NDArray[np.int8]]:
    """Blind predictions from labels of other users: targets, and 1 correct, 0 wrong, -1 none.

    The prediction is the mode of the last ``window`` labels of all users but the sample's own; in a
    long stream only ``targets`` evenly spaced samples are predicted.
    """
    from streamgauge.audit import kernels

    codes, classes = encode(labels)
    user_codes, _ = encode(users)
    target_index = evenly_spaced(0, codes.size, targets)
    known = step_starts(step, codes.size)[target_index]
    predictions = np.empty(target_index.size, np.int32)
    reach = 50 * window + 10_000
    kernels.guess_without_user(
        codes, user_codes, known, target_index, window, reach, max(1, classes), predictions
    )
    return target_index, np.where(predictions < 0, -1, predictions == codes[target_index]).astype(
        np.int8
    )


class NeighbourLevels(NamedTuple):
    """Accuracy of the label of the nearest earlier input, per number of recent inputs searched."""

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
    """Accuracy of the nearest neighbour among recent inputs, to detect inputs that repeat.

    Each of ``targets`` evenly spaced samples after the first fifth is predicted by the label of its
    nearest neighbour (Euclidean, features scaled by the first fifth) among the last k inputs with
    known labels, for every window k; infinity is all of them. If a short window is as accurate as
    all inputs, recent inputs repeat. With ``users``, samples of the same user are left out;
    ``shift`` and ``step`` are as in :func:`blind_accuracy`.
    """
    codes, _ = encode(labels)
    x = np.asarray(features, dtype=np.float32).reshape(len(codes), -1)
    if not np.isfinite(x).all():
        raise StreamgaugeError("some features are missing or infinite: leave out those columns")
    user_codes = None if users is None else encode(users)[0]
    prefix = codes.size // 5
    scale = x[: max(1, prefix)].std(axis=0)
    x = (x - x[: max(1, prefix)].mean(axis=0)) / np.where(scale > 0, scale, 1)
    squared_norm = (x**2).sum(axis=1)
    first = prefix + shift
    if first >= codes.size:
        return NeighbourLevels(tuple(windows), tuple(UNKNOWN_LEVEL for _ in windows))
    target_index = evenly_spaced(first, codes.size, targets)
    known = step_starts(step, codes.size)[target_index - shift]
    correct = np.full((len(windows), target_index.size), -1, np.int8)
    chunk = max(1, 16_000_000 // codes.size)
    for begin in range(0, target_index.size, chunk):
        rows = slice(begin, begin + chunk)
        end = int(known[rows].max(initial=0))
        if end == 0:
            continue
        distances = squared_norm[:end] - 2 * (x[target_index[rows]] @ x[:end].T)
        for i, (j, k) in enumerate(zip(target_index[rows], known[rows], strict=True)):
            if user_codes is not None:
                distances[i, user_codes[:end] == user_codes[j]] = np.inf
            for w, window in enumerate(windows):
                low = 0 if math.isinf(window) else max(0, int(k) - int(window))
                if k > low:
                    best = low + int(np.argmin(distances[i, low:k]))
                    if np.isfinite(distances[i, best]):
                        correct[w, begin + i] = codes[best] == codes[j]
    burst_targets = max(1, burst * target_index.size // codes.size)
    levels = tuple(level_from_answers(row[row >= 0] == 1, burst_targets) for row in correct)
    return NeighbourLevels(tuple(windows), levels)
