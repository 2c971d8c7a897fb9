"""Columns in their roles as arrays: labels, times, coordinates, users, inputs."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.rows import Flags, Rows
from streamgauge.tables.times import TimeParser
from streamgauge.tables.values import (
    MISSING,
    MISSING_NUMBERS,
    Codes,
    Ints,
    Vocabulary,
    clean_text,
    numbers,
)

Array = NDArray[Any]
_MISSING, _UNKNOWN, _NEGATIVE = -1, -2, -3  # labels
_MANY_CLASSES = 20  # so many that differ in most rows are hardly classes


class LabelColumn(NamedTuple):
    """Labels as class numbers, below 0 in bad rows, and the names of the classes."""

    label: Ints
    names: list[str] | None


def code_labels(
    column: pa.ChunkedArray,
    rows: Rows,
    numbering: str = "auto",
    known: Sequence[str] | None = None,
    by_value: bool = False,
) -> LabelColumn:
    """Labels that are exactly 0..C-1 stay as they are; others are coded in order of first
    appearance, or with `by_value` in order of their values, and named by their values.

    `numbering` is auto, numbers (never code) or names (name classes always). `known` names the
    classes, of which labels are the numbers or, where they are text or `numbering` is names, the
    names.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise StreamgaugeError(
            f"The labels of {rows.table} are of type {kind}: give whole numbers or names."
        )
    words = Vocabulary()
    codes = words.encode(clean_text(column)[0])
    if (fraction := words.fraction(codes)) is not None:
        row = int(np.argmax(codes == words.numbers[fraction]))
        what = f"has the label {fraction}, but labels are whole numbers or names: turn"
        raise StreamgaugeError(
            rows.at(row, f"{what} numbers into classes, or choose another column as the label.")
        )
    if not words.whole and numbering == "numbers":
        name = next(text for key, text in words.texts.items() if isinstance(key, str))
        raise StreamgaugeError(
            f"The labels of {rows.table} are text, as '{name}' is: set --stream.labels to auto or"
            " names."
        )
    keys = list(words.numbers)
    if known is not None and (not words.whole or numbering == "names"):
        rank = {name: number for number, name in enumerate(known)}
        numbers = [rank.get(text, _UNKNOWN) for text in words.texts.values()]
    elif known is not None or numbering == "numbers":
        end = len(known) if known is not None else math.inf
        numbers = [_NEGATIVE if key < 0 else key if key < end else _UNKNOWN for key in keys]
    elif words.whole and set(keys) == set(range(len(keys))):
        numbers = keys
        known = [str(key) for key in sorted(keys)] if numbering == "names" else None
    else:
        texts = [str(key) for key in keys] if words.whole else list(words.texts.values())
        values: list[Any] = (keys if words.whole else texts) if by_value else _first(codes, keys)
        order = sorted(range(len(keys)), key=values.__getitem__)
        known = [texts[at] for at in order]
        numbers = np.argsort(order).tolist()
    label = np.array([*numbers, _MISSING], np.int64)[codes]
    rows.refuse(label == _MISSING, "missing label", "has no label (empty, nan, null or None).")
    below = "labels are whole numbers from 0 on, or names"
    below += ": --stream.labels auto makes it a class." if known is None else "."
    for code, sort, what in (
        (_NEGATIVE, "missing label", "has the label '{}': " + below),
        (_UNKNOWN, "unknown label", "has the unknown label '{}'."),
    ):
        rows.refuse(
            label == code,
            sort,
            lambda row, what=what: rows.at(row, what.format(column[row].as_py())),  # type: ignore[misc]
        )
    return LabelColumn(label, None if known is None else list(known))


def _first(codes: Codes, keys: Sequence[Any]) -> list[int]:
    """The first row of each class; a dictionary column may list its values in another order."""
    rows = np.zeros(len(keys) + 1, np.int64)  # the last entry is that of missing cells, -1
    rows[codes[::-1]] = np.arange(len(codes))[::-1]
    return [int(row) for row in rows[:-1]]


def coded_line(names: Sequence[str] | None) -> str:
    """The part of the printed line about labels that are numbers and were coded."""
    if names is None or not all(name.lstrip("-").isdigit() for name in names):
        return ""
    listed = [f"{name} is class {code}" for code, name in enumerate(names[:4])]
    rest = f" and so on, {len(names):,} classes" if len(names) > 4 else ""
    return f" Labels are coded in order of first appearance: {', '.join(listed)}{rest}."


