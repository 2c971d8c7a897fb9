"""Forecasters that see past labels and no inputs, and their mixture.

Each uses the labels that were known when a sample was answered. Counts forget in the order of their
arrival; the last labels, also of a user or album, are those of the newest samples. In a
context n labels with d distinct classes were counted, the label y c times. All counts use one
estimate,

    p(y | context) = ((c - 1/2)+ + d/2 * lower(y)) / n,      lower(y) alone if n = 0,

which is absolute discounting: half a count of every seen label goes to the lower distribution. The
lowest is 1 / C for C classes. The forecasters ("experts"):

- *the most frequent label*: the running frequencies of the classes (``base``).
- *the most frequent label, half-life h*: counts that halve every h labels, h from 0.5 to 8192;
  p_h = (c_h + p_h') / (n_h + 1) with h' the next longer half-life, the last backs off to ``base``.
- *what follows the last one, two, three labels*: counts per context of the newest known labels;
  each order backs off to the lower one. A label is counted after the context that its sample had
  when it was answered: so transitions bridge the gap of a shift.
- candidates m with a hit rate r = (hits + 1/2) / (tries + 1): p(m) = r, and
  p(y) = (1 - r) base(y) / (1 - base(m)) for the rest. m is the last label (r pooled, per class, and
  both lately), the usual label after the last one or two, the least recently seen class, the last
  label of the same user or album, and the newest known label a whole number of periods back.
- *the classes seen least often*: the same for a set of classes that share r equally, all with the
  smallest count. Used while the least recently seen class is one of them, and not all are.
- counts per phase of a period; per user, album, hour of the day, day and hour of the week.

Weights and hit rates are kept per situation of a sample: by its user (by its album, without users):
never seen, that of the newest known label, or another; and where the number D of earlier samples
with an unknown label varies because shifts or label times do, by D (0, 1 to 3, 4 to 15, ...).
What follows the last labels is counted per situation, too.

The mixture is q(y) = sum_e w_e p_e(y), with w_e proportional to w_e p_e(label)^(1 / (D + 1)) when a
label becomes known, and then w_e = (1 - s) w_e + s / N with the share s = 0.0002 / (D + 1), D when
the sample was answered. Weights begin equal; where D can be above 0, ``base`` begins with half.
Last, the odds of the mixture's top class
are multiplied by beta; weights over a grid of beta are learnt in the same way (see
:mod:`streamgauge.history.bits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.history.known import Floats, Ints, Known, Regular
from streamgauge.history.periods import repeating_lags

if TYPE_CHECKING:
    from streamgauge.history.kernels import State

Codes = NDArray[np.int32]
Bits = NDArray[np.uint64]

HALF_LIVES = (0.5, 2, 8, 32, 128, 512, 2048, 8192)
BETAS = tuple(2.0**k for k in range(-3, 13))
OWN = 4  # further experts of the answers: p, two blends of p and q, the confidence
PERIODS = 4
RECENT = 1 << 18
PIECE = 1 << 12  # small: tables grow with what is in them, and stay in the cache
MOST_PAIRS = 1 << 20
MIXTURE_BIT = 63
FIXED_NAMES = (
    "the most frequent label",
    *(f"the most frequent label, half-life {h:g}" for h in HALF_LIVES),
    "what follows the last label",
    "what follows the last two labels",
    "what follows the last three labels",
)
CANDIDATE_NAMES = (
    "the last label",
    "the last label, rate of late",
    "the last label, rate by class",
    "the last label, rate by class of late",
    "the usual follower of the last label",
    "the usual follower of the last two labels",
    "the least recently seen class",
    "the classes seen least often",
)
GROUP_NAMES = {
    "user": "of the same user",
    "album": "of the same album",
    "hour": "at this hour of the day",
    "day": "on this day of the week",
    "hour of week": "at this hour of the week",
}


class GroupColumns(NamedTuple):
    """Columns that the forecasters count by, as whole numbers [samples, columns]."""

    values: Ints
    names: tuple[str, ...] = ()
    last: int = 0
    """How many of the columns, from the first, also forecast the last label of the same value."""


def groups_of(
    count: int,
    *,
    times: ArrayLike | None = None,
    users: ArrayLike | None = None,
    albums: ArrayLike | None = None,
) -> GroupColumns:
    """The columns of users, albums, and hours and days of the times (in seconds)."""
    columns: list[Ints] = []
    names: list[str] = []
    for name, codes in (("user", users), ("album", albums)):
        if codes is not None:
            columns.append(np.asarray(codes, dtype=np.int64))
            names.append(name)
    last = len(columns)
    if times is not None:
        hours = np.floor(np.asarray(times, dtype=np.float64) / 3600).astype(np.int64)
        columns += [hours % 24, hours // 24 % 7, hours % 168]
        names += ["hour", "day", "hour of week"]
    values = np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int64)
    return GroupColumns(values, tuple(names), last)


def new_state(
    classes: int,
    groups: int = 0,
    last: int = 0,
    rows: int = 1,
    delayed: bool = False,
    bins: int = 1,
    points: bool = False,
) -> State:
    """The state of forecasters that know no label; ``rows`` samples can wait for their label.

    The weights begin equal. If labels are ``delayed`` they are learnt slowly, and the class
    frequencies begin with half of the weight. ``bins``: of the number of unknown labels.
    ``points``: for top classes alone.
    """
    from streamgauge.history import kernels

    classes = max(2, classes)
    contexts = kernels.ORDERS + groups + PERIODS
    candidates = kernels.CANDIDATES + last + PERIODS
    experts = len(FIXED_NAMES) + groups + kernels.CANDIDATES + last
    numbers = np.zeros(16, np.int64)
    numbers[kernels.NEWEST : kernels.MAJORITY + 1] = -1
    situations = bins * (3 if last else 1)
    halves = len(HALF_LIVES)
    rows = 1 << (rows - 1).bit_length()
    weights = np.zeros(experts + 2 * PERIODS)
    weights[:experts] = 0.5 / (experts - 1) if delayed else 1 / experts
    if delayed:
        weights[0] = 0.5
    beta_weights = np.full((3, situations, len(BETAS) + OWN), 0.5 / (len(BETAS) + OWN - 1))
    beta_weights[[0, 2]] = 0.5 / (len(BETAS) - 1)
    beta_weights[:, :, BETAS.index(1.0)] = 0.5
    return kernels.State(
        numbers=numbers,
        counts=np.zeros(classes),
        base=np.array([1 / classes, 1.0]),
        decayed=np.zeros((classes, halves)),
        decay=np.stack([2 ** (1 / np.array(HALF_LIVES)), *np.outer([1, 0, 1, 0], np.ones(halves))]),
        decay_top=np.full(halves, -1),
        list=np.full((2, classes), -1),
        rate=np.zeros((situations, candidates, 2)),
        class_rate=np.zeros((situations, classes, 4)),
        context=np.zeros((2, 6), np.int64),
        pair=np.zeros((2, 2), np.int64),
        periods=np.zeros(PERIODS, np.int64),
        recent=np.full(RECENT, -1, np.int32),
        weights=np.tile(weights, (situations, 1)),
        beta=np.array(BETAS),
        beta_weights=beta_weights,
        whole=np.zeros(
            (rows, kernels.WHOLE + (contexts if points else 2 * contexts + candidates)), np.int64
        ),
        real=np.zeros((0 if points else rows, kernels.REAL + weights.size)),
    )


def make_room(state: State, samples: int) -> State:
    """The state with tables that can take ``samples`` more labels, up to MOST_PAIRS."""
    from streamgauge.history import kernels

    each = kernels.contexts_in(state) - PERIODS + int(state.numbers[kernels.PERIODS])
    need = 5 * (int(state.numbers[kernels.PAIRS]) + samples * each)  # room for a fill of a fifth
    size = min(MOST_PAIRS, 1 << (need - 1).bit_length())
    if size <= state.pair.shape[0]:
        return state
    pair, context = np.zeros((size, 2), np.int64), np.zeros((size, 6), np.int64)
    kernels.rehash(state.pair, pair)
    kernels.rehash(state.context, context)
    return state._replace(pair=pair, context=context)


def names_of(state: State, groups: tuple[str, ...] = (), last: int = 0) -> list[str]:
    """The names of the forecasters, in the order of their weights."""
    names = [*FIXED_NAMES, *(f"the most frequent label {GROUP_NAMES[g]}" for g in groups)]
    names += [*CANDIDATE_NAMES, *(f"the last label {GROUP_NAMES[g]}" for g in groups[:last])]
    for period in state.periods[state.periods > 0]:
        names += [f"the most frequent label at this phase of {period} samples"]
        names += [f"the label {period} samples back"]
    return names


def add_periods(state: State) -> None:
    """Search the known labels for periods, and make new ones forecasters.

    There are at most four: then a new one replaces that with the least weight, if it has less than
    an equal share.
    """
    from streamgauge.history import kernels

    newest = int(state.numbers[kernels.LAST_SAMPLE])
    window = np.arange(max(0, newest + 1 - RECENT // 4), newest + 1)
    for period in repeating_lags(state.recent[window & (RECENT - 1)]):
        used = int(state.numbers[kernels.PERIODS])
        if period in state.periods[:used]:
            continue
        first = state.weights.shape[1] - 2 * PERIODS
        active = first + 2 * used
        weight = state.weights[:, first:active].max(axis=0).reshape(-1, 2).sum(axis=1)
        if used < PERIODS:
            at = used
            state.numbers[kernels.PERIODS] += 1
            state.weights[:, :active] *= active / (active + 2)
            state.weights[:, active : active + 2] = 1 / (active + 2)
        elif weight.min() < 2 / active:
            at = int(np.argmin(weight))
            state.rate[:, state.rate.shape[1] - PERIODS + at] = 0
        else:
            return
        state.periods[at] = period


def search_lengths(known: int = 0) -> Iterator[int]:
    """Numbers of known labels above ``known`` at which periods are searched: they grow by an
    eighth, from 1,024 on by half, and double from 4,096 on."""
    length = 64
    while True:
        if length > known:
            yield length
        length += length // (8 if length < 1024 else 2 if length < 4096 else 1)


class Forecasts(NamedTuple):
    """Sums per block of the stream."""

    names: list[str]
    bits: Floats
    """[blocks, 4]: code length by frequencies, by the mixture; bits added by the answers, by the
    placebo."""
    weights: Floats
    """[blocks, forecasters]"""
    hits: Ints
    """[blocks, forecasters + 1]: of each top class, and of the mixture's."""
    tries: Ints
    state: State


