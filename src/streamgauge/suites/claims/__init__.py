"""What the papers are cited for, each as a statement over rows of a suite, tested on our runs.

A statement is a list of pairs of rows, compared seed by seed: the same seed is the same stream. It
has two p-values:

    p_for       of the claim: the largest of its pairs' own (intersection-union test); 1 where rows
                are missing
    p_against   of the opposite, that one pair or more is the other way: the least by Holm over the
                pairs, also those with missing rows

Both are corrected by Holm over all claims of the paper (`judged`), and 5 % or less decides.

Where all seeds have one stream (`Measured.blocks`), seeds alone would say what the same stream
gives again. Then the variance of a mean difference has two parts, that of n seeds and that of k
consecutive parts of the stream, s²/n + b²/k, each with its degrees of freedom (batch means).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from streamgauge.history.student import two_sided_p
from streamgauge.metrics import holm
from streamgauge.suites import published
from streamgauge.suites.criterion import LEVEL, Agreement, Side, moderate, of_parts
from streamgauge.suites.measured import NOT_CURRENT, Measured
from streamgauge.suites.spec import load

Pair = tuple[str, str]
KINDS = ("more", "not_less", "within")


@dataclass(frozen=True)
class Claim:
    """For each pair, `more`: A - B > by; `not_less`: B does not beat A, which is A - B >= 0, and is
    shown by A - B > -by; `within`: |A - B| < by."""

    paper: str
    where: str
    text: str
    suite: str
    column: str
    pairs: tuple[Pair, ...]
    kind: str  # one of KINDS
    part: str = ""
    by: float = 0.0
    elsewhere: str = ""  # data that the paper has, where ours are others
    built: str = ""  # why our choices make it so: then it is no test


@dataclass(frozen=True)
class Tested:
    """A pair of rows: mean difference A - B in points, and p of the claim and of its opposite."""

    pair: Pair
    seeds: int
    difference: float
    p_for: float  # small: as claimed
    p_against: float  # small: the other way
    half: float = math.nan  # of the 95 % interval of the difference


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    tested: tuple[Tested, ...]
    missing: tuple[str, ...]  # rows
    adjusted_for: float = math.nan  # by Holm over the claims of the paper
    adjusted_against: float = math.nan

    @property
    def p_for(self) -> float:
        """Of the claim: every pair has to be as claimed."""
        complete = bool(self.tested) and not self.missing and not self.claim.built
        return max(test.p_for for test in self.tested) if complete else 1.0

    @property
    def p_against(self) -> float:
        """Of the opposite: one pair is enough. Pairs with missing rows count as 1, so that p does
        not depend on which rows were run."""
        if self.claim.built:
            return 1.0
        absent = [1.0] * (len(self.claim.pairs) - len(self.tested))
        return float(min(holm([*(test.p_against for test in self.tested), *absent])))

    @property
    def verdict(self) -> str:
        if self.claim.built:
            return "by construction"
        if self.adjusted_against <= LEVEL:
            return "does not hold"
        if self.adjusted_for <= LEVEL:
            return "holds"
        if self.p_against <= LEVEL:
            return "does not hold, taken alone"
        return "holds, taken alone" if self.p_for <= LEVEL else "cannot tell"

    @property
    def exceptions(self) -> list[Tested]:
        """Pairs that are not shown to be as claimed."""
        if self.claim.built:
            return []
        return [test for test in self.tested if test.p_for > LEVEL]


@cache
def claims() -> tuple[Claim, ...]:
    """All claims in `claims/papers.toml`."""
    given = tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))
    made = []
    for entry in given["claim"]:
        kind = next(kind for kind in KINDS if kind in entry)
        pairs = tuple((a, b) for a, b in entry.pop(kind))
        made.append(Claim(**entry, pairs=pairs, kind=kind))
    return tuple(made)


def judged(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """With p by Holm over the claims of each paper. All of its claims count, also those whose rows
    are missing: then a verdict does not depend on which rows were run."""
    made: dict[int, ClaimResult] = {}
    for paper in dict.fromkeys(result.claim.paper for result in results):
        of_paper = [n for n, result in enumerate(results) if result.claim.paper == paper]
        p_for = holm([results[n].p_for for n in of_paper])
        p_against = holm([results[n].p_against for n in of_paper])
        for n, adjusted, against in zip(of_paper, p_for, p_against, strict=True):
            made[n] = replace(
                results[n], adjusted_for=float(adjusted), adjusted_against=float(against)
            )
    return [made[n] for n in range(len(results))]


def evaluate(claim: Claim, rows: Iterable[Measured]) -> ClaimResult:
    """A claim on measured rows, not corrected yet; rows that do not count are missing."""
    values: dict[str, dict[int, float]] = {}
    blocks: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.part == claim.part and not row.earlier and not set(row.remarks) & set(NOT_CURRENT):
            each = zip(row.seeds, row.values.get(claim.column, ()), strict=False)
            values[row.row] = {seed: value for seed, value in each if not math.isnan(value)}
            blocks[row.row] = dict(enumerate(row.blocks.get(claim.column, ())))
    pairs, differences, along = [], [], []
    for pair in claim.pairs:
        per_seed = paired(values, pair)
        if len(per_seed) >= 2:
            pairs.append(pair)
            differences.append(per_seed)
            along.append(paired(blocks, pair))
    named = dict.fromkeys(
        name for pair in claim.pairs if pair not in pairs for name in pair if name
    )
    missing = tuple(name for name in named if len(values.get(name, {})) < 2)
    tested = tuple(_tested(claim, pairs, differences, along))
    return ClaimResult(claim, tested, missing)


def paired(values: Mapping[str, Mapping[int, float]], pair: Pair) -> list[float]:
    """A - B of the seeds that both have; an empty name is 0."""
    first, second = (values.get(name, {}) for name in pair)
    seeds = sorted((first or second).keys() & (second or first).keys())
    if any(name and not values.get(name) for name in pair):
        return []
    return [first.get(seed, 0.0) - second.get(seed, 0.0) for seed in seeds]


def _tested(
    claim: Claim,
    pairs: Sequence[Pair],
    differences: Sequence[Sequence[float]],  # by seed
    along: Sequence[Sequence[float]],  # by part of the stream; empty where seeds differ in it
) -> Iterable[Tested]:
    sides = [Side(float(np.mean(d)), float(np.std(d, ddof=1)), len(d)) for d in differences]
    if not sides:
        return
    deviations, freedoms = moderate(sides)
    for row, (pair, side) in enumerate(zip(pairs, sides, strict=True)):
        parts = [(deviations[row] ** 2 / side.runs, freedoms[row])]
        if count := len(along[row]):
            parts.append((float(np.var(along[row], ddof=1)) / count, count - 1))
        test = of_parts(side.mean, parts)
        above = _above(test, claim.by)
        if claim.kind == "more":
            p_for, p_against = above, 1 - above
        elif claim.kind == "not_less":
            p_for, p_against = _above(test, -claim.by), 1 - _above(test, 0.0)
        else:
            below = 1 - _above(test, -claim.by)
            # Inside: two one-sided tests; outside: either of them, with Bonferroni.
            p_for, p_against = 1 - min(above, below), min(1.0, 2 * min(above, below))
        yield Tested(pair, side.runs, side.mean, p_for, p_against, test.half)


def _above(test: Agreement, limit: float) -> float:
    """p of the null hypothesis that the true difference is `limit` or less."""
    t = (test.difference - limit) / test.error
    half = two_sided_p(t, test.freedom) / 2
    return half if t > 0 else 1 - half


def in_paper(claim: Claim) -> str:
    """Pairs of published numbers that are as claimed, without regard to their uncertainty."""
    if claim.elsewhere:
        return f"on {claim.elsewhere}"
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
        as_claimed = {
            "more": difference > claim.by,
            "not_less": difference >= 0,
            "within": abs(difference) < claim.by,
        }
        count += as_claimed[claim.kind]
    return f"{count} of {total}" if total else "only drawn"
