"""Every metric that an accuracy matrix allows: `sg.score_matrix`, `streamgauge score FILE`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge import metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.exchange.formats import (
    AccuracyMatrix,
    Floats,
    matrix_of,
    read_matrices,
    with_baseline,
)
from streamgauge.metrics import UndefinedMetric
from streamgauge.metrics.tasks import task_curves
from streamgauge.pages import notebook_text
from streamgauge.report import Scores
from streamgauge.report.terminal import right, score_cell, text_table


class MatrixScores(Scores):
    """Scores after the last task. `curves` are the same metrics after every task, `matrix` is what
    was read, `notes` are sentences about what was assumed and what is missing."""

    def __init__(self, matrix: AccuracyMatrix, curves: dict[str, Floats], notes: Sequence[str]):
        self.matrix, self.curves, self.notes = matrix, curves, list(notes)
        last = {name: float(values[matrix.last]) for name, values in curves.items()}
        super().__init__({name: value for name, value in last.items() if not math.isnan(value)})

    def _repr_html_(self) -> str:
        title = f"{self.matrix.name}, after task {self.matrix.last + 1}"
        return notebook_text(title) + super()._repr_html_() + notebook_text("", self.notes)


def score_matrix(
    data: Any,
    *,
    classes: Any = None,
    baseline: Any = None,
    rows: str | None = None,
    unit: str | None = None,
) -> Any:
    """Scores of an accuracy matrix: an array [tasks, tasks], a file, or CapyMOA's `OCLMetrics`.

    `classes` is how many classes each task adds (one number: every task), for rescaled metrics.
    `baseline` is the accuracy of the untrained model on each task, for forward transfer ("first":
    the first row). `rows` is "after" (row k: all tasks after training task k) or "task", `unit` is
    "percent" or "share"; both are needed only where the numbers do not tell. A file with several
    runs gives a list.

    >>> score_matrix([[0.9, np.nan], [0.5, 0.7]], classes=2)["average_forgetting"]
    0.4
    """
    if isinstance(data, str | Path):
        matrices = read_matrices(data, rows, unit, baseline)
    elif hasattr(data, "accuracy_matrix"):
        whole = AccuracyMatrix("the matrix", np.asarray(data.accuracy_matrix, np.float64))
        matrices = [with_baseline(whole, baseline)]  # CapyMOA evaluates all tasks: a 0 is measured
    else:
        matrices = [matrix_of(data, "the matrix", rows, unit, baseline)]
    scored = [_scored(matrix, classes) for matrix in matrices]
    return scored[0] if len(scored) == 1 else scored


def _scored(matrix: AccuracyMatrix, classes: Any) -> MatrixScores:
    a, tasks, notes = matrix.accuracy, matrix.tasks, list(matrix.notes)
    if matrix.last < 0:
        raise StreamgaugeError(f"{matrix.name} has no accuracy of a task that was trained.")
    seen = None if classes is None else _classes_seen(classes, tasks, notes)
    with warnings.catch_warnings(record=True) as undefined:
        warnings.simplefilter("always", UndefinedMetric)
        curves = task_curves(a, seen, matrix.baseline)
    sentences = [str(one.message) for one in undefined]
    notes += [text[0].upper() + text[1:] for text in dict.fromkeys(sentences)]
    if seen is None:
        notes.append("Rescaled metrics need the number of classes that each task adds: --classes.")
    else:
        curves["unnormalised_rescaled_accuracy"] = metrics.unnormalised_rescaled_accuracy(a, seen)
        curves["unnormalised_rescaled_forgetting"] = metrics.unnormalised_rescaled_forgetting(
            a, seen
        )
    # One evaluation after each task: acc[n, i] is a[k, j].
    order = np.arange(tasks)
    curves["anytime_accuracy"] = metrics.anytime_accuracy(a, order)
    curves["anytime_accuracy_capymoa"] = metrics.anytime_accuracy(a, order, "capymoa")
    curves["minimum_accuracy"] = metrics.minimum_accuracy(a, order)
    curves["worst_case_accuracy"] = metrics.worst_case_accuracy(a, order)
    if matrix.last < tasks - 1:
        notes.append(f"Measured after {matrix.last + 1} of {tasks} tasks: scores are those then.")
    lower = np.isnan(a[: matrix.last + 1]) & np.tril(np.ones_like(a, bool))[: matrix.last + 1]
    if lower.any():
        k, j = (int(at) + 1 for at in np.argwhere(lower)[0])
        notes.append(
            f"The accuracy on task {j} after task {k} is missing; metrics that need it are left"
            " out."
        )
    return MatrixScores(matrix, curves, notes)


def _classes_seen(classes: Any, tasks: int, notes: list[str]) -> Floats:
    """The number of classes up to each task, from the number that each task adds."""
    added = np.asarray(classes, dtype=np.float64)
    added = np.full(tasks, added.ravel()[0]) if added.size == 1 else added
    if added.shape != (tasks,):
        raise StreamgaugeError(
            f"--classes must hold the classes that each of the {tasks} tasks adds, such as 5,5,...,"
            f" but it has {added.size} numbers."
        )
    if added[0] < 1 or (added < 0).any() or (added % 1).any():
        raise StreamgaugeError("--classes counts the classes that each task adds: 1 or more first.")
    seen = np.cumsum(added)
    notes.append(f"Classes seen up to each task: {', '.join(f'{count:g}' for count in seen)}.")
    if tasks > 2 and added[0] > 0 and np.array_equal(added, added[0] * np.arange(1, tasks + 1)):
        notes.append(
            "Warning: --classes looks like a running total; it is how many each task adds."
        )
    return seen


def matrices_text(scored: Sequence[MatrixScores]) -> str:
    """Scores of matrices as a table, then each metric after every task."""
    parts = []
    for one in scored:
        parts += [one.matrix.name, _scores_table(one), ""]
        if one.matrix.tasks > 1:
            parts += [_curves_table(one), ""]
        parts += ["Accuracies, forgetting and transfer in %.", *one.notes, ""]
    return "\n".join(parts).rstrip()


def _scores_table(scored: MatrixScores) -> str:
    after = f"after task {scored.matrix.last + 1}"
    rows = [[name, score_cell(name, value)] for name, value in scored.items()]
    return text_table(["", right(after)], rows)


def _curves_table(scored: MatrixScores) -> str:
    names = [
        name
        for name in ("average_accuracy", "average_forgetting", "rescaled_accuracy",
                     "rescaled_forgetting", "backward_transfer", "forward_transfer")
        if name in scored.curves and np.isfinite(scored.curves[name]).any()
    ]  # fmt: skip
    rows = [
        [str(k + 1), *(score_cell(name, float(scored.curves[name][k])) for name in names)]
        for k in range(scored.matrix.last + 1)
    ]
    return text_table(["task", *(right(name.replace("_", " ")) for name in names)], rows)
