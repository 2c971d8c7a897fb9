"""A table of your own as a stream: number columns as inputs, one column as the label."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.own import _common as _own
from streamgauge.streams.source import ArraySource
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.columns import announce, choose, columns_named, describe, require
from streamgauge.tables.read import LabelledTable, open_labelled
from streamgauge.tables.roles import code_labels, feature_matrix, read_columns
from streamgauge.tables.rows import Rows
from streamgauge.tables.values import is_text, numbers

_ROLES = ("label", "time", "user")


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream; rows come in the order of the file unless `order` says otherwise."""

    path: str = ""  # CSV, ARFF, Parquet, Arrow or JSON lines
    label: str = ""  # its column, or a file with a label per row; "" guesses
    time: str = ""  # column of times; "" guesses for order=time or if it is text, "none": an input
    user: str = ""  # column of users; "" guesses for step=album, "none" makes it an input
    drop: tuple[str, ...] = ()  # columns that are no inputs


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    if not config.path:
        raise StreamgaugeError("Say which table: --stream.path FILE.csv")
    file = Path(config.path).expanduser()
    if not file.is_file():
        raise StreamgaugeError(f"There is no file {file}.")
    settings = {**vars(config), "path": str(file.resolve())}  # found again from another folder
    reader, _ = open_labelled(file, f"'{file}'", config.label)
    if isinstance(reader, LabelledTable):
        settings["label"], config = str(reader.file.resolve()), replace(config, label=reader.label)
    where = f"'{file.name}'"
    for name in config.drop:
        require(reader.names, name, "setting drop", where)
    given = {role: getattr(config, role) for role in _ROLES}
    kept = [name for name in reader.names if name not in config.drop or name in given.values()]
    _refuse_two_labels(kept, config, where)
    needs = {"label": True, "time": config.order == "time", "user": config.step == "album"}
    wanted = [role for role in _ROLES if given[role] or needs[role]]
    usual = reader.usual_label
    roles = choose(kept, wanted, given, where, needed=["label"], usual_label=usual)
    table = reader.read(kept, text=[roles[role] for role in ("label", "user") if role in roles])
    rows = Rows(len(table), where, reader.row_name)
    label, class_names = code_labels(table[roles["label"]], rows)
    if "time" not in wanted:
        roles |= choose(_dates(table, roles.values()), ["time"], {}, where)
    columns = read_columns(table, roles, rows)
    inputs = [name for name in kept if name not in roles.values()]
    announce(f"'{file}': {describe(roles, given, inputs, 'inputs')}")
    x = feature_matrix(table, inputs, rows)
    source = ArraySource(x, label, classes=None, class_names=class_names, **columns)
    _own.refuse_backwards(source.columns, config, rows, np.arange(len(table)), None)
    return arrange(source, config, name="tabular", settings=settings)


def _refuse_two_labels(columns: Sequence[str], config: Config, where: str) -> None:
    """Of two columns with names of labels the other would be an input that gives the label away."""
    named = [] if config.label else columns_named(columns, "label")
    if len(named) > 1:
        listed = ", ".join(f"'{name}'" for name in named[:-1]) + f" or '{named[-1]}'"
        raise StreamgaugeError(
            f"Which column of {where} is the label? It may be {listed}: set --stream.label to one"
            " of them; the others are inputs, unless --stream.drop leaves them out."
        )


def _dates(table: pa.Table, taken: Collection[str]) -> list[str]:
    """Columns with names of times that hold no numbers, and so are no inputs."""
    free = [name for name in table.column_names if name not in taken]
    return [
        name
        for name in columns_named(free, "time")
        if is_text(table[name].type) or numbers(table[name]) is None
    ]
