"""A stored stream, revealed at a rate: what happens at every moment.

Step t is revealed when as many samples as came before it have had their time: at starts[t] / rate
after the beginning. It is answered at once by the newest version that there is; then its labels
are known, and its batch is offered to the trainer. Clock and trainer are given, so that the same
code runs by the wall clock and, in tests, by a clock that no one has to wait for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live.answers import Answers, answer, inputs
from streamgauge.live.bench import pack, unpack
from streamgauge.live.desk import Desk, Finished, Job
from streamgauge.live.snapshots import Due, Snapshots
from streamgauge.streams import Gate, Stream

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.live.journal import Journal

LONGEST_WAIT = 0.25  # seconds; a signal is noticed after this long at the latest
MOST_WAITING = 64  # answers of snapshots that may be put off before some are left out


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
        """Something has happened: whoever waits should look."""
        self._woken.set()

    def wait(self, until: float) -> None:
        # Whoever waits looks at everything afterwards, so a call lost between these lines is not.
        self._woken.wait(min(LONGEST_WAIT, max(0.0, until - self.now())))
        self._woken.clear()


class _PutOff(NamedTuple):
    step: int
    due: Due


class Player:
    """One pass over a stored stream. `turn` does one thing that is due and says when to come back.

    `late` is how long after the end of the stream's time it may go on answering.
    """

    def __init__(
        self,
        stream: Stream,
        learner: Learner,
        spare: Callable[[], Learner],
        gate: Gate,
        desk: Desk,
        journal: Journal,
        clock: Clock,
        rate: Any,
        device: torch.device,
        snapshots: Snapshots,
        late: float = 1.0,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        self.stream, self.learner, self.gate, self.desk = stream, learner, gate, desk
        self.journal, self.clock, self.rate, self.device = journal, clock, rate, device
        self.snapshots, self.late = snapshots, late
        self.step = self.right = self.asked = self.near_future_left_out = 0
        self.latency: Any = 0.0  # of the last step's answers
        self.stopped = ""  # why, where it ended before the stream did
        self.state: dict[str, Any] = unpack(pack(learner.state_dict()))
        self._spare, self._spare_holds = spare, -1
        self._past: Learner | None = None
        self._put_off: deque[_PutOff] = deque()
        self._progress = progress
        self._needs = LearnerAdapter(learner).needs
        self.began = clock.now()
        self.ended = self.began  # when the last answer was given

    @property
    def version(self) -> int:
        return self.desk.version

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
        while (until := self.turn()) is not None:
            if until > self.clock.now():
                self.clock.wait(until)
        while self._put_off:
            self._answer_late()

    def turn(self) -> Any:
        """Do what is due; returns the next moment at which something will be, None at the end."""
        now = self.clock.now()
        finished = self.desk.take_in(now)
        left = self.step < len(self.stream)
        due = left and self._time_of(self.step) <= now
        over = not left and now >= self.end
        # The trainer need not wait for what follows. Only a batch that is revealed at this very
        # moment is newer than the one that waits; one that is late has no labels yet.
        if not over and not (due and self._time_of(self.step) == now):
            self.desk.assign(now)
        if finished is not None:
            self._apply(finished)
        if left and now > self.end + self.late:
            self.stop("the answers fell too far behind")
        if over or self.stopped:
            return None
        if due:
            self._one_step()
            self.desk.assign(self.clock.now())
        if self.step == len(self.stream):
            return self.end
        coming = self._time_of(self.step)
        if coming <= self.clock.now():
            if self.journal.full:  # the memory of a run that is always late is bounded, too
                self.commit()
            return coming
        if self._put_off:
            self._answer_late()
            return now
        if self.journal.due:
            self.commit()
        return coming

    def commit(self, done: bool = False, wait: bool = False) -> None:
        state = {"version": self.version, "step": self.step, "learner": self.state}
        self.journal.commit(self.step, state, done, wait=wait)

    def _apply(self, finished: Finished) -> None:
        """From here on the new version answers."""
        with self.journal.timed("apply"):
            self.learner.load_state_dict(finished.update.state)
        self.state = finished.update.state
        record_job(self.journal, finished)

    def _one_step(self) -> None:
        stream, step = self.stream, self.step
        index = stream.index(step)
        self.gate.reveal(index)
        answers = self._answer(step, index, self.learner, self.version)
        self.ended = self.clock.now()
        self.latency = self.ended - self._time_of(step)
        self.gate.label_due(index)
        self.right += int((answers.prediction == stream.source.label[index]).sum())
        self.asked += len(index)
        self.journal.rows["timing"].append(
            1, step=step, part="latency", seconds=float(self.latency)
        )
        self.desk.offer(
            Job(step, index.astype(np.int64, copy=False), answers.scores, told=self._boundary(step))
        )
        for due in self.snapshots.begin(int(stream.starts[step]), self.version, self.state):
            self._put_off.append(_PutOff(step, due))
        while len(self._put_off) > MOST_WAITING:  # a step may have brought several
            self._put_off.popleft()
            self.near_future_left_out += 1
        self.step += 1
        if self._progress is not None:
            self._progress(self)

    def _answer(
        self, step: int, index: Any, learner: Learner, version: int, shift: int = 0
    ) -> Answers:
        stream, source = self.stream, self.stream.source
        with self.journal.timed("read"):
            x = inputs(source, index, learner, self.device)
        with self.journal.timed("predict"):
            answers = answer(learner, x, stream)
        columns: dict[str, Any] = {
            name: source.columns[name][index] for name in ("user", "time") if name in source.columns
        }
        if stream.task is not None:
            columns["task"] = stream.task[step]
        self.journal.rows["predictions"].append(
            len(index),
            step=step,
            sample=index,
            label=source.label[index],
            prediction=answers.prediction,
            confidence=answers.confidence,
            version=version,
            shift=shift,
            **columns,
        )
        return answers

    def _answer_late(self) -> None:
        """Let a version of the past answer a step, in time that nobody else needs: it does not
        change any more, so it does not matter when."""
        step, due = self._put_off.popleft()
        if self._past is None:
            self._past = self._spare()
        if self._spare_holds != due.version:
            self._past.load_state_dict(due.state)
            self._spare_holds = due.version
        self._answer(step, self.stream.index(step), self._past, due.version, due.age)

    def _boundary(self, step: int) -> tuple[dict[str, Any], ...]:
        """What a learner that needs boundaries is told before the first batch of a task."""
        stream = self.stream
        if "boundaries" not in self._needs or stream.task is None:
            return ()
        if step > 0 and stream.task[step] == stream.task[step - 1]:
            return ()
        task = int(stream.task[step])
        first, last = np.searchsorted(stream.task, [task, task + 1])
        coming = stream.order[stream.starts[first] : stream.starts[last]]
        return ({"boundary": task, "classes": np.unique(stream.source.label[coming])},)


def record_job(journal: Journal, finished: Finished) -> None:
    """The rows of a job that has ended; its seconds go from its start until its version answers."""
    job, update, version, seconds = finished
    journal.spent("learn", update.seconds)
    scalars = dict(update.scalars)
    journal.rows["jobs"].append(
        1,
        step=job.step,
        version=version,
        kind="learn",
        flops=update.flops,
        bytes=update.bytes,
        recalled=scalars.pop("recalled", np.nan),
    )
    for name, value in scalars.items():
        journal.rows["training"].append(1, step=job.step, name=name, value=value)
    journal.rows["timing"].append(1, step=job.step, part="job", seconds=float(seconds))
