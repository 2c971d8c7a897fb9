"""Geographic classes: S2 cells, small where there are many points and large where there are few.

Source: Cai et al. 2021 (CLOC), section 4, after PlaNet (Weyand et al. 2016): start with the six
faces of the S2 cube; divide a cell into its four children while it contains more than 10,000 images
of the preparation set; drop cells with fewer than 50. The remaining cells are the classes. The
paper released no code and states no deepest level; the default `max_level` 30 is the limit of S2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.files import write_result

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ids = NDArray[np.uint64]
Labels = NDArray[np.int32]

FORMAT, VERSION = "streamgauge-cells", 1
SETTINGS = ("split_above", "keep_from", "max_level", "points")
PREFIX = "s2:"  # of class names, so that a token such as "3" is not read as a number
LEVELS = 30
CHUNK = 1 << 18  # points per thread and call


@dataclass(frozen=True, repr=False)
class GeoClasses:
    """Disjoint S2 cells in the order of their ids; class c is cell c.

    `count` is the number of points of the preparation set per cell, `centre` the latitude and
    longitude of the centre of each cell. `points` is the size of the preparation set, including
    points in dropped cells.
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
        """S2 tokens of the cells: the ids in hexadecimal without trailing zeros."""
        return tuple(f"{int(cell):016x}".rstrip("0") for cell in self.cell)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names, such as ``s2:6ad64``; each name identifies its cell."""
        return tuple(PREFIX + token for token in self.tokens)

    @property
    def level(self) -> NDArray[np.int64]:
        """Level per cell: 0 is a face of the cube, 30 a square centimetre."""
        return np.array([level_of(int(cell)) for cell in self.cell], np.int64)

    @property
    def dropped(self) -> int:
        """Number of points of the preparation set that are in no class."""
        return self.points - int(self.count.sum())

    @property
    def leaf_range(self) -> tuple[Ids, Ids]:
        """The first and the last leaf of each cell."""
        reach = (self.cell & (~self.cell + np.uint64(1))) - np.uint64(1)
        return self.cell - reach, self.cell + reach

    def label(
        self, latitude: ArrayLike, longitude: ArrayLike, threads: int | None = None
    ) -> Labels:
        """The class of each point, or -1 if it is in no class or has no coordinates."""
        from streamgauge.places._kernels import search_ranges

        low, high = self.leaf_range
        latitudes, longitudes = _coordinates(latitude, longitude)
        labels = np.empty(latitudes.size, np.int32)

        def work(chunk: slice) -> None:
            search_ranges(_leaves(latitudes[chunk], longitudes[chunk]), low, high, labels[chunk])

        _in_chunks(work, latitudes.size, threads)
        return labels

    def save(self, path: str | Path) -> Path:
        """Write the classes as JSON, one cell per line (see docs/places.md)."""
        header = {"format": FORMAT, "version": VERSION}
        header |= {name: getattr(self, name) for name in SETTINGS}
        columns = {
            "class": range(len(self)),
            "token": self.tokens,
            "level": self.level.tolist(),
            "latitude": self.centre[:, 0].tolist(),
            "longitude": self.centre[:, 1].tolist(),
            "count": self.count.tolist(),
        }
        rows = zip(*columns.values(), strict=True)
        lines = ",\n".join("  " + json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
        text = json.dumps(header, indent=1)[:-2] + ',\n "cells": [\n' + lines + "\n ]\n}\n"
        return write_result(path, text)


def build_classes(
    latitude: ArrayLike,
    longitude: ArrayLike,
    *,
    split_above: int = 10_000,
    keep_from: int = 50,
    max_level: int = LEVELS,
) -> GeoClasses:
    """Divide the earth into cells with at most `split_above` of these points each.

    Cells at `max_level` are not divided further. Points without coordinates (NaN) are ignored.

    >>> paris, sydney = (48.86, 2.35), (-33.87, 151.21)
    >>> classes = build_classes(*zip(paris, paris, sydney), split_above=2, keep_from=2)
    >>> classes.names, classes.count  # both lie where a cube's face, all of it, is small enough
    (('s2:5',), array([2]))
    """
    for name, value, least, most in (
        ("split_above", split_above, 1, None),
        ("keep_from", keep_from, 1, None),
        ("max_level", max_level, 0, LEVELS),
    ):
        if value < least or (most is not None and value > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise StreamgaugeError(
                f"--{name.replace('_', '-')} must be a whole number {limits}, not {value}."
            )
    leaves = leaf_cells(latitude, longitude)
    leaves = np.sort(leaves[leaves != 0])
    if leaves.size == 0:
        raise StreamgaugeError("No point of the preparation set has coordinates.")
    kept: list[tuple[int, int]] = []
    pending = [((face << 61) + (1 << 60), 0) for face in range(6)]
    while pending:
        cell, level = pending.pop()
        lowest_bit = cell & -cell
        edges = np.array([cell - (lowest_bit - 1), cell + (lowest_bit - 1)], np.uint64)
        start = int(np.searchsorted(leaves, edges[0], "left"))
        count = int(np.searchsorted(leaves, edges[1], "right")) - start
        if count > split_above and level < max_level:
            pending.extend((child, level + 1) for child in children(cell))
        elif count >= keep_from:
            kept.append((cell, count))
    if not kept:
        raise StreamgaugeError(
            f"No cell contains {keep_from} or more of the {leaves.size:,} points: "
            "lower --keep-from."
        )
    kept.sort()
    cells = np.array([cell for cell, _ in kept], np.uint64)
    counts = np.array([count for _, count in kept], np.int64)
    centre, points = centres(cells), len(leaves)
    return GeoClasses(cells, counts, centre, split_above, keep_from, max_level, points)


def load_classes(path: str | Path) -> GeoClasses:
    """Read classes written by `GeoClasses.save`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise StreamgaugeError(f"The classes in {path} cannot be read: {reason}.") from None
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError("it has another format")
        if content["version"] != VERSION:
            raise ValueError(f"it has version {content['version']}, but {VERSION} is supported")
        cells = content["cells"]
        classes = GeoClasses(
            np.array([cell_of(cell["token"]) for cell in cells], np.uint64),
            np.array([int(cell["count"]) for cell in cells], np.int64),
            np.array([[cell["latitude"], cell["longitude"]] for cell in cells], np.float64),
            *(int(content[name]) for name in SETTINGS),
        )
    except (ValueError, KeyError, TypeError) as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else error
        raise StreamgaugeError(f"{path} is not a file of classes: {reason}.") from None
    low, high = classes.leaf_range
    if len(low) == 0 or bool(np.any(low[1:] <= high[:-1])):
        raise StreamgaugeError(
            f"{path} contains no cells, or cells that overlap or are not in order."
        )
    return classes


