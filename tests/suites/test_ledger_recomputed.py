"""The ledger page once more, by other means: every judged number, every statement on a table and
every claim is computed from the text of the page and the recorded values alone.

Nothing of `streamgauge.suites` is used. Student's t is integrated numerically, quantiles are
bisected, digamma is a difference of log gamma, rotations are orthogonal matrices, and power is that
of the noncentral t distribution."""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "src" / "streamgauge" / "suites"
# Test samples behind a number: CIFAR's test set, and the answers of 4,900 batches of ten.
SAMPLES = {"Acc": 10_000, "Probed Acc": 10_000, "CIFAR10": 49_000, "CIFAR100": 49_000}
TABLES = 7  # published tables with judged numbers
INFINITE = 1e9


def within(t: float, freedom: float) -> float:
    """P(|T| <= t), with t = tan(angle) √freedom, by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    angle = np.linspace(0, math.atan(abs(t) / math.sqrt(freedom)), 801)
    weight = np.ones(801)
    weight[1:-1:2], weight[2:-1:2] = 4, 2
    area = float(np.sum(weight * np.cos(angle) ** (freedom - 1))) * (angle[1] - angle[0]) / 3
    return 2 * scale * area


@cache
def quantile(share: float, freedom: float) -> float:
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < share else (low, middle)
    return low


@cache
def digamma(x: float) -> float:
    return (math.lgamma(x + 1e-4) - math.lgamma(x - 1e-4)) / 2e-4


def holm(p: Sequence[float]) -> list[float]:
    """By its definition, one by one."""
    adjusted = [0.0] * len(p)
    largest = 0.0
    for rank, n in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        largest = min(1.0, max(largest, (len(p) - rank) * p[n]))
        adjusted[n] = largest
    return adjusted


@dataclass
class Group:
    """Some runs: mean, deviation (none: 0 runs behind it), and the least deviation there can be."""

    mean: float
    deviation: float
    runs: int
    known: bool = True
    least: float = 0.0


def raised(groups: Sequence[Group]) -> list[tuple[float, float]]:
    """Variance and degrees of freedom, as docs/suites.md says: one below the typical one is
    replaced by the mean of both, with twice its degrees of freedom."""
    known = [(max(g.deviation, g.least, 1e-9) ** 2, g.runs - 1) for g in groups if g.known]
    if not known:
        return [(math.nan, 0.0) for _ in groups]
    total = sum(freedom for _, freedom in known)
    logs = [d * (math.log(v) - digamma(d / 2) + math.log(d / 2)) for v, d in known]
    typical = math.exp(sum(logs) / total)
    made = []
    for g in groups:
        variance, freedom = max(g.deviation, g.least, 1e-9) ** 2, float(g.runs - 1)
        if not g.known:
            variance, freedom = typical, total / len(known)
        elif variance < typical and len(known) > 1:
            variance, freedom = (variance + typical) / 2, min(2 * freedom, total)
        made.append((max(variance, g.least**2), freedom))
    return made


@dataclass
class Line:
    """One line of a table of the page."""

    texts: dict[str, str]
    suite: str
    part: str
    theirs: int  # runs
    values: dict[int, float] = field(default_factory=dict)
    error: float = math.nan
    freedom: float = math.nan

    @property
    def column(self) -> str:
        return self.texts["column"]

    @property
    def defined(self) -> bool:
        return self.texts["verdict"] == "as defined"

    @property
    def published(self) -> Group:
        value, _, deviation = self.texts["published"].partition(" ± ")
        known = bool(deviation) and "misprint" not in deviation
        share = float(value) / 100
        least = 100 * math.sqrt(share * (1 - share) / SAMPLES.get(self.column, INFINITE))
        spread = float(deviation) if known else 0.0
        return Group(float(value), spread, self.theirs, known, least)

    @property
    def ours(self) -> Group:
        values = list(self.values.values())
        mean = statistics.mean(values)
        least = math.sqrt(mean * (100 - mean) / SAMPLES.get(self.column, INFINITE))
        return Group(mean, statistics.stdev(values), len(values), True, least)

    @property
    def rounding(self) -> float:
        """Variance of a value between two neighbours with the printed digits."""
        digits = len(self.texts["published"].partition(" ")[0].partition(".")[2])
        return 10.0 ** (-2 * digits) / 12

    @property
    def difference(self) -> float:
        return self.ours.mean - self.published.mean

    @property
    def p(self) -> float:
        return 1 - within(self.difference / self.error, self.freedom)

    @property
    def half(self) -> float:
        return quantile(0.95, self.freedom) * self.error


@cache
def results(suite: str) -> list[dict[str, Any]]:
    return tomllib.loads((SUITES / "results" / f"{suite}.toml").read_text())["result"]  # type: ignore[no-any-return]


@cache
def page() -> str:
    return (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")


def families() -> Iterator[tuple[str, list[Line]]]:
    """The lines with values of each published table, judged and as defined, and the section."""
    for section in page().split("\n## ")[1:]:
        suite = section.partition("\n")[0]
        for table in section.split("\n### ")[1:]:
            heading, _, body = table.partition("\n")
            found = re.search(r"\((one run|(\d+) seeds)\)$", heading)
            if not found:
                continue
            part = heading.split(": ")[0] if ": " in heading else ""
            rows = [r.strip("|").split("|") for r in body.splitlines() if r.startswith("| ")]
            head = [name.strip() for name in rows[0]]
            lines = []
            for row in rows[1:]:
                texts = dict(zip(head, (text.strip() for text in row), strict=True))
                line = Line(texts, suite, part, int(found[2] or 1))
                if texts["ours"] != "–":
                    (record,) = [
                        r
                        for r in results(suite)
                        if (r.get("part", ""), r["row"]) == (part, texts["row"])
                    ]
                    pairs = zip(record["seeds"], record["values"][line.column], strict=True)
                    line.values = dict(pairs)
                    lines.append(line)
            if lines:
                yield section, with_errors(lines)


def with_errors(lines: list[Line]) -> list[Line]:
    """With standard errors and degrees of freedom. Lines as defined change no other line."""
    for line in lines:
        column = [other for other in lines if other.column == line.column and not other.defined]
        column = [*column, line] if line.defined else column
        at = next(n for n, other in enumerate(column) if other is line)
        own, own_freedom = raised([other.ours for other in column])[at]
        if line.theirs > 1:
            other, other_freedom = raised([each.published for each in column])[at]
            parts = [
                (other / line.theirs, other_freedom),
                (own / len(line.values), own_freedom),
                (line.rounding, math.inf),
            ]
        else:
            parts = [(own * (1 + 1 / len(line.values)), own_freedom), (line.rounding, math.inf)]
        variance = sum(v for v, _ in parts)
        line.error = math.sqrt(variance)
        line.freedom = variance**2 / sum(v * v / d for v, d in parts)
    return lines


ALL = list(families())
JUDGED = [[line for line in lines if not line.defined] for _, lines in ALL]


def same_p(text: str, p: float) -> bool:
    """Whether p is printed so: two digits, or three close to 5 %."""
    if text == "< 0.001":
        return p < 0.001
    unit = 10.0 ** (math.floor(math.log10(max(float(text), 1e-9))) - 1)
    return abs(float(text) - p) <= 0.51 * unit


def same(text: str, value: float) -> bool:
    """Whether the value is printed so, with its digits."""
    unit = 10.0 ** -len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5001 * unit


def test_every_judged_number_of_the_page() -> None:
    assert len(ALL) == TABLES
    count = 0
    for _, lines in ALL:
        judged = [line for line in lines if not line.defined]
        adjusted = dict(zip(map(id, judged), holm([line.p for line in judged]), strict=True))
        others = [line for line in lines if line.defined]
        if others:
            beside = holm([line.p for line in [*judged, *others]])[len(judged) :]
            adjusted |= dict(zip(map(id, others), beside, strict=True))
        for line in lines:
            texts, name = line.texts, (line.suite, line.part, line.texts["row"], line.column)
            mean, _, deviation = texts["ours"].partition(" ± ")
            difference, _, half = texts["difference"].partition(" ± ")
            assert same(mean, line.ours.mean), name
            assert same(deviation, line.ours.deviation), name
            assert texts["seeds"] == str(len(line.values)), name
            assert same(difference, line.difference), name
            assert same(half, line.half), (name, line.half)
            assert same(texts["df"], line.freedom), (name, line.freedom)
            assert same_p(texts["p"], line.p), (name, line.p)
            assert same_p(texts["p, Holm"], adjusted[id(line)]), (name, adjusted[id(line)])
            if not line.defined:
                assert texts["verdict"].partition(":")[0] == verdict(line, adjusted[id(line)]), name
                assert ("before Holm" in texts["verdict"]) == (line.p <= 0.05 < adjusted[id(line)])
            count += 1
    assert count >= 135


def verdict(line: Line, adjusted: float) -> str:
    margin = float(line.texts["margin"])
    if adjusted <= 0.05:
        return "differs"
    if -margin <= line.difference - line.half and line.difference + line.half <= margin:
        return "equivalent"
    return "consistent" if line.half <= 2 else "uninformative"


def test_the_counts_of_the_first_screen() -> None:
    first = page().partition("\n## ")[0]
    verdicts = [line.texts["verdict"].partition(":")[0] for lines in JUDGED for line in lines]
    count = {word: verdicts.count(word) for word in set(verdicts)}
    good = count["equivalent"] + count["consistent"]
    assert f"**Compatible: {good} of {len(verdicts)}.** {count['equivalent']} are eq" in first
    assert f"**Differs: {count.get('differs', 0)} of {len(verdicts)}**" in first
    assert f"{count['uninformative']} were run and are uninformative" in first
    left = len(re.findall(r"^.* – .*\| not run \|$", page(), re.MULTILINE))
    assert f"{left} were not run" in first
    assert f"Of {len(verdicts) + left} published numbers, {len(verdicts)} were run" in first
    for count_of, words in ((True, "one published run"), (False, "several published runs")):
        part = [line for lines in JUDGED for line in lines if (line.theirs == 1) == count_of]
        alone = sum(line.p <= 0.05 for line in part)
        by_chance = f"({0.05 * len(part):.1f} or less by chance)"
        assert f"{alone} of the {len(part)} numbers with {words} {by_chance}" in first
    words = [row.split("|")[8].strip() for row in claim_lines()]
    assert f"**Claims: {len(words)}** statements" in first
    assert f"{words.count('holds')} hold," in first
    assert f"{words.count('cannot tell')} cannot be decided" in first


STATEMENT = re.compile(
    r": (\d+) of (\d+) cells by (\d+) seeds, χ² = ([\d.]+) where chance gives (\d+) "
    r"\(p (?:= )?([< \d.]+)\)\. Mean difference ([-+\d.]+) ± ([\d.]+) \(p (?:= )?([< \d.]+)\).*?"
    r"\. (\d+) of \d+ have p ≤ 5 %.*?difference of ([\d.]+) points .*? \(([\d.]+) to ([\d.]+)\)\."
    r"(?: Our deviations are ([\d.]+) ×)?"
)


@pytest.mark.parametrize("number", range(TABLES))
def test_every_statement_on_a_table(number: int) -> None:
    section, lines = ALL[number][0], JUDGED[number]
    of_section = [n for n, (s, _) in enumerate(ALL) if s == section]
    said = STATEMENT.findall(section.partition("Each table as a whole:")[2])
    assert len(said) == len(of_section)
    cells, _, seeds, chi2, by_chance, p, offset, half, offset_p, alone, mean, least, most, ratio = (
        said[of_section.index(number)]
    )
    common = sorted(set.intersection(*(set(line.values) for line in lines)))
    y = np.array([[line.values[seed] for seed in common] for line in lines])
    n, theirs = len(common), lines[0].theirs
    assert (int(cells), int(by_chance), int(seeds)) == (len(lines), len(lines), n)

    # χ²: a t test of each cell with the n - 1 Helmert contrasts of our seeds as its errors.
    share = 1 / n + 1 / theirs
    floors = [line.ours.least for line in lines]
    groups = [
        Group(statistics.mean(row), statistics.stdev(row), n, True, floor)
        for row, floor in zip(y, floors, strict=True)
    ]
    rounding = [line.rounding for line in lines]
    factor = [share + r / v for r, (v, _) in zip(rounding, raised(groups), strict=True)]
    difference = np.array([g.mean for g in groups]) - [line.published.mean for line in lines]
    contrasts = np.array([[1.0] * k + [-k] + [0.0] * (n - k - 1) for k in range(1, n)])
    contrasts /= np.sqrt((contrasts**2).sum(axis=1))[:, None]
    data = np.column_stack([difference / np.sqrt(factor), y @ contrasts.T])

    def loglikelihood(mean: np.ndarray, turned: np.ndarray) -> np.ndarray:
        """Of n normal values, the first of that mean, with the best variance from the floor on."""
        squares = (turned[..., 0] - mean) ** 2 + (turned[..., 1:] ** 2).sum(axis=-1)
        variance = np.maximum(squares / n, np.array(floors) ** 2)
        of_table: np.ndarray = (-n / 2 * np.log(variance) - squares / variance / 2).sum(axis=-1)
        return of_table

    def statistic(turned: np.ndarray) -> np.ndarray:
        return loglikelihood(turned[..., 0], turned) - loglikelihood(0, turned)

    turns = 4_000
    q, r = np.linalg.qr(np.random.default_rng(number).normal(size=(turns, n, n)))
    q *= np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    turned, observed = statistic(data @ q), float(statistic(data))
    chance = turned.mean() / len(lines)
    error = 4 * turned.std() / math.sqrt(turns) / turned.mean()  # of the page's rotations, too
    assert float(chi2) == pytest.approx(observed / chance, abs=0.06, rel=error)
    found = float(np.mean(turned >= observed))
    assert float(p.strip("< ")) == pytest.approx(found, abs=4 * math.sqrt(0.25 / turns) + 0.005)

    # The mean difference by Student's t.
    error = math.sqrt(statistics.variance(y.mean(axis=0)) * share + np.mean(rounding) / len(y))
    assert same(offset, float(difference.mean()))
    assert same(half, quantile(0.95, n - 1) * error)
    assert same_p(offset_p, 1 - within(difference.mean() / error, n - 1))
    assert int(alone) == sum(line.p <= 0.05 for line in lines)
    if ratio:
        pairs = [(line.ours.deviation, line.published) for line in lines]
        logs = [math.log(own / other.deviation) for own, other in pairs if other.known]
        assert same(ratio, math.exp(statistics.mean(logs)))

    # The stated approximation is within 5 % of the noncentral t distribution.
    needed = [line.error * shift(len(lines), round(line.freedom, 1)) for line in lines]
    for stated, exact in (
        (mean, statistics.mean(needed)),
        (least, min(needed)),
        (most, max(needed)),
    ):
        assert float(stated) == pytest.approx(exact, rel=0.05, abs=0.06)


@cache
def shift(cells: int, freedom: float) -> float:
    """The noncentrality at which |T| exceeds the first quantile of Holm with probability 80 %."""
    limit = quantile(1 - 0.05 / cells, freedom)
    s = np.linspace(1e-6, 6, 4001)  # a deviation of the true one: chi / √freedom
    log_density = (freedom - 1) * np.log(s) - freedom * s * s / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    low, high = 0.0, 10 * limit
    for _ in range(40):
        middle = (low + high) / 2
        above = [0.5 * math.erfc((limit * each - middle) / math.sqrt(2)) for each in s]
        low, high = (middle, high) if float(density @ above) < 0.8 else (low, middle)
    return low


def claim_lines() -> list[str]:
    section = page().partition("\n## Claims\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def one_sided(difference: float, limit: float, error: float, freedom: float) -> float:
    """p that the true difference is the limit or less."""
    inside = within((difference - limit) / error, freedom)
    return (1 - inside) / 2 if difference > limit else (1 + inside) / 2


def pairs_of(claim: dict[str, Any]) -> tuple[list[tuple[float, float]], int, bool]:
    """p for and against of each pair that was run; how many pairs there are; whether all were."""
    kind = next(k for k in ("more", "not_less", "within") if k in claim)
    limit = claim.get("by", 0.0)
    rows = {
        r["row"]: r for r in results(claim["suite"]) if r.get("part", "") == claim.get("part", "")
    }
    groups, along = [], []
    for pair in claim[kind]:
        if any(name and name not in rows for name in pair):
            continue
        values = [dict(zip(rows[name]["seeds"], rows[name]["values"][claim["column"]], strict=True))
                  if name else None for name in pair]  # fmt: skip
        seeds = set.intersection(*(set(v) for v in values if v is not None))
        a, b = values
        each = [(a[s] if a else 0.0) - (b[s] if b else 0.0) for s in sorted(seeds)]
        groups.append(Group(statistics.mean(each), statistics.stdev(each), len(each)))
        parts = [rows[name].get("blocks", {}).get(claim["column"], []) for name in pair if name]
        along.append([x - y for x, y in zip(*parts, strict=True)] if len(parts) == 2 else [])
    found = []
    for group, (variance, freedom), blocks in zip(groups, raised(groups), along, strict=True):
        of = [(variance / group.runs, freedom)]
        if blocks:
            of.append((statistics.variance(blocks) / len(blocks), len(blocks) - 1))
        total = sum(v for v, _ in of)
        error, df = math.sqrt(total), total**2 / sum(v * v / d for v, d in of)
        if kind == "more":
            p = one_sided(group.mean, limit, error, df)
            found.append((p, 1 - p))
        elif kind == "not_less":
            against = 1 - one_sided(group.mean, 0.0, error, df)
            found.append((one_sided(group.mean, -limit, error, df), against))
        else:
            high = one_sided(group.mean, limit, error, df)
            low = 1 - one_sided(group.mean, -limit, error, df)
            found.append((1 - min(high, low), min(1.0, 2 * min(high, low))))
    return found, len(claim[kind]), len(found) == len(claim[kind])


def test_every_claim_of_the_page() -> None:
    claims = tomllib.loads((SUITES / "claims" / "papers.toml").read_text())["claim"]
    p_for, p_against, papers = [], [], [claim["paper"] for claim in claims]
    for claim in claims:
        found, count, complete = pairs_of(claim)
        built = bool(claim.get("built"))
        p_for.append(max(p for p, _ in found) if found and complete and not built else 1.0)
        least = min((p for _, p in found), default=1.0)
        p_against.append(1.0 if built else min(1.0, count * least))
    holm_for, holm_against = [0.0] * len(claims), [0.0] * len(claims)
    for paper in set(papers):
        of = [n for n, other in enumerate(papers) if other == paper]
        for raw, adjusted in ((p_for, holm_for), (p_against, holm_against)):
            for n, p in zip(of, holm([raw[n] for n in of]), strict=True):
                adjusted[n] = p
    lines = claim_lines()
    assert len(lines) == len(claims) >= 40
    for n, (claim, line) in enumerate(zip(claims, lines, strict=True)):
        texts = [text.strip() for text in line.strip("|").split("|")]
        name = claim["text"]
        assert texts[0] == name
        word = "cannot tell"
        if claim.get("built"):
            word = "by construction"
        elif holm_against[n] <= 0.05:
            word = "does not hold"
        elif holm_for[n] <= 0.05:
            word = "holds"
        elif p_against[n] <= 0.05:
            word = "does not hold, taken alone"
        elif p_for[n] <= 0.05:
            word = "holds, taken alone"
        assert texts[7] == word, name
        for text, p, adjusted in (
            (texts[5], p_for[n], holm_for[n]),
            (texts[6], p_against[n], holm_against[n]),
        ):
            if text:
                alone, _, corrected = text.rstrip(")").partition(" (")
                assert same_p(alone, p), (name, text, p)
                assert same_p(corrected, adjusted), (name, text, adjusted)
            else:
                assert claim.get("built") or p == 1.0, name


def test_numbers_in_the_notes_of_the_real_time_suites() -> None:
    lines = [line for each in JUDGED for line in each if line.suite == "realtime-cifar10"]
    off = [line.difference for line in lines]
    note = next(text for text in page().splitlines() if "All published runs have one seed" in text)
    assert f"{sum(d > 0 for d in off)} of {len(off)} of ours lie high" in note
    assert f"by {statistics.mean(off):.1f} on average over the {len(off)}" in note
    ours = {
        (line.suite, line.part, line.texts["row"]): line for _, each in ALL for line in each
    }  # plain runs: benchmarks/realtime_plain.py
    small, large = "realtime-cifar10", "realtime-cifar100"
    note = next(text for text in page().splitlines() if "ER 52.7, slow MIR 56.6" in text)
    means = [ours[small, *key].ours.mean for key in (("fast", "ER"), ("slow", "MIR"))]
    assert f"ours are {means[0]:.1f} and {means[1]:.1f} on average" in note
    assert all(f"{ours[small, *key].published.mean:.2f}" in note
               for key in (("fast", "ER"), ("slow", "MIR")))  # fmt: skip
    for part, row, plain in (
        ("fast", "GSS", 6.4), ("slow", "RWalk, as defined", 12.1),
        ("fast", "RWalk, as defined", 9.1), ("slow", "ER++ 2", 17.1),
    ):  # fmt: skip
        assert abs(ours[large, part, row].ours.mean - plain) <= 0.2
    walk, defined = (ours[large, "slow", row] for row in ("RWalk", "RWalk, as defined"))
    below = f"{-walk.difference:.1f} points below the published 14.56"
    assert f"{below} (as defined {-defined.difference:.1f})" in page()
    note = f"p by Holm is {walk.texts['p, Holm']} within its table, and "
    everywhere = holm([line.p for lines in JUDGED for line in lines])
    over_all = min(everywhere)  # that of this row
    alone = 1 - within(walk.difference / (walk.ours.deviation * math.sqrt(4 / 3)), 2)
    assert f"{note}{over_all:.1g} if corrected" in page()
    assert f"with its own two, p is {alone:.2g} alone" in page()
    fast = ours[large, "fast", "RWalk"].ours
    assert max(ours[large, "fast", "RWalk"].values.values()) - fast.mean < 0.01
    assert f"49,000 independent answers have a deviation of {fast.least:.2f}" in page()


def test_every_column_and_table_of_the_page_is_explained() -> None:
    """Each table of numbers that were run has a caption or notes, and its columns a meaning."""
    meanings = page().partition("| column | meaning |")[2].partition("\n## ")[0]
    explained = [
        line.split("|")[1].strip() for line in meanings.splitlines() if line.count("|") > 2
    ]
    names = {name for key in explained for name in (key, *key.split(", "))}
    assert {line.column for _, lines in ALL for line in lines} <= names
    for section in page().split("\n## ")[1:]:
        for table in section.split("\n### ")[1:]:
            head = next((line for line in table.splitlines() if line.startswith("| row |")), "")
            columns = [text.strip() for text in head.strip("|").split("|")]
            if columns[:2] == ["row", "seeds"]:
                assert set(columns[2:]) <= names
            elif columns[:2] == ["row", "column"]:
                caption = table.partition("\n")[2].partition("| row |")[0].strip()
                assert len(caption) > 20, table[:80]
