"""Cells on a map: longitude against latitude, drawn from the cells alone, so without a network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.pages.figures import Figure, map_figure
from streamgauge.places.cells import PREFIX, cell_of, centres, level_of, library

Floats = NDArray[np.float64]


def outline(cell: int, parts: int = 8) -> Floats:
    """The border of a cell as latitude and longitude, closed, `[4 * parts + 1, 2]`. Edges of a cell
    are great circles, curved on a flat map, so each is cut into `parts` segments."""
    s2 = library()
    polygon = s2.S2Cell(s2.S2CellId(int(cell)))
    corners = np.array([[p.x(), p.y(), p.z()] for p in map(polygon.GetVertex, range(4))])
    weight = np.arange(parts)[:, None] / parts
    edges = [
        (1 - weight) * corners[corner] + weight * corners[(corner + 1) % 4] for corner in range(4)
    ]
    x, y, z = np.concatenate([*edges, corners[:1]]).T
    border: Floats = np.degrees(np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1))
    return border


def cells_named(names: Sequence[str] | None) -> list[int] | None:
    """The cells that class names speak of, or None where any of them is no cell's name.

    >>> cells_named(["s2:1", "s2:3"]), cells_named(["s2:1", "cat"]), cells_named(None)
    ([1152921504606846976, 3458764513820540928], None, None)
    """
    if not names or not all(str(name).startswith(PREFIX) for name in names):
        return None
    try:
        return [cell_of(str(name).removeprefix(PREFIX)) for name in names]
    except ValueError:
        return None


def class_centres(names: Sequence[str] | None) -> Floats:
    """Latitude and longitude that each class stands for, `[classes, 2]`, from the names of a run's
    or a stream's classes alone: what `geolocation_error` needs of a prediction.

    >>> class_centres(["s2:6ad64", "s2:5"]).round(2).tolist()
    [[-37.89, 145.14], [90.0, 0.0]]
    """
    cells = cells_named(names)
    if cells is None:
        raise StreamgaugeError(
            "These classes are no places: their names must be cells such as 's2:6ad64', as "
            "`streamgauge data classes` writes them in the column 'cell'."
        )
    return centres(cells)


def cell_map(
    title: str,
    caption: str,
    cells: Sequence[int],
    texts: Sequence[str],
    level: Sequence[int] = (),
    levels: Sequence[str] = (),
) -> Figure:
    """A map with the border of each cell, shaded by its level, and a dot at its centre that shows
    its text on hover."""
    numbers = list(level) or [0] * len(cells)
    rings = [(border, of) for cell, of in zip(cells, numbers, strict=True)
             for border in borders(outline(cell))]  # fmt: skip
    lines = [border for border, _ in rings]
    shading = [of for _, of in rings]
    return map_figure(title, caption, lines, centres(cells), texts, level=shading, levels=levels)


def borders(line: Floats) -> list[Floats]:
    """A closed border as one or more closed lines on a flat map from -180 to 180 degrees. A border
    that crosses the date line is drawn on both sides of it; one around a pole goes along the edge
    of the map there. Parts beyond the edge are for the axes to cut off."""
    polar = np.abs(line[:-1, 0]) > 90 - 1e-9
    if polar.any():  # a corner at a pole has no longitude: on the map it is an edge, side to side
        at = int(polar.argmax())
        ring = np.roll(line[:-1], -at, axis=0)
        ends = ring[[0, 0]]
        ends[:, 1] = ring[-1, 1], ring[1, 1]
        line = np.concatenate([ends, ring[1:], ends[:1]])
    latitude, longitude = line.T
    longitude = np.degrees(np.unwrap(np.radians(longitude)))
    turn = longitude[-1] - longitude[0]
    if abs(turn) > 180:  # once around: close it along the pole
        pole = math.copysign(90.0, float(latitude.mean()))
        latitude = np.concatenate([latitude, [pole, pole, latitude[0]]])
        longitude = np.concatenate([longitude, [longitude[-1], longitude[0], longitude[0]]])
    return [
        np.stack([latitude, longitude + 360 * side], axis=1)
        for side in (-1, 0, 1)
        if longitude.max() + 360 * side > -180 and longitude.min() + 360 * side < 180
    ]


def cell_text(cell: int, *more: str) -> str:
    """The hover text of a cell."""
    token = f"{cell:016x}".rstrip("0")
    return "<br>".join([f"{PREFIX}{token}, level {level_of(cell)}", *more])
