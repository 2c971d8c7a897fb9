"""The engine that records steps and replays them, on its own CUDA stream.

Several interleaved runs on one GPU have one engine each: their replays overlap, since nothing in a
step waits. What a run logs stays on the device until a checkpoint fetches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from streamgauge.cost.flops import counting
from streamgauge.engine.counting import right
from streamgauge.engine.eager import Answers, Eager, ask, not_finite
from streamgauge.engine.steps import CudaTape, EngineExecutor, HostTape, Tape
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import StepExecutor, StepRecording
from streamgauge.models.folded import Folded
from streamgauge.models.resnet import Residual

BLOCK = 4096  # held-out samples answered at once


class Graph(Eager):
    """Recorded steps; evaluation in a network folded for it, in a precision of choice."""

    name = "graph"

    def __init__(self, device: torch.device, precision: str = "fp16") -> None:
        self.device = device
        gpu = device.type == "cuda"
        self.precision: str = precision if gpu else "fp32"
        self._stream = torch.cuda.Stream(device) if gpu else None  # type: ignore[no-untyped-call]
        self._folded: Folded | None = None
        self._inputs: dict[str, Tensor] = {}
        self._asked = 0
        with self.scope():  # made on the stream that adds to them
            self._right = torch.zeros((), dtype=torch.int64, device=device)
            self._has_nan = torch.zeros((), dtype=torch.bool, device=device)

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def adopt(self, adapter: LearnerAdapter, classes: int) -> None:
        super().adopt(adapter, classes)
        self._steps: StepExecutor = StepExecutor()
        self.reason = adapter.eager
        if self.reason:
            return
        network: StepRecording = adapter.learner  # type: ignore[assignment]
        tape: Tape = HostTape()
        if self._stream is not None:
            tape = CudaTape(self.device, [network.generator])
        if isinstance(network.model, Residual) and self.precision != "fp32":
            self._folded = Folded(network.model, self.precision)
        self._steps = network.executor = EngineExecutor(tape, self.say, self._inference)

    def answer(self, x: Tensor, y: Tensor | None = None) -> Answers:
        if y is None:  # no answer counts as right
            y = torch.full((len(x),), -1, device=self.device)
        else:
            self._asked += len(y)
        return Answers(*self._steps.run(self._answer, x, y))

    def _answer(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        answers = self.judge(ask(self.learner, x, self.classes))
        self._right += (answers.prediction == y).sum()
        return tuple(answers)

    def judge(self, scores: Tensor) -> Answers:
        """On the device; a NaN is noticed when results are fetched. Detached, since the autograd
        history would be kept until then."""
        table = scores.detach().float()
        best, prediction = table.max(1)
        confidence = 1 / (table - best[:, None]).exp().sum(1)
        self._has_nan |= confidence.isnan().any()
        return Answers(scores, prediction, confidence)

    def scores(self, x: Tensor) -> Tensor:
        with self._inference():
            return ask(self.learner, x, self.classes)

    def counts(self, heldout: Any, asked: int) -> Tensor:
        """Recorded for each number of samples that may be evaluated."""
        self._heldout = heldout
        counted: Tensor = self._steps.run(self._counts, heldout.name, asked)
        return counted

    def _counts(self, _name: str, asked: int) -> Tensor:
        x = self._inputs_of(self._heldout)[:asked]
        with self._inference():
            parts = x.split(BLOCK)  # type: ignore[no-untyped-call]
            scores = torch.cat([ask(self.learner, part, self.classes) for part in parts])
        self._has_nan |= scores.isnan().any()
        return right(scores.argmax(1), self._heldout.marks(asked, self.device))

    def _inputs_of(self, heldout: Any) -> Tensor:
        """All held-out inputs on the device, in the format of the folded network if any."""
        if heldout.name not in self._inputs:
            x = heldout.inputs(0, len(heldout), self.device)
            if self._folded is not None:
                learner: Any = self.learner
                parts = [self._folded.ready(learner.normalise(part)) for part in x.split(BLOCK)]
                x = torch.cat(parts)
            self._inputs[heldout.name] = x
        return self._inputs[heldout.name]

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """The folded network answers instead of the learner's own; not where FLOPs are counted, as
        those of fused convolutions are not seen."""
        with _tf32(self.precision != "fp32"), torch.no_grad():
            if self._folded is None or counting():
                yield
                return
            learner: Any = self.learner
            self._folded.refresh()
            own, learner.model = learner.model, self._folded
            try:
                yield
            finally:
                learner.model = own

    def exact(self, x: Tensor) -> Tensor | None:
        """Scores in fp32, to compare with; None where evaluation is in fp32 anyway."""
        if self._folded is None:
            return None
        with _tf32(False), torch.no_grad():
            return self.learner.predict(x)

    def drain(self) -> tuple[int, int]:
        right, asked = int(self._right), self._asked
        self._right.zero_()
        self._asked = 0
        if bool(self._has_nan):
            raise not_finite(self.learner)
        return right, asked


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Whether convolutions in fp32 may round their inputs, which torch lets them by default."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
