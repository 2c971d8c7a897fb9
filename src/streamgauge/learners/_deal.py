"""Recall as a shuffled loader gives it: no sample comes back before all had their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from streamgauge.memory import Memory

Ints = NDArray[np.int64]
NONE: Ints = np.empty(0, np.int64)


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
