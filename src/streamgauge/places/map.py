"""Cells on a map: longitude against latitude, drawn from the cells alone, so without a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.places._s2 import centres, outline
from streamgauge.places.cells import PREFIX, cell_of, level_of

Floats = NDArray[np.float64]


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


def cell_traces(cells: Sequence[int], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Borders of all cells as one filled line, and a point in the middle of each with its text."""
    x: list[float | None] = []
    y: list[float | None] = []
    for cell in cells:
        for border in borders(outline(cell)):
            if x:
                x.append(None)
                y.append(None)
            x += [round(float(one), 5) for one in border[:, 1]]
            y += [round(float(one), 5) for one in border[:, 0]]
    middle = centres(cells)
    return [
        {
            "type": "scatter", "mode": "lines", "x": x, "y": y, "fill": "toself",
            "hoverinfo": "skip", "name": "cells", "showlegend": False, "line": {"width": 1},
            "meta": {"map": "cells"},
        },
        {
            "type": "scatter", "mode": "markers", "x": middle[:, 1].round(5).tolist(),
            "y": middle[:, 0].round(5).tolist(), "text": list(texts),
            "hovertemplate": "%{text}<extra></extra>", "name": "centres", "showlegend": False,
            "marker": {"size": 3}, "meta": {"map": "centres"},
        },
    ]  # fmt: skip


def borders(line: Floats) -> list[Floats]:
    """A closed border as one or more closed lines on a flat map from -180 to 180 degrees.

    A border that crosses the date line is drawn on both sides of it; one around a pole goes along
    the edge of the map there. Parts beyond the edge are for the axes to cut off.
    """
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


def map_layout(traces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Axes that show all cells, a degree of longitude as wide as it is in the middle of them."""
    x = np.array([one for one in traces[0]["x"] if one is not None]).clip(-180, 180)
    y = np.array([one for one in traces[0]["y"] if one is not None])
    room = 0.03 * max(float(np.ptp(x)), float(np.ptp(y)), 1e-4)
    middle = math.radians(float(y.min() + y.max()) / 2)
    # Far from the equator a whole globe cannot be shown true to size anyway.
    ratio = 1 / max(0.2, math.cos(middle)) if np.ptp(x) < 90 else 1.0
    return {
        "xaxis": {
            "title": {"text": "longitude"},
            "range": [max(-180, float(x.min()) - room), min(180, float(x.max()) + room)],
            "constrain": "domain",
        },
        "yaxis": {
            "title": {"text": "latitude"},
            "range": [max(-90, float(y.min()) - room), min(90, float(y.max()) + room)],
            "scaleanchor": "x",
            "scaleratio": ratio,
            "constrain": "domain",
            "tickformat": "",
            "rangemode": "normal",
        },
        "hovermode": "closest",
        "showlegend": False,
    }


def cell_text(cell: int, *more: str) -> str:
    """What is said of a cell where the pointer rests on it."""
    token = f"{cell:016x}".rstrip("0")
    return "<br>".join([f"{PREFIX}{token}, level {level_of(cell)}", *more])
