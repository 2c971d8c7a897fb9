"""Accuracy matrices in the files of other tools.

Every reader gives ``a[k, j]``, the accuracy on task j after training task k, as shares, NaN where
it was not measured. What a file does not say for certain (percent or shares, which axis is the
training) is not guessed: the error names the option that says it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, first_line, nearest

Floats = NDArray[np.float64]
ROWS = ("after", "task")  # row k is "after" training task k, or row j is the task evaluated
UNITS = ("percent", "share")
AVALANCHE = ("eval_exp", "training_exp", "eval_accuracy")
_MISSING = {"", "-", "–", "nan", "na", "n/a", "none", "null"}
_MOST_BYTES = 1 << 26
_MAMMOTH = re.compile(
    r"'accuracy_(\d+)_task(\d+)': (?:np\.float\d+\()?(-?[\d.]+(?:e[+-]?\d+)?|nan)\b"
)


@dataclass(frozen=True)
class AccuracyMatrix:
    """``accuracy[k, j]``: on task j after training task k. ``baseline[j]``: of the untrained model.
    ``notes`` are sentences about what was read and what was assumed."""

    name: str
    accuracy: Floats
    baseline: Floats | None = None
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        return len(self.accuracy)

    @property
    def last(self) -> int:
        """The last task after which anything was measured."""
        lower = np.tril(np.ones_like(self.accuracy, bool))
        measured = (np.isfinite(self.accuracy) & lower).any(axis=1)
        return int(np.flatnonzero(measured)[-1]) if measured.any() else -1


def read_matrices(
    path: str | Path, rows: str | None = None, unit: str | None = None, baseline: Any = None
) -> list[AccuracyMatrix]:
    """The accuracy matrices of a file: one, or one per run of a mammoth log or of a 3-d array."""
    path = Path(path)
    if not path.is_file():
        raise StreamgaugeError(f"There is no file {path}.")
    if path.stat().st_size > _MOST_BYTES:
        raise StreamgaugeError(f"{path} is no accuracy matrix: it has more than 64 MB.")
    if path.suffix in (".npy", ".npz"):
        return _from_arrays(_load_numpy(path), str(path), rows, unit, baseline)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise StreamgaugeError(
            f"{path} is no accuracy matrix: it must be text, .npy or .npz."
        ) from None
    if _MAMMOTH.search(text) or path.suffix == ".pyd":
        matrices = _read_mammoth(text, path)
    else:
        lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
        if not lines:
            raise StreamgaugeError(f"{path} is empty.")
        if all(name in lines[0] for name in AVALANCHE):
            matrices = [_read_avalanche(lines, path)]
        else:
            return [_read_table(lines, path, rows, unit, baseline)]
    if rows or unit:
        option = "--rows" if rows else "--unit"
        raise StreamgaugeError(f"{path} says itself what its rows and numbers are: omit {option}.")
    return [with_baseline(matrix, baseline) for matrix in matrices]


def matrix_of(
    values: Any,
    name: str,
    rows: str | None = None,
    unit: str | None = None,
    baseline: Any = None,
    percent: bool = False,
) -> AccuracyMatrix:
    """A checked matrix; ``percent``: the cells were written with a % sign."""
    try:
        a = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StreamgaugeError(
            f"{name[0].upper()}{name[1:]} must be numbers in rows of equal length, [tasks, tasks];"
            " cells that were not measured are NaN."
        ) from error
    for option, value, known in (("rows", rows, ROWS), ("unit", unit, UNITS)):
        if value is not None and value not in known:
            raise StreamgaugeError(f"--{option} cannot be {value!r}: {nearest(value, known)}")
    untrained_in_file = isinstance(baseline, str) and baseline == "first"
    if untrained_in_file:
        if a.ndim != 2 or len(a) != a.shape[1] + 1:
            raise StreamgaugeError(
                f"--baseline first: {name} must have one row more than columns, not {a.shape}."
            )
        a, baseline = a[1:], a[0]
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise StreamgaugeError(
            f"{name} is no accuracy matrix, tasks by tasks: its shape is"
            f" {' x '.join(map(str, a.shape)) or 'that of one number'}. If its first row is the"
            " untrained model: --baseline first. Predictions with labels: streamgauge audit."
        )
    together = np.append(a.ravel(), np.asarray(baseline).ravel() if untrained_in_file else [])
    scale, note = _scale(together, name, "percent" if percent and unit is None else unit)
    a, oriented = _oriented(a / scale, name, rows)
    notes = [note, oriented] if oriented else [note]
    if len(a) > 1 and not a[np.triu_indices(len(a), 1)].any() and np.tril(a, -1).any():
        a = np.where(np.triu(np.ones_like(a, bool), 1), np.nan, a)
        notes.append("The upper triangle is 0 everywhere and is read as not measured.")
    if untrained_in_file:
        baseline = np.asarray(baseline) / scale
    return with_baseline(AccuracyMatrix(name, a, None, tuple(notes)), baseline)


def _scale(values: Floats, name: str, unit: str | None) -> tuple[float, str]:
    """What to divide by to have shares, and a sentence that says how the numbers were read."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise StreamgaugeError(f"{name} holds no numbers.")
    low, high = float(finite.min()), float(finite.max())
    if unit is None:
        if 1 < high <= 2:
            raise StreamgaugeError(
                f"Are the numbers of {name} (up to {high:g}) percent or shares?"
                " Say --unit percent or --unit share."
            )
        unit = "percent" if high > 1 else "share"
    most = 100.0 if unit == "percent" else 1.0
    if low < 0 or high > most * (1 + 1e-6):
        raise StreamgaugeError(
            f"{name} holds the number {low if low < 0 else high:g}, but accuracies are from 0 to"
            f" {'100 percent' if unit == 'percent' else '1'}."
        )
    return most, "Numbers are read as " + ("percent." if unit == "percent" else "shares, 0 to 1.")


