"""A stored stream, revealed at a rate: what happens at every moment.

Step t is revealed when the time of all samples before it has passed: at starts[t] / rate seconds
after the beginning. The newest version answers it at once; then its labels are known, and its batch
is offered to the trainer. The clock and the trainer are parameters, so that the same code runs by
the wall clock and, in tests, by a simulated clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamgauge.engine import Eager
from streamgauge.engine.eager import as_table
from streamgauge.live.dispatcher import Dispatcher, TrainingRequest
from streamgauge.live.snapshots import Answering, Snapshots
from streamgauge.running import jobs
from streamgauge.running.rows import append_predictions
from streamgauge.running.schedule import begins_task
from streamgauge.streams import Gate, Stream

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.live.journal import Journal

MAX_WAIT = 0.25  # seconds; a signal is noticed after this long at the latest


class Clock(Protocol):
    def now(self) -> Any: ...
    def wait(self, until: Any) -> None:
        """Return at that time, or earlier if something has happened."""


class WallClock:
    """Real time, in seconds."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def now(self) -> float:
        return time.perf_counter()

    def wake(self) -> None:
        """Something has happened: end the wait."""
        self._woken.set()

    def wait(self, until: float) -> None:
        # The caller checks everything after a wait, so a wake-up between these lines is not lost.
        self._woken.wait(min(MAX_WAIT, max(0.0, until - self.now())))
        self._woken.clear()


class Player(Answering):
    """One pass over a stored stream. `advance` does what is due and returns when to call it again.

    `late` is how many seconds after the end of the stream's time it may go on answering.
    """

    def __init__(
        self,
        stream: Stream,
        learner: Learner,
        build: Callable[[], Learner],
        gate: Gate,
        dispatcher: Dispatcher,
        journal: Journal,
        clock: Clock,
        rate: Any,
        device: torch.device,
        snapshots: Snapshots,
        late: float = 1.0,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        classes = stream.spec.classes
        super().__init__(learner, build, classes, dispatcher, journal, device, snapshots)
        self.stream, self.gate, self.clock, self.rate = stream, gate, clock, rate
        self.late = late
        self.step = self.right = self.asked = 0
        self.latency: Any = 0.0  # of the last step's answers
        self.stopped = ""  # why it ended before the stream did
        self._progress = progress
        self.began = clock.now()
        self.ended = self.began  # when the last answer was given

    @property
    def end(self) -> Any:
        """When the time of the last step is over."""
        return self._time_of(len(self.stream))

    def _time_of(self, step: int) -> Any:
        return self.began + int(self.stream.starts[step]) / self.rate

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why

    def play(self) -> None:
        """From the beginning to the end."""
        while (until := self.advance()) is not None:
            if until > self.clock.now():
                self.clock.wait(until)
        while self._delayed:
            self._answer_delayed()

    def advance(self) -> Any:
        """Do what is due; returns when something will be due next, None at the end."""
        now = self.clock.now()
        finished = self.dispatcher.collect(now)
        left = self.step < len(self.stream)
        due = left and self._time_of(self.step) <= now
        over = not left and now >= self.end
        # The trainer gets the waiting batch before anything else is done here, unless a newer
        # batch is revealed at this very moment; a step that is late has no labels yet.
        if not over and not (due and self._time_of(self.step) == now):
            self.dispatcher.dispatch(now)
        if finished is not None:
            self._apply(finished)
        if left and now > self.end + self.late:
            self.stop("the answers fell too far behind")
        if over or self.stopped:
            return None
        if due:
            self._one_step()
            self.dispatcher.dispatch(self.clock.now())
        if self.step == len(self.stream):
            return self.end
        next_time = self._time_of(self.step)
        if next_time <= self.clock.now():
            if self.journal.full:  # bounds the memory of a run that is always late
                self.commit()
            return next_time
        if self._delayed:
            self._answer_delayed()
            return now
        if self.journal.due:
            self.commit()
        return next_time

    def commit(self, done: bool = False, wait: bool = False) -> None:
        state = {"version": self.version, "step": self.step, "learner": self.state}
        self.journal.commit(self.step, state, done, wait=wait)

    def _one_step(self) -> None:
        stream, step = self.stream, self.step
        index = stream.index(step)
        self.gate.reveal(index)
        right, scores = self._answer(step, self._engine, self.version)
        self.ended = self.clock.now()
        self.latency = self.ended - self._time_of(step)
        self.gate.label_due(index)
        self.right += right
        self.asked += len(index)
        self.journal.rows["timing"].append(
            1, step=step, part="latency", seconds=float(self.latency)
        )
        facts = {}
        if begins_task(stream, step):
            facts = jobs.boundary_facts(stream, step, self._adapter.needs)
        self.dispatcher.offer(
            TrainingRequest(
                step,
                index.astype(np.int64, copy=False),
                as_table(scores),
                facts=(facts,) if facts else (),
            )
        )
        start = int(stream.starts[step])
        self._delay(step, self.snapshots.begin(start, self.version, self.state))
        self.step += 1
        if self._progress is not None:
            self._progress(self)

    def _answer(self, step: int, engine: Eager, version: int, shift: int = 0) -> tuple[int, Any]:
        """Append the answers to a step; returns how many are correct, and the scores."""
        with self.journal.timed("read"):
            index = self.stream.index(step)
            x = jobs.inputs(self.stream.source, index, self._adapter, self.device)
        with self.journal.timed("predict"):
            scores, prediction, confidence = engine.answer(x)
        label = append_predictions(
            self.journal.rows, self.stream, step, prediction, confidence, version, shift
        )
        return int((prediction == label).sum()), scores

    def _answer_delayed(self) -> None:
        """Let a snapshot answer a step while there is nothing else to do. A snapshot does not
        change, so any time will do."""
        step, due, _ = self._delayed.popleft()
        self._answer(step, self._load_snapshot(due), due.version, due.age)
