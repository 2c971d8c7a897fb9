"""Drift test: models trained on single periods, tested in all periods of a stream."""

from __future__ import annotations

from streamgauge.drift.compare import Drift, find_drift, stream_drift, table_drift

__all__ = ["Drift", "find_drift", "stream_drift", "table_drift"]
