"""Tables of numbers as streams: which column is the label, and the rest as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.streams.source import Array

LABELS = ("label", "class", "target", "y")


def named(columns: Sequence[str], name: str, what: str, where: str) -> str:
    if name not in columns:
        raise StreamgaugeError(
            f"{where} has no column '{name}' for the {what}; {nearest(name, columns)}"
        )
    return name


def label_column(columns: Sequence[str], chosen: str, where: str) -> str:
    """The column that was chosen, else one that is called label, class, target or y."""
    if chosen:
        return named(columns, chosen, "label", where)
    found = [column for column in columns if column.lower() in LABELS]
    if len(found) != 1:
        raise StreamgaugeError(
            f"Which column of {where} is the label? It has {', '.join(columns)}: set label to one."
        )
    return found[0]


def features(table: Any, columns: Sequence[str], where: str) -> Array:
    """Number columns side by side as 32-bit floats."""
    import pyarrow as pa

    if not columns:
        raise StreamgaugeError(f"{where} has no column left for features.")
    x = np.empty((len(table), len(columns)), np.float32)
    for place, name in enumerate(columns):
        values = table[name]
        kind = values.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.bool_()):
            raise StreamgaugeError(
                f"The column '{name}' of {where} holds no numbers but {kind}: turn it into numbers,"
                " or leave it out with drop."
            )
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy())[0]) + 1
            raise StreamgaugeError(f"The column '{name}' of {where} is empty in row {row}.")
        x[:, place] = values.to_numpy()
    return x
