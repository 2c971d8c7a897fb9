"""A table of your own as a stream: CSV or Parquet, number columns as inputs, one as the label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.own import _common as _own
from streamgauge.streams.own import _guess, _tables
from streamgauge.streams.own.manifest import read_parquet
from streamgauge.streams.source import ArraySource
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.lines import place


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream; rows come in the order of the file unless `order` says otherwise."""

    path: str = ""  # .csv, .csv.gz, .tsv or .parquet
    label: str = ""  # its column; else the one called label, class, target or y
    time: str = ""  # column of times, for order=time
    user: str = ""  # column of users, for step=album
    drop: tuple[str, ...] = ()  # columns that are no inputs


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    if not config.path:
        raise StreamgaugeError("Say which table: --stream.path FILE.csv")
    file = Path(config.path).expanduser()
    if not file.is_file():
        raise StreamgaugeError(f"There is no file {file}.")
    columns, where = (table := _table(file)).column_names, f"'{file.name}'"
    label = _tables.label_column(columns, config.label, where)
    apart = {"label": label}
    for role in ("time", "user"):
        if chosen := getattr(config, role):
            apart[role] = _tables.named(columns, chosen, role, where)
    for name in config.drop:
        _tables.named(columns, name, "setting drop", where)
    inputs = [c for c in columns if c not in apart.values() and c not in config.drop]
    _guess.say(f"'{file}': {_shown(apart, inputs, config)}")
    at = partial(place, file)
    for name in apart.values():
        _tables.refuse_missing(table[name], name, where, at)
    extra = {role: table[name].to_numpy() for role, name in apart.items() if role != "label"}
    y = table[label].to_numpy()
    if y.dtype.kind == "f" and np.array_equal(y, np.rint(y)):
        y = y.astype(np.int64)
    if y.dtype.kind == "i" and y.min() < 0:
        raise StreamgaugeError(
            f"{at(int((y < 0).argmax()))} of {where} has the label {y[y < 0][0]}: labels are whole"
            " numbers from 0 on, or names."
        )
    x = _tables.features(table, inputs, where, at)
    source = ArraySource(x, y, classes=None, class_names=None, **extra)
    rows = _own.Rows(len(table), "fatal", where, file)
    _own.refuse_backwards(source.columns, config, rows, np.arange(len(table)), None)
    settings = {**vars(config), "path": str(file.resolve())}  # found again from another folder
    return arrange(source, config, name="tabular", settings=settings)


def _shown(apart: dict[str, str], inputs: list[str], config: Config) -> str:
    """Which column is what: a time or user that nobody named would be an input unseen."""
    roles = ", ".join(
        f"{role} = '{name}'" + " (as set)" * bool(getattr(config, role))
        for role, name in apart.items()
    )
    more = f" and {len(inputs) - 12} more" if len(inputs) > 12 else ""
    return (
        f"{roles}, inputs = {', '.join(inputs[:12])}{more}; set --stream.label, --stream.time,"
        " --stream.user or --stream.drop to change it."
    )


def _table(file: Path) -> Any:
    if file.suffix.lower() in (".parquet", ".pq"):
        return read_parquet([file])
    return _tables.read_csv(file, f"'{file}'")
