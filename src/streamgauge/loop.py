"""The one loop: reveal -> predict -> score -> learn, and evaluation on held-out data.

Test, then train, exactly: at every step the newest version whose training has finished answers
before any label of the step is known. Learning is lazy: a batch in training is learnt at the moment
its time has passed, so a busy learner answers with its old weights and nothing is ever copied.
"""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.clock import Clock
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import NEEDS, Batch, Learner
from streamgauge.streams import Gate, Split, Stream
from streamgauge.streams.gate import fetch, fetch_labels

if TYPE_CHECKING:
    import torch
    from torch import Tensor

EVALUATION_BATCH = 512
# Held-out inputs up to this size stay on the device between evaluations.
CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class Protocol:
    """What is measured, and when."""

    predict: bool = True  # answer every sample before learning it
    shifts: tuple[int, ...] = ()  # also answer samples this many samples further on (near future)
    evaluate: int | Literal["boundaries", "end", "never"] = "boundaries"  # or every n steps
    unseen: bool = False  # evaluate tasks (or times) that have not come yet, too
    remainder: Literal["train", "store", "drop"] = "train"  # what to do with a short last batch
    cost: str = "1"  # of one training job, in stream steps; any fraction
    # Shares of the stream after which the answer to every held-out sample is kept. None = at the
    # end, and, where a stream has no tasks, after each third too (transfer curves).
    milestones: tuple[float, ...] | None = None


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
    ) -> None:
        self.stream = stream
        self.protocol = protocol
        self.recorder = recorder
        self.device = device
        self.gate = Gate(stream.source, stream.preparation, device)
        self.learner = build(self.gate)
        self.needs = frozenset(getattr(self.learner, "needs", ()))
        if not self.needs <= NEEDS:
            unknown = ", ".join(sorted(self.needs - NEEDS))
            raise StreamgaugeError(f"A learner cannot need {unknown}; known: {sorted(NEEDS)}.")
        self.clock = Clock(protocol.cost)
        self.step = 0
        self.version = 0
        self.evaluations = 0
        self.right = self.asked = 0
        self._jobs: list[Job] = []
        self._seconds: dict[str, float] = {}
        self._sees_input: bool = getattr(self.learner, "sees_input", True)
        self._lookahead = {s: _answering_step(stream, s) for s in sorted(set(protocol.shifts))}
        self._heldout = {name: _Heldout(stream, split) for name, split in stream.splits.items()}
        self._due = _Due(stream, protocol)

    def run(
        self,
        checkpoint_seconds: float = 30.0,
        progress: Callable[[Loop], None] | None = None,
        until: int | None = None,
    ) -> None:
        """From where it stands to the end of the stream, or to a step before it."""
        last = time.monotonic()
        if self.step == 0:
            self._tell_start()
        end = len(self.stream) if until is None else min(until, len(self.stream))
        while self.step < end:
            self._one_step(self.step)
            self.step += 1
            self._work(self.clock.finished(self.step))
            with self._timed("evaluate"):
                self._evaluate_if_due()
            if progress is not None:
                progress(self)
            now = time.monotonic()
            if now - last >= checkpoint_seconds or self.recorder.full:
                self.save()
                last = time.monotonic()
        self.save(done=self.step == len(self.stream))

    def save(self, done: bool = False) -> None:
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
            for shift, answering in self._lookahead.items():
                first, last = np.searchsorted(answering, [step, step + 1])
                for target in range(first, last):
                    self._answer(target, stream.index(target), shift)
        self.gate.label_due(index)
        if protocol.remainder != "train" and stream.is_remainder(step):
            if protocol.remainder == "store":
                self._begin(Job("store", step))
        elif self.clock.begin(step):
            self._jobs.append(Job("learn", step, predicted))

    def _answer(self, step: int, index: NDArray[Any], shift: int) -> Tensor:
        """Predict a step's samples with the version in force, and write down what it said."""
        with self._timed("read"):
            x = self.inputs(index)
        with self._timed("predict"):
            scores = self._scores(x)
        table = _table(scores)
        prediction = table.argmax(axis=1)  # the first among equals
        confidence = _confidence(table, prediction)
        if np.isnan(confidence).any():
            raise StreamgaugeError(f"The learner's scores at step {self.step} hold a NaN.")
        source, stream = self.stream.source, self.stream
        label = source.label[index]
        if shift == 0:
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
            confidence=confidence,
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
                self._store(job)
            else:
                self._tell_boundary(job)

    def _learn(self, job: Job) -> None:
        index = self.stream.index(job.step)
        with self._timed("learn"):
            scalars = dict(self.learner.learn(self._batch(index), job.predicted) or {})
        self.version += 1
        recalled = scalars.pop("recalled", np.nan)
        rows = self.recorder.rows["training"]
        for name, value in scalars.items():
            rows.append(1, step=job.step, name=name, value=value)
        self._record_job(job.step, "learn", recalled)

    def _store(self, job: Job) -> None:
        store = getattr(self.learner, "store", None)
        if store is not None:
            store(self._batch(self.stream.index(job.step)))
            self._record_job(job.step, "store", 0)

    def _record_job(self, step: int, kind: str, recalled: Any) -> None:
        held = getattr(self.learner, "memory_bytes", None)
        self.recorder.rows["jobs"].append(
            1,
            step=step,
            version=self.version,
            kind=kind,
            flops=np.nan,
            bytes=np.nan if held is None else held(),
            recalled=recalled,
        )

    def _batch(self, index: NDArray[Any]) -> Batch:
        labels = fetch_labels(self.stream.source, index, self.device)
        return Batch(self.inputs(index), labels, index.astype(np.int64, copy=False))

    def inputs(self, index: NDArray[Any]) -> Tensor:
        """Inputs by address, as this learner is shown them."""
        if self._sees_input:
            return fetch(self.stream.source, index, self.device)
        import torch

        return torch.empty((len(index), 0), device=self.device)

    def _scores(self, x: Tensor) -> Tensor:
        scores = self.learner.predict(x)
        wanted = (len(x), self.stream.spec.classes)
        if tuple(scores.shape) != wanted:
            raise StreamgaugeError(
                f"predict must return scores of shape {wanted}, not {tuple(scores.shape)}."
            )
        return scores

    # What a learner is told: only what it declared that it needs.

    def _tell_start(self) -> None:
        facts: dict[str, Any] = {}
        if "horizon" in self.needs:
            facts["horizon"] = len(self.stream)
        if "class_count" in self.needs:
            facts["class_count"] = len(np.unique(self.stream.source.label[self.stream.order]))
        if facts:
            self.learner.tell(**facts)  # type: ignore[attr-defined]

    def _tell_boundary(self, job: Job) -> None:
        if "boundaries" in self.needs:
            stream = self.stream
            assert stream.task is not None
            task = int(stream.task[job.step])
            first, last = np.searchsorted(stream.task, [task, task + 1])
            coming = stream.order[stream.starts[first] : stream.starts[last]]
            classes = np.unique(stream.source.label[coming])
            self.learner.tell(boundary=task, classes=classes)  # type: ignore[attr-defined]

    # Evaluation on held-out data.

    def _evaluate_if_due(self) -> None:
        if not self._heldout:
            return
        boundary, regular, keep = self._due(self.step)
        if not (boundary or regular or keep):
            return
        prepare = getattr(self.learner, "prepare", None)
        if prepare is not None:
            prepare()
            self._record_job(self.step - 1, "prepare", np.nan)
        current = -1 if self.stream.task is None else int(self.stream.task[self.step - 1])
        for name, heldout in self._heldout.items():
            if heldout.split.at_boundaries and not (boundary or keep):
                continue
            self._evaluate(name, heldout, current, boundary, keep)
        self.evaluations += 1

    def _evaluate(
        self, name: str, heldout: _Heldout, current: int, boundary: bool, keep: bool
    ) -> None:
        revealed = int(self.stream.starts[self.step])
        seen = len(heldout) if self.protocol.unseen else heldout.seen(current, revealed)
        asked = len(heldout) if keep else seen
        if asked == 0:
            return
        blocks = self._heldout_inputs(heldout, asked)
        table = np.concatenate([_table(self._scores(x)) for x in blocks])
        prediction = table.argmax(axis=1)
        correct = prediction == heldout.label[:asked]
        self._record_counts(name, heldout.task[:seen], correct[:seen], current, within=-1)
        if boundary and self.stream.class_task is not None:
            self._record_cumulative(name, heldout, table[:seen], current)
        if keep:
            self._record_answers(name, heldout, prediction, _confidence(table, prediction))

    def _heldout_inputs(self, heldout: _Heldout, count: int) -> Iterator[Tensor]:
        for start in range(0, count, EVALUATION_BATCH):
            end = min(start + EVALUATION_BATCH, count)
            if not self._sees_input:
                yield self.inputs(heldout.index[start:end])
            else:
                yield heldout.inputs(self.stream, start, end, self.device)

    def _record_counts(
        self, name: str, task: NDArray[Any], correct: NDArray[Any], current: int, within: int
    ) -> None:
        numbers, place = np.unique(task, return_inverse=True)
        self.recorder.rows["evaluations"].append(
            len(numbers),
            evaluation=self.evaluations,
            step=self.step,
            version=self.version,
            current=current,
            split=name,
            task=numbers,
            within=within,
            correct=np.bincount(place, weights=correct, minlength=len(numbers)),
            count=np.bincount(place, minlength=len(numbers)),
        )

    def _record_cumulative(
        self, name: str, heldout: _Heldout, table: NDArray[Any], current: int
    ) -> None:
        """Accuracy among the classes of tasks up to each earlier one, for cumulative accuracy."""
        assert self.stream.class_task is not None
        seen = len(table)
        best = np.full(seen, -np.inf)
        choice = np.full(seen, -1)
        rows = np.arange(seen)
        for limit in range(current + 1):
            classes = np.flatnonzero(self.stream.class_task == limit)
            if len(classes):
                candidate = classes[table[:, classes].argmax(axis=1)]
                better = table[rows, candidate] > best
                best = np.where(better, table[rows, candidate], best)
                choice = np.where(better, candidate, choice)
            inside = heldout.task[:seen] <= limit
            correct = choice[inside] == heldout.label[:seen][inside]
            self._record_counts(name, heldout.task[:seen][inside], correct, current, limit)

    def _record_answers(
        self, name: str, heldout: _Heldout, prediction: NDArray[Any], confidence: NDArray[Any]
    ) -> None:
        columns: dict[str, Any] = {}
        if "time" in self.stream.source.columns:
            columns["time"] = self.stream.source.columns["time"][heldout.index]
        if self.stream.task is not None:
            columns["task"] = heldout.task
        self.recorder.rows["answers"].append(
            len(heldout),
            evaluation=self.evaluations,
            step=self.step,
            split=name,
            sample=heldout.index,
            label=heldout.label,
            prediction=prediction,
            confidence=confidence,
            position=heldout.position,
            **columns,
        )

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "version": self.version,
            "evaluations": self.evaluations,
            "right": self.right,
            "asked": self.asked,
            "clock": self.clock.state_dict(),
            "jobs": [job._asdict() for job in self._jobs],
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.version = state["step"], state["version"]
        self.evaluations = state["evaluations"]
        self.right, self.asked = state["right"], state["asked"]
        self.clock.load_state_dict(state["clock"])
        self._jobs = [
            Job(j["kind"], j["step"], None if (p := j["predicted"]) is None else p.to(self.device))
            for j in state["jobs"]
        ]
        past = self.stream.order[: self.stream.starts[self.step]]
        self.gate.reveal(past)
        self.gate.label_due(past)
        self.learner.load_state_dict(state["learner"])

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - start


