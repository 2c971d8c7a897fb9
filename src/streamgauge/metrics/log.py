"""From the log of a run to the arrays that metrics take.

A log is anything with the attributes ``predictions``, ``evaluations`` and ``answers``, each a
mapping from column name to a NumPy array, all columns of a table equally long.

predictions  step, sample, label, prediction, confidence, version, shift; optionally task, user,
             time. Rows with shift = 0 are online predictions; rows with shift = S > 0 are
             predictions of the same samples by the model as it was S samples earlier. Also
             logp, the natural log of the probability of the true label.
evaluations  evaluation (consecutive number), step (steps made before it), version, split, task
             (-1: no tasks), current (task being trained, -1: none), within (-1: predictions among
             all classes seen; k: only among the classes of tasks up to k), correct, count.
answers      evaluation, step, split, sample, label, prediction, confidence, task, time, position
             (number of stream samples before this one, in the order of the stream).

             label_time, when the label arrived (of log version 2).

A log may also have an attribute ``label_delay``: after how many further steps a label arrives.

Rows of the split ``probe`` count the correct predictions of a linear probe on the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.history.known import Known, known_labels
from streamgauge.metrics._arrays import Anything, Floats, Integers, divide, share

PROBE = "probe"
Table = Mapping[str, NDArray[Any]]


class RunLog(Protocol):
    """The tables that metrics read; a SimpleNamespace of dictionaries is enough."""

    @property
    def predictions(self) -> Table: ...
    @property
    def evaluations(self) -> Table: ...
    @property
    def answers(self) -> Table: ...


class ContinualAccuracy(NamedTuple):
    acc: Floats  # [evaluations, tasks], NaN where not evaluated
    task: Integers  # [evaluations], the task being trained, -1 before any
    step: Integers  # [evaluations], steps made before the evaluation


def column(table: Table, name: str, table_name: str) -> Anything:
    """A column of a table; the error for a missing column names the closest one."""
    if name not in table:
        raise StreamgaugeError(
            f"the table {table_name} has no column {name!r}: {nearest(name, table)}"
        )
    return np.asarray(table[name])


def columns(log: object, table: str, *names: str) -> list[Anything]:
    """Columns of a table of the log."""
    return [column(getattr(log, table), name, table) for name in names]


def table_of(log: object, name: str) -> Table:
    """A table of the log, empty if the log has none."""
    table: Table | None = getattr(log, name, None)
    return {} if table is None else table


def known_at_answers(log: RunLog, rows: Integers, shift: int = 0) -> tuple[Known, int]:
    """Which labels were known to the answers in these rows, in stream order, when asked ``shift``
    samples ahead; and the first answered sample. If the log has the times of samples and labels,
    a label is known once its time is before that of the answer; else as in :func:`known_in_loop`.
    """
    table = log.predictions
    step = np.asarray(table["step"])[rows]
    known, first = known_in_loop(step, getattr(log, "label_delay", 0), shift)
    if "time" in table and "label_time" in table:
        times, label_times = (np.asarray(table[name])[rows] for name in ("time", "label_time"))
        known = known_labels(
            len(rows), shift=shift, step=step, times=times, label_times=label_times
        )
    return known, first


def known_in_loop(step: Integers, label_delay: int = 0, shift: int = 0) -> tuple[Known, int]:
    """Which labels were known to each answer of a run, and the first sample that was answered.

    ``step`` is the step of every sample of the stream, in order. The answers to a step were given
    when the latest step arrived that began at least ``shift`` samples before; known were the labels
    of the steps before that one, without the last ``label_delay`` of them.

    >>> known_in_loop(np.array([0, 0, 1, 1, 2, 2]))[0].known
    array([0, 0, 2, 2, 4, 4])
    >>> known_in_loop(np.array([0, 0, 1, 1, 2, 2]), shift=1)
    (Known(order=None, known=array([0, 0, 0, 0, 2, 2])), 2)
    """
    begin = np.flatnonzero(np.diff(step, prepend=-1))
    size = np.diff(begin, append=len(step))
    asked = np.searchsorted(begin, begin - shift, side="right") - 1
    known = begin[np.maximum(asked - label_delay, 0)]
    first = begin[asked >= 0]
    return Known(None, np.repeat(known, size)), int(first[0]) if len(first) else len(step)


def choose_split(table: Table, split: str | None, table_name: str, most: bool = False) -> str:
    """The split to read. Default: ``test`` if it was logged, else the first split logged; with
    ``most`` the split evaluated most often. ``probe`` is chosen only by name."""
    logged = column(table, "split", table_name)
    names = splits_of(table, table_name)
    if split is not None:
        if split not in names:
            raise StreamgaugeError(
                f"the table {table_name} has no split {split!r}: {nearest(split, names)}"
            )
        return split
    names = [name for name in names if name != PROBE]
    if not names:
        raise StreamgaugeError(f"the table {table_name} is empty; evaluate on held-out data first.")
    if most and len(names) > 1:
        evaluation = column(table, "evaluation", table_name)
        evaluations = {name: len(np.unique(evaluation[logged == name])) for name in names}
        return max(names, key=lambda name: evaluations[name])
    return "test" if "test" in names and not most else names[0]


def splits_of(table: Table, table_name: str) -> list[str]:
    """The names of the splits, in the order in which they were first logged."""
    # A dictionary keeps the order and is much faster than sorting strings.
    return list(dict.fromkeys(column(table, "split", table_name).tolist()))


class _EvaluationRows(NamedTuple):
    """Rows of the table ``evaluations`` of one split; tasks are numbered in order of training."""

    evaluation: Integers  # index of the row's evaluation, in order of time
    task: Integers
    within: Integers
    correct: Floats
    samples: Floats  # number of samples evaluated
    steps: Integers  # per evaluation
    current: Integers  # per evaluation: task being trained, -1 before any
    newest: Integers  # per evaluation: the task that was started last
    tasks: int

    @property
    def all_classes(self) -> Anything:
        """Which rows are of one task, predicted among all classes seen."""
        return (self.within < 0) & (self.task >= 0)


def task_order(log: RunLog) -> Integers:
    """``order[id]`` = rank of a task in the order of training (0 is the first), over all splits.

    If task ids follow the order of training, this is 0, 1, 2, ...; tasks never trained come last.
    Tasks during which nothing was evaluated are ordered by the predictions, and by task id if
    the log has no predictions.
    """
    step, evaluation = columns(log, "evaluations", "step", "evaluation")
    current, task = (c.astype(np.int64) for c in columns(log, "evaluations", "current", "task"))
    tasks = int(max(current.max(initial=-1), task.max(initial=-1))) + 1
    trained = _first_occurrences(current, np.lexsort((evaluation, step)))
    if len(trained) < tasks:
        predictions = table_of(log, "predictions")
        if len(predictions.get("task", ())):
            predicted = _first_occurrences(
                np.asarray(predictions["task"]).astype(np.int64),
                np.argsort(np.asarray(predictions["step"]), kind="stable"),
            )
            trained = predicted[predicted < tasks] if np.isin(trained, predicted).all() else trained
        elif (np.diff(trained) > 0).all():
            trained = np.arange(tasks)
    untrained = np.setdiff1d(np.arange(tasks), trained)
    order = np.empty(tasks, dtype=np.int64)
    order[np.concatenate([trained, untrained]).astype(np.int64)] = np.arange(tasks)
    return order


def _first_occurrences(ids: Integers, time_order: Integers) -> Integers:
    """Ids that are not negative, in the order in which they first occur."""
    ids = ids[time_order]
    distinct, first = np.unique(ids[ids >= 0], return_index=True)
    return distinct[np.argsort(first)]


def _relabel(ids: Integers, order: Integers) -> Integers:
    if not order.size:
        return np.full(len(ids), -1, dtype=np.int64)
    return np.where(ids >= 0, order[np.maximum(ids, 0)], -1)


def _evaluation_rows(log: RunLog, split: str | None, most: bool = False) -> _EvaluationRows:
    chosen = choose_split(log.evaluations, split, "evaluations", most)
    order = task_order(log)
    splits, *logged = columns(log, "evaluations", "split", "evaluation", "step", "current", "task")
    keep = np.flatnonzero(splits == chosen)
    evaluation, step, current, task = (values[keep].astype(np.int64) for values in logged)
    within = np.asarray(log.evaluations.get("within", np.full(len(splits), -1)))[keep]
    correct, count = columns(log, "evaluations", "correct", "count")
    ids, first, inverse = np.unique(evaluation, return_index=True, return_inverse=True)
    time_order = np.lexsort((ids, step[first]))
    rank = np.empty(len(ids), dtype=np.int64)
    rank[time_order] = np.arange(len(ids))
    current_task = _relabel(current, order)[first][time_order]
    # An evaluation between two tasks belongs to the task trained last.
    last_trained = np.maximum.accumulate(
        np.where(current_task >= 0, np.arange(len(current_task)), -1)
    )
    current_task = np.where(last_trained >= 0, current_task[np.maximum(last_trained, 0)], -1)
    return _EvaluationRows(
        evaluation=rank[inverse],
        task=_relabel(task, order),
        within=_relabel(within.astype(np.int64), order),
        correct=correct[keep].astype(np.float64),
        samples=count[keep].astype(np.float64),
        steps=step[first][time_order],
        current=current_task,
        newest=np.maximum.accumulate(current_task),
        tasks=len(order),
    )


def _pivot(
    rows: _EvaluationRows, row: Integers, col: Integers, mask: Anything, shape: tuple[int, int]
) -> Floats:
    """sum of correct / sum of count per cell [row, col]; NaN where count is 0."""
    cell = row[mask] * shape[1] + col[mask]
    size = shape[0] * shape[1]
    correct = np.bincount(cell, weights=rows.correct[mask], minlength=size)
    count = np.bincount(cell, weights=rows.samples[mask], minlength=size)
    return divide(correct, count).reshape(shape)


def _at_boundaries(rows: _EvaluationRows, mask: Anything) -> Integers:
    """Per row, the task k whose boundary evaluation the row belongs to, or -1.

    The boundary of k is the last evaluation with rows in the mask at which k was the newest task.
    """
    last = np.full(rows.tasks, -1, dtype=np.int64)
    usable = np.flatnonzero(_has_rows(rows, mask) & (rows.newest >= 0))
    np.maximum.at(last, rows.newest[usable], usable)
    boundary = np.full(len(rows.steps), -1, dtype=np.int64)
    boundary[last[last >= 0]] = np.flatnonzero(last >= 0)
    return boundary[rows.evaluation]


def _has_rows(rows: _EvaluationRows, mask: Anything) -> Anything:
    """Per evaluation, whether any of its rows is in the mask."""
    evaluations = np.zeros(len(rows.steps), dtype=bool)
    evaluations[rows.evaluation[mask]] = True
    return evaluations


def accuracy_matrix(log: RunLog, split: str | None = None) -> Floats:
    """``a[k, j]``, the accuracy on task j after training task k, from the logged evaluations.

    Row k is the last evaluation at which k was the newest task trained. NaN where a task was not
    evaluated. Tasks are counted in the order in which they were first trained. ``split`` is by
    default ``test`` where there is one, else the first split logged.

    >>> from streamgauge.metrics._example import LOG
    >>> accuracy_matrix(LOG)
    array([[0.8, nan],
           [0.4, 0.9]])
    """
    rows = _evaluation_rows(log, split)
    row = _at_boundaries(rows, rows.all_classes)
    return _pivot(rows, row, rows.task, rows.all_classes & (row >= 0), (rows.tasks, rows.tasks))


def continual_accuracy(log: RunLog, split: str | None = None) -> ContinualAccuracy:
    """``(acc[n, i], task[n], step[n])`` from all logged evaluations of a split, in order of time.

    ``split`` is by default the split evaluated most often.

    >>> from streamgauge.metrics._example import LOG
    >>> continual_accuracy(LOG).task
    array([0, 1])
    """
    rows = _evaluation_rows(log, split, most=True)
    evaluated = _has_rows(rows, rows.all_classes)
    row = (np.cumsum(evaluated) - 1)[rows.evaluation]
    acc = _pivot(rows, row, rows.task, rows.all_classes, (int(evaluated.sum()), rows.tasks))
    return ContinualAccuracy(acc, rows.current[evaluated], rows.steps[evaluated])


def evaluation_sizes(log: RunLog, split: str | None = None) -> Floats:
    """Number of samples of each logged evaluation of one task (for worst-case accuracy)."""
    rows = _evaluation_rows(log, split, most=True)
    return rows.samples[rows.all_classes]


def cumulative_matrix(log: RunLog, split: str | None = None) -> Floats:
    """``b[t, k]``: accuracy after task t on the data, and among the classes, of tasks up to k.

    From the rows with ``within`` >= 0, summed over tasks; NaN for t < k and where no row was
    logged. ``b[t, t]`` equals the accuracy over the tasks seen, and is computed from rows with
    ``within`` = -1 if it was not logged separately.
    """
    rows = _evaluation_rows(log, split)
    shape = (rows.tasks, rows.tasks)
    restricted = (rows.within >= 0) & (rows.task <= rows.within)
    row = _at_boundaries(rows, restricted | rows.all_classes)
    b = _pivot(rows, row, rows.within, restricted & (row >= 0), shape)
    seen = rows.all_classes & (row >= 0) & (rows.task <= row)
    over_tasks_seen = _pivot(rows, row, row, seen, shape)
    b = np.where(np.isnan(b), over_tasks_seen, b)
    b[np.triu_indices(rows.tasks, k=1)] = np.nan
    return b


def retained_accuracy(log: RunLog, split: str | None = None) -> float:
    """Accuracy over all held-out samples at the last evaluation.

    Source: the headline number of Hammoud et al. 2023 for information retention, and the survey's
    final Acc.
    """
    splits, evaluation, step, correct, count = columns(
        log, "evaluations", "split", "evaluation", "step", "correct", "count"
    )
    keep = splits == choose_split(log.evaluations, split, "evaluations")
    if "within" in log.evaluations:
        keep = keep & (np.asarray(log.evaluations["within"]) < 0)
    keep = np.flatnonzero(keep)
    if not len(keep):
        return float("nan")
    latest = evaluation[keep[np.lexsort((evaluation[keep], step[keep]))[-1]]]
    keep = keep[evaluation[keep] == latest]
    return share(correct[keep].sum(), count[keep].sum())


def classes_seen(log: RunLog) -> Integers | None:
    """``classes[k]``, the number of classes seen up to task k; None if the log does not say.

    The attribute ``classes`` of the log if it has one; else counted from the labels and tasks of
    the predictions and of the held-out answers.
    """
    given = getattr(log, "classes", None)
    if given is not None:
        return np.asarray(given, dtype=np.int64)
    order = task_order(log)
    labels, tasks = [], []
    for name in ("predictions", "answers"):
        table = table_of(log, name)
        if "task" in table and "label" in table:
            labels.append(np.asarray(table["label"]))
            ids = np.asarray(table["task"]).astype(np.int64)
            # An interrupted run may have begun a task that was not evaluated yet.
            tasks.append(_relabel(np.where(ids < len(order), ids, -1), order))
    if not labels:
        return None
    label, task = np.concatenate(labels), np.concatenate(tasks)
    label, task = label[task >= 0], task[task >= 0]
    if not np.bincount(task, minlength=len(order)).all():
        return None
    not_indices = label.dtype.kind not in "iu" or label.min(initial=0) < 0
    if not_indices or int(label.max(initial=0)) > 8 * len(label) + 1024:
        label = np.unique(label, return_inverse=True)[1]
    first_task = np.full(int(label.max(initial=-1)) + 1, len(order))
    np.minimum.at(first_task, label, task)
    return np.cumsum(np.bincount(first_task, minlength=len(order))[: len(order)])
