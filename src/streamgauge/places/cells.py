"""Classes that are places: S2 cells, small where there are many points and large where few.

Source: Cai et al. 2021 (CLOC), section 4, after PlaNet (Weyand et al. 2016): begin with the six
faces of the S2 cube; divide a cell into its four children while it holds more than 10,000 images of
the preparation set; drop cells that hold fewer than 50. What is left are the classes. No code was
released for it, and no deepest level is stated; `max_level` 30 is S2's own.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_text

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ids = NDArray[np.uint64]
Labels = NDArray[np.int32]

FORMAT, VERSION = "streamgauge-cells", 1
PREFIX = "s2:"  # of a class's name, so that a token such as "3" is not taken for a number
LEVELS = 30
PIECE = 1 << 18  # points a thread takes at a time


@dataclass(frozen=True, repr=False)
class GeoClasses:
    """Disjoint S2 cells in the order of their ids; class c is cell c.

    `count` are the points of the preparation set in each cell, `centre` the middle of each as
    latitude and longitude. `points` is how many points there were to build from, also those whose
    cell was dropped.
    """

    cell: Ids
    count: Ints
    centre: Floats
    split_above: int
    keep_from: int
    max_level: int
    points: int

    def __len__(self) -> int:
        return len(self.cell)

    def __repr__(self) -> str:
        return f"GeoClasses({len(self)} cells of {self.points:,} points)"

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """S2's short names of the cells: the id in hexadecimal without the zeros at its end."""
        return tuple(f"{int(one):016x}".rstrip("0") for one in self.cell)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, such as ``s2:6ad64``: cells can be found again from them alone."""
        return tuple(PREFIX + token for token in self.tokens)

    @property
    def level(self) -> NDArray[np.int64]:
        """0 is a face of the cube, 30 a square centimetre; each level halves the edges."""
        return np.array([level_of(int(one)) for one in self.cell], np.int64)

    @property
    def dropped(self) -> int:
        """Points of the preparation set that lie in no class."""
        return self.points - int(self.count.sum())

    def label(
        self, latitude: ArrayLike, longitude: ArrayLike, threads: int | None = None
    ) -> Labels:
        """The class of each point, or -1 where it lies in none or has no coordinates."""
        from streamgauge.places._kernels import search_ranges

        half = (self.cell & (~self.cell + np.uint64(1))) - np.uint64(1)
        low, high = self.cell - half, self.cell + half
        first, second = _coordinates(latitude, longitude)
        found = np.empty(first.size, np.int32)

        def work(part: slice) -> None:
            search_ranges(_leaves(first[part], second[part]), low, high, found[part])

        _in_threads(work, first.size, threads)
        return found

    def save(self, path: str | Path) -> Path:
        """Write the classes as a small text file (JSON, one cell a line; see docs/places.md)."""
        head = {
            "format": FORMAT,
            "version": VERSION,
            "split_above": self.split_above,
            "keep_from": self.keep_from,
            "max_level": self.max_level,
            "points": self.points,
        }
        cells = [
            {
                "class": number,
                "token": token,
                "level": int(level),
                "latitude": float(centre[0]),
                "longitude": float(centre[1]),
                "count": int(count),
            }
            for number, (token, level, centre, count) in enumerate(
                zip(self.tokens, self.level, self.centre, self.count, strict=True)
            )
        ]
        lines = ",\n".join("  " + json.dumps(cell) for cell in cells)
        text = json.dumps(head, indent=1)[:-2] + ',\n "cells": [\n' + lines + "\n ]\n}\n"
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, text)
        except OSError as error:
            raise StreamgaugeError(
                f"The classes cannot be written to {target}: {error.strerror or error}."
            ) from None
        return target


def build_classes(
    latitude: ArrayLike,
    longitude: ArrayLike,
    *,
    split_above: int = 10_000,
    keep_from: int = 50,
    max_level: int = LEVELS,
) -> GeoClasses:
    """Divide the earth so that no class has more than `split_above` of these points.

    A cell at `max_level` is not divided, however many points it holds. Points without coordinates
    (NaN) are left out of the count.

    >>> paris, sydney = (48.86, 2.35), (-33.87, 151.21)
    >>> classes = build_classes(*zip(paris, paris, sydney), split_above=2, keep_from=2)
    >>> classes.names, classes.count  # both lie where a cube's face, all of it, is small enough
    (('s2:5',), array([2]))
    """
    from streamgauge.places._s2 import centres

    for name, value, least, most in (
        ("split_above", split_above, 1, None),
        ("keep_from", keep_from, 1, None),
        ("max_level", max_level, 0, LEVELS),
    ):
        if value < least or (most is not None and value > most):
            limits = f"from {least} on" if most is None else f"from {least} to {most}"
            raise StreamgaugeError(
                f"--{name.replace('_', '-')} is a whole number {limits}; it is {value}."
            )
    leaves = leaf_cells(latitude, longitude)
    leaves = np.sort(leaves[leaves != 0])
    if leaves.size == 0:
        raise StreamgaugeError("No point of the preparation set has coordinates to build from.")
    kept: list[tuple[int, int]] = []
    waiting = [((face << 61) + (1 << 60), 0) for face in range(6)]
    while waiting:
        cell, level = waiting.pop()
        lowest = cell & -cell
        edges = np.array([cell - (lowest - 1), cell + (lowest - 1)], np.uint64)
        start = int(np.searchsorted(leaves, edges[0], "left"))
        count = int(np.searchsorted(leaves, edges[1], "right")) - start
        if count > split_above and level < max_level:
            waiting.extend((child, level + 1) for child in children(cell))
        elif count >= keep_from:
            kept.append((cell, count))
    if not kept:
        raise StreamgaugeError(
            f"No cell holds at least {keep_from} of the {leaves.size:,} points: lower --keep-from."
        )
    kept.sort()
    cells = np.array([cell for cell, _ in kept], np.uint64)
    return GeoClasses(
        cells,
        np.array([count for _, count in kept], np.int64),
        centres(cells),
        split_above,
        keep_from,
        max_level,
        int(leaves.size),
    )


def load_classes(path: str | Path) -> GeoClasses:
    """Read classes that were saved."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise StreamgaugeError(f"The classes in {path} cannot be read: {why}.") from None
    try:
        head = json.loads(text)
        if head["format"] != FORMAT:
            raise ValueError("it is of another format")
        if head["version"] != VERSION:
            raise ValueError(f"it is of version {head['version']}, and this reads {VERSION}")
        cells = head["cells"]
        ids = np.array([cell_of(one["token"]) for one in cells], np.uint64)
        classes = GeoClasses(
            ids,
            np.array([int(one["count"]) for one in cells], np.int64),
            np.array([[one["latitude"], one["longitude"]] for one in cells], np.float64),
            *(int(head[name]) for name in ("split_above", "keep_from", "max_level", "points")),
        )
    except (ValueError, KeyError, TypeError) as error:
        why = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else error
        raise StreamgaugeError(f"{path} is no file of classes: {why}.") from None
    half = (ids & (~ids + np.uint64(1))) - np.uint64(1)
    if len(ids) == 0 or bool(np.any((ids - half)[1:] <= (ids + half)[:-1])):
        raise StreamgaugeError(f"{path} holds no cells, or cells that overlap or are not in order.")
    return classes


