"""CGLM, half a million photos of landmarks by time; the class is the landmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamgauge.streams.datasets import photos as _photos
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.data_set import Contents, DataRequest, described
from streamgauge.streams.stream import Stream
from streamgauge.tables.read import open_table

_LEAST = 25  # images a landmark must have


@dataclass(frozen=True)
class Config(_photos.Config):
    """Settings of the stream: the first 20 % prepare; the 1 % held out is ours, where the order
    files do not say which."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "time"
    batch: int = 128
    preparation: float = 0.2
    held_out: float = 0.01


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _photos.photo_stream(DATA, config, "cglm")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    photos = _photos.from_order_files(files)
    if photos is None:
        tables = [name for name in files.names if name.endswith((".csv", ".csv.gz"))]
        if len(tables) != 1:
            return None
        header = open_table(files.read(tables)[tables[0]], tables[0]).names
        by_id = "id" in header and "landmark_id" in header
        photos = _photos.from_csv(files, tables[0], _by_id if by_id else None, _LEAST)
        photos.form += f"; landmarks of {_LEAST} images and more"
    return _photos.contents(photos, files, request)


def _by_id(table: Any) -> Any:
    """Google Landmarks v2 keeps an image in folders named by the first letters of its id."""
    import pyarrow.compute as pc

    name = table["id"]
    first = [pc.utf8_slice_codeunits(name, at, at + 1) for at in range(3)]
    return pc.binary_join_element_wise(*first, pc.binary_join_element_wise(name, "jpg", "."), "/")


DATA = described("cglm", read=_read)
