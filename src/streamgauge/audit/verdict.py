"""Choice of the shift: select windows, compare with unlimited history, test the excess."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounts
from streamgauge.history.durations import in_words
from streamgauge.history.intervals import critical, errors_for, influence, ratio_error, run_error
from streamgauge.history.known import Floats
from streamgauge.history.periods import Period

MARGIN = 0.005
# Number of segments of the scored part; each uses the window that was best before it.
SEGMENTS = 16
# Chance that any shift of a stream without label correlation is called correlated.
FALSE_ALARM_CHANCE = 0.001
# The same chance once a correlation was detected, for the question at which shift it ends.
RETURN_CHANCE = 0.05


@dataclass(frozen=True)
class ShiftRule:
    """When an excess counts as zero, and on which part of the stream windows are chosen."""

    margin: float = MARGIN
    errors: float = 2.0
    together: bool = True
    prefix: float = 0.2
    parts: int = 8

    def limit(
        self, error: float, blocks: float, chance: float = 1.0, comparisons: int = 1
    ) -> float:
        """The largest excess that counts as zero; `chance` is that of a false alarm in any of
        several comparisons."""
        corrected = errors_for(chance, comparisons) if self.together and chance < 1 else 0.0
        return max(self.margin, critical(max(self.errors, corrected), blocks) * error)


@dataclass(frozen=True)
class Span:
    """The shift chosen for one part of the stream."""

    start: int
    stop: int
    shift: float | None


@dataclass(frozen=True)
class ShiftCurve:
    """Arrays with one entry per shift."""

    shifts: Floats
    accuracy: Floats
    """Of the window chosen for the shift."""
    unlimited: Floats
    """Accuracy of unlimited history."""
    excess: Floats
    """Of the first accuracy over the second."""
    errors: Floats
    """Standard errors of the excess."""
    margins: Floats
    """Excess that counts as zero."""
    samples: int


@dataclass(frozen=True, kw_only=True)
class ShiftChoice(ShiftCurve):
    """The chosen shift, the reason, and the curve of all shifts."""

    shift: float | None
    unit: str
    reason: str
    windows: Floats
    """The window chosen last, per shift."""
    prefix: int
    burst: int
    periods: list[Period] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    duration: float | None = None
    """Typical duration of the shift in seconds, None without times."""

    def in_words(self) -> str:
        """The shift as text."""
        if self.shift is None:
            return "none"
        if self.unit == "seconds":
            return in_words(self.shift) if self.shift else "0"
        text = samples_text(self.shift)
        return text if not self.duration else f"{text} (about {in_words(self.duration)})"

    def to_dict(self) -> dict[str, Any]:
        """The result as numbers, lists and strings, for JSON."""
        names = ("shifts", "windows", "accuracy", "unlimited", "excess", "errors", "margins")
        curve = {name: [plain_number(v) for v in getattr(self, name)] for name in names}
        return {
            "shift": plain_number(self.shift),
            "unit": self.unit,
            "reason": self.reason,
            "duration_seconds": plain_number(self.duration),
            "samples": self.samples,
            "prefix": self.prefix,
            "burst": self.burst,
            "periods": [p._asdict() for p in self.periods],
            "spans": [
                {"start": s.start, "stop": s.stop, "shift": plain_number(s.shift)}
                for s in self.spans
            ],
            "curve": curve,
        }


def samples_text(samples: float) -> str:
    """A number of samples as text."""
    return f"{samples:,.0f} sample{'' if samples == 1 else 's'}"


def plain_number(value: float | None) -> float | int | None:
    """A number for JSON: None for undefined values, int for whole numbers."""
    if value is None or not math.isfinite(value):
        return None
    value = float(value)
    return int(value) if value == int(value) and abs(value) < 2**53 else value


@dataclass(frozen=True)
class PairedHits:
    """Hits of the chosen window and of unlimited history on the same samples, [blocks, shifts]."""

    window_hits: Floats
    history_hits: Floats
    tries: Floats
    windows: Floats
    """The window chosen last, per shift."""
    first: int
    """The first scored block."""

    def part(self, rows: slice, keep: NDArray[np.bool_]) -> PairedHits:
        """Some of the blocks and of the shifts."""
        hits, history, tries = self.window_hits, self.history_hits, self.tries
        part = hits[rows, keep], history[rows, keep], tries[rows, keep]
        return PairedHits(*part, self.windows[keep], self.first)

    def excess(self, shifts: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Gain over unlimited history and tries per block, summed over some shifts."""
        gain = self.window_hits - self.history_hits
        return gain[:, shifts].sum(axis=1), self.tries[:, shifts].sum(axis=1)


