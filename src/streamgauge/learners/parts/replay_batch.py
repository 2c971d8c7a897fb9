"""What the passes over a batch recall: drawn on the host, split by pass on the device.

Also recall in the order of a shuffled data loader: no sample comes again before all others came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.memory import Memory
from streamgauge.versions import renamed

Ints = NDArray[np.int64]
NONE: Ints = np.empty(0, np.int64)
Sizes = tuple[tuple[int, ...], ...]  # of the parts that each pass recalls

__getattr__ = renamed(
    __name__,
    {
        "Drawn": "ReplayDraw",
        "Hand": "ReplayBatch",
        "deal": "next_shuffled",
        "deal_out": "split_passes",
    },
)


class ReplayDraw(NamedTuple):
    """What one pass takes from the memory: addresses, in parts that a method tells apart, and
    slots, for a method that stores values of its own by slot."""

    parts: tuple[Ints, ...]
    slots: Ints = NONE


class ReplayBatch(NamedTuple):
    """The samples of a `ReplayDraw` on the device."""

    parts: tuple[Batch, ...]
    slots: Tensor


def split_passes(x: Tensor, y: Tensor, slots: Tensor, sizes: Sizes) -> Iterator[ReplayBatch]:
    """One `ReplayBatch` per pass, from the samples that were read for all passes at once."""
    sample = slot = 0
    count = len(slots) // len(sizes)  # the same in each pass
    for pass_sizes in sizes:
        parts = []
        for size in pass_sizes:
            parts.append(Batch(x[sample : sample + size], y[sample : sample + size], NONE))
            sample += size
        yield ReplayBatch(tuple(parts), slots[slot : slot + count] if count else slots)
        slot += count


def next_shuffled(
    left: Ints, n: int, pool: Ints, rng: np.random.Generator, whole: bool = True
) -> tuple[Ints, Ints]:
    """The next n of those left, and the rest. When fewer than n are left (`whole`), or none, the
    pool is shuffled again; with `whole`, a pool of fewer than n gives nothing.

    >>> rng = np.random.default_rng(0)
    >>> first, left = next_shuffled(NONE, 2, np.arange(5), rng)
    >>> second, left = next_shuffled(left, 2, np.arange(5), rng)
    >>> len({*first, *second}), len(left)
    (4, 1)
    """
    if len(left) < (n if whole else 1):
        left = rng.permutation(pool)
    if whole and len(left) < n:
        return NONE, NONE
    return left[:n], left[n:]


def next_of_other_classes(
    left: Ints, n: int, memory: Memory, labels: Ints, least: int
) -> tuple[Ints, Ints]:
    """As `next_shuffled`, but only slots whose class is not among these labels, and the last draw
    may have fewer than n; nothing where there are no more than `least` such slots."""
    pool = memory.slots()
    pool = pool[~np.isin(memory.label[pool], labels)]
    if len(pool) <= least:
        return NONE, NONE
    return next_shuffled(left, n, pool, memory.rng, whole=False)


def draw_sizes_of_other_classes(pool: int, n: int, least: int, draws: int) -> list[int]:
    """How many slots `next_of_other_classes` gives in each of so many draws, the first from a fresh
    shuffle of `pool` slots.

    >>> draw_sizes_of_other_classes(25, 10, 10, draws=4)
    [10, 10, 5, 10]
    """
    sizes = [] if pool <= least else [min(n, pool - drawn) for drawn in range(0, pool, max(n, 1))]
    return [sizes[draw % len(sizes)] if sizes else 0 for draw in range(draws)]