class FamilyRun:
    """All forecasters over a stream that is fed in pieces; sums over blocks from ``start`` on.

    ``count`` is the length of the whole stream. With ``points`` only top classes and hits are
    computed, without the mixture. Labels that arrive in another order than the samples need the
    whole stream in one piece.
    """

    def __init__(
        self,
        classes: int,
        known: Known | Regular,
        count: int,
        *,
        names: tuple[str, ...] = (),
        last: int = 0,
        start: int = 0,
        block: int = 1024,
        points: bool = False,
    ) -> None:
        from streamgauge.history import kernels

        self.names, self.last, self.start, self.block = names, last, start, block
        self.points = points
        self.turn = self.order = self.slot = np.zeros(0, np.int64)
        bins = 1
        if isinstance(known, Known):
            if known.order is not None or np.any(known.known[1:] < known.known[:-1]):
                self.turn = np.argsort(known.known, kind="stable")
                self.order = np.arange(count) if known.order is None else known.order
                self.slot = np.empty(count, np.int64)
                unknown = int(np.max(np.arange(count) - known.known))
                bins = 1 + (unknown.bit_length() + 1) // 2
                known = Known(None, known.known[self.turn])
                rows = kernels.assign_rows(known.known, self.turn, self.order, self.slot)
            else:
                rows = int(np.max(np.arange(1, count + 1) - known.known, initial=1))
        else:
            rows = min(known.shift + known.delay + known.step, count)
        self.known = known
        self.state = new_state(classes, len(names), last, rows, rows > 1, bins, points)
        self.fed, self.next_search = 0, next(search_lengths())
        blocks, experts = max(0, -(-(count - start) // block)), self.state.weights.shape[1]
        self.bits, self.weights = np.zeros((blocks, 4)), np.zeros((blocks, experts))
        self.hits = np.zeros((blocks, experts + 1), np.int64)
        self.tries = np.zeros(blocks, np.int64)

    def feed(
        self,
        codes: Codes,
        groups: Ints | None = None,
        *,
        answers: Codes | None = None,
        logp: Floats | None = None,
        confidence: Floats | None = None,
        right: Bits | None = None,
    ) -> None:
        """The next samples. ``right`` is filled as in :func:`forecast`."""
        none, no_floats = np.zeros(0, np.int64), np.zeros(0)
        columns: list[Any] = [codes, np.zeros(0, np.int32) if answers is None else answers]
        columns += [no_floats if c is None else c for c in (logp, confidence)]
        columns += [np.zeros((codes.size, 0), np.int64) if groups is None else groups]
        if right is None:
            size = codes.size if self.turn.size else PIECE
            right = np.zeros(size if self.points else 0, np.uint64)
        at, end = self.fed, self.fed + codes.size
        while at < end:
            known = self.known.between(at, min(end, at + PIECE - at % PIECE))
            cut = int(np.searchsorted(known, self.next_search))
            if cut == 0:
                self._advance(int(known[0]), columns, at, none, right)
                add_periods(self.state)
                self.next_search = next(search_lengths(int(known[0])))
                continue
            part, marks = columns, right
            if not self.turn.size:
                own = slice(at - self.fed, at - self.fed + cut)
                part = [c[own] if len(c) else c for c in columns]
                marks = right[own] if right.size == codes.size else right[:cut]
            self._advance(0, part, at, known[:cut], marks)
            if self.points and not self.turn.size:
                self._count(marks, at)
            at += cut
        if self.points and self.turn.size:
            self._count(right, self.fed)
        self.fed = end

    def _advance(self, until: int, columns: list[Any], at: int, known: Ints, right: Bits) -> None:
        from streamgauge.history import kernels

        goal = max(until, int(known[-1]) if known.size else 0)
        self.state = make_room(self.state, goal - int(self.state.numbers[kernels.KNOWN]))
        order = (at, known, self.turn[at : at + known.size], self.order, self.slot)
        if self.points:
            y, *_, groups = columns
            kernels.advance_points(self.state, until, y, groups, self.last, *order, right)
            return
        sums = (self.bits, self.weights, self.hits, self.tries)
        advance: Any = kernels.advance
        advance(
            self.state, until, *columns, self.last, *order, self.start, self.block, *sums, right
        )

    def _count(self, right: Bits, first: int) -> None:
        from streamgauge.history import kernels

        everywhere = np.zeros(0, np.bool_)
        first -= self.start
        kernels.count_bits(right, everywhere, first, self.block, self.hits, self.tries)

    def result(self) -> Forecasts:
        """Sums over what was fed so far."""
        names = names_of(self.state, self.names, self.last)
        used = [*range(len(names)), self.hits.shape[1] - 1]
        weights, hits = self.weights[:, : len(names)], self.hits[:, used]
        return Forecasts(names, self.bits, weights, hits, self.tries, self.state)


def forecast(
    codes: Codes,
    classes: int,
    known: Known | Regular,
    groups: GroupColumns | None = None,
    *,
    answers: Codes | None = None,
    logp: Floats | None = None,
    confidence: Floats | None = None,
    start: int = 0,
    block: int = 1024,
    points: bool = False,
    right: Bits | None = None,
) -> Forecasts:
    """Run all forecasters over a stream of class numbers; sums over blocks from ``start`` on.

    With ``points`` only top classes and hits are computed, without the mixture. ``right`` is filled
    with one number per sample: bit e is set if the top class of forecaster e is the label, bit
    MIXTURE_BIT if the mixture's is.
    """
    groups = groups or groups_of(codes.size)
    layout: dict[str, Any] = {"names": groups.names, "last": groups.last}
    run = FamilyRun(classes, known, codes.size, **layout, start=start, block=block, points=points)
    given: dict[str, Any] = {"answers": answers, "logp": logp, "confidence": confidence}
    run.feed(codes, groups.values, **given, right=right)
    return run.result()


def family_right(
    codes: Codes, classes: int, known: Known | Regular, groups: GroupColumns | None = None
) -> tuple[Bits, list[str]]:
    """Which forecasters are right, per sample, and their names.

    Bit e of a number is set if the top class of forecaster e is the sample's label. Forecaster 0 is
    the majority so far. The mixture is not among them.
    """
    right = np.zeros(codes.size, np.uint64)
    done = forecast(codes, classes, known, groups, points=True, right=right)
    return right, done.names


class Forecaster:
    """The mixture, one step at a time: ask for its top class or probabilities, then let it learn.

    The labels of one call of ``learn`` are those of one step: all were answered with what was known
    before the call. ``delayed``: there are steps of several samples. ``groups`` are values of
    columns (user, album, ...) of the samples, as in :class:`GroupColumns`. The state is bounded:
    tables of contexts take at most MOST_PAIRS rows.

    >>> forecaster = Forecaster(classes=3)
    >>> for label in [0, 1, 2] * 20:
    ...     forecaster.learn([label])
    >>> forecaster.top(), forecaster.probabilities().round(1)
    (0, array([1., 0., 0.]))
    """

    def __init__(self, classes: int, groups: int = 0, last: int = 0, delayed: bool = False) -> None:
        self.state = new_state(classes, groups, last, delayed=delayed)
        self.last = last

    def learn(self, labels: ArrayLike, groups: ArrayLike | None = None) -> None:
        """Learn the labels of one step."""
        from streamgauge.history import kernels

        y = np.atleast_1d(np.asarray(labels, dtype=np.int32))
        known = int(self.state.numbers[kernels.KNOWN])
        if y.size > self.state.whole.shape[0]:
            rows = 1 << (y.size - 1).bit_length()
            self.state = self.state._replace(
                whole=np.zeros((rows, self.state.whole.shape[1]), np.int64),
                real=np.zeros((rows, self.state.real.shape[1])),
            )
        self.state = make_room(self.state, y.size)
        self._advance(y, groups, np.full(y.size, known), known + y.size)
        if next(search_lengths(known)) <= known + y.size:
            add_periods(self.state)

    def top(self, groups: ArrayLike | None = None, ahead: int = 0) -> int:
        """The most probable class of the next sample, or of the sample ``ahead`` samples after it;
        -1 before the first label."""
        return self._ask(groups, ahead)[0]

    def probabilities(self, groups: ArrayLike | None = None, ahead: int = 0) -> Floats:
        """The probability of every class for the next sample, or ``ahead`` samples after it."""
        return self._ask(groups, ahead)[1]

    def _ask(self, groups: ArrayLike | None, ahead: int) -> tuple[int, Floats]:
        from streamgauge.history import kernels

        q = np.empty(self.state.counts.size)
        experts = np.empty((q.size, self.state.weights.shape[1]))
        row = self._groups(groups, 1)[0]
        top = kernels.ask(self.state, ahead, row, self.last, q, experts)
        return int(top), q

    def _groups(self, groups: ArrayLike | None, rows: int) -> Ints:
        values = np.zeros((rows, 0)) if groups is None else np.asarray(groups)
        return np.ascontiguousarray(values.reshape(rows, -1), dtype=np.int64)

    def _advance(self, y: Codes, groups: ArrayLike | None, known: Ints, until: int) -> None:
        from streamgauge.history import kernels

        none, no_floats = np.zeros(0, np.int64), np.zeros(0)
        kernels.advance(
            self.state, until, y, np.zeros(0, np.int32), no_floats, no_floats,
            self._groups(groups, y.size), self.last, int(known[0]), known, none, none, none,
            1 << 62, 1, np.zeros((0, 4)), np.zeros((0, 1)), np.zeros((0, 1), np.int64), none,
            np.zeros(0, np.uint64),
        )  # fmt: skip

    def save(self) -> dict[str, NDArray[Any]]:
        """The whole state as arrays, for a checkpoint."""
        return {name: array.copy() for name, array in self.state._asdict().items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        self.state = type(self.state)(**{name: np.array(a) for name, a in arrays.items()})
