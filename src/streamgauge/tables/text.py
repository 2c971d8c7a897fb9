"""Tables in text files: separated cells, ARFF, JSON lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable
from streamgauge.tables import base
from streamgauge.tables.arff import data_lines, read_header
from streamgauge.tables.base import (
    COMPRESSIONS,
    TableReader,
    open_bytes,
    read_lines,
    refuse_long_line,
    refuse_repeated_names,
)
from streamgauge.tables.columns import NAMES, announce, plain_name
from streamgauge.tables.rows import row_number
from streamgauge.tables.typed import ArrowTable
from streamgauge.tables.values import MISSING, MISSING_NUMBERS, is_text

SEPARATORS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DECLARATION = re.compile(r'"?sep=([!#-/:-@[-`{-~\t])"?[ \t]*(?:\r?\n|$)', re.IGNORECASE)
_HEAD = 1 << 16  # bytes that are looked at first
_LONGEST = 1 << 24  # bytes that the first records may have
_ROLE_NAMES = {
    *NAMES,
    *(word for lines in NAMES.values() for line in lines for word in line.split()),
}


class _Rewritten(io.RawIOBase):
    """Lines made by a generator, as a file that Arrow can read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        parts, size = [self._rest], len(self._rest)
        for line in self._lines if size < len(buffer) else ():
            parts.append(line)
            size += len(line)
            if size >= len(buffer):
                break
        data = b"".join(parts)
        count = min(len(data), len(buffer))
        buffer[:count], self._rest = data[:count], data[count:]
        return count


