"""Tables in files: read in one way, and their number columns as features."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.streams.source import Array
from streamgauge.tables.lines import separator

LABELS = ("label", "class", "target", "y")


def read_csv(table: bytes | Path, what: str, header: bool = True) -> Any:
    """A text table, also as .gz. `what` is what errors call it."""
    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        mark = separator(table[:65536] if isinstance(table, bytes) else _first_line(table))
        found = csv.read_csv(
            pa.py_buffer(table) if isinstance(table, bytes) else table,
            read_options=csv.ReadOptions(autogenerate_column_names=not header),
            parse_options=csv.ParseOptions(delimiter=mark, newlines_in_values=True),
        )
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise StreamgaugeError(f"The table {what} cannot be read: {why}.") from None
    names = found.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StreamgaugeError(f"The column '{twice}' comes twice in {what}: rename one.")
    for field in found.schema:
        if pa.types.is_binary(field.type):
            raise StreamgaugeError(
                f"The table {what} cannot be read: its column '{field.name}' is not UTF-8 text;"
                " save it as UTF-8."
            )
    if len(found) == 0:
        raise StreamgaugeError(f"The table {what} has no rows.")
    return found


def _first_line(file: Path) -> bytes:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        return opened.readline()


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
            f"Which column of {where} is the label? It has {', '.join(columns)}: set"
            " --stream.label to one."
        )
    return found[0]


def refuse_missing(values: Any, name: str, where: str, place: Callable[[int], str]) -> None:
    """Say where a column has nothing: null, or text without letters."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.is_null(values, nan_is_null=True)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True))
    row = pc.index(missing, True).as_py()
    if row >= 0:
        raise StreamgaugeError(
            f"{place(row)} of {where} has nothing in the column '{name}': fill it in, or leave out"
            " that row."
        )


def features(table: Any, columns: Sequence[str], where: str, place: Callable[[int], str]) -> Array:
    """Number columns side by side as 32-bit floats."""
    import pyarrow as pa

    if not columns:
        raise StreamgaugeError(f"{where} has no column left for features.")
    x = np.empty((len(table), len(columns)), np.float32)
    for at, name in enumerate(columns):
        values = table[name]
        kind = values.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.bool_()):
            raise StreamgaugeError(
                f"The column '{name}' of {where} holds no numbers but {kind}: turn it into numbers,"
                " or leave it out with --stream.drop."
            )
        refuse_missing(values, name, where, place)
        x[:, at] = values.to_numpy()
    return x
