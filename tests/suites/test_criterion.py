"""The ledger's criterion: closed forms and printed tables, and error rates by simulation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from streamgauge.metrics.student import quantile
from streamgauge.suites import published
from streamgauge.suites.criterion import (
    Agreement,
    Side,
    binomial_floor,
    chi2_p,
    compare_column,
    detectable,
    joint,
    judged,
    moderate,
    squared_correlations,
)

NAN = math.nan


def _side(values: np.ndarray, floor: float = 0.0) -> Side:
    return Side(float(values.mean()), float(values.std(ddof=1)), len(values), floor)


def test_quantiles_are_those_of_printed_tables() -> None:
    """Student 1908 and Fisher's tables: two-sided 5 % and 1 %; χ² upper tails."""
    for freedom, five, one in ((2, 4.303, 9.925), (4, 2.776, 4.604), (10, 2.228, 3.169)):
        assert quantile(0.95, freedom) == pytest.approx(five, abs=5e-4)
        assert quantile(0.99, freedom) == pytest.approx(one, abs=5e-4)
    for freedom, x in ((1, 3.841), (5, 11.070), (10, 18.307), (30, 43.773)):
        assert chi2_p(x, freedom) == pytest.approx(0.05, abs=1e-4)
    assert chi2_p(7.0, 2) == pytest.approx(math.exp(-3.5))


def test_two_means_are_compared_as_welch_does() -> None:
    """By hand: one row, so nothing is pooled; s1 = 1, s2 = 2, five runs each."""
    (test,) = compare_column([Side(30.0, 1.0, 5)], [Side(31.0, 2.0, 5)], [0.0])
    assert test.error == pytest.approx(math.sqrt(1 / 5 + 4 / 5))
    assert test.freedom == pytest.approx(1.0 / ((0.2**2 + 0.8**2) / 4))
    assert test.half == pytest.approx(quantile(0.95, test.freedom))
    assert test.difference == 1.0
    # t = 1 with 5.88 degrees of freedom: between the exact values for 5 and 6.
    assert 0.356 < test.p < 0.364


def test_one_published_run_is_compared_as_a_prediction() -> None:
    values = [29.0, 31.0, 30.0]
    (test,) = compare_column([Side(28.0, NAN, 1)], [_side(np.array(values))], [0.1])
    variance = statistics.variance(values) * (1 + 1 / 3) + 0.01 / 12
    assert test.error == pytest.approx(math.sqrt(variance))
    assert test.freedom == pytest.approx(2, rel=2e-3)  # rounding has no uncertainty of its own
    # Exactly, for two degrees of freedom: P(|T| > t) = 1 - t / sqrt(2 + t²).
    t = 2.0 / test.error
    assert test.p == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=2e-3)


def test_a_deviation_is_raised_by_its_column_and_never_below_the_binomial_one() -> None:
    sides = [Side(50, s, 5) for s in (1.0, 1.0, 1.0, 0.5, 5.0)] + [Side(50, NAN, 1)]
    deviations, freedom = moderate(sides)
    bias = -0.5772156649 + 1 - math.log(2)  # digamma(2) - log(2)
    typical = math.exp(np.mean(np.log([1, 1, 1, 0.25, 25])) - bias)
    assert deviations[3] == pytest.approx(math.sqrt((0.25 + typical) / 2))
    assert deviations[4] == pytest.approx(5.0)
    assert deviations[5] == pytest.approx(math.sqrt(typical))
    assert freedom.tolist() == [8, 8, 8, 8, 4, 4]
    assert binomial_floor(13.62, 49_000) == pytest.approx(0.155, abs=5e-4)
    floor = binomial_floor(50.0, 10_000)
    assert floor == pytest.approx(0.5)
    assert moderate([Side(50, 0.1, 5, floor)] * 3)[0].min() >= 0.5
    assert np.isnan(moderate([Side(50, NAN, 1)])[0]).all()


