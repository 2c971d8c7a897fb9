"""From which shift on is the label correlation gone?

Near-future accuracy needs a shift S, so far that recent labels no longer help. How far that is, is
a property of the label stream alone: the smallest S from which on the best blind classifier is no
better than the blind classifier with unlimited history. EvalOCL (Hammoud et al. 2023) read S off a
plot against chance; here it is a test. The comparison is never with 1/C, which skewed labels
exceed at every shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import (
    BlindCounter,
    check_shifts,
    check_step,
    check_windows,
    encode,
    in_threads,
    running_modes,
)
from streamgauge.audit.durations import all_durations, in_words, seconds
from streamgauge.audit.periods import Period, burst_length, find_periods
from streamgauge.audit.repeats import starts
from streamgauge.audit.verdict import MARGIN, Counts, Rule, ShiftChoice, decide
from streamgauge.errors import StreamgaugeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# With ties to the most recent, a window of 2 is the last label again.
WINDOWS = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
LEAST = 200


def shift_grid(length: int, periods: Sequence[Period] = (), step: int = 1, octave: int = 4) -> Ints:
    """Shifts to look at: quarter octaves to a twentieth of the stream, and whole periods.

    A shift of P − 1 has the last known label exactly P before the target, so multiples of a period
    are looked at there; in steps, where the gap varies, with P in the middle of it.

    >>> shift_grid(400)
    array([ 0,  1,  2,  3,  4,  5,  6,  8,  9, 11, 13, 16, 19, 20])
    """
    most = length // 20
    powers = np.arange(0, octave * math.log2(max(2, most)) + 1)
    grid = [np.floor(2 ** (powers / octave) + 1e-9), np.array([0.0, float(most)])]
    for period in periods:
        if period.unit == "samples" and period.length > 1:
            whole = int(most // period.length)
            some = np.round(2 ** np.arange(0, 20, 0.5))
            far = np.round(np.linspace(whole / 2, whole, 8))
            times = np.unique(np.concatenate([some[some <= whole], far]))
            grid.append(np.round(period.length * times[times >= 1]) - (step + 1) // 2)
    every = np.unique(np.concatenate(grid)).astype(np.int64)
    return every[(every >= 0) & (every <= most)]


def window_grid(prefix: int) -> Floats:
    """Windows to choose among, none longer than a quarter of the prefix, and the unlimited one."""
    fits = [float(w) for w in WINDOWS if w <= max(1, prefix // 4)]
    return np.array([*fits, math.inf])


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
    """The smallest shift from which on recent labels no longer help, or None and the reason.

    For every shift S a window k(S) is chosen, first on the leading ``prefix`` of the stream and
    then, as more of it has passed, on everything before the segment that is scored. Behind the
    prefix its accuracy is compared with that of unlimited history at the same shift, on the same
    samples. The correlation counts as gone at S when that excess is at most

        max(margin, errors · standard error)

    (above zero, or above the far end of the curve), and the answer is the smallest S where it is
    gone and from which on it does not come back. Dozens of larger shifts are looked at together,
    and by chance alone one of them would exceed two standard errors. So first it is asked whether
    there is any correlation: a stream without passes the margin for that once in a thousand
    streams, and where no shift passes it, the answer is 0 (this is what shuffled labels give, in
    short streams too). Where one does, "comes back" means beyond the margin that the larger shifts,
    all of them together, pass by chance in one stream of twenty: a shift named too small leaves
    correlation in, one named too large does not. (``together=False`` widens neither.)
    Where the last octave of shifts, taken together, still shows an excess, the labels drift and
    there is no such S; where a period was found, its multiples in the far half of the shifts are
    taken together in the same way.

    The standard error comes from a block bootstrap of the paired difference, its blocks longer
    than S, than a burst, and than a hundredth of the stream. No shift beyond a twentieth of the
    stream is looked at: too few independent blocks would be left.

    ``shifts`` are samples, or durations such as ``"1h"`` where ``times`` (seconds, sorted) are
    given: the answer for sample j then knows the labels up to time(j) − d. ``every`` is the time
    between samples where it is constant; it only gives periods their names. ``step`` is as in
    :func:`blind_accuracy`. ``parts`` consecutive pieces are also judged each on its own.

    >>> rng = np.random.default_rng(0)
    >>> select_shift(rng.integers(0, 10, 20_000)).shift
    0
    """
    codes, classes = encode(labels)
    if codes.size < LEAST:
        raise StreamgaugeError(
            f"{codes.size} labels are too few to say anything about shifts: give {LEAST} or more"
        )
    if np.all(codes == codes[0]):
        raise StreamgaugeError(
            "all labels are the same class: there is nothing to predict, so check the label column"
        )
    clock = None if times is None else check_times(times, codes.size)
    between = None if every is None else seconds(every)
    periods, curve = find_periods(codes, clock, between, codes.size // 20)
    chosen = window_grid(int(prefix * codes.size)) if windows is None else check_windows(windows)
    if not np.isinf(chosen).any():
        chosen = np.append(chosen, math.inf)
    by_clock = shifts is not None and all_durations(shifts)
    if by_clock:
        if clock is None:
            raise StreamgaugeError(
                "shifts are durations but there are no times: give a time for every sample, or "
                "give the shifts as numbers of samples"
            )
        assert shifts is not None
        counts = count_in_time(codes, classes, clock, shifts, chosen, step, ties)
    else:
        usual = typical_step(step, codes.size)
        given = shift_grid(codes.size, periods, usual) if shifts is None else check_shifts(shifts)
        grid = given[given <= codes.size // 20]
        if grid.size == 0:
            raise StreamgaugeError(
                f"every shift is beyond a twentieth of the {codes.size} labels: give shorter shifts"
            )
        counts = count_in_samples(codes, classes, grid, chosen, step, ties)
    result = decide(
        counts,
        burst=burst_length(curve),
        periods=periods,
        rule=Rule(margin, errors, together, prefix, parts),
        unit="seconds" if by_clock else "samples",
        step=typical_step(step, codes.size),
    )
    return with_duration(result, clock, between)


def typical_step(step: ArrayLike, length: int) -> int:
    """Samples in a step, on average where steps differ."""
    given = np.asarray(step)
    if given.ndim == 0:
        return int(given)
    return max(1, round(length / max(1, np.unique(given).size)))


def check_times(times: ArrayLike, length: int) -> Ints:
    """Times as whole seconds, one a sample, sorted."""
    given = np.asarray(times)
    if given.shape != (length,):
        raise StreamgaugeError(f"there are {given.size} times for {length} labels: give one each")
    if given.dtype.kind == "M":
        given = given.astype("datetime64[s]").astype(np.int64)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise StreamgaugeError("some times are missing: drop those samples or leave the times out")
    clock: Ints = np.floor(given).astype(np.int64)
    if np.any(clock[1:] < clock[:-1]):
        raise StreamgaugeError("times are not sorted: sort the samples by time first")
    return clock


def block_size(length: int) -> int:
    """Small blocks: about two thousand over the stream."""
    return max(1, length // 2048)


def count_in_samples(
    codes: NDArray[np.int32],
    classes: int,
    shifts: Ints,
    windows: Floats,
    step: ArrayLike,
    ties: str,
) -> Counts:
    """Hits per block, shifts in samples."""
    steps, size = check_step(step, codes.size)
    usable = np.unique(shifts[shifts < codes.size])
    counter = BlindCounter(
        windows, usable, classes=classes, ties=ties, step=size, block=block_size(codes.size)
    )
    counter.feed(codes, steps if np.ndim(step) else None)
    counter.finish()
    return from_counter(counter)


def from_counter(counter: BlindCounter) -> Counts:
    """What a finished counter has counted."""
    return Counts(
        counter.windows,
        counter.shifts.astype(np.float64),
        counter.hits,
        counter.tries,
        counter.block,
        counter.length,
        counter.shifts.astype(np.float64),
    )


def count_in_time(
    codes: NDArray[np.int32],
    classes: int,
    clock: Ints,
    shifts: Sequence[float | str] | NDArray[Any],
    windows: Floats,
    step: ArrayLike,
    ties: str,
) -> Counts:
    """Hits per block, shifts as durations: sample j is answered from the labels up to time − d.

    The published tie rule depends on the path and not on the shift, so all three rules work here.
    """
    from streamgauge.audit import kernels

    span = float(clock[-1] - clock[0])
    lengths = np.unique([seconds(s) for s in shifts])
    lengths = lengths[lengths <= span / 20]
    if lengths.size == 0:
        raise StreamgaugeError(
            f"every shift is beyond a twentieth of the {in_words(span)} the stream spans: "
            "give shorter shifts"
        )
    start = starts(step, codes.size)
    known = []
    for length in lengths:
        last = np.searchsorted(clock, clock - length, side="right").astype(np.int64)
        known.append(start[np.minimum(last, np.arange(codes.size))])
    block = block_size(codes.size)
    blocks = -(-codes.size // block)
    hits = np.zeros((windows.size, lengths.size, blocks), np.int64)
    tries = np.zeros_like(hits)

    def count(w: int) -> None:
        modes = running_modes(codes, classes, float(windows[w]), ties)
        for s in range(lengths.size):
            kernels.count_known(codes, modes, known[s], 0, block, hits[w, s], tries[w, s])

    in_threads([partial(count, w) for w in range(windows.size)])
    return Counts(
        windows,
        lengths.astype(np.float64),
        hits.transpose(2, 0, 1),
        tries.transpose(2, 0, 1),
        block,
        codes.size,
        np.zeros(lengths.size),
    )


def with_duration(result: ShiftChoice, clock: Ints | None, every: float | None) -> ShiftChoice:
    """Say how long the shift typically lasts, where there is a clock."""
    if result.shift is None or result.unit == "seconds":
        return result
    gap = int(result.shift) + 1
    if every is not None:
        return replace(result, duration=gap * every)
    if clock is not None and clock.size > gap:
        return replace(result, duration=float(np.median(clock[gap:] - clock[:-gap])))
    return result
