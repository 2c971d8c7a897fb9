"""The compiled loops of the audit. Import this module lazily: numba is slow to import.

Every loop works on a piece of the label stream: ``y[i]`` is label number ``off + i`` of the
stream, and positions (``lo``, ``hi``, ``end``) are indices in the stream, so a stream longer than
memory is counted piece by piece. All loops release the interpreter lock, so that several run in
parallel threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.kernels import Ints, Labels, jit

Bits = NDArray[np.uint64]

RECENT, SMALLEST, EVALOCL = 0, 1, 2
# A tree entry is count * 2^34 + tie-breaker; 2^34 positions and 2^29 counts fill an int64.
BITS = 34
LOW = (1 << BITS) - 1
PIECE = 4096


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
    """Hits of all small windows in one walk, for predictions at lo <= t < hi.

    Walk back from the last known label: after j labels the best class is the mode of the last j.
    The score of a class is one integer, count first and tie-breaker second, so that each label
    costs one addition and one comparison. Scores of earlier walks are smaller than the ``base`` of
    this walk, so they need not be cleared.

    ``first[i]`` is the first t counted for shift i; hits are added to ``hits[block, w, i]``.
    """
    largest = windows[-1]
    n_shifts = shifts.size
    unit = largest + 2 if ties == RECENT else classes + 1
    base_step = unit * (largest + 2)
    score = np.zeros(classes, np.int64)
    change = np.zeros((n_shifts, largest + 2), np.int64)
    correct = np.zeros(n_shifts, np.int64)
    # Unsigned, so that the compiler need not handle negative indices.
    begin = np.zeros(n_shifts, np.uint64)
    until = np.zeros(n_shifts, np.uint64)
    base = np.int64(0)
    limit = np.int64(4611686018427387904)
    block_index = lo // block
    edge = (block_index + 1) * block
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
            block_index = t // block
            edge = (block_index + 1) * block
        stop = min(stop, edge)
        depth = min(largest, start)
        if base > limit:
            score[:] = 0
            base = np.int64(0)
        base += base_step
        best = -1
        top = np.int64(0)
        for i in range(n_shifts):
            correct[i] = 0
            begin[i] = max(t, first[i]) + shifts[i] - off
            until[i] = min(stop, end - shifts[i]) + shifts[i] - off
        for j in range(1, depth + 1):
            c = y[start - j - off]
            v = score[c]
            if v < base:
                v = base + (largest + 1 - j if ties == RECENT else classes - c)
            v += unit
            score[c] = v
            if v > top:
                top = v
                if c != best:
                    best = c
                    for i in range(n_shifts):
                        n = 0
                        for u in range(begin[i], until[i]):
                            n += y[u] == c
                        if n != correct[i]:
                            change[i, j] += n - correct[i]
                            correct[i] = n
        for i in range(n_shifts):
            change[i, depth + 1] -= correct[i]
        if stop in (hi, edge):
            for i in range(n_shifts):
                total = np.int64(0)
                w = 0
                for j in range(1, largest + 1):
                    total += change[i, j]
                    if windows[w] == j:
                        hits[block_index, w, i] += total
                        w += 1
                change[i, :] = 0
        t = stop


@jit
def put(tree: Ints, leaf: int, value: int) -> None:
    """Write one leaf of a tournament tree, and those of its ancestors that change."""
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
    """Add label p - 1 to the window and remove the oldest label.

    Takes and returns the mode for the tie rule ``evalocl`` and for the unlimited window; in all
    other cases the mode is read from the tree.
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
    """The mode of the window that ends with label p - 1; -1 before the first full window."""
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

    A tournament tree holds the scores of the classes; sliding the window changes two leaves.
    ``memory`` carries [mode, prediction of the current step] from piece to piece. ``window`` 0 is
    the whole history, for which ``tree`` holds plain counts. Hits are added to ``hits[block, i]``
    for shift i.
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
                # With slices the compiler knows that no index is negative, and vectorises.
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
    """Predictions of one window after every number of known labels: guess[t] uses y[:t]."""
    mode = -1
    for p in range(y.size + 1):
        if p > 0:
            mode = slide(y, 0, p, window, ties, tree, mode)
        guess[p] = answer(y, 0, p, window, ties, tree, mode)


@jit
def set_bits(
    y: Labels, guess: Labels, otherwise: Labels, known: Ints, bit: int, right: Bits
) -> None:
    """Set a bit of every sample j that ``guess``, or ``otherwise`` where it is -1, predicts from
    the first known[j] labels."""
    flag = np.uint64(1) << np.uint64(bit)
    for j in range(y.size):
        prediction = guess[known[j]]
        if prediction < 0:
            prediction = otherwise[known[j]]
        if prediction == y[j]:
            right[j] |= flag


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
    """The mode of the last ``window`` labels of other users among the last ``most`` labels, or -1.

    Target number i uses the labels before known[i]. Ties go to the most recent class.
    """
    score = np.zeros(classes, np.int64)
    unit = window + 2
    base = np.int64(0)
    for i in range(targets.size):
        base += unit * (window + 2)
        user = users[targets[i]]
        best = -1
        top = np.int64(0)
        used = 0
        for back in range(1, most + 1):
            at = known[i] - back
            if at < 0 or used == window:
                break
            if users[at] == user:
                continue
            used += 1
            c = y[at]
            v = score[c]
            if v < base:
                v = base + window + 1 - used
            v += unit
            score[c] = v
            if v > top:
                top = v
                best = c
        guess[i] = best
