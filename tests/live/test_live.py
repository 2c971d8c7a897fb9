"""Live runs of stored streams: the rules by a clock nobody waits for, then real seconds."""

from __future__ import annotations

import importlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from helpers import Spy, small_stream
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live import find_rate, live, rates_text, summarise, summary_text
from streamgauge.live.dispatcher import Dispatcher, Lost, TrainingRequest, Update
from streamgauge.live.journal import Journal
from streamgauge.live.rate import Trial, confirmed_rate, search
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.stored_stream import Player, WallClock, beginning, repeated
from streamgauge.live.trainer import (
    BackgroundTrainer,
    LocalTrainer,
    ProcessBackend,
    Setup,
    ThreadBackend,
    pack,
    stored_addresses,
    unpack,
)
from streamgauge.record import Run
from streamgauge.record.diff import differences
from streamgauge.streams import Gate, Stream

CPU = torch.device("cpu")
NONE = np.empty(0, np.int64)


class FakeClock:
    """Time that passes only where someone waits, and in exact fractions."""

    def __init__(self) -> None:
        self.time = Fraction(0)
        self.trainer: FakeTrainer | None = None

    def now(self) -> Fraction:
        return self.time

    def wait(self, until: Fraction) -> None:
        ends = self.trainer.ends if self.trainer is not None else None
        self.time = until if ends is None or ends >= until else max(ends, self.time)


class FakeTrainer:
    """Takes exactly so long for a job, and really learns when it is over."""

    def __init__(self, clock: FakeClock, seconds: Callable[[TrainingRequest], Fraction]) -> None:
        self.clock, self.seconds = clock, seconds
        self.learnt: list[int] = []
        self.jobs: list[TrainingRequest] = []
        self.ends: Fraction | None = None
        self.outcome: Update | Lost | None = None
        clock.trainer = self

    def begin(self, job: TrainingRequest) -> None:
        assert self.ends is None, "a second job while one is being done"
        self.jobs.append(job)
        self.ends = self.clock.time + self.seconds(job)

    def collect(self) -> Update | Lost | None:
        if self.ends is None or self.ends > self.clock.time:
            return None
        self.ends = None
        if self.outcome is not None:
            outcome, self.outcome = self.outcome, None
            return outcome
        self.learnt.append(self.jobs[-1].step)
        state = {"learnt": len(self.learnt)}
        return Update(state, {"loss": 1.5, "recalled": 2.0}, 0.5, 64.0, NONE)


def journal_of(stream: Stream) -> Journal:
    absent = {"task"} - ({"task"} if stream.task is not None else set())
    return Journal(None, frozenset(absent), every=1e9)


def played(
    stream: Stream,
    cost: Callable[[TrainingRequest], Fraction] | Fraction,
    rate: Fraction = Fraction(5),
    shifts: tuple[int, ...] = (),
    keep: int = 4,
    kind: type = Spy,
    **options: Any,
) -> tuple[Player, FakeTrainer, Journal]:
    clock = FakeClock()
    trainer = FakeTrainer(clock, cost if callable(cost) else lambda job: cost)
    gate = Gate(stream.source, stream.preparation, CPU)
    journal = journal_of(stream)
    make = lambda: kind(stream.spec, gate, 0, CPU)  # noqa: E731
    player = Player(
        stream, make(), make, gate, Dispatcher(trainer), journal, clock, rate, CPU,
        Snapshots(shifts, keep), **options,
    )  # fmt: skip
    player.play()
    journal.close()
    return player, trainer, journal


def shown(journal: Journal, shift: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rows = journal.rows["predictions"]
    keep = rows.peek("shift") == shift
    return {name: rows.peek(name)[keep] for name in rows.columns}


# The rules.


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30))
def test_a_trainer_of_constant_cost_keeps_the_schedule_of_the_clock(
    numerator: int, denominator: int, steps: int
) -> None:
    """A step of 5 samples at 5 samples a second lasts one second, so cost and seconds agree."""
    cost = Fraction(numerator, denominator)
    player, trainer, journal = played(small_stream(steps), cost)
    wanted = sg.schedule(cost, steps)
    version = shown(journal)["version"].reshape(steps, 5)
    np.testing.assert_array_equal(version, np.repeat(wanted.version[:, None], 5, axis=1))
    begun = np.zeros(steps, bool)
    begun[[job.step for job in trainer.jobs]] = True
    np.testing.assert_array_equal(begun, wanted.trained)
    assert player.dispatcher.offered == steps
    assert player.dispatcher.finished == len(trainer.learnt)
    assert player.clock.now() == steps


def test_the_log_equals_that_of_the_simulated_run(tmp_path: Path) -> None:
    """Same learner, same cost: the same rows, whether time is simulated or passes."""
    stream = small_stream(12)
    run = sg.run(
        stream, Spy, protocol=sg.Protocol(cost="5/2", evaluate="never"), out=tmp_path, log=str
    )
    _, _, journal = played(stream, Fraction(5, 2))
    for name in run.predictions:
        np.testing.assert_array_equal(shown(journal)[name], run.predictions[name], err_msg=name)
    for name in ("step", "version", "kind"):
        np.testing.assert_array_equal(journal.rows["jobs"].peek(name), run.jobs[name])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.fractions(Fraction(1, 10), 5), min_size=20, max_size=20))
