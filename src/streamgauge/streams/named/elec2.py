"""Elec2, 45,312 half-hours of an electricity market: does the price go up? In order of time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5
from streamgauge.streams.datasets.data_set import Contents, DataRequest, Remote, described
from streamgauge.streams.named.splits import arrange_stored
from streamgauge.streams.stream import Arrangement, Stream
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import feature_matrix
from streamgauge.tables.rows import Rows
from streamgauge.tables.text import ArffTable

FEATURES = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
_MILLION = 1_000_000  # values are published to six decimals


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream, in the order it is published in."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return arrange_stored(DATA, config, "elec2")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    """The six measured columns, whatever others are there; the label is 1 where the price is up."""
    broken: StreamgaugeError | None = None
    for name in files.names:
        if not re.search(r"\.(csv|arff)(\.gz)?$", name.lower()):
            continue
        what = files.called(name)
        try:
            reader = open_table(files.read([name])[name], what)
            if not {*FEATURES, "class"} <= set(reader.names):
                continue
            table = reader.read([*FEATURES, "class"], text=["class"])
        except StreamgaugeError as error:  # perhaps a table of something else
            broken = broken or error
            continue
        # To the six decimals that are published, so that every form gives the same numbers.
        x = feature_matrix(table, FEATURES, Rows(len(table), what, reader.row_name))
        exact = np.rint(x.astype(np.float64) * _MILLION)
        kinds = [str(value).strip("b'\"").upper() for value in table["class"].to_pylist()]
        if not set(kinds) <= {"UP", "DOWN", "1", "0"}:
            raise StreamgaugeError(f"The column 'class' of {what} holds more than UP and DOWN.")
        label = np.array([kind in ("UP", "1") for kind in kinds], np.uint8)
        return Contents(
            {"x": (exact / _MILLION).astype(np.float32), "label": label},
            "ARFF" if isinstance(reader, ArffTable) else "a CSV",
            2,
            ["down", "up"],
            {"features": md5(np.ascontiguousarray(exact.astype("<i4"))), "labels": md5(label)},
        )
    if broken is not None:
        raise broken
    return None


DATA = described(
    "elec2",
    read=_read,
    remotes=(
        Remote(
            "electricity-normalized.arff",
            ("https://www.openml.org/data/download/2419/electricity-normalized.arff",),
            None,
            3,
        ),
    ),
    checksums={
        "features": "ab58360c695111879ca8c56bf956e1fd",
        "labels": "36bd1c86633b1f6e080b36e1b1e9e418",
    },
)
