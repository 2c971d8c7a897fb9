"""The loop: executes the events of a schedule with one learner on one stream, and writes the log.

Test, then train: at every step the newest version whose training has finished answers before any
label of the step is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.cost.flops import Meter
from streamgauge.engine import Eager
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch, Learner
from streamgauge.running import jobs
from streamgauge.running.evaluation import Evaluator
from streamgauge.running.lookahead import LookAhead
from streamgauge.running.protocol import Protocol
from streamgauge.running.rows import Record, append_job, append_predictions, append_training
from streamgauge.running.schedule import Event, Schedule
from streamgauge.settings import CHECKPOINT
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import Resident, fetch_labels, fetch_samples, to_device

Progress = Callable[["Loop"], None]  # called after each step; with `sparse = True` also less often
TURNS = 512  # samples of the steps that a learner takes in one call


class Loop:
    """One learner on one stream. Everything that a resumed run needs is in `state_dict`."""

    def __init__(
        self,
        stream: Stream,
        build: Callable[[Gate], Learner],
        protocol: Protocol,
        recorder: Record,
        device: torch.device,
        engine: Eager | None = None,
    ) -> None:
        self.engine = engine or Eager()
        self.stream = stream
        self.protocol = protocol
        self.recorder = recorder
        self.device = device
        self.gate = Gate(stream.source, stream.preparation, device)
        with self.engine.scope():
            self.learner = build(self.gate)
            self.adapter = LearnerAdapter(self.learner)
            self.sees_input = self.adapter.sees_input
            self._resident = self._order_on_device()
        self.engine.adopt(self.adapter, stream.spec.classes)
        self.meter = Meter(self.adapter.work, self.adapter.sees_input, self.adapter.uses_torch)
        self.meter.replayed = self.engine.name == "graph" and not self.engine.reason
        self.adapter.check_needs()
        self.version = 0
        self.end = len(stream)  # the step that `steps` stops at
        self.right = self.asked = 0  # correct answers and answers without a shift
        self.lookahead = LookAhead(
            stream, protocol.shifts, str(protocol.thin), self.adapter.answers_cheaply
        )
        self.evaluator = Evaluator(stream, self.adapter, protocol, recorder, device, self.engine)
        # Events whose batch is shown to the learner without training -> the learner's method.
        members = {"store": "store", **({"skip": "skipped"} if protocol.as_published else {})}
        self.shown_untrained = {
            kind: member for kind, member in members.items() if getattr(self.adapter, member)
        }
        self.schedule = Schedule(
            stream, protocol, self.lookahead, self.evaluator.due, self.adapter.job_kind
        )
        self._seconds: dict[str, float] = {}  # by part of the work, since the last checkpoint
        self._scores: dict[int, Tensor | None] = {}  # of answered steps that may yet be trained
        # The newest step that was read, with its inputs and labels: it is often trained next.
        self._newest: tuple[int, Tensor, Tensor] | None = None
        # For a learner whose state may be unfit for a checkpoint: called with the state after the
        # first training and before the first checkpoint.
        self.check_state: Callable[[dict[str, Any]], None] | None = None
        self._trained_unchecked = True

    @property
    def step(self) -> int:
        """Steps that have ended."""
        return self.schedule.step

    def run(self, checkpoint_seconds: float = CHECKPOINT, until: int | None = None) -> None:
        """Go on to the end of the stream, or to an earlier step."""
        for _ in self.steps(checkpoint_seconds, until=until):
            pass

    def steps(
        self,
        checkpoint_seconds: float = CHECKPOINT,
        progress: Progress | None = None,
        until: int | None = None,
    ) -> Iterator[None]:
        """Like `run`, one step per iteration, so that several loops can be interleaved; a few steps
        where a learner takes many in one call."""
        last = time.monotonic()
        end = self.end = len(self.stream) if until is None else min(until, len(self.stream))
        turns = self._takes_turns() and (progress is None or getattr(progress, "sparse", False))
        while self.step < end:
            with self.engine.scope():
                if turns and (count := self._turns_ahead(end)):
                    self._take_turns(count)
                else:
                    for event in self.schedule.play_step():
                        _HANDLERS[event.kind](self, event)
                if self.step == end:
                    self._drain()
                if self._trained_unchecked and self.version:
                    self._trained_unchecked = False
                    self._check_state()
                if progress is not None:
                    progress(self)
                if time.monotonic() - last >= checkpoint_seconds or self.recorder.full:
                    self.save()
                    last = time.monotonic()
            yield
        with self.engine.scope():
            self.save(done=self.step == len(self.stream))

    def _takes_turns(self) -> bool:
        plain = self.engine.name == "eager" and self.device.type == "cpu" and self._resident is None
        return plain and self.adapter.takes_turns and not self.adapter.has_job_kinds

    def _turns_ahead(self, end: int) -> int:
        """How many of the next steps only answer and learn their samples."""
        if self._trained_unchecked or not self.meter.finds_nothing:
            return 0
        count = max(1, TURNS // self.stream.size)
        return self.schedule.plain_steps(min(self.step + count, end))

    def _take_turns(self, count: int) -> None:
        stream, rows, first = self.stream, self.recorder.rows, self.step
        starts = stream.starts[first : first + count + 1]
        index = stream.order[starts[0] : starts[-1]]
        self.gate.reveal(index)
        self.gate.label_due(index)
        with self.timed("read"):
            x, label = stream.source.read(index), stream.source.label[index]
        with self.timed("predict"):
            assert self.adapter.answer_and_learn is not None
            y, ends = label.astype(np.int64, copy=False), starts[1:] - starts[0]
            scores, learning = self.adapter.answer_and_learn(x, y, ends)
            _, prediction, confidence = self.engine.judge(scores)
        self._seconds["predict"] -= learning
        self._seconds["learn"] = self._seconds.get("learn", 0.0) + learning
        turn = np.arange(count)
        of_sample = np.repeat(turn, np.diff(starts))
        append_predictions(
            rows, stream, first + of_sample, prediction, confidence, self.version + of_sample
        )
        size, version = self.adapter.memory_bytes(), self.version + 1 + turn
        append_job(rows, first + turn, version, "learn", np.nan, size, np.nan, count)
        self.version += count
        self.right += int((prediction == label).sum())
        self.asked += len(label)
        self.schedule.pass_steps(count)

    def _drain(self) -> None:
        right, asked = self.engine.drain()
        self.right, self.asked = self.right + right, self.asked + asked

    def save(self, done: bool = False) -> None:
        """Write the log and a checkpoint."""
        self._check_state()
        self.check_state = None
        self._drain()
        for part, seconds in self._seconds.items():
            self.recorder.rows["timing"].append(1, step=self.step, part=part, seconds=seconds)
        self._seconds.clear()
        with self.timed("record"):
            self.recorder.checkpoint(self.step, self.state_dict(), done)

    def unsaved_rows(self) -> dict[str, Any]:
        """Tables of the rows that no checkpoint has, up to the last whole step; for a loop that
        failed and does not go on."""
        import pyarrow.compute as pc

        from streamgauge.record.tables import RowBuffer

        buffers = {k: v for k, v in self.recorder.rows.items() if isinstance(v, RowBuffer)}
        with self.engine.scope():  # values may still be computed on its stream of the device
            tables = {name: rows.take() for name, rows in buffers.items() if rows.count}
        return {
            name: table.filter(pc.less(table["step"], self.step))
            for name, table in tables.items()
            if "step" in table.column_names
        }

    def _check_state(self) -> None:
        if self.check_state is not None:
            self.check_state(self.learner.state_dict())

    def idle_costs(self) -> list[str]:
        """A sentence if the protocol has costs by kind of job and the learner has no kinds."""
        costs = self.schedule.costs
        kinds = sorted(set(costs) - {"learn", "prepare"})
        if not kinds or self.adapter.has_job_kinds:
            return []
        return [
            f"protocol.costs gives costs for {', '.join(kinds)}, but this learner's jobs have no"
            f" kinds: each costs {costs['learn']}."
        ]

    # Events.

    def _tell_start(self, event: Event) -> None:
        self.adapter.tell_facts(**jobs.start_facts(self.stream, self.adapter.needs))

    def _tell_boundary(self, event: Event) -> None:
        facts = jobs.boundary_facts(self.stream, event.step, self.adapter.needs)
        self.adapter.tell_facts(**facts)

    def _reveal(self, event: Event) -> None:
        self.gate.reveal(self.stream.index(event.step))

    def _release_labels(self, event: Event) -> None:
        self.gate.label_due(self.stream.index(event.step))

    def _answer(self, event: Event) -> None:
        """Predict a step's samples with the version in force, and append the answers."""
        step, shift = event.step, event.shift
        with self.timed("read"):
            x, y = self._samples(step, self.stream.index(step))
        with self.timed("predict"):
            scores, prediction, confidence = self.engine.answer(x, y if shift == 0 else None)
        label = append_predictions(
            self.recorder.rows, self.stream, step, prediction, confidence, self.version, shift
        )
        if shift == 0:
            self._newest, self._scores[step] = (step, x, y), scores
            if isinstance(prediction, np.ndarray):
                self.right += int((prediction == label).sum())
                self.asked += len(label)

    def _learn(self, event: Event) -> None:
        with self.timed("learn"):
            batch = self._batch(event.step)
            scores = self._scores.pop(event.step, None)
            scalars = jobs.train(self.learner, self.meter, batch, scores)
        self.version += 1
        rows, flops, size = self.recorder.rows, self.meter.flops, self.adapter.memory_bytes()
        append_training(rows, event.step, self.version, scalars, flops, size)

    def _pass_over(self, event: Event) -> None:
        """A batch is not trained on: a learner that asks for such batches is shown it."""
        self._scores.pop(event.step, None)
        member = self.shown_untrained.get(event.kind)
        if member is not None:
            batch = self._batch(event.step)
            with self.meter.job(member, len(batch.y)):
                getattr(self.adapter, member)(batch)
            self._append_job(event.step, member, 0)

    def _evaluate(self, event: Event) -> None:
        with self.timed("evaluate"):
            if jobs.prepare(self.adapter, self.meter):
                self.schedule.charge("prepare")
                self._append_job(event.step - 1, "prepare", np.nan)
            self.evaluator.evaluate(event.step, self.version)

    def _append_job(self, step: int, kind: str, recalled: float) -> None:
        size = self.adapter.memory_bytes()
        append_job(self.recorder.rows, step, self.version, kind, self.meter.flops, size, recalled)

    # Inputs.

    def _batch(self, step: int) -> Batch:
        index = self.stream.index(step)
        on_host = self.stream.source.label[index].astype(np.int64, copy=False)
        newest = self._newest
        if newest is not None and newest[0] == step:
            x, y = newest[1:]
        else:
            x, y = self._samples(step, index)
        return Batch(x, y, index.astype(np.int64, copy=False), on_host)

    def _samples(self, step: int, index: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a step."""
        source = self.stream.source
        if self._resident is not None:
            order, labels = self._resident
            rows = slice(int(self.stream.starts[step]), int(self.stream.starts[step + 1]))
            return source.fetch(order[rows]), labels[rows]  # type: ignore[attr-defined]
        if self.sees_input:
            return fetch_samples(source, index, self.device)
        return self.inputs(index), fetch_labels(source, index, self.device)

    def _order_on_device(self) -> tuple[Tensor, Tensor] | None:
        """Addresses and labels in stream order, if the source is on the device too: to send them
        step by step takes longer than many a step."""
        source, order = self.stream.source, self.stream.order
        if not isinstance(source, Resident) or source.device != self.device or not self.sees_input:
            return None
        on_device = to_device(order, self.device)
        return on_device, source.fetch_labels(on_device)

    def inputs(self, index: NDArray[Any]) -> Tensor:
        """Inputs by address, as this learner is shown them."""
        return jobs.inputs(self.stream.source, index, self.adapter, self.device)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        schedule = self.schedule.state_dict()
        for name in ("jobs", "unlabelled", "backlog"):
            for job in schedule[name]:
                trains = job["kind"] == "learn"
                job["predicted"] = self._scores.get(job["step"]) if trains else None
        return {
            **schedule,
            "version": self.version,
            "evaluations": self.evaluator.number,
            "right": self.right,
            "asked": self.asked,
            "flops": self.meter.state_dict(),
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.schedule.load_state_dict(state)
        self.version = state["version"]
        self.evaluator.number = state["evaluations"]
        self.right, self.asked = state["right"], state["asked"]
        self.meter.load_state_dict(state["flops"])
        self._scores = {
            job["step"]: job["predicted"].to(self.device)
            for name in ("jobs", "unlabelled", "backlog")
            for job in state[name]
            if job["predicted"] is not None
        }
        order, starts = self.stream.order, self.stream.starts
        self.gate.reveal(order[: starts[self.step]])
        self.gate.label_due(order[: starts[self.schedule.labelled]])
        self.learner.load_state_dict(state["learner"])

    def timed(self, part: str) -> AbstractContextManager[None]:
        return _Stopwatch(self._seconds, part)


# Of the class, not of an object: bound methods in a loop would be a reference cycle, and a closed
# run would keep its memory until the garbage collector comes.
_HANDLERS: dict[str, Callable[[Loop, Event], None]] = {
    "start": Loop._tell_start,
    "boundary": Loop._tell_boundary,
    "reveal": Loop._reveal,
    "answer": Loop._answer,
    "labels": Loop._release_labels,
    "learn": Loop._learn,
    "store": Loop._pass_over,
    "skip": Loop._pass_over,
    "drop": Loop._pass_over,
    "evaluate": Loop._evaluate,
}


class _Stopwatch:
    """Adds the seconds of a block to its part; a class, as generators take three times as long."""

    __slots__ = ("_part", "_seconds", "_start")

    def __init__(self, seconds: dict[str, float], part: str) -> None:
        self._seconds, self._part = seconds, part

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._start
        self._seconds[self._part] = self._seconds.get(self._part, 0.0) + seconds
