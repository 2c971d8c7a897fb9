"""Points from any table: who has coordinates, which come first, and which class each lies in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_atomic, writing
from streamgauge.metrics.geo import THRESHOLDS_KM, geolocation_error
from streamgauge.places.cells import GeoClasses, build_classes
from streamgauge.tables.read import RoleTable
from streamgauge.tables.times import TimeParser, calendar
from streamgauge.tables.typed import load_array

Array = NDArray[Any]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]

ROLES = ("latitude", "longitude", "time", "user")


class Points(RoleTable):
    """A table of points in any format of `tables.read`, a `.npy` array of columns (latitude,
    longitude and perhaps time), or a folder of `latitude.npy`, `longitude.npy`, .... Its roles are
    latitude, longitude, time and user."""

    def __init__(self, data: Any, *, keep: Sequence[str] = (), **columns: Any) -> None:
        named = isinstance(data, str | Path)
        arrays = _arrays(Path(data)) if named else data
        name = str(data) if named else ""
        super().__init__(arrays, name, ROLES, columns, ROLES[:2], keep, "setting keep")
        self.keep = tuple(name for name in keep if name not in self.roles.values())

    def columns_line(self) -> str:
        """Which column was taken for what."""
        columns = [
            f"{role} = {name}{' (guessed)' if role in self.guessed and role != name else ''}"
            for role, name in self.roles.items()
        ]
        return f"Columns: {', '.join(columns)}."

    def tables(self, *roles: str, keep: bool = False) -> Iterator[tuple[int, Any]]:
        """Row number and Arrow table of some columns, a bounded number of rows at a time."""
        names = [self.roles[role] for role in roles if role in self.roles]
        if keep:
            names += self.keep
        text = [self.roles["user"]] if "user" in roles and "user" in self.roles else []
        row = 0
        for table in self.source.pieces(names, text):
            if table.num_rows:
                yield row, table
                row += table.num_rows

    def coordinates(self, table: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Degrees of a table's rows, NaN where they are missing."""
        return self.numbers(table, "latitude", "."), self.numbers(table, "longitude", ".")

    def times(self) -> Ints | None:
        """Seconds of all rows, or None where there is no column of times."""
        if "time" not in self.roles:
            return None
        name = self.roles["time"]
        parser = TimeParser(name)
        parts = [
            parser.whole_seconds(table[name], self.rows(row, len(table)))
            for row, table in self.tables("time")
        ]
        if not parts:
            raise StreamgaugeError(f"{self.name} has no rows: there is nothing to make classes of.")
        return np.concatenate(parts)


def _arrays(path: Path) -> str | Path | dict[str, Array]:
    """NumPy files as columns by name, left on disk; any other path as it is."""
    if path.is_dir() and (files := sorted(path.glob("*.npy"))):
        return {file.stem: load_array(file) for file in files}
    if path.suffix.lower() != ".npy" or not path.exists():
        return path
    array = load_array(path)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        raise StreamgaugeError(
            f"{path} has shape {array.shape}: one array of points has the columns latitude, "
            "longitude and, where known, time; or give a folder with latitude.npy and "
            "longitude.npy."
        )
    names = ("latitude", "longitude", "time")[: array.shape[1]]
    return {name: array[:, number] for number, name in enumerate(names)}


def first_rows(time: Ints | None, rows: int, share: float) -> NDArray[np.bool_]:
    """Which rows are the earliest share; of equal times those that stand first.

    >>> first_rows(np.array([30, 10, 20, 10]), 4, 0.5)
    array([False,  True, False,  True])
    """
    if not 0 < share <= 1:
        raise StreamgaugeError(f"--preparation is a share above 0 and up to 1; it is {share}.")
    wanted = max(1, round(rows * share))
    if time is None or bool(np.all(time[1:] >= time[:-1])):
        return np.arange(rows) < wanted
    limit = np.partition(time, wanted - 1)[wanted - 1]
    chosen: NDArray[np.bool_] = time < limit
    at_limit = np.flatnonzero(time == limit)
    chosen[at_limit[: wanted - int(chosen.sum())]] = True
    return chosen


