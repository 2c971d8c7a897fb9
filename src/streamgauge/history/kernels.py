"""The compiled loops of this room. Import this module lazily: numba is slow to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils as untyped_tools
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

cgutils: Any = untyped_tools
Labels = NDArray[np.int32]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F, **options: Any) -> F:
    """Compile on first use, and cache the machine code on disk if the cache is writable."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True, **options)(function))
    except RuntimeError:  # no writable cache folder: compile in each process
        return cast(F, numba.njit(nogil=True, **options)(function))


def lean(function: F) -> F:
    """Compile without counting references to arrays: the function must not allocate any. Sums may
    be reordered. Always inlined: passing a tuple of many arrays takes longer than most functions.
    """
    return jit(
        function,
        _nrt=False,
        forceinline=True,
        fastmath={"reassoc", "nsz"},
        error_model="numpy",
    )


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
def count_newest_matches(y: Labels, most: int, matches: Ints) -> None:
    """For every lag from 1 below matches.size: matches in the newest ``most`` pairs at that lag."""
    for lag in range(1, matches.size):
        later = y[max(lag, y.size - most) :]
        earlier = y[max(0, y.size - most - lag) : y.size - lag]
        total = np.int32(0)
        for i in range(later.size):
            total += np.int32(later[i] == earlier[i])
        matches[lag] = total


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


# The forecasters, one state machine. `advance` computes the probabilities of a sample's label from
# what is known, and keeps its contexts in a row; `learn` updates weights and counts with that row
# when the label becomes known.

Floats = NDArray[np.float64]
Marks = NDArray[np.uint64]

# State.numbers
KNOWN, DISTINCT, NEWEST, SECOND, THIRD, OLDEST, LATEST, LAST_SAMPLE, MAJORITY = range(9)
CONTEXTS, PAIRS, PERIODS, ANSWERED, LEAST, LEAST_CLASSES, NEWEST_GROUP = range(9, 16)
# State.context: key, how often seen, distinct labels, most frequent label, its count, and the label
# of its newest sample (in the lower 32 bits, below the sample)
KEY, SEEN, LABELS, TOP, BEST, LAST = range(6)
# Columns of a row of State.whole (then keys and rows of contexts, candidate labels) and State.real
LABEL, SAMPLE, SITUATION, FOUND, NEWEST_THEN, WHOLE = range(6)
DELAY, MIXED, TOP_Q, TOP_HIT, ANSWER_Q, ANSWER_HIT, RATIO, SURE, PLACEBO_Q, REAL = range(10)
# Candidates with a learnt hit rate
STAY, STAY_LATELY, STAY_CLASS, STAY_CLASS_LATELY, NEXT, NEXT_TWO, RARE, FEWEST = range(8)
CANDIDATES = 8
ORDERS = 3
FORGET = 0.5 ** (1 / 50)  # of hit rates "lately"
HEAVY = 0.02  # least weight of a forecaster whose top class can be the mixture's
SHARE = 2e-4
LARGE = 1e200
SPREAD = -7046029254386353131  # an odd multiplier for hashes


class State(NamedTuple):
    """Everything the forecasters remember, as plain arrays."""

    numbers: Ints
    counts: Floats
    base: Floats
    """d/2C and 1/n, see :func:`base_probability`."""
    decayed: Floats
    """[classes, half-lives], in units of the increment."""
    decay: Floats
    """[5, half-lives]: growth of the increment per label, increment, sum of the counts,
    1 / (sum + increment), and the largest count."""
    decay_top: Ints
    list: Ints
    """[2, classes]: the class seen just after, and just before, each class (by last occurrence)."""
    rate: Floats
    """[situations, candidates, 2]: hits and tries of each candidate label."""
    class_rate: Floats
    """[situations, classes, 4]: hits and tries of the newest label per class, the same lately."""
    context: Ints
    """Hash table of contexts, one per row."""
    pair: Ints
    """Hash table [size, 2] of the key of a context and a label, and its count."""
    periods: Ints
    recent: Labels
    """Known labels by sample index modulo its size; -1: unknown."""
    weights: Floats
    """[situations, forecasters]"""
    beta: Floats
    beta_weights: Floats
    """[3, situations, betas + others]: of the calibration, the answers and the placebo."""
    whole: Ints
    real: Floats
    """Rows of samples whose label is not yet known. Top classes alone need no ``real``, and of
    ``whole`` only the columns up to the keys of contexts."""