def leaf_cells(latitude: ArrayLike, longitude: ArrayLike, threads: int | None = None) -> Ids:
    """The S2 leaf cell id of each point in degrees; 0 where a coordinate is NaN.

    >>> [hex(leaf) for leaf in leaf_cells([48.8584, float("nan")], [2.2945, 0.0])]
    ['0x47e66fe1f36a36a5', '0x0']
    """
    latitudes, longitudes = _coordinates(latitude, longitude)
    leaves = np.empty(latitudes.size, np.uint64)

    def work(chunk: slice) -> None:
        leaves[chunk] = _leaves(latitudes[chunk], longitudes[chunk])

    _in_chunks(work, latitudes.size, threads)
    return leaves


def library() -> Any:
    with packages_for("A grid of geographic classes"):
        import s2geometry
    return s2geometry


def centres(cells: Iterable[int]) -> Floats:
    """Latitude and longitude of the centre of each cell, `[cells, 2]`."""
    s2 = library()
    points = [s2.S2CellId(int(cell)).ToLatLng() for cell in cells]
    degrees = [[point.lat().degrees(), point.lng().degrees()] for point in points]
    return np.array(degrees).reshape(-1, 2)


def cell_of(token: str) -> int:
    """The id of a cell from its token; ValueError if it is not a valid token.

    >>> hex(cell_of("47e66c")), level_of(cell_of("47e66c"))
    ('0x47e66c0000000000', 9)
    """
    if not isinstance(token, str) or not 1 <= len(token) <= 16:
        raise ValueError(f"'{token}' is not an S2 token")
    try:
        cell = int(token.ljust(16, "0"), 16)
    except ValueError:
        cell = 0
    lowest_bit = cell & -cell
    if cell == 0 or cell >> 61 > 5 or (lowest_bit.bit_length() - 1) % 2 or lowest_bit > 1 << 60:
        raise ValueError(f"'{token}' is not an S2 token")
    return cell


def level_of(cell: int) -> int:
    """The level of a cell, 0 to 30."""
    return LEVELS - ((cell & -cell).bit_length() - 1) // 2


def children(cell: int) -> list[int]:
    """The ids of the four children of a cell."""
    lowest_bit = cell & -cell
    quarter = lowest_bit >> 2
    return [cell - lowest_bit + (2 * child + 1) * quarter for child in range(4)]


def _coordinates(latitude: ArrayLike, longitude: ArrayLike) -> tuple[Floats, Floats]:
    latitudes, longitudes = np.asarray(latitude), np.asarray(longitude)
    if latitudes.ndim != 1 or latitudes.shape != longitudes.shape:
        raise StreamgaugeError(
            "Latitude and longitude must be two arrays with one entry per point, not of shapes "
            f"{latitudes.shape} and {longitudes.shape}."
        )
    for name, values in (("latitude", latitudes), ("longitude", longitudes)):
        if values.dtype.kind not in "fiu":
            raise StreamgaugeError(f"The {name} must be numbers in degrees, not {values.dtype}.")
    return latitudes, longitudes


def _leaves(latitude: NDArray[Any], longitude: NDArray[Any]) -> Ids:
    """Leaf ids of one chunk, copied here so that memory-mapped arrays are never read as a whole."""
    from streamgauge.places._kernels import CURVE, leaf_ids

    latitudes = np.ascontiguousarray(latitude, np.float64)
    longitudes = np.ascontiguousarray(longitude, np.float64)
    for name, values, most in (("latitude", latitudes, 90), ("longitude", longitudes, 360)):
        bad = np.abs(values) > most
        if bad.any():
            raise StreamgaugeError(
                f"A {name} is {values[int(bad.argmax())]:g}, outside -{most}..{most} degrees: "
                "check that the columns are not swapped and are in degrees."
            )
    leaves = np.empty(latitudes.size, np.uint64)
    leaf_ids(latitudes, longitudes, CURVE, leaves)
    return leaves


def _in_chunks(work: Callable[[slice], None], count: int, threads: int | None) -> None:
    """Call a function for every chunk of an array of `count` entries, in parallel threads."""
    from streamgauge.audit.counting import in_threads

    chunks = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    in_threads([partial(work, chunk) for chunk in chunks], threads)
