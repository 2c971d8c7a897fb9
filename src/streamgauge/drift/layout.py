"""Training and test samples of the drift test, with gaps between them.

Photos of one album are similar. If single photos were held out, the model of a period would be
trained on the albums of its own test photos and be more accurate there without any drift. So whole
blocks are held out, with a gap on both sides that is longer than the correlation of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]

LONG_UNITS, SHORT_UNITS = 200, 40  # units of a long stream, and of a short stream
UNITS_PER_PERIOD = 4  # least number of units per period, for the power of the test
LEAST_SAMPLES = 40  # per unit
MOST_PERIODS = 10


@dataclass(frozen=True)
class Layout:
    """Positions in the stream. A unit is train, gap, test, gap, train; a period is many units."""

    periods: int
    gap: int
    train: list[Ints]  # training samples per period, all of equal length
    whole: Ints  # as many training samples, drawn from all periods
    test: Ints
    block: Ints  # per test sample: the number of its unit
    period: Ints  # per unit: its period
    starts: Ints  # first position of each period, and the end of the stream


def lay_out(
    count: int, gap: int, periods: int | None, samples: int, tests: int, seed: int
) -> Layout:
    """Cut a stream of `count` samples; at most `samples` training and `tests` test samples."""
    # Gaps take two of eight parts of a unit if the stream is long enough, else two of four.
    length = max(
        min(8 * gap, max(4 * gap, count // SHORT_UNITS)), count // LONG_UNITS, LEAST_SAMPLES
    )
    units = count // length
    most = min(MOST_PERIODS, units // UNITS_PER_PERIOD)
    number = most if periods is None else periods
    if most < 2:
        raise StreamgaugeError(
            f"{count:,} samples are too few: with a gap of {gap:,} they give {units} test blocks, "
            f"and two periods need {2 * UNITS_PER_PERIOD}."
        )
    if not 2 <= number <= units // 2:
        raise StreamgaugeError(
            f"--periods must be from 2 to {units // 2} for this stream, not {number}."
        )
    edges = np.linspace(0, count, units + 1).astype(np.int64)
    period = np.arange(units) * number // units
    tests_per_unit, blocks_per_unit = [], []
    training: list[list[Ints]] = [[] for _ in range(number)]
    for unit in range(units):
        low, high = int(edges[unit]), int(edges[unit + 1])
        quarter = (high - low) // 4
        middle = (low + high) // 2
        first, last = middle - quarter // 2, middle - quarter // 2 + quarter
        tests_per_unit.append(np.arange(first, last))
        blocks_per_unit.append(np.full(last - first, unit))
        training[period[unit]] += [np.arange(low, first - gap), np.arange(last + gap, high)]
    rng = np.random.default_rng([seed, 7])
    pools = [np.concatenate(parts) for parts in training]
    size = min(samples, min(len(pool) for pool in pools))
    test_samples, test_blocks = np.concatenate(tests_per_unit), np.concatenate(blocks_per_unit)
    if len(test_samples) > tests:
        chosen = np.unique(np.linspace(0, len(test_samples) - 1, tests).round().astype(np.int64))
        test_samples, test_blocks = test_samples[chosen], test_blocks[chosen]
    first_units = np.searchsorted(period, np.arange(number + 1))
    return Layout(
        periods=number,
        gap=gap,
        train=[np.sort(rng.choice(pool, size, replace=False)) for pool in pools],
        whole=np.sort(rng.choice(np.concatenate(pools), size, replace=False)),
        test=test_samples,
        block=test_blocks,
        period=period,
        starts=edges[first_units],
    )


def correlation_length(label: Ints) -> int:
    """Distance in samples beyond which labels are no longer correlated by bursts (albums, hours).

    a(d) is the share of equal labels at distance d, and the base level its mean over distances of
    a hundredth to a fortieth of the stream, so that slow changes, the drift itself, are part of the
    base level. The result is the smallest d from which on a(d) exceeds the base level by less than
    a twentieth of its excess at d = 1, by less than half a point, or by less than two standard
    errors; at most a fortieth of the stream.

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
    base_distances = np.unique(np.linspace(count // 100, most, 12).astype(np.int64).clip(1))
    base = float(np.mean([np.mean(label[d:] == label[:-d]) for d in base_distances]))
    burst = 1 / max(1 - equal[0], 1e-3)
    error = np.sqrt(max(base * (1 - base), 1e-9) * burst / count)
    tolerance = max(0.05 * (equal[0] - base), 0.005, 2 * error)
    above = np.flatnonzero(equal - base >= tolerance)
    if above.size == 0:
        return 0
    return int(grid[above[-1] + 1]) if above[-1] + 1 < len(grid) else most
