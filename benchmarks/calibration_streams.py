"""Label streams with known truth, for `calibration.py`.

A stream is drawn from a hidden Markov chain whose emissions depend on a known context (the last
label, the phase of a period, the stage of a class-incremental stream, the last label of the same
user, ...). So the probability of each label given everything that was known when it was answered
is exact, by the forward algorithm, and with it the information that an answer adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
DELAY = 20


@dataclass(frozen=True)
class Generator:
    """P(state), P(state | state before), P(label | state, context)."""

    start: Floats  # (states)
    move: Floats  # (states, states)
    emit: Floats  # (states, contexts, classes)

    @property
    def classes(self) -> int:
        return int(self.emit.shape[2])


@dataclass(frozen=True)
class Stream:
    """Labels, what ruled them, and the columns that the audit is given."""

    labels: Ints
    generator: Generator
    context: Ints
    restart: NDArray[np.bool_]  # the hidden state is drawn anew (an album begins)
    columns: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] = field(default_factory=dict)  # columns that the audit is not given

    @cached_property
    def predictive(self) -> Floats:
        """P(label | labels known, columns), one row per sample."""
        made = self.generator
        return forward(self.labels, self.context, self.restart, made.start, made.move, made.emit)


@njit(cache=False)
def forward(labels, context, restart, start, move, emit):  # type: ignore[no-untyped-def]
    states, _, classes = emit.shape
    result = np.empty((len(labels), classes))
    belief = start.copy()
    for t in range(len(labels)):
        if restart[t]:
            belief[:] = start
        elif t:
            belief = (belief.reshape(-1, 1) * move).sum(0)
        for c in range(classes):
            total = 0.0
            for k in range(states):
                total += belief[k] * emit[k, context[t], c]
            result[t, c] = total
        total = 0.0
        for k in range(states):
            belief[k] *= emit[k, context[t], labels[t]]
            total += belief[k]
        belief /= total
    return result


@njit(cache=False)
def draw_chain(states, uniform, first, emit_edges):  # type: ignore[no-untyped-def]
    """Labels whose context is the label before; `first` is the context of the first one."""
    labels = np.empty(len(states), np.int64)
    last = first
    for t in range(len(states)):
        last = np.searchsorted(emit_edges[states[t], last], uniform[t], side="right")
        labels[t] = last
    return labels


@njit(cache=False)
def running_mode(labels, classes, window):  # type: ignore[no-untyped-def]
    """The most frequent of the `window` labels before each sample, ties to the most recent."""
    answers = np.zeros(len(labels), np.int64)
    counts = np.zeros(classes, np.int64)
    best = 0
    for t in range(1, len(labels)):
        counts[labels[t - 1]] += 1
        if t > window:
            gone = labels[t - 1 - window]
            counts[gone] -= 1
            if gone == best:
                best = np.argmax(counts)
        if counts[labels[t - 1]] >= counts[best]:
            best = labels[t - 1]
        answers[t] = best
    return answers


def edges(table: Floats) -> Floats:
    """Cumulative probabilities of the last axis, ending above every uniform number."""
    summed = np.cumsum(table, -1)
    summed[..., -1] = 2.0
    return summed


def hidden_states(rng: np.random.Generator, n: int, start: Floats, move: Floats) -> Ints:
    if len(start) == 1:
        return np.zeros(n, np.int64)
    first = int(rng.choice(len(start), p=start))
    return np.asarray(draw_chain(np.zeros(n, np.int64), rng.random(n), first, edges(move)[None]))


def sticky_rows(classes: int, stay: float) -> Floats:
    """Stay with a probability, else one of the other classes; a last row for "no label yet"."""
    rows = np.full((classes + 1, classes), (1 - stay) / (classes - 1))
    rows[np.arange(classes), np.arange(classes)] = stay
    rows[classes] = 1 / classes
    return rows


ONE = np.ones(1)


def chained(rng: np.random.Generator, n: int, start: Floats, move: Floats, emit: Floats) -> Stream:
    """Labels that depend on the label before them and on a hidden state."""
    classes = emit.shape[2]
    states = hidden_states(rng, n, start, move)
    labels = draw_chain(states, rng.random(n), classes, edges(emit))
    context = np.concatenate([[classes], labels[:-1]])
    return Stream(labels, Generator(start, move, emit), context, np.zeros(n, bool))


def given_context(rng: np.random.Generator, context: Ints, emit: Floats, **more: Any) -> Stream:
    """Labels that depend on a known context alone."""
    uniform = rng.random(len(context))
    labels = (uniform[:, None] >= edges(emit)[context]).sum(1)
    made = Generator(ONE, ONE[:, None], emit[None])
    return Stream(labels, made, context, np.zeros(len(context), bool), **more)


def independent(rng: np.random.Generator, n: int, prior: Floats) -> Stream:
    return given_context(rng, np.zeros(n, np.int64), prior[None])


def sticky(rng: np.random.Generator, n: int, stay: float, classes: int = 10) -> Stream:
    return chained(rng, n, ONE, ONE[:, None], sticky_rows(classes, stay)[None])


def chain(rng: np.random.Generator, n: int, right: float = 0.8, classes: int = 50) -> Stream:
    """The successor in a random cycle of all classes, with noise."""
    cycle = rng.permutation(classes)
    successor = np.empty(classes, np.int64)
    successor[cycle] = np.roll(cycle, -1)
    rows = np.full((classes + 1, classes), (1 - right) / classes)
    rows[np.arange(classes), successor] += right
    rows[classes] = 1 / classes
    stream = chained(rng, n, ONE, ONE[:, None], rows[None])
    stream.hidden["successor"] = np.append(successor, 0)
    return stream


def periodic(
    rng: np.random.Generator, n: int, period: int, right: float = 0.8, classes: int = 10
) -> Stream:
    """A random pattern of labels, repeated, with noise."""
    rows = np.full((period, classes), (1 - right) / classes)
    rows[np.arange(period), rng.integers(0, classes, period)] += right
    return given_context(rng, np.arange(n) % period, rows)


def albums(rng: np.random.Generator, n: int, go_on: float = 0.9, classes: int = 20) -> Stream:
    """Albums of 10 photos on average; a photo shows the album's class in 9 of 10 cases."""
    begins = rng.random(n) >= go_on
    begins[0] = True
    album = np.cumsum(begins) - 1
    main = rng.integers(0, classes, album[-1] + 1)
    labels = np.where(rng.random(n) < 0.9, main[album], rng.integers(0, classes, n))
    emit = np.full((classes, 1, classes), 0.1 / classes)
    emit[np.arange(classes), 0, np.arange(classes)] += 0.9
    made = Generator(np.full(classes, 1 / classes), np.eye(classes), emit)
    return Stream(labels, made, np.zeros(n, np.int64), begins, {"albums": album})


