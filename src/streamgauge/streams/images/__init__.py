"""Encoded images: where they are stored, and how they become pixels."""

from __future__ import annotations

from streamgauge.versions import renamed

# Until 0.1 this was the module that is now `streams.images.image_source`.
_OLD = ("BadImage", "FORMATS", "ImageSource", "Items", "MAX_PIXELS", "SUFFIXES", "decode")
__getattr__ = renamed(__name__, {name: f"streams.images.image_source:{name}" for name in _OLD})
