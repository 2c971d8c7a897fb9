"""Selection of the shift beyond which labels are no longer correlated.

Near-future accuracy needs a shift S that is large enough for recent labels to be of no help. It is
a property of the label stream alone: the smallest S from which on the best blind classifier is no
better than the blind classifier with unlimited history. EvalOCL (Hammoud et al. 2023) chose S from
a plot against chance; here it is a statistical test. The comparison is not with 1/C, which skewed
labels exceed at every shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import (
    BlindCounts,
    block_size,
    check_windows,
    count_labels,
    in_threads,
    running_modes,
)
from streamgauge.audit.verdict import MARGIN, ShiftChoice, ShiftRule, choose_shift
from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import all_durations, in_words, seconds
from streamgauge.history.known import Floats, Ints, check_shifts, encode, step_starts
from streamgauge.history.periods import Period, burst_length, find_periods

# No window of 2: with ties to the most recent it equals a window of 1.
WINDOWS = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
LEAST_LABELS = 200


def shift_grid(length: int, periods: Sequence[Period] = (), step: int = 1, octave: int = 4) -> Ints:
    """Shifts to test: quarter octaves up to a twentieth of the stream, and whole periods.

    At a shift of P − 1 the last known label is exactly P before the target, so multiples of a
    period are tested there; with steps, where this distance varies, with P in the middle.

    >>> shift_grid(400)
    array([ 0,  1,  2,  3,  4,  5,  6,  8,  9, 11, 13, 16, 19, 20])
    """
    most = length // 20
    powers = np.arange(0, octave * math.log2(max(2, most)) + 1)
    grid = [np.floor(2 ** (powers / octave) + 1e-9), np.array([0.0, float(most)])]
    for period in periods:
        if period.unit == "samples" and period.length > 1:
            whole = int(most // period.length)
            half_octaves = np.round(2 ** np.arange(0, 20, 0.5))
            far_multiples = np.round(np.linspace(whole / 2, whole, 8))
            multiples = np.unique(
                np.concatenate([half_octaves[half_octaves <= whole], far_multiples])
            )
            grid.append(np.round(period.length * multiples[multiples >= 1]) - (step + 1) // 2)
    shifts = np.unique(np.concatenate(grid)).astype(np.int64)
    return shifts[(shifts >= 0) & (shifts <= most)]


def select_shift(
    labels: ArrayLike,
    shifts: Sequence[float | str] | NDArray[Any] | None = None,
    windows: ArrayLike | None = None,
    *,
    times: ArrayLike | None = None,
    every: float | str | None = None,
    step: ArrayLike = 1,
    ties: str = "recent",
    margin: float = MARGIN,
    errors: float = 2.0,
    together: bool = True,
    prefix: float = 0.2,
    parts: int = 8,
) -> ShiftChoice:
    """The smallest shift from which on recent labels do not help, or None, with the reason.

    For every shift S a window k(S) is chosen on earlier samples: on the first ``prefix`` of the
    stream, then for each later segment on all samples before it. After the prefix, its accuracy is
    compared with that of unlimited history at the same shift and on the same samples. There is no
    correlation at S if this excess is at most

        max(margin, errors · standard error)

    (above zero, or above the excess of the last octave of shifts). The result is the smallest S
    without correlation such that no larger shift has a significant excess. Significance is
    corrected for the number of shifts, in two stages (``together=False``: not corrected). First:
    does any shift have an excess? Without correlation this happens in one of a thousand streams; if
    none has, the result is 0. Second: a larger shift has an excess if it exceeds a limit that,
    without correlation, any shift exceeds in one of twenty streams; this is more sensitive, because
    a result that is too small leaves correlation in. If the last octave of shifts, or the multiples
    of a period within it, taken together, have an excess, there is no such S.

    The standard error comes from a block bootstrap of the paired difference, with blocks longer
    than S, than a burst, and than a hundredth of the stream. Shifts beyond a twentieth of the
    stream are not tested: too few independent blocks would be left.

    ``shifts`` are numbers of samples, or durations such as ``"1h"`` if ``times`` (seconds, sorted)
    are given: sample j is then predicted from the labels up to time(j) − d. ``every`` is the time
    between samples if it is constant, used to name periods. ``step`` is as in
    :func:`blind_accuracy`. The shift is also chosen for each of ``parts`` consecutive parts.

    >>> rng = np.random.default_rng(0)
    >>> select_shift(rng.integers(0, 10, 20_000)).shift
    0
    """
    codes, classes = encode(labels)
    if codes.size < LEAST_LABELS:
        raise StreamgaugeError(
            f"{codes.size} labels are too few to select a shift: give {LEAST_LABELS} or more"
        )
    if np.all(codes == codes[0]):
        raise StreamgaugeError(
            "all labels are the same class: there is nothing to predict, so check the label column"
        )
    stream = LabelStream(
        codes,
        classes,
        codes.size,
        step,
        ties,
        None if times is None else check_times(times, codes.size),
        None if every is None else seconds(every),
    )
    window_lengths = stream.windows(windows, prefix)
    durations = stream.durations(shifts)
    if durations is not None:
        counts = stream.count_in_time(durations, window_lengths)
    else:
        grid, block = stream.shifts(shifts), block_size(codes.size)
        counts = count_labels(codes, classes, window_lengths, grid, step, ties, block=block)
    return stream.choose(counts, ShiftRule(margin, errors, together, prefix, parts))


@dataclass(frozen=True)
class LabelStream:
    """A stream of labels, with what selects its shift; `codes` may be only its first labels."""

    codes: NDArray[np.int32]
    classes: int
    length: int
    step: ArrayLike
    ties: str
    clock: Ints | None
    every: float | None
    """Seconds between samples, if constant."""
    no_clock: str = "there are no times: give a time for every sample, or"
    """Why there is no clock, for messages."""

    @cached_property
    def match(self) -> tuple[list[Period], Floats]:
        """Periods and match curve."""
        return find_periods(self.codes, self.clock, self.every, self.length // 20)

    @cached_property
    def burst(self) -> int:
        return burst_length(self.match[1])

    @cached_property
    def samples_per_step(self) -> int:
        """Samples per step, the mean if steps differ."""
        step = np.asarray(self.step)
        if step.ndim == 0:
            return int(step)
        return max(1, round(self.codes.size / max(1, np.unique(step).size)))

    def windows(self, given: ArrayLike | None, prefix: float, coarse: bool = False) -> Floats:
        """The windows given, or a grid up to a quarter of the prefix, and the unlimited window."""
        if given is None:
            longest = max(1, int(prefix * self.length) // 4)
            grid = [w for w in WINDOWS if w <= longest]
            if coarse:
                grid = [w for w in grid if str(w).strip("0") == "1"]  # powers of ten
            return np.array([*grid, math.inf])
        lengths = check_windows(given)
        return lengths if np.isinf(lengths).any() else np.append(lengths, math.inf)

    def durations(self, shifts: Sequence[Any] | NDArray[Any] | None) -> Floats | None:
        """The shifts in seconds, if they are durations."""
        if shifts is None or not all_durations(shifts):
            return None
        if self.clock is None:
            raise StreamgaugeError(
                f"shifts are durations but {self.no_clock} give the shifts as numbers of samples"
            )
        span = float(self.clock[-1] - self.clock[0])
        durations = np.unique([seconds(s) for s in shifts])
        durations = durations[durations <= span / 20]
        if durations.size == 0:
            raise StreamgaugeError(
                f"every shift is beyond a twentieth of the {in_words(span)} of the stream: "
                "give shorter shifts"
            )
        return durations

    def shifts(self, given: ArrayLike | None, octave: int = 4) -> Ints:
        """The shifts given, or a grid of shifts, up to a twentieth of the stream."""
        if given is None:
            return shift_grid(self.length, self.match[0], self.samples_per_step, octave)
        shifts = np.unique(check_shifts(given))
        shifts = shifts[shifts <= self.length // 20]
        if shifts.size == 0:
            raise StreamgaugeError(
                f"every shift is beyond a twentieth of the {self.length:,} labels: give shorter "
                "shifts"
            )
        return shifts

    def choose(self, counts: BlindCounts, rule: ShiftRule) -> ShiftChoice:
        """Choose the shift, with its typical duration if times are known."""
        choice = choose_shift(
            counts,
            burst=self.burst,
            periods=self.match[0],
            rule=rule,
            step=self.samples_per_step,
        )
        if choice.shift is None or choice.unit == "seconds":
            return choice
        gap = int(choice.shift) + 1
        if self.every is not None:
            return replace(choice, duration=gap * self.every)
        if self.clock is not None and self.clock.size > gap:
            return replace(choice, duration=float(np.median(self.clock[gap:] - self.clock[:-gap])))
        return choice

    def count_in_time(self, durations: Floats, windows: Floats) -> BlindCounts:
        """Hits with shifts as durations d: sample j is predicted from labels up to time(j) − d."""
        from streamgauge.audit import kernels

        codes, clock = self.codes, self.clock
        assert clock is not None
        start = step_starts(self.step, codes.size)
        known = []
        for duration in durations:
            last = np.searchsorted(clock, clock - duration, side="right").astype(np.int64)
            known.append(start[np.minimum(last, np.arange(codes.size))])
        block = block_size(codes.size)
        blocks = -(-codes.size // block)
        hits = np.zeros((windows.size, durations.size, blocks), np.int64)
        tries = np.zeros_like(hits)

        def count(w: int) -> None:
            modes = running_modes(codes, self.classes, float(windows[w]), self.ties)
            for s in range(durations.size):
                kernels.count_known(codes, modes, known[s], block, hits[w, s], tries[w, s])

        in_threads([partial(count, w) for w in range(windows.size)])
        return BlindCounts(
            windows,
            durations,
            hits.transpose(2, 0, 1),
            tries.transpose(2, 0, 1),
            block,
            codes.size,
            np.zeros(durations.size),
            "seconds",
        )


def check_times(times: ArrayLike, length: int) -> Ints:
    """Times as whole seconds, one per sample, sorted."""
    given = np.asarray(times)
    if given.shape != (length,):
        raise StreamgaugeError(
            f"there are {given.size} times for {length} labels: give one time per label"
        )
    if given.dtype.kind == "M":
        given = given.astype("datetime64[s]").astype(np.int64)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise StreamgaugeError("some times are missing: drop those samples or leave the times out")
    clock: Ints = np.floor(given).astype(np.int64)
    if np.any(clock[1:] < clock[:-1]):
        raise StreamgaugeError("times are not sorted: sort the samples by time first")
    return clock
