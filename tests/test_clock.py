from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.clock import Clock, as_cost, schedule
from streamgauge.errors import StreamgaugeError


def brute_force(cost: Fraction, steps: int) -> tuple[list[bool], list[int]]:
    """Walk through time tick by tick: end the job, reveal, answer, and start if idle."""
    trained, version = [False] * steps, [0] * steps
    done, ends = 0, None
    for tick in range(steps * cost.denominator):
        now = Fraction(tick, cost.denominator)
        if ends is not None and ends <= now:
            done, ends = done + 1, None
        newest = int(now)
        if now == newest:
            version[newest] = done
        if ends is None and not trained[newest]:
            trained[newest] = True
            ends = now + cost
    return trained, version


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=1000, deadline=None)
def test_schedule_equals_walking_through_time(top: int, bottom: int, steps: int) -> None:
    cost = Fraction(top, bottom)
    found = schedule(cost, steps)
    trained, version = brute_force(cost, steps)
    assert found.trained.tolist() == trained
    assert found.version.tolist() == version


def test_the_sequences_of_the_real_time_paper() -> None:
    assert schedule("4/3", 8).version.tolist() == [0, 0, 1, 2, 3, 3, 4, 5]
    assert schedule("4/3", 8, as_published=True).version.tolist() == [0, 1, 2, 2, 3, 4, 5, 5]
    assert schedule("5/2", 10).version.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert schedule("5/2", 10, True).version.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]
    for cost in ("4/3", "5/2"):  # the same batches are trained, only versions differ
        assert (schedule(cost, 40).trained == schedule(cost, 40, True).trained).all()
    assert schedule(3, 7, as_published=True).version.tolist() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(("cost", "share"), [(1, 4900), ("4/3", 3675), (2, 2450), ("5/2", 1960),
                                             (3, 1634), (6, 817)])  # fmt: skip
def test_trained_batches_of_4900_as_published(cost: str | int, share: int) -> None:
    assert schedule(cost, 4900).trained.sum() == share


def test_cost_below_one_trains_once_a_step_and_idles() -> None:
    found = schedule("1/3", 5)
    assert found.trained.all()
    assert found.version.tolist() == [0, 1, 2, 3, 4]


def test_costs_are_exact() -> None:
    assert as_cost(1.3333333333) == Fraction(4, 3)
    assert as_cost("4/3") == Fraction(4, 3)
    for wrong in ("0", "-1", "many", "1/0", float("inf"), float("nan")):
        with pytest.raises(StreamgaugeError, match="cost"):
            as_cost(wrong)
    with pytest.raises(StreamgaugeError, match="exact clock"):
        schedule("7/3", 10, as_published=True)


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 20))
def test_a_clock_taken_up_again_goes_on_alike(top: int, bottom: int, stop: int) -> None:
    whole, first, second = (Clock(Fraction(top, bottom)) for _ in range(3))
    expected = [(whole.finished(t), whole.begin(t)) for t in range(40)]
    head = [(first.finished(t), first.begin(t)) for t in range(stop)]
    second.load_state_dict(first.state_dict())
    tail = [(second.finished(t), second.begin(t)) for t in range(stop, 40)]
    assert head + tail == expected
