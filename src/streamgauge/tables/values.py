"""What cells mean: missing values, labels, users, times and numbers.

Labels: a whole number is one class however it is written (3, "3", " 3 ", 3.0, "3.0"), True and
False are 1 and 0, codes with leading zeros are names, and blanks around a cell do not count. Times
are seconds since 1970 in UTC; see `TimeParser`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.rows import Flags, Rows

Array = NDArray[Any]
Codes = NDArray[np.int32]
Ints = NDArray[np.int64]

# Missing in every column; in a column of numbers the second set, too ("NA" is Namibia, otherwise).
MISSING = frozenset({"", "nan", "NaN", "null", "NULL", "None", "<NA>"})
MISSING_NUMBERS = frozenset(
    {"NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "?", "-nan", "-NaN", "1.#IND", "-1.#IND",
     "1.#QNAN", "-1.#QNAN"}
)  # fmt: skip
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.0*)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I)
_BOOLEANS = {"true": 1, "false": 0}


def is_text(kind: pa.DataType) -> bool:
    """Text, or a dictionary of text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def clean_text(
    column: pa.ChunkedArray, holds_numbers: bool | None = None
) -> tuple[pa.ChunkedArray, bool | None]:
    """A text column by its distinct values, trimmed, null where a cell is missing; and whether the
    column holds numbers (decided here where None). Other columns come as they are, NaN as null."""
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column), None
    if not is_text(column.type):
        return column, None
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    chunks = [(c.indices, pc.utf8_trim_whitespace(c.dictionary.cast(pa.string())))
              for c in coded.chunks]  # fmt: skip
    if holds_numbers is None:
        cells = {text for _, texts in chunks for text in texts.to_pylist()} - MISSING
        cells -= MISSING_NUMBERS
        holds_numbers = bool(cells) and all(_NUMBER.fullmatch(text) for text in cells)
    words = pa.array(sorted(MISSING | MISSING_NUMBERS if holds_numbers else MISSING))
    arrays = []
    for indices, texts in chunks:
        missing = pc.is_in(texts, value_set=words)
        if pc.any(missing).as_py():
            indices = pc.if_else(missing.take(indices), pa.scalar(None, indices.type), indices)
        arrays.append(pa.DictionaryArray.from_arrays(indices, texts))
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.chunked_array(arrays, kind), holds_numbers


def class_key(value: Any) -> Any:
    """What identifies a class: an int for whole numbers, a float for fractions, else trimmed text.

    >>> [class_key(v) for v in (3, "3", " 3.0", 3.0, True, "False", "007", "3.5", " UP ", "nan")]
    [3, 3, 3, 3, 1, 0, '007', 3.5, 'UP', None]
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, str):
        value = value.strip()
        if value in MISSING:
            return None
        if value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
        if _WHOLE.fullmatch(value):
            return int(value.partition(".")[0])
        if ("." in value or "e" in value.lower()) and _NUMBER.fullmatch(value):
            return float(value)
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value


class Vocabulary:
    """Classes as numbers in the order they are met; the same in every pass over a table."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.texts: dict[Any, str] = {}  # how each class was first written

    def encode(self, column: pa.ChunkedArray) -> Codes:
        """A number per cell, -1 where missing."""
        chunks = []
        for chunk in column.chunks:
            if not pa.types.is_dictionary(chunk.type):
                chunk = chunk.dictionary_encode()
            count = len(chunk.dictionary)
            indices = chunk.indices.fill_null(count).to_numpy(zero_copy_only=False)
            used = np.bincount(indices, minlength=count + 1)[:count] > 0
            values = chunk.dictionary.to_pylist()
            known = [self.number(v) if u else -1 for v, u in zip(values, used, strict=True)]
            chunks.append(np.array([*known, -1], np.int32)[indices])
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int32)

    def number(self, value: Any) -> int:
        key = class_key(value)
        if key is None:
            return -1
        self.texts.setdefault(key, str(value).strip() if isinstance(value, str) else str(key))
        return self.numbers.setdefault(key, len(self.numbers))

    @property
    def fraction(self) -> float | None:
        """A number that is no class, such as 0.73, where one was met."""
        return next((key for key in self.numbers if isinstance(key, float)), None)

    @property
    def whole(self) -> bool:
        """Whether all classes are whole numbers of 64 bits."""
        return all(isinstance(key, int) and abs(key) < 1 << 63 for key in self.numbers)

    def sorted_places(self) -> Codes:
        """The rank of each class: whole numbers by size, then names by alphabet."""
        names = list(self.numbers)
        ranked = sorted(range(len(names)), key=lambda i: (isinstance(names[i], str), names[i]))
        places = np.empty(len(names), np.int32)
        places[ranked] = np.arange(len(names), dtype=np.int32)
        return places


