"""A table of your own as a stream: columns of numbers and of text as inputs, one as the label.

Numbers are standardised online, missing ones are filled and flagged, and a column of text becomes
a fixed number of 0/1 columns. No encoding depends on rows that come later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.own import _common as _own
from streamgauge.streams.source import VectorSource
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.base import TableReader
from streamgauge.tables.columns import (
    announce,
    choose,
    columns_named,
    describe,
    plain_name,
    require,
)
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_labels, read_columns
from streamgauge.tables.rows import Rows
from streamgauge.tables.values import Vocabulary, clean_text, is_text, numbers

_ROLES = ("label", "time", "user", "id")
_ROW_NAMES = ("", "index", "rowname", "rownames", "row", "rowid", "unnamed0")
SLOTS = 16  # 0/1 columns per column of text


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream; rows come in the order of the file unless `order` says otherwise."""

    path: str = ""  # CSV, ARFF, Parquet, Arrow or JSON lines
    batch: int = 0  # samples per step; 0: one by one, and with albums up to 10
    scale: Literal["online", "none"] = "online"  # standardise by what was trained, or not at all
    label: str = ""  # its column; "" guesses from the names
    time: str = ""  # column of times; "" guesses for order=time or if it is text, "none": an input
    user: str = ""  # column of users; "" guesses for step=album, "none" makes it an input
    id: str = ""  # column of ids, which is no input; "" guesses, "none" makes it an input
    drop: tuple[str, ...] = ()  # columns that are no inputs


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    if not config.path:
        raise StreamgaugeError("Say which table: --stream.path FILE.csv")
    file = Path(config.path).expanduser()
    if not file.is_file():
        raise StreamgaugeError(f"There is no file {file}.")
    if config.batch == 0:
        config = replace(config, batch=10 if config.step == "album" else 1)
    settings = {**vars(config), "path": str(file.resolve())}  # found again from another folder
    return table_stream(open_table(file, f"'{file}'"), f"'{file.name}'", config, settings)


def table_stream(
    reader: TableReader, where: str, config: Config, settings: Mapping[str, Any]
) -> Stream:
    """The stream of an open table, which messages call `where`; a run stores the `settings`."""
    for name in config.drop:
        require(reader.names, name, "setting drop", where)
    given = {role: getattr(config, role) for role in _ROLES}
    kept = [name for name in reader.names if name not in config.drop or name in given.values()]
    _refuse_two_labels(kept, config, where)
    needs = {"label": True, "time": config.order == "time", "user": config.step == "album"}
    wanted = [role for role in _ROLES if given[role] or needs.get(role)]
    roles = choose(kept, wanted, given, where, needed=["label"])
    table = reader.read(kept, text=[roles[role] for role in ("label", "user") if role in roles])
    rows = Rows(len(table), where, reader.row_name)
    label, class_names = code_labels(table[roles["label"]], rows)
    if "time" not in wanted:
        roles |= choose(_dates(table, roles.values()), ["time"], {}, where)
    columns = read_columns(table, roles, rows)
    free = [name for name in kept if name not in roles.values()]
    inputs = Inputs(table, free, rows, config)
    line = describe(roles, given, inputs.names, "inputs")
    announce(f"{reader.name}: {line} {' '.join(inputs.sentences())}")
    scaled = inputs.numeric if config.scale == "online" else 0
    source = VectorSource(inputs.x, label, scaled, class_names=class_names, **columns)
    _own.refuse_backwards(source.columns, config, rows, np.arange(len(table)), None)
    return arrange(source, config, name="tabular", settings=settings, notes=inputs.notes())