def test_jobs_of_any_length_take_the_newest_batch(costs: list[Fraction]) -> None:
    """Against a simulation that knows all ends in advance, with a cost for each job in turn."""
    steps, free, number = 20, Fraction(0), 0
    trained, ends = [], []
    while number < len(costs):
        # The first batch not taken yet that is there when the trainer is free, or comes then.
        step = max(math.floor(free), trained[-1] + 1 if trained else 0)
        if step >= steps:
            break
        free = max(free, Fraction(step)) + costs[number]
        trained.append(step)
        ends.append(free)
        number += 1
    order = iter(costs)
    _, trainer, journal = played(small_stream(steps), lambda job: next(order))
    assert [job.step for job in trainer.jobs] == trained
    version = shown(journal)["version"][::5]
    assert version.tolist() == [sum(end <= step for end in ends) for step in range(steps)]


def test_an_answer_that_comes_late_is_late_by_what_the_clock_says() -> None:
    class Slow(Spy):
        clock: FakeClock

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            Slow.clock.time += Fraction(3, 10)
            return super().predict(x)

    stream = small_stream(4)
    clock = FakeClock()
    Slow.clock = clock
    trainer = FakeTrainer(clock, lambda job: Fraction(10))
    gate = Gate(stream.source, stream.preparation, CPU)
    journal = journal_of(stream)
    learner = Slow(stream.spec, gate, 0, CPU)
    player = Player(stream, learner, lambda: learner, gate, Dispatcher(trainer), journal, clock,
                    Fraction(20), CPU, Snapshots((), 0))  # fmt: skip
    player.play()  # a step every quarter of a second, an answer takes 0.3
    timing = journal.rows["timing"]
    late = timing.peek("seconds")[timing.peek("part") == "latency"]
    np.testing.assert_allclose(late, [0.30, 0.35, 0.40, 0.45])
    assert player.ended == Fraction(12, 10)


def test_answers_that_fall_too_far_behind_end_the_run() -> None:
    class Slow(Spy):
        clock: FakeClock

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            Slow.clock.time += 2
            return super().predict(x)

    stream = small_stream(10)  # its time is 10 s, and every answer takes 2
    clock = FakeClock()
    Slow.clock = clock
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = Slow(stream.spec, gate, 0, CPU)
    trainer = FakeTrainer(clock, lambda job: Fraction(1))
    player = Player(stream, learner, lambda: learner, gate, Dispatcher(trainer), journal_of(stream),
                    clock, Fraction(5), CPU, Snapshots((), 0), late=3.0)  # fmt: skip
    player.play()
    assert "behind" in player.stopped
    assert player.step == 7  # the last answer that began before 10 + 3 s


def test_a_lost_job_changes_nothing_and_what_it_was_told_is_told_again() -> None:
    class Needy(Spy):
        needs = frozenset({"boundaries"})

    stream = small_stream(12, order="classes", tasks=4)
    first_of_task = np.flatnonzero(np.diff(stream.task, prepend=-1)).tolist()
    clock = FakeClock()
    trainer = FakeTrainer(clock, lambda job: Fraction(5, 2))
    trainer.outcome = Lost("killed by SIGKILL")
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = Needy(stream.spec, gate, 0, CPU)
    journal = journal_of(stream)
    player = Player(stream, learner, lambda: learner, gate, Dispatcher(trainer), journal, clock,
                    Fraction(5), CPU, Snapshots((), 0))  # fmt: skip
    player.play()
    assert player.dispatcher.lost == 1
    rows = shown(journal)
    when = stream.starts[rows["step"]] / 5  # seconds
    np.testing.assert_array_equal(rows["version"][when < 7.5], (when >= 5)[when < 7.5])
    told = [[facts["boundary"] for facts in job.facts] for job in trainer.jobs]
    steps = [job.step for job in trainer.jobs]
    assert told[0] == [0]
    assert told[1][0] == 0  # again, since the first job was lost
    assert list(chain.from_iterable(told[1:])) == [
        task for task, step in enumerate(first_of_task) if step <= steps[-1]
    ]


def test_a_trainer_that_is_gone_for_good_leaves_the_last_version() -> None:
    stream = small_stream(9)
    clock = FakeClock()
    trainer = FakeTrainer(clock, lambda job: Fraction(1))
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = Spy(stream.spec, gate, 0, CPU)
    journal = journal_of(stream)
    dispatcher = Dispatcher(trainer)

    def progress(player: Any) -> None:
        if player.step == 4:
            trainer.outcome = Lost("killed", permanent=True)

    player = Player(stream, learner, lambda: learner, gate, dispatcher, journal, clock, Fraction(5),
                    CPU, Snapshots((), 0), progress=progress)  # fmt: skip
    player.play()
    assert player.step == 9
    assert shown(journal)["version"][::5].tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 3]
    assert dispatcher.skipped == 9 - 3 - 1  # the last batch still waits
    assert len(trainer.jobs) == 4


