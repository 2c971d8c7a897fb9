"""A table of your own as a stream: number columns as inputs, one column as the label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.own import _common as _own
from streamgauge.streams.source import ArraySource
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.columns import announce, choose, describe, require
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_labels, feature_matrix, read_columns
from streamgauge.tables.rows import Rows
from streamgauge.tables.values import is_text, numbers

_ROLES = ("label", "time", "user")


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream; rows come in the order of the file unless `order` says otherwise."""

    path: str = ""  # CSV, ARFF, Parquet, Arrow or JSON lines
    label: str = ""  # its column; "" guesses from the names
    time: str = ""  # column of times, for order=time; "" guesses, "none" makes it an input
    user: str = ""  # column of users, for step=album; "" guesses, "none" makes it an input
    drop: tuple[str, ...] = ()  # columns that are no inputs


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    if not config.path:
        raise StreamgaugeError("Say which table: --stream.path FILE.csv")
    file = Path(config.path).expanduser()
    if not file.is_file():
        raise StreamgaugeError(f"There is no file {file}.")
    reader, where = open_table(file, f"'{file}'"), f"'{file.name}'"
    for name in config.drop:
        require(reader.names, name, "setting drop", where)
    given = {role: getattr(config, role) for role in _ROLES}
    kept = [name for name in reader.names if name not in config.drop or name in given.values()]
    roles = choose(kept, _ROLES, given, where, needed=["label"])
    table = reader.read(kept, text=[roles[role] for role in ("label", "user") if role in roles])
    rows = Rows(len(table), where, reader.row_name)
    label, class_names = code_labels(table[roles["label"]], rows)
    if "time" in roles and _is_input(table[roles["time"]], config):
        del roles["time"]
    columns = read_columns(table, roles, rows)
    inputs = [name for name in kept if name not in roles.values()]
    announce(f"'{file}': {describe(roles, given, inputs, 'inputs')}")
    x = feature_matrix(table, inputs, rows)
    source = ArraySource(x, label, classes=None, class_names=class_names, **columns)
    _own.refuse_backwards(source.columns, config, rows, np.arange(len(table)), None)
    settings = {**vars(config), "path": str(file.resolve())}  # found again from another folder
    return arrange(source, config, name="tabular", settings=settings)


def _is_input(column: Any, config: Config) -> bool:
    """Whether a column that was guessed to be the time is none: numbers that do not increase."""
    if config.time or config.order != "given":
        return False
    values = None if is_text(column.type) else numbers(column)
    return values is not None and bool((values[1:] < values[:-1]).any())
