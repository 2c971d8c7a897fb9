"""What the papers are cited for, each as a statement over rows of a suite, tested on our runs.

A statement is a list of pairs of rows, compared seed by seed: the same seed is the same stream. Its
verdict (`verdict`):

    holds           every pair is as claimed, each by its own test at 5 % (intersection-union test)
    does not hold   one pair or more is the other way, at 5 % by Holm over the pairs
    cannot tell     neither, or rows are missing
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from streamgauge.metrics import holm
from streamgauge.metrics.student import two_sided_p
from streamgauge.suites import published
from streamgauge.suites.criterion import LEVEL, Side, moderate
from streamgauge.suites.measured import NOT_CURRENT, Measured
from streamgauge.suites.spec import load

Pair = tuple[str, str]


@dataclass(frozen=True)
class Claim:
    """`more`: A - B > by for each pair; else |A - B| < by."""

    paper: str
    where: str
    text: str
    suite: str
    column: str
    pairs: tuple[Pair, ...]
    more: bool
    part: str = ""
    by: float = 0.0


@dataclass(frozen=True)
class Tested:
    """A pair of rows: mean difference A - B in points, and p of the claim and of its opposite."""

    pair: Pair
    seeds: int
    difference: float
    p_for: float  # small: as claimed
    p_against: float  # small: the other way


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    tested: tuple[Tested, ...]
    missing: tuple[str, ...]  # rows
    in_paper: str  # how many pairs are as claimed in the published numbers

    @property
    def verdict(self) -> str:
        against = holm([test.p_against for test in self.tested])
        if any(against <= LEVEL):
            return "does not hold"
        if not self.missing and all(test.p_for <= LEVEL for test in self.tested):
            return "holds"
        return "cannot tell"

    @property
    def p(self) -> float:
        """Of the verdict: the largest of the pairs where it holds, by Holm where it does not."""
        if self.verdict == "does not hold":
            return float(min(holm([test.p_against for test in self.tested])))
        return max((test.p_for for test in self.tested), default=math.nan)

    @property
    def exceptions(self) -> list[Tested]:
        """Pairs that are not shown to be as claimed."""
        return [test for test in self.tested if test.p_for > LEVEL]


@cache
def claims() -> tuple[Claim, ...]:
    """All claims in `claims/papers.toml`."""
    given = tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))
    made = []
    for entry in given["claim"]:
        pairs = entry.pop("more", None)
        more = pairs is not None
        pairs = pairs if more else entry.pop("within")
        made.append(Claim(**entry, pairs=tuple((a, b) for a, b in pairs), more=more))
    return tuple(made)


def evaluate(claim: Claim, rows: Iterable[Measured]) -> ClaimResult:
    """A claim on measured rows; those that do not count are missing."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.part == claim.part and not row.earlier and not set(row.remarks) & set(NOT_CURRENT):
            each = zip(row.seeds, row.values.get(claim.column, ()), strict=False)
            values[row.row] = {seed: value for seed, value in each if not math.isnan(value)}
    pairs, differences = [], []
    for pair in claim.pairs:
        found = paired(values, pair)
        if len(found) >= 2:
            pairs.append(pair)
            differences.append(found)
    named = dict.fromkeys(
        name for pair in claim.pairs if pair not in pairs for name in pair if name
    )
    missing = tuple(name for name in named if len(values.get(name, {})) < 2)
    return ClaimResult(claim, tuple(_tested(claim, pairs, differences)), missing, _in_paper(claim))


def paired(values: Mapping[str, Mapping[int, float]], pair: Pair) -> list[float]:
    """A - B of the seeds that both have; an empty name is 0."""
    first, second = (values.get(name, {}) for name in pair)
    seeds = sorted((first or second).keys() & (second or first).keys())
    if any(name and not values.get(name) for name in pair):
        return []
    return [first.get(seed, 0.0) - second.get(seed, 0.0) for seed in seeds]


def _tested(
    claim: Claim, pairs: Sequence[Pair], differences: Sequence[Sequence[float]]
) -> Iterable[Tested]:
    sides = [Side(float(np.mean(d)), float(np.std(d, ddof=1)), len(d)) for d in differences]
    if not sides:
        return
    deviations, freedoms = moderate(sides)
    for pair, side, deviation, freedom in zip(pairs, sides, deviations, freedoms, strict=True):
        error = deviation / math.sqrt(side.runs)
        above = _above(side.mean, error, freedom, claim.by)
        if claim.more:
            yield Tested(pair, side.runs, side.mean, above, 1 - above)
        else:
            below = 1 - _above(side.mean, error, freedom, -claim.by)
            # Inside: two one-sided tests; outside: either of them, with Bonferroni.
            outside = min(1.0, 2 * min(above, below))
            yield Tested(pair, side.runs, side.mean, 1 - min(above, below), outside)


def _above(difference: float, error: float, freedom: float, limit: float) -> float:
    """p of the null hypothesis that the true difference is `limit` or less."""
    t = (difference - limit) / error
    half = two_sided_p(t, freedom) / 2
    return half if t > 0 else 1 - half


def _in_paper(claim: Claim) -> str:
    """Pairs of published numbers that are as claimed, without regard to their uncertainty."""
    rows = {row.name: row for row in load(claim.suite).rows if row.part == claim.part}
    count = total = 0
    for pair in claim.pairs:
        numbers = []
        for name in pair:
            row = rows.get(name)
            number = None
            if row is not None and row.table:
                number = published.number(row.table, row.published, claim.column)
            numbers.append(number.value if number else None)
        first, second = numbers
        if first is None or second is None:
            continue
        total += 1
        difference = first - second
        count += difference > claim.by if claim.more else abs(difference) < claim.by
    return f"{count} of {total}" if total else "only drawn"
