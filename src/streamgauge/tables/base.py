"""What every reader of a table shares: pieces, whole columns, cleaned text, names of rows."""

from __future__ import annotations

import io
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable
from streamgauge.tables.rows import row_number
from streamgauge.tables.values import clean_text

PIECE_ROWS = 1 << 20  # rows per piece
PIECE_BYTES = 1 << 24  # bytes of text per piece
LONGEST_LINE = 1 << 26  # bytes
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}


class TableReader(ABC):
    """Named columns of a file, of arrays or of a data frame."""

    name: str  # what messages call it
    names: list[str]
    is_run = False  # whether it is the log of a run folder, whose columns have one meaning
    rows: int | None = None  # None where only reading tells
    usual_label = ""  # the label column by convention of the format, where no column name tells

    @abstractmethod
    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        """Arrow tables of some columns; a format without types reads those in `text` as text."""

    def pieces(self, names: Sequence[str], text: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Arrow tables of some columns, a bounded number of rows at a time.

        Columns in `text` (labels, users and so on) keep the spelling of their cells; where they
        are of type text, they are trimmed and null where missing. Whether a column of text holds
        numbers, where "NA" is missing and no name, is decided by the first piece.
        """
        tables = self._tables(list(dict.fromkeys(names)), text)
        while True:
            with readable(self.name):
                table = next(tables, None)
            if table is None:
                return
            yield self._cleaned(table, text)

    def read(self, names: Sequence[str] | None = None, text: Sequence[str] = ()) -> pa.Table:
        """All rows of some columns (default: of all) in one Arrow table."""
        wanted = self.names if names is None else list(dict.fromkeys(names))
        whole = self._cleaned(self._whole(wanted, text), text)
        if len(whole) == 0:
            raise StreamgaugeError(f"{self.name} has no rows: a table needs at least one.")
        return whole

    def _whole(self, names: Sequence[str], text: Sequence[str]) -> pa.Table:
        with readable(self.name):
            tables = list(self._tables(names, text))
            empty = pa.table({name: pa.nulls(0) for name in names})
            return pa.concat_tables(tables, promote_options="permissive") if tables else empty

    def _cleaned(self, table: pa.Table, text: Sequence[str]) -> pa.Table:
        with readable(self.name):
            table.validate(full=True)  # else a damaged file can end the process later
        for name in dict.fromkeys(text):
            if name in table.column_names:
                column, holds = clean_text(table[name], self._holds_numbers.get(name))
                if holds is not None:
                    self._holds_numbers[name] = holds
                table = table.set_column(table.column_names.index(name), name, column)
        return table

    @cached_property
    def _holds_numbers(self) -> dict[str, bool]:
        return {}

    def matrix(self, name: str) -> NDArray[Any] | None:
        """A whole array of more than one dimension, where the format can hold one."""
        return None

    def part(self, start: int, stop: int) -> Self:
        """The same columns, some of the rows; for formats that can be read from the middle."""
        raise NotImplementedError

    def row_name(self, row: int) -> str:
        """What messages call a row (counted from 0): its line, where the file has lines."""
        return row_number(row)


def refuse_repeated_names(names: Sequence[str], table: str) -> None:
    counts = Counter(names)
    twice = next((name for name in names if counts[name] > 1), None)
    if twice is not None:
        raise StreamgaugeError(f"The column '{twice}' comes twice in {table}: rename one.")


def open_bytes(data: Path | bytes) -> BinaryIO:
    """The bytes of a file, decompressed by its ending, or bytes themselves."""
    if isinstance(data, bytes):
        return io.BytesIO(data)
    compression = COMPRESSIONS.get(data.suffix.lower())
    if compression == "zip":
        archive = zipfile.ZipFile(data)
        members = [
            member
            for member in archive.namelist()
            if not member.endswith("/") and not member.startswith("__MACOSX/")
        ]
        if len(members) != 1:
            raise StreamgaugeError(f"{data} holds {len(members)} files: unpack the one to read")
        return archive.open(members[0])  # type: ignore[return-value]
    stream: BinaryIO = pa.input_stream(str(data), compression=compression)
    return stream


def refuse_long_line(size: int) -> None:
    """A small compressed file can hold one line of gigabytes."""
    if size > LONGEST_LINE:
        raise StreamgaugeError(
            f"a line of the table has more than {LONGEST_LINE >> 20} MB: write one row per line"
        )


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends; Arrow's streams have no `readline`."""
    rest = b""
    while block := file.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        refuse_long_line(len(rest))
    if rest:
        yield rest