class TextTable(TableReader):
    """Text with a separator: one of , ; tab | or runs of spaces; with or without a header, or
    comments (# ...) before it."""

    _comments = 0  # lines before the header
    has_header = False
    _numbers: Sequence[bool] = ()  # whether a column holds numbers, as far as the first rows tell

    def __init__(self, data: Path | bytes, name: str, header: bool | None = None) -> None:
        self.data, self.name = data, name
        by_spaces = _ending(data, name) in (".tsv", ".txt", ".dat", ".data")
        with readable(name), open_bytes(data) as file:
            head = file.read(1 << 20)
            if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise StreamgaugeError(
                    f'{name} is UTF-16 text, as Excel\'s "Unicode text": save it as UTF-8'
                    ' ("CSV UTF-8").'
                )
            if b"\0" in head and "\ufffd" in head[:_HEAD].decode("utf-8", "replace"):
                raise StreamgaugeError(f"{name} is no text, it holds bytes that no text has.")
            text, whole = head[:_HEAD], len(head) <= _HEAD
            while True:
                declared, body = _declared(text.decode("utf-8-sig", "replace"))
                comments, rest = _comments(body)
                lines = _lines(rest, name)
                by_tabs = _ending(data, name) == ".tsv" and "\t" in lines[0]
                self.separator = declared or ("\t" if by_tabs else _separator(lines, by_spaces))
                records, ends = _records(rest, self.separator)
                if whole or len(records) > 2 or len(text) >= _LONGEST:
                    break  # the first two records are complete
                more = file.read(4 * len(text))
                whole, text = not more, head + more
                head = text
        self._comments = len(comments) + bool(declared)
        named = _records(comments[-1].lstrip("# "), self.separator)[0][0] if comments else []
        if header is None and len(named) == len(records[0]) > 1 and not _has_header(records):
            records, ends, header = [named, *records], [0, *ends], True  # NumPy writes # a b c
        self.has_header = _has_header(records) if header is None else header
        self.skipped_lines = self._comments + (ends[0] if self.has_header else 0)
        _refuse_other_widths(records, name)
        if rb"\"" in head and len({len(record) for record in records}) > 1:
            raise StreamgaugeError(
                f'Cells of {name} have quotation marks written as \\": write them twice, "".'
            )
        self.names = _column_names(records, self.has_header, name)
        self.quoted = b'"' in head  # only quoted cells can hold line breaks
        below = records[self.has_header :]
        self.decimal_comma = self.separator != "," and _decimal_comma(below)
        self._numbers = [
            all(_is_number(cell) for cell in column if cell.strip())
            for column in zip(*below, strict=False)
        ]
        if self.decimal_comma:
            comma = (cell for record in below for cell in record if "," in cell)
            cell = next(cell.strip() for cell in comma if _DECIMAL_COMMA.fullmatch(cell.strip()))
            announce(f"{name}: commas are decimal: {cell} is {cell.replace(',', '.')}.")

    def _open(self) -> BinaryIO:
        if self.separator != " ":
            return open_bytes(self.data)
        return io.BufferedReader(
            _Rewritten(_spaces_to_tabs(open_bytes(self.data))), base.PIECE_BYTES
        )

    def _options(self, names: Sequence[str], text: Sequence[str]) -> dict[str, Any]:
        from pyarrow import csv as arrow_csv

        return {
            "read_options": arrow_csv.ReadOptions(
                block_size=base.PIECE_BYTES, column_names=self.names, skip_rows=self.skipped_lines
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=self._mark,
                newlines_in_values=self.quoted,
            ),
            "convert_options": arrow_csv.ConvertOptions(
                include_columns=list(names),
                column_types={name: pa.dictionary(pa.int32(), pa.string()) for name in text},
                null_values=sorted(MISSING | MISSING_NUMBERS),
                strings_can_be_null=False,
                decimal_point="," if self.decimal_comma else ".",
            ),
        }

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        from pyarrow import csv as arrow_csv

        with readable(self.name), self._open() as file:
            for batch in arrow_csv.open_csv(file, **self._options(names, text)):
                table = pa.Table.from_batches([batch])
                self._refuse_what_is_no_row(table)
                yield table

    def _whole(self, names: Sequence[str], text: Sequence[str]) -> pa.Table:
        """In one go, so that the type of a column follows from all of its rows."""
        from pyarrow import csv as arrow_csv

        with readable(self.name), self._open() as file:
            table = arrow_csv.read_csv(file, **self._options(names, text))
        for field in table.schema:
            if pa.types.is_binary(field.type):
                raise StreamgaugeError(
                    f"{self.name} cannot be read: its column '{field.name}' is not UTF-8 text; save"
                    " it as UTF-8."
                )
        self._refuse_what_is_no_row(table)
        return table

    def _refuse_what_is_no_row(self, table: pa.Table) -> None:
        """Rows within a cell whose quotation mark is not closed, and a header that comes again,
        where files were joined."""
        texts = {name: table[name] for name in table.column_names if is_text(table[name].type)}
        for name, column in texts.items() if self.quoted else ():
            if pa.types.is_dictionary(column.type):
                column = pc.unique(column).cast(column.type.value_type)
            lines = column.filter(pc.match_substring(column, "\n"))
            for cell in pc.unique(lines).to_pylist():
                if any(map(self._is_row, cell.split("\n")[1:])):
                    raise StreamgaugeError(
                        f"A cell of the column '{name}' in {self.name} holds rows of the table:"
                        " a quotation mark is not closed. The cell begins with"
                        f" '{cell.partition(chr(10))[0][:40]}'."
                    )
        if self.has_header and len(texts) == len(table.column_names) > 1:
            again = reduce(pc.and_kleene, (pc.equal(c, n) for n, c in texts.items()))
            if pc.any(again).as_py():
                raise StreamgaugeError(
                    f"The header of {self.name} comes again among its rows: leave it out there."
                )

    def _is_row(self, line: str) -> bool:
        """Whether a line looks like a row: as many cells, numbers where the first rows have."""
        cells = next(csv.reader([line], delimiter=self._mark), [])
        pairs = list(zip(cells, self._numbers, strict=False))
        numbers = sum(number for _, number in pairs)
        return (
            len(cells) == len(self.names)
            and numbers > 0
            and all(_is_number(cell) for cell, number in pairs[:-1] if number and cell.strip())
        )

    @property
    def _mark(self) -> str:
        """The separator that Arrow sees."""
        return "\t" if self.separator == " " else self.separator

    def row_name(self, row: int) -> str:
        """The line that the row begins at; cells may hold line breaks, blank lines are no rows."""
        with self._open() as file:
            text = io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="")
            at, begin = -1 if self.skipped_lines > self._comments else 0, self._comments + 1
            try:
                for _ in range(self._comments):
                    next(text)
                records = csv.reader(text, delimiter=self._mark)
                for record in records:
                    if record and at == row:
                        return f"Line {begin:,}"
                    at += bool(record)
                    begin = self._comments + records.line_num + 1
            except Exception:  # damaged further down: the row has a number, if no line
                pass
        return super().row_name(row)