def _oriented(a: Floats, name: str, rows: str | None) -> tuple[Floats, str]:
    """The matrix with rows "after training task k", and a sentence if that was detected."""
    upper, lower = (
        bool(np.isfinite(a[of(len(a), offset)]).any())
        for of, offset in ((np.triu_indices, 1), (np.tril_indices, -1))
    )
    if rows is None and len(a) > 1:
        if upper and lower and not np.array_equal(a, a.T, equal_nan=True):
            # Zeros above the diagonal are a future task; zeros below would be total forgetting.
            if a[np.triu_indices(len(a), 1)].any():
                raise StreamgaugeError(
                    f"Is row 1 of {name} all tasks after training the first, or the first task"
                    " after training each? Say --rows after or --rows task."
                )
        elif upper and not lower:
            return a.T, (
                "Only the upper triangle is filled, so a row is read as one task over time."
            )
    return (a.T if rows == "task" else a), ""


def with_baseline(matrix: AccuracyMatrix, baseline: Any) -> AccuracyMatrix:
    """The matrix with checked accuracies of the untrained model."""
    if baseline is None:
        return matrix
    if isinstance(baseline, str):
        raise StreamgaugeError(
            f"--baseline is 'first' (the first row of a table) or {matrix.tasks} accuracies such"
            f" as 0.1,0.1,..., not '{baseline}'."
        )
    values = np.asarray(baseline, dtype=np.float64)
    if values.shape != (matrix.tasks,):
        raise StreamgaugeError(
            f"--baseline must hold the accuracy of the untrained model on each of the"
            f" {matrix.tasks} tasks of {matrix.name}, not {values.size} numbers."
        )
    finite = values[np.isfinite(values)]
    if finite.size and (finite.min() < 0 or finite.max() > 1):
        raise StreamgaugeError("--baseline holds accuracies as shares, from 0 to 1.")
    return replace(matrix, baseline=values)