def _fetch_row(typing_context: Any, table: Any, row: Any) -> Any:
    """Load a row of a table into the cache ahead of its use, without waiting for it."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, values[0])
        index = [values[1], context.get_constant(types.intp, 0)]
        pointer = cgutils.get_item_pointer(context, builder, kind, array, index, wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature_of = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, signature_of, "llvm.prefetch.p0")
        options = [number(1), number(3), number(1)]  # to write, keep in cache, data
        builder.call(call, [builder.bitcast(pointer, byte), *options])
        return context.get_dummy_value()

    return types.void(table, types.intp), code


fetch_row: Any = intrinsic(_fetch_row)


@lean
def first_row(table: Ints, key: int) -> int:
    """Row at which the search for a key begins."""
    h = key * SPREAD
    return int((h ^ (h >> 29)) & (table.shape[0] - 1))


@lean
def find(table: Ints, key: int) -> int:
    """Row of a key in a hash table (linear probing; 0 is empty), or of the first empty row."""
    mask = table.shape[0] - 1
    at = first_row(table, key)
    while table[at, 0] != key and table[at, 0] != 0:
        at = (at + 1) & mask
    return int(at)


@lean
def find_context(s: State, key: int) -> int:
    at = find(s.context, key)
    return int(at) if s.context[at, KEY] == key else -1


@lean
def pair_key(context: int, y: int) -> int:
    key = (context ^ (context >> 31)) * SPREAD + y
    return key if key != 0 else 1


@lean
def base_probability(s: State, y: int) -> float:
    """((c - 1/2)+ + d/2C) / n, where d of C classes were seen in n labels, this one c times."""
    c = s.counts[y]
    return float(((c - 0.5 if c > 0 else 0.0) + s.base[0]) * s.base[1])


@lean
def context_probability(s: State, context: int, y: int, lower: float) -> float:
    """(c - 1/2 + lower * d/2) / n after a context seen n times with d labels; else the lower."""
    if context < 0:
        return lower
    n = s.context[context, SEEN]
    if n == 0:
        return lower
    c = 0
    if s.context[context, TOP] == y:
        c = s.context[context, BEST]
    elif s.context[context, LABELS] > 1:
        c = s.pair[find(s.pair, pair_key(s.context[context, KEY], y)), 1]
    return float(((c - 0.5 if c > 0 else 0.0) + 0.5 * s.context[context, LABELS] * lower) / n)


@lean
def probabilities(s: State, row: Ints, rates: Floats, contexts: int, y: int, p: Floats) -> None:
    """The probability of y under every forecaster, in the order of :func:`forecasters.names`."""
    base = base_probability(s, y)
    p[0] = base
    halves = s.decay.shape[1]
    lower = base
    for h in range(halves - 1, -1, -1):
        lower = (s.decayed[y, h] + s.decay[1, h] * lower) * s.decay[3, h]
        p[1 + h] = lower
    at = 1 + halves
    periods = s.numbers[PERIODS]
    fixed = contexts - s.periods.size
    candidates = s.rate.shape[1] - s.periods.size
    ids = WHOLE + contexts
    labels = ids + contexts
    lower = base
    for x in range(fixed):
        if x >= ORDERS:
            lower = base
        lower = context_probability(s, row[ids + x], y, lower)
        p[at + x] = lower
    at += fixed
    for k in range(candidates):
        m = row[labels + k]
        hit = y == m or (k == FEWEST and s.counts[y] == s.numbers[LEAST])
        p[at + k] = base if m < 0 else (rates[k, 0] if hit else rates[k, 1] * base)
    at += candidates
    for i in range(periods):
        p[at + 2 * i] = context_probability(s, row[ids + fixed + i], y, base)
        m = row[labels + candidates + i]
        k = candidates + i
        p[at + 2 * i + 1] = base if m < 0 else (rates[k, 0] if y == m else rates[k, 1] * base)


@lean
def key_of(kind: int, a: int, b: int, c: int) -> int:
    key = ((kind * SPREAD + a + 1) * SPREAD + b + 1) * SPREAD + c + 1
    return key if key != 0 else 1


@lean
def label_back(s: State, sample: int, period: int) -> int:
    """The newest known label a whole number of periods before a sample, or -1."""
    newest = s.numbers[LAST_SAMPLE]
    at = sample - period * max(1, -((newest - sample) // period))
    oldest = max(0, max(sample, newest + 1) - s.recent.size)
    for _ in range(8):
        if newest < 0 or at < oldest:
            return -1
        label = s.recent[at & (s.recent.size - 1)]
        if label >= 0:
            return int(label)
        at -= period
    return -1


@lean
def situation(s: State, unknown: int, row: Ints, contexts: int, last: int) -> int:
    """Which weights and rates a sample uses: by the number of earlier samples whose label is
    unknown (0, 1 to 3, 4 to 15, ...), if that varies; and by its user (album, without users):
    never seen, that of the newest label, or another."""
    bins = int(s.weights.shape[0] // (3 if last else 1))
    b = 0
    while unknown > 0 and b < bins - 1:
        unknown //= 4
        b += 1
    if last == 0:
        return b
    key = row[WHOLE + ORDERS]
    if key == s.numbers[NEWEST_GROUP]:
        return b + bins
    return b if row[WHOLE + contexts + ORDERS] < 0 else b + 2 * bins


@lean
def set_contexts(
    s: State, sample: int, unknown: int, groups: Ints, last: int, contexts: int, row: Ints
) -> None:
    """Write the contexts and candidate labels that a sample has when it is answered."""
    newest, second, third = s.numbers[NEWEST], s.numbers[SECOND], s.numbers[THIRD]
    ids = WHOLE + contexts
    labels = ids + contexts
    fixed = contexts - s.periods.size
    row[SAMPLE] = sample
    row[NEWEST_THEN] = newest
    row[FOUND] = s.numbers[PERIODS]
    for g in range(groups.size):
        row[WHOLE + ORDERS + g] = key_of(g, groups[g], -1, -1)
    if last:
        row[ids + ORDERS] = find_context(s, row[WHOLE + ORDERS])
    now = situation(s, unknown, row, contexts, last)
    row[SITUATION] = now
    row[WHOLE] = key_of(32 + 4 * now, newest, -1, -1)
    row[WHOLE + 1] = key_of(33 + 4 * now, newest, second, -1)
    row[WHOLE + 2] = key_of(34 + 4 * now, newest, second, third)
    for x in range(ORDERS):
        fetch_row(s.pair, first_row(s.pair, pair_key(row[WHOLE + x], row[LABEL])))
    for i in range(s.numbers[PERIODS]):
        row[WHOLE + fixed + i] = key_of(16, s.periods[i], sample % s.periods[i], -1)
    for x in range(fixed + s.numbers[PERIODS]):
        row[ids + x] = find_context(s, row[WHOLE + x])
    for k in range(STAY, NEXT):
        row[labels + k] = newest
    for x in range(2):
        c = row[ids + x]
        row[labels + NEXT + x] = s.context[c, TOP] if c >= 0 else -1
    row[labels + RARE] = row[labels + FEWEST] = oldest = s.numbers[OLDEST]
    every = s.numbers[LEAST_CLASSES] == s.numbers[DISTINCT]
    if every or s.counts[oldest] > s.numbers[LEAST]:
        row[labels + FEWEST] = -1
    for g in range(last):
        c = row[ids + ORDERS + g]
        row[labels + CANDIDATES + g] = s.context[c, LAST] & 0xFFFFFFFF if c >= 0 else -1
    for i in range(s.numbers[PERIODS]):
        row[labels + CANDIDATES + last + i] = label_back(s, sample, int(s.periods[i]))


@lean
def set_rates(s: State, row: Ints, labels: int, first: int, stop: int, rates: Floats) -> None:
    """Per candidate m: its probability r = (hits + 1/2) / (tries + 1), and (1 - r) / (1 - base(m)),
    the factor on the frequencies of all other classes. FEWEST shares r among several classes."""
    rate, class_rate = s.rate[row[SITUATION]], s.class_rate[row[SITUATION]]
    for k in range(first, stop):
        m = row[labels + k]
        if m < 0:
            continue
        if k == STAY_CLASS:
            hits, tries = class_rate[m, 0], class_rate[m, 1]
        elif k == STAY_CLASS_LATELY:
            hits, tries = class_rate[m, 2], class_rate[m, 3]
        else:
            hits, tries = rate[k, 0], rate[k, 1]
        r = (hits + 0.5) / (tries + 1)
        several = s.numbers[LEAST_CLASSES] if k == FEWEST else 1
        rates[k, 0] = r / several
        rates[k, 1] = (1 - r) / (1 - several * base_probability(s, m))


@lean
def tops(s: State, row: Ints, rates: Floats, contexts: int, top: Ints) -> None:
    """The top class of every forecaster; -1 before the first label."""
    majority = s.numbers[MAJORITY]
    halves = s.decay.shape[1]
    fixed = contexts - s.periods.size
    candidates = s.rate.shape[1] - s.periods.size
    ids = WHOLE + contexts
    labels = ids + contexts
    top[0] = majority
    for h in range(halves):
        top[1 + h] = s.decay_top[h]
    at = 1 + halves
    lower = majority
    for x in range(fixed):
        if x >= ORDERS:
            lower = majority
        c = row[ids + x]
        if c >= 0:
            lower = s.context[c, TOP]
        top[at + x] = lower
    at += fixed
    for k in range(candidates):
        m = row[labels + k]
        top[at + k] = m if m >= 0 else majority
    if row[NEWEST_THEN] != majority:
        likely = base_probability(s, majority)
        for k in range(STAY_CLASS, NEXT):
            if rates[k, 1] * likely > rates[k, 0]:
                top[at + k] = majority
    at += candidates
    for i in range(s.numbers[PERIODS]):
        c = row[ids + fixed + i]
        m = row[labels + candidates + i]
        top[at + 2 * i] = s.context[c, TOP] if c >= 0 else majority
        top[at + 2 * i + 1] = m if m >= 0 else majority


@lean
def mix(weights: Floats, p: Floats, experts: int) -> float:
    total = 0.0
    for e in range(experts):
        total += weights[e] * p[e]
    return total


@lean
def factors(s: State, q: float, hit: bool, ratio: float, sure: float, f: Floats) -> None:
    """p(label) / q(label) under every beta, and under the model's own probabilities if given."""
    n = s.beta.size
    for b in range(n):
        f[b] = (s.beta[b] if hit else 1.0) / (1 + (s.beta[b] - 1) * q)
    if f.size > n:
        f[n] = f[n + 1] = f[n + 2] = f[n + 3] = 1.0
        if ratio >= 0:
            f[n] = ratio
            f[n + 1] = 0.9 * ratio + 0.1
            f[n + 2] = 0.5 * ratio + 0.5
        if sure >= 0 and q < 1:
            f[n + 3] = sure / q if hit else (1 - sure) / (1 - q)