def _ending(data: Path | bytes, name: str) -> str:
    path = data if isinstance(data, Path) else Path(name.strip("'"))
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in COMPRESSIONS]
    return endings[-1] if endings else ""


def _lines(text: str, name: str) -> list[str]:
    """The lines that are not blank; an error where there is none."""
    if lines := [line for line in text.splitlines() if line.strip()]:
        return lines
    raise StreamgaugeError(f"{name} is empty: a table needs a header and a row per sample")


def _declared(text: str) -> tuple[str, str]:
    """The separator that a first line `sep=;` declares, as for Excel, and the text below that line;
    "" and the whole text where there is no such line."""
    line = _DECLARATION.match(text)
    return (line[1], text[line.end() :]) if line else ("", text)


def _comments(text: str) -> tuple[list[str], str]:
    """The lines of comments (# ...) before a table, and the text after them. A line with as many
    cells as the next one is a header, whatever it begins with."""
    lines = text.split("\n")
    count = next((at for at, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    marked = [at for at in range(count) if lines[at].strip()]
    if not marked:
        return [], text
    mark = _separator([line for line in lines[count:] if line.strip()], by_spaces=True)
    last = _records(lines[marked[-1]], mark)[0][0]
    below = _records("\n".join(lines[count:]), mark, most=2)[0]
    names_it = len(last) == len(below[0]) and not (below[1:] and _above_numbers(*below))
    count = marked[-1] + (not names_it)
    for at in reversed(marked[:-1]) if names_it else ():
        if not _are_alike(_records(lines[at], mark)[0][0], last):
            break
        count = at  # a row, too
    return lines[:count], "\n".join(lines[count:])


def _are_alike(cells: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two records have numbers in the same columns, of which there is one at least."""
    numbers = [_is_number(cell) for cell in cells]
    return any(numbers) and numbers == [_is_number(cell) for cell in others]


def _refuse_other_widths(records: Sequence[Sequence[str]], name: str) -> None:
    """What stands before the header is no part of a table."""
    first, widths = len(records[0]), {len(record) for record in records[1:]}
    if len(widths) == 1 and not widths & {first, first + 1}:
        raise StreamgaugeError(
            f"The first line of {name} has {first} cells and the next lines have {widths.pop()}:"
            " remove what stands before the header, or mend the header."
        )


def _separator(lines: Sequence[str], by_spaces: bool) -> str:
    """The separator that the first line has most of; runs of spaces where it has none.

    Commas within numbers between other separators do not count. Unless `by_spaces`, lines are cut
    at spaces only where most columns hold numbers: others may be one column of several words.
    """
    first = re.sub(r'"[^"]*"', "", lines[0])
    for mark in SEPARATORS[1:]:
        cells = [cell.strip() for cell in first.split(mark) if "," in cell]
        if mark in first and cells and all(_DECIMAL_COMMA.fullmatch(cell) for cell in cells):
            return mark
    mark = max(SEPARATORS, key=first.count)
    if first.count(mark):
        return mark
    rows = [re.findall(r'"[^"]*"|\S+', line) for line in lines[: min(50, max(len(lines) - 1, 2))]]
    width = len(rows[1] if len(rows) > 1 else rows[0])
    # R leaves the name of the first column out.
    if width == 1 or len(rows[0]) - width not in (0, -1) or any(len(r) != width for r in rows[1:]):
        return ","
    columns = list(zip(*rows[1:], strict=True))
    numbers = sum(all(_is_number(cell) for cell in column) for column in columns)
    return " " if by_spaces or 2 * numbers > width else ","


def _records(text: str, separator: str, most: int = 50) -> tuple[list[list[str]], list[int]]:
    """The first records that are not blank, and the number of the line each ends at."""
    if separator == " ":
        text, separator = re.sub(r"(?m)^[ \t]+", "", re.sub(r"[ \t]+", "\t", text)), "\t"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    records, ends = [], []
    try:
        for record in reader:
            if any(cell.strip() for cell in record) or len(record) > 1:
                records.append(record)
                ends.append(reader.line_num)
            if len(records) == most:
                break
    except csv.Error:
        pass
    return records or [[text.splitlines()[0]]], ends or [1]


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?\s*", cell, re.I))


def _has_header(records: Sequence[Sequence[str]]) -> bool:
    """The first record is data, where one of its cells is a number, none is a name of a role and no
    name stands above numbers; where a number comes twice in it; and where it is text of which most
    comes again in its columns.

    Names that count up (0, 1, 2, or two years above other numbers) are a header.
    """
    first, below = records[0], records[1:]
    if not below:
        return True
    numbers = [cell.strip() for cell in first if _is_number(cell)]
    if len(set(numbers)) < len(numbers):
        return False
    above_numbers = _above_numbers(first, below[0])
    if not numbers:
        return above_numbers or not _are_values(first, below)
    return _names_a_role(first, below) or _counts_up(first, numbers, below) or above_numbers


def _above_numbers(first: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a name stands above a number."""
    return any(_is_name(a) and _is_number(b) for a, b in zip(first, below, strict=False))


def _are_values(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether most cells of a record of text come again in their columns."""
    again = sum(
        any(cell.strip() == row[at].strip() for row in below if at < len(row))
        for at, cell in enumerate(first)
    )
    return 2 * again > len(first)


def _is_name(cell: str) -> bool:
    cell = cell.strip()
    return not _is_number(cell) and cell not in MISSING | MISSING_NUMBERS


def _names_a_role(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a cell is called as a role is, and is no value that comes again in its column."""
    return any(
        plain_name(cell) in _ROLE_NAMES
        and not any(cell.strip() == row[at].strip() for row in below if at < len(row))
        for at, cell in enumerate(first)
    )


def _counts_up(
    first: Sequence[str], numbers: Sequence[str], below: Sequence[Sequence[str]]
) -> bool:
    if not all(cell.isdigit() for cell in numbers):
        return False
    if {int(b) - int(a) for a, b in pairwise(numbers)} != {1}:
        return False
    if len(numbers) > 2:
        return True
    positions = [at for at, cell in enumerate(first) if _is_number(cell)]
    cells = [row[at] for row in below for at in positions if at < len(row)]
    named = any(map(_is_name, first))
    return named and all(map(_is_year, numbers)) and not any(map(_is_year, cells))


def _is_year(cell: str) -> bool:
    return bool(re.fullmatch(r"(19|20)\d\d", cell.strip()))


def _column_names(records: Sequence[Sequence[str]], has_header: bool, name: str) -> list[str]:
    """Trimmed; a column without a name is called by its number. The first one is `row_name`, where
    pandas wrote an index without a name, or R wrote rows of one cell more than the header has."""
    names = [cell.strip() if has_header else "" for cell in records[0]]
    if has_header and len(names) > 1 and any(names):
        below = records[1:]
        if below and all(len(row) == len(names) + 1 for row in below):
            ends = all(not row[-1].strip() for row in below)  # each row ends with a separator
            names.insert(len(names) if ends else 0, "")
        names[0] = names[0] or "row_name"
    names = [cell or f"column_{number}" for number, cell in enumerate(names, start=1)]
    refuse_repeated_names(names, name)
    return names


def _decimal_comma(records: Sequence[Sequence[str]]) -> bool:
    """Whether numbers are written as 1,5: some cells are, and none as 1.5."""
    cells = [cell.strip() for record in records for cell in record]
    return any(map(_DECIMAL_COMMA.fullmatch, cells)) and not any(
        re.fullmatch(r"[+-]?\d+\.\d+", cell) for cell in cells
    )


def _spaces_to_tabs(file: BinaryIO) -> Iterator[bytes]:
    with file:
        for line in read_lines(file):
            cells = re.findall(rb'"[^"]*"|\S+', line) if b'"' in line else line.split()
            yield b"\t".join(cells) + b"\n"


class ArffTable(TextTable):
    """Attribute-Relation File Format: dense or sparse rows, `?` for missing cells."""

    def __init__(self, data: Path | bytes, name: str) -> None:
        self.data, self.name = data, name
        with readable(name), open_bytes(data) as file:
            self.header = read_header(read_lines(file), name)
        self.names = self.header.names
        if self.names and self.names[-1] in self.header.nominal:
            self.usual_label = self.names[-1]
        refuse_repeated_names(self.names, name)
        self.separator, self.skipped_lines = ",", 0
        self.quoted, self.decimal_comma = True, False

    def _open(self) -> BinaryIO:
        lines = read_lines(open_bytes(self.data))
        read_header(lines, self.name)
        return io.BufferedReader(_Rewritten(data_lines(lines, self.header)), base.PIECE_BYTES)

    def _options(self, names: Sequence[str], text: Sequence[str]) -> dict[str, Any]:
        options = super()._options(names, text)
        convert = options["convert_options"]
        convert.column_types = {
            name: pa.string() if name in text else self.header.types[name] for name in names
        }
        convert.null_values = ["?", ""]
        convert.strings_can_be_null = True
        convert.quoted_strings_can_be_null = False
        return options

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        with readable(self.name):
            yield from map(self.header.with_dates, super()._tables(names, text))

    def _whole(self, names: Sequence[str], text: Sequence[str]) -> pa.Table:
        with readable(self.name):
            return self.header.with_dates(super()._whole(names, text))

    def row_name(self, row: int) -> str:
        return row_number(row)


def open_json(path: Path, name: str) -> TableReader:
    """One JSON object per line, or a list of objects."""
    with readable(name), open_bytes(path) as file:
        begins = file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if begins != b"[":
            return JsonLines(path, name)
    with readable(name), open_bytes(path) as file:
        rows = json.load(file)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise StreamgaugeError(f"{name} is a list, but not one of objects with names and values")
    names = dict.fromkeys(column for row in rows for column in row)
    with readable(name):
        columns = {column: pa.array([row.get(column) for row in rows]) for column in names}
        return ArrowTable(pa.table(columns), name)


class JsonLines(TableReader):
    """One JSON object per line."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        first = next(self._blocks(), None)
        if first is None:
            raise StreamgaugeError(f"{name} is empty: a table needs one JSON object per line")
        with readable(name):
            self.names = list(first.column_names)
        if len(first) == 1 and all(pa.types.is_nested(field.type) for field in first.schema):
            raise StreamgaugeError(
                f"{name} is one object of columns: write one object per row (pandas:"
                " to_json(orient='records', lines=True))"
            )

    def _blocks(self) -> Iterator[pa.Table]:
        from pyarrow import json

        with readable(self.name), open_bytes(self.path) as file:
            rest = b""
            while True:
                block = file.read(base.PIECE_BYTES)
                data = rest + block
                end = data.rfind(b"\n") + 1 if block else len(data)
                data, rest = data[:end], data[end:]
                refuse_long_line(len(rest))
                if data.strip():
                    options = json.ReadOptions(block_size=max(len(data), 1))
                    yield json.read_json(io.BytesIO(data), read_options=options)
                if not block:
                    return

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        for table in self._blocks():
            known = table.column_names
            yield pa.table({n: table[n] if n in known else pa.nulls(len(table)) for n in names})
