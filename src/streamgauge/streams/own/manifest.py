"""A table of your own (CSV or Parquet): a path or bytes, a label, and time, user, location, split.

Paths are relative to the table's folder, or to `root`. Columns are guessed from their names and
shown. In the order `given`, times may not go backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.images.items import ParquetItems, StoredImages
from streamgauge.streams.own import _common as _own
from streamgauge.streams.stream import Stream
from streamgauge.tables.columns import NAMES, choose
from streamgauge.tables.read import open_table, table_format
from streamgauge.tables.rows import Rows
from streamgauge.tables.typed import ParquetTable
from streamgauge.tables.values import is_text


@dataclass(frozen=True)
class Config(_own.Columns):
    """Settings of a table with one image per row."""

    image: str = ""  # the column with paths or bytes; "" guesses
    root: str = ""  # the folder that paths begin at; "" is that of the table


def build(config: Config) -> Stream:
    """The stream of a table."""
    path = _own.need_path(config, "manifest")
    if path.is_file() and table_format(path) is None:
        raise StreamgaugeError(
            f"'{path}' is not a table that can be read: give one that ends in .csv, .tsv or"
            " .parquet."
        )
    reader, where = open_table(path, f"'{path}'"), f"'{path.name}'"
    given = {role: str(getattr(config, role)) for role in _own.TEXT}
    text = list(choose(reader.names, _own.TEXT, given, where).values())
    stored = reader if isinstance(reader, ParquetTable) else None
    columns: Any = None if stored else reader.read(text=text)
    schema = stored.schema if stored else columns.schema
    column = _image_column(config, schema, where)
    inputs: StoredImages
    if is_text(schema.field(column).type):
        columns = reader.read(text=text) if stored else columns
        rows = Rows(len(columns), where, reader.row_name, config.on_bad)
        inputs = _own.file_items(_folder(config, path), columns[column], rows)
    elif stored:
        columns = reader.read([name for name in schema.names if name != column])
        rows = Rows(len(columns), where, reader.row_name, config.on_bad)
        inputs = ParquetItems(stored.files, column, np.arange(len(columns)))
    else:
        raise StreamgaugeError(
            f"The column '{column}' of {where} holds no paths: set --stream.image."
        )
    return _own.table_stream("manifest", config, columns, rows, inputs, column)


def _folder(config: Config, path: Path) -> Path:
    """The folder that paths are relative to."""
    folder = Path(config.root).expanduser() if config.root else path
    if config.root and not folder.is_dir():
        raise StreamgaugeError(f"There is no folder '{config.root}': check --stream.root.")
    return folder if folder.is_dir() else folder.parent


def is_bytes(kind: pa.DataType) -> bool:
    """Bytes, or a struct with a field of them, as Hugging Face stores images."""
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and is_bytes(kind.field(at).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _image_column(config: Config, schema: pa.Schema, where: str) -> str:
    if config.image:
        return choose(schema.names, ["image"], {"image": config.image}, where)["image"]
    binary = [name for name in schema.names if is_bytes(schema.field(name).type)]
    if binary:
        column = choose(binary, ["bytes"], {}, where).get("bytes")
        if column is None and len(binary) == 1:
            column = binary[0]
        if column is None:
            raise StreamgaugeError(
                f"Which column of {where} is the image? It may be {', '.join(binary)}: set"
                " --stream.image to one of them."
            )
        return column
    text = [name for name in schema.names if is_text(schema.field(name).type)]
    column = choose(text, ["path"], {}, where).get("path")
    if column is None:
        raise StreamgaugeError(
            f"No column of {where} looks like the path of an image (such as"
            f" {', '.join(NAMES['path'][0].split()[:4])}): set --stream.image to one of"
            f" {', '.join(schema.names)}."
        )
    return column
