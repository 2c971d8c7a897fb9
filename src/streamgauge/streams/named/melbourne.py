"""Photos of Melbourne by time, 2000 to 2014; the class is one of 85 locations. Time and user as
inputs, no images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamgauge.streams.datasets import observations as _observations
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.data_set import Contents, DataRequest, described
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_observations.Config):
    """Settings of the stream."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _observations.observation_stream(DATA, config, "melbourne")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    return _observations.read_observations(
        files, {"label": "poiID", "time": "dateTaken", "user": "userID"}
    )


DATA = described(
    "melbourne",
    read=_read,
    checksums={
        "label": "6f5909eafc50ec99a5583dbc862eee05",
        "time": "575ebe115fedadda336fa26ea5197b96",
        "user": "66db8f1bb3db16f999f4b05d67b61f88",
    },
)