@lean
def dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@lean
def reweigh(w: Floats, p: Floats, power: float) -> None:
    """Bayes with likelihoods to a power, then a share of SHARE * power toward equal weights."""
    total = 0.0
    if power != 1:
        for e in range(w.size):
            p[e] = p[e] ** power
    for e in range(w.size):
        w[e] *= p[e]
        total += w[e]
    share = SHARE * power
    scale, add = (1 - share) / total, share / w.size
    for e in range(w.size):
        w[e] = w[e] * scale + add


@lean
def contexts_in(s: State) -> int:
    """Contexts per sample, those of periods not yet found included."""
    return int(s.weights.shape[1] - 1 - s.decay.shape[1] - s.rate.shape[1])


@lean
def experts_in(s: State) -> int:
    """Forecasters at work."""
    return int(s.weights.shape[1] - 2 * (s.periods.size - s.numbers[PERIODS]))


@lean
def mixture_top(
    s: State,
    row: Ints,
    rates: Floats,
    contexts: int,
    experts: int,
    top: Ints,
    p: Floats,
    y: int,
    q_y: float,
    a: int,
    q_a: float,
) -> tuple[int, float]:
    """The most probable class of the mixture and its probability; those of y and a are known.

    Searched among the top classes of the forecasters whose weight is at least HEAVY.
    """
    weights = s.weights[row[SITUATION]]
    best, best_q = -1, 0.0
    for e in range(experts):
        c = top[e]
        if c < 0 or c == best or weights[e] < HEAVY:
            continue
        seen = False
        for earlier in range(e):
            seen |= top[earlier] == c and weights[earlier] >= HEAVY
        if seen:
            continue
        if c == y:
            q = q_y
        elif c == a:
            q = q_a
        else:
            probabilities(s, row, rates, contexts, c, p)
            q = mix(weights, p, experts)
        if q > best_q:
            best, best_q = c, q
    return best, best_q


