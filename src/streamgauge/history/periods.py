"""The match curve of a label stream, and the periods in it.

The match curve r(lag) is the probability that two labels ``lag`` samples apart are equal. With a
period P, r is higher at the multiples of P than half-way between them. Nested periods (a day, and a
week of days) are found among the multiples alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.durations import period_name
from streamgauge.history.known import Floats, Ints, evenly_spaced


class Period(NamedTuple):
    """A period of the labels."""

    length: float
    """In samples or in seconds, see ``unit``."""
    unit: str
    """``samples`` or ``seconds``."""
    gain: float
    """Match rate at whole periods minus the match rate half a period away."""
    name: str
    """Name: ``day``, ``week``, ``48 samples``."""


def match_curve(labels: NDArray[np.int32], lags: int, samples: int = 40_000) -> Floats:
    """r(lag) for lag = 0..lags, from evenly spaced samples (all samples of a short stream).

    >>> match_curve(np.array([0, 1, 0, 1, 0, 1], np.int32), 2)
    array([1., 0., 1.])
    """
    from streamgauge.history import kernels

    lags = min(lags, labels.size - 1)
    start_index = evenly_spaced(0, labels.size - lags, samples)
    matches = np.zeros(lags + 1, np.int32)
    kernels.count_matches(np.ascontiguousarray(labels, dtype=np.int32), start_index, matches)
    return matches / start_index.size


def match_curve_in_time(
    labels: NDArray[np.int32], times: Ints, width: int, bins: int, samples: int = 20_000
) -> Floats:
    """r by time difference, in bins of ``width`` seconds; NaN in bins with few pairs of samples."""
    from streamgauge.history import kernels

    start_index = evenly_spaced(0, labels.size, samples)
    matches, pairs = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    kernels.count_matches_in_time(labels, times, start_index, width, 4 * bins, matches, pairs)
    curve = np.full(bins, np.nan)
    enough = pairs >= 50
    curve[enough] = matches[enough] / pairs[enough]
    return curve


def burst_length(curve: Floats) -> int:
    """Lag at which the match rate above its floor has fallen to a tenth of its value at lag 1."""
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

    The gain of P is the mean over m of r(mP) − (r(mP − P/2) + r(mP + P/2)) / 2. A period is clear
    if its gain is at least ``least`` and an outlier among the gains of all P, each multiplied by
    the square root of its number of multiples.

    >>> find_period(np.tile([1.0, 0.5, 0.5, 0.5, 0.5, 0.5], 100))
    (6, 0.5)
    """
    lags = curve.size - 1
    longest = (2 * lags) // 5
    if longest < 4:
        return None
    gains = np.full(longest + 1, np.nan)
    terms = np.ones(longest + 1)
    for period in range(2, longest + 1):
        multiples = np.arange(period, lags + 1 - (period - period // 2), period)
        if multiples.size < 2:
            continue
        halfway = (curve[multiples - period // 2] + curve[multiples + period - period // 2]) / 2
        gain = curve[multiples] - halfway
        gain = gain[~np.isnan(gain)]
        if gain.size >= 2:
            gains[period], terms[period] = gain.mean(), gain.size
    if np.all(np.isnan(gains)):
        return None
    scores = gains * np.sqrt(terms)
    median = np.nanmedian(scores)
    deviation = 1.4826 * np.nanmedian(np.abs(scores - median)) + 1e-12
    clear = (gains >= least) & (scores - median >= 8 * deviation)
    if not clear.any():
        return None
    strongest = np.nanmax(gains[clear])
    best = int(np.flatnonzero(clear & (gains >= 0.7 * strongest))[0])
    # Lags next to a long period have similar gains: take the largest.
    neighbours = np.arange(best, min(longest, best + max(1, best // 10)) + 1)
    best = int(neighbours[np.nanargmax(gains[neighbours])])
    return best, float(gains[best])


def nested_periods(curve: Floats) -> list[tuple[int, float]]:
    """A period, the period among its multiples, and so on, in lags."""
    periods: list[tuple[int, float]] = []
    unit = 1
    subcurve = curve
    while len(periods) < 4:
        period = find_period(subcurve)
        if period is None:
            return periods
        unit *= period[0]
        periods.append((unit, period[1]))
        # A period need not be a whole number of lags: take the best lag next to each multiple.
        multiples = np.arange(0, curve.size - 1, unit)
        nearby = np.stack(
            [curve[np.maximum(multiples - 1, 0)], curve[multiples], curve[multiples + 1]]
        )
        nearby[:, 0] = curve[0]
        subcurve = np.where(
            np.isnan(nearby).all(axis=0), np.nan, np.nanmax(nearby, axis=0, initial=0)
        )
        if np.isnan(subcurve).all():
            return periods
    return periods


def repeating_lags(labels: NDArray[np.int32], most: int = 4) -> list[int]:
    """Up to ``most`` lags at which labels repeat more often than half a lag before and after.

    r(lag) is the match rate of the newest 8,192 pairs, for lags up to four fifths of the labels (at
    most 16,384, and with 48 pairs or more); missing labels are -1 and match nothing. A lag is taken
    if r(lag) is at least that of its neighbours and above the mean of r(lag / 2) and r(3 lag / 2)
    by 1.2 + sqrt(2 ln L) standard errors for L lags (larger ones where labels repeat): first the
    shortest whose r is within 3 standard errors of the largest, then others in the order of r; a
    multiple of one taken only if its r is larger by 3 standard errors.

    >>> repeating_lags(np.arange(300, dtype=np.int32) % 7)
    [7]
    """
    from streamgauge.history import kernels

    lags = min(16_384, labels.size - max(48, labels.size // 5))
    if lags < 6:
        return []
    missing = np.arange(-1, -1 - labels.size, -1, dtype=np.int32)
    matches = np.zeros(lags + 1, np.int64)
    kernels.count_newest_matches(np.where(labels < 0, missing, labels), 8_192, matches)
    pairs = np.minimum(8_192, labels.size - np.arange(lags + 1)).astype(np.float64)
    curve = matches / pairs
    # Matches are correlated as long as labels repeat: r above its median, squared.
    floor = float(np.median(curve[1:]))
    excess = (curve[1:] - floor) / max(1 - floor, 1e-9)
    run = excess[: int(np.argmax(np.append(excess, 0) < 0.05))]
    lag = np.arange(2, lags)
    after = lag + lag // 2
    before = curve[lag - lag // 2]
    halfway = np.where(after <= lags, (before + curve[np.minimum(after, lags)]) / 2, before)
    rate = curve[lag]
    spread = np.maximum(rate * (1 - rate), halfway * (1 - halfway)) + 1 / pairs[lag]
    error = np.sqrt(spread * (1 + 2 * float(np.sum(run**2))) / pairs[lag])
    clear = (rate >= curve[lag - 1]) & (rate >= curve[lag + 1])
    clear &= rate - halfway > (1.2 + np.sqrt(2 * np.log(lags))) * np.sqrt(1.5) * error
    taken: list[int] = []
    while clear.any() and len(taken) < most:
        best = np.flatnonzero(clear)[np.argmax(rate[clear])]
        near = clear & (rate >= rate[best] - 3 * error[best])
        first = int(np.flatnonzero(near)[0])
        period = int(lag[first])
        taken.append(period)
        off = np.abs(lag - np.round(lag / period) * period)
        clear &= (off > np.maximum(1, period // 50)) | (rate > rate[first] + 3 * error[first])
        clear[first] = False
    return taken


def find_periods(
    labels: NDArray[np.int32], times: Ints | None, every: float | None, most: int
) -> tuple[list[Period], Floats]:
    """Periods of a label stream, in samples or (irregular times) in seconds, and its match curve.

    ``every`` is the time between two samples if it is constant; ``most`` the largest lag.
    """
    lags = max(2, min(most, 1 << 16))
    curve = match_curve(labels, lags)
    gaps = np.diff(times) if times is not None and times.size > 1 else np.zeros(0)
    if every is None and gaps.size:
        median_gap = float(np.median(gaps))
        if median_gap > 0 and np.mean(np.abs(gaps - median_gap) <= 0.01 * median_gap) > 0.99:
            every = median_gap
    if every is not None or times is None or not gaps.size:
        return [
            Period(
                float(length),
                "samples",
                gain,
                f"{length} samples" if every is None else period_name(length * every),
            )
            for length, gain in nested_periods(curve)
        ], curve
    periods: list[Period] = []
    span = int(times[-1] - times[0])
    for width, bins in ((900, 200), (3600, 24 * 7 * 6), (86400, 3 * 366)):
        bins = min(bins, span // width)
        if bins < 12:
            continue
        time_curve = match_curve_in_time(labels, times, width, bins)
        for length, gain in nested_periods(time_curve):
            duration = float(length * width)
            name = period_name(duration)
            if all(name != p.name and abs(duration / p.length - 1) > 0.1 for p in periods):
                periods.append(Period(duration, "seconds", gain, name))
    return periods, curve