def test_only_one_batch_waits() -> None:
    clock = FakeClock()
    dispatcher = Dispatcher(FakeTrainer(clock, lambda job: Fraction(10**9)))
    for step in range(1000):
        dispatcher.offer(TrainingRequest(step, np.arange(3)))
        dispatcher.dispatch(clock.now())
    assert dispatcher.training is not None
    assert dispatcher.waiting is not None
    assert (dispatcher.training.step, dispatcher.waiting.step) == (0, 999)
    assert dispatcher.skipped == 998


# Near future.


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=3, unique=True),
    st.integers(1, 8),
    st.lists(st.integers(1, 7), min_size=5, max_size=60),
)
def test_snapshots_are_few_and_answer_the_first_step_that_is_far_enough(
    shifts: list[int], keep: int, lengths: list[int]
) -> None:
    starts = [0, *np.cumsum(lengths)[:-1].tolist()]
    kept = Snapshots(shifts, keep)
    taken: dict[int, int] = {}
    answered: list[tuple[int, int]] = []
    for number, start in enumerate(starts):
        for due in kept.begin(start, number, {"number": number}):
            assert due.state == {"number": due.version}
            assert due.age == start - starts[due.version]
            # Of the shifts one is reached here and was not reached a step before.
            before = starts[number - 1] - starts[due.version]
            assert any(before < shift <= due.age for shift in shifts)
            answered.append((due.version, number))
        assert len(kept) <= keep
        taken[number] = start
    assert len(set(answered)) == len(answered)
    # Whoever answered once answers for every shift that the stream is long enough for.
    for version in {version for version, _ in answered}:
        reached = {
            min(n for n, s in enumerate(starts) if s - starts[version] >= shift)
            for shift in shifts
            if starts[-1] - starts[version] >= shift
        }
        assert {number for v, number in answered if v == version} == reached


def test_enough_snapshots_give_what_looking_ahead_gives(tmp_path: Path) -> None:
    """With a version kept at every step a live run knows exactly what a simulated one knows."""
    stream = small_stream(20)
    protocol = sg.Protocol(cost="3/2", shifts=(12, 30), evaluate="never")
    run = sg.run(stream, Spy, protocol=protocol, out=tmp_path, log=str)
    _, _, journal = played(stream, Fraction(3, 2), shifts=(12, 30), keep=6)
    for shift, age in ((12, 15), (30, 30)):  # the age is the shift in whole steps
        mine, theirs = shown(journal, age), run.predictions["shift"] == shift
        assert theirs.any()
        order = np.argsort(mine["step"], kind="stable")
        for name in ("step", "sample", "prediction", "version"):
            there = run.predictions[name][theirs]
            by_step = np.argsort(run.predictions["step"][theirs], kind="stable")
            np.testing.assert_array_equal(mine[name][order], there[by_step], err_msg=name)


def test_snapshots_are_refused_where_they_make_no_sense() -> None:
    with pytest.raises(sg.StreamgaugeError, match="above 0"):
        Snapshots((0,), 4)
    with pytest.raises(sg.StreamgaugeError, match="at least one snapshot"):
        Snapshots((5,), 0)


# Parts.


def test_a_state_survives_the_journey_and_shares_nothing() -> None:
    stream = small_stream(2)
    gate = Gate(stream.source, np.arange(10), CPU)
    learner = sg.learner("er", momentum=0.9).build(stream.spec, gate, 0, CPU)
    index = np.arange(5)
    learner.learn(sg.Batch(gate.read(index), gate.label(index), index), None)
    state = learner.state_dict()
    copy = unpack(pack(state))
    other = sg.learner("er", momentum=0.9).build(stream.spec, gate, 1, CPU)
    other.load_state_dict(copy)
    x = gate.read(np.arange(5, 10))
    assert torch.equal(other.predict(x), learner.predict(x))
    before = other.predict(x)
    learner.learn(sg.Batch(gate.read(index), gate.label(index), index), None)
    assert torch.equal(other.predict(x), before)
    assert stored_addresses(LearnerAdapter(learner)).tolist() == [0, 1, 2, 3, 4]


def test_a_learner_that_keeps_a_batch_comes_back_with_it() -> None:
    """Its state names samples that it reads when it is loaded: they must be known by then."""
    stream = small_stream(4)
    recipe = sg.learner("er_batch", train_batch=8)
    setup = Setup(stream.spec, stream.source, 5)
    trainer = LocalTrainer(recipe, setup)
    state = unpack(pack(trainer.train(TrainingRequest(0, stream.index(0))).state))
    assert stored_addresses(trainer.adapter).tolist() == stream.index(0).tolist()
    other = LocalTrainer(recipe, setup, state, known=stream.index(0))
    one, two = (b.train(TrainingRequest(1, stream.index(1))) for b in (trainer, other))
    assert one.scalars == two.scalars
    assert one.scalars["steps"] == 1
    with pytest.raises(sg.StreamgaugeError, match="not revealed yet"):
        LocalTrainer(recipe, setup, state)


