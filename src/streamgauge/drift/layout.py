"""Who learns from what and is tested where, so that neighbours in time cannot be taken for a shift.

Photos of one album look alike. If single photos were held out, a model of one period would know the
albums of its own test photos and do better there even if nothing ever changed. So whole stretches
are held out, with a gap on both sides that is longer than the correlation of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]

UNITS, FEW = 200, 40  # stretches of a long stream, and of a short one
PER_PERIOD = 4  # stretches that a period needs, for a test to be worth much
LEAST = 40  # samples in a stretch
MOST_PERIODS = 10


@dataclass(frozen=True)
class Layout:
    """Positions in the stream. A unit is train, gap, test, gap, train; some units are a period."""

    periods: int
    gap: int
    train: list[Ints]  # of each period; all of one length
    whole: Ints  # as many, drawn from all periods
    test: Ints
    block: Ints  # of each test sample: the number of its unit
    period: Ints  # of each unit
    starts: Ints  # of each period, and the end


def lay_out(
    count: int, gap: int, periods: int | None, samples: int, tests: int, seed: int
) -> Layout:
    """Cut a stream of `count` samples; at most `samples` to learn from, `tests` to test on."""
    # Gaps take two of eight parts where the stream is long enough for it, and else two of four.
    length = max(min(8 * gap, max(4 * gap, count // FEW)), count // UNITS, LEAST)
    units = count // length
    most = min(MOST_PERIODS, units // PER_PERIOD)
    wanted = most if periods is None else periods
    if most < 2:
        raise StreamgaugeError(
            f"{count:,} samples are too few: with a gap of {gap:,} they give {units} stretches to "
            f"test on, and two periods need {2 * PER_PERIOD}."
        )
    if not 2 <= wanted <= units // 2:
        raise StreamgaugeError(
            f"--periods is a number from 2 to {units // 2} for this stream; it is {wanted}."
        )
    edges = np.linspace(0, count, units + 1).astype(np.int64)
    period = np.arange(units) * wanted // units
    test, block = [], []
    learn: list[list[Ints]] = [[] for _ in range(wanted)]
    for unit in range(units):
        low, high = int(edges[unit]), int(edges[unit + 1])
        quarter = (high - low) // 4
        middle = (low + high) // 2
        first, last = middle - quarter // 2, middle - quarter // 2 + quarter
        test.append(np.arange(first, last))
        block.append(np.full(last - first, unit))
        learn[period[unit]] += [np.arange(low, first - gap), np.arange(last + gap, high)]
    rng = np.random.default_rng([seed, 7])
    pools = [np.concatenate(parts) for parts in learn]
    size = min(samples, min(len(pool) for pool in pools))
    tested, of_block = np.concatenate(test), np.concatenate(block)
    if len(tested) > tests:
        chosen = np.unique(np.linspace(0, len(tested) - 1, tests).round().astype(np.int64))
        tested, of_block = tested[chosen], of_block[chosen]
    first_units = np.searchsorted(period, np.arange(wanted + 1))
    return Layout(
        periods=wanted,
        gap=gap,
        train=[np.sort(rng.choice(pool, size, replace=False)) for pool in pools],
        whole=np.sort(rng.choice(np.concatenate(pools), size, replace=False)),
        test=tested,
        block=of_block,
        period=period,
        starts=edges[first_units],
    )


def correlation_length(label: Ints) -> int:
    """How far apart labels must be for bursts (albums, hours, moods) to have passed.

    a(d) is how often labels at distance d are equal; far means distances around a hundredth of the
    stream, so that what changes slowly, the shift that is looked for, counts as far already. The
    answer is the smallest d from which on a exceeds its far level by less than a twentieth of what
    it does at d = 1, by less than half a point, or by less than two standard errors; at most a
    fortieth of the stream.

    >>> drawn = np.random.default_rng(0).integers(0, 50, 2000)
    >>> correlation_length(drawn), correlation_length(np.repeat(drawn, 10))  # albums of ten
    (0, 11)
    """
    count = len(label)
    most = count // 40
    if most < 1:
        return 0
    grid = np.unique(np.floor(2 ** np.arange(0, np.log2(most) + 0.25, 0.25))).astype(np.int64)
    grid = np.unique(np.append(grid[grid <= most], most))
    equal = np.array([np.mean(label[d:] == label[:-d]) for d in grid])
    around = np.unique(np.linspace(count // 100, most, 12).astype(np.int64).clip(1))
    far = float(np.mean([np.mean(label[d:] == label[:-d]) for d in around]))
    burst = 1 / max(1 - equal[0], 1e-3)
    error = np.sqrt(max(far * (1 - far), 1e-9) * burst / count)
    allowed = max(0.05 * (equal[0] - far), 0.005, 2 * error)
    above = np.flatnonzero(equal - far >= allowed)
    if above.size == 0:
        return 0
    return int(grid[above[-1] + 1]) if above[-1] + 1 < len(grid) else most