def leaf_cells(latitude: ArrayLike, longitude: ArrayLike, threads: int | None = None) -> Ids:
    """The S2 leaf cell id of each point in degrees; 0 where a coordinate is NaN.

    >>> [hex(one) for one in leaf_cells([48.8584, float("nan")], [2.2945, 0.0])]
    ['0x47e66fe1f36a36a5', '0x0']
    """
    first, second = _coordinates(latitude, longitude)
    found = np.empty(first.size, np.uint64)

    def work(part: slice) -> None:
        found[part] = _leaves(first[part], second[part])

    _in_threads(work, first.size, threads)
    return found


def cell_of(token: str) -> int:
    """The id of a token; ValueError where it names no cell.

    >>> hex(cell_of("47e66c")), level_of(cell_of("47e66c"))
    ('0x47e66c0000000000', 9)
    """
    if not isinstance(token, str) or not 1 <= len(token) <= 16:
        raise ValueError(f"'{token}' is no S2 token")
    try:
        cell = int(token.ljust(16, "0"), 16)
    except ValueError:
        cell = 0
    lowest = cell & -cell
    if cell == 0 or cell >> 61 > 5 or (lowest.bit_length() - 1) % 2 or lowest > 1 << 60:
        raise ValueError(f"'{token}' is no S2 token")
    return cell


def level_of(cell: int) -> int:
    return LEVELS - ((cell & -cell).bit_length() - 1) // 2


def children(cell: int) -> list[int]:
    """The four cells that a cell is divided into."""
    lowest = cell & -cell
    quarter = lowest >> 2
    return [cell - lowest + (2 * number + 1) * quarter for number in range(4)]


def _coordinates(latitude: ArrayLike, longitude: ArrayLike) -> tuple[Floats, Floats]:
    first, second = np.asarray(latitude), np.asarray(longitude)
    if first.ndim != 1 or first.shape != second.shape:
        raise StreamgaugeError(
            "Latitude and longitude must be two arrays with one entry a point, not of shapes "
            f"{first.shape} and {second.shape}."
        )
    for name, values in (("latitude", first), ("longitude", second)):
        if values.dtype.kind not in "fiu":
            raise StreamgaugeError(f"The {name} must be numbers in degrees, not {values.dtype}.")
    return first, second


def _leaves(latitude: NDArray[Any], longitude: NDArray[Any]) -> Ids:
    """Of a piece; converted here, so that 39 million memory-mapped points stay on disk."""
    from streamgauge.places._kernels import CURVE, leaf_ids

    first = np.ascontiguousarray(latitude, np.float64)
    second = np.ascontiguousarray(longitude, np.float64)
    for name, values, most in (("latitude", first, 90), ("longitude", second, 360)):
        bad = np.abs(values) > most
        if bad.any():
            raise StreamgaugeError(
                f"A {name} is {values[int(bad.argmax())]:g}, outside -{most}..{most} degrees: "
                "are the two columns exchanged, or in other units?"
            )
    out = np.empty(first.size, np.uint64)
    leaf_ids(first, second, CURVE, out)
    return out


def _in_threads(work: Any, count: int, threads: int | None) -> None:
    parts = [slice(start, start + PIECE) for start in range(0, count, PIECE)]
    workers = min(threads or os.cpu_count() or 1, len(parts))
    if workers <= 1:
        for part in parts:
            work(part)
        return
    work(parts[0])  # compile once, before several threads ask for it
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, parts[1:]))
