"""Opening Parquet files that nobody has to trust.

A Parquet file says in many spots how much memory it needs, and Arrow believes it: a damaged number
in a file of 2 kB takes gigabytes before the damage is noticed, and a page of some bytes may hold
the same long text a million times. So the headers of all pages that are to be read are checked
first: against the bytes that there are, and against the limit of what a file may become.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from streamgauge.files import refuse_bomb, unpacked_limit

_PADDING = 100  # bytes that old writers leave out of the length of a column
_HEADER = 1 << 24  # bytes of a page's header, at most; statistics may hold long text
_DICTIONARY_PAGE, _INDEX_PAGE = 2, 1
_DICTIONARY = (2, 8)  # encodings whose values are numbers of dictionary entries
_PREFIXES = 7  # the encoding that shares the beginning of the value before
_WIDTHS = (1, 4, 8, 12, 4, 8)  # bytes of truth values, int32, int64, int96, float32, float64


def open_parquet(
    path: Path, columns: Sequence[str] | None = (), groups: Sequence[int] | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """A file of pyarrow whose `columns` (None: all) can be read from `groups` (None: all)."""
    from pyarrow import parquet

    file = parquet.ParquetFile(arrow_path(path), page_checksum_verification=True, **options)
    if columns is None or columns:
        check_pages(file, path, columns, groups)
    return file


def arrow_path(path: str | Path) -> Any:
    """What Arrow opens: the path, or a file where the path is not UTF-8, as Arrow needs paths."""
    try:
        str(path).encode()
        return path
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))


def check_pages(
    file: Any, path: Path, columns: Sequence[str] | None, groups: Sequence[int] | None = None
) -> None:
    """A ValueError for page headers that cannot be true, the error of `refuse_bomb` for columns
    that become too large in memory."""
    limit, total = unpacked_limit(path), 0
    wanted = None if columns is None else set(columns)
    indexed = {f.name for f in file.schema_arrow if isinstance(f.type, pa.DictionaryType)}
    about = path.stat()
    described = _footer(path, about.st_size, about.st_mtime_ns)
    with open(path, "rb") as opened:
        for group in range(len(described)) if groups is None else groups:
            rows, chunks = described[group]
            for number, (name, numbers) in enumerate(chunks):
                if wanted is not None and wanted.isdisjoint(_with_parents(name)):
                    continue
                kind = numbers[0]
                width = _WIDTHS[kind] if kind < 6 else file.schema.column(number).length or 0
                width = 4 if name in indexed else width
                chunk = _chunk(opened, numbers, rows, about.st_size, width)
                refuse_bomb(chunk.longest_page, path)  # before any page is read below
                most = chunk.most()
                if total + most > limit and chunk.coded:
                    most = chunk.most(_longest(path, group, name))
                if total + most > limit and not width:
                    most = _decoded(path, group, name, limit - total, chunk.longest_page)
                total += most
                refuse_bomb(total, path)


@lru_cache(maxsize=8)
def _footer(path: Path, size: int, _: int) -> list[tuple[int, list[tuple[str, list[int]]]]]:
    """Rows and columns of each row group: a column's path, type, count of values, bytes in the
    file, and where its pages and its dictionary begin. Pyarrow knows them, too, but some damaged
    numbers end the process when it is asked."""
    with open(path, "rb") as opened:
        opened.seek(size - 8)
        length = int.from_bytes(opened.read(4), "little")
        opened.seek(max(0, size - 8 - length))
        footer, _ = _struct(opened.read(length), 0, 0)
    groups = []
    for group in footer.get(4, []):
        columns = []
        for column in group.get(1, []):
            about = column.get(3)
            if about is None:
                raise ValueError("a column has no description, or an encrypted one")
            name = b".".join(about.get(3, [])).decode("utf-8", "replace")
            columns.append((name, [about.get(field, 0) for field in (1, 5, 7, 9, 11)]))
        groups.append((group.get(3, 0), columns))
    return groups


def _with_parents(path: str) -> list[str]:
    """A leaf's path, and those of the columns that it is in."""
    return [path, *(path[:at] for at, letter in enumerate(path) if letter == ".")]


@dataclass
class _Chunk:
    """The pages of one column in one row group."""

    width: int  # bytes per value; 0 for text
    values: int = 0
    dictionary: int = 0  # bytes of its page
    coded: int = 0  # values in pages that refer to the dictionary
    plain: int = 0  # bytes of other pages
    prefixed: int = 0  # the most bytes that pages of shared prefixes may become
    longest_page: int = 0

    def most(self, longest: int | None = None) -> int:
        """The most bytes that the values take in memory; `longest` is of a dictionary entry."""
        if self.width:
            return self.longest_page + self.dictionary + self.values * self.width
        entry = self.dictionary if longest is None else longest
        many = self.plain + self.prefixed + self.coded * entry
        return self.longest_page + self.dictionary + 4 * self.values + many