class Inputs:
    """The inputs of a table: columns of numbers, then 0/1 columns for missing cells and text."""

    def __init__(self, table: pa.Table, columns: Sequence[str], rows: Rows, config: Config) -> None:
        self.config = config
        self.left_out: dict[str, str] = {}  # column -> why
        self.missing: dict[str, int] = {}  # column of numbers -> missing cells
        self.text: list[str] = []
        parts, flags, slots = [], [], []
        for name in columns:
            values = numbers(table[name])
            why = self._no_input(name, table[name], values)
            if why:
                self.left_out[name] = why
            elif values is None:
                self.text.append(name)
                slots.append(_one_hot(table[name]))
            else:
                with np.errstate(over="ignore"):
                    parts.append(values.astype(np.float32)[:, None])
                bad = ~np.isfinite(parts[-1])
                if bad.any():
                    self._refuse_missing(bad[:, 0], name, rows)
                    self.missing[name] = int(bad.sum())
                    flags.append(bad.astype(np.float32))
        self.names = [name for name in columns if name not in self.left_out]
        if not self.names:
            raise StreamgaugeError(f"{rows.table} has no column left for features.")
        self.numeric = len(parts)
        self.x: NDArray[np.float32] = np.concatenate([*parts, *flags, *slots], axis=1)

    def _refuse_missing(self, bad: NDArray[np.bool_], name: str, rows: Rows) -> None:
        """Without statistics there is nothing to fill a missing value with."""
        if self.config.scale == "none":
            rows.refuse(
                bad,
                "missing value",
                f"has no value in column '{name}' (or one too large for 32 bits): fill it in, or"
                " set --stream.scale online, which fills it with the median so far.",
            )

    def _no_input(
        self, name: str, column: pa.ChunkedArray, values: NDArray[np.float64] | None
    ) -> str:
        """Why a column is left out; "" for an input."""
        if self.config.id != "none":
            if columns_named([name], "id"):
                return "ids"
            if plain_name(name) in _ROW_NAMES and _are_row_numbers(values, len(column)):
                return "row numbers"
        kind = column.type
        if pa.types.is_temporal(kind):
            return "times"
        if values is None and not is_text(kind):
            return f"type {kind}"
        if values is None and _mostly_distinct(column):
            return "text that differs in most rows"
        return ""

    def sentences(self) -> list[str]:
        """What became of the columns, for the line that is shown."""
        lines = []
        if self.left_out:
            listed = [f"'{name}' ({why})" for name, why in self.left_out.items()]
            ids = {"ids", "row numbers"} & set(self.left_out.values())
            hint = " (--stream.id none keeps ids)" if ids else ""
            lines.append(f"Left out: {_few(listed)}{hint}.")
        if times := [n for r in ("time", "user") for n in columns_named(self.names, r)]:
            lines.append(f"An input like any other: {_few(times)} (--stream.drop leaves it out).")
        if self.text:
            lines.append(f"Text becomes {SLOTS} columns of 0/1 each: {_few(self.text)}.")
        if self.missing:
            cells = [f"{name} ({count:,} cells)" for name, count in self.missing.items()]
            filled = "filled with the median so far and flagged by a 0/1 column each"
            lines.append(f"Missing values are {filled}: {_few(cells)}.")
        if self.numeric and self.config.scale == "online":
            lines.append("Numbers are standardised online (--stream.scale none: as they are).")
        else:
            lines.append("Numbers are taken as they are." * bool(self.numeric))
        size = self.config.batch
        one = "one by one" if size == 1 else f"in steps of up to {size}"
        lines.append(f"Samples come {one} (--stream.batch).")
        return [line for line in lines if line]

    def notes(self) -> dict[str, Any]:
        """What a run stores about the columns."""
        return {
            "inputs": {
                "numbers": self.numeric,
                "flags": len(self.missing),
                "text": self.text,
                "slots_per_text": SLOTS,
                "left_out": self.left_out,
                "missing": self.missing,
            }
        }


def _few(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _one_hot(column: pa.ChunkedArray) -> NDArray[np.float32]:
    """The n-th distinct value of a column sets the column n modulo SLOTS; a missing one sets none.
    Whatever comes later, the rows before it are encoded in the same way."""
    codes = Vocabulary().encode(clean_text(column)[0])
    x = np.zeros((len(codes), SLOTS), np.float32)
    known = np.flatnonzero(codes >= 0)
    x[known, codes[known] % SLOTS] = 1
    return x


def _are_row_numbers(values: NDArray[np.float64] | None, count: int) -> bool:
    """Whether a column counts the rows."""
    if values is None:
        return False
    return bool(np.array_equal(values, values[0] + np.arange(count)))


def _mostly_distinct(column: pa.ChunkedArray) -> bool:
    """Names, notes and ids rather than categories."""
    distinct = len(column.unique())
    return distinct > 100 and distinct > 0.5 * len(column)


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