def test_the_beginning_of_a_stream_is_what_its_time_reveals() -> None:
    stream = small_stream(10, order="classes", tasks=2)
    for samples in (1, 5, 5.001, 23, 49.9):
        part = beginning(stream, samples)
        assert len(part) == sum(stream.starts[:-1] < samples)
        for step in range(len(part)):
            np.testing.assert_array_equal(part.index(step), stream.index(step))
        assert part.task is not None
        assert len(part.task) == len(part)
    assert beginning(stream, 1e9) is stream
    assert beginning(stream, None) is stream
    with pytest.raises(sg.StreamgaugeError, match="longer than 0"):
        beginning(stream, 0)


def test_a_repeated_stream_starts_over() -> None:
    stream = small_stream(4, batch=6)
    longer = repeated(stream, 61)
    assert len(longer) == 11
    for step in range(11):
        np.testing.assert_array_equal(longer.index(step), stream.index(step % 4))


@pytest.mark.parametrize("limit", [0.01, 3.0, 47.0, 5000.0])
@pytest.mark.parametrize("guess", [1.0, 300.0, 1e5])
def test_the_search_ends_just_below_what_can_be_held(limit: float, guess: float) -> None:
    tried: list[float] = []

    def run(rate: float) -> Trial:
        tried.append(rate)
        held = rate <= limit
        return Trial(rate, 0.0, 0.0, min(rate, 0.97 * limit), 1.0, held, held)

    found = search(run, lambda t: t.answered, lambda t: t.reached, guess)
    if guess == 1.0 and limit == 5000.0:  # too far above the guess for so few trials
        assert found >= 1.5**11 * 0.999
    else:
        assert limit / 1.1 <= found <= limit
    assert len(tried) <= 12


def test_the_search_knows_what_was_tried_and_that_nothing_may_be_slow_enough() -> None:
    def run(rate: float) -> Trial:
        assert 100 < rate < 200, "that was known already"
        return Trial(rate, 0.0, 0.0, rate, 1.0, rate < 150, True)

    known = [Trial(r, 0.0, 0.0, r, 1.0, r < 150, True) for r in (100.0, 200.0)]
    found = search(run, lambda t: t.answered, lambda t: t.reached, 1e4, known)
    assert 150 / 1.1 <= found < 150
    never = search(
        lambda rate: Trial(rate, 9.0, 9.0, 0.0, 0.0, False, False),
        lambda t: t.answered, lambda t: t.reached, 10.0,
    )  # fmt: skip
    assert math.isnan(never)


# Real seconds.


