"""The forecasters, their mixture and the bits of the answers once more: slow, from lists of what
was seen, without any running count. Written from the formulas in the documentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamgauge.history.periods import repeating_lags

HALF_LIVES = [0.5, 2, 8, 32, 128, 512, 2048, 8192]
BETAS = [2.0**k for k in range(-3, 13)]
SHARE = 2e-4
OF_LATE = 0.5 ** (1 / 50)
Forecast = tuple[Callable[[int], float], int]


class Row(NamedTuple):
    """What is remembered of a sample until its label is known."""

    sample: int
    situation: Any
    contexts: dict[str, Any]
    candidates: dict[str, set[int]]
    likelihood: list[float]
    mixed: float
    factors: list[list[float]]


def steady_mode(labels: Sequence[int]) -> int:
    """The most frequent label: among equals the one that was first to have this count; -1: none."""
    counts, leader = {-1: 0}, -1
    for c in labels:
        counts[c] = counts.get(c, 0) + 1
        if counts[c] > counts[leader]:
            leader = c
    return leader


def recent_mode(labels: Sequence[int]) -> int:
    counts = Counter(labels)
    most = max(counts.values())
    return next(c for c in reversed(labels) if counts[c] == most)


def discounted(seen: Sequence[int], lower: Callable[[int], float]) -> Callable[[int], float]:
    if not seen:
        return lower
    counts = Counter(seen)
    return lambda y: (
        ((counts[y] - 0.5 if y in counts else 0) + len(counts) / 2 * lower(y)) / len(seen)
    )


def forgetting(half_life: float, seen: Sequence[int], lower: Callable[[int], float]) -> Forecast:
    mass: dict[int, float] = {}
    for age, c in enumerate(reversed(seen)):
        mass[c] = mass.get(c, 0.0) + 2 ** (-age / half_life)
    total = sum(mass.values())
    top = max(mass, key=lambda c: mass[c]) if mass else -1
    return lambda y: (mass.get(y, 0.0) + lower(y)) / (total + 1), top


def bayes(weights: list[float], likelihood: list[float], power: float) -> list[float]:
    new = [w * p**power for w, p in zip(weights, likelihood, strict=True)]
    total = sum(new)
    share = SHARE * power
    return [(1 - share) * w / total + share / len(new) for w in new]


class Slow:
    def __init__(self, classes: int, groups: Sequence[dict[str, int]], lasting: list[str]) -> None:
        self.classes = classes
        self.groups, self.lasting = groups, lasting
        self.seen: list[int] = []
        self.newer: list[int] = []  # labels that arrived before those of all later samples
        self.at: dict[int, int] = {}  # label by sample
        self.after: dict[Any, list[int]] = {}
        self.tried: dict[Any, list[tuple[set[int], int]]] = {}
        self.periods: list[int] = []
        self.weights: dict[Any, list[float]] = {}
        self.betas: dict[Any, list[list[float]]] = {}
        self.newest: dict[str, int] = {}
        self.by_age = False

    def situation(self, sample: int, unknown: int) -> Any:
        age = len(np.base_repr(unknown, 4)) if unknown and self.by_age else 0
        if not self.lasting:
            return age
        name = self.lasting[0]
        value = self.groups[sample][name]
        if self.newest.get(name) == value:
            return age, "same"
        return age, "other" if (name, value) in self.after else "new"

    def contexts(self, sample: int, now: Any) -> dict[str, Any]:
        back = [*reversed(self.newer), -1, -1, -1][:3]
        keys: dict[str, Any] = {f"order {k}": ("order", now, *back[:k]) for k in (1, 2, 3)}
        keys |= {name: (name, value) for name, value in self.groups[sample].items()}
        return keys | {f"phase {p}": (p, sample % p) for p in self.periods}

    def candidates(self, sample: int, keys: dict[str, Any]) -> dict[str, set[int]]:
        counts = Counter(self.seen)
        last = set(self.newer[-1:])
        chosen = dict.fromkeys(("last", "last late", "class", "class late"), last)
        for k in (1, 2):
            seen = self.after.get(keys[f"order {k}"])
            chosen[f"next {k}"] = {recent_mode(seen)} if seen else set()
        oldest = min(counts, key=lambda c: self.seen[::-1].index(c) * -1) if counts else -1
        chosen["rare"] = {oldest} if counts else set()
        few = {c for c in counts if counts[c] == min(counts.values())}
        chosen["few"] = few if oldest in few and len(few) < len(counts) else set()
        for name in self.lasting:
            same = [i for i in self.at if self.groups[i][name] == self.groups[sample][name]]
            chosen[f"last {name}"] = {self.at[max(same)]} if same else set()
        for p in self.periods:
            steps = range(sample - p, -1, -p)
            chosen[f"back {p}"] = set([self.at[i] for i in steps if i in self.at][:1])
        return chosen

    def rate(self, name: str, now: Any, chosen: set[int]) -> float:
        tried = self.tried.get((name, now), [])
        if name.startswith("class"):
            tried = [(m, y) for m, y in tried if m == chosen]
        fade = OF_LATE if name.endswith("late") else 1.0
        hits = tries = 0.0
        for m, y in tried:
            hits, tries = hits * fade + (y in m), tries * fade + 1
        return (hits + 0.5) / (tries + 1)

    def forecasts(
        self, now: Any, keys: dict[str, Any], chosen: dict[str, set[int]]
    ) -> list[Forecast]:
        base = discounted(self.seen, lambda y: 1 / self.classes)
        majority = steady_mode(self.seen)
        out: list[Forecast] = []
        lower = base
        for half_life in reversed(HALF_LIVES):
            out.insert(0, forgetting(half_life, self.seen, lower))
            lower = out[0][0]
        out.insert(0, (base, majority))

        def context(name: str, lower: Forecast) -> Forecast:
            seen = self.after.get(keys[name], [])
            return discounted(seen, lower[0]), recent_mode(seen) if seen else lower[1]

        def candidate(name: str) -> Forecast:
            m = chosen[name]
            if not m:
                return base, majority
            r = self.rate(name, now, m)
            rest = (1 - r) / (1 - sum(base(c) for c in m))
            top = min(m, key=lambda c: -self.seen[::-1].index(c))
            if name.startswith("class") and majority not in m and rest * base(majority) > r:
                top = majority
            return lambda y: r / len(m) if y in m else rest * base(y), top

        for k in (1, 2, 3):
            out.append(context(f"order {k}", out[-1] if k > 1 else out[0]))
        out += [context(name, out[0]) for name in self.groups[0]]
        out += [candidate(name) for name in chosen if not name.startswith("back")]
        for p in self.periods:
            out += [context(f"phase {p}", out[0]), candidate(f"back {p}")]
        return out

    def learn(self, row: Row, y: int, power: float) -> None:
        now = row.situation
        more = len(self.weights[now]) - len(row.likelihood)
        self.weights[now] = bayes(self.weights[now], row.likelihood + [row.mixed] * more, power)
        for i, factors in enumerate(row.factors):
            self.betas[now][i] = bayes(self.betas[now][i], factors, power)
        for name, m in row.candidates.items():
            if m:
                self.tried.setdefault((name, now), []).append((m, y))
        for key in row.contexts.values():
            self.after.setdefault(key, []).append(y)
        self.seen.append(y)
        if row.sample > max(self.at, default=-1):
            self.newer.append(y)
            self.newest = self.groups[row.sample]
        self.at[row.sample] = y

    def search(self) -> None:
        newest = max(self.at)
        labels = np.array([self.at.get(i, -1) for i in range(newest + 1)], np.int32)
        for p in repeating_lags(labels):
            if p not in self.periods:
                assert len(self.periods) < 4, "a stream for this test has at most four periods"
                self.periods.append(p)
                for now, weights in self.weights.items():
                    n = len(weights)
                    new = [w * n / (n + 2) for w in weights] + [1 / (n + 2)] * 2
                    self.weights[now] = new

    def begin(self, now: Any, experts: int, delayed: bool) -> None:
        """Weights of a situation that is met for the first time."""
        n = experts - 2 * len(self.periods)
        weights = [0.5] + [0.5 / (n - 1)] * (n - 1) if delayed else [1 / n] * n
        for _ in self.periods:
            n = len(weights)
            weights = [w * n / (n + 2) for w in weights] + [1 / (n + 2)] * 2
        self.weights[now] = weights
        self.betas[now] = [
            [0.5 if beta == 1 else 0.5 / (len(BETAS) + more - 1) for beta in [*BETAS, *[0] * more]]
            for more in (0, 4, 0)
        ]


def odds(q: float, hit: bool) -> list[float]:
    return [(b if hit else 1) / (1 + (b - 1) * q) for b in BETAS]


def slow_bits(
    y: Sequence[int],
    classes: int,
    order: Sequence[int],
    known: Sequence[int],
    answers: Sequence[int],
    groups: Sequence[dict[str, int]],
    lasting: list[str],
    logp: Sequence[float] | None = None,
    sure: Sequence[float] | None = None,
) -> tuple[np.ndarray[Any, Any], list[int], list[float], list[int]]:
    """Bits per sample (base, mixture, added, placebo), the mixture's top classes, last weights,
    periods."""
    slow = Slow(classes, groups, lasting)
    slow.by_age = list(order) != list(range(len(y))) or list(known) != sorted(known)
    rows: dict[int, Row] = {}
    bits = np.zeros((len(y), 4))
    tops = [-1] * len(y)
    lengths = [64]
    while lengths[-1] < len(y):
        lengths.append(lengths[-1] + lengths[-1] // 8)
    for j in sorted(range(len(y)), key=lambda j: known[j]):
        before = len(slow.seen)
        for i in order[before : known[j]]:
            slow.learn(rows.pop(i), y[i], 1 / (i - known[i] + 1))
        if any(before < n <= len(slow.seen) for n in lengths):
            slow.search()
        now = slow.situation(j, j - known[j])
        keys = slow.contexts(j, now)
        chosen = slow.candidates(j, keys)
        forecasts = slow.forecasts(now, keys, chosen)
        if now not in slow.weights:
            slow.begin(now, len(forecasts), any(known[i] < i for i in range(len(y))))
        weights, betas = slow.weights[now], slow.betas[now]

        def q(c: int) -> float:
            pairs = zip(weights, forecasts, strict=True)  # noqa: B023
            return sum(w * p(c) for w, (p, _) in pairs)

        tempting = [t for w, (_, t) in zip(weights, forecasts, strict=True) if w >= 0.02 and t >= 0]
        top = max(dict.fromkeys(tempting), key=q, default=-1)
        q_top = q(top) if top >= 0 else 0.0

        def calibrated(c: int) -> float:
            mixed = zip(betas[0], odds(q_top, c == top), strict=True)  # noqa: B023
            return q(c) * sum(v * f for v, f in mixed)

        answer, label = answers[j], y[j]
        q_label, q_answer = calibrated(label), calibrated(answer) if answer >= 0 else 0.0
        factors = odds(q_answer, answer == label)
        p = math.exp(logp[j]) / q_label if logp is not None else 1.0
        factors += [p, 0.9 * p + 0.1, 0.5 * p + 0.5]
        c = sure[j] if sure is not None else q_answer
        factors += [c / q_answer if answer == label else (1 - c) / (1 - q_answer)]
        placebo = odds(calibrated(top) if top >= 0 else 0.0, top == label)
        added = sum(v * f for v, f in zip(betas[1], factors, strict=True))
        gain = sum(v * f for v, f in zip(betas[2], placebo, strict=True))
        bits[j] = np.log2([1 / forecasts[0][0](label), 1 / q_label, added, gain])
        tops[j] = top
        likelihood = [f(label) for f, _ in forecasts]
        parts = [odds(q_top, top == label), factors, placebo]
        rows[j] = Row(j, now, keys, chosen, likelihood, q(label), parts)
    return bits, tops, slow.weights[0] if not lasting else [], slow.periods
