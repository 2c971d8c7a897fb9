"""A table of your own as a stream: columns of numbers and of text as inputs, one as the label.

Numbers are standardised online, missing ones are filled and flagged, and a column of text becomes
a fixed number of 0/1 columns. No encoding depends on rows that come later. Columns for time, user
and ids are recognised by their names and are no inputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    likeliest,
    plain_name,
    require,
)
from streamgauge.tables.read import LabelledTable, open_labelled
from streamgauge.tables.roles import (
    class_doubts,
    code_labels,
    coded_line,
    footer_doubt,
    read_columns,
)
from streamgauge.tables.rows import Rows, counted
from streamgauge.tables.values import (
    StrayText,
    Vocabulary,
    clean_text,
    is_text,
    numbers,
    numbers_with_stray_text,
)

OnBad = Literal["refuse", "skip", "fill"]
_ROLES = ("label", "time", "user", "id")
_ROW_NAMES = ("", "index", "rowname", "rownames", "row", "rowid", "unnamed0", "level0")
_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, in Parquet
_ID_NAME = re.compile(r"(.*[ _.-])?(id|ID|Id)|.*([a-z]I[dD]|_ID)")
_LEAST_ROWS = 20  # in which whole numbers that differ, or count, are no chance
_OFFSET = 2.0**14  # spreads; numbers further from 0 lose what tells them apart in 32 bits
_LOOKED_AT = 1000  # rows in which a column that may be the label is searched
_LIBSVM = re.compile(r"\d+:[-+.\de]+")
_WRITTEN_NUMBER = re.compile(r"[(+\-\u2212]?\s*[$€£¥]?\s*[\d][\d.,' ]*\s*[%$€£¥)]?")
SLOTS = 16  # 0/1 columns per column of text


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream; rows come in the order of the file unless `order` says otherwise."""

    path: str = ""  # CSV, ARFF, Parquet, Arrow or JSON lines
    batch: int = 0  # samples per step; 0: one by one, and with albums up to 10
    scale: Literal["online", "none"] = "online"  # standardise by what was trained, or not at all
    label: str = ""  # its column, or a file with a label per row; "" guesses
    time: str = ""  # column of times, not an input; "" guesses by name, "none" keeps it an input
    user: str = ""  # column of users, not an input; "" guesses by name, "none" keeps it an input
    id: str = ""  # column of ids, not an input; "" guesses by name, "none" keeps it an input
    drop: tuple[str, ...] = ()  # columns that are not inputs
    on_bad: OnBad = "fill"  # missing cells: an error, leave out their rows, or fill inputs


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    if not config.path:
        raise StreamgaugeError("Say which table: --stream.path FILE.csv")
    file = Path(config.path).expanduser()
    if not file.is_file():
        raise StreamgaugeError(f"There is no file {file}.")
    if config.batch == 0:
        config = replace(config, batch=10 if config.step == "album" else 1)
    settings = {**stored_settings(config), "path": str(file.resolve())}  # for another folder
    reader, _ = open_labelled(file, f"'{file}'", config.label)
    if isinstance(reader, LabelledTable):
        settings["label"], config = str(reader.file.resolve()), replace(config, label=reader.label)
    return table_stream(reader, f"'{file.name}'", config, settings)


def stored_settings(config: Config) -> dict[str, Any]:
    """The settings that a run stores; without `on_bad` fill, which earlier versions did."""
    settings = dict(vars(config))
    return {k: v for k, v in settings.items() if k != "on_bad" or v != Config.on_bad}


