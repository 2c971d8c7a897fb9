"""How many seeds or samples a comparison needs: closed forms, and that the power is reached."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics.compare import compare, estimate
from streamgauge.metrics.power import (
    NEIGHBOURS,
    Variances,
    detection,
    given,
    given_blocks,
    longer_needed,
    measured,
    seeds_needed,
    smallest_difference,
)


def test_seeds_of_the_paired_t_test_as_textbooks_print_them() -> None:
    """Cohen's d = 0.2, 0.5, 0.8, 1 with 5 % and a power of 80 % (G*Power: matched pairs)."""
    assert [seeds_needed(d, given(1.0)) for d in (0.2, 0.5, 0.8, 1.0)] == [199, 34, 15, 10]
    assert [seeds_needed(d, given(1.0), 0.95) for d in (0.5, 1.0)] == [54, 16]


@pytest.mark.parametrize("seeds", [3, 5, 30, 400])
@pytest.mark.parametrize("difference", [0.0, 0.05, 0.4])
def test_power_is_that_of_the_noncentral_t(seeds: int, difference: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    limit, centre = stats.t.ppf(0.975, seeds - 1), difference * math.sqrt(seeds)
    exact = stats.nct.sf(limit, seeds - 1, centre) + stats.nct.cdf(-limit, seeds - 1, centre)
    assert detection(difference, given(1.0), seeds) == pytest.approx(exact, abs=1e-6)
    assert detection(-difference, given(1.0), seeds) == pytest.approx(exact, abs=1e-6)


def test_samples_follow_the_closed_form() -> None:
    """Ten blocks: the error is deviation * sqrt(NEIGHBOURS / (10 F)); 3.1496 is the noncentrality
    at which t with 9 degrees of freedom has a power of 80 %."""
    stats = pytest.importorskip("scipy.stats")
    limit = stats.t.ppf(0.975, 9)
    assert stats.nct.sf(limit, 9, 3.1496) == pytest.approx(0.8, abs=2e-4)
    longer = longer_needed(0.5, given_blocks(1.0), 1)
    assert longer == pytest.approx(NEIGHBOURS / 10 * (3.1496 / 0.5) ** 2, rel=2e-3)


def test_the_error_of_a_comparison_is_that_of_its_variances() -> None:
    rng = np.random.default_rng(0)
    for seeds, blocks in ((1, 10), (4, 1), (3, 10), (8, 10)):
        for _ in range(20):
            a, b = rng.random((2, seeds, 200)) + rng.normal(0, 0.2, (2, seeds, 1))
            values = (a, b) if blocks > 1 else (a.mean(1), b.mean(1))
            found = compare(*values, blocks=blocks)
            assert measured(estimate(*values, blocks)).error(seeds) == pytest.approx(found.error)


def test_more_seeds_cannot_remove_what_differs_between_blocks() -> None:
    shared = Variances(seeds=0.0, blocks=1.0, both=0.0, block_count=10)
    assert seeds_needed(1.0, shared) is None
    assert longer_needed(1.0, shared, 3) == pytest.approx(3.16**2, rel=0.3)
    per_seed = Variances(seeds=1.0, blocks=0.0, both=0.0, block_count=10)
    assert longer_needed(0.1, per_seed, 3) is None
    assert seeds_needed(1.0, per_seed) == 10
    assert longer_needed(1.0, given(1.0), 3) is None  # one number per seed
    assert seeds_needed(1.0, given_blocks(1.0)) is None  # one seed does not tell


def test_smallest_difference_and_seeds_agree() -> None:
    variances = given(0.02)
    smallest = smallest_difference(variances, 12)
    assert detection(smallest, variances, 12) == pytest.approx(0.8, abs=1e-3)
    assert seeds_needed(smallest, variances) == 12
    assert seeds_needed(0.999 * smallest, variances) == 13
    assert seeds_needed(100 * smallest, variances) == 3


def test_few_pilot_seeds_ask_for_more_than_known_variances() -> None:
    values = np.array([-1.0, 0, 1])  # deviation 1
    pilot = measured(estimate(values, np.zeros(3)))
    assert pilot.seeds == pytest.approx(1.0)
    many = measured(estimate(np.tile(values, 400) * math.sqrt(1199 / 800), np.zeros(1200)))
    assert many.seeds == pytest.approx(1.0)
    few, known = seeds_needed(1.0, pilot), seeds_needed(1.0, many)
    assert few is not None
    assert known == seeds_needed(1.0, given(1.0)) == 10
    assert few > 15


def test_wrong_input_is_explained() -> None:
    with pytest.raises(StreamgaugeError, match=r"probability such as 0\.8"):
        seeds_needed(0.1, given(1.0), power=80)
    with pytest.raises(StreamgaugeError, match="above 0"):
        given(0.0)
    with pytest.raises(StreamgaugeError, match="run three seeds or more"):
        measured(estimate([0.5], [0.4]))


# --- simulated: the promised power is reached ------------------------------------------------


def share_found(rng: np.random.Generator, seeds: int, times: int) -> float:
    """Of experiments with a true difference of 1 and deviation 1."""
    return float(
        np.mean([compare(rng.normal(1, 1, seeds), np.zeros(seeds)).p < 0.05 for _ in range(times)])
    )


def test_given_deviations_reach_the_power() -> None:
    rng = np.random.default_rng(1)
    seeds = seeds_needed(1.0, given(1.0))
    assert seeds is not None
    assert share_found(rng, seeds, 1500) == pytest.approx(0.80, abs=0.035)
    longer = longer_needed(0.5, given_blocks(1.0), 1)
    assert longer is not None
    blocks = rng.normal(0.5, 1 / math.sqrt(longer), (1500, 10))
    found = np.mean([compare([row], [np.zeros(10)], 10).p < 0.05 for row in blocks])
    assert found == pytest.approx(0.80, abs=0.035)
    inflation = [
        10 * estimate([row], [np.zeros(10)], 10).variance for row in rng.normal(size=(1500, 10))
    ]
    assert np.mean(inflation) == pytest.approx(NEIGHBOURS, abs=0.06)


@pytest.mark.long
@pytest.mark.parametrize("pilot", [3, 5])
def test_pilot_seeds_reach_the_power(pilot: int) -> None:
    rng = np.random.default_rng(pilot)
    shares = []
    for _ in range(300):
        variances = measured(estimate(rng.normal(1, 1, pilot), np.zeros(pilot)))
        seeds = seeds_needed(1.0, variances)
        assert seeds is not None
        shares.append(share_found(rng, seeds, 5))
    assert 0.77 < np.mean(shares) < 0.87


@pytest.mark.long
def test_pilot_blocks_reach_the_power() -> None:
    rng = np.random.default_rng(4)
    shares = []
    for _ in range(300):
        longer = longer_needed(
            0.5, measured(estimate([rng.normal(0.5, 1, 10)], [np.zeros(10)], 10)), 1
        )
        assert longer is not None
        rows = rng.normal(0.5, 1 / math.sqrt(longer), (5, 10))
        shares += [compare([row], [np.zeros(10)], 10).p < 0.05 for row in rows]
    assert 0.76 < np.mean(shares) < 0.87


@pytest.mark.long
def test_pilot_seeds_and_blocks_reach_the_power() -> None:
    """Seeds and cells vary, blocks do not: some pilots cannot exclude that blocks do."""
    rng = np.random.default_rng(5)

    def cells(seeds: int) -> tuple[np.ndarray, np.ndarray]:
        values = 0.7 + rng.normal(0, 1, (seeds, 1)) + rng.normal(0, 1, (seeds, 10))
        return values, np.zeros_like(values)

    shares, unknown = [], 0
    for _ in range(150):
        seeds = seeds_needed(0.7, measured(estimate(*cells(4), 10)))
        if seeds is None:
            unknown += 1
            continue
        shares += [compare(*cells(seeds), 10).p < 0.05 for _ in range(4)]
    assert unknown < 30
    assert 0.77 < np.mean(shares) < 0.93
