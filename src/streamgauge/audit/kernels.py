"""The compiled loops of the audit. Imported only where they run, because numba takes its time.

Every loop works on a piece of the label stream: ``y[i]`` is label number ``off + i`` of the
stream, and positions (``lo``, ``hi``, ``end``) are numbers in the stream. So a stream longer than
memory goes through piece by piece, and one that fits is simply a single piece. None holds the
interpreter lock, so several run side by side in ordinary threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int32]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

RECENT, SMALLEST, EVALOCL = 0, 1, 2
# A tree entry is count * 2^34 + tie-breaker; 2^34 positions and 2^29 counts fill an int64.
BITS = 34
LOW = (1 << BITS) - 1
PIECE = 4096


def jit(function: F) -> F:
    """Compile on first use, and keep the machine code on disk where there is a place for it."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable place for the cache: compile in each process
        return cast(F, numba.njit(nogil=True)(function))


@jit
def count_backward(
    y: Labels,
    off: int,
    steps: Ints,
    size: int,
    lo: int,
    hi: int,
    end: int,
    block: int,
    windows: Ints,
    shifts: Ints,
    first: Ints,
    ties: int,
    classes: int,
    hits: Ints,
) -> None:
    """Hits of all the (small) windows at once, for predictions at lo <= t < hi.

    Walk back from the last known label and let the window grow: after j labels the best class is
    the mode of the last j. A class's standing is one integer, count first and tie-breaker second,
    so that growing a window costs one addition and one comparison. The standing of an earlier
    walk is smaller than this walk's ``base``, so nothing is ever cleared.

    ``first[i]`` is the first t that counts for shift i; hits are added to ``hits[block, w, i]``.
    """
    largest = windows[-1]
    n_shifts = shifts.size
    unit = largest + 2 if ties == RECENT else classes + 1
    rise = unit * (largest + 2)
    standing = np.zeros(classes, np.int64)
    change = np.zeros((n_shifts, largest + 2), np.int64)
    right = np.zeros(n_shifts, np.int64)
    # Unsigned, so that the compiler need not ask whether an index counts from the end.
    begin = np.zeros(n_shifts, np.uint64)
    finish = np.zeros(n_shifts, np.uint64)
    base = np.int64(0)
    limit = np.int64(4611686018427387904)
    here = lo // block
    edge = (here + 1) * block
    t = lo
    while t < hi:
        if steps.size > 0:
            start = t
            while start > off and steps[start - 1 - off] == steps[t - off]:
                start -= 1
            stop = t + 1
            while stop < hi and steps[stop - off] == steps[t - off]:
                stop += 1
        else:
            start = t if size == 1 else t - t % size
            stop = min(hi, start + size)
        if t >= edge:
            here = t // block
            edge = (here + 1) * block
        stop = min(stop, edge)
        depth = min(largest, start)
        if base > limit:
            standing[:] = 0
            base = np.int64(0)
        base += rise
        best = -1
        top = np.int64(0)
        for i in range(n_shifts):
            right[i] = 0
            begin[i] = max(t, first[i]) + shifts[i] - off
            finish[i] = min(stop, end - shifts[i]) + shifts[i] - off
        for j in range(1, depth + 1):
            c = y[start - j - off]
            v = standing[c]
            if v < base:
                v = base + (largest + 1 - j if ties == RECENT else classes - c)
            v += unit
            standing[c] = v
            if v > top:
                top = v
                if c != best:
                    best = c
                    for i in range(n_shifts):
                        n = 0
                        for u in range(begin[i], finish[i]):
                            n += y[u] == c
                        if n != right[i]:
                            change[i, j] += n - right[i]
                            right[i] = n
        for i in range(n_shifts):
            change[i, depth + 1] -= right[i]
        if stop in (hi, edge):
            for i in range(n_shifts):
                total = np.int64(0)
                w = 0
                for j in range(1, largest + 1):
                    total += change[i, j]
                    if windows[w] == j:
                        hits[here, w, i] += total
                        w += 1
                change[i, :] = 0
        t = stop


@jit
def put(tree: Ints, leaf: int, value: int) -> None:
    """Write one leaf of a tournament tree, and its ancestors as far as anything changes."""
    tree[leaf] = value
    node = leaf >> 1
    while node >= 1:
        winner = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == winner:
            break
        tree[node] = winner
        node >>= 1


@jit
def slide(y: Labels, off: int, p: int, window: int, ties: int, tree: Ints, mode: int) -> int:
    """Let label p - 1 into the window and the label that is too old out of it.

    ``mode`` is the answer so far and the new one is returned, where answers depend on the path or
    the window only grows; otherwise the tree knows.
    """
    new = y[p - 1 - off]
    if window == 0:
        count = tree[new] + 1
        tree[new] = count
        if mode < 0:
            return int(new)
        if count > tree[mode] or (count == tree[mode] and (ties != SMALLEST or new < mode)):
            return int(new)
        return mode
    half = tree.size >> 1
    old = np.int32(-1)
    if p - 1 - window >= 0:
        old = y[p - 1 - window - off]
        left = tree[half + old] - (np.int64(1) << BITS)
        put(tree, half + old, int(left) if left >> BITS > 0 else 0)
    count = (tree[half + new] >> BITS) + 1
    low = np.int64(p - 1) if ties == RECENT else np.int64(LOW - new)
    put(tree, half + new, (count << BITS) + low)
    if ties == EVALOCL:
        if mode < 0 or new == mode or count >= tree[half + mode] >> BITS:
            return int(new)
        if old == mode:
            return int(LOW - (tree[1] & LOW))
    return mode


