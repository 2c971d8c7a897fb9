"""The run folder: writing log and checkpoints, and reading them back."""

from __future__ import annotations

from streamgauge.record.environment import environment
from streamgauge.record.run import PATH_SETTINGS, LogTable, Run, find_runs
from streamgauge.record.tables import LOG_VERSION, OPTIONAL, TABLES
from streamgauge.record.writer import RunWriter, read_checkpoint
from streamgauge.versions import renamed

__all__ = [
    "LOG_VERSION",
    "OPTIONAL",
    "PATH_SETTINGS",
    "TABLES",
    "LogTable",
    "Run",
    "RunWriter",
    "environment",
    "find_runs",
    "read_checkpoint",
]

__getattr__ = renamed(
    __name__, {"PLACES": "PATH_SETTINGS", "Recorder": "RunWriter", "Table": "LogTable"}
)
