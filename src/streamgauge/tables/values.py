"""What cells mean: missing values, labels, users, times and numbers.

Labels: a whole number is one class however it is written (3, "3", " 3 ", 3.0, "3.0"), True and
False are 1 and 0, codes with leading zeros are names, and blanks around a cell do not count. Times
are seconds since 1970 in UTC; see `TimeParser`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

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


class Labels(NamedTuple):
    """Labels as class numbers, -1 where missing, and the names of the classes where they have."""

    label: Ints
    names: list[str] | None


def code_labels(column: pa.ChunkedArray, table: str, numbering: str = "auto") -> Labels:
    """Whole numbers from 0 stay as they are; ids far apart and names are numbered in their order.

    `numbering` is auto, numbers (never renumber) or names (always). Numbers below 0 stay, for the
    caller to refuse.
    """
    words = Vocabulary()
    codes = words.encode(column)
    if words.fraction is not None:
        raise StreamgaugeError(
            f"The labels of {table} hold fractions such as {words.fraction}, but labels are whole"
            " numbers or names: there is no regression here."
        )
    if not words.whole:
        if numbering == "numbers":
            name = next(text for key, text in words.texts.items() if isinstance(key, str))
            raise StreamgaugeError(
                f"The labels of {table} are text, as '{name}' is: set --stream.labels to auto or"
                " names."
            )
        return _ranked([str(text) for text in words.texts.values()], codes)
    keys = np.array([*words.numbers, -1], np.int64)
    present = np.sort(keys[:-1][keys[:-1] >= 0])
    sparse = len(present) > 0 and int(present[-1]) >= 10 * len(present) + 100
    if numbering == "names" or (numbering == "auto" and sparse):
        order = np.argsort(np.argsort(keys[:-1]))
        below = int(np.sum(keys[:-1] < 0))
        numbered = np.append(order - below, -1)
        return Labels(numbered[codes], [str(key) for key in present])
    return Labels(keys[codes], None)


def _ranked(names: Sequence[str], codes: Codes) -> Labels:
    order = sorted(range(len(names)), key=lambda at: names[at])
    rank = np.empty(len(names) + 1, np.int64)
    rank[order], rank[-1] = np.arange(len(names)), -1
    return Labels(rank[codes], [names[at] for at in order])


def code_groups(column: pa.ChunkedArray) -> Ints:
    """Users or domains as numbers: whole numbers as they are, -1 where missing; names numbered by
    alphabet, an empty one being a name."""
    if pa.types.is_integer(column.type) and (pc.max(column).as_py() or 0) < 1 << 63:
        return np.asarray(pc.fill_null(column, -1)).astype(np.int64, copy=False)
    if pa.types.is_nested(column.type):
        raise StreamgaugeError(f"A column of users or domains is of type {column.type}.")
    words = Vocabulary()
    codes = words.encode(column)
    if words.whole:
        return np.array([*words.numbers, -1], np.int64)[codes]
    names = [*words.texts.values(), *([""] if (codes < 0).any() else [])]
    return _ranked(names, np.where(codes < 0, len(names) - 1, codes)).label


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Cells as 64-bit floats, NaN where missing; None where some are no numbers."""
    if is_text(column.type):
        column = clean_text(column, True)[0].cast(pa.string())
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


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

    def whole_seconds(self, column: pa.ChunkedArray) -> Ints:
        """Seconds rounded down; no cell may be missing."""
        return np.floor(self.seconds(column)).astype(np.int64)

    def _from_numbers(self, column: pa.ChunkedArray) -> Array:
        values = np.asarray(pc.fill_null(column, 0))
        if self.unit is None:
            self.unit = time_unit(values[np.asarray(column.is_valid())])
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
            f" with {self.option} none"
        )


def time_unit(values: Array) -> float:
    """Units per second of numbers that are times; 0 for days written as 20240131.

    >>> [time_unit(np.array(v)) for v in ([7], [1.7e12], [17 * 10**14], [20240131])]
    [1.0, 1000.0, 1000000.0, 0.0]
    """
    if values.dtype.kind in "iu" and len(values) and _all_days(values):
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


def _all_days(values: Array) -> bool:
    if int(values.min()) < 19_000_101 or int(values.max()) > 21_001_231:
        return False
    seconds = scale_times(values.astype(np.int64), 0.0)
    days = seconds.astype("M8[s]").astype("M8[D]")
    months = days.astype("M8[M]")
    day = (days - months.astype("M8[D]")).astype(int) + 1
    written = (months.astype(int) // 12 + 1970) * 10_000 + (months.astype(int) % 12 + 1) * 100 + day
    return bool(np.array_equal(written, values))
