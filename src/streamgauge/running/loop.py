"""The one loop: reveal -> predict -> score -> learn, and evaluation on held-out data.

Test, then train, exactly: at every step the newest version whose training has finished answers
before any label of the step is known. Learning is lazy: a batch in training is learnt at the moment
its time has passed, so a busy learner answers with its old weights and nothing is ever copied.
"""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.cost.clock import Clock, PublishedClock, as_cost
from streamgauge.cost.flops import Meter
from streamgauge.engine import Eager
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch, Learner
from streamgauge.running.evaluation import Evaluator, blank
from streamgauge.running.lookahead import LookAhead, parse
from streamgauge.settings import coerce, setting_types
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import fetch, fetch_labels, fetch_samples, to_device
from streamgauge.streams.resident import Resident

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Protocol:
    """What is measured, and when."""

    predict: bool = True  # answer every sample before learning it
    shifts: tuple[int, ...] = ()  # also answer samples this many samples further on (near future)
    # Of the steps asked for shifts: all up to 1,000,000 samples, every n-th, or "N samples".
    thin: int | str = "auto"
    evaluate: int | Literal["boundaries", "end", "never"] = "boundaries"  # or every n steps
    unseen: bool = False  # evaluate tasks (or times) that have not come yet, too
    remainder: Literal["train", "store", "drop"] = "train"  # what to do with a short last batch
    cost: str = "1"  # of one training job, in stream steps; any fraction
    costs: tuple[str, ...] = ()  # by kind of job, such as "filling=1", where they differ
    predict_cost: str = "0"  # share of every step that answering takes from training
    busy: Literal["drop", "store", "queue"] = "drop"  # a batch that comes while the learner trains
    preempt: bool = False  # give up a job that is still running when the next batch comes
    label_delay: int = 0  # steps after which labels become known
    # The real-time paper's own patterns at the costs 4/3 and 5/2; and a learner that has `skipped`
    # is shown what is dropped.
    as_published: bool = False
    # Shares of the stream after which the answer to every held-out sample is kept. None = at the
    # end, and, where a stream has no tasks, after each third too (transfer curves).
    milestones: tuple[float, ...] | None = None
    # A linear probe of the learner's features: at boundaries, at the end, or as the device allows.
    probe: Literal["never", "auto", "end", "boundaries"] = "never"
    probe_copies: int = 1  # random views of each sample that the probe is trained on (survey: 3)

    def __post_init__(self) -> None:
        """However a protocol was written, it is checked, and equal ones are equal."""
        for name, kind in setting_types(type(self)).items():
            object.__setattr__(self, name, coerce(getattr(self, name), kind, f"protocol.{name}"))
        object.__setattr__(self, "cost", str(as_cost(self.cost)))
        object.__setattr__(self, "shifts", tuple(sorted(set(self.shifts))))
        object.__setattr__(self, "thin", str(self.thin))
        parse(str(self.thin))
        object.__setattr__(self, "predict_cost", str(as_cost(self.predict_cost, zero=True)))
        if self.label_delay < 0 or self.probe_copies < 1:
            raise StreamgaugeError(
                "protocol.label_delay must be at least 0 and protocol.probe_copies at least 1."
            )
        job_costs(self)


class Job(NamedTuple):
    """Something the learner does in its own time, in the order it was begun: train on a step's
    batch, store it, or take in that a task begins."""

    kind: Literal["learn", "store", "boundary"]
    step: int
    predicted: Tensor | None = None


class Record(typing.Protocol):
    """Where the loop writes to; the record room has the one that writes run folders."""

    @property
    def rows(self) -> Mapping[str, RowSink]: ...
    @property
    def full(self) -> bool: ...
    def checkpoint(self, step: int, state: dict[str, Any], done: bool = False) -> None: ...


