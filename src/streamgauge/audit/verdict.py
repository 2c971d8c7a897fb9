"""Reading the shift off counts of hits: choose windows, compare with unlimited history, judge."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.durations import in_words
from streamgauge.audit.intervals import critical, errors_for, influence, ratio_error, run_error
from streamgauge.audit.periods import Period

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MARGIN = 0.005
# The scored part is cut in so many segments; each uses the window that was best before it.
SEGMENTS = 16
# Chance that somewhere on the curve of a stream without correlation an excess passes for one.
FALSE_ALARM = 0.001
# The same once there is correlation somewhere on the curve, so that where it ends is the question.
RETURN = 0.05


@dataclass(frozen=True)
class Counts:
    """Hits of blind classifiers per small block of stream time; the last window is unlimited."""

    windows: Floats
    shifts: Floats
    hits: Ints
    tries: Ints
    block: int
    """Samples in a small block."""
    length: int
    ahead: Floats
    """How far a block's targets lie behind its predictions, in samples, per shift."""


def some_shifts(counts: Counts, keep: NDArray[np.bool_]) -> Counts:
    """Counts of some of the shifts."""
    return replace(
        counts,
        shifts=counts.shifts[keep],
        ahead=counts.ahead[keep],
        hits=counts.hits[:, :, keep],
        tries=counts.tries[:, :, keep],
    )


@dataclass(frozen=True)
class Rule:
    """When an excess counts as gone, and on which part of the stream windows are chosen."""

    margin: float = MARGIN
    errors: float = 2.0
    together: bool = True
    prefix: float = 0.2
    parts: int = 8


@dataclass(frozen=True)
class Span:
    """The shift of one part of the stream."""

    start: int
    stop: int
    shift: float | None