_MISSING, _UNKNOWN, _NEGATIVE = -1, -2, -3  # labels


class Labels(NamedTuple):
    """Labels as class numbers, below 0 in bad rows, and the names of the classes."""

    label: Ints
    names: list[str] | None


def code_labels(
    column: pa.ChunkedArray,
    rows: Rows,
    numbering: str = "auto",
    known: Sequence[str] | None = None,
) -> Labels:
    """Whole numbers from 0 stay as they are; ids far apart and names are numbered in their order.

    `numbering` is auto, numbers (never renumber) or names (always). `known` names the classes, of
    which labels are the numbers or, where they are text or `numbering` is names, the names.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise StreamgaugeError(
            f"The labels of {rows.table} are of type {kind}: give whole numbers or names."
        )
    words = Vocabulary()
    codes = words.encode(clean_text(column)[0])
    if words.fraction is not None:
        row = int(np.argmax(codes == words.numbers[words.fraction]))
        what = f"has the label {words.fraction}, but labels are whole numbers or names: there is"
        raise StreamgaugeError(rows.at(row, f"{what} no regression here."))
    if not words.whole and numbering == "numbers":
        name = next(text for key, text in words.texts.items() if isinstance(key, str))
        raise StreamgaugeError(
            f"The labels of {rows.table} are text, as '{name}' is: set --stream.labels to auto or"
            " names."
        )
    if known is not None and (not words.whole or numbering == "names"):
        rank = {name: number for number, name in enumerate(known)}
        numbers = [rank.get(text, _UNKNOWN) for text in words.texts.values()]
    elif not words.whole:
        known = sorted(words.texts.values())
        rank = {name: number for number, name in enumerate(known)}
        numbers = [rank[text] for text in words.texts.values()]
    else:
        numbers = list(words.numbers)
        present = sorted(key for key in numbers if key >= 0)
        sparse = bool(present) and present[-1] >= 10 * len(present) + 100
        if known is not None:
            numbers = [key if key < len(known) else _UNKNOWN for key in numbers]
        elif numbering == "names" or (numbering == "auto" and sparse):
            known = [str(key) for key in present]
            order = {key: number for number, key in enumerate(present)}
            numbers = [order.get(key, _NEGATIVE) for key in numbers]
        else:
            numbers = [key if key >= 0 else _NEGATIVE for key in numbers]
    label = np.array([*numbers, _MISSING], np.int64)[codes]
    below = "labels are whole numbers from 0 on, or names."
    rows.refuse(label == _MISSING, "missing label", "has no label (empty, nan, null or None).")
    for code, sort, what in (
        (_NEGATIVE, "missing label", "has the label '{}': " + below),
        (_UNKNOWN, "unknown label", "has the unknown label '{}'."),
    ):
        rows.refuse(
            label == code,
            sort,
            lambda row, what=what: rows.at(row, what.format(column[row].as_py())),  # type: ignore[misc]
        )
    return Labels(label, None if known is None else list(known))


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


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Cells as 64-bit floats, NaN where missing; None where some are no numbers."""
    if is_text(column.type):
        column = clean_text(column, True)[0].cast(pa.string())
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def feature_matrix(table: pa.Table, columns: Sequence[str], rows: Rows) -> NDArray[np.float32]:
    """Columns of numbers side by side as 32-bit floats."""
    if not columns:
        raise StreamgaugeError(f"{rows.table} has no column left for features.")
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
            "place off the globe",
            lambda row: rows.at(row, f"has the {role} {degrees[row]}."),
        )
    return degrees


# Day and month in either order cannot be told apart, so such dates are refused.
_TIME_FORMATS = ("%Y:%m:%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d")
_ZONE = r"(\d:\d\d(?::\d\d)?(?:[.,]\d+)?)\s*(?:UTC|GMT|Z)$"
_NO_ZONE = r"^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?(?:\.\d+)?))?$"
_DAY = "%Y%m%d"


