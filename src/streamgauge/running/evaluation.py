"""Evaluation on held-out data: when it is due, what counts as seen, and the rows of the log."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.engine import Eager
from streamgauge.engine.counting import HeldOutLabels, classes_of, right, right_within
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.running.jobs import blank
from streamgauge.running.protocol import Protocol
from streamgauge.running.rows import Record
from streamgauge.streams import Split, Stream
from streamgauge.streams.gate import fetch, to_device

BLOCK, LARGE_BLOCK = 512, 4096  # samples per forward pass, on a CPU and on a GPU
# Images per forward pass on a CPU: the activations of more do not fit into its cache.
IMAGES_ON_CPU = 128
CHANGED = "changed_by_precision"  # share of held-out answers that differ in fp32
# Held-out inputs up to this size stay on the device between evaluations.
CACHE_BYTES = 256 << 20


Tasks = tuple[NDArray[Any], NDArray[Any]]  # their numbers, and how many samples each has


class Moment(NamedTuple):
    """The state of the run at an evaluation."""

    evaluation: int
    step: int  # steps that have ended
    version: int
    current: int  # task of the last step, or -1


class Evaluator:
    """Answers held-out samples with the current version, and appends the counts to the log."""

    def __init__(
        self,
        stream: Stream,
        adapter: LearnerAdapter,
        protocol: Protocol,
        record: Record,
        device: torch.device,
        engine: Eager | None = None,
    ) -> None:
        self.stream, self.adapter, self.protocol = stream, adapter, protocol
        if engine is None:
            engine = Eager()
            engine.adopt(adapter, stream.spec.classes)
        self.engine = engine
        self.rows, self.device = record.rows, device
        self.number = 0  # evaluations so far
        self._heldout = {
            name: Heldout(stream, split, name) for name, split in stream.splits.items()
        }
        self._due = DueEvaluation(stream, protocol, device)
        if protocol.probe != "never" and adapter.features is None:
            raise StreamgaugeError("This learner has no `features`, so there is nothing to probe.")

    def due(self, step: int) -> bool:
        """Whether an evaluation is due after `step` steps."""
        return bool(self._heldout) and any(self._due(step))

    def warm_up(self) -> None:
        """Predict all held-out samples once, to know the memory needed; changes nothing."""
        for heldout in self._heldout.values():
            for x in self._inputs(heldout, len(heldout)):
                self.engine.scores(x)

    def evaluate(self, step: int, version: int) -> None:
        boundary, _, keep, probe = self._due(step)
        current = -1 if self.stream.task is None else int(self.stream.task[step - 1])
        moment = Moment(self.number, step, version, current)
        for name, heldout in self._heldout.items():
            if boundary or keep or not heldout.split.at_boundaries:
                if heldout.split.at_boundaries:
                    self.adapter.prepare_test()
                self._evaluate(name, heldout, moment, boundary, keep)
        if probe:
            self._probe(moment)
        self.number += 1

    def _evaluate(
        self, name: str, heldout: Heldout, moment: Moment, boundary: bool, keep: bool
    ) -> None:
        seen = len(heldout) if self.protocol.unseen else self._seen(heldout, moment)
        asked = len(heldout) if keep else seen
        if asked == 0:
            return
        if not (boundary or keep) and heldout.recurs:
            counted = self.engine.counts(heldout, seen)
            if counted is not None:
                self._record_right(name, moment, heldout.tasks_of(seen), counted)
                return
        cumulative = boundary and self.stream.class_task is not None
        blocks, changed = [], []
        for x in self._inputs(heldout, asked):
            scores = self.engine.scores(x)
            exact = self.engine.exact(x) if boundary and not heldout.split.at_boundaries else None
            if exact is not None:
                changed.append((exact.argmax(1) != scores.argmax(1)).sum())
            answers = self.engine.judge(scores)
            # scores are kept only where they are needed again
            blocks.append(answers if cumulative else answers._replace(scores=None))
        prediction = _joined([block.prediction for block in blocks])
        right = heldout.right(prediction[:seen])
        self._record_right(name, moment, heldout.tasks_of(seen), right)
        if changed:  # the effect of evaluating in a lower precision
            share = sum(changed) / asked
            self.rows["training"].append(1, step=moment.step - 1, name=CHANGED, value=share)
        if cumulative:
            scores = _joined([block.scores for block in blocks])
            self._record_cumulative(name, moment, heldout, scores[:seen])
        if keep:
            confidence = _joined([block.confidence for block in blocks])
            self._record_answers(name, moment, heldout, prediction, confidence)

    def _seen(self, heldout: Heldout, moment: Moment) -> int:
        return heldout.seen(moment.current, int(self.stream.starts[moment.step]))

    def _inputs(self, heldout: Heldout, count: int) -> Iterator[Tensor]:
        images = len(self.stream.spec.input_shape) == 3
        small = IMAGES_ON_CPU if images else BLOCK
        block = LARGE_BLOCK if self.device.type == "cuda" else small
        for start in range(0, count, block):
            end = min(start + block, count)
            if self.adapter.sees_input:
                yield heldout.inputs(start, end, self.device)
            else:
                yield blank(end - start, self.device)

    def _record_right(
        self, name: str, moment: Moment, tasks: Tasks, right: Any, within: Any = -1
    ) -> None:
        numbers, count = tasks
        facts = {**moment._asdict(), "split": name, "within": within}
        rows = self.rows["evaluations"]
        rows.append(len(numbers), **facts, task=numbers, correct=right, count=count)

    def _record_cumulative(self, name: str, moment: Moment, heldout: Heldout, scores: Any) -> None:
        """Accuracy among the classes of tasks up to each earlier one, for cumulative accuracy."""
        assert self.stream.class_task is not None
        scores, limits = torch.as_tensor(scores), moment.current + 1
        classes = to_device(classes_of(self.stream.class_task, limits), scores.device)
        counted = right_within(scores, heldout.marks(len(scores), scores.device), classes)
        numbers, count = heldout.tasks_of(len(scores))
        within, task = np.nonzero(numbers <= np.arange(limits)[:, None])
        chosen = to_device(task * limits + within, scores.device)
        correct = counted.flatten().index_select(0, chosen)
        self._record_right(name, moment, (numbers[task], count[task]), correct, within)

    def _record_answers(
        self, name: str, moment: Moment, heldout: Heldout, prediction: Any, confidence: Any
    ) -> None:
        columns: dict[str, Any] = {}
        if "time" in self.stream.source.columns:
            columns["time"] = self.stream.source.columns["time"][heldout.index]
        if self.stream.task is not None:
            columns["task"] = heldout.task
        self.rows["answers"].append(
            len(heldout),
            evaluation=moment.evaluation,
            step=moment.step,
            split=name,
            sample=heldout.index,
            label=heldout.label,
            prediction=prediction,
            confidence=confidence,
            position=heldout.position,
            **columns,
        )

    def _probe(self, moment: Moment) -> None:
        """Train a linear classifier on the learner's features of all samples streamed so far, and
        test it on held-out data: the quality of the features without the head."""
        from streamgauge.metrics import linear_probe

        index = self.stream.order[: self.stream.starts[moment.step]]
        copies = self.protocol.probe_copies
        draws = [None] if copies == 1 else [(moment.step, copy) for copy in range(copies)]
        known = np.concatenate([self._features(index, draw) for draw in draws])
        labels = np.tile(self.stream.source.label[index], copies)
        probe = linear_probe(known, labels, device=self.device.type)
        heldout = self._heldout.get("test") or self._heldout["held_out"]
        seen = self._seen(heldout, moment)
        if seen:
            prediction = probe.predict(self._features(heldout.index[:seen], None))
            right = heldout.right(prediction)
            self._record_right("probe", moment, heldout.tasks_of(seen), right)

    def _features(self, index: NDArray[Any], draw: tuple[int, int] | None) -> NDArray[Any]:
        """Features of samples; with a draw, of random views of them. The views have their own
        generator, so that probing changes nothing."""
        generator = None
        if draw is not None:
            generator = torch.Generator(self.device).manual_seed(hash(draw) % (1 << 62))
        blocks = (index[start : start + BLOCK] for start in range(0, len(index), BLOCK))
        read = (fetch(self.stream.source, block, self.device) for block in blocks)
        features = self.adapter.features
        assert features is not None
        return np.concatenate([features(x, generator).cpu().numpy() for x in read])


class Heldout:
    """A split sorted by when its samples count as seen, so that "seen" is a prefix."""

    def __init__(self, stream: Stream, split: Split, name: str = "") -> None:
        self.stream, self.split, self.name = stream, split, name
        key = split.position if split.task is None else split.task
        order = np.argsort(key, kind="stable")
        self.index = split.index[order]
        self.position = split.position[order]
        self.label = stream.source.label[self.index]
        self.task = np.full(len(order), -1) if split.task is None else split.task[order]
        self._key = key[order]
        self._cache: Tensor | None = None
        self._tasks, self._begins = np.unique(self.task, return_index=True)
        self._ends = np.append(self._begins[1:], len(order))
        self._known: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    def seen(self, current: int, revealed: int) -> int:
        """How many count as seen: tasks up to the current one, or positions up to the last sample.
        The current task's held-out samples count from its first step on, as in the survey."""
        limit = revealed if self.split.task is None else current
        return int(np.searchsorted(self._key, limit, side="right"))

    def inputs(self, start: int, end: int, device: torch.device) -> Tensor:
        source = self.stream.source
        if self._cache is None:
            block = fetch(source, self.index[start:end], device)
            each = block.nbytes / max(1, len(block))
            if each * len(self) > CACHE_BYTES:
                return block
            self._cache = fetch(source, self.index, device)
        return self._cache[start:end]

    @cached_property
    def recurs(self) -> bool:
        """Whether the same samples are evaluated repeatedly, as within a task, and fit on the
        device: then an engine may record the evaluation."""
        each = self.stream.source.read(self.index[:1]).nbytes
        return self.split.task is not None and each * len(self) <= CACHE_BYTES

    def tasks_of(self, asked: int) -> Tasks:
        """The tasks of the first `asked` samples, which are the first tasks, and their sizes."""
        known = self._begins.searchsorted(asked)
        return self._tasks[:known], np.minimum(self._ends[:known], asked) - self._begins[:known]

    def right(self, prediction: Any) -> Any:
        """Correct answers per task, for predictions of the first samples, on their device."""
        asked = len(prediction)
        if not isinstance(prediction, np.ndarray):
            return right(prediction, self.marks(asked, prediction.device))
        correct = prediction == self.label[:asked]
        return np.add.reduceat(correct, self._begins[self._begins < asked], dtype=np.int64)

    def marks(self, asked: int, device: torch.device) -> HeldOutLabels:
        """Labels and tasks of the first `asked` samples on the device: views of tensors that stay
        at the same address, as a recorded evaluation needs."""
        if not self._known:
            known = (self.label, self.task, self._tasks)
            self._known = tuple(to_device(v.astype(np.int64), device) for v in known)
        label, task, tasks = self._known
        return HeldOutLabels(label[:asked], task[:asked], tasks[: self._begins.searchsorted(asked)])