@dataclass(frozen=True)
class ShiftChoice:
    """The shift, why, and the whole curve it was read from.

    Arrays run over ``shifts``: accuracies of the chosen ``windows``, of the unlimited history, the
    ``excess`` of the first over the second, its standard ``errors`` and the ``margins`` allowed.
    """

    shift: float | None
    unit: str
    reason: str
    shifts: Floats
    windows: Floats
    accuracy: Floats
    unlimited: Floats
    excess: Floats
    errors: Floats
    margins: Floats
    samples: int
    prefix: int
    burst: int
    periods: list[Period] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    duration: float | None = None
    """Typical time that the shift spans, in seconds, where there are times."""

    def in_words(self) -> str:
        """The shift as a person would say it."""
        if self.shift is None:
            return "none"
        if self.unit == "seconds":
            return in_words(self.shift) if self.shift else "0"
        text = counted(self.shift)
        return text if not self.duration else f"{text} (about {in_words(self.duration)})"

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, lists and strings."""
        names = ("shifts", "windows", "accuracy", "unlimited", "excess", "errors", "margins")
        plain = {name: [plain_number(v) for v in getattr(self, name)] for name in names}
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
            "curve": plain,
        }


def counted(samples: float) -> str:
    """A number of samples in words."""
    return f"{samples:,.0f} sample{'' if samples == 1 else 's'}"


def plain_number(value: float | None) -> float | int | None:
    """A number that JSON can hold: None for what is undefined, whole numbers as such."""
    if value is None or not math.isfinite(value):
        return None
    value = float(value)
    return int(value) if value == int(value) and abs(value) < 2**53 else value


@dataclass(frozen=True)
class Paired:
    """Per scored block and shift: hits of the chosen window, of unlimited history, and tries."""

    own: Floats
    every: Floats
    tried: Floats
    windows: Floats
    """The window last chosen, per shift."""
    first: int
    """The first scored block."""


def pair(counts: Counts, prefix: float, unlimited: bool = False) -> Paired:
    """Choose windows on the past and line their hits up with those of unlimited history.

    Unlimited history is itself among the windows to choose from only with ``unlimited``.

    Behind the prefix every segment of the stream uses, for each shift, the window that was best on
    everything before the segment; what is scored never takes part in the choice.
    """
    able = np.flatnonzero(np.isfinite(counts.windows) | unlimited)
    endless = int(np.flatnonzero(np.isinf(counts.windows))[0])
    blocks, _, n = counts.hits.shape
    cut = min(blocks - 1, max(1, round(prefix * blocks)))
    edges = np.unique(np.linspace(cut, blocks, SEGMENTS + 1).astype(int))
    hits, tries = np.cumsum(counts.hits, axis=0), np.cumsum(counts.tries, axis=0)
    own = np.zeros((blocks - cut, n))
    every, tried = np.zeros_like(own), np.zeros_like(own)
    windows = np.full(n, np.nan)
    for s in range(n):
        # A prediction made before the segment may be about a sample inside it: leave those out.
        late = math.ceil(counts.ahead[s] / counts.block)
        for a, b in pairwise(edges):
            last = max(a - late, 1) - 1
            seen = tries[last, able, s]
            rate = np.where(seen > 0, hits[last, able, s] / np.maximum(seen, 1), -1.0)
            best = int(able[np.argmax(rate)])
            rows = slice(a - cut, b - cut)
            # Where the window is not full yet, neither side is scored.
            fair = counts.tries[a:b, best, s] == counts.tries[a:b, endless, s]
            own[rows, s] = np.where(fair, counts.hits[a:b, best, s], 0)
            every[rows, s] = np.where(fair, counts.hits[a:b, endless, s], 0)
            tried[rows, s] = np.where(fair, counts.tries[a:b, best, s], 0)
            windows[s] = counts.windows[best]
    return Paired(own, every, tried, windows, cut)


@dataclass(frozen=True)
class Judgement:
    """Excess over unlimited history per shift, and what of it counts."""

    accuracy: Floats
    unlimited: Floats
    excess: Floats
    errors: Floats
    margins: Floats
    loud: NDArray[np.bool_]
    """Where the excess is beyond chance, all shifts taken together."""
    quiet: NDArray[np.bool_]
    known: NDArray[np.bool_]
    lasting: bool
    """Whether there is an excess at the far end of the curve, its shifts taken together."""
    samples: int


def run_length(counts: Counts, ahead: float, blocks: int, burst: int) -> int:
    """Small blocks in a bootstrap block: longer than the shift, a burst, a hundredth of all."""
    return math.ceil(max(blocks * counts.block / 100, ahead + 1, burst) / counts.block)


def whole_periods(counts: Counts, periods: list[Period], gap: int) -> NDArray[np.bool_]:
    """Which shifts have the last known label whole periods before the target."""
    found = np.zeros(counts.shifts.size, bool)
    for period in periods:
        times = np.round((counts.shifts + gap) / period.length)
        off = np.abs(times * period.length - (counts.shifts + gap))
        found |= (times >= 1) & (off < 0.02 * period.length)
    return found


def judge(
    counts: Counts,
    pairs: Paired,
    rows: slice,
    burst: int,
    rule: Rule,
    expected: NDArray[np.bool_] | None = None,
) -> Judgement:
    """Judge the excess of every shift on some of the scored blocks.

    At ``expected`` shifts, the multiples of a period that was found in the labels, an excess is no
    surprise, and the margin of a single look is enough.
    """
    gain, tried = (pairs.own - pairs.every)[rows], pairs.tried[rows]
    n = counts.shifts.size
    total = tried.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = pairs.own[rows].sum(axis=0) / total
        unlimited = pairs.every[rows].sum(axis=0) / total
    excess = accuracy - unlimited
    errors, margins, alarms, returns = (np.full(n, np.nan) for _ in range(4))
    quiet = np.zeros(n, bool)
    far = gain[:, far_end(counts)].sum(axis=1), tried[:, far_end(counts)].sum(axis=1)
    for s in np.flatnonzero(total > 0):
        run = run_length(counts, counts.ahead[s], tried.shape[0], burst)
        own = influence(gain[:, s], tried[:, s])
        errors[s], blocks = run_error(own, run)
        margins[s] = max(rule.margin, critical(rule.errors, blocks) * errors[s])
        # The next sample is a question of its own; all the other shifts are asked together.
        looks = 1 if counts.shifts[s] == 0 else n
        single = not rule.together or (expected is not None and expected[s])
        for limits, chance in ((alarms, FALSE_ALARM), (returns, RETURN)):
            wide = rule.errors if single else max(rule.errors, errors_for(chance, looks))
            limits[s] = max(rule.margin, critical(wide, blocks) * errors[s])
        quiet[s] = excess[s] <= margins[s]
        if not quiet[s] and far[1].sum() > 0:
            # Luck with the majority class lifts the whole curve alike; against the far end of the
            # curve it cancels.
            above = excess[s] - far[0].sum() / far[1].sum()
            error, _ = run_error(own - influence(*far), run)
            quiet[s] = above <= max(rule.margin, critical(rule.errors, blocks) * error)
    known = ~np.isnan(alarms)
    loud = known & (excess > alarms)
    if loud.any():  # a stream without correlation hardly ever comes here
        loud = known & (excess > returns)
    lasting = False
    if far[1].sum() > 0:
        run = run_length(counts, counts.ahead[-1], tried.shape[0], burst)
        error, blocks = ratio_error(*far, run)
        wide = max(rule.errors, errors_for(FALSE_ALARM, 1)) if rule.together else rule.errors
        limit = max(rule.margin, critical(wide, blocks) * error)
        lasting = bool(far[0].sum() / far[1].sum() > limit)
    samples = int(total.max(initial=0))
    return Judgement(
        accuracy, unlimited, excess, errors, margins, loud, quiet, known, lasting, samples
    )


def far_end(counts: Counts) -> Ints:
    """The shifts of the last octave."""
    return np.flatnonzero(counts.shifts >= counts.shifts[-1] / 2)


def first_quiet(found: Judgement, shifts: Floats) -> float | None:
    """Smallest shift where the excess is within its margin, and no alarm from there on."""
    if found.lasting:
        return None
    loud = np.flatnonzero(found.loud)
    quiet = np.flatnonzero(found.known & found.quiet)
    quiet = quiet[quiet > loud[-1]] if loud.size else np.flatnonzero(found.known)
    if quiet.size == 0:
        return None
    value = float(shifts[quiet[0]])
    return int(value) if value == int(value) else value


def comes_back(
    counts: Counts, pairs: Paired, period: Period, gap: int, burst: int, rule: Rule
) -> bool:
    """Whether the multiples of a period in the far half of the shifts, taken together, are loud.

    Each multiple alone may be too noisy to tell; together they are a single look.
    """
    chosen = whole_periods(counts, [period], gap) & (counts.shifts >= counts.shifts[-1] / 2)
    if not chosen.any():
        return False
    gain = (pairs.own - pairs.every)[:, chosen].sum(axis=1)
    tried = pairs.tried[:, chosen].sum(axis=1)
    run = run_length(counts, float(counts.ahead[chosen].max()), gain.size, burst)
    error, blocks = ratio_error(gain, tried, run)
    if math.isnan(error):
        return False
    return bool(gain.sum() / tried.sum() > max(rule.margin, critical(rule.errors, blocks) * error))


def decide(
    counts: Counts,
    *,
    burst: int,
    periods: list[Period],
    rule: Rule,
    unit: str = "samples",
    step: int = 1,
) -> ShiftChoice:
    """Read the shift off the counts."""
    pairs = pair(counts, rule.prefix)
    scored = pairs.own.shape[0]
    gap = (step + 1) // 2 if unit == "samples" else 0
    own = [p for p in periods if p.unit == unit]
    expected = whole_periods(counts, own, gap)
    found = judge(counts, pairs, slice(0, scored), burst, rule, expected)
    shift = first_quiet(found, counts.shifts)
    returning = [p for p in own if comes_back(counts, pairs, p, gap, burst, rule)]
    if returning:
        shift = None
    choice = ShiftChoice(
        shift,
        unit,
        explain(found, counts.shifts, shift, periods, returning, unit),
        counts.shifts,
        pairs.windows,
        found.accuracy,
        found.unlimited,
        found.excess,
        found.errors,
        found.margins,
        found.samples,
        pairs.first * counts.block,
        burst,
        periods,
    )
    return replace(choice, spans=over_time(counts, pairs, burst, rule))


def over_time(counts: Counts, pairs: Paired, burst: int, rule: Rule) -> list[Span]:
    """The same, for consecutive parts of the stream by themselves."""
    scored = pairs.own.shape[0]
    if rule.parts < 2 or scored < 32 * rule.parts:
        return []
    near = counts.ahead <= scored * counts.block / rule.parts / 20
    if not near.any():
        return []
    local = some_shifts(counts, near)
    some = replace(
        pairs,
        own=pairs.own[:, near],
        every=pairs.every[:, near],
        tried=pairs.tried[:, near],
        windows=pairs.windows[near],
    )
    edges = np.linspace(0, scored, rule.parts + 1).astype(int)
    spans = []
    for a, b in pairwise(edges):
        part = judge(local, some, slice(a, b), burst, rule)
        start = (pairs.first + a) * counts.block
        stop = min((pairs.first + b) * counts.block, counts.length)
        spans.append(Span(int(start), int(stop), first_quiet(part, local.shifts)))
    return spans


def explain(
    found: Judgement,
    shifts: Floats,
    shift: float | None,
    periods: list[Period],
    returning: list[Period],
    unit: str,
) -> str:
    """One sentence on why the shift is what it is."""

    def say(value: float) -> str:
        return in_words(value) if unit == "seconds" else counted(value)

    if shift == 0:
        return (
            "recent labels say no more about the next one than all labels so far: there is no "
            "label correlation to shift away"
        )
    if shift is not None:
        return (
            f"from {say(shift)} on, recent labels in the window chosen on earlier ones predict no "
            "better than all labels so far"
        )
    loud = np.flatnonzero(found.known & (found.excess > found.margins))
    last = int(loud[-1]) if loud.size else int(np.flatnonzero(found.known)[-1])
    still = (
        f"at a shift of {say(shifts[last])} recent labels still give "
        f"{100 * found.excess[last]:.1f} points more than all labels so far"
    )
    if returning:
        names = " and ".join(dict.fromkeys(p.name for p in periods if p.unit == unit))
        return (
            f"the labels are periodic ({names}): the correlation comes back each time, and {still}"
        )
    furthest = f"the largest shift looked at is {say(shifts[-1])}"
    if found.lasting:
        return f"{still}, and {furthest}: the labels drift, and no shift undoes that"
    return f"{still}, and {furthest}: where the correlation ends, a longer stream would show"
