"""Which labels were known when each sample was answered; and how labels, steps and shifts are read.

Sample j is answered at the *position* of sample j - shift: at the start of that sample's step.
Label i arrives at position i + 1, or later if labels come late. The answer to j knows the labels
that have arrived at its position, in the order of their arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """What was known when each sample was answered."""

    order: Ints | None
    """Sample index of the i-th label that became known; None: labels arrive in stream order."""
    known: Ints
    """Per sample: how many labels, in that order, were known when it was answered."""

    def between(self, first: int, stop: int) -> Ints:
        """The known counts of samples ``first`` to before ``stop``."""
        return self.known[first:stop]


@dataclass(frozen=True)
class Regular:
    """The same with one shift, step and delay for all samples, computed piece by piece."""

    shift: int = 0
    step: int = 1
    delay: int = 0
    order: None = None

    def between(self, first: int, stop: int) -> Ints:
        """The known counts of samples ``first`` to before ``stop``.

        >>> Regular(shift=1, step=2).between(2, 6)
        array([0, 2, 2, 4])
        """
        position = np.arange(first - self.shift, stop - self.shift, dtype=np.int64)
        known: Ints = np.maximum(position - position % self.step - self.delay, 0)
        return known


def known_labels(
    count: int,
    *,
    shift: ArrayLike = 0,
    step: ArrayLike = 1,
    times: ArrayLike | None = None,
    label_times: ArrayLike | None = None,
    delay: int = 0,
) -> Known:
    """How many labels were known to the answer of each of ``count`` samples.

    ``shift`` is a number of samples, or one per sample. ``step`` is the number of samples per step,
    or the step number of every sample. Label i is known to an answer at time t if its
    ``label_times`` entry is below t; NaN: never. ``times`` are the times of the samples. A label
    never arrives before its own sample. ``delay``: labels arrive that many samples late.

    >>> known_labels(6, shift=1, step=2).known
    array([0, 0, 0, 2, 2, 4])
    >>> late = known_labels(4, times=[0, 1, 2, 3], label_times=[2.5, 1.5, 2.6, 9])
    >>> late.order, late.known
    (array([1, 0, 2, 3]), array([0, 0, 1, 3]))
    """
    if label_times is None and np.ndim(shift) == np.ndim(step) == 0:
        size = check_step(step)[1]
        regular = Regular(int(check_shifts(shift)[0]), size, int(check_shifts(delay)[0]))
        return Known(None, regular.between(0, count))
    index = np.arange(count, dtype=np.int64)
    shifts = check_shifts(shift)
    if np.ndim(shift) and shifts.shape != (count,):
        raise StreamgaugeError(
            f"shift has {shifts.size} entries for {count} labels: give one number or one per sample"
        )
    starts = step_starts(step, count)
    reached = index - shifts
    position = np.where(reached >= 0, starts[np.maximum(reached, 0)], 0)
    late = check_shifts(delay)[0]
    if label_times is None:
        return Known(None, np.maximum(position - late, 0))
    arrival, moments = arrival_times(count, times, label_times)
    arrives = np.maximum(np.searchsorted(moments, arrival, side="right"), index + 1 + late)
    arrives[np.isnan(arrival)] = count + 1
    order = np.lexsort((arrival, arrives))
    return Known(order, np.searchsorted(arrives[order], position, side="right"))


def arrival_times(
    count: int, times: ArrayLike | None, label_times: ArrayLike
) -> tuple[Floats, Floats]:
    """Times at which labels arrive, never before their sample, and times of the samples."""
    if times is None:
        raise StreamgaugeError("label_times needs times: give the time of every sample as well")
    moments, labelled = as_seconds(times), as_seconds(label_times)
    for name, values in (("times", moments), ("label_times", labelled)):
        if values.shape != (count,):
            raise StreamgaugeError(
                f"{name} has {values.size} entries for {count} labels: give one time per sample"
            )
    if np.isnan(moments).any() or np.any(moments[1:] < moments[:-1]):
        raise StreamgaugeError(
            "times are missing or decrease: with label_times, sort the samples by time first"
        )
    return np.maximum(labelled, moments), moments


def as_seconds(times: ArrayLike) -> Floats:
    """Times in seconds; dates are counted from 1970, missing ones are NaN."""
    values = np.asarray(times)
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    return np.asarray(values, dtype=np.float64)


def encode(labels: ArrayLike) -> tuple[NDArray[np.int32], int]:
    """Labels as class numbers 0..n-1, and n.

    Small whole numbers are used unchanged; other labels are numbered in sorted order.

    >>> encode(["b", "a", "b"])
    (array([1, 0, 1], dtype=int32), 2)
    """
    values = np.asarray(labels)
    if values.ndim != 1:
        raise StreamgaugeError(
            f"labels must be a flat array, not {values.ndim}-dimensional: pass one label per sample"
        )
    if values.size == 0:
        return np.zeros(0, np.int32), 0
    if values.dtype.kind == "b":
        values = values.astype(np.int32)
    if values.dtype.kind == "f":
        raise StreamgaugeError(
            "labels are floating-point numbers: convert them to whole numbers or names "
            "(regression is not supported)"
        )
    if values.dtype.kind in "iu":
        low, high = values.min(), int(values.max())
        if low < 0:
            raise StreamgaugeError(
                f"label {int(low)} is negative: classes are numbered from 0; drop or relabel the "
                "samples whose class is unknown"
            )
        if high < max(1 << 20, 2 * values.size) and high < 2**31 - 1:
            return np.ascontiguousarray(values, dtype=np.int32), high + 1
    elif values.dtype.kind not in "US":
        if any(v is None or v != v for v in values.tolist()):
            raise StreamgaugeError("some labels are missing: drop those samples first")
        values = values.astype(str)
    names, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int32), int(names.size)


def check_shifts(shifts: ArrayLike) -> Ints:
    """Shifts as whole numbers of samples, 0 or more."""
    meaning = "a shift is a whole number of samples, 0 or more"
    return check_whole(shifts, "shift", 0, float(2**62), meaning).astype(np.int64)


def check_whole(values: ArrayLike, name: str, least: int, most: float, meaning: str) -> Floats:
    """Whole numbers from ``least`` to ``most`` as floats; an error that says the meaning."""
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    invalid = numbers[~((numbers >= least) & (numbers == np.floor(numbers)) & (numbers <= most))]
    if invalid.size:
        raise StreamgaugeError(f"{name} {invalid[0]:g} is invalid: {meaning}")
    return numbers


def check_step(step: ArrayLike, length: int | None = None) -> tuple[Ints | None, int]:
    """(step number of every sample, 1), or (None, step size)."""
    numbers = np.asarray(step)
    if numbers.dtype.kind not in "iu":
        raise StreamgaugeError("step must be a whole number, or the step number of every sample")
    if numbers.ndim == 0:
        if int(numbers) < 1:
            raise StreamgaugeError(f"step {int(numbers)} is invalid: a step has 1 sample or more")
        return None, int(numbers)
    if length is not None and numbers.shape != (length,):
        raise StreamgaugeError(
            f"step has {numbers.size} entries for {length} labels: give one step number per sample"
        )
    if numbers.size and np.any(numbers[1:] < numbers[:-1]):
        raise StreamgaugeError("step numbers must never decrease: sort the samples by step first")
    return np.ascontiguousarray(numbers, dtype=np.int64), 1


def step_starts(step: ArrayLike, length: int) -> Ints:
    """For every sample, the first sample of its step."""
    steps, size = check_step(step, length)
    index = np.arange(length, dtype=np.int64)
    if steps is None:
        return index - index % size
    is_first = np.diff(steps, prepend=steps[:1] - 1) != 0
    return np.maximum.accumulate(np.where(is_first, index, 0))


def evenly_spaced(first: int, stop: int, most: int) -> Ints:
    """Up to ``most`` evenly spaced positions from ``first`` to before ``stop``.

    >>> evenly_spaced(0, 10, 4)
    array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(first, stop - 1, min(most, stop - first)).astype(np.int64))