def pair_hits(counts: BlindCounts, prefix: float, unlimited: bool = False) -> PairedHits:
    """Choose windows on earlier samples and pair their hits with those of unlimited history.

    After the prefix, every segment of the stream uses, per shift, the window with the highest
    accuracy before the segment, so that scored samples never influence the choice. Unlimited
    history is one of the windows to choose from only with ``unlimited``.
    """
    candidates = np.flatnonzero(np.isfinite(counts.windows) | unlimited)
    history = int(np.flatnonzero(np.isinf(counts.windows))[0])
    blocks, _, shifts = counts.hits.shape
    first = min(blocks - 1, max(1, round(prefix * blocks)))
    edges = np.unique(np.linspace(first, blocks, SEGMENTS + 1).astype(int))
    hits, tries = np.cumsum(counts.hits, axis=0), np.cumsum(counts.tries, axis=0)
    window_hits = np.zeros((blocks - first, shifts))
    history_hits, paired_tries = np.zeros_like(window_hits), np.zeros_like(window_hits)
    windows = np.full(shifts, np.nan)
    for s in range(shifts):
        # Leave out predictions made before the segment about samples inside it.
        offset_blocks = math.ceil(counts.target_offset[s] / counts.block)
        for start, stop in pairwise(edges):
            last = max(start - offset_blocks, 1) - 1
            candidate_tries = tries[last, candidates, s]
            accuracy = np.where(
                candidate_tries > 0,
                hits[last, candidates, s] / np.maximum(candidate_tries, 1),
                -1.0,
            )
            best = int(candidates[np.argmax(accuracy)])
            rows = slice(start - first, stop - first)
            # Blocks in which the window is not full yet are not scored for either.
            comparable = counts.tries[start:stop, best, s] == counts.tries[start:stop, history, s]
            window_hits[rows, s] = np.where(comparable, counts.hits[start:stop, best, s], 0)
            history_hits[rows, s] = np.where(comparable, counts.hits[start:stop, history, s], 0)
            paired_tries[rows, s] = np.where(comparable, counts.tries[start:stop, best, s], 0)
            windows[s] = counts.windows[best]
    return PairedHits(window_hits, history_hits, paired_tries, windows, first)


@dataclass(frozen=True)
class ExcessTest:
    """Which excess over unlimited history is significant, per shift."""

    curve: ShiftCurve
    correlated: NDArray[np.bool_]
    """Where the excess is significant, corrected for the number of shifts."""
    within_margin: NDArray[np.bool_]
    known: NDArray[np.bool_]
    persistent: bool
    """Whether the shifts of the last octave, taken together, have an excess."""


def bootstrap_length(counts: BlindCounts, target_offset: float, blocks: int, burst: int) -> int:
    """Blocks per bootstrap block: longer than the shift, a burst, and a hundredth of the stream."""
    return math.ceil(max(blocks * counts.block / 100, target_offset + 1, burst) / counts.block)


def at_whole_periods(counts: BlindCounts, periods: list[Period], gap: int) -> NDArray[np.bool_]:
    """At which shifts the last known label is a whole number of periods before the target."""
    whole = np.zeros(counts.shifts.size, bool)
    for period in periods:
        multiples = np.round((counts.shifts + gap) / period.length)
        distance = np.abs(multiples * period.length - (counts.shifts + gap))
        whole |= (multiples >= 1) & (distance < 0.02 * period.length)
    return whole


def excess_test(
    counts: BlindCounts,
    pairs: PairedHits,
    burst: int,
    rule: ShiftRule,
    expected: NDArray[np.bool_] | None = None,
) -> ExcessTest:
    """Test the excess of every shift.

    At ``expected`` shifts, the multiples of a period of the labels, the margin is not corrected for
    the number of shifts.
    """
    gain, tries = pairs.window_hits - pairs.history_hits, pairs.tries
    number = counts.shifts.size
    total = tries.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = pairs.window_hits.sum(axis=0) / total
        unlimited = pairs.history_hits.sum(axis=0) / total
    excess = accuracy - unlimited
    errors, margins, alarm_limits, return_limits = (np.full(number, np.nan) for _ in range(4))
    within_margin = np.zeros(number, bool)
    octave = pairs.excess(last_octave(counts))
    for s in np.flatnonzero(total > 0):
        run = bootstrap_length(counts, counts.target_offset[s], tries.shape[0], burst)
        influences = influence(gain[:, s], tries[:, s])
        errors[s], blocks = run_error(influences, run)
        margins[s] = rule.limit(errors[s], blocks)
        # Shift 0 is tested alone; all other shifts are tested together.
        comparisons = 1 if counts.shifts[s] == 0 else number
        single = expected is not None and expected[s]
        for limits, chance in ((alarm_limits, FALSE_ALARM_CHANCE), (return_limits, RETURN_CHANCE)):
            limits[s] = rule.limit(errors[s], blocks, 1.0 if single else chance, comparisons)
        within_margin[s] = excess[s] <= margins[s]
        if not within_margin[s] and octave[1].sum() > 0:
            # An error in the level of unlimited history raises the whole curve; it cancels in the
            # difference to the last octave.
            excess_over_octave = excess[s] - octave[0].sum() / octave[1].sum()
            error, _ = run_error(influences - influence(*octave), run)
            within_margin[s] = excess_over_octave <= rule.limit(error, blocks)
    known = ~np.isnan(alarm_limits)
    correlated = known & (excess > alarm_limits)
    if correlated.any():  # rare for a stream without correlation
        correlated = known & (excess > return_limits)
    curve = ShiftCurve(
        counts.shifts, accuracy, unlimited, excess, errors, margins, int(total.max(initial=0))
    )
    persistent = octave_excess(counts, pairs, burst, rule, FALSE_ALARM_CHANCE)
    return ExcessTest(curve, correlated, within_margin, known, persistent)


