"""Flowering plants of the Pacific coast of Canada by time of upload; the class is the species.
Location, season and user as inputs, no images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamgauge.streams.datasets import observations as _observations
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.data_set import Contents, DataRequest, described
from streamgauge.streams.stream import Stream

_ROLES = {
    "label": "scientific_name",
    "time": "created_at",
    "user": "user_id",
    "latitude": "latitude",
    "longitude": "longitude",
}


@dataclass(frozen=True)
class Config(_observations.Config):
    """Settings of the stream."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _observations.observation_stream(DATA, config, "inaturalist")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    return _observations.read_observations(files, _ROLES, seen="observed_on", cycles=("year",))


DATA = described(
    "inaturalist",
    read=_read,
    checksums={
        "label": "a6ad3986c6cc754cfff314d6bc9a79a3",
        "time": "6ef9300000cca5ff0728413589e84719",
        "user": "e323b5a183719bd24ef711237b72678a",
        "seen": "ffccf45307a1abe054a3ecac1b4a8d9b",
        "latitude": "c910f55a37158da14f2e0dae260db4c9",
        "longitude": "b8863483bcb4cac9583a073c5264177e",
    },
)
