"""The schedule of a run: which event follows which, by the protocol and the clock.

The loop executes the events; the prefetcher plays a copy ahead of the loop to learn what will be
read. Training is lazy: a `learn` event comes when the time of its job has passed, so the learner
answers with its old weights until then and no weights are ever copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from streamgauge.cost.clock import Clock, PublishedClock
from streamgauge.running.lookahead import LookAhead
from streamgauge.running.protocol import Protocol, job_costs
from streamgauge.streams import Stream

Kind = Literal[
    "start",  # before the first step
    "boundary",  # a task begins with this step; in order with the jobs
    "reveal",  # the inputs of this step become known
    "answer",  # predict this step's samples; with a shift, ahead of their time
    "labels",  # the labels of this step become known
    "learn",  # a training job on this step's batch has ended: its version is in force from here
    "store",  # this step's batch is stored without training
    "skip",  # this step's batch is dropped because the learner is busy
    "drop",  # this step's batch is dropped: a remainder, or its job was cancelled
    "evaluate",  # an evaluation is due after this many steps
]


PLAIN: tuple[Kind, ...] = ("reveal", "answer", "labels", "learn")  # a step that only trains


class Event(NamedTuple):
    kind: Kind
    step: int
    shift: int = 0  # samples ahead, of an `answer`


def begins_task(stream: Stream, step: int) -> bool:
    """Whether a task begins with this step."""
    task = stream.task
    return task is not None and (step == 0 or bool(task[step] != task[step - 1]))


class Schedule:
    """Yields the events of one step after another. Everything that a resumed run needs is in
    `state_dict`. `evaluation_due` says whether an evaluation follows after a number of steps.
    `job_kind` says of what kind the next training job is; it is called when the job begins, after
    all earlier events were consumed."""

    def __init__(
        self,
        stream: Stream,
        protocol: Protocol,
        lookahead: LookAhead,
        evaluation_due: Callable[[int], bool],
        job_kind: Callable[[], str] | None = None,
    ) -> None:
        self.stream, self.protocol, self.lookahead = stream, protocol, lookahead
        self.costs = job_costs(protocol)
        self.step = 0  # steps that have ended
        self.clock = Clock(protocol.predict_cost)
        if protocol.as_published and self.costs["learn"].denominator > 1:
            self.clock = PublishedClock(self.costs["learn"])
        self._evaluation_due, self._job_kind = evaluation_due, job_kind
        self._jobs: list[Event] = []  # begun, oldest first
        self._unlabelled: list[int] = []  # steps whose labels have not arrived
        self._backlog: list[int] = []  # labelled steps that wait for the learner
        # Whether a free learner answers a step, trains on it, and is free at the next one.
        self._plain = (
            protocol.predict
            and not protocol.label_delay
            and not protocol.shifts
            and type(self.clock) is Clock
            and self.clock.ends_in_time(self.costs["learn"])
        )

    @property
    def predictable(self) -> bool:
        """Whether the order of training follows from the protocol alone, not from the learner."""
        return not self.protocol.costs

    @property
    def labelled(self) -> int:
        """Steps whose labels are known."""
        return self.step - len(self._unlabelled)

    def copy(self) -> Schedule:
        """A schedule at the same step, to be played ahead of this one, with jobs of one kind."""
        twin = copy.copy(self)
        twin.clock, twin._job_kind = copy.deepcopy(self.clock), None
        twin._jobs, twin._unlabelled = [*self._jobs], [*self._unlabelled]
        twin._backlog = [*self._backlog]
        return twin

    def play_step(self) -> Iterator[Event]:
        """The events of the next step, in order. All of them must be consumed."""
        step = self.step
        if step == 0:
            yield Event("start", step)
        if begins_task(self.stream, step):
            yield from self._begin_untimed(Event("boundary", step))
        yield Event("reveal", step)
        if self.protocol.predict:
            yield Event("answer", step)
            for shift, target in self.lookahead.due(step):
                yield Event("answer", target, shift)
        self._unlabelled.append(step)
        if len(self._unlabelled) > self.protocol.label_delay:
            yield from self._labels_arrive(self._unlabelled.pop(0))
        self.step += 1
        yield from self._end_jobs(self.clock.finished(self.step))
        if self._evaluation_due(self.step):
            yield Event("evaluate", self.step)

    def plain_steps(self, limit: int) -> int:
        """How many of the next steps, up to a step, have exactly the events `PLAIN`. They need not
        be played one by one: `pass_steps` ends them."""
        step = self.step
        if not self._plain or step == 0 or self._jobs or self._backlog or self.clock.busy(step):
            return 0
        while (
            step < limit
            and not begins_task(self.stream, step)
            and not self.stream.is_remainder(step)
            and not self._evaluation_due(step + 1)
        ):
            step += 1
        return step - self.step

    def pass_steps(self, count: int) -> None:
        """End so many plain steps, as if they had been played."""
        self.step += count
        self.clock.begin(self.step - 1, self.costs["learn"])
        self.clock.finished(self.step)

    def charge(self, kind: str) -> None:
        """Keep the learner busy with work that the protocol gives a cost, from now on."""
        if kind in self.costs:
            self.clock.charge(self.step - 1, self.costs[kind])

    def _labels_arrive(self, step: int) -> Iterator[Event]:
        """Train on the batch if the learner is or becomes free, else follow the busy policy."""
        protocol = self.protocol
        yield Event("labels", step)
        if protocol.remainder != "train" and self.stream.is_remainder(step):
            if protocol.remainder == "store":
                yield from self._begin_untimed(Event("store", step))
            else:
                yield Event("drop", step)
            return
        if protocol.preempt:
            yield from self._cancel_training()
        if protocol.busy == "queue":
            self._backlog.append(step)
            while self._backlog and self.clock.free_within(self.step):
                yield from self._train(self._backlog.pop(0))
        elif self.clock.free_within(self.step):
            yield from self._train(step)
        elif protocol.busy == "store":
            yield from self._begin_untimed(Event("store", step))
        else:
            yield Event("skip", step)

    def _cancel_training(self) -> Iterator[Event]:
        self.clock.stop(self.step)
        cancelled = [job.step for job in self._jobs if job.kind == "learn"]
        self._jobs = [job for job in self._jobs if job.kind != "learn"]
        for step in cancelled:
            yield Event("drop", step)

    def _train(self, step: int) -> Iterator[Event]:
        """Begin a training job. Jobs begun before it have ended by its start, and nothing is
        answered in between, so they end first: then the learner knows its next job's kind."""
        yield from self._end_jobs(self.clock.finished(self.step + 1))
        kind = "learn" if self._job_kind is None else self._job_kind()
        self.clock.begin(self.step, self.costs.get(kind, self.costs["learn"]))
        self._jobs.append(Event("learn", step))

    def _begin_untimed(self, job: Event) -> Iterator[Event]:
        """A job that takes no time ends at once, or right after the training begun before it."""
        self._jobs.append(job)
        yield from self._end_jobs(0)

    def _end_jobs(self, trainings: int) -> Iterator[Event]:
        """End so many training jobs, and the untimed jobs that stand before and between them."""
        while self._jobs and (trainings > 0 or self._jobs[0].kind != "learn"):
            job = self._jobs.pop(0)
            trainings -= job.kind == "learn"
            yield job

    def state_dict(self) -> dict[str, Any]:
        """Jobs are lists of `{"kind", "step"}`."""
        return {
            "step": self.step,
            "clock": self.clock.state_dict(),
            "jobs": [{"kind": job.kind, "step": job.step} for job in self._jobs],
            "unlabelled": [{"kind": "learn", "step": step} for step in self._unlabelled],
            "backlog": [{"kind": "learn", "step": step} for step in self._backlog],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.clock.load_state_dict(state["clock"])
        self._jobs = [Event(job["kind"], job["step"]) for job in state["jobs"]]
        self._unlabelled = [job["step"] for job in state["unlabelled"]]
        self._backlog = [job["step"] for job in state["backlog"]]