def rows_of_years(time: Ints | None, years: str) -> NDArray[np.bool_]:
    """Which rows are of the years from the first to the last, such as 2004-2014, in UTC. CLOC (Cai
    et al. 2021, section 4) keeps these: earlier times are often the default of a camera.

    >>> rows_of_years(np.array([946_684_800, 1_072_915_200, 1_420_070_399]), "2004-2014")
    array([False,  True,  True])
    """
    first, _, last = years.partition("-")
    last = last or first
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last) <= 9998):
        raise StreamgaugeError(f"--years is one year or two, as 2004-2014; it is '{years}'.")
    if time is None:
        raise StreamgaugeError("--years needs a column of times: name it with --time.")
    edges = (np.datetime64(f"{year:04}", "s") for year in (int(first), int(last) + 1))
    start, end = (edge.astype(np.int64) for edge in edges)
    inside: NDArray[np.bool_] = (time >= start) & (time < end)
    if not inside.any():
        raise StreamgaugeError(f"No row is of the years {years}.")
    return inside


def classes_of(
    points: Points,
    *,
    preparation: float = 0.05,
    time: Ints | None = None,
    among: NDArray[np.bool_] | None = None,
    **limits: int,
) -> GeoClasses:
    """Build classes from the earliest share of a table's points; `limits` are those of
    `build_classes`. `time` are the seconds of all rows if they were read already; `among` are the
    rows that count."""
    time = points.times() if time is None else time
    rows = sum(t.num_rows for _, t in points.tables("latitude")) if time is None else len(time)
    if rows == 0:
        raise StreamgaugeError(f"{points.name} has no rows: there is nothing to make classes of.")
    if among is None:
        chosen = first_rows(time, rows, preparation)
    else:
        chosen = np.zeros(rows, bool)
        inside = None if time is None else time[among]
        chosen[among] = first_rows(inside, int(among.sum()), preparation)
    parts = []
    last = int(np.flatnonzero(chosen)[-1])
    for row, table in points.tables("latitude", "longitude"):
        if row > last:
            break
        parts.append(np.stack(points.coordinates(table))[:, chosen[row : row + table.num_rows]])
    return build_classes(*np.concatenate(parts, axis=1), **limits)


@dataclass(frozen=True)
class Labelling:
    """What became of a table's points."""

    rows: int
    labelled: int
    without_place: int  # no coordinates
    outside: int  # coordinates, but in no class
    count: Ints  # points of each class
    within: NDArray[np.float64]  # share of the labelled within THRESHOLDS_KM of their cell's centre
    out: Path | None
    other_years: int = 0  # left out by `among`


