"""A table of your own (CSV or Parquet): a path or bytes, a label, and time, user, place, split.

Paths are relative to the table's folder, or to `root`. Columns are guessed from their names and
shown. In the order `given`, times may not go backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.images.image_source import Items
from streamgauge.streams.images.items import ParquetItems
from streamgauge.streams.own import _common as _own
from streamgauge.streams.own._guess import NAMES, guess
from streamgauge.streams.own._tables import read_csv
from streamgauge.streams.source import Array, IntArray
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_own.Columns):
    """Settings of a table with an image a row."""

    image: str = ""  # the column with paths or bytes; "" guesses
    root: str = ""  # the folder that paths begin at; "" is that of the table


def build(config: Config) -> Stream:
    """The stream of a table."""
    path = _own.need_path(config, "manifest")
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise StreamgaugeError(f"There is no .parquet file in '{path}': name the table itself.")
    if files[0].suffix.lower() in (".parquet", ".pq"):
        return _from_parquet(config, path, files)
    if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".gz"):
        raise StreamgaugeError(
            f"'{path}' is not a table that can be read: give one that ends in .csv, .tsv or"
            " .parquet."
        )
    columns = read_csv(path, f"'{path}'")
    table = _own.Table(f"'{path.name}'", columns, file=path)
    column = _image_column(config, columns.schema, table.where)
    if not _is_text(columns.schema.field(column).type):
        raise StreamgaugeError(
            f"The column '{column}' of {table.where} holds no paths: set --stream.image."
        )
    return _own.open_table("manifest", config, table, _files(config, path, columns, column), column)


def _from_parquet(config: Config, path: Path, files: Sequence[Path]) -> Stream:
    where = f"'{path.name}'"
    schema = parquet_schema(files)
    column = _image_column(config, schema, where)
    rest = [name for name in schema.names if name != column]
    if _is_text(schema.field(column).type):
        columns = read_parquet(files, [*rest, column])
        table = _own.Table(where, columns)
        found = _files(config, path, columns, column)
        return _own.open_table("manifest", config, table, found, column)
    columns = read_parquet(files, rest)
    return _own.open_table(
        "manifest", config, _own.Table(where, columns), in_parquet(files, column), column
    )


def in_parquet(
    files: Sequence[Path], column: str
) -> Callable[[_own.Rows], Callable[[IntArray], Items | Array]]:
    return lambda rows: lambda kept: ParquetItems(files, column, kept)


def _files(
    config: Config, path: Path, columns: pa.Table, column: str
) -> Callable[[_own.Rows], Callable[[IntArray], Items | Array]]:
    folder = Path(config.root).expanduser() if config.root else path
    folder = folder if folder.is_dir() else folder.parent
    if config.root and not Path(config.root).expanduser().is_dir():
        raise StreamgaugeError(f"There is no folder '{config.root}': check --stream.root.")
    return lambda rows: _own.file_inputs(folder, columns[column], rows)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Bytes, or a struct with a field of them, as Hugging Face stores images."""
    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and is_bytes(kind.field(place).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _image_column(config: Config, schema: pa.Schema, where: str) -> str:
    if config.image:
        return guess(schema.names, ["image"], {"image": config.image}, where)["image"]
    binary = [name for name in schema.names if is_bytes(schema.field(name).type)]
    if binary:
        found = guess(binary, ["bytes"], {}, where).get("bytes")
        if found is None and len(binary) == 1:
            found = binary[0]
        if found is None:
            raise StreamgaugeError(
                f"Which column of {where} is the image? It may be {', '.join(binary)}: set"
                " --stream.image to one of them."
            )
        return found
    text = [name for name in schema.names if _is_text(schema.field(name).type)]
    found = guess(text, ["path"], {}, where).get("path")
    if found is None:
        raise StreamgaugeError(
            f"No column of {where} looks like the path of an image (such as"
            f" {', '.join(NAMES['path'][:4])}): set --stream.image to one of"
            f" {', '.join(schema.names)}."
        )
    return found


def parquet_schema(files: Sequence[Path]) -> pa.Schema:
    schemas = []
    for file in files:
        try:
            schemas.append(pq.read_schema(file))
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(file, error) from None
        if set(schemas[-1].names) != set(schemas[0].names):
            raise StreamgaugeError(f"'{files[0]}' and '{file}' have other columns.")
    return schemas[0]


def read_parquet(files: Sequence[Path], columns: Sequence[str] | None = None) -> pa.Table:
    parts: list[Any] = []
    for file in files:
        try:
            parts.append(pq.ParquetFile(file).read(columns=columns and list(columns)))
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(file, error) from None
    whole = pa.concat_tables(parts, promote_options="permissive")
    if len(whole) == 0:
        raise StreamgaugeError(f"The table '{files[0]}' has no rows.")
    return whole


def rows_in_parquet(files: Sequence[Path]) -> IntArray:
    return np.array([pq.read_metadata(file).num_rows for file in files], np.int64)


def _corrupt(file: Path, error: Exception) -> StreamgaugeError:
    why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return StreamgaugeError(
        f"The Parquet file '{file}' is damaged or cut off ({why}): get it anew."
    )
