"""Public observations without images: who observed what, when and where, as vectors.

An input is the location where it is one, standardised online, then the calendar of the time, and
the user as 0/1 columns: the n-th user to appear sets the column n modulo SLOTS. No input depends on
rows that come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5
from streamgauge.streams.datasets.data_set import Contents, DataSet, Stored
from streamgauge.streams.source import Array, VectorSource
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_labels, read_columns
from streamgauge.tables.rows import Rows
from streamgauge.tables.times import TimeParser, calendar
from streamgauge.tables.values import Vocabulary

SLOTS = 64  # 0/1 columns of the user
_MILLION = 1_000_000  # coordinates are compared to six decimals, a tenth of a metre


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream: in order of time, of which the first 20 % prepare; one of twenty
    samples is held out."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "time"
    preparation: float = 0.2
    held_out: float = 0.05


def observation_stream(data: DataSet, config: Config, name: str) -> Stream:
    """The stored observations as a stream."""
    stored = Stored(data)
    arrays, about = stored.arrays, stored.about
    source = VectorSource(
        arrays["x"],
        arrays["label"],
        about["more"]["scaled"],
        classes=about["classes"],
        class_names=about["class_names"],
        time=arrays["time"],
        user=arrays["user"],
    )
    source.x_hash = about["arrays"]["x"]["md5"]
    return arrange(source, config, name=name, settings=vars(config))


def read_observations(
    files: Files, roles: dict[str, str], seen: str = "", cycles: tuple[str, ...] = ()
) -> Contents | None:
    """The one table among the files that has the columns in `roles` (label, time, user, and perhaps
    latitude and longitude). `seen` is the column of the time that is an input, where that is not
    the time of arrival; `cycles` are those of the calendar to use, all if empty."""
    named = [*roles.values(), *([seen] if seen else [])]
    broken: StreamgaugeError | None = None
    for name in files.names:
        if not name.lower().endswith((".csv", ".csv.gz")):
            continue
        try:
            reader = open_table(files.read([name])[name], files.called(name))
        except StreamgaugeError as error:  # perhaps a table of something else
            broken = broken or error
            continue
        if not set(named) <= set(reader.names):
            continue
        table = reader.read(named, text=[roles["label"], roles["user"]])
        rows = Rows(len(table), reader.name, reader.row_name)
        columns = read_columns(table, roles, rows, option="")
        order = np.argsort(columns["time"], kind="stable")
        table = table.take(order)
        columns = {role: column[order] for role, column in columns.items()}
        label, class_names = code_labels(table[roles["label"]], rows, "names")
        time = np.floor(columns["time"]).astype(np.int64)
        user = Vocabulary().encode(table[roles["user"]])  # in order of appearance
        when = TimeParser(seen, "").whole_seconds(table[seen], rows) if seen else time
        coordinates = {role: columns[role] for role in ("latitude", "longitude") if role in roles}
        x = _inputs(list(coordinates.values()), when, user, cycles)
        facts: dict[str, Array] = {"label": label, "time": time, "user": user, "seen": when}
        facts |= {role: np.rint(values * _MILLION) for role, values in coordinates.items()}
        return Contents(
            {"x": x, "label": label, "time": time, "user": user},
            "a CSV",
            len(class_names or ()),
            class_names,
            {fact: md5(np.ascontiguousarray(v.astype("<i8"))) for fact, v in facts.items()},
            more={"scaled": len(coordinates)},
        )
    if broken is not None:
        raise broken
    return None


def _inputs(numbers: list[Any], when: Array, user: Array, cycles: tuple[str, ...]) -> Array:
    waves = calendar(when)
    waves = {name: v for name, v in waves.items() if not cycles or name[:-4] in cycles}
    slots = np.zeros((len(user), SLOTS), np.float32)
    slots[np.arange(len(user)), user % SLOTS] = 1
    return np.column_stack([*numbers, *waves.values(), slots]).astype(np.float32)