class Says:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two seconds with a process for a trainer."""
    return live(
        small_stream(75, held_out=0.1, order="time"), "er", 160.0, shifts=(20,), snapshots=2,
        out=tmp_path_factory.mktemp("runs"), checkpoint=0.5, log=str,
    )  # fmt: skip


def test_a_real_run_holds_its_rate_and_answers_everything_in_order(lived: Run) -> None:
    run = lived
    assert run.done
    online = run.predictions["shift"] == 0
    stream_steps = run.stream["steps"]
    assert online.sum() == run.stream["samples"]
    assert (np.diff(run.predictions["step"][online]) >= 0).all()
    found = summarise(run)
    assert found.rate_held == pytest.approx(160.0, rel=0.1)
    assert found.seconds == pytest.approx(run.stream["samples"] / 160.0, rel=0.1)
    assert 0 < found.latency_p50 <= found.latency_p99 < 1.0
    version = run.predictions["version"][online]
    assert (np.diff(version) >= 0).all()
    assert version[0] == 0
    assert found.updates == len(run.jobs["step"]) >= version[-1] > 10
    assert found.updates + found.skipped == stream_steps
    assert found.trained == found.updates / stream_steps
    assert (np.diff(run.jobs["step"]) > 0).all()
    assert run.jobs["version"].tolist() == list(range(1, found.updates + 1))
    # A version answers only after the step that it was trained on.
    learnt_at = np.concatenate([[-1], run.jobs["step"]])
    assert (learnt_at[version] < run.predictions["step"][online]).all()
    assert {"loss", "memory"} <= set(run.training["name"].tolist())


def test_a_trainer_that_is_killed_comes_back_and_answers_go_on(tmp_path: Path) -> None:
    said, killed, answered = Says(), [], []

    def progress(player: Any) -> None:
        worker = player.dispatcher.trainer
        if not killed and player.dispatcher.finished >= 5:
            killed.append(player.step)
            os.kill(worker.backend.pid, signal.SIGKILL)
        elif killed and not any("is back" in line for line in said.lines):
            answered.append(player.step)
        elif killed and player.dispatcher.finished >= 15:
            player.stop("seen enough")

    run = live(small_stream(2000), "er", 160.0, out=tmp_path, progress=progress, log=said)
    assert any("SIGKILL" in line and "answers go on" in line for line in said.lines)
    assert len(answered) > 3, "nobody was answered while it was gone"
    found = summarise(run)
    assert found.restarts == ("killed by SIGKILL",)
    assert "SIGKILL" in summary_text(run)
    steps, version = run.jobs["step"], run.predictions["version"][::5]
    assert (steps > killed[0]).any(), "it learnt again after it came back"
    assert len(run.predictions["step"]) == 5 * run.step
    assert len(set(version[answered])) <= 2, "the last version answered, and at most one on its way"
    # It went on from its last version: the memory only grew, by a batch an update.
    memory = run.training["value"][run.training["name"] == "memory"]
    assert memory.tolist() == [5 * n for n in range(1, len(steps) + 1)]


def test_every_tool_works_on_a_live_run(lived: Run, tmp_path: Path) -> None:
    run = lived
    scores = sg.score(run)
    assert {"online_accuracy", "near_future_accuracy@20", "retained_accuracy"} <= scores.keys()
    found = summarise(run)
    assert found.accuracy == scores["online_accuracy"]
    assert found.near_future[0].accuracy == scores["near_future_accuracy@20"]
    assert found.near_future[0].samples == (run.predictions["shift"] == 20).sum() > 50
    from streamgauge.report import write_report
    from streamgauge.report.terminal import leaderboard_text
    from streamgauge.tables.read import open_table

    assert "er" in leaderboard_text([run])
    assert write_report([run], tmp_path / "report.html").exists()
    assert differences(run, run)["same"]
    assert "label" in open_table(run.path).names
    text = summary_text(run)
    for part in ("160 samples/s asked", "p99", "updates", "skipped", "20 samples ahead"):
        assert part in text


def test_a_thread_trains_too_and_two_passes_are_two_runs(tmp_path: Path) -> None:
    stream = small_stream(30)
    first, second = (
        live(stream, "ncm", 500.0, trainer="thread", out=tmp_path, log=str) for _ in range(2)
    )
    assert first.done
    assert second.done
    assert first.path != second.path
    assert first.id != second.id
    assert summarise(first).updates > 5
    assert summarise(first).restarts == ()


def test_seconds_cut_the_stream(tmp_path: Path) -> None:
    run = live(small_stream(100), "blind", 200.0, seconds=0.5, trainer="thread", out=tmp_path)
    assert run.done
    assert run.stream["steps"] == 20
    assert run.step == 20


class Broken(Spy):
    def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
        raise RuntimeError("no luck")


class Unsure(Spy):
    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return super().predict(x) * float("nan")


def test_a_learner_that_fails_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(sg.StreamgaugeError, match=r"failed while training on step 0.*no luck"):
        live(small_stream(30), Broken, 100.0, trainer="thread", out=tmp_path)
    (run,) = sg.find_runs([tmp_path])  # what was answered until then is there
    assert not run.done
    assert run.predictions.rows >= 5
    with pytest.raises(sg.StreamgaugeError, match="NaN"):
        live(small_stream(30), Unsure, 100.0, trainer="thread", out=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rate": 0.0}, "above 0"),
        ({"rate": float("nan")}, "above 0"),
        ({"rate": 5.0, "trainer": "cloud"}, "'process' or a 'thread'"),
        ({"rate": 5.0, "threads": 0}, "threads"),
        ({"rate": 5.0, "shifts": (-3,)}, "above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(sg.StreamgaugeError, match=match):
        live(small_stream(5), "blind", out=tmp_path, **arguments)


def test_what_another_process_cannot_have_is_said() -> None:
    class Unsendable:
        pass

    stream = small_stream(5)
    recipe = sg.learner("blind")
    source = stream.source
    source.lock = threading.Lock()  # type: ignore[attr-defined]
    setup = Setup(stream.spec, source, 5)
    with pytest.raises(sg.StreamgaugeError, match="use the trainer 'thread'"):
        ProcessBackend(recipe, setup).open(None)
    Unsendable.__module__ = "__main__"
    from dataclasses import replace

    with pytest.raises(sg.StreamgaugeError, match="move it to a file"):
        ProcessBackend(replace(recipe, where="__main__:Mine"), setup)


class DiesAtOnce:
    """Hands that never survive a job."""

    can_be_killed = True

    def __init__(self) -> None:
        self.opened = 0

    def open(self, state: Any) -> Any:
        from streamgauge.live.trainer import TrainerDied

        self.opened += 1
        if self.opened > 1:
            raise TrainerDied("killed by SIGSEGV")
        return NONE

    def train(self, job: TrainingRequest, seconds: float) -> Update:
        from streamgauge.live.trainer import TrainerDied

        raise TrainerDied("killed by SIGSEGV")

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


def test_a_trainer_that_dies_again_and_again_is_given_up() -> None:
    said = Says()
    backend = DiesAtOnce()
    worker = BackgroundTrainer(backend, log=said)
    worker.wait_until_ready()
    worker.begin(TrainingRequest(0, NONE))
    outcome = worker.wait(10)
    worker.close()
    assert isinstance(outcome, Lost)
    assert outcome.permanent
    assert backend.opened == 4
    assert "3 times in a row" in said.lines[-1]


class ClosedWhileComing(DiesAtOnce):
    """Hands that are ended by `close` while they are being started again."""

    def __init__(self) -> None:
        super().__init__()
        self.coming, self.ended = threading.Event(), threading.Event()

    def open(self, state: Any) -> Any:
        if self.opened:
            self.coming.set()
            self.ended.wait(10)
        return super().open(state)

    def close(self) -> None:
        self.ended.set()


def test_the_end_of_a_run_while_a_trainer_comes_back_is_no_death() -> None:
    said, backend = Says(), ClosedWhileComing()
    worker = BackgroundTrainer(backend, log=said)
    worker.wait_until_ready()
    worker.begin(TrainingRequest(0, NONE))
    assert backend.coming.wait(10)
    worker.close()
    assert len(said.lines) == 1
    assert "it is restarted" in said.lines[0]


class DiesIdle(DiesAtOnce):
    """Hands that die once, while they have nothing to do."""

    states: list[Any]

    def open(self, state: Any) -> Any:
        self.opened += 1
        self.states = [*getattr(self, "states", []), state]
        return NONE

    def train(self, job: TrainingRequest, seconds: float) -> Update:
        return Update({"step": job.step}, {}, 0.0, 0.0, NONE)

    def alive(self) -> bool:
        return self.opened > 1


def test_an_idle_trainer_that_dies_is_replaced_before_the_next_job() -> None:
    said, backend = Says(), DiesIdle()
    worker = BackgroundTrainer(backend, log=said)
    worker.wait_until_ready()
    worker.begin(TrainingRequest(7, NONE))
    assert isinstance(worker.wait(10), Update)
    until = time.monotonic() + 10
    while backend.opened < 2 and time.monotonic() < until:
        time.sleep(0.01)
    worker.begin(TrainingRequest(8, NONE))
    outcome = worker.wait(10)
    worker.close()
    assert isinstance(outcome, Update), "no job was lost"
    assert outcome.state == {"step": 8}
    assert backend.states == [None, {"step": 7}], "it went on from the last version"
    assert len(worker.restarts) == 1
    assert "nothing to do" in said.lines[0]


class Hangs(DiesAtOnce):
    """Hands that need as long for a job as its step says, by a clock of their own."""

    def __init__(self, can_be_killed: bool = True) -> None:
        super().__init__()
        self.can_be_killed, self.time = can_be_killed, 0.0
        self.limits: list[float] = []
        self.free = threading.Event()

    def open(self, state: Any) -> Any:
        self.opened += 1
        return NONE

    def train(self, job: TrainingRequest, seconds: float) -> Update:
        from streamgauge.live.trainer import TrainerDied

        self.limits.append(seconds)
        if not self.can_be_killed and job.step > seconds:
            self.free.wait(30)
        if self.can_be_killed and job.step > seconds:
            self.time += seconds
            raise TrainerDied(f"it hung: a job had not ended after {seconds:.0f} s")
        self.time += job.step
        return Update({"step": job.step}, {}, 0.0, 0.0, NONE)


def test_a_job_is_given_up_after_many_times_the_longest_one() -> None:
    said, backend = Says(), Hangs()
    worker = BackgroundTrainer(backend, log=said, now=lambda: backend.time)
    worker.wait_until_ready()
    outcomes = []
    for seconds in (100, 0.01, 7, 1999, 2001, 3):
        worker.begin(TrainingRequest(seconds, NONE))  # type: ignore[arg-type]
        outcomes.append(worker.wait(10))
    worker.close()
    assert [type(one) for one in outcomes] == [Update, Update, Update, Update, Update, Update]
    wanted = [120, 2000, 2000, 2000, 20 * 1999, 20 * 2001]
    assert backend.limits == pytest.approx(wanted)
    backend = Hangs()
    worker = BackgroundTrainer(backend, log=said, now=lambda: backend.time)
    for seconds, kind in ((0.1, Update), (9.9, Update), (1000, Lost), (2, Update)):
        worker.begin(TrainingRequest(seconds, NONE))  # type: ignore[arg-type]
        assert isinstance(worker.wait(10), kind)
    worker.close()
    assert backend.limits == pytest.approx([120, 10, 198, 198])
    assert backend.opened == 2
    assert worker.restarts == ["it hung: a job had not ended after 198 s"]
    assert "answers go on" in said.lines[0]


def test_a_thread_that_hangs_ends_the_training_and_is_not_waited_for() -> None:
    said, backend = Says(), Hangs(can_be_killed=False)
    worker = BackgroundTrainer(backend, log=said, hang=5.0, now=lambda: backend.time)
    worker.begin(TrainingRequest(1000, NONE))
    while not backend.limits:
        time.sleep(0.001)
    assert worker.collect() is None
    backend.time = 5.1
    outcome = worker.collect()
    assert isinstance(outcome, Lost)
    assert outcome.permanent
    worker.close()
    backend.free.set()
    assert "a thread cannot be killed" in said.lines[0]
    with pytest.raises(sg.StreamgaugeError, match="more than 0 seconds"):
        BackgroundTrainer(backend, hang=0.0)


HANGING = """
import time
from pathlib import Path
from streamgauge.learners.gradient_free.majority import Majority

