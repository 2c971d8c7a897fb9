"""The schedule against a slow simulation of time, and the prefetcher's plan against the reads of a
loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from helpers import Spy, small_stream
from streamgauge.running.lookahead import LookAhead
from streamgauge.running.loop import Loop
from streamgauge.running.prefetch import PrefetchPlan
from streamgauge.running.protocol import Protocol
from streamgauge.running.schedule import PLAIN, Schedule

CPU = torch.device("cpu")
BATCH = 3


@dataclass
class Shape:
    """As much of a stream as a schedule looks at."""

    task: Any
    short: set[int]
    steps: int
    size: int = BATCH
    albums: bool = False
    starts: Any = field(init=False)

    def __post_init__(self) -> None:
        lengths = [1 if step in self.short else BATCH for step in range(self.steps)]
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.samples = int(self.starts[-1])

    def __len__(self) -> int:
        return self.steps

    def is_remainder(self, step: int) -> bool:
        return step in self.short


@st.composite
def shapes(draw: Any) -> Shape:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    task = np.repeat(np.arange(len(lengths)), lengths) if draw(st.booleans()) else None
    ends = (np.cumsum(lengths) - 1).tolist() if task is not None else [sum(lengths) - 1]
    short = {end for end in ends if draw(st.booleans())}
    return Shape(task, short, sum(lengths))


fractions = st.builds(Fraction, st.integers(1, 9), st.integers(1, 4))
protocols = st.builds(
    Protocol,
    predict=st.booleans(),
    shifts=st.lists(st.integers(1, 12), max_size=2).map(tuple),
    evaluate=st.integers(1, 5),
    remainder=st.sampled_from(["train", "store", "drop"]),
    cost=fractions.map(str),
    predict_cost=st.sampled_from(["0", "1/4", "2/3"]),
    busy=st.sampled_from(["drop", "store", "queue"]),
    preempt=st.booleans(),
    label_delay=st.integers(0, 4),
)


def schedule_of(shape: Shape, protocol: Protocol) -> Schedule:
    stream: Any = shape
    lookahead = LookAhead(stream, protocol.shifts, "1", False)
    every = protocol.evaluate
    assert isinstance(every, int)
    return Schedule(stream, protocol, lookahead, lambda done: done % every == 0)


def played(schedule: Schedule, steps: int) -> list[tuple[str, int, int]]:
    return [tuple(event) for _ in range(steps) for event in schedule.play_step()]


def simulated(shape: Shape, protocol: Protocol) -> list[tuple[str, int, int]]:
    """Time passes in ticks. A job ends as soon as its work is done. Work is only counted down; no
    end is ever computed in advance."""
    length = Fraction(protocol.cost) / (1 - Fraction(protocol.predict_cost))
    ticks = length.denominator
    events: list[tuple[str, int, int]] = []
    line: list[list[Any]] = []  # [kind, step, ticks of work left]; the first "learn" is worked on
    waiting: list[int] = []  # labelled batches that the learner has not begun

    def settle() -> None:
        """Untimed jobs and finished trainings at the head of the line end, in order."""
        while line and (line[0][0] != "learn" or line[0][2] == 0):
            kind, step, _ = line.pop(0)
            events.append((kind, step, 0))

    def training() -> bool:
        return any(kind == "learn" for kind, _, _ in line)

    def begin() -> None:
        line.append(["learn", waiting.pop(0), int(length * ticks)])

    for step in range(shape.steps):
        if step == 0:
            events.append(("start", 0, 0))
        if shape.task is not None and (step == 0 or shape.task[step - 1] != shape.task[step]):
            line.append(["boundary", step, 0])
            settle()
        events.append(("reveal", step, 0))
        if protocol.predict:
            events.append(("answer", step, 0))
            for shift in protocol.shifts:
                for later in range(step + 1, shape.steps):
                    old_enough = [
                        t for t in range(later) if shape.starts[t] + shift <= shape.starts[later]
                    ]
                    if old_enough and max(old_enough) == step:
                        events.append(("answer", later, shift))
        arrived = step - protocol.label_delay
        new = False
        if arrived >= 0:
            events.append(("labels", arrived, 0))
            if shape.is_remainder(arrived) and protocol.remainder != "train":
                if protocol.remainder == "store":
                    line.append(["store", arrived, 0])
                    settle()
                else:
                    events.append(("drop", arrived, 0))
            else:
                new = True
                if protocol.preempt:
                    dropped = [job for job in line if job[0] == "learn"]
                    line[:] = [job for job in line if job[0] != "learn"]
                    events += [("drop", job[1], 0) for job in dropped]
                waiting.append(arrived)
        arrival = len(events)
        # The step itself: the learner works, and begins the batch as soon as it is free. In a queue
        # it only looks for the next batch in steps in which labels arrive.
        for _ in range(ticks):
            if new and waiting and not training():
                begin()
                new = protocol.busy == "queue"
            working = next((job for job in line if job[0] == "learn"), None)
            if working is not None:
                working[2] -= 1
                settle()
        if new and waiting and protocol.busy != "queue":
            left = waiting.pop()
            if protocol.busy == "store":
                line.append(["store", left, 0])
                settle()
            else:  # known when its labels came; what ended since then ended with the step
                events.insert(arrival, ("skip", left, 0))
        if (step + 1) % protocol.evaluate == 0:  # type: ignore[operator]
            events.append(("evaluate", step + 1, 0))
    return events


@given(shapes(), protocols)
@settings(max_examples=600, deadline=None)
def test_a_schedule_equals_the_simulation_of_time(shape: Shape, protocol: Protocol) -> None:
    assert played(schedule_of(shape, protocol), shape.steps) == simulated(shape, protocol)


ALWAYS_FREE = [Protocol(evaluate=n, cost=cost) for n in (2, 5, 9) for cost in ("1", "2/3")]


@given(shapes(), st.one_of(protocols, st.sampled_from(ALWAYS_FREE)), st.integers(1, 5))
@settings(max_examples=400, deadline=None)
def test_plain_steps_are_passed_as_if_they_were_played(
    shape: Shape, protocol: Protocol, most: int
) -> None:
    passing, playing = schedule_of(shape, protocol), schedule_of(shape, protocol)
    while passing.step < shape.steps:
        first, count = passing.step, passing.plain_steps(min(passing.step + most, shape.steps))
        assert count <= most
        passing.pass_steps(count) if count else played(passing, 1)
        plain = [(kind, step, 0) for step in range(first, first + max(count, 1)) for kind in PLAIN]
        events = played(playing, max(count, 1))
        if count:
            assert events == plain
        elif protocol in ALWAYS_FREE and not shape.is_remainder(first):
            assert events != plain
        assert passing.state_dict() == playing.state_dict()


@given(shapes(), protocols, st.integers(0, 24))
@settings(max_examples=200, deadline=None)
def test_a_copy_and_a_resumed_schedule_go_on_alike(
    shape: Shape, protocol: Protocol, stop: int
) -> None:
    schedule, resumed = schedule_of(shape, protocol), schedule_of(shape, protocol)
    first = min(stop, shape.steps)
    played(schedule, first)
    resumed.load_state_dict(schedule.state_dict())
    twin = schedule.copy()
    rest = played(twin, shape.steps - first)
    assert schedule.step == first  # playing the copy leaves the original as it was
    assert rest == played(resumed, shape.steps - first) == played(schedule, shape.steps - first)
    assert twin.state_dict() == schedule.state_dict()


def test_the_kind_of_a_job_is_asked_when_it_begins_and_earlier_events_are_executed() -> None:
    shape = Shape(None, set(), 6)
    protocol = Protocol(cost="1", costs=("slow=2", "prepare=3"), evaluate=1)
    stream: Any = shape
    learnt: list[int] = []
    asked: list[list[int]] = []

    def job_kind() -> str:
        asked.append([*learnt])
        return "slow" if learnt else "quick"

    lookahead = LookAhead(stream, (), "1", False)
    schedule = Schedule(stream, protocol, lookahead, lambda done: done == 3, job_kind)
    assert not schedule.predictable
    for _ in range(6):
        for event in schedule.play_step():
            if event.kind == "learn":
                learnt.append(event.step)
            if event.kind == "evaluate":
                schedule.charge("prepare")  # busy until the end of step 6
    assert asked == [[], [0]]  # the second job is slow, and then preparation keeps it busy
    assert learnt == [0, 1]


class Reads:
    """A source that lists the reads of a loop."""

    def __init__(self, source: Any) -> None:
        self.source, self.reads = source, list[list[int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: Any) -> Any:
        self.reads.append(np.asarray(index).tolist())
        return self.source.read(index)


class Nowhere:
    full = False

    @property
    def rows(self) -> Any:
        sink = SimpleNamespace(append=lambda *_, **__: None)
        return dict.fromkeys(("predictions", "training", "jobs", "timing", "evaluations"), sink)

    def checkpoint(self, *_: Any) -> None: ...


class SkippedToo(Spy):
    def skipped(self, batch: sg.Batch) -> None:
        """Is shown dropped batches."""


class WithoutStore(Spy):
    store = None  # type: ignore[assignment]


@pytest.mark.parametrize("learner", [Spy, SkippedToo, WithoutStore, "er", "replay_only"])
@pytest.mark.parametrize("start", [0, 9])
@given(
    cost=fractions,
    busy=st.sampled_from(["drop", "store", "queue"]),
    delay=st.integers(0, 3),
    options=st.fixed_dictionaries(
        {
            "predict": st.booleans(),
            "preempt": st.booleans(),
            "remainder": st.sampled_from(["train", "store", "drop"]),
            "shifts": st.sampled_from([(), (7,), (5, 12)]),
        }
    ),
    published=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_the_plan_is_what_the_loop_then_reads(
    learner: Any, start: int, cost: Fraction, busy: Any, delay: int, options: Any, published: bool
) -> None:
    plain = small_stream(17, preparation=0.03)
    source: Any = Reads(plain.source)
    stream = replace(plain, source=source)
    whole = Fraction(int(cost) + 1) if published else cost
    protocol = Protocol(
        cost=str(whole), busy=busy, label_delay=delay, evaluate="never", as_published=published,
        **options,
    )  # fmt: skip
    given = {"model": "linear", "memory": 20} if isinstance(learner, str) else {}
    recipe = sg.learner(learner, **given)
    loop = Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, CPU), protocol,
                Nowhere(), CPU)  # fmt: skip
    for _, _ in zip(range(start), loop.steps(), strict=False):
        pass
    fresh = Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, CPU), protocol,
                 Nowhere(), CPU)  # fmt: skip
    fresh.load_state_dict(loop.state_dict())
    plan = PrefetchPlan(fresh, source)
    planned = [
        index.tolist() for _ in range(fresh.step, len(stream)) for index in plan.step_reads()
    ]
    source.reads.clear()
    fresh.run()
    assert planned == [read for read in source.reads if read]  # an empty memory reads nothing
