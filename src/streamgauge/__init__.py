"""Streamgauge measures how well a model learns from a live stream of data."""

from __future__ import annotations

__version__ = "0.1.0"
