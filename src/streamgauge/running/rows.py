"""The rows that a run appends to its log, whoever drives the learner: the loop or a live run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Stream


class RowSink(Protocol):
    def append(self, rows: int, **values: Any) -> None: ...


Rows = Mapping[str, RowSink]  # by table


class Record(Protocol):
    """What the loop writes to; `record.RunWriter` writes run folders."""

    @property
    def rows(self) -> Rows: ...
    @property
    def full(self) -> bool: ...
    def checkpoint(self, step: int, state: dict[str, Any], done: bool = False) -> None: ...


def append_predictions(
    rows: Rows,
    stream: Stream,
    step: Any,
    prediction: Any,
    confidence: Any,
    version: Any,
    shift: int = 0,
) -> NDArray[Any]:
    """The answers to the samples of a step, one row per sample; or of successive steps, which are
    given as an array, the step of each sample. Returns the true labels."""
    first, last = (step, step) if isinstance(step, int) else (step[0], step[-1])
    source, index = stream.source, stream.order[stream.starts[first] : stream.starts[last + 1]]
    label: NDArray[Any] = source.label[index]
    columns: dict[str, Any] = {
        name: source.columns[name][index] for name in ("user", "time") if name in source.columns
    }
    if stream.task is not None:
        columns["task"] = stream.task[step]
    rows["predictions"].append(
        len(index),
        step=step,
        sample=index,
        label=label,
        prediction=prediction,
        confidence=confidence,
        version=version,
        shift=shift,
        **columns,
    )
    return label


def append_training(
    rows: Rows, step: int, version: int, scalars: Mapping[str, Any], flops: float, size: float
) -> None:
    """What `learn` returned, one row per name, and the row of its job; `size` is
    that of the replay memory in bytes."""
    scalars = dict(scalars)
    recalled = scalars.pop("recalled", np.nan)
    for name, value in scalars.items():
        if not isinstance(name, str):
            raise StreamgaugeError(f"learn returned a value named {name!r}; names are text.")
        if not _is_number(value):
            raise StreamgaugeError(f"learn returned {name} = {value!r}, which is no number.")
        rows["training"].append(1, step=step, name=name, value=value)
    append_job(rows, step, version, "learn", flops, size, recalled)


def append_job(
    rows: Rows,
    step: Any,
    version: Any,
    kind: str,
    flops: float,
    size: float,
    recalled: Any,
    count: int = 1,
) -> None:
    rows["jobs"].append(
        count, step=step, version=version, kind=kind, flops=flops, bytes=size, recalled=recalled
    )


def _is_number(value: Any) -> bool:
    if hasattr(value, "numel"):  # a tensor stays on its device until the log is written
        return bool(value.numel() == 1)
    return isinstance(value, (int, float, np.number)) or (
        np.ndim(value) == 0 and not isinstance(value, (str, bytes))
    )
