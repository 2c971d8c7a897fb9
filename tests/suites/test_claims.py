"""Claims of papers: what decides, by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamgauge.metrics.student import two_sided_p
from streamgauge.suites import load, names
from streamgauge.suites.claims import Claim, claims, evaluate
from streamgauge.suites.measured import OTHER_CODE, Measured


def _claim(*pairs: tuple[str, str], more: bool = True, by: float = 0.0) -> Claim:
    return Claim("P", "section", "text", "survey-cifar100", "Acc", pairs, more, by=by)


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
        assert claim.more or claim.by > 0


def test_a_pair_is_tested_seed_by_seed() -> None:
    a, b = [10.0, 20.0, 31.0], [9.0, 18.0, 28.0]  # differences 1, 2, 3
    (test,) = evaluate(_claim(("A", "B")), _rows(A=a, B=b)).tested
    t = 2.0 / (1.0 / math.sqrt(3))
    assert test.difference == pytest.approx(2.0)
    assert test.p_for == pytest.approx(two_sided_p(t, 2) / 2)
    assert test.p_against == pytest.approx(1 - test.p_for)
    (zero,) = evaluate(_claim(("", "A")), _rows(A=[-1.0, -2.0, -3.0])).tested
    assert zero.difference == pytest.approx(2.0)
    (inside,) = evaluate(_claim(("A", "B"), more=False, by=4.0), _rows(A=a, B=b)).tested
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
