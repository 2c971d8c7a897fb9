from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.cost.clock import Clock, PublishedClock, as_cost, schedule, updates_within
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
    def walk(clock: Clock, steps: range) -> list[tuple[int, bool]]:
        seen = []
        for step in steps:
            finished, free = clock.finished(step), clock.free_within(step)
            if free:
                clock.begin(step, Fraction(top, bottom))
            seen.append((finished, free))
        return seen

    whole, first, second = Clock("1/5"), Clock("1/5"), Clock("1/5")
    head = walk(first, range(stop))
    second.load_state_dict(first.state_dict())
    assert head + walk(second, range(stop, 40)) == walk(whole, range(40))


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 9))
def test_charged_prediction_takes_its_share_of_every_step(
    top: int, bottom: int, tenths: int
) -> None:
    """Brute force: answering comes first in every step, training gets what is left of it."""
    cost, share = Fraction(top, bottom), Fraction(tenths, 10)
    clock = Clock(share)
    done, work, seen = 0, Fraction(0), 0
    for step in range(30):
        seen += clock.finished(step)
        assert seen == done
        left = 1 - share
        if clock.free_within(step):
            clock.begin(step, cost)
            began = True
        else:
            began = False
        # The job in hand is worked on, then, in what is left of the step, the new one.
        spent = min(work, left)
        work, left = work - spent, left - spent
        if spent and work == 0:
            done += 1
        assert began == (work == 0 and left > 0)
        if began:
            work = cost
            spent = min(work, left)
            work -= spent
            if work == 0:
                done += 1
    with pytest.raises(StreamgaugeError, match="leaves nothing"):
        Clock(1)


def test_budgets() -> None:
    assert [updates_within(b, 1) for b in (1, 5, 10)] == [1, 5, 10]
    assert updates_within(5, 6) == 0


def test_no_version_answers_that_was_not_begun() -> None:
    clock = PublishedClock(Fraction(4, 3))
    clock.begin(0, Fraction(4, 3))
    assert [clock.finished(step) for step in range(4)] == [0, 1, 0, 0]  # the pattern has two
    clock.begin(4, Fraction(4, 3))
    assert clock.finished(4) == 1
