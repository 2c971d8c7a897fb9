"""The parts of an ARFF file: its attributes, and its rows as lines of CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamgauge.errors import StreamgaugeError

_NAME = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"|[^\s{]+"""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_NAME})\s*(.+)", re.I)
_CELL = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]*?)\s*,""")
_SPARSE = re.compile(r"""(\d+)\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,}]+)""")
_WEIGHT = re.compile(rb",\s*\{\s*[\d.eE+-]+\s*\}$")  # of a row, after its last cell
_WORD = re.compile(rb"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+""")
_JAVA_DATES = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


@dataclass(frozen=True)
class ArffHeader:
    """Names and Arrow types of the attributes, formats of dates, values that sparse rows omit."""

    names: list[str]
    types: dict[str, pa.DataType]
    date_formats: dict[str, str]
    omitted: list[str]
    nominal: set[str]

    def with_dates(self, table: pa.Table) -> pa.Table:
        """Date attributes with a format of their own as timestamps; ISO dates stay text."""
        for name, form in self.date_formats.items():
            if name in table.column_names:
                parsed = pc.strptime(table[name], format=form, unit="s")
                table = table.set_column(table.column_names.index(name), name, parsed)
        return table


def read_header(lines: Iterator[bytes], table: str) -> ArffHeader:
    """Read up to and including the line @data."""
    header = ArffHeader([], {}, {}, [], set())
    for raw in lines:
        line = _utf8(raw).decode("utf-8-sig").strip()
        if re.match(r"@data\b", line, re.I):
            return header
        if match := _ATTRIBUTE.match(line):
            _add_attribute(header, _unquoted(match[1]), match[2].strip(), table)
    raise StreamgaugeError(f"{table} has no line @data: an ARFF file has one before its rows.")


def _add_attribute(header: ArffHeader, name: str, kind: str, table: str) -> None:
    word = re.split(r"[\s\[(]", kind)[0].lower()  # a range such as [0,1] may follow
    omitted = "0"
    if kind.startswith("{"):
        data_type = pa.string()
        omitted = _cells(kind.strip("{} \t"))[0]
        header.nominal.add(name)
    elif word in ("numeric", "real", "integer"):  # Weka reads 1.0 as an integer, too
        data_type = pa.float64()
    elif word in ("string", "date"):
        data_type = pa.string()
        form = _unquoted(kind[len(word) :].strip())
        if word == "date" and form:
            for java, python in _JAVA_DATES.items():
                form = form.replace(java, python)
            header.date_formats[name] = form.replace("'", "")
    else:
        raise StreamgaugeError(
            f"The attribute '{name}' of {table} is of type {word}, which is not read: leave it out."
        )
    header.names.append(name)
    header.types[name] = data_type
    header.omitted.append(omitted)


def _utf8(line: bytes) -> bytes:
    """UTF-8 as it is; other bytes are Latin-1, as older files are."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1").encode()
    return line


def _unquoted(text: str) -> str:
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _cells(line: str) -> list[str]:
    """The cells of a row, each plain or quoted by ' or by "."""
    return [_unquoted(cell) for cell in _CELL.findall(line + ",")]


def data_lines(lines: Iterator[bytes], header: ArffHeader) -> Iterator[bytes]:
    """The rows after @data as lines of CSV, sparse ones filled; comments and weights are left
    out."""
    columns = len(header.names)
    for raw in lines:
        line = _utf8(raw.strip())
        if not line or line.startswith(b"%"):
            continue
        if line.endswith(b"}"):
            line = _WEIGHT.sub(b"", line)
        if line.startswith(b"{"):
            values = dict(_SPARSE.findall(line.decode(errors="replace")))
            cells = [values.get(str(at), omitted) for at, omitted in enumerate(header.omitted)]
            line = ",".join(cell.strip() for cell in cells).encode()
        if columns > 1 and b"," not in line:
            line = b",".join(_WORD.findall(line))
        elif line.endswith(b",") and line.count(b",") == columns:
            line = line[:-1]
        if b"'" in line or b"\\" in line or b'"' in line:
            buffer = io.StringIO()
            csv.writer(buffer, lineterminator="").writerow(_cells(line.decode(errors="replace")))
            line = buffer.getvalue().encode()
        elif b" " in line:
            line = b",".join(cell.strip() for cell in line.split(b","))
        yield line + b"\n"