class RowSink(typing.Protocol):
    def append(self, rows: int, **values: Any) -> None: ...


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
            self._resident = self._order_on_device()
        self.engine.adopt(self.adapter, stream.spec.classes)
        self.meter = Meter(self.adapter.work, self.adapter.sees_input)
        self.meter.replayed = self.engine.name == "graph" and not self.engine.reason
        self.needs = self.adapter.needs
        self.adapter.check_needs()
        self._costs = job_costs(protocol)
        self.clock = Clock(protocol.predict_cost)
        if protocol.as_published and self._costs["learn"].denominator > 1:
            self.clock = PublishedClock(self._costs["learn"])
        self.step = 0
        self.version = 0
        self.right = self.asked = 0
        self._jobs: list[Job] = []
        self._unlabelled: list[Job] = []  # answered, and waiting for their labels
        self._backlog: list[Job] = []  # labelled, and waiting for the learner
        # What was read last, to be learnt soon: a step, its inputs and labels.
        self._newest: tuple[int, Tensor, Tensor] | None = None
        self._seconds: dict[str, float] = {}
        self._sees_input = self.adapter.sees_input
        self.lookahead = LookAhead(
            stream, protocol.shifts, str(protocol.thin), self.adapter.answers_cheaply
        )
        self.evaluator = Evaluator(stream, self.adapter, protocol, recorder, device, self.engine)

    def run(
        self,
        checkpoint_seconds: float = 30.0,
        progress: Callable[[Loop], None] | None = None,
        until: int | None = None,
    ) -> None:
        """From where it stands to the end of the stream, or to a step before it."""
        for _ in self.steps(checkpoint_seconds, progress, until):
            pass

    def steps(
        self,
        checkpoint_seconds: float = 30.0,
        progress: Callable[[Loop], None] | None = None,
        until: int | None = None,
    ) -> Iterator[None]:
        """The same one step at a time, so that several loops can take turns."""
        last = time.monotonic()
        end = len(self.stream) if until is None else min(until, len(self.stream))
        while self.step < end:
            with self.engine.scope():
                self._advance()
                if self.step == end:
                    self._drain()
                if progress is not None:
                    progress(self)
                if time.monotonic() - last >= checkpoint_seconds or self.recorder.full:
                    self.save()
                    last = time.monotonic()
            yield
        with self.engine.scope():
            self.save(done=self.step == len(self.stream))

    def _advance(self) -> None:
        if self.step == 0:
            self._tell_start()
        self._one_step(self.step)
        self.step += 1
        self._work(self.clock.finished(self.step))
        if self.evaluator.due(self.step):
            with self._timed("evaluate"):
                self._prepare()
                self.evaluator.evaluate(self.step, self.version)

    def _drain(self) -> None:
        right, asked = self.engine.drain()
        self.right, self.asked = self.right + right, self.asked + asked

    def save(self, done: bool = False) -> None:
        self._drain()
        for part, seconds in self._seconds.items():
            self.recorder.rows["timing"].append(1, step=self.step, part=part, seconds=seconds)
        self._seconds.clear()
        with self._timed("record"):
            self.recorder.checkpoint(self.step, self.state_dict(), done)

    def _one_step(self, step: int) -> None:
        stream, protocol = self.stream, self.protocol
        if stream.task is not None and (step == 0 or stream.task[step] != stream.task[step - 1]):
            self._begin(Job("boundary", step))
        index = stream.index(step)
        self.gate.reveal(index)
        predicted = None
        if protocol.predict:
            predicted = self._answer(step, index, shift=0)
            for shift, target in self.lookahead.due(step):
                self._answer(target, stream.index(target), shift)
        self._unlabelled.append(Job("learn", step, predicted))
        if len(self._unlabelled) > protocol.label_delay:
            self._labels_arrive(self._unlabelled.pop(0))

    def _labels_arrive(self, job: Job) -> None:
        """Train on the batch if the learner is or becomes free, else do as the policy says."""
        stream, protocol = self.stream, self.protocol
        self.gate.label_due(stream.index(job.step))
        if protocol.remainder != "train" and stream.is_remainder(job.step):
            if protocol.remainder == "store":
                self._begin(job._replace(kind="store", predicted=None))
            return
        if protocol.preempt:
            self.clock.stop(self.step)
            self._jobs = [j for j in self._jobs if j.kind != "learn"]
        if protocol.busy == "queue":
            self._backlog.append(job)
            self._train_backlog()
        elif self.clock.free_within(self.step):
            self._train(job)
        elif protocol.busy == "store":
            self._begin(job._replace(kind="store", predicted=None))
        elif protocol.as_published:
            self._hand(job.step, "skipped")

    def idle_costs(self) -> list[str]:
        """A sentence where costs by kind were asked for, of a learner whose jobs are all alike."""
        kinds = sorted(set(self._costs) - {"learn", "prepare"})
        if not kinds or self.adapter.has_job_kinds:
            return []
        return [
            f"protocol.costs says {', '.join(kinds)}, but this learner's jobs have no kinds: each"
            f" costs {self._costs['learn']}."
        ]

    def _train_backlog(self) -> None:
        while self._backlog and self.clock.free_within(self.step):
            self._train(self._backlog.pop(0))

    def _train(self, job: Job) -> None:
        """Begin a training job. What was begun before has ended by its start, and no answer is
        given in between, so it can be done first: then the learner knows what kind comes next."""
        self._work(self.clock.finished(self.step + 1))
        cost = self._costs.get(self.adapter.job_kind(), self._costs["learn"])
        self.clock.begin(self.step, cost)
        self._jobs.append(job)

    def _answer(self, step: int, index: NDArray[Any], shift: int) -> Any:
        """Predict a step's samples with the version in force, and write down what it said."""
        with self._timed("read"):
            x, y = self._samples(step, index)
        if shift == 0:
            self._newest = (step, x, y)
        with self._timed("predict"):
            scores, prediction, sure = self.engine.answer(x, y if shift == 0 else None)
        source, stream = self.stream.source, self.stream
        label = source.label[index]
        if shift == 0 and isinstance(prediction, np.ndarray):
            self.right += int((prediction == label).sum())
            self.asked += len(index)
        columns = {name: source.columns[name][index] for name in ("user", "time")
                   if name in source.columns}  # fmt: skip
        if stream.task is not None:
            columns["task"] = stream.task[step]
        self.recorder.rows["predictions"].append(
            len(index),
            step=step,
            sample=index,
            label=label,
            prediction=prediction,
            confidence=sure,
            version=self.version,
            shift=shift,
            **columns,
        )
        return scores

    def _begin(self, job: Job) -> None:
        """What takes no time is done at once, or right after the training begun before it."""
        self._jobs.append(job)
        self._work(finished=0)

    def _work(self, finished: int) -> None:
        """Do what is due: as many trainings as have finished, and what stands between them."""
        while self._jobs and (finished > 0 or self._jobs[0].kind != "learn"):
            job = self._jobs.pop(0)
            if job.kind == "learn":
                finished -= 1
                self._learn(job)
            elif job.kind == "store":
                self._hand(job.step, "store")
            else:
                self._tell_boundary(job)

    def _learn(self, job: Job) -> None:
        with self._timed("learn"):
            batch = self._batch(job.step)
            with self.meter.job("learn", len(batch.index), job.predicted is None):
                scalars = dict(self.learner.learn(batch, job.predicted) or {})
        self.version += 1
        recalled = scalars.pop("recalled", np.nan)
        rows = self.recorder.rows["training"]
        for name, value in scalars.items():
            if not _is_number(value):
                raise StreamgaugeError(f"learn returned {name} = {value!r}, which is no number.")
            rows.append(1, step=job.step, name=name, value=value)
        self._record_job(job.step, "learn", recalled)

    def _hand(self, step: int, member: Literal["store", "skipped"]) -> None:
        """Give a batch that is not trained on to a learner that takes such: to be stored, or only
        shown, as the learner answers at this step."""
        take = self.adapter.store if member == "store" else self.adapter.skipped
        if take is not None:
            batch = self._batch(step)
            with self.meter.job(member, len(batch.y)):
                take(batch)
            self._record_job(step, member, 0)

    def _record_job(self, step: int, kind: str, recalled: Any) -> None:
        self.recorder.rows["jobs"].append(
            1,
            step=step,
            version=self.version,
            kind=kind,
            flops=self.meter.flops,
            bytes=self.adapter.memory_bytes(),
            recalled=recalled,
        )

    def _batch(self, step: int) -> Batch:
        index = self.stream.index(step)
        on_host = self.stream.source.label[index].astype(np.int64, copy=False)
        known = self._newest
        x, y = known[1:] if known is not None and known[0] == step else self._samples(step, index)
        return Batch(x, y, index.astype(np.int64, copy=False), on_host)

    def _samples(self, step: int, index: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a step, as this learner is shown them."""
        source = self.stream.source
        if self._resident is not None:
            order, labels = self._resident
            here = slice(int(self.stream.starts[step]), int(self.stream.starts[step + 1]))
            return source.fetch(order[here]), labels[here]  # type: ignore[attr-defined]
        if self._sees_input:
            return fetch_samples(source, index, self.device)
        return self.inputs(index), fetch_labels(source, index, self.device)

    def _order_on_device(self) -> tuple[Tensor, Tensor] | None:
        """Addresses and labels in the order they come, where the source lies on the device too:
        to send a step's there takes longer than many a step."""
        source, order = self.stream.source, self.stream.order
        if not isinstance(source, Resident) or source.device != self.device:
            return None
        if not self.adapter.sees_input:
            return None
        there = to_device(order, self.device)
        return there, source.fetch_labels(there)

    def inputs(self, index: NDArray[Any]) -> Tensor:
        """Inputs by address, as this learner is shown them."""
        if self._sees_input:
            return fetch(self.stream.source, index, self.device)
        return blank(len(index), self.device)

    def _prepare(self) -> None:
        if self.adapter.prepare is not None:
            with self.meter.job("prepare"):
                self.adapter.prepare()
            if "prepare" in self._costs:
                self.clock.charge(self.step - 1, self._costs["prepare"])
            self._record_job(self.step - 1, "prepare", np.nan)

    # What a learner is told: only what it declared that it needs.

    def _tell_start(self) -> None:
        facts: dict[str, Any] = {}
        if "horizon" in self.needs:
            facts["horizon"] = len(self.stream)
        if "class_count" in self.needs:
            facts["class_count"] = len(np.unique(self.stream.source.label[self.stream.order]))
        self.adapter.tell_facts(**facts)

    def _tell_boundary(self, job: Job) -> None:
        if "boundaries" in self.needs:
            stream = self.stream
            assert stream.task is not None
            task = int(stream.task[job.step])
            first, last = np.searchsorted(stream.task, [task, task + 1])
            coming = stream.order[stream.starts[first] : stream.starts[last]]
            classes = np.unique(stream.source.label[coming])
            self.adapter.tell_facts(boundary=task, classes=classes)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "version": self.version,
            "evaluations": self.evaluator.number,
            "right": self.right,
            "asked": self.asked,
            "clock": self.clock.state_dict(),
            "flops": self.meter.state_dict(),
            **{
                name: [job._asdict() for job in getattr(self, f"_{name}")]
                for name in ("jobs", "unlabelled", "backlog")
            },
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.version = state["step"], state["version"]
        self.evaluator.number = state["evaluations"]
        self.right, self.asked = state["right"], state["asked"]
        self.clock.load_state_dict(state["clock"])
        self.meter.load_state_dict(state["flops"])
        for name in ("jobs", "unlabelled", "backlog"):
            setattr(self, f"_{name}", [self._load_job(job) for job in state[name]])
        past = self.stream.order[: self.stream.starts[self.step]]
        self.gate.reveal(past)
        labelled = self.stream.starts[self.step - len(self._unlabelled)]
        self.gate.label_due(self.stream.order[:labelled])
        self.learner.load_state_dict(state["learner"])

    def _load_job(self, stored: dict[str, Any]) -> Job:
        predicted = stored["predicted"]
        return Job(
            stored["kind"], stored["step"], None if predicted is None else predicted.to(self.device)
        )

    def _timed(self, part: str) -> AbstractContextManager[None]:
        return _Timed(self._seconds, part)


class _Timed:
    """Adds the seconds that a block took to those of its part; a class, as that is entered in a
    third of the time that a generator takes."""

    __slots__ = ("_part", "_seconds", "_start")

    def __init__(self, seconds: dict[str, float], part: str) -> None:
        self._seconds, self._part = seconds, part

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took = time.perf_counter() - self._start
        self._seconds[self._part] = self._seconds.get(self._part, 0.0) + took


def _is_number(value: Any) -> bool:
    if hasattr(value, "numel"):  # a tensor is left where it is until the log is written
        return bool(value.numel() == 1)
    return isinstance(value, (int, float, np.number)) or (
        np.ndim(value) == 0 and not isinstance(value, (str, bytes))
    )


def job_costs(protocol: Protocol) -> dict[str, Fraction]:
    """Cost by kind of job; kinds that are not named cost `protocol.cost`."""
    costs = {"learn": as_cost(protocol.cost)}
    for text in protocol.costs:
        kind, equals, cost = text.partition("=")
        if not equals:
            raise StreamgaugeError(f"protocol.costs takes KIND=COST, not '{text}'.")
        costs[kind] = as_cost(cost)
    return costs
