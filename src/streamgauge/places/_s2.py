"""Centres and outlines of cells, computed with the library s2geometry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

Floats = NDArray[np.float64]


def library() -> Any:
    try:
        import s2geometry
    except ImportError:
        raise StreamgaugeError(
            "Geographic classes need s2geometry: pip install 'streamgauge[geo]'."
        ) from None
    return s2geometry


def centres(cells: Iterable[int]) -> Floats:
    """Latitude and longitude of the centre of each cell, `[cells, 2]`."""
    s2 = library()
    points = [s2.S2CellId(int(cell)).ToLatLng() for cell in cells]
    degrees = [[point.lat().degrees(), point.lng().degrees()] for point in points]
    return np.array(degrees).reshape(-1, 2)


def outline(cell: int, parts: int = 8) -> Floats:
    """The border of a cell as latitude and longitude, closed, `[4 * parts + 1, 2]`.

    Edges of a cell are great circles, curved on a flat map, so each is cut into `parts` segments.
    """
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
