"""What differs between two runs: configuration, environment, data, and where their logs part."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgauge.record.run import LogTable, Run
from streamgauge.record.tables import TABLES

_MISSING = "(absent)"


def differences(a: Run, b: Run) -> dict[str, Any]:
    """All differences as plain values; `same` is true where the results are identical.

    `configuration`, `environment` and `data` map a dotted name to the two values; `logs` maps a
    table to the first step at which it parts, and to what parts there.
    """
    logs = {
        name: parting
        for name in TABLES
        if name != "timing" and (parting := _parting(a, b, name)) is not None
    }
    return {
        "same": not logs,
        "configuration": _compare(a.header["config"], b.header["config"]),
        "environment": _compare(_environments(a), _environments(b)),
        "data": _compare(
            {k: v for k, v in a.stream.items() if k != "settings"},
            {k: v for k, v in b.stream.items() if k != "settings"},
        ),
        "logs": logs,
        "first_step": min((p["step"] for p in logs.values()), default=None),
    }


def _environments(run: Run) -> dict[str, Any]:
    """Where it was started, and, if it was resumed somewhere else, there too."""
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


def _parting(a: Run, b: Run, name: str) -> dict[str, Any] | None:
    """The first row at which a table differs, or None."""
    left, right = a.table(name), b.table(name)
    rows = min(left.rows, right.rows)
    first, columns = rows, sorted(set(left) ^ set(right))
    if columns:
        first = 0
    for column in [c for c in left if c in right]:
        x, y = left[column][:rows], right[column][:rows]
        equal = (x == y) | ((x != x) & (y != y))  # NaN is equal to NaN
        if not equal.all():
            place = int(np.argmin(equal))
            if place < first:
                first, columns = place, []
            if place == first:
                columns.append(column)
    if first == rows and left.rows == right.rows and not columns:
        return None
    if first < rows:
        return {"step": _step(left, first), "row": first, "columns": columns}
    longer = left if left.rows > right.rows else right
    step = _step(longer, rows) if longer.rows > rows else 0
    return {"step": step, "row": rows, "columns": [], "rows": [left.rows, right.rows]}


def _step(table: LogTable, row: int) -> int:
    """The step in which a row was written; an answer ahead stands under the step it is about."""
    if "shift" in table:
        live = np.flatnonzero(table["shift"][: row + 1] == 0)
        row = int(live[-1]) if len(live) else row
    return int(table["step"][row])
