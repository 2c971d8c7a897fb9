"""Does the label come back? The match curve of a label stream, and the periods in it.

The match curve r(lag) is the chance that two labels that many samples apart are equal. A period P
shows as r higher at the multiples of P than half-way between them. Periods of periods (a day, and
a week of days) are found by looking at the multiples alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.durations import period_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Period(NamedTuple):
    """A period of the labels."""

    length: float
    """In samples, or in seconds where it was found in time."""
    unit: str
    """``samples`` or ``seconds``."""
    gain: float
    """How much more often labels match a whole period apart than half a period off."""
    name: str
    """In words: ``day``, ``week``, ``48 samples``."""


def match_curve(labels: NDArray[np.int32], lags: int, samples: int = 40_000) -> Floats:
    """r(lag) for lag = 0..lags, from evenly spread samples (all of them in a short stream).

    >>> match_curve(np.array([0, 1, 0, 1, 0, 1], np.int32), 2)
    array([1., 0., 1.])
    """
    from streamgauge.audit import kernels

    lags = min(lags, labels.size - 1)
    starts = labels.size - lags
    at = np.unique(np.linspace(0, starts - 1, min(samples, starts)).astype(np.int64))
    matches = np.zeros(lags + 1, np.int32)
    kernels.count_matches(np.ascontiguousarray(labels, dtype=np.int32), at, matches)
    return matches / at.size


def match_curve_in_time(
    labels: NDArray[np.int32], times: Ints, width: int, bins: int, samples: int = 20_000
) -> Floats:
    """r by time apart, in bins of ``width`` seconds; NaN where no two samples are so far apart."""
    from streamgauge.audit import kernels

    at = np.unique(np.linspace(0, labels.size - 1, min(samples, labels.size)).astype(np.int64))
    matches, pairs = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    kernels.count_matches_in_time(labels, times, at, width, 4 * bins, matches, pairs)
    curve = np.full(bins, np.nan)
    # A bin with few pairs says nothing.
    enough = pairs >= 50
    curve[enough] = matches[enough] / pairs[enough]
    return curve


def burst_length(curve: Floats) -> int:
    """Lag at which matching has fallen to a tenth of what it was at lag 1, above its floor."""
    if curve.size < 3:
        return 1
    floor = float(np.nanmedian(curve[curve.size // 2 :]))
    height = curve[1] - floor
    if height <= 0:
        return 1
    below = np.flatnonzero(curve[1:] - floor <= 0.1 * height)
    return int(below[0]) + 1 if below.size else curve.size


def find_period(curve: Floats, least: float = 0.01) -> tuple[int, float] | None:
    """The shortest clear period in a curve over lags 0.., with its gain, or None.

    The gain of P is the mean over m of r(mP) − (r(mP − P/2) + r(mP + P/2)) / 2. It counts when it
    is at least ``least`` and stands far out of the gains of all other P, each scaled by the
    root of the number of multiples it averages over.

    >>> find_period(np.tile([1.0, 0.5, 0.5, 0.5, 0.5, 0.5], 100))
    (6, 0.5)
    """
    lags = curve.size - 1
    top = (2 * lags) // 5
    if top < 4:
        return None
    gains = np.full(top + 1, np.nan)
    terms = np.ones(top + 1)
    for period in range(2, top + 1):
        at = np.arange(period, lags + 1 - (period - period // 2), period)
        if at.size < 2:
            continue
        between = (curve[at - period // 2] + curve[at + period - period // 2]) / 2
        gain = curve[at] - between
        gain = gain[~np.isnan(gain)]
        if gain.size >= 2:
            gains[period], terms[period] = gain.mean(), gain.size
    if np.all(np.isnan(gains)):
        return None
    scores = gains * np.sqrt(terms)
    middle = np.nanmedian(scores)
    spread = 1.4826 * np.nanmedian(np.abs(scores - middle)) + 1e-12
    clear = (gains >= least) & (scores - middle >= 8 * spread)
    if not clear.any():
        return None
    strongest = np.nanmax(gains[clear])
    best = int(np.flatnonzero(clear & (gains >= 0.7 * strongest))[0])
    # The neighbours of a long period score nearly as well: take the top of the hill.
    around = np.arange(best, min(top, best + max(1, best // 10)) + 1)
    best = int(around[np.nanargmax(gains[around])])
    return best, float(gains[best])


def nested_periods(curve: Floats) -> list[tuple[int, float]]:
    """A period, the period among its multiples, and so on, in lags.

    Only the part of the curve behind the first burst is used, where a period can be told from
    plain correlation.
    """
    found: list[tuple[int, float]] = []
    unit = 1
    current = curve
    while len(found) < 4:
        hit = find_period(current)
        if hit is None:
            return found
        unit *= hit[0]
        found.append((unit, hit[1]))
        # A period need not be a whole number of lags, so take the best lag next to a multiple.
        at = np.arange(0, curve.size - 1, unit)
        near = np.stack([curve[np.maximum(at - 1, 0)], curve[at], curve[at + 1]])
        near[:, 0] = curve[0]
        current = np.where(np.isnan(near).all(axis=0), np.nan, np.nanmax(near, axis=0, initial=0))
        if np.isnan(current).all():
            return found
    return found


def find_periods(
    labels: NDArray[np.int32], times: Ints | None, every: float | None, most: int
) -> tuple[list[Period], Floats]:
    """Periods of a label stream, by samples or (irregular times) by the clock, and its curve.

    ``every`` is the time between two samples where it is known to be constant; ``most`` the
    largest lag worth looking at.
    """
    lags = max(2, min(most, 1 << 16))
    curve = match_curve(labels, lags)
    gaps = np.diff(times) if times is not None and times.size > 1 else np.zeros(0)
    if every is None and gaps.size:
        usual = float(np.median(gaps))
        if usual > 0 and np.mean(np.abs(gaps - usual) <= 0.01 * usual) > 0.99:
            every = usual
    if every is not None or times is None or not gaps.size:
        # Only look behind the burst, or its decay would hide a weak period.
        return [
            Period(
                float(length),
                "samples",
                gain,
                f"{length} samples" if every is None else period_name(length * every),
            )
            for length, gain in nested_periods(curve)
        ], curve
    found: list[Period] = []
    span = int(times[-1] - times[0])
    for width, bins in ((900, 200), (3600, 24 * 7 * 6), (86400, 3 * 366)):
        bins = min(bins, span // width)
        if bins < 12:
            continue
        by_time = match_curve_in_time(labels, times, width, bins)
        for length, gain in nested_periods(by_time):
            duration = float(length * width)
            name = period_name(duration)
            if all(name != p.name and abs(duration / p.length - 1) > 0.1 for p in found):
                found.append(Period(duration, "seconds", gain, name))
    return found, curve
