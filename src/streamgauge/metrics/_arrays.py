"""Argument checks and array helpers that several metrics share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError, nearest

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Anything = NDArray[Any]


class UndefinedMetric(UserWarning):
    """A metric is NaN; the message names the metric and the missing input."""


def choice(name: str, value: str, known: tuple[str, ...]) -> str:
    """The value if it is a known option; the error for another value names the closest option."""
    if value not in known:
        raise StreamgaugeError(f"{name} cannot be {value!r}: {nearest(value, known)}")
    return value


def square(a: ArrayLike) -> Floats:
    """An accuracy matrix [K, K] as float64."""
    matrix = np.asarray(a, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise StreamgaugeError(
            f"an accuracy matrix must be square, [tasks, tasks], but its shape is {matrix.shape}; "
            "a[k, j] is the accuracy on task j after training task k."
        )
    return matrix


def class_counts(classes: ArrayLike, tasks: int) -> Floats:
    """The number of classes seen up to each task, as float64."""
    counts = np.asarray(classes, dtype=np.float64)
    if counts.shape != (tasks,):
        raise StreamgaugeError(
            f"classes must hold, for each of the {tasks} tasks, the number of classes seen up to "
            f"that task, but its shape is {counts.shape}."
        )
    if tasks and (not np.all(counts >= 1) or np.any(np.diff(counts) < 0)):
        raise StreamgaugeError(
            "classes must count all classes seen up to each task, so its first entry is 1 or more "
            "and it never decreases; from classes per task, take the cumulative sum."
        )
    return counts


def same_length(**columns: ArrayLike) -> list[Anything]:
    """The columns as one-dimensional arrays of equal length; an error otherwise."""
    arrays = [np.asarray(column) for column in columns.values()]
    names = " and ".join(columns)
    if any(array.ndim != 1 for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise StreamgaugeError(
            f"{names} must be one-dimensional, one entry per sample, not of shape {shapes}."
        )
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(str(len(array)) for array in arrays)
        raise StreamgaugeError(f"{names} must have equal lengths, but their lengths are {lengths}.")
    return arrays


def divide(total: ArrayLike, count: ArrayLike) -> Floats:
    """total / count per entry, NaN where count is 0."""
    counts = np.asarray(count, dtype=np.float64)
    quotient = np.full(counts.shape, np.nan)
    np.divide(np.asarray(total, dtype=np.float64), counts, out=quotient, where=counts > 0)
    return quotient


def share(hits: int | np.integer[Any], count: int | np.integer[Any]) -> float:
    """hits / count as a float, NaN if count is 0."""
    return float(hits) / float(count) if count else float("nan")


def block_variance(deviations: Floats) -> float:
    """Variance of a weighted mean over consecutive blocks of a stream.

    n/(n - 1) * (sum over b of e_b^2 + max(0, 2 * sum over b of e_b e_(b+1))), with e_b the weight
    of block b times its deviation from the mean. The second sum accounts for correlation between
    neighbouring blocks.
    """
    blocks = len(deviations)
    covariance = max(0.0, 2 * float(np.sum(deviations[1:] * deviations[:-1])))
    return blocks / (blocks - 1) * (float(np.sum(deviations**2)) + covariance)