class Hanging(Majority):
    def learn(self, batch, predicted):
        once = Path(__file__).with_name("hung")
        if batch.index[0] >= 25 and not once.exists():
            once.touch()
            time.sleep(1000)
        return super().learn(batch, predicted)
"""


@pytest.mark.long
def test_a_process_that_hangs_is_killed_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    said = Says()
    run = live(small_stream(60), f"{file}:Hanging", 25.0, hang=2.0, out=tmp_path, log=said)
    found = summarise(run)
    assert run.done
    assert found.samples == 300
    assert found.restarts == ("it hung: a job had not ended after 2 s",)
    assert any("restarted" in line for line in said.lines)
    learnt = run.jobs["step"][run.jobs["kind"] == "learn"]
    assert learnt.min() < 5 < learnt.max()  # before it hung, and after it had come back
    assert not np.isnan(run.jobs["flops"]).any()


def test_no_more_is_put_off_than_there_is_room_for() -> None:
    """Every step is late, and each may bring an answer for each of three shifts."""

    def tarry(player: Any) -> None:
        player.clock.time += 1000

    player, _, journal = played(
        small_stream(200), Fraction(1), shifts=(5, 10, 15), keep=9, late=1e9, progress=tarry
    )
    late = sum(int((journal.rows["predictions"].peek("shift") == age).sum()) for age in (5, 10, 15))
    assert late == 64 * 5
    assert player.near_future_left_out > 200


def test_ages_count_for_the_largest_shift_that_they_reach(tmp_path: Path) -> None:
    """Albums are of any length, so that no two ages need be equal."""
    stream = sg.stream("albums", length=400, size=4, step="album", held_out=0.0)
    run = live(stream, "ncm", 1e4, shifts=(20, 50), trainer="thread", out=tmp_path, log=str)
    table = run.predictions
    ages = np.unique(table["shift"])
    assert len(ages) > 5
    found = summarise(run).near_future
    assert len(found) == 2
    for one, least, most in zip(found, (20, 50), (50, np.inf), strict=True):
        rows = (table["shift"] >= least) & (table["shift"] < most)
        assert one.samples == rows.sum()
        right = table["label"][rows] == table["prediction"][rows]
        assert one.accuracy == right.mean()
        assert (one.shift, one.oldest) == (table["shift"][rows].min(), table["shift"][rows].max())
    assert summary_text(run).count("samples ahead") == 2


def test_a_search_ends_when_time_is_up() -> None:
    tried: list[float] = []

    def run(rate: float) -> Trial:
        tried.append(rate)
        return Trial(rate, 9.0, 9.0, rate / 2, 0.0, False, False)

    def allowed(rate: float) -> bool:
        return len(tried) < 3

    never = search(run, lambda t: t.answered, lambda t: t.reached, 10.0, allowed=allowed)
    assert math.isnan(never)
    assert len(tried) == 3
    assert math.isnan(confirmed_rate(run, lambda t: t.answered, 10.0, allowed))
    assert len(tried) == 3


def test_find_rate_answers_in_the_time_it_is_given() -> None:
    class Slow(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.05)
            return super().predict(x)

    found = find_rate(small_stream(20), Slow, trainer="thread", patience=0.001, limit=1.0, log=str)
    # Steps of 50 ms, and a trial has two of them: some are tried, and not as many as one might.
    assert found.cut == 1.0
    assert len(found.trials) < 12
    assert "Time was up after 1 s" in rates_text(found)


def test_the_command_keeps_as_many_snapshots_as_it_is_told(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    words = ("live", "--stream", "blobs", "--stream.per_class", "20", "--learner", "majority",
             "--rate", "3000", "--shifts", "40", "--trainer", "thread")  # fmt: skip
    code, out, _ = call(*words, "--snapshots", "2", "--out", str(tmp_path))
    assert code == 0
    assert "near future from 2 snapshots" in out
    code, _, err = call(*words, "--snapshots", "0", "--out", str(tmp_path))
    assert (code, "at least one snapshot" in err) == (2, True)
    code, _, err = call(*words, "--find-rate")
    assert (code, "rates of its own" in err) == (2, True)


def test_a_rate_is_promised_once_it_was_held_for_long() -> None:
    def hold(rate: float) -> Trial:
        tried.append(rate)
        return Trial(rate, 0.0, 0.0, rate, 1.0, rate <= limit, all_trained=True)

    for limit, wanted in ((1000.0, 900.0), (820.0, 720.0), (500.0, 0.9 * 409.6)):
        tried: list[float] = []
        assert confirmed_rate(hold, lambda t: t.answered, 1000.0) == pytest.approx(wanted)
        assert tried[-1] <= limit
    limit = 1.0
    assert math.isnan(confirmed_rate(hold, lambda t: t.answered, 1000.0))
    assert math.isnan(confirmed_rate(hold, lambda t: t.answered, math.nan))


def test_a_thread_hands_over_copies() -> None:
    stream = small_stream(5)
    backend = ThreadBackend(sg.learner("ncm"), Setup(stream.spec, stream.source, 5))
    backend.open(None)
    first = backend.train(TrainingRequest(0, stream.index(0)), 60).state["counts"].clone()
    update = backend.train(TrainingRequest(0, stream.index(0)), 60)
    backend.train(TrainingRequest(1, stream.index(1)), 60)
    assert update.state["counts"].sum() == 10
    assert first.sum() == 5


SCRIPT = """
import sys, streamgauge as sg
from streamgauge.live import live
sys.path.insert(0, {tests!r})
from helpers import small_stream
run = live(small_stream(3000), "blind", 50.0, out={out!r},
           progress=lambda player: player.step == 3 and print("going", flush=True))
