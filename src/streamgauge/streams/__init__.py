"""Streams: sources of samples, orders over them, and generators with known truth.

A named stream is a file in `named/`, `own/` or `pack/` with a frozen dataclass `Config` (its
settings) and a function `build(config)`, or a table in `named/splits.toml`.
"""

from __future__ import annotations

from streamgauge.streams.gate import Gate, Leak
from streamgauge.streams.images.image_source import BadImage, ImageSource
from streamgauge.streams.source import ArraySource, Source, Spec
from streamgauge.streams.stream import Arrangement, Split, Stream, arrange

__all__ = [
    "Arrangement",
    "ArraySource",
    "BadImage",
    "Gate",
    "ImageSource",
    "Leak",
    "Source",
    "Spec",
    "Split",
    "Stream",
    "arrange",
]