class _Heldout:
    """A split sorted by the moment its samples count as seen, so that "seen" is a prefix."""

    def __init__(self, stream: Stream, split: Split) -> None:
        self.split = split
        key = split.position if split.task is None else split.task
        order = np.argsort(key, kind="stable")
        self.index = split.index[order]
        self.position = split.position[order]
        self.label = stream.source.label[self.index]
        self.task = np.full(len(order), -1) if split.task is None else split.task[order]
        self._key = key[order]
        self._cache: Tensor | None = None

    def __len__(self) -> int:
        return len(self.index)

    def seen(self, current: int, revealed: int) -> int:
        """How many have been seen: tasks up to the current one, or what lies before now in time.

        The current task's held-out samples count from its first step on, as in the survey.
        """
        limit = revealed if self.split.task is None else current
        return int(np.searchsorted(self._key, limit, side="right"))

    def inputs(self, stream: Stream, start: int, end: int, device: torch.device) -> Tensor:
        if self._cache is None:
            block = fetch(stream.source, self.index[start:end], device)
            each = block.nbytes / max(1, len(block))
            if each * len(self) > CACHE_BYTES:
                return block
            self._cache = fetch(stream.source, self.index, device)
        return self._cache[start:end]


class _Due:
    """Which evaluations are due after a number of steps: (boundary, regular, keep answers)."""

    def __init__(self, stream: Stream, protocol: Protocol) -> None:
        self._steps = len(stream)
        self._every = protocol.evaluate
        self._task = stream.task
        shares = protocol.milestones
        if shares is None:
            shares = (1.0,) if stream.task is not None else (1 / 3, 2 / 3, 1.0)
        for share in shares:
            if not 0 < share <= 1:
                raise StreamgaugeError(f"A milestone is a share of the stream, not {share}.")
        if isinstance(self._every, int) and self._every < 1:
            raise StreamgaugeError("protocol.evaluate must be at least 1 step.")
        self._milestones = {ceil(share * self._steps) for share in shares}

    def __call__(self, done: int) -> tuple[bool, bool, bool]:
        if self._every == "never":
            return False, False, False
        end = done == self._steps
        boundary = end or (
            self._every != "end"
            and self._task is not None
            and self._task[done] != self._task[done - 1]
        )
        regular = isinstance(self._every, int) and done % self._every == 0
        return bool(boundary), regular, done in self._milestones


def _table(scores: Tensor) -> NDArray[Any]:
    """Scores on the host. NumPy takes a few microseconds where a small tensor operation takes
    tens, and one transfer is all that a device needs to wait for."""
    return scores.detach().cpu().numpy()


def _confidence(table: NDArray[Any], prediction: NDArray[Any]) -> NDArray[Any]:
    """Softmax of the chosen score, which is the highest: 1 / sum exp(score - chosen)."""
    chosen = table[np.arange(len(table)), prediction]
    share: NDArray[Any] = 1.0 / np.exp(table - chosen[:, None]).sum(axis=1)
    return share


def _answering_step(stream: Stream, shift: int) -> NDArray[np.int64]:
    """For each step, the step whose version answers it: the latest that began at least `shift`
    samples before it; -1 for the first samples, which no version is old enough for. So the shift is
    rounded up to whole steps."""
    if shift < 1:
        raise StreamgaugeError(f"A shift is a number of samples above 0, not {shift}.")
    begin = stream.starts[:-1]
    return np.searchsorted(begin, begin - shift, side="right").astype(np.int64) - 1
