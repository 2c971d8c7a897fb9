"""Runs to other tools: the numbers of a stored run, and live logging during one.

Both feed a `Sink`. Names: `online/accuracy` and `online/window_accuracy` along the stream (and
`near_future@S/window_accuracy`), `evaluation/SPLIT` and `evaluation/SPLIT/task_J`, `training/NAME`
for what a learner reports, and `score/NAME` for every score at the end. The step is the number of
steps of the stream.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, first_line
from streamgauge.exchange.sinks import Sink, check_sink, open_sink
from streamgauge.metrics import score
from streamgauge.metrics.log import PROBE
from streamgauge.record import Run, find_runs

if TYPE_CHECKING:
    from streamgauge.running.loop import Loop

WINDOW = 1000  # samples
Scalar = tuple[str, float, int]


class Windows:
    """Accuracy of all answers so far and of the last window, from running totals after each step.

    A window ends with the first step that gives it `size` answers or more. A stream shorter than
    one window gives one point at its end.
    """

    def __init__(self, size: int, prefix: str = "online") -> None:
        if size < 1:
            raise StreamgaugeError(f"--window must be 1 or more samples, not {size}.")
        self.size, self.prefix = size, prefix
        self._right = self._asked = self._points = 0

    def feed(self, step: int, right: int, asked: int, last: bool = False) -> Iterator[Scalar]:
        count = asked - self._asked
        if count >= self.size or (last and count and not self._points):
            accuracy = (right - self._right) / count
            self._right, self._asked, self._points = right, asked, self._points + 1
            yield f"{self.prefix}/window_accuracy", accuracy, step
            yield f"{self.prefix}/accuracy", right / asked, step


def export(runs: Any, to: str, out: str | Path = "", window: int = WINDOW) -> list[Run]:
    """Write runs (or folders of them) to `tensorboard`, `mlflow`, `wandb` or `csv`.

    `out` is a folder, or for MLflow a tracking URI. Exporting a run again replaces it there.
    """
    exported = []
    for run in find_runs(runs):
        sink = open_sink(to, str(out), run)
        try:
            _send(sink, curves(run, window))
            _send(sink, end_scalars(run))
        finally:
            sink.close()
        exported.append(run)
    return exported


def _send(sink: Sink, scalars: Iterable[Scalar]) -> None:
    for name, value, step in scalars:
        if math.isfinite(value):
            sink.scalar(name, float(value), int(step))


def curves(run: Run, window: int = WINDOW) -> Iterator[Scalar]:
    """Accuracies along the stream, by shift."""
    for shift in np.unique(run.predictions["shift"]):
        windows = Windows(window, "online" if shift == 0 else f"near_future@{shift}")
        right, asked = _totals(run, int(shift))
        for step in range(len(asked)):
            yield from windows.feed(
                step + 1, int(right[step]), int(asked[step]), step == len(asked) - 1
            )


def _totals(run: Run, shift: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Right answers and all answers up to each step."""
    table = run.predictions
    rows = np.flatnonzero(table["shift"] == shift)
    steps = table["step"][rows]
    hits = (table["label"][rows] == table["prediction"][rows]).astype(np.float64)
    right = np.cumsum(np.bincount(steps, hits)).astype(np.int64)
    return right, np.cumsum(np.bincount(steps))


def end_scalars(run: Run) -> Iterator[Scalar]:
    """What is written when a run has ended: evaluations, what the learner reported, scores."""
    yield from _evaluations(run)
    training = run.training
    for name, value, step in zip(
        training["name"], training["value"], training["step"], strict=True
    ):
        yield f"training/{name}", value, step
    for name, value in score(run).items():
        yield f"score/{name}", value, run.step


def _evaluations(run: Run) -> Iterator[Scalar]:
    table = run.evaluations
    if not len(table["evaluation"]):
        return
    chosen = np.flatnonzero(np.asarray(table["within"]) < 0)
    tasks = table["task"] if "task" in table else np.full(len(table["within"]), -1)
    totals: dict[tuple[int, str], list[int]] = {}
    for row in chosen:
        split, step, task = str(table["split"][row]), int(table["step"][row]), int(tasks[row])
        correct, count = int(table["correct"][row]), int(table["count"][row])
        total = totals.setdefault((step, split), [0, 0])
        total[0], total[1] = total[0] + correct, total[1] + count
        if task >= 0 and count and split != PROBE:
            yield f"evaluation/{split}/task_{task}", correct / count, step
    for (step, split), (correct, count) in totals.items():
        if count:
            yield f"evaluation/{split}", correct / count, step


class LiveLog:
    """Logs a run while it goes on: give it as `progress`. The accuracies come during the run, and
    evaluations, what the learner reports, and scores when it is closed. If the tool fails during
    the run, logging ends with a warning, and the run goes on."""

    def __init__(self, to: str, out: str | Path = "", window: int = WINDOW) -> None:
        check_sink(to)
        self.to, self.out = to, str(out)
        self.path: Path | None = None
        self.problem = ""  # why logging ended early
        self._windows = Windows(window)
        self._sink: Sink | None = None
        self._also: Callable[[Any], None] | None = None

    def combined_with(self, progress: Callable[[Any], None] | None) -> LiveLog:
        """Call this, too, after every step."""
        self._also = progress
        return self

    def __call__(self, loop: Loop) -> None:
        if self._also is not None:
            self._also(loop)
        if self.problem:
            return
        if self._sink is None:
            self._sink = self._open(loop)
        ends = loop.step == loop.end
        scalars = list(self._windows.feed(loop.step, loop.right, loop.asked, ends))
        try:
            _send(self._sink, scalars)
        except Exception as error:  # of a library, a disk or a server: no reason to end a run
            self._fail(error, f"at step {loop.step}")

    def _fail(self, error: Exception, when: str) -> None:
        self.problem = f"Logging to {self.to} ended {when}: {first_line(error)}"
        warnings.warn(self.problem, RuntimeWarning, stacklevel=3)

    def _open(self, loop: Loop) -> Sink:
        """The sink, with what a resumed run has logged so far."""
        self.path = Path(getattr(loop.recorder, "path"))  # noqa: B009 (a run folder has one)
        run = Run(self.path)
        sink = open_sink(self.to, self.out, run)
        if loop.step > 1 and run.predictions.rows:
            right, asked = _totals(run, 0)
            for step in range(min(len(asked), loop.step - 1)):
                _send(sink, self._windows.feed(step + 1, int(right[step]), int(asked[step])))
        return sink

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the rest of the log as far as it is stored, and close the sink."""
        if self._sink is None or self.path is None:
            return
        sink, self._sink = self._sink, None
        try:
            if not self.problem:
                _send(sink, end_scalars(Run(self.path)))
            sink.close()
        except Exception as error:
            if not self.problem:
                self._fail(error, "after the run")