def last_octave(counts: BlindCounts) -> NDArray[np.bool_]:
    """Which shifts are those of the last octave."""
    return np.asarray(counts.shifts >= counts.shifts[-1] / 2)


def octave_excess(
    counts: BlindCounts,
    pairs: PairedHits,
    burst: int,
    rule: ShiftRule,
    chance: float = 1.0,
    among: NDArray[np.bool_] | None = None,
) -> bool:
    """Whether the shifts of the last octave (``among`` some shifts) have an excess.

    They are tested together, since each shift alone may be too noisy.
    """
    chosen = last_octave(counts) if among is None else last_octave(counts) & among
    gain, tries = pairs.excess(chosen)
    if tries.sum() <= 0:
        return False
    offset = float(counts.target_offset[chosen].max())
    error, blocks = ratio_error(gain, tries, bootstrap_length(counts, offset, gain.size, burst))
    if among is not None and math.isnan(error):
        return False
    return bool(gain.sum() / tries.sum() > rule.limit(error, blocks, chance))


def first_uncorrelated(test: ExcessTest) -> float | None:
    """Smallest shift with an excess within its margin and no significant excess after it."""
    if test.persistent:
        return None
    correlated = np.flatnonzero(test.correlated)
    candidates = np.flatnonzero(test.known & test.within_margin)
    candidates = (
        candidates[candidates > correlated[-1]] if correlated.size else np.flatnonzero(test.known)
    )
    if candidates.size == 0:
        return None
    value = float(test.curve.shifts[candidates[0]])
    return int(value) if value == int(value) else value


def choose_shift(
    counts: BlindCounts, *, burst: int, periods: list[Period], rule: ShiftRule, step: int = 1
) -> ShiftChoice:
    """Choose the smallest shift without label correlation."""
    pairs = pair_hits(counts, rule.prefix)
    gap = (step + 1) // 2 if counts.unit == "samples" else 0
    same_unit = [p for p in periods if p.unit == counts.unit]
    test = excess_test(counts, pairs, burst, rule, at_whole_periods(counts, same_unit, gap))
    returning = any(
        octave_excess(counts, pairs, burst, rule, among=at_whole_periods(counts, [p], gap))
        for p in same_unit
    )
    shift = None if returning else first_uncorrelated(test)
    return ShiftChoice(
        **vars(test.curve),
        shift=shift,
        unit=counts.unit,
        reason=explain(test, shift, same_unit if returning else [], counts.unit),
        windows=pairs.windows,
        prefix=pairs.first * counts.block,
        burst=burst,
        periods=periods,
        spans=shift_per_part(counts, pairs, burst, rule),
    )


def shift_per_part(
    counts: BlindCounts, pairs: PairedHits, burst: int, rule: ShiftRule
) -> list[Span]:
    """The shift chosen for each of several consecutive parts of the stream."""
    scored = pairs.window_hits.shape[0]
    near = counts.target_offset <= scored * counts.block / rule.parts / 20
    if rule.parts < 2 or scored < 32 * rule.parts or not near.any():
        return []
    edges = np.linspace(0, scored, rule.parts + 1).astype(int)
    spans = []
    for first, last in pairwise(edges):
        test = excess_test(counts.at(near), pairs.part(slice(first, last), near), burst, rule)
        start = (pairs.first + first) * counts.block
        stop = min((pairs.first + last) * counts.block, counts.length)
        spans.append(Span(int(start), int(stop), first_uncorrelated(test)))
    return spans


def explain(test: ExcessTest, shift: float | None, returning: list[Period], unit: str) -> str:
    """The reason for the chosen shift, in one sentence; the correlation is ``returning`` with these
    periods."""
    shifts, excess = test.curve.shifts, test.curve.excess

    def text(value: float) -> str:
        return in_words(value) if unit == "seconds" else samples_text(value)

    if shift == 0:
        return (
            "recent labels do not predict the next label better than all labels so far: there is "
            "no label correlation"
        )
    if shift is not None:
        return (
            f"from a shift of {text(shift)} on, recent labels predict no better than all labels so "
            "far"
        )
    beyond_margin = np.flatnonzero(test.known & (excess > test.curve.margins))
    last = int(beyond_margin[-1]) if beyond_margin.size else int(np.flatnonzero(test.known)[-1])
    still = (
        f"at a shift of {text(shifts[last])} the accuracy from recent labels is still "
        f"{100 * excess[last]:.1f} points higher than from all labels so far"
    )
    if returning:
        names = " and ".join(dict.fromkeys(p.name for p in returning))
        return (
            f"the labels are periodic ({names}): the correlation returns with each period, and "
            f"{still}"
        )
    furthest = f"the largest shift tested is {text(shifts[-1])}"
    if test.persistent:
        return f"{still}, and {furthest}: the labels drift, and no shift removes that"
    return f"{still}, and {furthest}: a longer stream is needed to find where the correlation ends"
