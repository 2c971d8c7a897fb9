"""The rule for the shift: from which on past labels are shown to help less than a tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.durations import NAMED, in_words
from streamgauge.history.family import (
    LEAST_BLOCKS,
    Excess,
    FamilyHits,
    best_before,
    crossing,
    shift_interval,
)
from streamgauge.history.known import Floats
from streamgauge.history.periods import Period

TOLERANCE = 0.02
CALENDAR = ("day", "week", "year")


@dataclass(frozen=True, kw_only=True)
class ShiftChoice:
    """The chosen shift, the reason, and the curve of all examined shifts."""

    shift: float | None
    """The smallest shift such that at every examined shift from it on, the one-sided 95 % upper
    bound of the excess is below the tolerance; None where that cannot be shown."""
    unit: str
    """``samples`` or ``seconds``."""
    reason: str
    tolerance: float
    largest: float
    """The largest examined shift; NaN if none could be examined."""
    estimate: float
    """The shift at which the excess itself falls below the tolerance; infinity: beyond the largest
    examined shift."""
    low: float
    """Of the 95 % interval of ``estimate``."""
    high: float
    not_excluded: float
    """Without a shift: the upper bound of the excess at the largest examined shift."""
    more: float
    """Without a shift: about how many more labels would settle it; NaN if that is unknown."""
    long_periods: list[str]
    """Periods longer than this stream can show."""
    periods: list[Period] = field(default_factory=list)
    burst: int
    samples: int
    """Labels of the stream."""
    shifts: Floats
    accuracy: Floats
    """Of the forecaster chosen on the past."""
    constant: Floats
    """Accuracy of the most frequent label so far, on the same samples."""
    excess: Floats
    errors: Floats
    """Standard errors of the excess."""
    upper: Floats
    """One-sided 95 % upper bounds of the excess of every forecaster."""
    blocks: Floats
    """Independent blocks behind the bounds."""
    forecasters: list[str]
    """The forecaster chosen last, per shift."""
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
        numbers = ("shift", "tolerance", "largest", "estimate", "low", "high", "not_excluded",
                   "more", "samples", "burst")  # fmt: skip
        curve = ("shifts", "accuracy", "constant", "excess", "errors", "upper", "blocks")
        return {name: plain_number(getattr(self, name)) for name in numbers} | {
            "unit": self.unit,
            "reason": self.reason,
            "duration_seconds": plain_number(self.duration),
            "periods": [p._asdict() for p in self.periods],
            "long_periods": self.long_periods,
            "curve": {name: [plain_number(v) for v in getattr(self, name)] for name in curve}
            | {"forecasters": self.forecasters},
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


def choose_shift(
    shifts: Sequence[float],
    families: Sequence[FamilyHits],
    *,
    tolerance: float,
    burst: int,
    periods: list[Period],
    unit: str = "samples",
    gap: int = 1,
    seconds_per_sample: float | None = None,
) -> ShiftChoice:
    """Apply the rule to the families at these shifts, in increasing order.

    Shifts with fewer than 30 blocks are not examined.
    """
    measured = [(s, f, f.excess(burst)) for s, f in zip(shifts, families, strict=True)]
    measured = [m for m in measured if m[2].blocks >= LEAST_BLOCKS]
    curve = [excess for _, _, excess in measured]
    examined = np.array([s for s, _, _ in measured], np.float64)
    values, errors = (np.array([getattr(e, n) for e in curve]) for n in ("excess", "error"))
    first = best_before(curve, tolerance)
    low, high = shift_interval(examined, curve, tolerance) if curve else (math.nan, math.nan)
    estimate = math.nan
    if curve:
        # Between its multiples, a period hides what it predicts.
        whole = at_whole_periods(examined, [p for p in periods if p.unit == unit], gap)
        fitted = whole if whole.sum() > 2 else np.ones(examined.size, bool)
        estimate = crossing(examined[fitted], values[fitted], errors[fitted], tolerance)
        estimate = min(max(estimate, low), high)
        if curve[-1].low > tolerance:
            estimate = math.inf
    length = sum(int(f.tries.sum()) for f in families[:1])
    largest = float(examined[-1]) if curve else math.nan
    settled = first is not None
    return ShiftChoice(
        shift=plain_number(examined[first]) if first is not None else None,
        unit=unit,
        reason=reason(examined, curve, first, tolerance, unit, length, periods),
        tolerance=tolerance,
        largest=largest,
        estimate=estimate,
        low=low,
        high=high,
        not_excluded=math.nan if settled or not curve else curve[-1].upper,
        more=math.nan if settled or not curve else labels_to_settle(curve[-1], tolerance, length),
        long_periods=unseen_periods(largest, unit, seconds_per_sample),
        periods=periods,
        burst=burst,
        samples=length,
        shifts=examined,
        accuracy=np.array([e.accuracy for e in curve]),
        constant=np.array([e.constant for e in curve]),
        excess=values,
        errors=errors,
        upper=np.array([e.upper for e in curve]),
        blocks=np.array([e.blocks for e in curve]),
        forecasters=[f.name for _, f, _ in measured],
    )


def at_whole_periods(shifts: Floats, periods: list[Period], gap: int) -> NDArray[np.bool_]:
    """At which shifts the newest known label is a whole number of periods before the target."""
    whole = np.zeros(shifts.size, bool)
    for period in periods:
        multiples = np.round((shifts + gap) / period.length)
        distance = np.abs(multiples * period.length - (shifts + gap))
        whole |= (multiples >= 1) & (distance < 0.02 * period.length)
    return whole


def labels_to_settle(point: Excess, tolerance: float, length: int) -> float:
    """How many more labels bring the upper bound below the tolerance: its distance from the excess
    falls with the square root of the labels. NaN if the excess is not below the tolerance.

    >>> point = Excess(0.5, 0.5, 0.0, 0.02, 50, -0.04, 0.05, 0.04)
    >>> labels_to_settle(point, 0.02, 1000)
    3000.0
    """
    excess = max(0.0, point.excess)
    if not excess < tolerance:
        return math.nan
    width = (point.upper - excess) / (tolerance - excess)
    return float(math.ceil(length * (width**2 - 1)))


def unseen_periods(largest: float, unit: str, seconds_per_sample: float | None) -> list[str]:
    """Periods beyond the largest examined shift: those of the calendar, if times are known."""
    if math.isnan(largest):
        return []
    per_unit = 1.0 if unit == "seconds" else seconds_per_sample
    if per_unit is None:
        return [f"more than {samples_text(largest)}"]
    return [name for name in CALENDAR if NAMED[name] > (largest + 1) * per_unit]


def reason(
    shifts: Floats,
    curve: Sequence[Excess],
    first: int | None,
    tolerance: float,
    unit: str,
    length: int,
    periods: list[Period],
) -> str:
    """The result in one sentence."""

    def text(value: float) -> str:
        return in_words(value) if unit == "seconds" and value else samples_text(value)

    if not curve:
        return (
            "no shift can be examined: the labels are correlated over more than a "
            f"{LEAST_BLOCKS}th of the stream"
        )
    points = f"{100 * tolerance:.3g} points"
    far, last = text(shifts[-1]), curve[-1]
    if first is not None:
        return (
            f"from a shift of {text(shifts[first])} to {far}, past labels predict less than "
            f"{points} better than the most frequent label so far"
        )
    if last.low > tolerance:
        names = " and ".join(dict.fromkeys(p.name for p in periods if p.unit == unit))
        return (
            f"at a shift of {far}, the largest that can be examined, past labels still predict "
            f"{100 * last.excess:.1f} points better than the most frequent label so far"
            + (f"; the labels are periodic ({names})" if names else "")
        )
    more = labels_to_settle(last, tolerance, length)
    return (
        f"at a shift of {far} an advantage of past labels of up to {100 * last.upper:.1f} points is"
        " not excluded"
        + ("" if math.isnan(more) else f"; about {rounded(more):,} more labels would settle it")
    )


def rounded(number: float) -> int:
    """A count with two digits.

    >>> rounded(24_713)
    25000
    """
    return int(float(f"{number:.2g}"))
