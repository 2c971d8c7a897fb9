"""Parquet files that say too much: their memory is bounded, and files of every writer are read."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from streamgauge import files
from streamgauge.errors import StreamgaugeError
from streamgauge.tables import parquet
from streamgauge.tables.parquet import check_pages, open_parquet
from streamgauge.tables.read import open_table


def every_kind(rows: int = 300) -> pa.Table:
    rng = np.random.default_rng(0)
    text = [None if n % 7 == 0 else f"name {n % 13}" * (n % 5) for n in range(rows)]
    return pa.table(
        {
            "whole": rng.integers(0, 9, rows),
            "share": rng.random(rows),
            "truth": rng.random(rows) < 0.5,
            "text": text,
            "long": pa.array(text, pa.large_string()),
            "code": pa.array(text).dictionary_encode(),
            "day": [datetime.date(2024, 1, 1 + n % 28) for n in range(rows)],
            "half": rng.random(rows).astype(np.float16),
            "fixed": pa.array([bytes([n % 7]) * 5 for n in range(rows)], pa.binary(5)),
            "dotted.name": [f"x{n % 3}" for n in range(rows)],
            "image": [{"bytes": b"z" * (n % 9), "path": None} for n in range(rows)],
            "list": [text[: n % 4] for n in range(rows)],
            "map": pa.array([[("k", n)] * (n % 3) for n in range(rows)],
                            pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(rows),
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False}, {"compression": "zstd"}, {"compression": "none"},
     {"data_page_version": "2.0"}, {"data_page_size": 64, "row_group_size": 70},
     {"write_page_checksum": True}, {"write_page_index": True}, {"dictionary_pagesize_limit": 40},
     {"write_statistics": False}, {"version": "1.0"}, {"use_byte_stream_split": ["share"],
      "use_dictionary": ["text"]},
     {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY",
      "whole": "DELTA_BINARY_PACKED", "long": "DELTA_LENGTH_BYTE_ARRAY"}}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("tight", [False, True])
def test_valid_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], tight: bool
) -> None:
    """Also where the limit is so near that dictionaries and pieces are looked at."""
    table = every_kind()
    if options.get("version") == "1.0":
        table = table.drop_columns(["half"])
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, **options)
    if tight:
        monkeypatch.setattr(parquet, "unpacked_limit", lambda _: 100)  # what is refused stays
    assert open_parquet(path, None).read().equals(table)
    for name in table.column_names:
        file = open_parquet(path, [name])
        check_pages(file, path, [name], [0])
        assert file.read([name]).equals(table.select([name]))


def damaged(path: Path, change: Any, **options: Any) -> Path:
    """A file of one column of 1,000 equal numbers, its first page header changed."""
    pq.write_table(pa.table({"n": np.zeros(1000, np.int64)}), path, compression="none",
                   use_dictionary=False, write_statistics=False, **options)  # fmt: skip
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def number(value: int) -> bytes:
    """A signed number of thrift."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("field", [1, 2], ids=["unpacked", "packed"])
@pytest.mark.parametrize("claim", [2**31 - 50, 2**31 - 1])
def test_a_wrong_page_size_takes_no_memory(tmp_path: Path, field: int, claim: int) -> None:
    def change(data: bytearray) -> None:
        at = 4  # after the magic number: type, size in memory, size in the file
        assert data[at : at + 2] == b"\x15\x00"
        at += 2
        for _ in range(field):
            start = at + 1
            at = start + 1
            while data[at - 1] & 128:
                at += 1
        size = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # where the pages end
        data[start:at] = number(claim)
        grown = len(number(claim)) - (at - start)
        del data[size - 5 : size - 5 + grown]  # the footer stays where it was

    path = damaged(tmp_path / "t.parquet", change)
    with pytest.raises(StreamgaugeError, match=r"says that it has|become more than"):
        open_table(path).read()


def test_bombs_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    word = "a" * (1 << 20)  # a dictionary with one long entry
    code = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int32)), [word])
    table = pa.table({"text": code})
    pq.write_table(table, path, store_schema=False)  # it is read as text
    assert path.stat().st_size < 200_000
    with pytest.raises(StreamgaugeError, match=r"become more than 537 MB"):
        open_table(path).read()
    # Shared prefixes: every value has the text of the one before.
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"text": [word] * 2000}), path, use_dictionary=False,
                   column_encoding={"text": "DELTA_BYTE_ARRAY"}, compression="zstd",
                   write_statistics=False)  # fmt: skip
    assert path.stat().st_size < 200_000
    with pytest.raises(StreamgaugeError, match=r"become more than 537 MB"):
        open_table(path).read()
    # A page of zeros.
    path = tmp_path / "z.parquet"
    pq.write_table(pa.table({"n": np.zeros(1 << 27, np.int64)}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(StreamgaugeError, match=r"become more than 537 MB"):
        open_table(path).read()


def test_a_long_text_in_the_statistics_is_read(tmp_path: Path) -> None:
    """The header of a page is then longer than what is read at first."""
    table = pa.table({"text": ["b" * 30_000, "c" * 30_000]})
    pq.write_table(table, tmp_path / "t.parquet", write_page_index=False)
    assert open_parquet(tmp_path / "t.parquet", None).read().equals(table)


def test_a_list_that_claims_any_count_of_floats_ends_with_the_file() -> None:
    claim = b"\xff" * 9 + b"\x01"  # 2**64 - 1
    with pytest.raises(IndexError):
        parquet._struct(b"\x19\xf7" + claim + b"\x00" * 100, 0, 0)
    fields, _ = parquet._struct(b"\x19\x27" + b"\x00" * 16 + b"\x00", 0, 0)
    assert fields == {1: [None, None]}


def test_a_dictionary_that_becomes_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its longest entry, which would bound the column, can only be known by reading it."""
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "t.parquet"
    table = pa.table({"text": pa.array(["a" * (8 << 20)], pa.large_string())})
    pq.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30,
                   write_statistics=False)  # fmt: skip
    monkeypatch.setattr(parquet, "_longest", lambda *_: pytest.fail("the dictionary was read"))
    with pytest.raises(StreamgaugeError, match=r"become more than 1 MB"):
        open_table(path).read()
