"""Times of any spelling as seconds since 1970."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.rows import Rows
from streamgauge.tables.values import Ints, clean_text, is_text

Array = NDArray[Any]

# Day and month in either order cannot be told apart, so such dates are refused.
_TIME_FORMATS = ("%Y:%m:%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d")
_ZONE = r"(\d:\d\d(?::\d\d)?(?:[.,]\d+)?)\s*(?:UTC|GMT|Z)$"
_NO_ZONE = r"^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?(?:\.\d+)?))?$"
CYCLES = {"day": 86_400.0, "week": 604_800.0, "year": 31_556_952.0}  # seconds; a mean year


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
            raise self._unreadable(f"values of type {kind}")
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
        if self.unit is None and len(present):
            self.unit = time_unit(present)
        if self.unit == 0.0 and not are_days(present):
            raise self._unreadable(str(present[0]))
        values = scale_times(values, 1.0 if self.unit is None else self.unit)
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
            f"column '{self.name}' has times that cannot be read, such as '{example}': write"
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


def calendar(time: Ints) -> dict[str, NDArray[np.float64]]:
    """Time as inputs of a model: sine and cosine of the time of day (UTC), of the week and of the
    year.

    >>> {name: round(float(v[0]), 2) for name, v in calendar(np.array([18_000])).items()}
    {'day_sin': 0.97, 'day_cos': 0.26, 'week_sin': 0.19, 'week_cos': 0.98, 'year_sin': 0.0,
     'year_cos': 1.0}
    """
    columns = {}
    for name, length in CYCLES.items():
        angle = 2 * np.pi * (time % length) / length
        columns[f"{name}_sin"], columns[f"{name}_cos"] = np.sin(angle), np.cos(angle)
    return columns