def table_stream(
    reader: TableReader,
    where: str,
    config: Config,
    settings: Mapping[str, Any],
    option: str = "--stream.",
) -> Stream:
    """The stream of an open table, which messages call `where`; a run stores the `settings`.
    `option` begins the names of settings in what is printed."""
    for name in config.drop:
        require(reader.names, name, "setting drop", where)
    given = {role: getattr(config, role) for role in _ROLES}
    kept = [name for name in reader.names if name not in config.drop or name in given.values()]
    _refuse_two_labels(kept, config, where)
    needs = {"label": True, "time": config.order == "time", "user": config.step == "album"}
    wanted = [role for role in _ROLES if given[role] or needs.get(role)]
    usual = reader.usual_label
    suggest = partial(_likely_label, reader, kept)
    roles = choose(kept, wanted, given, where, needed=["label"], usual_label=usual, suggest=suggest)
    user = _only(likeliest(_free(kept, roles), "user")) if "user" not in wanted else ""
    text = [name for name in (roles["label"], roles.get("user", user)) if name]
    table = reader.read(kept, text=text)
    rows = Rows(len(table), where, reader.row_name, config.on_bad)
    _refuse_rows_of_text(table, _free(kept, roles), rows)
    label, class_names = code_labels(_of_good_rows(table[roles["label"]], rows), rows)
    if "time" not in wanted:
        roles |= _guessed_time(table, _free(kept, roles), where)
    if user and _are_names(table[user]):
        roles["user"] = user
    columns = read_columns(table, roles, rows)
    inputs = TableInputs(table, _free(kept, roles), rows, config)
    lines = [
        describe(roles, given, inputs.names, "inputs", option) + coded_line(class_names),
        *class_doubts(label, class_names),
        *footer_doubt(table, _free(kept, roles), label, class_names),
        *_left_out_line(rows, label),
        *inputs.sentences(option),
    ]
    announce(f"{reader.name}: " + "\n  ".join(lines))
    used = rows.kept()
    columns = {role: column[used] for role, column in columns.items()}
    scaled = inputs.numeric if config.scale == "online" else 0
    source = VectorSource(inputs.x[used], label[used], scaled, class_names=class_names, **columns)
    _own.refuse_backwards(source.columns, config, rows, used, None)
    _own.announce_no_tasks(config)
    notes = inputs.notes() | ({"left_out": rows.left_out} if rows.left_out else {})
    return arrange(source, config, name="tabular", settings=settings, notes=notes)


