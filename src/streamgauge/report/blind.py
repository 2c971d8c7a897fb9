"""The blind level of a report: the accuracy of forecasters that know past labels and no input.

Like the learners, they do not know the labels of the step that they answer, and they are scored on
the same samples: all of them, from the first on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.forecasters import forecast
from streamgauge.history.known import encode
from streamgauge.metrics import average_accuracy
from streamgauge.metrics.log import choose_split, known_at_answers
from streamgauge.pages.figures import BINS, Counted
from streamgauge.record import Run

PARTS = BINS  # of the stream; before each, the forecaster with the most hits so far is chosen
LEVEL = "blind level"  # not "blind", which is a learner with one fixed window
LABELS_READ = 20_000_000  # at most, for shifts that no learner was asked at
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BlindLevel:
    """Means over the streams of all seeds."""

    forecaster: str  # the one chosen for the most parts of the streams, at the first shift
    shifts: tuple[int, ...]
    accuracy: Floats  # at each of these shifts, on all of the stream
    along: tuple[Counted, ...]  # right answers along each stream, at the first shift
    retained: float  # of the most frequent label, on all held-out data
    average: Floats  # of the most frequent label so far, over the held-out data of the tasks so far

    def at(self, shift: int) -> float:
        return float(self.accuracy[self.shifts.index(shift)])


def between(shifts: Sequence[int], samples: int) -> list[int]:
    """The shifts, and others between them where labels are few enough: past labels are all that the
    level needs, so it is known at every shift.

    >>> between([0, 40], 1000)
    [0, 1, 3, 7, 15, 31, 40]
    """
    more = [2**n - 1 for n in range(1, 20) if 2**n <= max(shifts)]
    most = LABELS_READ // max(1, samples)
    return sorted({*shifts, *(more if len(more) <= most else [])})


def blind_level(runs: Iterable[Run], shifts: Sequence[int] = (0,)) -> BlindLevel | None:
    """The blind forecasters on the streams of these runs, each stream counted once; None if the
    logs hold no predictions, and so no labels."""
    distinct = {pair_text(run): run for run in runs}
    every = {pair: _KnownLabels(Run(run.path)) for pair, run in distinct.items()}
    streams = [labels for labels in every.values() if len(labels.label)]
    pairs = [pair for pair, labels in every.items() if len(labels.label)]
    if not streams:
        return None
    levels = [[labels.level(shift) for shift in shifts] for labels in streams]
    names = Counter(name for level in levels for name in level[0].chosen)
    along = [
        Counted(LEVEL, pair, *level[0].bins, level=True)
        for level, pair in zip(levels, pairs, strict=True)
        if level[0].chosen
    ]
    average = [labels.average() for labels in streams]
    return BlindLevel(
        forecaster=names.most_common(1)[0][0],
        shifts=tuple(shifts),
        accuracy=np.mean([[at.accuracy for at in level] for level in levels], axis=0),
        along=tuple(along),
        retained=float(np.mean([labels.retained() for labels in streams])),
        average=np.mean(average, axis=0) if len(set(map(len, average))) == 1 else np.empty(0),
    )


def pair_text(run: Run) -> str:
    """The same for runs on the same samples in the same order."""
    return f"{run.stream['data_hash'][:8]}{run.stream['order_hash'][:8]}"


def pair_of(run: Run) -> str:
    """The same for runs that are compared with each other: of one seed on the same samples."""
    return f"{run.seed} {pair_text(run)}"


class _At(NamedTuple):
    """Forecasters at a shift: the one chosen for each part, its accuracy, and the parts' last
    positions, right answers and samples."""

    chosen: list[str]
    accuracy: float
    bins: tuple[list[int], list[int], list[int]] = ([], [], [])


class _KnownLabels:
    """The labels of a run that blind forecasters may use, and the samples they are scored on."""

    def __init__(self, run: Run) -> None:
        table = run.predictions
        self.run, self.online = run, np.flatnonzero(table["shift"] == 0)
        self.label = table["label"][self.online]
        self.task = table["task"][self.online] if "task" in table else None
        self.answers = _last_answers(run)

    def level(self, shift: int) -> _At:
        """The forecaster chosen for each part of the stream, and the accuracy of these choices over
        the samples that a learner answers at this shift."""
        known, start = known_at_answers(self.run, self.online, shift)
        if start == len(self.label):
            return _At([], np.nan)
        block = -(-(len(self.label) - start) // PARTS)
        codes, classes = encode(self.label)
        done = forecast(codes, classes, known, start=start, block=block, points=True)
        gap = int(np.max(np.arange(len(codes)) - known.known))
        chosen = choose(done.hits[:, : len(done.names)], late=-(-gap // block))
        hits = np.take_along_axis(done.hits, chosen[:, None], axis=1)[:, 0]
        tries = np.asarray(done.tries)
        end = start + np.cumsum(tries)
        names = [done.names[n] for n in chosen]
        bins = (end.tolist(), hits.tolist(), tries.tolist())
        return _At(names, float(hits.sum() / tries.sum()), bins)

    def retained(self) -> float:
        label, _ = self.answers
        return float(np.mean(label == np.bincount(self.label).argmax())) if len(label) else np.nan

    def average(self) -> Floats:
        label, task_of = self.answers
        if self.task is None or task_of is None or not len(label):
            return np.empty(0)
        tasks = int(max(self.task.max(), task_of.max())) + 1
        ends = np.searchsorted(self.task, np.arange(tasks), side="right")
        matrix = np.full((tasks, tasks), np.nan)
        for now, end in enumerate(ends):
            correct = label == np.bincount(self.label[:end], minlength=1).argmax()
            for task in range(now + 1):
                if (task_of == task).any():
                    matrix[now, task] = correct[task_of == task].mean()
        return average_accuracy(matrix)


def choose(hits: Ints, late: int) -> Ints:
    """For each block, the forecaster with the most hits [blocks, forecasters] in the blocks before,
    without the last `late`, whose labels may not be known yet; the first where all are equal.

    >>> choose(np.array([[1, 2], [5, 2], [0, 0]]), late=0)
    array([0, 1, 0])
    """
    before = np.zeros_like(hits)
    before[late + 1 :] = np.cumsum(hits, axis=0)[: max(0, len(hits) - late - 1)]
    return np.asarray(before.argmax(axis=1))


def _last_answers(run: Run) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Labels of the held-out samples at the last evaluation, and their tasks."""
    table = run.answers
    if not len(table["evaluation"]):
        return np.empty(0, np.int64), None
    keep = table["split"] == choose_split(table, None, "answers")
    keep &= table["evaluation"] == table["evaluation"][keep].max()
    return table["label"][keep], table["task"][keep] if "task" in table else None
