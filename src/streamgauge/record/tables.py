"""The tables of the log: their columns, and the buffer that collects rows in memory.

The schema is part of the product and is documented in `docs/log.md`; LOG_VERSION changes with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOG_VERSION = 2  # the newest; a log without what version 2 adds is written as version 1

# NumPy types; "text" is a dictionary-encoded string, "scalar" a number or a 0-d tensor, "scores" a
# list of float32 that only recorders write.
TABLES: dict[str, dict[str, str]] = {
    "predictions": {
        "step": "int32",
        "sample": "int64",
        "label": "int32",
        "prediction": "int32",
        "confidence": "float32",
        "version": "int32",
        "shift": "int32",
        "age": "int32",
        "task": "int32",
        "user": "int64",
        "time": "float64",
        "logp": "float64",
        "logp_label": "int32",
        "scores": "scores",
        "target": "float64",
        "answer": "float64",
        "id": "text",
    },
    "labels": {"sample": "int64", "label": "int32", "label_time": "float64"},
    "evaluations": {
        "evaluation": "int32",
        "step": "int32",
        "version": "int32",
        "current": "int32",
        "split": "text",
        "task": "int32",
        "within": "int32",
        "correct": "int64",
        "count": "int64",
    },
    "answers": {
        "evaluation": "int32",
        "step": "int32",
        "split": "text",
        "sample": "int64",
        "label": "int32",
        "prediction": "int32",
        "confidence": "float32",
        "task": "int32",
        "time": "float64",
        "position": "int64",
    },
    "jobs": {
        "step": "int32",
        "version": "int32",
        "kind": "text",
        "flops": "float64",
        "bytes": "float64",
        "recalled": "float64",
    },
    "training": {"step": "int32", "name": "text", "value": "scalar"},
    "timing": {"step": "int32", "part": "text", "seconds": "float64"},
}

# Columns that are left out of a log whose stream does not have them.
OPTIONAL = frozenset({"task", "user", "time"})
# The table and the columns that log version 2 adds, where a writer names them.
ADDED = frozenset({"labels", "age", "logp", "logp_label", "scores", "target", "answer", "id"})


def columns_of(
    table: str, absent: frozenset[str], added: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The columns of a table and their kinds, without those that a log does not have. With the
    table `labels`, predictions may lack the column `label`."""
    left_out = (absent & OPTIONAL) | (ADDED - added)
    if table == "predictions" and "labels" in added:
        left_out |= absent & {"label"}
    return {name: kind for name, kind in TABLES[table].items() if name not in left_out}


_PLAIN = (int, float, str)


class RowBuffer:
    """Rows of one table that are not on disk yet: one growing array per column."""

    def __init__(self, columns: dict[str, str], capacity: int = 1024) -> None:
        self.columns = columns
        self.count = 0
        self._arrays: dict[str, NDArray[Any]] = {
            name: np.empty(capacity, object if kind in ("text", "scalar") else kind)
            for name, kind in columns.items()
        }
        self._capacity = capacity
        self._on_device: list[tuple[str, int, Any]] = []

    def append(self, rows: int, **values: Any) -> None:
        """Add rows; each value is an array, or one number for all rows."""
        start, end = self.count, self.count + rows
        if end > self._capacity:
            self._grow(end)
        for name, array in self._arrays.items():
            value = values[name]
            if rows == 1 and type(value) in _PLAIN:  # faster than a slice
                array[start] = value
            elif self.columns[name] == "text":
                array[start:end] = value
            elif array.dtype.hasobject:
                for row in range(start, end):  # a slice would make NumPy copy from the device
                    array[row] = value
            elif hasattr(value, "detach") and not value.is_cpu:
                self._on_device.append((name, start, value))  # copied when rows are read
            else:
                array[start:end] = value
        self.count = end

    def _grow(self, need: int) -> None:
        self._capacity = max(need, 2 * self._capacity)
        for name, old in self._arrays.items():
            self._arrays[name] = np.empty(self._capacity, old.dtype)
            self._arrays[name][: self.count] = old[: self.count]

    def peek(self, column: str) -> NDArray[Any]:
        """The values of a column, which stay in the buffer."""
        self._fetch()
        values = self._arrays[column][: self.count]
        return _numbers(values) if self.columns[column] == "scalar" else values

    def take(self) -> Any:
        """The rows as a pyarrow table; the buffer is empty afterwards."""
        import pyarrow as pa

        self._fetch()
        arrays = {}
        for name, kind in self.columns.items():
            values = self._arrays[name][: self.count]
            if kind == "text":
                arrays[name] = pa.array(values, pa.string()).dictionary_encode()
            elif kind == "scalar":
                arrays[name] = pa.array(_numbers(values), pa.float64())
            else:
                arrays[name] = pa.array(values)
        table = pa.table(arrays)
        self.count = 0
        return table

    def _fetch(self) -> None:
        """Copy values that are still on a device, with one transfer per column."""
        for name in {name for name, _, _ in self._on_device}:
            import torch

            parts = [(start, t) for column, start, t in self._on_device if column == name]
            with torch.no_grad():
                fetched = torch.cat([t if t.ndim == 1 else t.reshape(-1) for _, t in parts])
            sizes = np.array([t.numel() for _, t in parts])
            offset = np.array([start for start, _ in parts]) - (np.cumsum(sizes) - sizes)
            rows = np.arange(len(fetched)) + np.repeat(offset, sizes)
            self._arrays[name][rows] = fetched.cpu().numpy()
        self._on_device.clear()


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Scalars of a learner as floats; tensors on a device are copied in one transfer per type."""
    out = np.empty(len(values), np.float64)
    tensors: dict[Any, list[int]] = {}  # rows by type of tensor
    for row, value in enumerate(values):
        if hasattr(value, "detach"):
            tensors.setdefault(value.dtype, []).append(row)
        else:
            out[row] = float(value)
    for rows in tensors.values():
        import torch

        with torch.no_grad():
            scalars = [v if v.ndim == 0 else v.reshape(()) for v in values[rows]]
            out[rows] = torch.stack(scalars).double().cpu().numpy()
    return out
