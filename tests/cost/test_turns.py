from __future__ import annotations

import itertools

import numpy as np
import pytest

from streamgauge.cost.turns import LEAST, MOST, TurnSeconds, most_pairs, time_in_turns


def test_a_job_is_compared_with_the_reference_of_its_own_pair() -> None:
    """The load grows in the middle: all times of one, then all of the other, would give 4."""
    load = np.repeat([1.0, 8.0, 1.0], [30, 60, 200])
    rng, clock = np.random.default_rng(0), itertools.count()

    def job(work: float) -> float:
        return work * load[next(clock)] * rng.lognormal(0, 0.05)

    turns = time_in_turns(lambda: job(2.0), lambda: job(1.0))
    low, high = turns.interval
    assert LEAST <= len(turns.own) <= most_pairs(1)
    assert low < turns.ratio < high
    assert turns.ratio == pytest.approx(2, rel=0.05)


def test_the_interval_holds_the_median_in_95_per_cent() -> None:
    rng, held, times = np.random.default_rng(1), 0, 2000
    for _ in range(times):
        own = rng.lognormal(np.log(3.0), 0.8, 15)
        low, high = TurnSeconds(tuple(own), (1.0,) * 15).interval
        held += low <= 3.0 <= high
    assert 0.95 <= held / times < 0.99


def test_a_busy_machine_is_told_from_an_idle_one() -> None:
    rng = np.random.default_rng(2)
    quiet = TurnSeconds(tuple(rng.normal(2, 0.02, 20)), tuple(rng.normal(1, 0.02, 20)))
    assert not quiet.busy
    slower = rng.lognormal(0, 1.0, 20)  # both alike: the ratio is known, seconds are not
    assert TurnSeconds(tuple(2 * slower), tuple(slower)).busy
    apart = TurnSeconds(tuple(rng.lognormal(0, 1.0, 20)), tuple(rng.normal(1, 0.02, 20)))
    assert apart.busy
    nothing = TurnSeconds(tuple(1e-4 * rng.lognormal(0, 1.0, 20)), tuple(rng.normal(1, 0.02, 20)))
    assert not nothing.busy  # next to nothing, whatever it is exactly


def test_a_pair_is_a_whole_cycle_and_each_comes_first_in_turn() -> None:
    calls: list[str] = []
    turn = itertools.count()

    def own() -> float:
        calls.append("own")
        return float(next(turn) % 3)  # a cycle of three

    def reference() -> float:
        calls.append("reference")
        return 1.0

    turns = time_in_turns(own, reference, jobs=3)
    assert set(turns.own) == {1.0}
    assert len(calls) == 6 * LEAST
    assert calls[:4] == ["reference", "own", "own", "reference"]


def test_by_default_a_pair_is_one_job_of_each() -> None:
    calls: list[str] = []

    def job(name: str) -> float:
        calls.append(name)
        return 1.0

    time_in_turns(lambda: job("own"), lambda: job("reference"), seconds=0)
    assert calls[:4] == ["reference", "own", "own", "reference"]
    assert len(calls) == 2 * LEAST


def test_more_jobs_per_pair_are_fewer_pairs() -> None:
    assert most_pairs(1) == MOST
    assert most_pairs(4) == MOST // 4
    assert most_pairs(10 * MOST) == LEAST
