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
from streamgauge.tables.columns import announce, choose, require
from streamgauge.tables.read import open_table
from streamgauge.tables.values import (
    MISSING_LABEL,
    TimeParser,
    code_groups,
    code_labels,
    feature_matrix,
    refuse_missing,
)

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
    roles = choose(kept, _ROLES, given, where)
    if "label" not in roles:
        raise StreamgaugeError(
            f"Which column of {where} is the label? It has {', '.join(kept)}: set --stream.label to"
            " one."
        )
    inputs = [name for name in kept if name not in roles.values()]
    announce(f"'{file}': {_line(roles, inputs, config)}")
    table = reader.read(kept, text=[roles[role] for role in ("label", "user") if role in roles])
    label, class_names = code_labels(table[roles["label"]], where, reader.row_name)
    refuse_missing(label == MISSING_LABEL, roles["label"], where, reader.row_name)
    if label.min() < 0:
        row = int(label.argmin())
        raise StreamgaugeError(
            f"{reader.row_name(row)} of {where} has the label {table[roles['label']][row].as_py()}:"
            " labels are whole numbers from 0 on, or names."
        )
    extra: dict[str, Any] = {}
    if "time" in roles:
        name = roles["time"]
        extra["time"] = TimeParser(name, "--stream.time").seconds(table[name])
        refuse_missing(~np.isfinite(extra["time"]), name, where, reader.row_name)
    if "user" in roles:
        extra["user"], missing = code_groups(table[roles["user"]], "user")
        refuse_missing(missing, roles["user"], where, reader.row_name)
    x = feature_matrix(table, inputs, where, reader.row_name)
    source = ArraySource(x, label, classes=None, class_names=class_names, **extra)
    rows = _own.Rows(len(table), "fatal", where, reader)
    _own.refuse_backwards(source.columns, config, rows, np.arange(len(table)), None)
    settings = {**vars(config), "path": str(file.resolve())}  # found again from another folder
    return arrange(source, config, name="tabular", settings=settings)


def _line(roles: dict[str, str], inputs: list[str], config: Config) -> str:
    """Which column is what: an input that is a time or a user is to be seen."""
    parts = ", ".join(
        f"{role} = '{name}'" + " (as set)" * bool(getattr(config, role))
        for role, name in roles.items()
    )
    more = f" and {len(inputs) - 12} more" if len(inputs) > 12 else ""
    return (
        f"{parts}, inputs = {', '.join(inputs[:12])}{more}; set --stream.label, --stream.time,"
        " --stream.user or --stream.drop to change it."
    )