def _likely_label(reader: TableReader, columns: Sequence[str]) -> str:
    """A sentence about the column that may be the label: the last, the first, or another one with
    few values; "" if there is none."""
    first = next(reader.pieces(columns), None) if columns else None
    if first is None:
        return ""
    first = first.slice(0, _LOOKED_AT)
    last = first[columns[-1]].slice(0, 20)
    cells: list[str] = [c for c in last.to_pylist() if c] if is_text(last.type) else []
    if cells and all(map(_LIBSVM.fullmatch, cells)):
        return (
            "Cells such as '" + cells[0] + "' are of the format LIBSVM, which is not read here:"
            " sklearn.datasets.load_svmlight_file gives arrays for sg.stream(x.toarray(), y)."
        )
    for name in dict.fromkeys([columns[-1], *columns]):
        values = numbers(first[name])
        if values is None and not is_text(first[name].type):
            continue
        if values is not None and (values % 1 > 0).any():
            continue
        distinct = [str(value) for value in first[name].unique().to_pylist()]
        if 2 <= len(distinct) <= min(100, len(first) // 3):
            return (
                f"Perhaps it is '{name}', which has {len(distinct)} values in the first"
                f" {len(first):,} rows: {_few(distinct, 3)}."
            )
    return ""


def _free(columns: Sequence[str], roles: Mapping[str, str]) -> list[str]:
    return [name for name in columns if name not in roles.values()]


def _only(names: Sequence[str]) -> str:
    """Of several equally likely columns none is guessed: ""."""
    return names[0] if len(names) == 1 else ""


def _guessed_time(table: pa.Table, free: Sequence[str], where: str) -> dict[str, str]:
    """The column of times, by its name: dates, or numbers that never decrease."""
    dates = [n for n in columns_named(free, "time") if numbers(table[n]) is None]
    if dates:
        return choose(dates, ["time"], {}, where)
    name = _only(likeliest(free, "time"))
    return {"time": name} if name and _increases(table[name]) else {}


def _increases(column: pa.ChunkedArray) -> bool:
    values = numbers(column)
    if values is None or not np.isfinite(values).all():
        return False
    return bool((np.diff(values) >= 0).all() and len(np.unique(values)) > 1)


def _are_names(column: pa.ChunkedArray) -> bool:
    """Whether the cells can be users: text or whole numbers, each there."""
    values = numbers(column)
    if values is None:
        return is_text(column.type)
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


def _left_out_line(rows: Rows, label: NDArray[np.int64]) -> list[str]:
    """How many rows are not streamed, and why."""
    if not rows.left_out:
        return []
    count, total = int((~rows.good).sum()), len(rows.good)
    newest = int(np.argmax(label[::-1] >= 0))  # rows at the end without a label
    end = f" ({newest:,} of them at the end)" if newest else ""
    return [f"Left out: {count:,} of {total:,} rows: {counted(rows.left_out)}{end}."]


class TableInputs:
    """The inputs of a table: columns of numbers, then 0/1 columns for missing cells and text."""

    def __init__(self, table: pa.Table, columns: Sequence[str], rows: Rows, config: Config) -> None:
        self.config = config
        self.left_out: dict[str, str] = {}  # column -> why
        self.missing: dict[str, int] = {}  # column of numbers -> missing cells
        self.stray: dict[str, str] = {}  # column of numbers -> its cells of text
        self.text: list[str] = []
        parts, flags, slots = [], [], []
        for name in columns:
            values, mixed = numbers(table[name]), None
            if values is None and (mixed := numbers_with_stray_text(table[name])) is not None:
                values = mixed.values
            if values is not None and np.isnan(values).all():
                self.left_out[name] = "no value in any row"
                continue
            why = self._no_input(name, table[name], values)
            if why:
                self.left_out[name] = why
            elif values is None:
                self.text.append(name)
                slots.append(_one_hot(table[name]))
                self._count_missing(slots[-1].sum(axis=1) == 0, name, rows)
            else:
                if config.scale == "online":
                    values = _without_offset(values)
                with np.errstate(over="ignore"):
                    parts.append(values.astype(np.float32)[:, None])
                bad = ~np.isfinite(parts[-1])
                if mixed is not None:
                    self._count_stray(mixed, name, rows)
                if self._count_missing(bad[:, 0], name, rows):
                    flags.append(bad.astype(np.float32))
        self.flags = len(flags)
        self.names = [name for name in columns if name not in self.left_out]
        if not self.names:
            without = _few([f"'{name}' ({why})" for name, why in self.left_out.items()])
            raise StreamgaugeError(
                f"{rows.table} has no column left for features: add one of numbers or text."
                + f" Left out: {without}." * bool(self.left_out)
            )
        self.numeric = len(parts)
        self.x: NDArray[np.float32] = np.concatenate([*parts, *flags, *slots], axis=1)

    def _count_stray(self, mixed: StrayText, name: str, rows: Rows) -> None:
        """Text in a column of numbers is missing there, or refused, or its rows are left out."""
        stray = mixed.stray & rows.good
        if not stray.any():
            return
        if self.config.on_bad != "fill":
            what = f"has '{mixed.example}' in column '{name}', where nearly all cells are numbers."
            rows.refuse(stray, f"text in '{name}'", what)
            return
        line = rows.row_name(int(stray.argmax())).lower()
        self.stray[name] = (
            f"{name} ({int(stray.sum()):,} cells, such as '{mixed.example}' in {line})"
        )

    def _count_missing(self, bad: NDArray[np.bool_], name: str, rows: Rows) -> bool:
        """Whether missing cells of a column are to be filled; otherwise they are refused, or their
        rows are left out."""
        bad = bad & rows.good
        if not bad.any():
            return False
        what = f"has no value in column '{name}' (or one too large for 32 bits)"
        if self.config.on_bad != "fill":
            rows.refuse(bad, f"without '{name}'", f"{what}.")
            return False
        if self.config.scale == "none" and name not in self.text:
            # Without statistics there is nothing to fill a missing value with.
            rows.refuse(
                bad,
                f"without '{name}'",
                f"{what}: fill it in, or set --stream.scale online, which fills it with the median"
                " so far.",
            )
        self.missing[name] = int(bad.sum())
        return True

    def _no_input(
        self, name: str, column: pa.ChunkedArray, values: NDArray[np.float64] | None
    ) -> str:
        """Why a column is left out; "" for an input."""
        if self.config.id != "none":
            if columns_named([name], "id"):
                return "ids"
            if _ID_NAME.fullmatch(name) and _are_distinct(values):
                return "ids"
            if plain_name(name) in _ROW_NAMES and (_count_rows(values) or _are_distinct(values)):
                return "row numbers"  # in any order: rows sorted by label may have been shuffled
            if _INDEX.fullmatch(name):
                return "row numbers"
            if name == "column_1" and len(column) >= _LEAST_ROWS and _count_rows(values):
                return "row numbers"
        kind = column.type
        if pa.types.is_temporal(kind):
            return "times"
        if values is None and not is_text(kind):
            return f"type {kind}"
        if values is None and _mostly_distinct(column):
            number = _unread_number(column)
            return (
                f"numbers in a form that is not read, such as '{number}'"
                if number
                else ("text that differs in most rows")
            )
        return ""

    def sentences(self, option: str) -> list[str]:
        """What became of the columns, for the lines that are printed."""
        lines = []
        if self.left_out:
            listed = [f"'{name}' ({why})" for name, why in self.left_out.items()]
            ids = {"ids", "row numbers"} & set(self.left_out.values())
            hint = f" ({option}id none keeps ids)" if ids else ""
            lines.append(f"Columns left out: {_few(listed)}{hint}.")
        if times := [n for r in ("time", "user") for n in columns_named(self.names, r)]:
            lines.append(f"An input like any other: {_few(times)} ({option}drop leaves it out).")
        if self.text:
            lines.append(f"Text becomes {SLOTS} columns of 0/1 each: {_few(self.text)}.")
        if self.stray:
            lines.append(f"Text among numbers counts as missing: {_few([*self.stray.values()])}.")
        if self.missing:
            cells = [f"{name} ({count:,} cells)" for name, count in self.missing.items()]
            total = sum(self.missing.values())
            filled = "filled with the median so far and flagged by a 0/1 column each"
            if self.text:
                filled += "; in text columns, all 0"
            more = f"({option}on_bad skip or refuse)"
            lines.append(f"{total:,} missing values are {filled}: {_few(cells)} {more}.")
        if self.numeric and self.config.scale == "online":
            lines.append(f"Numbers are standardised online ({option}scale none: as they are).")
        else:
            lines.append("Numbers are taken as they are." * bool(self.numeric))
        size = self.config.batch
        one = "one by one" if size == 1 else f"in steps of up to {size}"
        lines.append(f"Samples come {one} ({option}batch).")
        return [line for line in lines if line]

    def notes(self) -> dict[str, Any]:
        """What a run stores about the columns."""
        return {
            "inputs": {
                "numbers": self.numeric,
                "flags": self.flags,
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


def _count_rows(values: NDArray[np.float64] | None) -> bool:
    """Whether a column counts the rows."""
    return values is not None and np.array_equal(values, values[0] + np.arange(len(values)))


def _are_distinct(values: NDArray[np.float64] | None) -> bool:
    """Whether a column holds another whole number in every row."""
    if values is None or len(values) < _LEAST_ROWS or not np.isfinite(values).all():
        return False
    return not (values % 1).any() and len(np.unique(values)) == len(values)


def _without_offset(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers with a large offset, such as times in seconds, minus the first one: 32 bits cannot
    tell them apart otherwise. What is standardised has no offset anyway."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return values
    low, high = np.percentile(finite, (25, 75))
    spread = high - low or finite.max() - finite.min()
    return values - finite[0] if np.abs(finite[0]) > _OFFSET * spread > 0 else values


def _of_good_rows(column: pa.ChunkedArray, rows: Rows) -> pa.ChunkedArray:
    """Labels of rows that are left out make no classes."""
    if rows.good.all():
        return column
    kind = column.type
    plain = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
    return pc.if_else(pa.array(rows.good), plain, pa.scalar(None, plain.type))


def _refuse_rows_of_text(table: pa.Table, columns: Sequence[str], rows: Rows) -> None:
    """Units below the header are no sample: text in every column of numbers, of two or more."""
    stray = []
    for name in columns:
        values = numbers(table[name])
        if values is not None and not np.isnan(values).all():
            return
        if values is None and (mixed := numbers_with_stray_text(table[name])) is not None:
            stray.append(mixed.stray)
    if len(stray) > 1:
        what = "has text in every column of numbers, such as units or a header: it is no sample."
        rows.refuse(np.logical_and.reduce(stray), "row of text", what)


def _unread_number(column: pa.ChunkedArray) -> str:
    """The first cell, where most are numbers as people write them: 1,234 or 12 % or (3.5)."""
    cells = [str(cell).strip() for cell in column.slice(0, _LOOKED_AT).to_pylist() if cell]
    numbers = [cell for cell in cells if _WRITTEN_NUMBER.fullmatch(cell)]
    odd = [cell for cell in numbers if not cell.lstrip("-").replace(".", "", 1).isdigit()]
    return odd[0] if odd and len(numbers) > 0.9 * len(cells) else ""


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
