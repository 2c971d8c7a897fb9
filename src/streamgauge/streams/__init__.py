"""What arrives, and in which order: sources, orders, and generators with known truth.

A stream by name is one file in this room, with a frozen dataclass `Config` (its settings) and a
function `build(config)` that makes the stream. Adding a data set is adding such a file.
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