def class_doubts(label: Ints, names: Sequence[str] | None) -> list[str]:
    """Sentences about labels that may not be what their reader means.

    >>> class_doubts(np.arange(3), ["yes", "Yes ", "?"])
    ["The classes 'yes' and 'Yes ' differ in spelling alone.",
     "'?' is a class: leave the cell empty where a label is missing."]
    """
    sentences, alike = list[str](), dict[str, str]()
    for name in names or ():
        plain = unicodedata.normalize("NFKC", name).casefold().strip()
        plain = (plain.lstrip("0") or "0") if plain.isdigit() else plain
        if (other := alike.setdefault(plain, name)) != name:
            sentences = sentences or [
                f"The classes '{other}' and '{name}' differ in spelling alone."
            ]
    sentences += [
        f"'{name}' is a class: leave the cell empty where a label is missing."
        for name in names or ()
        if name in MISSING_NUMBERS - {"NA"}
    ]
    there = label[label >= 0]
    count = len(np.unique(there))
    if count >= _MANY_CLASSES and 2 * count > len(there):
        sentences.append(
            f"Most rows have a label of their own ({count:,} classes in {len(there):,} rows): the"
            " column may be a quantity or an id."
        )
    return sentences


def footer_doubt(
    table: pa.Table, inputs: Sequence[str], label: Ints, names: Sequence[str] | None
) -> list[str]:
    """A sentence where the last row alone has its class and lacks half of the inputs that the row
    before has: it may be a footer, such as `Total;;;`."""
    if len(label) < 3 or label[-1] < 0 or (label == label[-1]).sum() > 1:
        return []
    before, last = table.slice(len(table) - 2).select(list(inputs)).to_pylist()
    there = [name for name in inputs if not _is_empty(before[name])]
    if 2 * sum(_is_empty(last[name]) for name in there) < max(1, len(there)):
        return []
    name = label[-1] if names is None else names[label[-1]]
    return [
        f"The last row alone has the class '{name}', and most of its other cells are empty: if it"
        " is a footer, remove it."
    ]


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip() in MISSING)


class Groups(NamedTuple):
    """Users or domains as numbers, and where there is none."""

    code: Ints
    missing: Flags


def code_groups(column: pa.ChunkedArray, role: str) -> Groups:
    """Whole numbers as they are; names numbered by alphabet, the empty one being a name."""
    column = clean_text(column)[0]
    missing = np.asarray(column.is_null())
    if pa.types.is_integer(column.type) and (pc.max(column).as_py() or 0) < 1 << 63:
        return Groups(np.asarray(pc.fill_null(column, 0)).astype(np.int64, copy=False), missing)
    if pa.types.is_nested(column.type):
        raise StreamgaugeError(
            f"The column for the {role} is of type {column.type}: give numbers or names."
        )
    words = Vocabulary()
    codes = words.encode(column)
    if words.whole:
        return Groups(np.array([*words.numbers, 0], np.int64)[codes], missing)
    names = [*words.texts.values(), ""]
    rank = np.argsort(np.argsort(np.array(names))) - (0 if missing.any() else 1)
    return Groups(rank[codes], np.zeros(len(codes), bool))


def feature_matrix(table: pa.Table, columns: Sequence[str], rows: Rows) -> NDArray[np.float32]:
    """Columns of numbers side by side as 32-bit floats."""
    if not columns:
        raise StreamgaugeError(
            f"{rows.table} has no column left for features: add one of numbers or text."
        )
    x = np.empty((len(table), len(columns)), np.float32)
    for at, column in enumerate(columns):
        values = numbers(table[column])
        if values is None:
            raise StreamgaugeError(
                f"The column '{column}' of {rows.table} holds no numbers but {table[column].type}:"
                " turn it into numbers, or leave it out with --stream.drop."
            )
        rows.refuse(np.isnan(values), "missing value", f"has no value in column '{column}'.")
        x[:, at] = values
    return x


def read_columns(
    table: pa.Table, chosen: Mapping[str, str], rows: Rows, option: str = "--stream."
) -> dict[str, Array]:
    """Times in seconds, coordinates in degrees, users and domains as numbers, by role.

    `option` begins the options that name a column; "" where there are none.
    """
    columns: dict[str, Array] = {}
    bad: dict[str, Flags] = {}
    for role in ("time", "latitude", "longitude", "user", "domain"):
        if role not in chosen:
            continue
        column = table[chosen[role]]
        if role == "time":
            columns[role] = TimeParser(chosen[role], option and option + role).seconds(column)
            bad[role] = ~np.isfinite(columns[role])
        elif role in ("user", "domain"):
            columns[role], bad[role] = code_groups(column, role)
        else:
            columns[role] = _degrees(column, role, rows)
    for role, missing in bad.items():
        without = f" ({option}{role} none does without)" if option else ""
        why = f"has no {role} in column '{chosen[role]}'{without}."
        rows.refuse(missing, f"missing {role}", why)
    return columns


def _degrees(column: pa.ChunkedArray, role: str, rows: Rows) -> NDArray[np.float64]:
    degrees = numbers(column)
    if degrees is None:
        raise StreamgaugeError(
            f"The {role} of {rows.table} must be a number in every row: name another column."
        )
    limit = 90 if role == "latitude" else 180
    with np.errstate(invalid="ignore"):
        rows.refuse(
            np.abs(degrees) > limit,
            "point off the globe",
            lambda row: rows.at(row, f"has the {role} {degrees[row]}."),
        )
    return degrees