@lean
def calibration(s: State, now: int, q: float) -> tuple[float, float]:
    """The factors by which the probability q of the mixture's top class, and those of all other
    classes, are multiplied: odds times beta, mixed over beta."""
    rest = 0.0
    for b in range(s.beta.size):
        rest += s.beta_weights[0, now, b] / (1 + (s.beta[b] - 1) * q)
    return (1 - (1 - q) * rest) / q if q > 0 else 1.0, rest


@lean
def count_least(s: State, y: int) -> None:
    """The smallest count of a seen class, and how many classes have it, after y was counted."""
    if s.counts[y] == 1:
        s.numbers[LEAST_CLASSES] = s.numbers[LEAST_CLASSES] + 1 if s.numbers[LEAST] == 1 else 1
        s.numbers[LEAST] = 1
    elif s.counts[y] == s.numbers[LEAST] + 1:
        s.numbers[LEAST_CLASSES] -= 1
        if s.numbers[LEAST_CLASSES] == 0:
            s.numbers[LEAST] += 1
            for c in range(s.counts.size):
                s.numbers[LEAST_CLASSES] += s.counts[c] == s.numbers[LEAST]


@lean
def order_by_recency(numbers: Ints, after: Ints, before: Ints, y: int, seen: bool) -> None:
    """Move y to the end of the list of classes by last occurrence."""
    if y == numbers[LATEST]:
        return
    if seen:
        before[after[y]] = before[y]
        if before[y] >= 0:
            after[before[y]] = after[y]
        else:
            numbers[OLDEST] = after[y]
    after[y], before[y] = -1, numbers[LATEST]
    if numbers[LATEST] >= 0:
        after[numbers[LATEST]] = y
    else:
        numbers[OLDEST] = y
    numbers[LATEST] = y


