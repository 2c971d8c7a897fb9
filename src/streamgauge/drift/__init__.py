"""Is there a shift at all? A model of one period against one of the whole range, over time."""

from __future__ import annotations

from streamgauge.drift.compare import Drift, find_drift, stream_drift, table_drift

__all__ = ["Drift", "find_drift", "stream_drift", "table_drift"]
