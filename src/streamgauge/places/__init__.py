"""Geographic classes made of S2 cells, labels for points, and a map."""

from __future__ import annotations

from streamgauge.places.cells import GeoClasses, build_classes, leaf_cells, load_classes
from streamgauge.places.map import class_centres
from streamgauge.places.points import label_points

__all__ = [
    "GeoClasses",
    "build_classes",
    "class_centres",
    "label_points",
    "leaf_cells",
    "load_classes",
]
