"""The run folder: log, checkpoint, configuration, environment; resume, and reading it back."""

from __future__ import annotations

from streamgauge.record.environment import environment
from streamgauge.record.run import PLACES, Run, Table, find_runs
from streamgauge.record.tables import LOG_VERSION, OPTIONAL, TABLES
from streamgauge.record.writer import Recorder, read_checkpoint

__all__ = [
    "LOG_VERSION",
    "OPTIONAL",
    "PLACES",
    "TABLES",
    "Recorder",
    "Run",
    "Table",
    "environment",
    "find_runs",
    "read_checkpoint",
]
