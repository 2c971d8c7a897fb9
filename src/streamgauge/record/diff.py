"""Differences between two runs: configuration, environment, data, first differing log row."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgauge.record.run import LogTable, Run
from streamgauge.record.tables import TABLES

_MISSING = "(absent)"
_LEFT_OUT = {"timing", "labels"}  # labels are compared as columns of the predictions


def differences(a: Run, b: Run) -> dict[str, Any]:
    """All differences as plain values; `same` is true if the logs are identical.

    `configuration`, `environment` and `data` map a dotted name to the two values; `logs` maps a
    table to its first differing step, row and columns, of the columns that both logs have;
    `columns` maps a table to those that only the first and only the second has, which are no
    difference between logs of different versions.
    """
    tables = {name: (_table(a, name), _table(b, name)) for name in TABLES if name not in _LEFT_OUT}
    logs = {
        name: difference
        for name, pair in tables.items()
        if (difference := _first_difference(*pair)) is not None
    }
    columns = {
        name: [[c for c in left if c not in right], [c for c in right if c not in left]]
        for name, (left, right) in tables.items()
        if set(left) != set(right)
    }
    versions = {run.header["log_version"] for run in (a, b)}
    return {
        "same": not logs and (not columns or len(versions) > 1),
        "configuration": _compare(a.header["config"], b.header["config"]),
        "environment": _compare(_environments(a), _environments(b)),
        "data": _compare(
            {k: v for k, v in a.stream.items() if k != "settings"},
            {k: v for k, v in b.stream.items() if k != "settings"},
        ),
        "logs": logs,
        "columns": columns,
        "first_step": min((difference["step"] for difference in logs.values()), default=None),
    }


def _environments(run: Run) -> dict[str, Any]:
    """The environment of the first start, and those of later resumes."""
    return {**run.header["environment"], "resumed_in": run.header.get("resumed_in", [])}


def _compare(a: Any, b: Any) -> dict[str, list[Any]]:
    left, right = _flat(a), _flat(b)
    return {
        name: [left.get(name, _MISSING), right.get(name, _MISSING)]
        for name in sorted(left.keys() | right.keys())
        if left.get(name, _MISSING) != right.get(name, _MISSING)
    }


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    out: dict[str, Any] = {}
    for name, item in value.items():
        out |= _flat(item, f"{prefix}.{name}" if prefix else str(name))
    return out


def _table(run: Run, name: str) -> LogTable:
    return run.joined_predictions(keep_all=True) if name == "predictions" else run.table(name)


def _first_difference(left: LogTable, right: LogTable) -> dict[str, Any] | None:
    """The first row at which a table differs, None if there is none."""
    rows = min(left.rows, right.rows)
    first, columns = rows, list[str]()
    for column in [c for c in left if c in right]:
        x, y = left[column][:rows], right[column][:rows]
        equal = (x == y) | ((x != x) & (y != y))  # NaN is equal to NaN
        if not equal.all():
            row = int(np.argmin(equal))
            if row < first:
                first, columns = row, []
            if row == first:
                columns.append(column)
    if first == rows and left.rows == right.rows:
        return None
    if first < rows:
        return {"step": _step(left, first), "row": first, "columns": columns}
    longer = left if left.rows > right.rows else right
    step = _step(longer, rows) if longer.rows > rows else 0
    return {"step": step, "row": rows, "columns": [], "rows": [left.rows, right.rows]}


def _step(table: LogTable, row: int) -> int:
    """The step in which a row was written. A near-future answer (shift above 0) is logged under the
    step of its sample, so the last row with shift 0 counts."""
    if "shift" in table:
        live = np.flatnonzero(table["shift"][: row + 1] == 0)
        row = int(live[-1]) if len(live) else row
    return int(table["step"][row])