def drifting(
    rng: np.random.Generator, n: int, states: int = 36, classes: int = 10, pace: float = 0.05
) -> Stream:
    """The prior's peak walks around a circle of classes, at random."""
    angle = np.arange(states)[:, None] / states - np.arange(classes) / classes
    prior = np.exp(2 * np.cos(2 * np.pi * angle))
    prior /= prior.sum(1, keepdims=True)
    stay = np.eye(states)
    move = (1 - 2 * pace) * stay + pace * (np.roll(stay, 1, 1) + np.roll(stay, -1, 1))
    emit = np.repeat(prior[:, None], classes + 1, 1)
    return chained(rng, n, np.full(states, 1 / states), move, emit)


def incremental(rng: np.random.Generator, n: int, stages: int = 5, classes: int = 10) -> Stream:
    """Class-incremental: each stage has classes of its own, drawn at random within it."""
    rows = np.repeat(np.eye(stages), classes // stages, 1) * (stages / classes)
    return given_context(rng, np.arange(n) * stages // n, rows)


def delayed(rng: np.random.Generator, n: int, stay: float = 0.95, classes: int = 10) -> Stream:
    """Sticky labels that become known 20 samples late."""
    stream = sticky(rng, n, stay, classes)
    lag = DELAY + 1
    rows = sticky_rows(classes, stay)
    ahead = np.vstack([np.linalg.matrix_power(rows[:classes], lag), rows[classes]])
    context = np.concatenate([np.full(lag, classes), stream.labels[:-lag]])
    times = np.arange(n, dtype=float)
    columns = {"times": times, "label_times": times + DELAY}
    made = Generator(ONE, ONE[:, None], ahead[None])
    return Stream(stream.labels, made, context, stream.restart, columns)


def regimes(rng: np.random.Generator, n: int, stay: float = 0.95, classes: int = 10) -> Stream:
    """A mixture: sticky labels and independent labels take turns, 300 samples each on average."""
    emit = np.stack([sticky_rows(classes, stay), np.full((classes + 1, classes), 1 / classes)])
    move = np.array([[1 - 1 / 300, 1 / 300], [1 / 300, 1 - 1 / 300]])
    return chained(rng, n, np.array([0.5, 0.5]), move, emit)


def interleaved(
    rng: np.random.Generator, n: int, users: int = 20, classes: int = 10, shown: bool = True
) -> Stream:
    """Users in random order, each with sticky labels of their own."""
    user = rng.integers(0, users, n)
    rows = sticky_rows(classes, 0.9)
    labels = np.empty(n, np.int64)
    context = np.empty(n, np.int64)
    for one in range(users):
        mine = np.flatnonzero(user == one)
        if len(mine):
            states = np.zeros(len(mine), np.int64)
            labels[mine] = draw_chain(states, rng.random(len(mine)), classes, edges(rows)[None])
            context[mine] = np.concatenate([[classes], labels[mine[:-1]]])
    made = Generator(ONE, ONE[:, None], rows[None])
    columns = {"users": user} if shown else {}
    return Stream(labels, made, context, np.zeros(n, bool), columns)


def parity(rng: np.random.Generator, n: int, right: float = 0.9) -> Stream:
    """Two classes: the XOR of the labels 1, 4 and 6 back, with noise."""
    flip = rng.random(n) >= right
    labels = rng.integers(0, 2, n)
    for t in range(6, n):
        labels[t] = labels[t - 1] ^ labels[t - 4] ^ labels[t - 6] ^ int(flip[t])
    context = np.full(n, 2)
    context[6:] = labels[5:-1] ^ labels[2:-4] ^ labels[:-6]
    rows = np.array([[right, 1 - right], [1 - right, right], [0.5, 0.5]])
    made = Generator(ONE, ONE[:, None], rows[None])
    return Stream(labels, made, context, np.zeros(n, bool))


# Answers that never saw an input.


def copy(stream: Stream, lag: int = 1) -> Ints:
    return np.concatenate([np.zeros(lag, np.int64), stream.labels[:-lag]])


def constant(stream: Stream) -> Ints:
    return np.zeros(len(stream.labels), np.int64)


def mode(stream: Stream, window: int = 10) -> Ints:
    return np.asarray(running_mode(stream.labels, stream.generator.classes, window))


def successor(stream: Stream) -> Ints:
    return np.asarray(stream.hidden["successor"][stream.context])


def context_label(stream: Stream) -> Ints:
    """The label that is the context: the last one of the same user, or the XOR of three."""
    return np.where(stream.context < stream.generator.classes, stream.context, 0)


def same_album(stream: Stream) -> Ints:
    return np.where(stream.restart, 0, copy(stream))


def ideal(stream: Stream) -> Ints:
    """The most probable label, by someone who knows the generator."""
    return stream.predictive.argmax(1)


# Answers that saw an input.


def honest(stream: Stream, rng: np.random.Generator, accuracy: float) -> Ints:
    """Right with a probability that is the same for every sample, else any other class."""
    classes, n = stream.generator.classes, len(stream.labels)
    wrong = (stream.labels + rng.integers(1, classes, n)) % classes
    return np.where(rng.random(n) < accuracy, stream.labels, wrong)


def entropy(table: Floats) -> Floats:
    """In bits, over the last axis."""
    safe = np.where(table > 0, table, 1.0)
    return -np.asarray((table * np.log2(safe)).sum(-1))


def information(
    predictive: Floats, accuracy: float, share: float = 1.0, fallback: Ints | None = None
) -> Floats:
    """I(label; answer | known) per sample, exactly.

    The answer is honest with probability `share`, else the label `fallback` that the past gives.

    >>> float(information(np.full((1, 4), 0.25), 1.0)[0])
    2.0
    >>> bool(abs(information(np.full((1, 4), 0.25), 0.25)[0]) < 1e-12)
    True
    """
    n, classes = predictive.shape
    rest = (1 - accuracy) / (classes - 1)
    marginal = share * (predictive * accuracy + (1 - predictive) * rest)
    away = [share * accuracy, *[share * rest] * (classes - 1)]
    if fallback is None:
        return entropy(marginal) - entropy(np.array(away))
    marginal[np.arange(n), fallback] += 1 - share
    agree = away.copy()
    agree[0] += 1 - share
    away[1] += 1 - share
    hit = predictive[np.arange(n), fallback]
    given = hit * entropy(np.array(agree)) + (1 - hit) * entropy(np.array(away))
    return entropy(marginal) - given


def accuracy_for(predictive: Floats, bits: float) -> float:
    """The accuracy at which an honest model adds so many bits."""
    low, high = 1 / predictive.shape[1], 0.999
    for _ in range(40):
        middle = (low + high) / 2
        if information(predictive, middle).mean() < bits:
            low = middle
        else:
            high = middle
    return high


# The excess of the best blind forecaster over the best constant, at a shift.


def markov_excess(rows: Floats, shift: int) -> float:
    """Exact, for a chain whose stationary distribution is uniform."""
    classes = rows.shape[1]
    ahead = np.linalg.matrix_power(rows[:classes], shift + 1)
    return float(ahead.max(1).mean() - 1 / classes)


@dataclass(frozen=True)
class Family:
    """A kind of stream, with the input-free answers that are tried on it."""

    name: str
    words: str
    draw: Callable[[np.random.Generator, int], Stream]
    inside: dict[str, Callable[[Stream], Ints]]
    outside: dict[str, Callable[[Stream], Ints]] = field(default_factory=dict)
    excess: Callable[[int], float] | None = None  # None: by Monte Carlo
    shifts: bool = True  # whether the shift is calibrated on it
    exact: bool = True  # whether `Stream.predictive` is given the columns that the audit has


def zero(shift: int) -> float:
    return 0.0


def period_excess(shift: int, right: float = 0.8, classes: int = 10) -> float:
    """At least: the pattern is known at every shift; a constant is right about one time in four."""
    return right + (1 - right) / classes - 0.4


def families() -> dict[str, Family]:
    uniform = np.full(10, 0.1)
    zipf = 1 / np.arange(1, 51)
    known = [
        Family(
            "iid",
            "10 classes, independent",
            partial(independent, prior=uniform),
            {"constant": constant, "copy": copy},
            excess=zero,
        ),
        Family(
            "zipf",
            "50 classes, independent, frequencies 1/rank",
            partial(independent, prior=zipf / zipf.sum()),
            {"constant": constant, "copy": copy},
            excess=zero,
        ),
        *[
            Family(
                f"sticky {stay:g}",
                f"10 classes, the label stays with probability {stay:g}",
                partial(sticky, stay=stay),
                {"copy": copy, "mode of 10": mode},
                excess=partial(markov_excess, sticky_rows(10, stay)),
            )
            for stay in (0.5, 0.9, 0.99)
        ],
        Family(
            "albums",
            "20 classes, albums of 10 photos on average, 9 in 10 of the album's class; "
            "with the album column",
            albums,
            {"last of the album": same_album, "copy": copy},
            {"ideal": ideal},
        ),
        Family(
            "chain",
            "50 classes, successor in a random cycle with probability .8",
            chain,
            {"successor": successor, "copy": copy},
        ),
        *[
            Family(
                f"period {period}",
                f"10 classes, a random pattern of {period} labels repeats, 20 % noise",
                partial(periodic, period=period),
                {"a period back": partial(copy, lag=period), "copy": copy},
                excess=period_excess,
            )
            for period in (7, 24, 168)
        ],
        Family(
            "drifting prior",
            "10 classes, the prior's peak walks at random around a circle of classes",
            drifting,
            {"mode of 50": partial(mode, window=50), "copy": copy},
            {"ideal": ideal},
        ),
        Family(
            "class-incremental",
            "5 stages, each with two classes of its own, independent within the stage",
            incremental,
            {"copy": copy, "mode of 10": mode},
        ),
        Family(
            "delayed labels",
            f"10 classes, stay .95, labels known {DELAY} samples late",
            delayed,
            {"newest known": partial(copy, lag=DELAY + 1), "constant": constant},
            shifts=False,
        ),
        Family(
            "mixture",
            "10 classes, sticky (.95) and independent labels take turns, 300 samples on average",
            regimes,
            {"copy": copy, "mode of 10": mode},
        ),
        Family(
            "users",
            "20 users in random order, 10 classes, each user's label stays with probability .9; "
            "with the user column",
            interleaved,
            {"last of the user": context_label, "copy": copy},
            shifts=False,
        ),
        Family(
            "users, column missing",
            "the same without the user column",
            partial(interleaved, shown=False),
            {"copy": copy},
            {"last of the user": context_label},
            shifts=False,
            exact=False,
        ),
        Family(
            "parity",
            "2 classes, XOR of the labels 1, 4 and 6 back, 10 % noise",
            parity,
            {"copy": copy},
            {"XOR of 1, 4 and 6 back": context_label},
            shifts=False,
        ),
    ]
    return {family.name: family for family in known}