@lean
def count_decayed(decay: Floats, counts: Floats, top: Ints, y: int) -> None:
    """Count y (its row of counts is given) at every half-life."""
    for h in range(counts.size):
        increment = decay[1, h] * decay[0, h]
        count = counts[h] + increment
        decay[1, h], counts[h] = increment, count
        better = count >= decay[4, h]
        decay[4, h] = count if better else decay[4, h]
        top[h] = y if better else top[h]


@lean
def rescale(decay: Floats, decayed: Floats) -> None:
    """Keep increments small; they grow by at most 4^64 between two calls."""
    for h in range(decay.shape[1]):
        if decay[1, h] > LARGE:
            scale = 1 / decay[1, h]
            decay[1, h] = 1.0
            decay[2, h] *= scale
            decay[4, h] *= scale
            for c in range(decayed.shape[0]):
                decayed[c, h] *= scale


@lean
def see(s: State, y: int) -> None:
    """Count a label: frequencies, half-lives and the list of classes by last occurrence."""
    numbers = s.numbers
    order_by_recency(numbers, s.list[0], s.list[1], y, s.counts[y] > 0)
    numbers[DISTINCT] += s.counts[y] == 0
    s.counts[y] += 1
    numbers[KNOWN] += 1
    count_least(s, y)
    # Strictly: among equals, the most recent one would be no constant.
    if numbers[MAJORITY] < 0 or s.counts[y] > s.counts[numbers[MAJORITY]]:
        numbers[MAJORITY] = y
    s.base[0] = 0.5 * numbers[DISTINCT] / s.counts.size
    s.base[1] = 1 / numbers[KNOWN]
    count_decayed(s.decay, s.decayed[y], s.decay_top, y)
    if numbers[KNOWN] % 64 == 0:
        rescale(s.decay, s.decayed)


@lean
def count_context(s: State, key: int, sample: int, y: int, fill: float) -> None:
    """Count a label after a context. A table that is ``fill`` full takes no new contexts or labels:
    a fifth for the last three labels, three tenths for the last two, then half for all."""
    context = s.context[find(s.context, key)]
    if context[KEY] != key:
        if s.numbers[CONTEXTS] >= fill * s.context.shape[0]:
            return
        context[KEY] = key
        s.numbers[CONTEXTS] += 1
    context[LAST] = max(context[LAST], (sample << 32) | y)
    pair = s.pair[find(s.pair, pair_key(key, y))]
    if pair[0] == 0:
        if s.numbers[PAIRS] >= fill * s.pair.shape[0]:
            return
        pair[0] = pair_key(key, y)
        s.numbers[PAIRS] += 1
        context[LABELS] += 1
    pair[1] += 1
    context[SEEN] += 1
    if pair[1] >= context[BEST]:
        context[BEST], context[TOP] = pair[1], y


@lean
def count_stays(class_rate: Floats, hit: bool) -> None:
    """Hits and tries of one class, and the same lately."""
    class_rate[0] += hit
    class_rate[1] += 1
    class_rate[2] = class_rate[2] * FORGET + hit
    class_rate[3] = class_rate[3] * FORGET + 1


@lean
def count_candidates(s: State, row: Ints, labels: int) -> None:
    rate, y = s.rate[row[SITUATION]], row[LABEL]
    for k in range(s.rate.shape[1] - s.periods.size + row[FOUND]):
        m = row[labels + k]
        if m < 0:
            continue
        fade = FORGET if k == STAY_LATELY else 1.0
        rate[k, 0] = rate[k, 0] * fade + (y == m)
        rate[k, 1] = rate[k, 1] * fade + 1


