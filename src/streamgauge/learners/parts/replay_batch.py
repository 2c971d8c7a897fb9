"""What a pass over a batch recalls: drawn on the host, dealt out on the device.

And recall as a shuffled loader gives it: no sample comes back before all had their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.learners.base import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.memory import Memory

Ints = NDArray[np.int64]
NONE: Ints = np.empty(0, np.int64)
Sizes = tuple[tuple[int, ...], ...]  # of the parts that each pass recalls


class Drawn(NamedTuple):
    """What one pass takes from the memory: addresses, in parts that a method tells apart, and
    slots, where it keeps something of its own by slot."""

    parts: tuple[Ints, ...]
    slots: Ints = NONE


class Hand(NamedTuple):
    """The same on the device."""

    parts: tuple[Batch, ...]
    slots: Tensor


def deal_out(x: Tensor, y: Tensor, slots: Tensor, sizes: Sizes) -> Iterator[Hand]:
    """One hand a pass, out of what was read for all passes at once."""
    place = at = 0
    count = len(slots) // len(sizes)  # the same in each pass
    for of_pass in sizes:
        parts = []
        for size in of_pass:
            parts.append(Batch(x[place : place + size], y[place : place + size], NONE))
            place += size
        yield Hand(tuple(parts), slots[at : at + count] if count else slots)
        at += count


def deal(
    left: Ints, n: int, pool: Ints, rng: np.random.Generator, whole: bool = True
) -> tuple[Ints, Ints]:
    """The next n of those left, and the rest. When fewer than n are left (`whole`), or none, the
    pool is shuffled again; a pool of fewer than n gives no whole hand, hence nothing.

    >>> rng = np.random.default_rng(0)
    >>> first, left = deal(NONE, 2, np.arange(5), rng)
    >>> second, left = deal(left, 2, np.arange(5), rng)
    >>> len({*first, *second}), len(left)
    (4, 1)
    """
    if len(left) < (n if whole else 1):
        left = rng.permutation(pool)
    if whole and len(left) < n:
        return NONE, NONE
    return left[:n], left[n:]


def deal_others(left: Ints, n: int, memory: Memory, labels: Ints, least: int) -> tuple[Ints, Ints]:
    """As `deal`, but slots of a memory whose class is not among these labels, the last hand as
    short as it comes; nothing where there are no more than `least` such slots."""
    pool = memory.slots()
    pool = pool[~np.isin(memory.label[pool], labels)]
    if len(pool) <= least:
        return NONE, NONE
    return deal(left, n, pool, memory.rng, whole=False)


def sizes_of_others(pool: int, n: int, least: int, hands: int) -> list[int]:
    """How many `deal_others` gives in each of so many hands where there are `pool` such slots, and
    none are left of before.

    >>> sizes_of_others(25, 10, 10, hands=4)
    [10, 10, 5, 10]
    """
    round_ = [] if pool <= least else [min(n, pool - dealt) for dealt in range(0, pool, max(n, 1))]
    return [round_[hand % len(round_)] if round_ else 0 for hand in range(hands)]
