"""From the log of a run to the arrays that metrics take.

A log is anything with the attributes ``predictions``, ``evaluations`` and ``answers``, each a
mapping from column name to a NumPy array, all columns of a table equally long.

predictions  step, sample, label, prediction, confidence, version, shift, and task, user, time
             where there are any. shift = 0 are the ordinary online rows; shift = S > 0 are the same
             samples answered by the model as it was S samples earlier.
evaluations  evaluation (a running number), step (steps made by then), version, split, task (-1: no
             tasks), current (task being trained, -1: none), within (-1: among all classes seen;
             else only among the classes of tasks up to this one), correct, count.
answers      evaluation, step, split, sample, label, prediction, confidence, task, time, position
             (how many samples of the stream came before it in the stream's own order).

Rows of the split ``probe`` hold what a linear probe of the features got right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.metrics._arrays import Anything, Floats, Integers, divide

PROBE = "probe"
Table = Mapping[str, NDArray[Any]]


class Log(Protocol):
    """What metrics read; a SimpleNamespace of dictionaries will do."""

    @property
    def predictions(self) -> Table: ...
    @property
    def evaluations(self) -> Table: ...
    @property
    def answers(self) -> Table: ...


class ContinualAccuracy(NamedTuple):
    acc: Floats  # [evaluations, tasks], NaN where not evaluated
    task: Integers  # [evaluations], the task being trained, -1 before any
    step: Integers  # [evaluations], steps made by then


def column(table: Table, name: str, where: str) -> Anything:
    """A column of a table, or a sentence that lists the columns there are."""
    if name not in table:
        raise StreamgaugeError(f"the table {where} has no column {name!r}: {nearest(name, table)}")
    return np.asarray(table[name])


def table_of(log: object, name: str) -> Table:
    """A table of the log, empty if the log has none."""
    table: Table | None = getattr(log, name, None)
    return {} if table is None else table


def choose_split(table: Table, split: str | None, where: str, most: bool = False) -> str:
    """The split meant. By default ``test`` if it is there, else the first one logged; with ``most``
    the one evaluated most often. Probe rows are only taken when asked for by name."""
    logged = column(table, "split", where)
    names = splits_of(table, where)
    if split is not None:
        if split not in names:
            raise StreamgaugeError(
                f"the table {where} has no split {split!r}: {nearest(split, names)}"
            )
        return split
    names = [name for name in names if name != PROBE]
    if not names:
        raise StreamgaugeError(f"the table {where} is empty; evaluate on held-out data first.")
    if most and len(names) > 1:
        number = column(table, "evaluation", where)
        often = {name: len(np.unique(number[logged == name])) for name in names}
        return max(names, key=lambda name: often[name])
    return "test" if "test" in names and not most else names[0]


def splits_of(table: Table, where: str) -> list[str]:
    """The names of the splits, in the order in which they were first logged."""
    # A dictionary keeps the order and is far faster than sorting strings.
    return list(dict.fromkeys(column(table, "split", where).tolist()))


class _Rows(NamedTuple):
    """The rows of one split, ordered in time, with tasks counted in the order of their training."""

    evaluation: Integers  # 0.. in time
    task: Integers
    within: Integers
    correct: Floats
    size: Floats  # how many were asked
    steps: Integers  # per evaluation
    current: Integers  # per evaluation: task being trained, -1 before any
    newest: Integers  # per evaluation: the last task to have been begun
    tasks: int


def task_order(log: Log) -> Integers:
    """``order[id]`` = place of a task in the order of training (0 first), over all splits.

    Tasks are usually numbered in that order, and then this is 0, 1, 2, ...; a task never trained
    comes last. A log that was not evaluated during each task does not say when the others were
    trained; the predictions do, and where there are none either, the tasks' own numbers.
    """
    table = log.evaluations
    step, number = column(table, "step", "evaluations"), column(table, "evaluation", "evaluations")
    current = column(table, "current", "evaluations").astype(np.int64)
    task = column(table, "task", "evaluations").astype(np.int64)
    tasks = int(max(current.max(initial=-1), task.max(initial=-1))) + 1
    met = _first_met(current, np.lexsort((number, step)))
    if len(met) < tasks:
        answered = table_of(log, "predictions")
        if len(answered.get("task", ())):
            trained = _first_met(
                np.asarray(answered["task"]).astype(np.int64),
                np.argsort(np.asarray(answered["step"]), kind="stable"),
            )
            met = trained[trained < tasks] if np.isin(met, trained).all() else met
        elif (np.diff(met) > 0).all():
            met = np.arange(tasks)
    rest = np.setdiff1d(np.arange(tasks), met)
    order = np.empty(tasks, dtype=np.int64)
    order[np.concatenate([met, rest]).astype(np.int64)] = np.arange(tasks)
    return order


def _first_met(ids: Integers, in_time: Integers) -> Integers:
    """Ids that are not negative, in the order in which they first occur."""
    ids = ids[in_time]
    found, first = np.unique(ids[ids >= 0], return_index=True)
    return found[np.argsort(first)]


def _relabel(ids: Integers, order: Integers) -> Integers:
    if not order.size:
        return np.full(len(ids), -1, dtype=np.int64)
    return np.where(ids >= 0, order[np.maximum(ids, 0)], -1)


def _rows(log: Log, split: str | None, most: bool = False) -> _Rows:
    table = log.evaluations
    chosen = choose_split(table, split, "evaluations", most)
    order = task_order(log)
    keep = np.flatnonzero(column(table, "split", "evaluations") == chosen)
    number = column(table, "evaluation", "evaluations")[keep]
    step = column(table, "step", "evaluations")[keep].astype(np.int64)
    current = _relabel(column(table, "current", "evaluations")[keep].astype(np.int64), order)
    ids, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    in_time = np.lexsort((ids, step[first]))
    place = np.empty(len(ids), dtype=np.int64)
    place[in_time] = np.arange(len(ids))
    now = current[first][in_time]
    # An evaluation between tasks belongs to the one trained last.
    known = np.maximum.accumulate(np.where(now >= 0, np.arange(len(now)), -1))
    now = np.where(known >= 0, now[np.maximum(known, 0)], -1)
    within = table.get("within")
    return _Rows(
        evaluation=place[inverse],
        task=_relabel(column(table, "task", "evaluations")[keep].astype(np.int64), order),
        within=(
            np.full(len(keep), -1, dtype=np.int64)
            if within is None
            else _relabel(np.asarray(within)[keep].astype(np.int64), order)
        ),
        correct=column(table, "correct", "evaluations")[keep].astype(np.float64),
        size=column(table, "count", "evaluations")[keep].astype(np.float64),
        steps=step[first][in_time],
        current=now,
        newest=np.maximum.accumulate(now) if len(now) else now,
        tasks=len(order),
    )


def _pivot(
    rows: _Rows, row: Integers, col: Integers, keep: Anything, shape: tuple[int, int]
) -> Floats:
    """correct / count summed into [row, col]; NaN where nothing was counted."""
    cell = row[keep] * shape[1] + col[keep]
    size = shape[0] * shape[1]
    correct = np.bincount(cell, weights=rows.correct[keep], minlength=size)
    count = np.bincount(cell, weights=rows.size[keep], minlength=size)
    return divide(correct, count).reshape(shape)


def _boundaries(rows: _Rows, among: Anything) -> Integers:
    """For each task the last evaluation, of those marked, at which it was the newest one; or -1."""
    last = np.full(rows.tasks, -1, dtype=np.int64)
    usable = np.flatnonzero(among & (rows.newest >= 0))
    np.maximum.at(last, rows.newest[usable], usable)
    return last


def _at_boundaries(rows: _Rows, last: Integers) -> Integers:
    """Per log row the task whose boundary evaluation it belongs to, or -1."""
    boundary = np.full(len(rows.steps), -1, dtype=np.int64)
    boundary[last[last >= 0]] = np.flatnonzero(last >= 0)
    return boundary[rows.evaluation]


def _marked(rows: _Rows, keep: Anything) -> Anything:
    """Which evaluations have a row among those kept."""
    marked = np.zeros(len(rows.steps), dtype=bool)
    marked[rows.evaluation[keep]] = True
    return marked


def accuracy_matrix(log: Log, split: str | None = None) -> Floats:
    """``a[k, j]``, the accuracy on task j after training task k, from the logged evaluations.

    Row k is the last evaluation at which k was the newest task trained. NaN where a task was not
    evaluated. Tasks are counted in the order in which they were first trained. ``split`` is by
    default ``test`` where there is one, else the first split logged.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(evaluations={
    ...     "evaluation": np.array([0, 1, 1]), "step": np.array([5, 10, 10]),
    ...     "split": np.array(["test"] * 3), "task": np.array([0, 0, 1]),
    ...     "current": np.array([0, 1, 1]), "within": np.array([-1, -1, -1]),
    ...     "correct": np.array([8, 4, 9]), "count": np.array([10, 10, 10])})
    >>> accuracy_matrix(log)
    array([[0.8, nan],
           [0.4, 0.9]])
    """
    rows = _rows(log, split)
    plain = (rows.within < 0) & (rows.task >= 0)
    row = _at_boundaries(rows, _boundaries(rows, _marked(rows, plain)))
    return _pivot(rows, row, rows.task, plain & (row >= 0), (rows.tasks, rows.tasks))


def continual_accuracy(log: Log, split: str | None = None) -> ContinualAccuracy:
    """``(acc[n, i], task[n], step[n])`` from all logged evaluations of a split, in time.

    ``split`` is by default the one evaluated most often, since that is the one followed all along.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(evaluations={
    ...     "evaluation": np.array([0, 1, 1]), "step": np.array([5, 10, 10]),
    ...     "split": np.array(["valid"] * 3), "task": np.array([0, 0, 1]),
    ...     "current": np.array([0, 1, 1]), "within": np.array([-1, -1, -1]),
    ...     "correct": np.array([8, 4, 9]), "count": np.array([10, 10, 10])})
    >>> continual_accuracy(log).task
    array([0, 1])
    """
    rows = _rows(log, split, most=True)
    plain = (rows.within < 0) & (rows.task >= 0)
    among = _marked(rows, plain)
    place = np.cumsum(among) - 1
    acc = _pivot(rows, place[rows.evaluation], rows.task, plain, (int(among.sum()), rows.tasks))
    return ContinualAccuracy(acc, rows.current[among], rows.steps[among])


def evaluation_sizes(log: Log, split: str | None = None) -> Floats:
    """How many samples each logged evaluation of one task was made on (for worst-case accuracy)."""
    rows = _rows(log, split, most=True)
    return rows.size[(rows.within < 0) & (rows.task >= 0)]


def cumulative_matrix(log: Log, split: str | None = None) -> Floats:
    """``b[t, k]``: after task t, on the data and among the classes of tasks up to k.

    From the rows with ``within`` >= 0, summed over their tasks; NaN for t < k and where there are
    none. ``b[t, t]`` is the same as plain accuracy over the tasks seen, and is taken from there
    when it was not logged by itself.
    """
    rows = _rows(log, split)
    shape = (rows.tasks, rows.tasks)
    narrow = (rows.within >= 0) & (rows.task <= rows.within)
    plain = (rows.within < 0) & (rows.task >= 0)
    row = _at_boundaries(rows, _boundaries(rows, _marked(rows, narrow | plain)))
    b = _pivot(rows, row, rows.within, narrow & (row >= 0), shape)
    whole = _pivot(rows, row, row, plain & (row >= 0) & (rows.task <= row), shape)
    b = np.where(np.isnan(b), whole, b)
    b[np.triu_indices(rows.tasks, k=1)] = np.nan
    return b


def retained_accuracy(log: Log, split: str | None = None) -> float:
    """Accuracy over all held-out samples at the last evaluation: what is left at the end.

    Source: the headline number of Hammoud et al. 2023 for information retention, and the survey's
    final Acc.
    """
    table = log.evaluations
    chosen = choose_split(table, split, "evaluations")
    keep = column(table, "split", "evaluations") == chosen
    if "within" in table:
        keep = keep & (np.asarray(table["within"]) < 0)
    keep = np.flatnonzero(keep)
    if not len(keep):
        return float("nan")
    number = column(table, "evaluation", "evaluations")[keep]
    step = column(table, "step", "evaluations")[keep]
    latest = number[np.lexsort((number, step))[-1]]
    keep = keep[number == latest]
    count = column(table, "count", "evaluations")[keep].sum()
    correct = column(table, "correct", "evaluations")[keep].sum()
    return float(correct) / float(count) if count else float("nan")


def classes_seen(log: Log) -> Integers | None:
    """``classes[k]``, how many classes had been seen up to task k; None if the log cannot tell.

    Counted from the labels of the stream and of held-out answers, which carry their task; a log
    that has an attribute ``classes`` is taken at its word.
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
            of = np.asarray(table["task"]).astype(np.int64)
            # A run cut short may have begun a task that no evaluation knows yet.
            tasks.append(_relabel(np.where(of < len(order), of, -1), order))
    if not labels:
        return None
    label, task = np.concatenate(labels), np.concatenate(tasks)
    label, task = label[task >= 0], task[task >= 0]
    if not np.bincount(task, minlength=len(order)).all():
        return None
    named = label.dtype.kind not in "iu" or label.min(initial=0) < 0
    if named or int(label.max(initial=0)) > 8 * len(label) + 1024:
        label = np.unique(label, return_inverse=True)[1]
    first = np.full(int(label.max(initial=-1)) + 1, len(order))
    np.minimum.at(first, label, task)
    return np.cumsum(np.bincount(first, minlength=len(order))[: len(order)])
