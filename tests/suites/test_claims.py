"""Claims of papers: what decides, by hand and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from streamgauge.metrics.student import two_sided_p
from streamgauge.suites import load, names
from streamgauge.suites.claims import Claim, claims, evaluate
from streamgauge.suites.measured import OTHER_CODE, Measured


def _claim(*pairs: tuple[str, str], kind: str = "more", by: float = 0.0) -> Claim:
    return Claim("P", "section", "text", "survey-cifar100", "Acc", pairs, kind, by=by)


def _rows(**values: list[float]) -> list[Measured]:
    return [
        Measured("", name, tuple(range(len(each))), {"Acc": tuple(each)}, "")
        for name, each in values.items()
    ]


def test_every_claim_names_rows_and_columns_of_its_suite() -> None:
    for claim in claims():
        assert claim.suite in names()
        rows = {row.name: row for row in load(claim.suite).rows if row.part == claim.part}
        for name in {name for pair in claim.pairs for name in pair} - {""}:
            assert claim.column in rows[name].columns, (claim.text, name)
        assert claim.kind == "more" or claim.by > 0


def test_a_pair_is_tested_seed_by_seed() -> None:
    a, b = [10.0, 20.0, 31.0], [9.0, 18.0, 28.0]  # differences 1, 2, 3
    (test,) = evaluate(_claim(("A", "B")), _rows(A=a, B=b)).tested
    t = 2.0 / (1.0 / math.sqrt(3))
    assert test.difference == pytest.approx(2.0)
    assert test.p_for == pytest.approx(two_sided_p(t, 2) / 2)
    assert test.p_against == pytest.approx(1 - test.p_for)
    (zero,) = evaluate(_claim(("", "A")), _rows(A=[-1.0, -2.0, -3.0])).tested
    assert zero.difference == pytest.approx(2.0)
    (inside,) = evaluate(_claim(("A", "B"), kind="within", by=4.0), _rows(A=a, B=b)).tested
    assert inside.p_for == pytest.approx(test.p_for)  # the nearer limit is 2 away as well


def test_verdicts() -> None:
    low, high = [1.0, 1.1, 0.9, 1.05], [3.0, 3.2, 2.9, 3.1]
    both = _claim(("A", "B"), ("A", "C"))
    assert evaluate(both, _rows(A=high, B=low, C=low)).verdict == "holds"
    assert evaluate(both, _rows(A=low, B=high, C=low)).verdict == "does not hold"
    assert evaluate(both, _rows(A=high, B=low, C=[3.1, 3.0, 3.05, 3.0])).verdict == "cannot tell"
    missing = evaluate(both, _rows(A=high, B=low))
    assert (missing.verdict, missing.missing) == ("cannot tell", ("C",))
    stale = _rows(A=high, B=low, C=low)
    stale[2] = Measured("", "C", (0, 1, 2, 3), {"Acc": tuple(low)}, "", remarks=(OTHER_CODE,))
    assert evaluate(both, stale).missing == ("C",)


@pytest.mark.parametrize(("true", "wrong"), [(0.0, "holds"), (0.0, "does not hold")])
def test_a_wrong_verdict_is_rare(true: float, wrong: str) -> None:
    """Six methods as good as ER: neither that it beats each of them nor that one beats it."""
    rng, trials, count = np.random.default_rng(1), 300, 0
    claim = _claim(*(("ER", f"m{i}") for i in range(6)))
    for _ in range(trials):
        common = rng.normal(0, 2, 5)
        values = {name: list(common + rng.normal(true, 1, 5)) for _, name in claim.pairs}
        values["ER"] = list(common + rng.normal(0, 1, 5))
        count += evaluate(claim, _rows(**values)).verdict == wrong
    assert count / trials <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / trials)


def test_not_beaten_is_shown_within_the_margin_and_refuted_at_0() -> None:
    claim = _claim(("A", "B"), kind="not_less", by=1.0)
    even, worse, better = [5.0, 5.2, 4.9, 5.1], [3.0, 3.1, 2.9, 3.05], [5.4, 5.7, 5.3, 5.6]
    assert evaluate(claim, _rows(A=even, B=[5.1, 5.0, 5.1, 4.9])).verdict == "holds"
    assert evaluate(claim, _rows(A=worse, B=even)).verdict == "does not hold"
    assert evaluate(claim, _rows(A=even, B=better)).verdict == "does not hold"  # by 0.4 to 0.5
    assert evaluate(claim, _rows(A=[5.0, 8.0], B=[6.0, 5.0])).verdict == "cannot tell"


def test_seeds_on_one_stream_do_not_hide_the_chance_of_the_stream() -> None:
    """Five seeds on one stream, whose ten parts favour A or B at random: the differences by seed
    agree with each other and say nothing of another stream. Batch means do."""
    rng, trials = np.random.default_rng(2), 300
    wrong = {"seeds alone": 0, "with blocks": 0}
    for _ in range(trials):
        parts = rng.normal(0, 2, 10)  # A - B in each part, the same for all seeds
        a = 30 + parts.mean() + rng.normal(0, 0.2, 5)
        rows = _rows(A=list(a), B=[30.0] * 5)
        for name, blocks in (("seeds alone", {}), ("with blocks", {"Acc": tuple(30 + parts)})):
            given = [replace(rows[0], blocks=blocks)]
            given.append(replace(rows[1], blocks={"Acc": (30.0,) * 10} if blocks else {}))
            wrong[name] += evaluate(_claim(("A", "B")), given).verdict != "cannot tell"
    assert wrong["seeds alone"] / trials > 0.5
    # Two one-sided verdicts at 5 % each.
    assert wrong["with blocks"] / trials <= 0.1 + 3.1 * math.sqrt(0.1 * 0.9 / trials)
