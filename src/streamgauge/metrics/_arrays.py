"""Small checks that several metrics share: what comes in, and what is said when it cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError, nearest

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Anything = NDArray[Any]


class UndefinedMetric(UserWarning):
    """A metric came out as NaN; the message says which one and what it would have needed."""


def choice(name: str, value: str, known: tuple[str, ...]) -> str:
    """One of a few words, or a sentence that names the nearest."""
    if value not in known:
        raise StreamgaugeError(f"{name} cannot be {value!r}: {nearest(value, known)}")
    return value


def square(a: ArrayLike) -> Floats:
    """An accuracy matrix [K, K] as float64."""
    matrix = np.asarray(a, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise StreamgaugeError(
            f"an accuracy matrix must be square, [tasks, tasks], and this one has the shape "
            f"{matrix.shape}; a[k, j] is the accuracy on task j after training task k."
        )
    return matrix


def class_counts(classes: ArrayLike, tasks: int) -> Floats:
    """How many classes had been seen up to each task, as float64 for divisions."""
    counts = np.asarray(classes, dtype=np.float64)
    if counts.shape != (tasks,):
        raise StreamgaugeError(
            f"classes must hold one number for each of the {tasks} tasks, the classes seen up to "
            f"it, and it has the shape {counts.shape}."
        )
    if tasks and (not np.all(counts >= 1) or np.any(np.diff(counts) < 0)):
        raise StreamgaugeError(
            "classes must count all classes seen up to each task, so it starts at 1 or more and "
            "never falls; for counts per task give their cumulative sum."
        )
    return counts


def same_length(**columns: ArrayLike) -> list[Anything]:
    """The columns as one-dimensional arrays, after checking that they are equally long."""
    arrays = [np.asarray(column) for column in columns.values()]
    names = " and ".join(columns)
    if any(array.ndim != 1 for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise StreamgaugeError(
            f"{names} must be one-dimensional, one entry a sample, not {shapes}."
        )
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(str(len(array)) for array in arrays)
        raise StreamgaugeError(f"{names} must be equally long, and their lengths are {lengths}.")
    return arrays


def divide(total: ArrayLike, count: ArrayLike) -> Floats:
    """total / count entry by entry, NaN where nothing was counted."""
    number = np.asarray(count, dtype=np.float64)
    out = np.full(number.shape, np.nan)
    np.divide(np.asarray(total, dtype=np.float64), number, out=out, where=number > 0)
    return out


def share(hits: int | np.integer[Any], count: int | np.integer[Any]) -> float:
    """hits / count as a float, NaN when nothing was counted."""
    return float(hits) / float(count) if count else float("nan")
