"""Opening any table: a file, the bytes of one, arrays by name, an Arrow table, a data frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.base import COMPRESSIONS, TableReader, open_bytes, readable
from streamgauge.tables.text import ArffTable, JsonLines, TextTable
from streamgauge.tables.typed import ArrayTable, ArrowTable, NpzTable, ParquetTable, map_arrow

FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".dat", ".data"), "text"),
    ".arff": "arff",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather"), "arrow"),
    ".npz": "npz",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
}


def open_table(data: Any, name: str = "", header: bool | None = None) -> TableReader:
    """A path, the bytes of a text table, arrays by name, an Arrow table or a data frame.

    `name` is what messages call it. `header` says whether a text table begins with column names;
    None decides by its first lines.
    """
    if isinstance(data, bytes):
        return _open_text(data, name or "the table", header)
    if isinstance(data, pa.Table):
        return ArrowTable(data, name or "the table")
    if isinstance(data, Mapping):
        return ArrayTable(dict(data.items()), name or "the arrays given")
    if not isinstance(data, str | Path):
        return ArrowTable(_from_frame(data), name or "the data frame")
    return _open_path(Path(data), name or str(data), header)


def _open_path(path: Path, name: str, header: bool | None) -> TableReader:
    if not path.exists():
        raise StreamgaugeError(f"there is no file {path}: check the path")
    if path.is_dir():
        files: list[Path] = []
        for below in ("log/predictions", "predictions", "."):
            files = files or sorted((path / below).glob("*.parquet"))
        if not files:
            raise StreamgaugeError(f"the folder {path} holds no Parquet files: name a table")
        return ParquetTable(files, name)
    kind = table_format(path)
    if kind is None:
        raise StreamgaugeError(
            f"{path.name} is of no kind that can be read: a table is CSV (.csv, .tsv, .txt, .dat),"
            " ARFF (.arff), Parquet (.parquet), Arrow (.arrow, .feather), NPZ (.npz) or JSON lines"
            " (.jsonl)"
        )
    if path.stat().st_size == 0:
        raise StreamgaugeError(f"{path} is empty: a table needs at least one row")
    with readable(name):
        if kind in ("text", "arff"):
            return _open_text(path, name, header)
        if kind == "parquet":
            return ParquetTable([path], name)
        if kind == "arrow":
            return ArrowTable(map_arrow(path), name)
        return NpzTable(path, name) if kind == "npz" else JsonLines(path, name)


def table_format(path: Path) -> str | None:
    """The format that the name of a file says, also within a compressed one; None: no table."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in COMPRESSIONS]
    return FORMATS.get(endings[-1] if endings else "")


def _open_text(data: Path | bytes, name: str, header: bool | None) -> TableReader:
    with readable(name), open_bytes(data) as file:
        head = file.read(1 << 16)
    if re.search(rb"(?im)^\s*@attribute\s", head) and re.match(rb"(?i)\s*[@%]", head):
        return ArffTable(data, name)
    return TextTable(data, name, header)


def _from_frame(data: Any) -> pa.Table:
    import narwhals

    try:
        frame = narwhals.from_native(data)
    except TypeError:
        raise StreamgaugeError(
            f"A {type(data).__name__} is no table: give a path, a mapping of names to arrays, or a"
            " data frame (pandas, polars, Arrow)."
        ) from None
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame.to_arrow()
