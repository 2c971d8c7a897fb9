"""Selection of the shift beyond which past labels are shown not to help.

Near-future accuracy needs a shift S that is large enough for past labels to be of no help. It is a
property of the label stream alone. EvalOCL (Hammoud et al. 2023) chose S from a plot against
chance; here the excess of the blind family over the most frequent label so far must be shown to be
below a tolerance. The comparison is not with 1/C, which skewed labels exceed at every shift.
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
    MAJORITY,
    BlindCounts,
    block_size,
    check_windows,
    count_labels,
    in_threads,
    running_modes,
    window_name,
)
from streamgauge.audit.verdict import TOLERANCE, ShiftChoice, choose_shift
from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import all_durations, in_words, seconds
from streamgauge.history.family import LEAST_BLOCKS, PREFIX, FamilyHits, RightBits
from streamgauge.history.forecasters import GroupColumns, family_right, forecast, groups_of
from streamgauge.history.known import (
    Floats,
    Ints,
    Known,
    Regular,
    as_seconds,
    check_shifts,
    check_step,
    encode,
    known_labels,
)
from streamgauge.history.periods import Period, burst_length, find_periods
from streamgauge.versions import renamed_parameter

# No window of 2: with ties to the most recent it equals a window of 1.
WINDOWS = (1, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
LEAST_LABELS = 200
BITS = 64  # forecasters in one word per sample
# Longer streams are examined at a few shifts only, and without the windows.
LONG_STREAM = 1_000_000
SHORT_STREAM = 5_000  # up to here, four shifts per octave; then two
FEW_SHIFTS = 8
SAMPLES = 30_000_000  # of a longer stream, fewer shifts still: six at 39 million


def largest_shift(length: int, step: int = 1) -> int:
    """The largest shift that leaves 30 blocks longer than it."""
    return max(0, int((1 - PREFIX) * length / LEAST_BLOCKS) - block_size(length) - step)


def shift_grid(length: int, periods: Sequence[Period] = (), step: int = 1, octave: int = 4) -> Ints:
    """Shifts to examine: quarter octaves up to the largest, and whole periods.

    At a shift of P − 1 the last known label is exactly P before the target, so multiples of a
    period are tested there; with steps, where this distance varies, with P in the middle.

    >>> shift_grid(400)
    array([0, 1, 2, 3, 4, 5, 6, 8])
    """
    most = largest_shift(length, step)
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


@renamed_parameter("margin", "tolerance")
def select_shift(
    labels: ArrayLike,
    shifts: Sequence[float | str] | NDArray[Any] | None = None,
    windows: ArrayLike | None = None,
    *,
    tolerance: float = TOLERANCE,
    times: ArrayLike | None = None,
    label_times: ArrayLike | None = None,
    delay: int = 0,
    users: ArrayLike | None = None,
    albums: ArrayLike | None = None,
    every: float | str | None = None,
    step: ArrayLike = 1,
    ties: str = "recent",
) -> ShiftChoice:
    """The smallest shift from which on past labels are shown to help less than ``tolerance``.

    The excess at a shift S is the accuracy of the blind family minus that of the most frequent
    label so far, on the same samples: the last four fifths of the stream. The family is every
    forecaster of `streamgauge.history`, the most frequent of the last k labels among them; in each
    segment of the stream it answers with the forecaster that was best before the segment.

    ``shift`` of the result is the smallest S such that at every examined shift from S on, the
    one-sided 95 % upper bound of the excess is below the tolerance. The bound holds for every
    forecaster of the family, not only for the chosen one: it is the largest of theirs. No
    correction for several shifts or forecasters is needed, since all must pass
    (intersection-union test). ``shift`` is None where this cannot be shown; ``reason``,
    ``not_excluded`` and ``more`` then hold what is known. ``estimate`` with ``low`` and ``high``
    is the shift at which the excess itself falls below the tolerance, with a 95 % interval by
    inversion of the pointwise intervals.

    Standard errors come from a block bootstrap of the paired differences, with blocks longer than
    S, than a burst, and than the correlation of the differences. Shifts that leave fewer than 30
    blocks are not examined, so the result holds up to ``largest``. Streams of more than a million
    labels are examined at eight shifts at most.

    ``shifts`` are numbers of samples, or durations such as ``"1h"`` if ``times`` (seconds, sorted)
    are given: sample j is then predicted from the labels up to time(j) − d. ``every`` is the time
    between samples if it is constant, used to name periods. ``step`` is as in
    :func:`blind_accuracy`; ``label_times`` and ``delay`` say when labels became known.

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
        step=step,
        ties=ties,
        clock=None if times is None else check_times(times, codes.size),
        label_times=label_times,
        delay=delay,
        every=None if every is None else seconds(every),
        users=None if users is None else encode(users)[0],
        albums=None if albums is None else encode(albums)[0],
        given_windows=windows,
    )
    return stream.select(shifts, tolerance)