class TimeParser:
    """Times as seconds since 1970 (UTC where no zone is written).

    Dates, timestamps, ISO text, 2024:01:31 10:00:00 and 2024/01/31 are read as such. Numbers are
    seconds; above 1e11 milliseconds, above 1e14 microseconds, above 1e17 nanoseconds; whole numbers
    that are all days written as 20240131 (1900 to 2100) are dates. The first rows decide the unit.
    """

    def __init__(self, name: str, option: str = "--time") -> None:
        self.name, self.option = name, option
        self.unit: float | None = None  # per second; 0: days written as 20240131

    def seconds(self, column: pa.ChunkedArray) -> Array:
        """64-bit integers for whole numbers of seconds, else floats with NaN where missing."""
        if isinstance(column, pa.Array):
            column = pa.chunked_array([column])
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if is_text(column.type):
            column = self._from_text(column)
        kind = column.type
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._from_numbers(column)
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            raise self._unreadable(next((str(v) for v in column.to_pylist() if v is not None), ""))
        micro = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        seconds = np.asarray(pc.fill_null(micro.cast(pa.int64()), 0)) / 1e6
        seconds[np.asarray(column.is_null())] = np.nan
        return seconds

    def whole_seconds(self, column: pa.ChunkedArray, rows: Rows) -> Ints:
        """Seconds rounded down; no cell may be missing."""
        seconds = self.seconds(column)
        why = f"has no time in column '{self.name}': fill it in, or set {self.option} none."
        rows.refuse(~np.isfinite(seconds), "missing time", why)
        return np.floor(seconds).astype(np.int64)

    def _from_numbers(self, column: pa.ChunkedArray) -> Array:
        values = np.asarray(pc.fill_null(column, 0))
        present = values[np.asarray(column.is_valid())]
        if self.unit is None:
            self.unit = time_unit(present)
        if self.unit == 0.0 and not are_days(present):
            raise self._unreadable(str(present[0]))
        values = scale_times(values, self.unit)
        if column.null_count:
            values = values.astype(np.float64)
            values[np.asarray(column.is_null())] = np.nan
        return values

    def _from_text(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        column = clean_text(column)[0].cast(pa.string())
        for kind in (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("ns")):
            with suppress(pa.ArrowInvalid):
                return column.cast(kind)
        column = pc.replace_substring_regex(column, _ZONE, r"\1Z")
        zoned = pc.replace_substring_regex(column, r"^(\d{4}-\d\d-\d\d)$", r"\1 00:00:00")
        zoned = pc.replace_substring_regex(zoned, _NO_ZONE, r"\1T\2Z")
        for unit in ("us", "ns"):
            with suppress(pa.ArrowInvalid):
                return zoned.cast(pa.timestamp(unit, "UTC"))
        for form in _TIME_FORMATS:
            with suppress(pa.ArrowInvalid):
                return pc.strptime(column, format=form, unit="s")
        raise self._unreadable(next((text for text in column.to_pylist() if text), ""))

    def _unreadable(self, example: str) -> StreamgaugeError:
        return StreamgaugeError(
            f"column '{self.name}' holds no times that can be read, such as '{example}': write"
            " seconds or ISO dates (2026-01-31 12:00:00), all in one way, or leave the times out"
            + f" with {self.option} none"
            * bool(self.option)
        )


def time_unit(values: Array) -> float:
    """Units per second of numbers that are times; 0 for days written as 20240131.

    >>> [time_unit(np.array(v)) for v in ([7], [1.7e12], [17 * 10**14], [20240131])]
    [1.0, 1000.0, 1000000.0, 0.0]
    """
    if are_days(values):
        return 0.0
    with np.errstate(invalid="ignore"):
        size = float(np.nanmax(np.abs(values.astype(np.float64)), initial=0))
    # A date of this century is about 1e9 seconds; anything much larger counts finer units.
    return next((unit for unit in (1e9, 1e6, 1e3) if size / unit > 1e8), 1.0)


def scale_times(values: Array, unit: float) -> Array:
    """Numbers in a unit of `time_unit` as seconds; seconds come as they are."""
    if unit == 0.0:
        year, month, day = values // 10_000, values // 100 % 100, values % 100
        months = (year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1).astype(int)
        days: Array = months.astype("M8[D]") + (day - 1).astype(int)
        return days.astype("M8[s]").astype(np.int64)
    if unit == 1.0:
        return values if values.dtype.kind == "f" else values.astype(np.int64, copy=False)
    return values / unit


def are_days(values: Array) -> bool:
    """Whether whole numbers are all days of 1900 to 2100 written as 20240131."""
    if values.dtype.kind not in "iu" or len(values) == 0:
        return False
    if int(values.min()) < 19_000_101 or int(values.max()) > 21_001_231:
        return False
    seconds = scale_times(values.astype(np.int64), 0.0)
    days = seconds.astype("M8[s]").astype("M8[D]")
    months = days.astype("M8[M]")
    day = (days - months.astype("M8[D]")).astype(int) + 1
    written = (months.astype(int) // 12 + 1970) * 10_000 + (months.astype(int) % 12 + 1) * 100 + day
    return bool(np.array_equal(written, values))