def test_holm_by_hand_and_the_words() -> None:
    # p of t = 4, 2.5 and 1 with many degrees of freedom, times 3, 2 and 1.
    tests = judged([Agreement(t, 1.0, 1e6) for t in (4.0, 2.5, 1.0)])
    assert [test.adjusted for test in tests] == pytest.approx(
        [3 * 6.334e-5, 2 * 0.012419, 0.317311], rel=1e-3
    )
    assert [test.verdict for test in tests] == ["differs", "differs", "consistent"]
    assert Agreement(0.2, 0.1, 1e6, adjusted=0.5).verdict == "equivalent"  # 0.2 + 0.196 <= 1
    assert Agreement(0.9, 0.1, 1e6, adjusted=0.5).verdict == "consistent"
    assert Agreement(0.0, 1.1, 1e6, adjusted=0.5).verdict == "uninformative"  # ± 2.16
    assert Agreement(0.3, 0.01, 1e6, adjusted=0.01).verdict == "differs"
    assert Agreement(0.3, 0.01, 1e6, adjusted=0.01).equivalent
    nothing = judged(compare_column([Side(1, NAN, 1)], [Side(2, NAN, 1)], [0.1]))
    assert nothing[0].verdict == "uninformative"


def test_a_misprinted_deviation_is_not_used() -> None:
    """Table 3 of the survey prints 9.3 ± 7.7 for MIR's WC-Acc."""
    number = published.number("survey-table3", "MIR", "WC-Acc")
    assert number is not None
    assert (number.value, number.deviation, bool(number.misprint)) == (9.3, 7.7, True)
    others = [
        other.deviation
        for table in ("survey-table2-cifar100", "survey-table3", "survey-table4")
        for (_, column), other in published.table(table).numbers.items()
        if column == "WC-Acc" and not other.misprint and other.deviation is not None
    ]
    assert max(others) == 1.6


def _columns(name: str) -> dict[str, list[tuple[float, float]]]:
    """Mean and deviation of the rows of each column of a published table."""
    columns: dict[str, list[tuple[float, float]]] = {}
    for (_, column), number in published.table(name).numbers.items():
        deviation = 0.8 if number.misprint else number.deviation
        assert deviation is not None
        columns.setdefault(column, []).append((number.value, deviation))
    return columns


def _binomial_5_of(trials: int) -> float:
    """The largest share that a rate of 5 % gives, with probability 99.9 %."""
    return 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_error_rates_on_the_surveys_table(shift: float) -> None:
    """Table 3 with its printed deviations as the true ones, five runs on each side, printed with
    one digit. Rows and columns of a seed are correlated in ours, as runs are. With a shift, every
    fourth cell is off by five of its deviations."""
    rng, trials = np.random.default_rng(7), 150
    false_alarms = joint_alarms = covered = cells = found = shifted = 0
    for _ in range(trials):
        tests: list[Agreement] = []
        truth: list[bool] = []
        runs = []
        common = rng.normal(size=5)
        for rows in _columns("survey-table3").values():
            theirs, ours = [], []
            for row, (mean, deviation) in enumerate(rows):
                off = shift if row % 4 == 0 else 0.0
                noise = math.sqrt(0.6) * common + math.sqrt(0.4) * rng.normal(size=5)
                values = mean + deviation * (noise + 5 * off)
                printed = rng.normal(mean, deviation, 5)
                theirs.append(
                    Side(round(printed.mean(), 1), round(printed.std(ddof=1), 1), 5, 0.03)
                )
                ours.append(_side(values))
                runs.append(dict(enumerate(values)))
                truth.append(off > 0)
            tests += compare_column(theirs, ours, [0.1] * len(ours))
        tests = judged(tests)
        differs = [test.adjusted <= 0.05 for test in tests]
        false_alarms += any(d and not t for d, t in zip(differs, truth, strict=True))
        found += sum(d and t for d, t in zip(differs, truth, strict=True))
        shifted += sum(truth)
        covered += sum(test.p > 0.05 for test, t in zip(tests, truth, strict=True) if not t)
        cells += len(tests) - sum(truth)
        joint_alarms += joint(tests, runs).p <= 0.05
    assert false_alarms / trials <= _binomial_5_of(trials)
    assert covered / cells >= 0.95
    if shift:
        assert joint_alarms / trials > 0.95
        assert found / shifted > 0.6
    else:
        assert joint_alarms / trials <= _binomial_5_of(trials)