class DueEvaluation:
    """What is due after a number of steps: (boundary, regular, keep answers, probe)."""

    def __init__(self, stream: Stream, protocol: Protocol, device: torch.device) -> None:
        self._steps = len(stream)
        self._every = protocol.evaluate
        self._task = stream.task
        self._probe = protocol.probe
        if self._probe == "auto":  # all boundaries take seconds on a GPU and minutes on a CPU
            self._probe = "boundaries" if device.type == "cuda" else "end"
        shares = protocol.milestones
        if shares is None:
            whole = stream.task is not None or self._every == "end"
            shares = (1.0,) if whole else (1 / 3, 2 / 3, 1.0)
        for share in shares:
            if not 0 < share <= 1:
                raise StreamgaugeError(f"A milestone is a share of the stream, not {share}.")
        if isinstance(self._every, int) and self._every < 1:
            raise StreamgaugeError("protocol.evaluate must be at least 1 step.")
        self._milestones = {ceil(share * self._steps) for share in shares}

    def __call__(self, done: int) -> tuple[bool, bool, bool, bool]:
        if self._every == "never":
            return False, False, False, False
        end = done == self._steps
        boundary = end or (
            self._every != "end"
            and self._task is not None
            and bool(self._task[done] != self._task[done - 1])
        )
        regular = isinstance(self._every, int) and done % self._every == 0
        probe = (end and self._probe != "never") or (boundary and self._probe == "boundaries")
        return boundary, regular, done in self._milestones, probe


def _joined(parts: list[Any]) -> Any:
    """One array of the results of all blocks, or one tensor if they are tensors."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return torch.cat(parts)
