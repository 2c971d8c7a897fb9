"""The blind level of a report: the accuracy of a classifier that knows recent labels and no input.

Like the learners, it does not know the labels of the step that it answers, and it is scored on the
same samples: all of them, from the first on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit import blind_accuracy
from streamgauge.audit.counting import running_modes
from streamgauge.metrics import average_accuracy
from streamgauge.metrics.log import choose_split
from streamgauge.record import Run

WINDOWS = (1, 10, 100, 1000)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BlindLevel:
    """Means over the streams of all seeds."""

    window: int  # labels, chosen on the first tenth of the streams
    accuracy: Floats  # at each shift asked for, on all of the stream
    retained: float  # of its last answer, on all held-out data
    average: Floats  # over the held-out data of the tasks so far, after each task

    @property
    def name(self) -> str:
        return f"blind, window {self.window}"


def blind_level(runs: Iterable[Run], shifts: Sequence[int] = (0,)) -> BlindLevel | None:
    """The blind classifier on the streams of these runs, each stream counted once; None if the logs
    hold no predictions, and so no labels."""
    distinct = {(run.stream["data_hash"], run.stream["order_hash"]): run for run in runs}
    streams = [_Labels(Run(run.path)) for run in distinct.values()]
    streams = [labels for labels in streams if len(labels.label)]
    if not streams:
        return None
    window = _choose([labels.tenth() for labels in streams])
    retained = [labels.retained(window) for labels in streams]
    average = [labels.average(window) for labels in streams]
    return BlindLevel(
        window=window,
        accuracy=np.mean([labels.accuracy(window, shifts) for labels in streams], axis=0),
        retained=float(np.mean(retained)),
        average=np.mean(average, axis=0) if len(set(map(len, average))) == 1 else np.empty(0),
    )


def _choose(accuracies: list[Floats]) -> int:
    """The best window on the first tenths, among those that every tenth is long enough for."""
    mean = np.mean(accuracies, axis=0)
    return 1 if np.isnan(mean).all() else WINDOWS[int(np.nanargmax(mean))]


class _Labels:
    """The labels of a run that the blind classifier may use, and the samples it is scored on."""

    def __init__(self, run: Run) -> None:
        table = run.predictions
        online = np.flatnonzero(table["shift"] == 0)
        self.label, self.step = table["label"][online], table["step"][online]
        self.task = table["task"][online] if "task" in table else None
        self.begin = np.flatnonzero(np.diff(self.step, prepend=-1))  # first sample of each step
        self.delay = int(run.header["config"]["protocol"].get("label_delay", 0))
        self.answers = _last_answers(run)

    def tenth(self) -> Floats:
        count = len(self.label) // 10
        # Half of the tenth fills the window; the other half must be as long to test it.
        windows = [k for k in WINDOWS if 2 * k <= count]
        accuracies = np.full(len(WINDOWS), np.nan)
        if windows:
            levels = blind_accuracy(self.label[:count], windows, [0], step=self.step[:count])
            accuracies[: len(windows)] = levels[:, 0]
        return accuracies

    def accuracy(self, window: int, shifts: Sequence[int]) -> Floats:
        """Over the samples that a learner answers at each shift; exactly what the blind learner of
        this window gets where learning takes one step."""
        guess = guesses(self.label, window)[self.begin]
        size = np.diff(self.begin, append=len(self.label))
        accuracies = np.full(len(shifts), np.nan)
        for number, shift in enumerate(shifts):
            # As in the loop: the latest step that began at least `shift` samples before.
            ready = np.searchsorted(self.begin, self.begin - shift, side="right") - 1
            answer = np.repeat(guess[np.maximum(ready - self.delay, 0)], size)
            asked = np.repeat(ready >= 0, size)
            if asked.any():
                accuracies[number] = np.mean(answer[asked] == self.label[asked])
        return accuracies

    def retained(self, window: int) -> float:
        label, _ = self.answers
        return float(np.mean(label == mode(self.label[-window:]))) if len(label) else np.nan

    def average(self, window: int) -> Floats:
        label, task_of = self.answers
        if self.task is None or task_of is None or not len(label):
            return np.empty(0)
        tasks = int(max(self.task.max(), task_of.max())) + 1
        ends = np.searchsorted(self.task, np.arange(tasks), side="right")
        matrix = np.full((tasks, tasks), np.nan)
        for now, end in enumerate(ends):
            correct = label == mode(self.label[max(0, end - window) : end])
            for task in range(now + 1):
                if (task_of == task).any():
                    matrix[now, task] = correct[task_of == task].mean()
        return average_accuracy(matrix)


def guesses(labels: NDArray[Any], window: int) -> NDArray[Any]:
    """Answers of the blind learner after each number of known labels: entry n knows labels[:n]. A
    window that is not full yet is used as it is; with no label known the answer is class 0.

    >>> guesses(np.array([3, 3, 1, 1]), window=3)
    array([0, 3, 3, 3, 1], dtype=int32)
    """
    codes = np.ascontiguousarray(labels, np.int32)
    guess = running_modes(codes, int(codes.max()) + 1, window)
    early = [mode(codes[:n]) for n in range(1, min(window, len(guess)))]
    guess[: len(early) + 1] = [0, *early]
    return guess


def mode(labels: NDArray[Any]) -> int:
    """The most frequent label; among equals the one seen last. -1 for none.

    >>> mode(np.array([3, 3, 1, 1, 2]))
    1
    """
    if not len(labels):
        return -1
    names, first, count = np.unique(labels[::-1], return_index=True, return_counts=True)
    return int(names[np.lexsort((first, -count))[0]])


def _last_answers(run: Run) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Labels of the held-out samples at the last evaluation, and their tasks."""
    table = run.answers
    if not len(table["evaluation"]):
        return np.empty(0, np.int64), None
    keep = table["split"] == choose_split(table, None, "answers")
    keep &= table["evaluation"] == table["evaluation"][keep].max()
    return table["label"][keep], table["task"][keep] if "task" in table else None
