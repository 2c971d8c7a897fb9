"""What cells mean: missing values, text, classes and numbers.

A whole number is one class however it is written (3, "3", " 3 ", 3.0, "3.0"), True and False are 1
and 0, codes with leading zeros are names, and blanks around a cell do not count.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, first_line

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
_SHORT = re.compile(r"\d+e\d+", re.I)  # 4e2: a number among numbers, else a name
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
    if holds_numbers:
        chunks = [(indices, _written_out(texts)) for indices, texts in chunks]
    words = pa.array(sorted(MISSING | MISSING_NUMBERS if holds_numbers else MISSING))
    arrays = []
    for indices, texts in chunks:
        missing = pc.is_in(texts, value_set=words)
        if pc.any(missing).as_py():
            indices = pc.if_else(missing.take(indices), pa.scalar(None, indices.type), indices)
        arrays.append(pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), texts))
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.chunked_array(arrays, kind), holds_numbers


def cells(values: pa.Array) -> list[Any]:
    """Values as those of Python, which has no dates after the year 9999."""
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError) as error:
        raise StreamgaugeError(
            f"A column of type {values.type} holds a value out of range ({first_line(error)}):"
            " write the column as text"
        ) from None


def _written_out(texts: pa.StringArray) -> pa.StringArray:
    """1e3 as 1000."""

    def written(text: str | None) -> str | None:
        whole = _whole_number(text) if text and _SHORT.fullmatch(text) else None
        return text if whole is None else str(whole)

    return pa.array([written(text) for text in texts.to_pylist()], pa.string())


def _whole_number(text: str) -> int | None:
    """The whole number that a float is, if it has 64 bits."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1 << 63 else None


def class_key(value: Any) -> Any:
    """What identifies a class: an int for whole numbers, a float for fractions, else trimmed text.

    Text that looks like a fraction stays text: it may be a name (see `Vocabulary.fraction`).

    >>> [class_key(v) for v in (3, "3", " 3.0", 3.0, True, "False", "007", 3.5, " UP ", "nan")]
    [3, 3, 3, 3, 1, 0, '007', 3.5, 'UP', None]
    >>> [class_key(v) for v in ("3.10", "1.000e+00", "1e+05", "4e2")]
    ['3.10', 1, 100000, '4e2']
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
        if "e" in value.lower() and _NUMBER.fullmatch(value) and not _SHORT.fullmatch(value):
            whole = _whole_number(value)
            return value if whole is None else whole
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value


def is_name(key: Any) -> bool:
    """Whether the key of a class is text that no fraction is written as.

    >>> [is_name(key) for key in ("UP", "007", "3.10", 3, 0.5)]
    [True, True, False, False, False]
    """
    if not isinstance(key, str):
        return False
    return not _NUMBER.fullmatch(key) or key.isdigit() or bool(_SHORT.fullmatch(key))


class Vocabulary:
    """Classes as numbers in the order they are met; the same in every pass over a table."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.texts: dict[Any, str] = {}  # how each class was first written

    def encode(self, column: pa.ChunkedArray) -> Codes:
        """A number per cell, -1 where missing."""
        chunks = []
        for chunk in column.chunks:
            if pa.types.is_nested(chunk.type):
                raise StreamgaugeError(
                    f"A column of type {chunk.type} holds no classes or names: name another column"
                )
            if not pa.types.is_dictionary(chunk.type):
                chunk = chunk.dictionary_encode()
            count = len(chunk.dictionary)
            indices = chunk.indices.cast(pa.int32()).fill_null(count).to_numpy(zero_copy_only=False)
            used = np.bincount(indices, minlength=count + 1)[:count] > 0
            values = cells(chunk.dictionary)
            known = [self.number(v) if u else -1 for v, u in zip(values, used, strict=True)]
            chunks.append(np.array([*known, -1], np.int32)[indices])
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int32)

    def number(self, value: Any) -> int:
        key = class_key(value)
        if key is None:
            return -1
        self.texts.setdefault(key, str(value).strip() if isinstance(value, str) else str(key))
        return self.numbers.setdefault(key, len(self.numbers))

    def fraction(self, codes: Codes) -> Any | None:
        """A number that is no class, such as 0.73, where a column has one and has no names."""
        keys = self._used(codes)
        if any(map(is_name, keys)):
            return None
        return next((key for key in keys if not isinstance(key, int)), None)

    def has_names(self, codes: Codes) -> bool:
        """Whether a class of a column is neither a number nor looks like one."""
        return any(map(is_name, self._used(codes)))

    def _used(self, codes: Codes) -> list[Any]:
        used = np.bincount(codes[codes >= 0], minlength=len(self.numbers)) > 0
        return [key for key, there in zip(self.numbers, used, strict=True) if there]

    @property
    def whole(self) -> bool:
        """Whether all classes are whole numbers of 64 bits."""
        return all(isinstance(key, int) and abs(key) < 1 << 63 for key in self.numbers)

    def sorted_ranks(self) -> Codes:
        """The rank of each class: whole numbers by size, then names by alphabet."""
        names = list(self.numbers)
        ranked = sorted(range(len(names)), key=lambda i: (isinstance(names[i], str), names[i]))
        ranks = np.empty(len(names), np.int32)
        ranks[ranked] = np.arange(len(names), dtype=np.int32)
        return ranks


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Cells as 64-bit floats, NaN where missing; None where some are no numbers."""
    if is_text(column.type):
        column = clean_text(column, True)[0].cast(pa.string())
    try:  # whole numbers above 2^53 lose their last digits
        safe = not pa.types.is_integer(column.type)
        return np.asarray(column.cast(pa.float64(), safe=safe).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


class StrayText(NamedTuple):
    """A text column of which nearly all cells are numbers."""

    values: NDArray[np.float64]  # NaN where missing, and where a cell is other text
    stray: NDArray[np.bool_]  # cells that are other text
    example: str  # the first of them


def numbers_with_stray_text(column: pa.ChunkedArray) -> StrayText | None:
    """Cells as numbers where at least nine in ten are, such as a column with a few "error"."""
    if not is_text(column.type):
        return None
    coded = clean_text(column, True)[0].combine_chunks()
    texts = coded.dictionary.to_pylist()
    known = [float(text) if _NUMBER.fullmatch(text or "") else math.nan for text in texts]
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    there = codes >= 0
    values = np.append(np.array(known, np.float64), np.nan)[codes]
    stray = there & np.isnan(values)
    if not stray.any() or stray.sum() > 0.1 * there.sum():
        return None
    return StrayText(values, stray, texts[codes[stray.argmax()]])