@lean
def learn(s: State, at: int, contexts: int, f: Floats) -> None:
    """The label of the sample in a row becomes known: weights, then counts."""
    row = s.whole[at]
    learn_weights(s, row, s.real[at], f)
    count_candidates(s, row, WHOLE + 2 * contexts)
    learn_counts(s, row, contexts)
    for h in range(s.decay.shape[1]):
        s.decay[2, h] += s.decay[1, h]
        s.decay[3, h] = 1 / (s.decay[2, h] + s.decay[1, h])


@lean
def learn_weights(s: State, row: Ints, real: Floats, f: Floats) -> None:
    situation = row[SITUATION]
    experts = s.weights.shape[1] - 2 * (s.periods.size - row[FOUND])
    power = 1 / (real[DELAY] + 1)
    now = experts_in(s)
    for e in range(experts, now):  # forecasters that did not exist when the sample was answered
        real[REAL + e] = real[MIXED]
    reweigh(s.weights[situation, :now], real[REAL : REAL + now], power)
    calibrated = f[: s.beta.size]
    factors(s, real[TOP_Q], real[TOP_HIT] > 0, -1.0, -1.0, calibrated)
    reweigh(s.beta_weights[0, situation, : s.beta.size], calibrated, power)
    factors(s, real[PLACEBO_Q], real[TOP_HIT] > 0, -1.0, -1.0, calibrated)
    reweigh(s.beta_weights[2, situation, : s.beta.size], calibrated, power)
    if real[ANSWER_Q] >= 0:
        factors(s, real[ANSWER_Q], real[ANSWER_HIT] > 0, real[RATIO], real[SURE], f)
        reweigh(s.beta_weights[1, situation], f, power)


@lean
def learn_counts(s: State, row: Ints, contexts: int) -> None:
    """Count a label in the contexts that its sample had, and in all frequencies."""
    y, sample = row[LABEL], row[SAMPLE]
    kind, newest, second = 32 + 4 * row[SITUATION], s.numbers[NEWEST], s.numbers[SECOND]
    fetch_row(s.context, first_row(s.context, key_of(kind + 1, y, newest, -1)))
    fetch_row(s.context, first_row(s.context, key_of(kind + 2, y, newest, second)))
    for x in range(contexts - s.periods.size + row[FOUND]):
        fill = 0.3 if x == 1 else 0.2 if x == 2 else 0.5
        count_context(s, row[WHOLE + x], sample, y, fill)
    m = row[NEWEST_THEN]
    if m >= 0:
        count_stays(s.class_rate[row[SITUATION], m], y == m)
    see(s, y)
    s.recent[sample & (s.recent.size - 1)] = y
    numbers = s.numbers
    if sample > numbers[LAST_SAMPLE]:  # a label that comes after those of later samples is not new
        numbers[LAST_SAMPLE] = sample
        numbers[NEWEST_GROUP] = row[WHOLE + ORDERS]
        numbers[THIRD], numbers[SECOND], numbers[NEWEST] = numbers[SECOND], numbers[NEWEST], y


@lean
def set_tops(
    s: State,
    sample: int,
    unknown: int,
    groups: Ints,
    last: int,
    row: Ints,
    rates: Floats,
    top: Ints,
) -> None:
    """Contexts and candidates of a sample, hit rates, and the top class of every forecaster."""
    contexts = contexts_in(s)
    set_contexts(s, sample, unknown, groups, last, contexts, row)
    used = s.rate.shape[1] - s.periods.size + s.numbers[PERIODS]
    set_rates(s, row, WHOLE + 2 * contexts, 0, used, rates)
    tops(s, row, rates, contexts, top)


@jit
def ask(s: State, ahead: int, groups: Ints, last: int, q: Floats, experts: Floats) -> int:
    """The probability of each class for the next sample, under the mixture (``q``) and under each
    forecaster; returns the mixture's top class."""
    contexts = contexts_in(s)
    row = np.zeros(s.whole.shape[1], np.int64)
    rates = np.zeros((s.rate.shape[1], 2))
    top = np.empty(s.weights.shape[1], np.int64)
    sample = s.numbers[ANSWERED] + ahead
    set_tops(s, sample, ahead, groups, last, row, rates, top)
    best, best_q = mixture_top(
        s, row, rates, contexts, experts_in(s), top, experts[0], -1, 0.0, -1, 0.0
    )
    up, rest = calibration(s, row[SITUATION], best_q)
    for y in range(q.size):
        probabilities(s, row, rates, contexts, y, experts[y])
        q[y] = mix(s.weights[row[SITUATION]], experts[y], experts_in(s)) * (
            up if y == best else rest
        )
    return best