def _chunk(opened: BinaryIO, numbers: list[int], rows: int, size: int, width: int) -> _Chunk:
    _, values, length, start, dictionary = numbers
    if 0 < dictionary < start:
        start = dictionary
    if min(start, length, rows) < 0 or start + length > size or values < rows:
        raise ValueError("a column is described with a wrong position, length or count")
    end = min(start + length + _PADDING, size)
    chunk, at = _Chunk(width), start
    while chunk.values < values:
        page, body = _page(opened, at, end)
        kind, unpacked, packed = page.get(1, 0), page.get(2, -1), page.get(3, -1)
        if unpacked < 0 or not 0 <= packed <= end - body:
            raise ValueError(f"a page says that it has {packed:,} bytes")
        chunk.longest_page = max(chunk.longest_page, unpacked)
        if kind == _DICTIONARY_PAGE:
            if not 0 <= page.get(7, {}).get(1, -1) <= unpacked:
                raise ValueError("a dictionary has more entries than bytes")
            chunk.dictionary += unpacked
        elif kind != _INDEX_PAGE:
            data, encoding = (page[8], 4) if 8 in page else (page.get(5, {}), 2)
            count, coding = data.get(1, -1), data.get(encoding, 0)
            if not 0 <= count <= values - chunk.values:
                raise ValueError("a page has more values than its column")
            chunk.values += count
            if coding in _DICTIONARY:
                chunk.coded += count
            elif coding == _PREFIXES:
                chunk.prefixed += count * unpacked
            else:
                chunk.plain += unpacked
        at = body + packed
    return chunk


def _page(opened: BinaryIO, at: int, end: int) -> tuple[dict[int, Any], int]:
    """A page's header, and where its body begins."""
    length = 1024
    while True:
        opened.seek(at)
        data = opened.read(min(length, end - at))
        try:
            page, size = _struct(data, 0, 0)
            return page, at + size
        except IndexError:
            if length >= min(_HEADER, end - at):
                raise ValueError("the header of a page is cut off") from None
            length *= 16


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The fields of a struct in thrift's compact form by their number, and its end."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        kind = head & 15
        if kind > 2:  # a truth value lies in its kind
            fields[number], at = _value(data, at, kind, depth + 1)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _signed(data, at)
    if kind == 8:  # text
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if depth > 12:
        raise ValueError("its description is nested too deeply")
    if kind == 12:
        return _struct(data, at, depth)
    if kind in (9, 10):  # a list
        count, inner = data[at] >> 4, data[at] & 15
        count, at = _unsigned(data, at + 1) if count == 15 else (count, at + 1)
        values = []
        for _ in range(count):
            value, at = _value(data, at, inner, depth + 1)
            values.append(value)
        return values, at
    if kind <= 3:
        return data[at], at + 1
    if kind == 7:  # a float
        _ = data[at + 7]  # a list may claim any count of them
        return None, at + 8
    raise ValueError(f"its description has a field of type {kind}")


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("its description has an endless number")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _longest(path: Path, group: int, column: str) -> int | None:
    """The bytes of the longest entry of a column's dictionary, None where it cannot be told."""
    from pyarrow import compute as pc

    values: Any = _first(path, group, column)
    while not isinstance(values, pa.DictionaryArray):
        if isinstance(values, pa.StructArray) and values.type.num_fields == 1:
            values = values.field(0)
        elif isinstance(values, pa.ListArray | pa.LargeListArray):
            values = values.values
        else:
            return None
    return pc.max(pc.binary_length(values.dictionary)).as_py()  # type: ignore[no-any-return]


def _first(path: Path, group: int, column: str) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(
        arrow_path(path), page_checksum_verification=True, read_dictionary=[column]
    ) as file:
        return next(file.iter_batches(1, [group], [column])).column(0)


def _decoded(path: Path, group: int, column: str, limit: int, longest: int) -> int:
    """The bytes that a column has in memory, counted by reading it in small pieces, until they are
    more than the limit."""
    from pyarrow import parquet

    rows, total = max(1, min(1 << 16, unpacked_limit(path) // max(1, longest))), 0
    with parquet.ParquetFile(arrow_path(path), pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(rows, [group], [column]):
            total += batch.nbytes
            if total > limit:
                break
    return total