@dataclass(frozen=True)
class LabelStream:
    """A stream of labels and what was known when; `codes` may be only its first labels."""

    codes: NDArray[np.int32]
    classes: int
    length: int
    step: ArrayLike = 1
    ties: str = "recent"
    clock: Ints | None = None
    label_times: ArrayLike | None = None
    delay: int = 0
    every: float | None = None
    """Seconds between samples, if constant."""
    users: NDArray[np.int32] | None = None
    albums: NDArray[np.int32] | None = None
    given_windows: ArrayLike | None = None
    complete: bool = True
    """Whether `codes` are all labels."""
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

    @property
    def long(self) -> bool:
        """Whether all windows are swept once, and the family examined at few shifts or none."""
        return self.length > LONG_STREAM or not self.complete

    @cached_property
    def _families(self) -> dict[tuple[str, float], FamilyHits]:
        return {}

    @cached_property
    def windows(self) -> Floats:
        """The windows given, or a grid up to a twentieth of the stream, and the unlimited one."""
        if self.given_windows is None:
            longest = max(1, int(PREFIX * self.length) // 4)
            grid = [w for w in WINDOWS if w <= longest]
            if self.long:
                grid = [w for w in grid if str(w).strip("0") == "1"]  # powers of ten
            return np.array([*grid, math.inf])
        lengths = check_windows(self.given_windows)
        return lengths if np.isinf(lengths).any() else np.append(lengths, math.inf)

    @property
    def seconds_per_sample(self) -> float | None:
        if self.every is not None or self.clock is None:
            return self.every
        return float(self.clock[-1] - self.clock[0]) / max(1, self.clock.size - 1)

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
        durations = durations[durations <= (1 - PREFIX) * span / LEAST_BLOCKS]
        if durations.size == 0:
            raise StreamgaugeError(
                f"every shift is too long for the {in_words(span)} of the stream, of which it must "
                f"leave {LEAST_BLOCKS} blocks: give shorter shifts"
            )
        return durations

    def shifts(self, given: ArrayLike | None) -> Ints:
        """The shifts given, or a grid of shifts, up to the largest that can be examined."""
        if given is None:
            octave = 2 if self.length > SHORT_STREAM else 4
            return shift_grid(self.length, self.match[0], self.samples_per_step, octave)
        most = largest_shift(self.length, self.samples_per_step)
        shifts = np.unique(check_shifts(given))
        shifts = shifts[shifts <= most]
        if shifts.size == 0:
            raise StreamgaugeError(
                f"every shift is beyond {most:,} samples, the largest of which {self.length:,} "
                f"labels leave {LEAST_BLOCKS} blocks: give shorter shifts"
            )
        return shifts

    def known(self, shift: ArrayLike = 0, duration: float = 0.0) -> Known | Regular:
        """What was known to the answers of models behind by some samples, or by a duration."""
        times, label_times = self.clock, self.label_times
        if duration:
            assert times is not None
            # Labels are known to later times only: half a second earlier, whole seconds match.
            arrivals = times - 0.5 if label_times is None else np.asarray(label_times)
            label_times = arrivals + duration
        if label_times is None and np.ndim(self.step) == 0 and np.ndim(shift) == 0:
            size = check_step(self.step)[1]
            return Regular(int(check_shifts(shift)[0]), size, self.delay)
        return known_labels(
            self.codes.size,
            shift=shift,
            step=self.step,
            times=times,
            label_times=label_times,
            delay=self.delay,
        )

    @cached_property
    def groups(self) -> GroupColumns:
        """Users, albums and times, for the forecasters that count by them."""
        return groups_of(self.codes.size, times=self.clock, users=self.users, albums=self.albums)

    def right(self, known: Known | Regular, offset: int = 0) -> RightBits:
        """For each sample one bit per forecaster, set where it is right."""
        bits, names = family_right(self.codes, self.classes, known, self.groups)
        names[0] = MAJORITY
        if not self.long:
            self._add_windows(known, bits, names)
        return RightBits(bits, names, block_size(self.length), self._gap(known), offset)

    def _add_windows(
        self, known: Known | Regular, bits: NDArray[np.uint64], names: list[str]
    ) -> None:
        """Add the most frequent of the last labels; the whole history while there are fewer."""
        from streamgauge.audit import kernels

        counts = known.between(0, self.codes.size)
        if len(names) + self.windows.size > BITS:
            raise StreamgaugeError(
                f"{self.windows.size} windows are too many: give at most {BITS - len(names)}, "
                "the unlimited one included"
            )
        modes = self._modes if known.order is None else self._running_modes(known.order)
        for window, guess in modes.items():
            if (name := window_name(window)) not in names:
                kernels.set_bits(self.codes, guess, modes[math.inf], counts, len(names), bits)
                names.append(name)

    @cached_property
    def _modes(self) -> dict[float, NDArray[np.int32]]:
        return self._running_modes()

    def _running_modes(self, order: Ints | None = None) -> dict[float, NDArray[np.int32]]:
        arrived = self.codes if order is None else self.codes[order]
        return {
            w: running_modes(arrived, self.classes, w, self.ties) for w in self.windows.tolist()
        }

    def _hits(self, known: Known | Regular, offset: int) -> FamilyHits:
        return self.right(known, offset).hits()

    def _long_hits(self, known: Known | Regular, offset: int) -> FamilyHits:
        """The same without the windows, and without a word of memory per sample."""
        block = block_size(self.length)
        done = forecast(
            self.codes, self.classes, known, self.groups, points=True, start=offset, block=block
        )
        missing = [(0, -(-self.length // block) - done.tries.size)]
        number = len(done.names)
        hits = np.pad(done.hits[:, :number], [*missing, (0, 0)])
        names = [MAJORITY, *done.names[1:]]
        return FamilyHits(names, hits, np.pad(done.tries, missing), block, self._gap(known))

    def _gap(self, known: Known | Regular) -> float:
        """Samples between a target and the newest label known for it: the 90 % quantile."""
        at = np.linspace(0, self.codes.size - 1, min(self.codes.size, 1_000)).astype(np.int64)
        newest = [int(known.between(j, j + 1)[0]) for j in at.tolist()]
        return float(np.quantile(at - newest, 0.9))

    def families(self, shifts: ArrayLike, unit: str = "samples") -> list[FamilyHits]:
        """Hits of the blind family per block, at shifts in samples or seconds."""

        def count(shift: float) -> None:
            if unit == "samples":
                known, offset = self.known(int(shift)), int(shift)
            else:
                known, offset = self.known(duration=shift), 0
            hits = self._long_hits if self.long else self._hits
            self._families[unit, shift] = hits(known, offset)

        wanted = [float(s) for s in np.atleast_1d(shifts)]
        in_threads([partial(count, s) for s in wanted if (unit, s) not in self._families])
        return [self._families[unit, s] for s in wanted]

    def select(
        self,
        given: Sequence[Any] | NDArray[Any] | None,
        tolerance: float,
        counts: BlindCounts | None = None,
    ) -> ShiftChoice:
        """Examine the shifts and choose one. ``counts`` of the windows are needed of a stream that
        is not in memory, and used to pick shifts of a long one."""
        durations = self.durations(given)
        if durations is not None:
            return self._choose(
                durations, self.families(durations, "seconds"), tolerance, "seconds"
            )
        shifts = self.shifts(given)
        if not self.long:
            return self._choose(shifts, self.families(shifts), tolerance)
        counts = counts or self.sweep(shifts)
        counts = counts.at(np.isin(counts.shifts, shifts))
        by_window = self._choose(counts.shifts, counts.families(), tolerance)
        if not self.complete or by_window.shift is None:
            return by_window
        if given is None:
            shifts = few_shifts(shifts, by_window, self.length)
        choice = self._choose(shifts, self.families(shifts), tolerance)
        if choice.shift is not None and choice.shift < by_window.shift:
            return by_window
        # The windows belong to the family, and are examined at more shifts.
        low = max(choice.low, min(by_window.low, choice.high))
        return replace(choice, low=low, estimate=max(choice.estimate, low))

    def sweep(self, shifts: Ints) -> BlindCounts:
        """Hits of every window at every shift, without late labels."""
        block = block_size(self.length)
        return count_labels(
            self.codes, self.classes, self.windows, shifts, self.step, self.ties, block=block
        )

    def _choose(
        self, shifts: Any, families: list[FamilyHits], tolerance: float, unit: str = "samples"
    ) -> ShiftChoice:
        choice = choose_shift(
            shifts,
            families,
            tolerance=tolerance,
            burst=self.burst,
            periods=self.match[0],
            unit=unit,
            gap=(self.samples_per_step + 1) // 2 if unit == "samples" else 0,
            seconds_per_sample=self.seconds_per_sample,
        )
        if choice.shift is None or unit == "seconds":
            return choice
        gap = int(choice.shift) + 1
        if self.every is not None:
            return replace(choice, duration=gap * self.every)
        if self.clock is not None and self.clock.size > gap:
            return replace(choice, duration=float(np.median(self.clock[gap:] - self.clock[:-gap])))
        return choice


def few_shifts(shifts: Ints, by_window: ShiftChoice, length: int) -> Ints:
    """Shift 0 and a few others, from the one at which the windows stop helping to the largest."""
    start = max(1.0, by_window.shift or 1.0)
    number = int(min(FEW_SHIFTS, max(3, FEW_SHIFTS * SAMPLES // length))) - 1
    targets = np.geomspace(start, max(start, float(shifts[-1])), number)
    nearest = [int(np.argmin(np.abs(shifts - target))) for target in targets]
    return np.unique([shifts[0], *shifts[nearest]])


def check_times(times: ArrayLike, length: int) -> Ints:
    """Times as whole seconds, one per sample, sorted."""
    given = np.asarray(times)
    if given.shape != (length,):
        raise StreamgaugeError(
            f"there are {given.size} times for {length} labels: give one time per label"
        )
    if given.dtype.kind == "M":
        given = as_seconds(given)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise StreamgaugeError("some times are missing: drop those samples or leave the times out")
    clock: Ints = np.floor(given).astype(np.int64)
    if np.any(clock[1:] < clock[:-1]):
        raise StreamgaugeError("times are not sorted: sort the samples by time first")
    return clock