@pytest.mark.parametrize(
    "deviations",
    [
        (0.65, 0.47, 0.82, 1.29, 0.40, 2.19, 0.38),  # as fast CIFAR10
        (0.6,) * 7,
        (1.0,) * 6 + (10.0,),
        (1.0,) * 3 + (3.0,) * 4,
    ],
)
@pytest.mark.parametrize("seeds", [3, 10])
def test_error_rates_where_one_run_is_published(deviations: tuple[float, ...], seeds: int) -> None:
    """All published runs have one seed, which moves all rows by half their least deviation."""
    rng, trials = np.random.default_rng(seeds), 300
    common = min(deviations) / 2
    false_alarms = rest_alarms = offset_alarms = 0
    missed = np.zeros(len(deviations))
    for _ in range(trials):
        moved = rng.normal(0, common, seeds + 1)
        values = [
            rng.normal(0, math.sqrt(s * s - common**2), seeds + 1) + moved for s in deviations
        ]
        theirs = [Side(float(row[0]), NAN, 1) for row in values]
        tests = judged(
            compare_column(theirs, [_side(row[1:]) for row in values], [0.01] * len(values))
        )
        false_alarms += any(test.adjusted <= 0.05 for test in tests)
        missed += [test.p <= 0.05 for test in tests]
        both = joint(tests, [dict(enumerate(row[1:])) for row in values], shared_seed=True)
        rest_alarms += both.p <= 0.05
        offset_alarms += both.offset_p <= 0.05
    assert false_alarms / trials <= _binomial_5_of(trials)
    assert rest_alarms / trials <= _binomial_5_of(trials)
    assert abs(offset_alarms / trials - 0.05) <= _binomial_5_of(trials) - 0.05
    assert missed.max() / trials <= 0.09  # also for the row that varies most


def test_the_power_that_is_stated_is_the_power() -> None:
    """Ten rows of equal deviation, five runs on each side; one is off by what is called found with
    probability 80 %. The typical deviation is uncertain, and Holm asks less than the first step
    of it, hence the width."""
    rng, trials = np.random.default_rng(3), 200
    found, stated = 0, []
    for _ in range(trials):
        sides = [[_side(rng.normal(0, 1, 5)) for _ in range(10)] for _ in range(2)]
        if len(stated) < 20:
            stated.append(detectable(compare_column(*sides, [0.0] * 10)))
    off = float(np.median(stated))
    for _ in range(trials):
        theirs = [_side(rng.normal(0, 1, 5)) for _ in range(10)]
        ours = [_side(rng.normal(off if row == 0 else 0.0, 1, 5)) for row in range(10)]
        found += judged(compare_column(theirs, ours, [0.0] * 10))[0].adjusted <= 0.05
    assert 0.7 < found / trials < 0.92


def test_correlated_cells_have_fewer_degrees_of_freedom() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=5)
    assert squared_correlations(np.array([one, 2 * one + 3, -one])) == pytest.approx(9.0)
    # 30 independent cells of 5 seeds: r² is 1/4 by chance, which is taken off.
    sums = [squared_correlations(rng.normal(size=(30, 5))) for _ in range(50)]
    assert 30 <= np.mean(sums) < 45
    test = Agreement(2.0, 1.0, 1e6)
    copies = joint([test] * 3, [dict(enumerate(one))] * 3)
    assert copies.p == pytest.approx(test.p, rel=1e-3)  # three times the same is one


@pytest.mark.parametrize("true", [1.0, -1.0])
def test_equivalence_is_rarely_claimed_where_there_is_none(true: float) -> None:
    """TOST at 2.5 %: the true difference of every cell is the margin, or more. Five runs on each
    side, deviations of 0.1 to 0.4, so that cells within the margin are called equivalent."""
    rng, trials = np.random.default_rng(5), 100
    deviations = (0.1, 0.2, 0.2, 0.3, 0.4)
    wrong = power = 0
    for _ in range(trials):
        theirs = [_side(rng.normal(30, s, 5)) for s in deviations]
        ours = [_side(rng.normal(30 + true, s, 5)) for s in deviations]
        wrong += sum(test.equivalent for test in compare_column(theirs, ours, [0.0] * 5))
        same = [_side(rng.normal(30, s, 5)) for s in deviations]
        power += sum(test.equivalent for test in compare_column(theirs, same, [0.0] * 5))
    cells = trials * len(deviations)
    assert wrong / cells <= 0.025 + 3.1 * math.sqrt(0.025 * 0.975 / cells)
    assert power / cells > 0.9