@jit
def answer(y: Labels, off: int, p: int, window: int, ties: int, tree: Ints, mode: int) -> int:
    """The mode of the window that ends with label p - 1; -1 while there is no full window."""
    if p == 0 or p < window:
        return -1
    if window == 0 or ties == EVALOCL:
        return mode
    if ties == RECENT:
        return int(y[(tree[1] & LOW) - off])
    return int(LOW - (tree[1] & LOW))


@jit
def count_sliding(
    y: Labels,
    off: int,
    steps: Ints,
    size: int,
    lo: int,
    hi: int,
    end: int,
    block: int,
    window: int,
    shifts: Ints,
    first: Ints,
    ties: int,
    tree: Ints,
    memory: Ints,
    hits: Ints,
) -> None:
    """Hits of one window of any length, for predictions at lo <= t < hi.

    A tournament tree over the classes holds their standings; a slide of the window touches two
    leaves. ``memory`` carries [mode, prediction of the current step] from piece to piece;
    ``window`` 0 is the whole history, which needs no tree because it only grows (``tree`` then
    holds plain counts). Hits are added to ``hits[block, i]`` for shift i.
    """
    guess = np.empty(PIECE, np.int32)
    mode, current = int(memory[0]), int(memory[1])
    t = lo
    while t < hi:
        stop = min(hi, t + PIECE, (t // block + 1) * block)
        for p in range(t, stop):
            if p > 0:
                mode = slide(y, off, p, window, ties, tree, mode)
            if steps.size > 0:
                begins = p == 0 or steps[p - off] != steps[p - 1 - off]
            else:
                begins = size == 1 or p % size == 0
            if begins:
                current = answer(y, off, p, window, ties, tree, mode)
            guess[p - t] = current
        for i in range(shifts.size):
            shift = shifts[i]
            a = max(t, first[i])
            b = min(stop, end - shift)
            if b > a:
                # Only slices tell the compiler that no index is negative, so that it can vectorise.
                answers = guess[a - t : b - t]
                targets = y[a + shift - off : b + shift - off]
                n = np.int32(0)
                for u in range(answers.size):
                    n += np.int32(answers[u] == targets[u])
                hits[t // block, i] += n
        t = stop
    memory[0], memory[1] = mode, current


@jit
def all_guesses(y: Labels, window: int, ties: int, tree: Ints, guess: Labels) -> None:
    """What one window answers after every number of known labels: guess[t] knows y[:t]."""
    mode = -1
    for p in range(y.size + 1):
        if p > 0:
            mode = slide(y, 0, p, window, ties, tree, mode)
        guess[p] = answer(y, 0, p, window, ties, tree, mode)


@jit
def count_known(
    y: Labels, guess: Labels, known: Ints, first: int, block: int, hits: Ints, tries: Ints
) -> None:
    """Hits per block of targets j, where sample j is answered by whoever knows y[:known[j]]."""
    for j in range(first, y.size):
        answer_for = guess[known[j]]
        if answer_for >= 0:
            tries[j // block] += 1
            if answer_for == y[j]:
                hits[j // block] += 1


@jit
def count_matches(y: Labels, at: Ints, matches: Labels) -> None:
    """For every lag below matches.size: how many of y[at] equal the label that many later.

    Counts are 32 bits wide because the loop then runs twice as fast.
    """
    for i in range(at.size):
        # Only a slice tells the compiler that no index is negative, so that it can vectorise.
        later = y[at[i] : at[i] + matches.size]
        c = later[0]
        for lag in range(matches.size):
            matches[lag] += np.int32(later[lag] == c)


@jit
def count_matches_in_time(
    y: Labels, time: Ints, at: Ints, width: int, most: int, matches: Ints, pairs: Ints
) -> None:
    """The same by time: bin b holds pairs whose times are b widths apart, rounded.

    At most ``most`` later samples are looked at for each, evenly spread over those in reach.
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


@jit
def guess_without_user(
    y: Labels,
    users: Labels,
    known: Ints,
    targets: Ints,
    window: int,
    most: int,
    classes: int,
    guess: Labels,
) -> None:
    """The mode of the last ``window`` labels of other users; -1 where ``most`` hold none.

    For target number i the labels before known[i] may be used. Ties go to the most recent.
    """
    standing = np.zeros(classes, np.int64)
    unit = window + 2
    base = np.int64(0)
    for i in range(targets.size):
        base += unit * (window + 2)
        own = users[targets[i]]
        best = -1
        top = np.int64(0)
        used = 0
        for back in range(1, most + 1):
            at = known[i] - back
            if at < 0 or used == window:
                break
            if users[at] == own:
                continue
            used += 1
            c = y[at]
            v = standing[c]
            if v < base:
                v = base + window + 1 - used
            v += unit
            standing[c] = v
            if v > top:
                top = v
                best = c
        guess[i] = best
