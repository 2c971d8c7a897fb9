"""The papers' experiments as data, with their numbers and ours."""

from __future__ import annotations

from streamgauge.suites.spec import Row, Suite, load, names

__all__ = ["Row", "Suite", "load", "names"]