@lean
def advance_with(
    s: State,
    until: int,
    y: Labels,
    answers: Labels,
    logp: Floats,
    sure: Floats,
    groups: Ints,
    last: int,
    first: int,
    known: Ints,
    turn: Ints,
    order: Ints,
    slot: Ints,
    start: int,
    block: int,
    bits: Floats,
    weights: Floats,
    hits: Ints,
    tries: Ints,
    right: Marks,
    f: Floats,
    p: Floats,
    top: Ints,
    rates: Floats,
) -> None:
    contexts = contexts_in(s)
    mask = s.whole.shape[0] - 1
    plain = f[: s.beta.size]
    for t in range(known.size + 1):
        goal = known[t] if t < known.size else until
        while s.numbers[KNOWN] < goal:
            i = s.numbers[KNOWN]
            if order.size:
                i = order[i]
            learn(s, slot[i] if slot.size else i & mask, contexts, f)
        if t == known.size:
            break
        j = turn[t] if turn.size else first + t
        v = j if turn.size else t
        at = slot[j] if slot.size else j & mask
        row, real = s.whole[at], s.real[at]
        experts = experts_in(s)
        s.recent[j & (s.recent.size - 1)] = -1
        s.numbers[ANSWERED] += 1
        unknown = j - known[t]
        label = y[v]
        row[LABEL] = label
        set_tops(s, j, unknown, groups[v], last, row, rates, top)
        now = row[SITUATION]
        w = s.weights[now]
        a = int(answers[v]) if answers.size else -1
        for x in range(ORDERS):
            fetch_row(s.pair, first_row(s.pair, pair_key(row[WHOLE + x], a)))
        probabilities(s, row, rates, contexts, label, real[REAL:])
        mixed = mix(w, real[REAL:], experts)
        q_a = 0.0
        if a == label:
            q_a = mixed
        elif 0 <= a < s.counts.size:
            probabilities(s, row, rates, contexts, a, p)
            q_a = mix(w, p, experts)
        best, best_q = mixture_top(s, row, rates, contexts, experts, top, p, label, mixed, a, q_a)
        up, rest = calibration(s, now, best_q)
        q = mixed * (up if label == best else rest)
        real[DELAY] = unknown
        real[MIXED] = mixed
        real[TOP_Q] = best_q
        real[TOP_HIT] = label == best
        real[PLACEBO_Q] = best_q * up
        factors(s, real[PLACEBO_Q], label == best, -1.0, -1.0, plain)
        placebo = dot(plain, s.beta_weights[2, now, : s.beta.size])
        real[ANSWER_Q] = -1.0
        added = 1.0
        if answers.size:
            real[ANSWER_Q] = q_a * (up if a == best else rest)
            real[ANSWER_HIT] = a == label
            real[RATIO] = np.exp(logp[v]) / q if logp.size and logp[v] == logp[v] else -1.0
            real[SURE] = sure[v] if sure.size and sure[v] == sure[v] else -1.0
            factors(s, real[ANSWER_Q], a == label, real[RATIO], real[SURE], f)
            added = dot(f, s.beta_weights[1, now])
        few = WHOLE + 2 * contexts + FEWEST
        if row[few] >= 0 and s.counts[label] == s.numbers[LEAST]:
            row[few] = label  # a hit
        if right.size:
            right[v] = marks_of(top, experts, label) | np.uint64(best == label) << np.uint64(63)
        if j < start or (answers.size and answers[v] < -1):
            continue
        b = (j - start) // block
        tries[b] += 1
        for e in range(experts):
            hits[b, e] += top[e] == label
        hits[b, s.weights.shape[1]] += best == label
        bits[b, 0] -= np.log2(real[REAL])
        bits[b, 1] -= np.log2(q)
        bits[b, 2] += np.log2(added)
        bits[b, 3] += np.log2(placebo)
        for e in range(experts):
            weights[b, e] += w[e]


