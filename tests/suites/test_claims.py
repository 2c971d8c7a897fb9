"""Claims of papers: what decides, by hand and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from streamgauge.history.student import quantile, two_sided_p
from streamgauge.suites import load, names
from streamgauge.suites.claims import Claim, ClaimResult, claims, evaluate, judged
from streamgauge.suites.measured import OTHER_CODE, Measured, recorded


def _claim(*pairs: tuple[str, str], kind: str = "more", by: float = 0.0) -> Claim:
    return Claim("P", "section", "text", "survey-cifar100", "Acc", pairs, kind, by=by)


def _rows(**values: list[float]) -> list[Measured]:
    return [
        Measured("", name, tuple(range(len(each))), {"Acc": tuple(each)}, "")
        for name, each in values.items()
    ]


def _decided(claim: Claim, rows: list[Measured]) -> ClaimResult:
    """As if it were the only claim of its paper."""
    return judged([evaluate(claim, rows)])[0]


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
    assert _decided(both, _rows(A=high, B=low, C=low)).verdict == "holds"
    assert _decided(both, _rows(A=low, B=high, C=low)).verdict == "does not hold"
    assert _decided(both, _rows(A=high, B=low, C=[3.1, 3.0, 3.05, 3.0])).verdict == "cannot tell"
    missing = _decided(both, _rows(A=high, B=low))
    assert (missing.verdict, missing.missing) == ("cannot tell", ("C",))
    stale = _rows(A=high, B=low, C=low)
    stale[2] = Measured("", "C", (0, 1, 2, 3), {"Acc": tuple(low)}, "", remarks=(OTHER_CODE,))
    assert evaluate(both, stale).missing == ("C",)


def test_p_by_hand_and_by_holm_within_a_paper() -> None:
    """The claim has the largest p of its pairs, its opposite the least by Holm. Over the claims of
    a paper, Holm: 3, 2 and 1 times the p-values in order. A claim with missing rows counts as 1."""
    rows = _rows(A=[3.0, 3.4, 2.6], B=[1.9, 1.1, 1.8], C=[2.5, 3.5, 2.4], D=[2.9, 3.0, 3.1])
    first = evaluate(_claim(("A", "B")), rows)
    second = evaluate(_claim(("A", "B"), ("A", "C")), rows)
    missing = evaluate(_claim(("A", "B"), ("A", "X")), rows)
    other = evaluate(replace(_claim(("D", "A")), paper="Q"), rows)
    assert first.p_for == first.tested[0].p_for
    assert second.p_for == max(test.p_for for test in second.tested)
    assert second.p_against == min(1.0, 2 * min(test.p_against for test in second.tested))
    assert (missing.p_for, missing.missing) == (1.0, ("X",))
    worse = evaluate(_claim(("B", "A"), ("B", "X"), ("B", "Y")), rows)
    assert worse.p_against == pytest.approx(3 * worse.tested[0].p_against)
    found = judged([first, other, second, missing])
    assert [result.claim for result in found] == [r.claim for r in (first, other, second, missing)]
    assert found[0].adjusted_for == pytest.approx(3 * first.p_for)
    assert found[1].adjusted_for == pytest.approx(other.p_for)  # of another paper, alone
    assert found[2].adjusted_for == pytest.approx(min(1.0, 2 * second.p_for))
    assert found[3].adjusted_for == 1.0
    assert 0.05 / 3 < first.p_for < 0.05  # so the correction decides
    assert found[0].verdict == "holds, taken alone"
    assert _decided(first.claim, rows).verdict == "holds"
    down = [evaluate(_claim(("B", "A")), rows), second, missing]
    assert judged(down)[0].verdict == "does not hold, taken alone"


def test_what_our_choices_make_true_is_no_test() -> None:
    """It has no verdict either way, and counts as p = 1 among the claims of its paper."""
    rows = _rows(A=[3.0, 3.2, 2.9, 3.1], B=[1.0, 1.1, 0.9, 1.05])
    for pair in (("A", "B"), ("B", "A")):
        built = replace(_claim(pair), built="chosen so")
        made, other = judged([evaluate(built, rows), evaluate(_claim(("A", "B")), rows)])
        assert (made.verdict, made.p_for, made.p_against) == ("by construction", 1.0, 1.0)
        assert made.exceptions == []
        assert other.adjusted_for == pytest.approx(2 * other.p_for)
    shift = [c for c in claims() if c.text.startswith("256 samples ahead")]
    assert [bool(c.built) for c in shift] == [True, True]


def test_a_wrong_verdict_is_rare_among_all_claims_of_a_paper() -> None:
    """Eight claims that are false by a hair, of rows that share their seeds. One by one, one or
    more of them holds in a quarter of the papers."""
    rng, trials = np.random.default_rng(6), 300
    given = [_claim((f"a{i}", f"b{i}")) for i in range(8)]
    alone = corrected = 0
    for _ in range(trials):
        common = rng.normal(0, 2, 5)
        names = [name for claim in given for name in claim.pairs[0]]
        rows = _rows(**{name: list(common + rng.normal(0, 1, 5)) for name in names})
        verdicts = [result.verdict for result in judged([evaluate(c, rows) for c in given])]
        alone += any(verdict.startswith("holds") for verdict in verdicts)
        corrected += "holds" in verdicts
    assert alone / trials > 0.2
    assert corrected / trials <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize(("true", "wrong"), [(0.0, "holds"), (0.0, "does not hold")])
def test_a_wrong_verdict_is_rare(true: float, wrong: str) -> None:
    """Six methods as good as ER: neither that it beats each of them nor that one beats it."""
    rng, trials, count = np.random.default_rng(1), 300, 0
    claim = _claim(*(("ER", f"m{i}") for i in range(6)))
    for _ in range(trials):
        common = rng.normal(0, 2, 5)
        values = {name: list(common + rng.normal(true, 1, 5)) for _, name in claim.pairs}
        values["ER"] = list(common + rng.normal(0, 1, 5))
        count += _decided(claim, _rows(**values)).verdict == wrong
    assert count / trials <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize(
    ("seeds", "deviations"), [(3, (0.3, 1.0, 0.3)), (3, (1.0, 1.0, 1.0)), (5, (0.3, 1.0, 0.3))]
)
def test_a_claim_that_is_false_in_one_pair_by_a_hair(
    seeds: int, deviations: tuple[float, ...]
) -> None:
    """A is as high as B and far above C: of all false claims the hardest to tell from a true one.
    benchmarks/criterion_rates.py --claims has the rates on 4,000 of them: at most 5.9 %."""
    rng, trials, count = np.random.default_rng(4), 400, 0
    claim = _claim(("A", "B"), ("A", "C"))
    for _ in range(trials):
        a, b, c = rng.normal(0, 2, seeds) + np.array(deviations)[:, None] * rng.normal(
            size=(3, seeds)
        )
        count += evaluate(claim, _rows(A=list(a), B=list(b), C=list(c - 50))).p_for <= 0.05
    assert count / trials <= 0.059 + 3.1 * math.sqrt(0.05 * 0.95 / trials)


def test_not_beaten_is_shown_within_the_margin_and_refuted_at_0() -> None:
    claim = _claim(("A", "B"), kind="not_less", by=1.0)
    even, worse, better = [5.0, 5.2, 4.9, 5.1], [3.0, 3.1, 2.9, 3.05], [5.4, 5.7, 5.3, 5.6]
    assert _decided(claim, _rows(A=even, B=[5.1, 5.0, 5.1, 4.9])).verdict == "holds"
    assert _decided(claim, _rows(A=worse, B=even)).verdict == "does not hold"
    assert _decided(claim, _rows(A=even, B=better)).verdict == "does not hold"  # by 0.4 to 0.5
    assert _decided(claim, _rows(A=[5.0, 8.0], B=[6.0, 5.0])).verdict == "cannot tell"


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
            wrong[name] += _decided(_claim(("A", "B")), given).verdict != "cannot tell"
    assert wrong["seeds alone"] / trials > 0.5
    # Two one-sided verdicts at 5 % each.
    assert wrong["with blocks"] / trials <= 0.1 + 3.1 * math.sqrt(0.1 * 0.9 / trials)


def test_parts_of_the_natural_streams_are_long_enough() -> None:
    """Standard errors by five parts are those by ten, on average over the pairs of all claims: if
    neighbouring parts were correlated, they would be larger."""
    rows = recorded("near-future-natural")
    fewer = [
        replace(
            row, blocks={c: tuple(np.reshape(v, (5, 2)).mean(1)) for c, v in row.blocks.items()}
        )
        for row in rows
    ]
    ratios = []
    for claim in claims():
        if claim.suite == "near-future-natural":
            ten, five = (evaluate(claim, given).tested for given in (rows, fewer))
            # Half of the 95 % interval in each; nearly all of the variance is that of the parts.
            ratios += [b.half / quantile(0.95, 4) / a.half * quantile(0.95, 9)
                       for a, b in zip(ten, five, strict=True)]  # fmt: skip
    assert len(ratios) > 30
    assert 0.85 < np.mean(ratios) < 1.15
