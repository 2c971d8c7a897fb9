"""What errors call a row of a table: the line that it begins at, which an editor can go to."""

from __future__ import annotations

import csv
import gzip
import io
from functools import partial
from pathlib import Path
from typing import Any

SEPARATORS = ",;\t"
_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def place(table: bytes | Path | None, row: int) -> str:
    """`row` counts from 0, as arrays do. A text table with a head is told by its bytes or its path;
    what has no lines (Parquet, arrays) has numbered rows.

    >>> place(b'name,age\\n"a\\nb",1\\n\\nc,2\\n', 1)
    'Line 5'
    >>> place(None, 1)
    'Row 2 (the first is 1)'
    """
    line = None if table is None else _line(table, row)
    return f"Row {row + 1:,} (the first is 1)" if line is None else f"Line {line:,}"


def separator(head: bytes) -> str:
    """The one of comma, semicolon and tab that the first line of a table has most of."""
    first = head.split(b"\n", 1)[0].decode(errors="replace")
    return max(SEPARATORS, key=first.count)


def _line(table: bytes | Path, row: int) -> int | None:
    """Found by reading the table anew: values may hold line ends, and blank lines are no rows."""
    if isinstance(table, Path):
        if not table.name.lower().endswith(_TEXT) or not table.is_file():
            return None
        opened: Any = partial(gzip.open if table.suffix.lower() == ".gz" else open, table, "rb")
    else:
        opened = partial(io.BytesIO, table)
    with opened() as file:
        mark = separator(file.readline())
        file.seek(0)
        records = csv.reader(io.TextIOWrapper(file, errors="replace", newline=""), delimiter=mark)
        at, begun = -1, 1  # the head is no row
        try:
            for record in records:
                if record and at == row:
                    return begun
                at += bool(record)
                begun = records.line_num + 1
        except (csv.Error, OSError, EOFError):  # the row is numbered, then
            return None
    return None
