"""Standard errors and intervals of sums over a stream of correlated samples.

All functions take sums per block of the stream. Bootstrap blocks are runs of consecutive blocks
that overlap and wrap around (circular block bootstrap, Politis and Romano 1992). The bootstrap
variance of a mean has a closed form, so nothing is resampled.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.student import quantile

Floats = NDArray[np.float64]


def long_sums(values: Floats, run: int) -> Floats:
    """Sums over every run of ``run`` consecutive values, wrapping around at the end.

    >>> long_sums(np.array([1.0, 2.0, 3.0]), 2)
    array([3., 5., 4.])
    """
    run = min(run, values.size)
    cumulative = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: run - 1]]))])
    sums: Floats = cumulative[run:] - cumulative[:-run]
    return sums


def influence(top: Floats, bottom: Floats) -> Floats:
    """Contribution of every block to the error of sum(top) / sum(bottom), to first order.

    Subtract the influences of two ratios for the error of their paired difference.

    >>> influence(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    array([ 0.25, -0.25])
    """
    scale = float(bottom.sum())
    ratio = float(top.sum()) / scale
    parts: Floats = (top - ratio * bottom) / scale
    return parts


def run_error(parts: Floats, run: int) -> tuple[float, float]:
    """Standard error of a sum of influences, and the number of independent bootstrap blocks.

    With n blocks in runs of m, the bootstrap variance of the sum is (n / m) times the mean square
    of the run sums, times (n / m) / (n / m − 1) as for a sample variance. NaN with fewer than two
    independent blocks.
    """
    blocks = parts.size / max(1, run)
    if blocks < 2:
        return math.nan, blocks
    variance = blocks * float(np.mean(long_sums(parts, run) ** 2)) * blocks / (blocks - 1)
    return math.sqrt(variance), blocks


def ratio_error(top: Floats, bottom: Floats, run: int) -> tuple[float, float]:
    """Standard error of sum(top) / sum(bottom), and the number of independent bootstrap blocks.

    >>> ratio_error(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4), 1)
    (0.288..., 4.0)
    """
    if bottom.sum() <= 0:
        return math.nan, 0.0
    return run_error(influence(top, bottom), run)


def interval(estimate: float, error: float, blocks: float) -> tuple[float, float]:
    """The 95 % interval of an estimate with this standard error."""
    half = t_quantile(0.975, blocks - 1) * error
    return estimate - half, estimate + half


def t_quantile(chance: float, freedom: float) -> float:
    """Quantile of Student's t above its median; NaN below 1 degree of freedom. Below 3, fractions
    of a degree do not count: the interval stays on the safe side.

    >>> [round(t_quantile(0.975, freedom), 2) for freedom in (1.9, 2, 4, 10, 1e9)]
    [12.71, 4.3, 2.78, 2.23, 1.96]
    """
    if not freedom >= 1:
        return math.nan
    return quantile(2 * chance - 1, freedom if freedom >= 3 else math.floor(freedom))


def correlated_blocks(top: Floats, bottom: Floats, most: int = 50) -> int:
    """How many short blocks a run needs to be much longer than the correlation of the blocks.

    Eight times the integrated correlation time of sum(top) / sum(bottom), and at least a
    ``most``-th of all blocks. The correlation is summed up to where it falls below zero (pairs of
    lags, Geyer 1992), after a moving mean over an eighth of the blocks is subtracted: a slow trend
    alone makes no run longer.
    """
    n = top.size
    shortest = -(-n // most)
    if n < 32:
        return max(1, shortest)
    parts = influence(top, bottom)
    window = n // 8
    padded = np.concatenate([np.zeros(1), np.cumsum(parts)])
    at = np.arange(n)
    low, high = np.maximum(at - window // 2, 0), np.minimum(at + window // 2 + 1, n)
    rest = parts - (padded[high] - padded[low]) / (high - low)
    spectrum = np.abs(np.fft.rfft(rest, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum)[:window]
    if covariance[0] <= 0:
        return max(1, shortest)
    correlation = covariance / covariance[0]
    pairs = correlation[: window // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    time = max(1.0, 2 * float(pairs[: negative[0] if negative.size else pairs.size].sum()) - 1)
    return int(max(shortest, min(n // 4, math.ceil(8 * time) if time > 1.5 else 1)))
