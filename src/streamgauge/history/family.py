"""What past labels alone predict, in points: hits of every blind forecaster, the choice among them
on the past, and its excess over the best causal constant (the most frequent label so far)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.intervals import influence, run_error, t_quantile
from streamgauge.history.known import Floats, Ints

PREFIX = 0.2  # share of the stream on which forecasters learn before they are scored
SEGMENTS = 16  # of the scored part; each uses the forecaster that was best before it
LEAST_BLOCKS = 30


@dataclass(frozen=True)
class FamilyHits:
    """Hits per block of the stream of every forecaster, at one shift."""

    names: Sequence[str]
    hits: Ints
    """[blocks, forecasters]; the first forecaster is the most frequent label so far."""
    tries: Ints
    """[blocks]"""
    block: int
    """Samples per block."""
    gap: float
    """Samples between a target and the newest label that was known for it."""
    chosen_before: Ints | None = None
    """The forecasters chosen on other samples, if not on these."""

    @property
    def first(self) -> int:
        """The first scored block."""
        return first_scored(self.tries.size)

    @cached_property
    def chosen(self) -> Ints:
        """The forecaster of each scored block: the one with the most hits before its segment,
        counting only labels that were known there."""
        if self.chosen_before is not None:
            return self.chosen_before
        blocks = self.tries.size
        before = np.concatenate([np.zeros((1, self.hits.shape[1]), np.int64), self.hits.cumsum(0)])
        edges = np.unique(np.linspace(self.first, blocks, SEGMENTS + 1).astype(int))
        past = [max(0, a - math.ceil(self.gap / self.block)) for a in edges[:-1]]
        return np.repeat([int(np.argmax(before[p])) for p in past], np.diff(edges))

    @property
    def name(self) -> str:
        """The forecaster chosen last."""
        return self.names[int(self.chosen[-1])]

    @property
    def scored(self) -> tuple[Floats, Floats, Floats]:
        """Hits of the chosen forecasters, of the constant, and tries, per scored block."""
        hits = self.hits[self.first :].astype(np.float64)
        picked = np.take_along_axis(hits, self.chosen[:, None], axis=1)[:, 0]
        return picked, hits[:, 0], self.tries[self.first :].astype(np.float64)

    def excess(self, burst: int) -> Excess:
        """The excess over the constant, with bounds from blocks longer than the gap, than a burst
        and than the correlation of the differences (but a thirtieth of the stream at most)."""
        picked, constant, tries = self.scored
        total = float(tries.sum())
        if total == 0:
            return NOT_EXAMINED
        least = math.ceil(max(self.gap + 1, burst) / self.block)
        most = max(1, tries.size // LEAST_BLOCKS)
        differences = self.hits[self.first :] - constant[:, None]
        # Forecasters of equal hits are measured once.
        differences = np.unique(differences[:, 1:], axis=1)
        parts = np.stack([influence(d, tries) for d in [picked - constant, *differences.T]], axis=1)
        correlated = correlation_length(parts)
        runs = np.maximum(np.minimum(correlated, most), least)
        measured = [run_error(p, int(run)) for p, run in zip(parts.T, runs, strict=True)]
        values = np.concatenate([[(picked - constant).sum()], differences.sum(axis=0)]) / total
        upper = values + [t_quantile(0.95, b - 1) * e for e, b in measured]
        high = values + [t_quantile(0.975, b - 1) * e for e, b in measured]
        return Excess(
            accuracy=float(picked.sum()) / total,
            constant=float(constant.sum()) / total,
            excess=float(values[0]),
            error=float(measured[0][0]),
            blocks=tries.size / max(least, float(np.median(correlated))),
            low=float(2 * values[0] - high[0]),
            high=float(high.max()),
            upper=float(upper.max()),
        )


@dataclass(frozen=True)
class RightBits:
    """One bit per forecaster and sample, set where the forecaster is right."""

    bits: NDArray[np.uint64]
    names: Sequence[str]
    block: int
    gap: float
    offset: int = 0
    """Sample j counts in block (j - offset) // block; samples before the offset do not count."""

    def hits(
        self, scored: NDArray[np.bool_] | None = None, chosen: Ints | None = None
    ) -> FamilyHits:
        """Hits per block; only of the ``scored`` samples, and of the ``chosen``, if given."""
        from streamgauge.history.kernels import count_bits

        blocks = -(-self.bits.size // self.block)
        hits, tries = np.zeros((blocks, len(self.names)), np.int64), np.zeros(blocks, np.int64)
        some = np.zeros(0, np.bool_) if scored is None else scored[self.offset :]
        count_bits(self.bits[self.offset :], some, 0, self.block, hits, tries)
        return FamilyHits(self.names, hits, tries, self.block, self.gap, chosen)

    def right(self, family: FamilyHits) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Per sample: whether the chosen forecaster is right, and whether the sample is scored."""
        block = (np.arange(self.bits.size) - self.offset) // self.block - family.first
        forecaster = family.chosen[np.maximum(block, 0)].astype(np.uint64)
        return (self.bits >> forecaster) & np.uint64(1) == 1, block >= 0


class Excess(NamedTuple):
    """Excess of the blind family over the causal constant at one shift."""

    accuracy: float
    """Of the forecaster chosen on the past."""
    constant: float
    excess: float
    error: float
    blocks: float
    """Independent blocks: longer than the gap, a burst, and the median correlation length."""
    low: float
    """Lower end of the 95 % interval of the excess."""
    high: float
    """Upper end of the 95 % interval, the largest of any forecaster."""
    upper: float
    """One-sided 95 % upper bound, the largest of any forecaster: also one that the choice missed
    has less excess than this."""


_NAN = math.nan
NOT_EXAMINED = Excess(_NAN, _NAN, _NAN, _NAN, 0.0, _NAN, _NAN, _NAN)


def first_scored(blocks: int) -> int:
    """The first block behind the prefix."""
    return min(blocks - 1, max(1, round(PREFIX * blocks)))


def correlation_length(parts: Floats) -> Ints:
    """Per column: twice the first lag at which the autocorrelation is not significant.

    The correlation of periodic values returns later, but over whole periods their sum is constant.
    """
    length = parts.shape[0]
    centred = parts - parts.mean(axis=0)
    spectrum = np.fft.rfft(centred, 2 * length, axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:length]
    limit = 2 * math.sqrt(math.log10(max(length, 10)) / length)  # Politis and White 2004
    small = products[1:] <= limit * products[0]
    lag = np.where(small.any(axis=0), small.argmax(axis=0), length)
    return np.asarray(np.maximum(1, 2 * lag), np.int64)


def best_before(curve: Sequence[Excess], tolerance: float) -> int | None:
    """Index of the first entry from which on every upper bound is below the tolerance."""
    above = [i for i, point in enumerate(curve) if not point.upper < tolerance]
    first = above[-1] + 1 if above else 0
    return first if first < len(curve) else None


def crossing(shifts: Floats, excess: Floats, errors: Floats, tolerance: float) -> float:
    """The shift at which a decreasing curve, fitted to the excess (isotonic regression), falls
    below the tolerance; 0 if it begins below, infinity if it stays above."""
    weights = 1 / np.maximum(errors, 1e-4) ** 2
    levels: list[tuple[float, float, int]] = []  # mean, weight, number of points
    for value, weight in zip(excess, weights, strict=True):
        level = (float(value), float(weight), 1)
        while levels and levels[-1][0] <= level[0]:
            mean, total, number = levels.pop()
            weight_sum = total + level[1]
            level = ((mean * total + level[0] * level[1]) / weight_sum, weight_sum,
                     number + level[2])  # fmt: skip
        levels.append(level)
    fitted = np.repeat([mean for mean, _, _ in levels], [number for _, _, number in levels])
    below = np.flatnonzero(fitted < tolerance)
    if below.size == 0:
        return math.inf
    last = int(below[0])
    if last == 0:
        return float(shifts[0])
    a, b = fitted[last - 1], fitted[last]
    low, high = math.log1p(shifts[last - 1]), math.log1p(shifts[last])
    return math.expm1(low + (high - low) * (a - tolerance) / (a - b))


def shift_interval(
    shifts: Floats, curve: Sequence[Excess], tolerance: float
) -> tuple[float, float]:
    """95 % interval for the shift at which the excess falls below the tolerance, by inversion of
    the pointwise intervals: the low end is the last shift up to which every lower end is above the
    tolerance, the high end the first from which on every upper end is below it."""
    low = high = 0.0
    for shift, point in zip(shifts, curve, strict=True):
        if not point.low > tolerance:
            break
        low = float(shift)
    above = [i for i, point in enumerate(curve) if not point.high < tolerance]
    if above:
        high = float(shifts[above[-1] + 1]) if above[-1] + 1 < len(curve) else math.inf
    return low, high