def label_points(
    points: Points | str | Path | Mapping[str, Any],
    classes: GeoClasses,
    out: str | Path | None = None,
    *,
    threads: int | None = None,
    time: Ints | None = None,
    when: bool = False,
    among: NDArray[np.bool_] | None = None,
) -> Labelling:
    """Find every point's class, count those without one, and write the rest where `out` says. Rows
    that are not `among` those given have no class.

    A `.npy` file holds one number a row of the table, in its order, -1 for no class. A `.parquet`
    or `.csv` file holds the rows that have a class, in order of time where there are times:
    `row` (of the table, from 0), `time` in seconds, `user`, `latitude`, `longitude`, the columns
    kept, with `when` the columns of `calendar`, then `label` and `cell`, the name of the class.
    """
    source = points if isinstance(points, Points) else Points(points)
    target = None if out is None else Path(out)
    if target is not None and target.suffix.lower() not in (".npy", ".parquet", ".csv"):
        raise StreamgaugeError(f"Labels are written as .parquet, .csv or .npy, not as {target}.")
    if time is None:
        time = source.times()
    if when and time is None:
        raise StreamgaugeError("The calendar needs a column of times: name it with --time.")
    rows = without = other = 0
    count = np.zeros(len(classes), np.int64)
    within = np.zeros(len(THRESHOLDS_KM))
    whole = target is not None and target.suffix.lower() != ".npy"
    roles = ("latitude", "longitude", "user") if whole else ("latitude", "longitude")
    with ExitStack() as stack:
        writer = None
        if target is not None:
            stack.enter_context(writing(target))
            part = stack.enter_context(write_atomic(target))
            writer = _Writer(part, target.suffix.lower(), source, classes, time, when)
            stack.callback(writer.close)
        for row, table in source.tables(*roles, keep=whole):
            latitude, longitude = source.coordinates(table)
            label = classes.label(latitude, longitude, threads)
            if among is not None:
                out_of_years = ~among[row : row + len(label)]
                label[out_of_years] = -1
                other += int(out_of_years.sum())
            in_class = label >= 0
            rows += len(label)
            nowhere = np.isnan(latitude) | np.isnan(longitude)
            if among is not None:
                nowhere &= among[row : row + len(label)]
            without += int(np.count_nonzero(nowhere))
            count += np.bincount(label[in_class], minlength=len(classes))
            if in_class.any():
                location = np.stack([latitude, longitude], axis=1)[in_class]
                error = geolocation_error(location, classes.centre[label[in_class]])
                within += error.within * len(location)
            if writer is not None:
                writer.add(row, table, latitude, longitude, label)
        if rows == 0:
            raise StreamgaugeError(f"{source.name} has no rows: there is nothing to label.")
        if writer is not None:
            writer.finish()
    labelled = int(count.sum())
    share = within / labelled if labelled else np.full(len(within), np.nan)
    outside = rows - labelled - without - other
    return Labelling(rows, labelled, without, outside, count, share, target, other)


@dataclass
class _Writer:
    """Writes labelled rows to a file. A table in order of time is written piece by piece; another
    one is kept in memory and sorted."""

    file: Path
    ending: str
    points: Points
    classes: GeoClasses
    time: Ints | None
    when: bool
    unsorted: list[pa.Table] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)
    sink: Any = None

    def __post_init__(self) -> None:
        self.sorted = self.time is None or bool(np.all(self.time[1:] >= self.time[:-1]))

    def add(self, row: int, table: Any, latitude: Array, longitude: Array, label: Labels) -> None:
        if self.ending == ".npy":
            self.labels.append(label)
            return
        chosen = np.flatnonzero(label >= 0)
        columns: dict[str, Any] = {"row": row + chosen}
        if self.time is not None:
            columns["time"] = self.time[row + chosen]
        if "user" in self.points.roles:
            user = table[self.points.roles["user"]]
            if pa.types.is_dictionary(user.type):  # numbered afresh in every piece
                user = user.cast(user.type.value_type)
            columns["user"] = user.take(chosen)
        columns |= {"latitude": latitude[chosen], "longitude": longitude[chosen]}
        for name in self.points.keep:
            if name not in columns:
                columns[name] = table[name].take(chosen)
        if self.when and self.time is not None:
            columns |= calendar(columns["time"])
        columns["label"] = label[chosen]
        columns["cell"] = pa.array(self.classes.names).take(label[chosen])
        if self.sorted:
            self._write(pa.table(columns))
        else:
            self.unsorted.append(pa.table(columns))

    def _write(self, table: Any) -> None:
        from pyarrow import csv, parquet

        kind = csv.CSVWriter if self.ending == ".csv" else parquet.ParquetWriter
        self.sink = self.sink or kind(str(self.file), table.schema)
        self.sink.write_table(table)

    def finish(self) -> None:
        if self.ending == ".npy":
            with self.file.open("wb") as file:
                np.save(file, np.concatenate(self.labels))
        elif self.unsorted:
            whole = pa.concat_tables(self.unsorted)
            self._write(whole.take(np.argsort(whole["time"].to_numpy(), kind="stable")))

    def close(self) -> None:
        if self.sink is not None:
            self.sink.close()