def _from_arrays(
    values: NDArray[Any], name: str, rows: str | None, unit: str | None, baseline: Any
) -> list[AccuracyMatrix]:
    """One matrix, or one per run where there is an axis of runs before the two of tasks."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise StreamgaugeError(
            f"{name} holds no array of numbers but {values.dtype}: save the accuracy matrix itself."
        ) from None
    if numbers.ndim != 3:
        return [matrix_of(numbers, name, rows, unit, baseline)]
    return [
        matrix_of(one, f"{name}, {number}", rows, unit, baseline)
        for number, one in enumerate(numbers)
    ]


def _load_numpy(path: Path) -> NDArray[Any]:
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            return stored
        with stored:
            names = list(stored)
            key = names[0] if len(names) == 1 else "accuracy_matrix"
            if key not in names:
                raise StreamgaugeError(
                    f"Which array of {path} is the accuracy matrix? Save it alone, or as"
                    f" 'accuracy_matrix'; there is {', '.join(names)}."
                )
            return np.asarray(stored[key])
    except (OSError, ValueError, EOFError) as error:
        raise StreamgaugeError(f"{path} cannot be read ({first_line(error)}).") from None


def _read_table(
    lines: list[str], path: Path, rows: str | None, unit: str | None, baseline: Any
) -> AccuracyMatrix:
    """Numbers with a separator, with or without names of rows and columns."""
    cells = _cells(lines)
    if cells[0][0] == "" or any(_number(cell) is None for cell in cells[0]):
        cells = cells[1:]
    elif len(cells) == len(cells[0]) + 1 and _counts(cells[0]) and baseline != "first":
        cells = cells[1:]  # column names 0, 1, 2, ...
    width = max(map(len, cells), default=0)
    first = [row[0] for row in cells]
    extra = 2 if baseline == "first" else 1
    if any(_number(cell) is None for cell in first) or (
        width == len(cells) + 2 - extra and _counts(first)
    ):
        cells, width = [row[1:] for row in cells], width - 1
    values = np.full((len(cells), width), np.nan)
    for at, row in enumerate(cells):
        for column, cell in enumerate(row):
            number = _number(cell)
            if number is None:
                raise StreamgaugeError(
                    f"{path} is no accuracy matrix: '{cell}' in row {at + 1} is no number. For a"
                    f" log of labels and predictions: streamgauge audit {path}."
                )
            values[at, column] = number
    percent = any("%" in cell for row in cells for cell in row)
    return matrix_of(values, str(path), rows, unit, baseline, percent)


def _cells(lines: Sequence[str]) -> list[list[str]]:
    separator = next((mark for mark in "\t;,|" if any(mark in line for line in lines)), None)
    if separator is None:
        return [line.split() for line in lines]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    if separator != ",":  # a decimal comma
        rows = [[re.sub(r"^(-?\d*),(\d+\s*%?)$", r"\1.\2", cell) for cell in row] for row in rows]
    return rows


def _number(cell: str) -> float | None:
    """The number of a cell, NaN where it is missing, None where it is text."""
    if cell.lower() in _MISSING:
        return float("nan")
    try:
        return float(cell.removesuffix("%").strip())
    except ValueError:
        return None


def _counts(cells: Iterable[str]) -> bool:
    """Whether cells are 0, 1, 2, ... or 1, 2, 3, ...: numbers of tasks, not accuracies."""
    listed = list(cells)
    return len(listed) > 1 and any(
        listed == [str(at) for at in range(start, start + len(listed))] for start in (0, 1)
    )


def _read_avalanche(lines: list[str], path: Path) -> AccuracyMatrix:
    """`eval_results.csv` of Avalanche's CSVLogger, tasks in the order of training."""
    measured: dict[tuple[str, str], float] = {}
    written: set[str] = set()
    for line in csv.DictReader(lines):
        task, after, text = (line[name] for name in AVALANCHE)
        value = _number(text or "")
        if value is None or value != value or not str(task).isdigit():
            raise StreamgaugeError(
                f"{path} has a row that is none of Avalanche's CSVLogger: {task}, {after}, {text}."
            )
        written.add(text)
        if measured.setdefault((after, task), value) != value:
            raise StreamgaugeError(
                f"{path} has two accuracies of experience {task} after training {after}"
                f" ({measured[after, task]:g} and {value:g}), as if two streams were evaluated:"
                " keep the rows of one."
            )
    if written <= {"0"}:  # the logger writes 0 for what was not monitored, and 0.0000 for zero
        raise StreamgaugeError(
            f"{path} holds no accuracies: give Avalanche's EvaluationPlugin"
            " accuracy_metrics(experience=True) and run again."
        )
    trained = [after for after, _ in measured if after != "None"]
    order = list(dict.fromkeys(trained))
    order += [task for _, task in measured if task not in order]
    order = list(dict.fromkeys(order))
    number = {task: at for at, task in enumerate(order)}
    a, baseline = np.full((len(order), len(order)), np.nan), np.full(len(order), np.nan)
    for (after, task), value in measured.items():
        if after == "None":
            baseline[number[task]] = value
        else:
            a[number[after], number[task]] = value
    notes = ["Avalanche's evaluations, rounded there to four decimals."]
    if order != sorted(order, key=int):
        notes.append(f"Tasks are in the order of training: experiences {', '.join(order)}.")
    untrained = baseline if np.isfinite(baseline).any() else None
    return AccuracyMatrix(str(path), a, untrained, tuple(notes))


