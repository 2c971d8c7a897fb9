"""The compiled loops of this room. Import this module lazily: numba is slow to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int32]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile on first use, and cache the machine code on disk if the cache is writable."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable cache folder: compile in each process
        return cast(F, numba.njit(nogil=True)(function))


@jit
def count_matches(y: Labels, at: Ints, matches: Labels) -> None:
    """For every lag below matches.size: how many of y[at] equal the label ``lag`` samples later.

    Counts have 32 bits because the loop then is twice as fast.
    """
    for i in range(at.size):
        # With a slice the compiler knows that no index is negative, and vectorises.
        later = y[at[i] : at[i] + matches.size]
        c = later[0]
        for lag in range(matches.size):
            matches[lag] += np.int32(later[lag] == c)


@jit
def count_matches_in_time(
    y: Labels, time: Ints, at: Ints, width: int, most: int, matches: Ints, pairs: Ints
) -> None:
    """Matches by time difference: bin b counts pairs whose times differ by b widths, rounded.

    For each sample at most ``most`` later samples are compared, evenly spaced within reach.
    """
    reach = width * matches.size - width // 2 - 1
    for i in range(at.size):
        t = at[i]
        last = np.searchsorted(time, time[t] + reach, side="right")
        stride = max(1, (last - t) // most)
        for u in range(t + 1, last, stride):
            b = (time[u] - time[t] + width // 2) // width
            if b < matches.size:
                pairs[b] += 1
                matches[b] += y[u] == y[t]
