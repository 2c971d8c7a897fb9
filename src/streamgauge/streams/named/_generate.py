"""Shared by generated streams: integer random draws, the stay-or-redraw chain, smooth scenes.

All values of a stream are computed from the raw 64-bit words of PCG64 by integer arithmetic (and
IEEE division, which is exact to the last bit on every machine), so that a seed gives the same
stream everywhere: NumPy guarantees these words across versions, but not its distributions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import IntArray, pieces

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

# The darkest and lightest value of a scene: noise (up to 31) and colour cast (up to 24) fit on top
# without ever leaving 0..255, so that no value is clipped and the likelihood is exact.
DARKEST, LIGHTEST = 55, 200
NOISE = 31
CASTS = np.array([-24, 0, 24])
GRID = 4  # a scene is a grid of this many random values a side, interpolated


def words(seed: int, purpose: int) -> np.random.PCG64:
    """A separate generator per purpose, so that one setting does not change the draws of another.
    Purposes start at 100; smaller ones are used by the orders and the held-out split."""
    if seed < 0:
        raise StreamgaugeError(f"A seed is a whole number from 0 on; it is {seed}.")
    return np.random.PCG64(np.random.SeedSequence([seed, purpose]))


def weights(count: int, skew: float) -> IntArray:
    """Long-tailed whole-number weights, 2^20 / (1 + skew · rank): 0 is uniform, 1 is Zipf's law.

    >>> weights(4, 1.0) / weights(4, 1.0)[0]
    array([1.        , 0.5       , 0.33333302, 0.25      ])
    """
    if count < 1:
        raise StreamgaugeError(f"There must be at least one class or user; there are {count}.")
    if not 0 <= skew <= 1000:
        raise StreamgaugeError(f"skew must be between 0 (uniform) and 1000, not {skew}.")
    line = np.floor(2.0**20 / (1.0 + skew * np.arange(count)))
    weight: IntArray = np.maximum(line, 1).astype(np.int64)
    return weight


def shares(weight: IntArray) -> Floats:
    """The probabilities that whole-number weights stand for."""
    return np.asarray(weight / weight.sum(), np.float64)


def draw(raw: Words, weight: IntArray) -> IntArray:
    """One number per word, with the given weights (exact to within total / 2^64)."""
    edges = np.cumsum(weight).astype(np.uint64)
    return np.asarray(np.searchsorted(edges, raw % edges[-1], side="right"))


def draw_unlike_neighbours(raw: Words, weight: IntArray) -> IntArray:
    """Like `draw`, but never the same number twice in a row. Even positions are drawn first; odd
    positions are then drawn without the values of their two neighbours, whose ranges are removed
    from the cumulative weights. So all draws are vectorized. There must be three or more values."""
    edges = np.append(0, np.cumsum(weight))
    drawn = draw(raw, weight)
    odd = np.arange(1, len(raw), 2)
    before = drawn[odd - 1]
    after = np.where(odd + 1 < len(raw), drawn[np.minimum(odd + 1, len(raw) - 1)], before)
    low, high = np.minimum(before, after), np.maximum(before, after)
    cut = np.where(low == high, 0, weight[high])
    room = edges[-1] - weight[low] - cut
    at = (raw[odd] % room.astype(np.uint64)).astype(np.int64)
    at += np.where(at >= edges[low], weight[low], 0)
    at += np.where(at >= edges[high], cut, 0)
    drawn[odd] = np.searchsorted(edges[1:], at, side="right")
    return drawn


def redraws(length: int, stay: float, bits: np.random.PCG64) -> NDArray[np.bool_]:
    """A mask of the positions at which a chain redraws; the first is always set."""
    threshold = np.uint64(int(stay * 2**53))
    fresh = np.empty(length, bool)
    for part in pieces(length):
        fresh[part] = bits.random_raw(part.stop - part.start) >> np.uint64(11) >= threshold
    fresh[0] = True
    return fresh


@dataclass(frozen=True)
class Chain:
    """The truth about labels that stay with probability `stay` and are otherwise drawn afresh from
    `p` (where the same class may come again).

    Two labels that lie `gap` apart agree with probability pi + (1 − pi) stay^gap, where
    pi = sum of p² is the collision probability: either nothing was drawn between them, or the
    later one is independent of the earlier.

    >>> chain = Chain(np.array([0.5, 0.25, 0.25]), stay=0.9)
    >>> chain.collision
    0.375
    >>> round(chain.blind_accuracy(), 4), round(chain.blind_accuracy(step=10), 4)
    (0.9375, 0.7414)
    >>> chain.true_shift(0.005)
    45
    """

    p: Floats
    stay: float

    @property
    def collision(self) -> float:
        """pi: how often two independent draws agree."""
        return float(np.sum(self.p**2))

    @property
    def unlimited_history(self) -> float:
        """What the mode of all labels so far is worth on a long stream: the commonest class."""
        return float(self.p.max())

    def agreement(self, gap: IntArray | int) -> Floats:
        """How often labels that far apart agree."""
        return self.collision + (1 - self.collision) * np.power(self.stay, gap)

    def blind_accuracy(self, shift: int = 0, step: int = 1) -> float:
        """Accuracy of repeating the last label known, `shift` samples ahead (0 is the next). With
        `step` samples revealed at once, labels are known up to the start of the step only, so the
        samples of a step lie shift + 1 ... shift + step behind; the mean over them is taken."""
        return float(self.agreement(shift + 1 + np.arange(step)).mean())

    def best_blind_accuracy(self, shift: int = 0, step: int = 1) -> float:
        """The most that labels alone can give: a bound for every window, and for any other rule.
        Given the last known label l, a class c has probability stay^gap [c = l] + (1 − stay^gap)
        p_c, and earlier labels add nothing. So the best answer is l or the commonest class,
        whichever is more likely."""
        kept = np.power(self.stay, shift + 1 + np.arange(step))[:, None]
        answer = np.maximum(kept + (1 - kept) * self.p, (1 - kept) * self.p.max())
        return float((answer @ self.p).mean())

    def true_shift(self, margin: float) -> int:
        """The smallest shift at which the last label's excess over independence,
        (1 − pi) stay^(shift + 1), lies below the margin."""
        if not margin > 0:
            raise StreamgaugeError(f"The margin must be above 0; it is {margin}.")
        excess = 1 - self.collision
        if self.stay == 0 or excess * self.stay < margin:
            return 0
        near = max(0, math.floor(math.log(margin / excess) / math.log(self.stay)) - 2)
        while excess * self.stay ** (near + 1) >= margin:  # settles what rounding left open
            near += 1
        return near

    def blind_shift(self, margin: float) -> int:
        """The smallest shift from which on no classifier of labels alone beats unlimited history by
        the margin. With uniform classes it is the true shift; with skewed ones it is smaller, since
        the commonest class is then the better answer long before independence."""
        if not margin > 0:
            raise StreamgaugeError(f"The margin must be above 0; it is {margin}.")
        threshold = self.unlimited_history + margin
        far = 1  # the accuracy falls with the shift, so bisection finds it
        while self.best_blind_accuracy(far) >= threshold:
            far *= 2
        return bisect_left(range(far), True, key=lambda s: self.best_blind_accuracy(s) < threshold)


def closed_forms(
    truth: Callable[[Any], Chain],
) -> tuple[Callable[..., float], Callable[[Any], float], Callable[..., int], Callable[..., int]]:
    """What is known of a label process, as functions of a stream's settings: the methods
    `blind_accuracy`, `unlimited_history`, `true_shift` and `blind_shift` of its `Chain`.

    >>> from streamgauge.streams.named import albums, markov
    >>> sticky = markov.Config(classes=4, rho=0.8)
    >>> round(markov.blind_accuracy_truth(sticky, shift=1), 12)  # .25 + .75 · .64
    0.73
    >>> markov.true_shift(markov.Config(classes=2, rho=0.5), margin=0.1)  # .5 · .5^3 < .1
    2
    >>> [round(albums.blind_accuracy_truth(albums.Config(), step=step), 3) for step in (1, 10)]
    [0.89, 0.576]
    >>> albums.true_shift(albums.Config()), albums.blind_shift(albums.Config())
    (38, 14)
    """
    return (
        lambda config, shift=0, step=1: truth(config).blind_accuracy(shift, step),
        lambda config: truth(config).unlimited_history,
        lambda config, margin=0.005: truth(config).true_shift(margin),
        lambda config, margin=0.005: truth(config).blind_shift(margin),
    )


def scenes(bits: np.random.PCG64, count: int, size: int) -> Bytes:
    """Smooth colour patterns `[count, 3, size, size]`: a coarse random grid, interpolated."""
    raw = bits.random_raw(count * 3 * GRID * GRID) % np.uint64(LIGHTEST - DARKEST + 1)
    grid = raw.astype(np.int64).reshape(count, 3, GRID, GRID) + DARKEST
    unit = 2 * size
    left, part = np.divmod((2 * np.arange(size) + 1) * (GRID - 1), unit)
    mix = np.zeros((size, GRID), np.int64)
    mix[np.arange(size), left] = unit - part
    mix[np.arange(size), left + 1] += part
    return (mix @ grid @ mix.T // unit**2).astype(np.uint8)


def noise(bits: np.random.PCG64, count: int, size: int) -> Bytes:
    """Triangular noise from −31 to 31, as bytes modulo 256: the sum of two dice of 32 sides. Its
    probabilities are (32 − |d|) / 1024, the standard deviation 13.1."""
    pixels = 3 * size * size
    per_image = -(-2 * pixels // 8)
    raw = bits.random_raw(count * per_image).astype("<u8").view(np.uint8)
    dice = raw.reshape(count, 8 * per_image)[:, : 2 * pixels] & np.uint8(31)
    total: Bytes = dice[:, :pixels] + dice[:, pixels:] - np.uint8(NOISE)
    return total.reshape(count, 3, size, size)


def smallest_type(classes: int) -> np.dtype[Any]:
    """The smallest integer type for the labels."""
    return np.min_scalar_type(max(classes - 1, 0))
