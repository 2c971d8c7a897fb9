"""Opening any table: a file, the bytes of one, arrays by name, an Arrow table, a data frame."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable
from streamgauge.tables.base import COMPRESSIONS, TableReader, open_bytes, refuse_repeated_names
from streamgauge.tables.columns import announce, choose, columns_named, require
from streamgauge.tables.journal import log_files
from streamgauge.tables.late import LabelledParquet
from streamgauge.tables.rows import Rows
from streamgauge.tables.text import ArffTable, TextTable, open_json
from streamgauge.tables.typed import ArrayTable, ArrowTable, NpzTable, ParquetTable, map_arrow
from streamgauge.tables.values import numbers

# By ending of the file; `open_table` has a reader for each.
FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".dat", ".data"), "CSV"),
    ".arff": "ARFF",
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
    **dict.fromkeys((".arrow", ".feather"), "Arrow"),
    ".npz": "NPZ",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "JSON lines"),
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


def open_labelled(data: Any, name: str, label: str | None) -> tuple[TableReader, str | None]:
    """A table, and the column of its label as far as `label` names one. `label` may also be a file
    with a label per row; where no column has the name of a label, it is also looked for next to
    the table: mine.labels, mine_labels.dat and so on for mine.dat."""
    reader = open_table(data, name)
    if label in reader.names or label == "none" or not isinstance(data, str | Path):
        return reader, label
    file = Path(label).expanduser() if label else _labels_next_to(Path(data), reader)
    if file is None or not file.is_file():
        return reader, label
    labelled = LabelledTable(reader, file)
    if not label:
        announce(f"{reader.name}: the labels are those of '{file}'.")
    return labelled, labelled.label


def _labels_next_to(path: Path, reader: TableReader) -> Path | None:
    if not path.is_file() or columns_named(reader.names, "label") or reader.usual_label:
        return None
    stem, ending = path.name.partition(".")[0], path.suffix
    names = [f"{stem}.labels", f"{stem}.label", f"{stem}.lab"]
    names += [f"{stem}{mark}{word}{ending}" for mark in "_-." for word in ("labels", "label")]
    files = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    return files[0] if len(files) == 1 else None


class LabelledTable(TableReader):
    """A table, and the labels of its rows in another file."""

    def __init__(self, table: TableReader, file: Path) -> None:
        self.table, self.name, self.file = table, table.name, file
        labels = TextTable(file, f"'{file}'", header=False)
        if len(labels.names) != 1:
            raise StreamgaugeError(
                f"'{file}' has {len(labels.names)} columns: a file of labels has one, with a label"
                " per row."
            )
        self.label = "label" if "label" not in table.names else f"label of {file.name}"
        self.labels = labels.read(text=labels.names)[0]
        if columns_named([str(self.labels[0])], "label"):  # a header
            self.labels = self.labels.slice(1)
        self.names = [*table.names, self.label]

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        wanted = [name for name in names if name != self.label] or self.table.names[:1]
        at = 0
        for piece in self.table._tables(wanted, text):
            yield self._joined(piece, at).select(list(names))
            at += len(piece)
        self._check(at)

    def _whole(self, names: Sequence[str], text: Sequence[str]) -> pa.Table:
        wanted = [name for name in names if name != self.label] or self.table.names[:1]
        whole = self.table._whole(wanted, text)
        self._check(len(whole))
        return self._joined(whole, 0).select(list(names))

    def _joined(self, piece: pa.Table, at: int) -> pa.Table:
        labels = self.labels.slice(at, len(piece))
        missing = pa.nulls(len(piece) - len(labels), labels.type)
        return piece.append_column(self.label, pa.chunked_array([*labels.chunks, missing]))

    def _check(self, rows: int) -> None:
        if rows != len(self.labels):
            raise StreamgaugeError(
                f"{self.name} has {rows:,} rows, but '{self.file}' has {len(self.labels):,} labels:"
                " every row needs one."
            )

    def row_name(self, row: int) -> str:
        return self.table.row_name(row)


class RoleTable:
    """A table, and which of its columns is the label, the time and so on.

    `given` names the column of a role, or ``"none"`` to leave it out; other roles are guessed from
    the usual names, and `guessed` lists them. `extra` columns, for `extra_role`, must exist.
    """

    def __init__(
        self,
        data: Any,
        name: str,
        roles: Sequence[str],
        given: Mapping[str, str | None],
        needed: Sequence[str],
        extra: Sequence[str],
        extra_role: str,
    ) -> None:
        label = given.get("label") if "label" in roles else "none"
        self.source, label = open_labelled(data, name, label)
        self.name, names = self.source.name, self.source.names
        given = {**given, "label": label}
        usual = self.source.usual_label
        self.roles = choose(names, roles, given, self.name, "--", needed, usual)
        self.guessed = [role for role in self.roles if not given.get(role)]
        for column in extra:
            require(names, column, extra_role, self.name)

    def row_name(self, row: int) -> str:
        """What messages call a row (counted from 0)."""
        return self.source.row_name(row)

    def rows(self, first: int, count: int) -> Rows:
        """Some rows, to refuse those with missing cells."""
        return Rows(count, self.name, lambda row: self.row_name(first + row))

    def numbers(self, table: pa.Table, role: str, remedy: str) -> NDArray[np.float64]:
        """The column of a role as numbers, NaN where missing; an error if it holds no numbers."""
        name = self.roles[role]
        values = numbers(table[name])
        if values is None:
            raise StreamgaugeError(
                f"column '{name}' is taken as the {role} but holds no numbers: name another column "
                f"with --{role}{remedy}"
            )
        return values


def _open_folder(path: Path, name: str) -> TableReader:
    files, late, journal = list[Path](), list[Path](), None
    if (path / "progress.json").exists():
        tables, journal = log_files(path)
        files, late = tables.get("predictions", []), tables.get("labels", [])
    else:
        for below in ("log/predictions", "predictions", "."):
            files = files or sorted((path / below).glob("*.parquet"))
        if files and files[0].parent.name == "predictions":
            late = sorted(files[0].parent.with_name("labels").glob("*.parquet"))
    if not files:
        raise StreamgaugeError(_no_table_in(path))
    reader = (
        LabelledParquet(files, late, name, journal)
        if late or journal
        else ParquetTable(files, name)
    )
    reader.is_run = (path / "progress.json").exists()
    return reader


def _no_table_in(path: Path) -> str:
    """Why a folder is no table, and what to name."""
    if (path / "run.json").exists():
        return f"the run {path} has no answers yet: there is nothing to read"
    runs = sorted(path.glob("*/run.json")) or sorted(path.glob("*/*/run.json"))
    runs = [file.parent for file in runs]
    if runs:
        return f"the folder {path} is a folder of runs: name one of them, such as {runs[0]}"
    return f"the folder {path} holds no Parquet files: name a table"


def _open_path(path: Path, name: str, header: bool | None) -> TableReader:
    if not path.exists():
        raise StreamgaugeError(f"there is no file {path}: check the path")
    if path.is_dir():
        return _open_folder(path, name)
    kind = table_format(path)
    if kind is None:
        raise StreamgaugeError(
            f"{path.name} is of no kind that can be read: a table is {_formats()}"
        )
    if path.stat().st_size == 0:
        raise StreamgaugeError(f"{path} is empty: a table needs at least one row")
    with readable(name):
        match kind:
            case "CSV" | "ARFF":
                return _open_text(path, name, header)
            case "Parquet":
                return ParquetTable([path], name)
            case "Arrow":
                return ArrowTable(map_arrow(path), name)
            case "NPZ":
                return NpzTable(path, name)
            case "JSON lines":
                return open_json(path, name)
    raise AssertionError(f"no reader for {kind}")


def _formats() -> str:
    """The formats with their endings, for messages."""
    endings: dict[str, list[str]] = {}
    for ending, kind in FORMATS.items():
        endings.setdefault(kind, []).append(ending)
    named = [f"{kind} ({', '.join(of)})" for kind, of in endings.items()]
    return f"{', '.join(named[:-1])} or {named[-1]}"


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


def _of_pandas(frame: Any) -> Any:
    """A pandas frame whose columns have names, each once; a named index is a column, often the
    time."""
    if not all(isinstance(name, str) for name in frame.columns):
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    refuse_repeated_names(list(frame.columns), "the data frame")
    index = [name for name in frame.index.names if name is not None]
    refuse_repeated_names([*frame.columns, *map(str, index)], "the data frame with its index")
    return frame.reset_index() if index else frame


def _from_frame(data: Any) -> pa.Table:
    import narwhals

    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "set_axis") and hasattr(data, "columns"):
        data = _of_pandas(data)
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