def _read_mammoth(text: str, path: Path) -> list[AccuracyMatrix]:
    """`logs.pyd` of mammoth: a Python dictionary per line and run, of which the accuracies are
    taken by pattern; nothing of the file is evaluated."""
    matrices = []
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        name = f"{path}, line {number}"
        if not (line.startswith("{") and line.endswith("}")):
            raise StreamgaugeError(f"{name} is no whole line of a mammoth log.")
        cells = {
            (int(k) - 1, int(j) - 1): float(value) / 100 for j, k, value in _MAMMOTH.findall(line)
        }
        if not cells:
            raise StreamgaugeError(
                f"{name} holds mean accuracies only, as mammoth logs them where classes do not grow"
                " (domain-il, general-continual): there is no matrix in it."
            )
        seed = re.search(r"'seed': (\d+)", line)
        name += f" (seed {seed[1]})" if seed else ""
        matrix = _mammoth_matrix(cells, line, name)
        if "task-il" in path.resolve().parts:
            known = "Answers were among the classes of one task: rescaled metrics do not apply."
            matrix = replace(matrix, notes=(*matrix.notes, known))
        matrices.append(matrix)
    return matrices


def _mammoth_matrix(cells: dict[tuple[int, int], float], line: str, name: str) -> AccuracyMatrix:
    lengths = [sum(k == row for k, _ in cells) for row in range(max(k for k, _ in cells) + 1)]
    tasks, notes = max(lengths), ["mammoth's accuracies by task, in percent."]
    rows = list(range(len(lengths)))
    if "'eval_future': True" in line:
        raise StreamgaugeError(f"{name} was made with --eval_future, whose rows cannot be told"
                               " apart from those of seen tasks.")  # fmt: skip
    if re.search(r"'eval_epochs': \d", line):
        rows = [max(at for at in rows if lengths[at] == length) for length in sorted({*lengths})]
        notes.append("Of several evaluations during a task (--eval_epochs), the last counts.")
    elif lengths == [*range(1, tasks + 1), tasks]:
        rows = rows[:-1]
        notes.append(
            "The last row, of the test set, is left out: the others are of the validation set."
        )
    if [lengths[at] for at in rows] != list(range(1, tasks + 1)):
        raise StreamgaugeError(
            f"{name} has rows of {', '.join(map(str, lengths))} tasks, where a matrix has one more"
            " in each row: it is of a part of a run."
        )
    a = np.full((tasks, tasks), np.nan)
    for k, row in enumerate(rows):
        for j in range(k + 1):
            a[k, j] = cells[row, j]
    return AccuracyMatrix(name, a, None, tuple(notes))
