"""Positions that curves along the stream are marked with: tasks, changes of the labels, falls of
accuracy, and drift that a learner reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.drift.changes import LEAST, bin_size, changes, label_changes
from streamgauge.pages.figures import Counted
from streamgauge.record import Run
from streamgauge.report.failures import online_answers, online_rows

DRIFT = "drift"  # the scalar by which a learner reports drift
FALL = 0.05  # of accuracy, at least, and of the labels that change
MOST_TASKS, MOST, MOST_REPORTED = 30, 12, 200  # marks of a kind; of changes, the largest
SOURCES = {
    "task": "tasks of the stream",
    "labels": "found in the labels",
    "accuracy": "found in the answers of all learners that use inputs",
    "reported": "reported by the learner",
}


class Mark(NamedTuple):
    """A position, in samples of the stream."""

    position: int
    kind: str  # a name of SOURCES
    text: str
    detail: str = ""
    key: str = ""  # the learner that reported it


class Marks(NamedTuple):
    marks: list[Mark]
    sentence: str  # what was looked for, and where it comes from


def find_marks(run: Run, reporting: Sequence[tuple[str, Run]], curves: Sequence[Counted]) -> Marks:
    """Marks of the stream of `run`. `reporting` are the learners with a run each on the same
    samples, `curves` the right answers of those that use inputs."""
    label, _ = online_answers(run)
    if not len(label):
        return Marks([], "")
    tasks = _tasks(run)
    changed = [] if tasks else label_changes(label)
    moved = sorted((c for c in changed or () if c.moved >= FALL), key=lambda c: -c.moved)[:MOST]
    labels = [
        Mark(c.position, "labels", "labels change", f"{100 * c.moved:.0f} % of the labels differ")
        for c in moved
    ]
    near = [mark.position for mark in (*tasks, *labels)]
    apart = 2 * -(-len(label) // 64)
    falls = [m for m in _falls(curves, label) if all(abs(m.position - n) > apart for n in near)]
    reported = [mark for name, each in reporting for mark in _reported(name, each)]
    every = sorted([*tasks, *labels, *falls, *reported], key=lambda mark: mark.position)
    return Marks(every, _sentence(tasks, changed, bool(labels or falls), bool(reported)))


def _sentence(tasks: Sequence[Mark], changed: Any, drawn: bool, reported: bool) -> str:
    parts = ["Dotted lines: tasks begin."] if tasks else []
    if changed is None:
        parts.append("The stream is too short to test whether its labels change.")
    else:
        looked = "fall of accuracy" if tasks else "change of the labels or fall of accuracy"
        begin = "Dash-dotted lines: a" if drawn else "Looked for and not found: a"
        most = f"; the {MOST} largest of a kind" if drawn else ""
        parts.append(
            f"{begin} {looked} by {100 * FALL:.0f} points or more at once, by a test at 1 % "
            f"(streamgauge.drift.changes){most}."
        )
    if reported:
        parts.append("Triangles: the learner reported drift.")
    return " ".join(parts)


def _tasks(run: Run) -> list[Mark]:
    """Where tasks begin, but for the first."""
    table = run.predictions
    if "task" not in table or run.stream["tasks"] < 2:
        return []
    task = np.asarray(table["task"])[online_rows(run)]
    begins = np.flatnonzero(np.diff(task)) + 1
    if len(begins) > MOST_TASKS:  # tasks that overlap or return
        return []
    return [Mark(int(at), "task", f"task {int(task[at]) + 1}") for at in begins.tolist()]


def _falls(curves: Sequence[Counted], label: NDArray[Any]) -> list[Mark]:
    """Where the accuracy of the learners, on average, falls at once."""
    ends = [list(curve.end) for curve in curves]
    if not curves or any(end != ends[0] for end in ends):
        return []
    counts = np.asarray(curves[0].counts, np.float64)
    join = -(-bin_size(np.unique(label, return_inverse=True)[1]) // int(counts[0]))
    bins = len(counts) // join
    if bins < 2 * LEAST:
        return []
    hits = np.mean([curve.hits for curve in curves], axis=0)
    sums, size = (v[: bins * join].reshape(bins, join).sum(axis=1) for v in (hits, counts))
    falls = [c for c in changes((sums / size)[:, None]) if c.before[0] - c.after[0] >= FALL]
    falls = sorted(falls, key=lambda c: float(c.after[0] - c.before[0]))[:MOST]
    return [
        Mark(
            ends[0][c.position * join - 1],
            "accuracy",
            "accuracy falls",
            f"from {100 * c.before[0]:.0f} to {100 * c.after[0]:.0f} %",
        )
        for c in falls
    ]


def _reported(name: str, run: Run) -> list[Mark]:
    """Where a learner returned a `drift` other than 0 from `learn`."""
    table = run.training
    rows = np.flatnonzero(table["name"] == DRIFT)
    steps = np.unique(table["step"][rows[table["value"][rows] > 0]])
    if not len(steps):
        return []
    step = np.asarray(run.predictions["step"])[online_rows(run)]
    at = np.searchsorted(step, steps, side="right")
    every = [Mark(int(p), "reported", "drift reported", key=name) for p in at.tolist()]
    if len(every) > MOST_REPORTED:
        last = every[MOST_REPORTED - 1]
        more = f"{len(every) - MOST_REPORTED + 1:,} reports from here on"
        every = [*every[: MOST_REPORTED - 1], last._replace(detail=more)]
    return every
