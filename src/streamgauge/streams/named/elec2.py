"""Elec2, 45,312 half-hours of an electricity market: does the price go up? In order of time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.data_set import Asked, Contents, DataSet, Remote
from streamgauge.streams.named import _split
from streamgauge.streams.own._tables import features, read_csv
from streamgauge.streams.source import Array
from streamgauge.streams.stream import Arrangement, Stream
from streamgauge.tables.lines import place

FEATURES = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
_MILLION = 1_000_000  # values are published to six decimals


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the stream, in the order it is published in."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _split.split(DATA, config, "elec2")


def _read(files: Files, scratch: Path, asked: Asked) -> Contents | None:
    """The six measured columns, whatever others are there; the label is 1 where the price is up."""
    broken: StreamgaugeError | None = None
    for name in files.names:
        if not re.search(r"\.(csv|arff)(\.gz)?$", name.lower()):
            continue
        raw = files.read([name])[name]
        form = "a CSV"
        if b"@data" in raw[:10000].lower():
            raw, form = _from_arff(raw), "ARFF"
        what = files.called(name)
        try:
            table = read_csv(raw, what)
        except StreamgaugeError as error:  # perhaps a table of something else
            broken = broken or error
            continue
        if not {*FEATURES, "class"} <= set(table.column_names):
            continue
        at = partial(place, raw if form == "a CSV" else None)
        # To the six decimals that are published, so that every form gives the same numbers.
        exact = np.rint(features(table, FEATURES, what, at).astype(np.float64) * _MILLION)
        kinds = [str(value).strip("b'\"").upper() for value in table["class"].to_pylist()]
        if not set(kinds) <= {"UP", "DOWN", "1", "0"}:
            raise StreamgaugeError(f"The column 'class' of {what} holds more than UP and DOWN.")
        label = np.array([kind in ("UP", "1") for kind in kinds], np.uint8)
        return Contents(
            {"x": (exact / _MILLION).astype(np.float32), "label": label},
            form,
            2,
            ["down", "up"],
            {
                "features": _md5(exact.astype("<i4")),
                "labels": _md5(label),
            },
        )
    if broken is not None:
        raise broken
    return None


def _from_arff(raw: bytes) -> bytes:
    """The same as CSV: names from the @attribute lines, rows after @data."""
    head, _, rows = re.split(rb"(?im)^(@data)[ \t]*\r?\n", raw, maxsplit=1)
    names = re.findall(rb"(?im)^@attribute\s+['\"]?([\w-]+)", head)
    return b",".join(names) + b"\n" + rows


def _md5(values: Array) -> str:
    return hashlib.md5(np.ascontiguousarray(values).data, usedforsecurity=False).hexdigest()


DATA = DataSet(
    name="elec2",
    title="Elec2",
    revision="normalised, OpenML 151 version 1",
    licence="public; free for research",
    citation="Harries, M. (1999). SPLICE-2 Comparative Evaluation: Electricity Pricing. Technical"
    " report, University of New South Wales.",
    home="https://www.openml.org/d/151",
    forms="electricity-normalized.arff, or a CSV with columns period, nswprice, nswdemand,"
    " vicprice, vicdemand, transfer and class (UP or 1, DOWN or 0), with or without .gz",
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