print("ended at", run.step, run.done)
"""


def test_sigterm_keeps_what_was_answered(tmp_path: Path) -> None:
    """A script without a guard around its main part, too: the trainer must not run it again."""
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.format(tests=str(Path(__file__).parents[1]), out=str(tmp_path / "runs"))
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "going"
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert "stopped by SIGTERM" in rest
    (run,) = sg.find_runs([tmp_path / "runs"])
    assert not run.done
    assert run.step >= 3
    assert run.predictions.rows == 5 * run.step
    assert summarise(run).stopped == "stopped by SIGTERM"


def test_find_rate_finds_a_rate_that_can_be_held(tmp_path: Path) -> None:
    said = Says()
    stream = small_stream(20)

    class Slow(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.01)
            return super().predict(x)

        def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
            time.sleep(0.04)
            return super().learn(batch, predicted)

    found = find_rate(stream, Slow, trainer="thread", trial=0.1, patience=0.05, hold=0.3,
                      log=said)  # fmt: skip
    # 5 samples an answer of 10 ms, a batch of 40 ms, and trials too short to be exact.
    assert 5 < found.training <= 200
    assert found.training <= found.predicting <= 700
    assert len(found.trials) == len(said.lines) > 3
    assert "samples/s" in rates_text(found)
    assert found.step_size == 5


def test_the_wall_clock_is_woken() -> None:
    clock = WallClock()
    threading.Timer(0.05, clock.wake).start()
    began = time.perf_counter()
    clock.wait(clock.now() + 10)
    assert time.perf_counter() - began < 0.3
    clock.wait(clock.now() - 1)  # the past is not waited for


def test_the_log_is_written_beside_the_answers(tmp_path: Path) -> None:
    """A commit that is slow to be written holds nobody up until the next one is due."""
    written: list[tuple[int, int]] = []
    gate = threading.Event()

    class SlowRecorder:
        rows: Any = None

        def checkpoint(self, step: int, state: dict[str, Any], done: bool) -> None:
            gate.wait(10)
            written.append((step, self.rows["timing"].count))

    journal = Journal(SlowRecorder(), frozenset(), every=0.0)  # type: ignore[arg-type]
    journal.rows["timing"].append(1, step=0, part="latency", seconds=0.1)
    assert journal.due
    journal.commit(1, {}, mark=7)
    assert journal.committed == 0
    assert journal.rows["timing"].count == 0
    assert not journal.due, "the first is still being written"
    journal.rows["timing"].append(2, step=1, part="latency", seconds=0.1)
    gate.set()
    journal.commit(2, {}, mark=9, wait=True)
    assert journal.committed == 9
    assert written == [(1, 1), (2, 2)]
    journal.close()


def test_the_old_names_of_modules_and_of_the_parameter_log_still_work() -> None:
    for old, new in (
        ("bench", "trainer"),
        ("child", "trainer"),
        ("desk", "dispatcher"),
        ("door", "http_server"),
        ("outside", "serving"),
        ("stored", "stored_stream"),
    ):
        sys.modules.pop(f"streamgauge.live.{old}", None)
        with pytest.warns(DeprecationWarning, match=f"live.{new}"):
            module = importlib.import_module(f"streamgauge.live.{old}")
        assert module is importlib.import_module(f"streamgauge.live.{new}")
    with (
        pytest.warns(DeprecationWarning, match="said is now log"),
        pytest.raises(sg.StreamgaugeError, match="above 0"),
    ):
        live(small_stream(2), "ncm", 0.0, said=str)  # type: ignore[call-arg]