@jit
def advance(
    s: State,
    until: int,
    y: Labels,
    answers: Labels,
    logp: Floats,
    sure: Floats,
    groups: Ints,
    last: int,
    first: int,
    known: Ints,
    turn: Ints,
    order: Ints,
    slot: Ints,
    start: int,
    block: int,
    bits: Floats,
    weights: Floats,
    hits: Ints,
    tries: Ints,
    right: Marks,
) -> None:
    """Answer samples first .. first + known.size - 1 (through ``turn``, if given) in turn, each
    with the labels known to it; then learn until ``until`` labels are known.

    y, answers, logp, sure and groups begin with sample ``first`` (without ``turn``). Sums per block
    of samples, from sample ``start`` on, are added to ``bits`` (base, history, added, placebo) and
    ``weights``, and hits of the top classes to ``hits`` (the last column is the mixture). ``right``
    gets the same per sample, as bits. Samples with the answer -2 are not scored.
    """
    f = np.empty(s.beta_weights.shape[2])
    p = np.empty(s.weights.shape[1])
    top = np.empty(s.weights.shape[1], np.int64)
    rates = np.zeros((s.rate.shape[1], 2))
    advance_with(
        s, until, y, answers, logp, sure, groups, last, first, known, turn, order, slot, start,
        block, bits, weights, hits, tries, right, f, p, top, rates,
    )  # fmt: skip


@lean
def marks_of(top: Ints, experts: int, label: int) -> Any:
    """One bit per forecaster, set where its top class is the label."""
    mark = np.uint64(0)
    for e in range(experts):
        mark |= np.uint64(top[e] == label) << np.uint64(e)
    return mark


@lean
def advance_points_with(
    s: State,
    until: int,
    y: Labels,
    groups: Ints,
    last: int,
    first: int,
    known: Ints,
    turn: Ints,
    order: Ints,
    slot: Ints,
    right: Marks,
    row: Ints,
    top: Ints,
    rates: Floats,
) -> None:
    contexts = contexts_in(s)
    labels = WHOLE + 2 * contexts
    mask = s.whole.shape[0] - 1
    for t in range(known.size + 1):
        goal = known[t] if t < known.size else until
        while s.numbers[KNOWN] < goal:
            i = s.numbers[KNOWN]
            if order.size:
                i = order[i]
            learn_counts(s, s.whole[slot[i] if slot.size else i & mask], contexts)
        if t == known.size:
            break
        j = turn[t] if turn.size else first + t
        v = j if turn.size else t
        s.recent[j & (s.recent.size - 1)] = -1
        s.numbers[ANSWERED] += 1
        row[LABEL] = y[v]
        set_contexts(s, j, j - known[t], groups[v], last, contexts, row)
        if row[NEWEST_THEN] >= 0 and row[NEWEST_THEN] != s.numbers[MAJORITY]:
            set_rates(s, row, labels, STAY_CLASS, NEXT, rates)
        tops(s, row, rates, contexts, top)
        right[v] = marks_of(top, experts_in(s), y[v])
        kept = s.whole[slot[j] if slot.size else j & mask]
        for x in range(kept.size):
            kept[x] = row[x]


@jit
def advance_points(
    s: State,
    until: int,
    y: Labels,
    groups: Ints,
    last: int,
    first: int,
    known: Ints,
    turn: Ints,
    order: Ints,
    slot: Ints,
    right: Marks,
) -> None:
    """The same as :func:`advance` for the top classes alone: no probabilities, no mixture."""
    row = np.zeros(WHOLE + 2 * contexts_in(s) + s.rate.shape[1], np.int64)
    top = np.empty(s.weights.shape[1], np.int64)
    rates = np.zeros((s.rate.shape[1], 2))
    advance_points_with(
        s, until, y, groups, last, first, known, turn, order, slot, right, row, top, rates
    )


@jit
def assign_rows(known: Ints, turn: Ints, order: Ints, slot: Ints) -> int:
    """Give each sample a row to wait in until its label is known; the number of rows needed."""
    free = np.empty(turn.size, np.int64)
    n_free, rows, done = 0, 0, 0
    for t in range(turn.size):
        while done < known[t]:
            free[n_free] = slot[order[done]]
            n_free += 1
            done += 1
        if n_free:
            n_free -= 1
            slot[turn[t]] = free[n_free]
        else:
            slot[turn[t]] = rows
            rows += 1
    return rows


@jit
def rehash(old: Ints, new: Ints) -> None:
    for i in range(old.shape[0]):
        if old[i, 0] != 0:
            new[find(new, old[i, 0])] = old[i]


@jit
def count_bits(
    right: Marks, scored: NDArray[np.bool_], first: int, block: int, hits: Ints, tries: Ints
) -> None:
    """Samples and set bits per block, of the ``scored`` samples (all, if it is empty). The entries
    begin with sample ``first``; samples below 0 do not count."""
    for i in range(max(0, -first), right.size):
        if scored.size and not scored[i]:
            continue
        b = (first + i) // block
        tries[b] += 1
        word = right[i]
        row = hits[b]
        for f in range(row.size):
            row[f] += np.int64((word >> np.uint64(f)) & np.uint64(1))
