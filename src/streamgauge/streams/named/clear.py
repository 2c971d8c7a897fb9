"""CLEAR, photos of everyday things in ten periods from 2004 to 2014, one period after another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets import photos as _photos
from streamgauge.streams.datasets.archive import Files, md5_of
from streamgauge.streams.datasets.data_set import Contents, DataRequest, Remote, described
from streamgauge.streams.images.image_source import SUFFIXES
from streamgauge.streams.stream import Stream

_SITE = (
    "https://huggingface.co/datasets/elvishelvis6/CLEAR-Continual_Learning_Benchmark/resolve/main/"
)
_CHECKSUMS = {
    "clear10-train-image-only.zip": "5171f720810d60b471c308dee595d430",
    "clear10-test.zip": "bf9a85bfb78fe742c7ed32648c9a3275",
    "clear100-train-image-only.zip": "ea85cdba9efcb3abf77eaab5554052c8",
    "clear100-test.zip": "e160815fb5fd4bc71dacd339ff41e6a9",
}


@dataclass(frozen=True)
class Config(_photos.Config):
    """Settings of the stream: domain-incremental, 5 % of each period held out."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "domains"
    held_out: float = 0.05
    held_out_by: Literal["time", "task", "random"] = "task"


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _photos.photo_stream(DATA, config, "clear")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    """Folders PERIOD/CLASS/image, PERIOD a number; below a folder `test`, the test set."""
    archives = _archives(files)
    if archives:
        for one in archives:
            one.unpack([name for name in one.names if _parse_path(name)], scratch / "images")
        return _contents(Files(scratch / "images"), files, request, archives)
    return _contents(files, files, request, ())


def _contents(
    files: Files, given: Files, request: DataRequest, archives: tuple[Files, ...]
) -> Contents | None:
    import pyarrow as pa

    parsed = sorted((name, facts) for name in files.names if (facts := _parse_path(name)))
    if not parsed or files.kind != "folder":
        return None
    names = sorted({facts[1] for _, facts in parsed})
    if len(names) < 2:
        return None
    number = {name: at for at, name in enumerate(names)}
    test = np.array([facts[2] for _, facts in parsed])
    order = np.argsort(test, kind="stable")  # the test set comes last
    photos = _photos.Photos(
        pa.array([parsed[i][0] for i in order], pa.large_string()),
        np.array([number[parsed[i][1][1]] for i in order]),
        {
            "domain": np.array([parsed[i][1][0] for i in order], np.int32),
            "part": np.where(test[order], _photos.TEST, _photos.STREAM).astype(np.uint8),
        },
        "folders by period" + (f" in {len(archives)} zip files" if archives else ""),
        names,
    )
    if not (~test).any():
        raise StreamgaugeError(f"{given.path} holds the test set alone: add the training set too.")
    checksums = {one.path.name: md5_of(one.path) for one in archives}
    return _photos.contents(
        photos,
        given,
        request,
        images="images" if archives else str(given.path.resolve()),
        checksums=checksums,
        verified=""
        if checksums
        else "by its counts only, since no checksum of the unpacked files is published",
        streamed=int((~test).sum()),
    )


def _archives(files: Files) -> tuple[Files, ...]:
    if files.kind == "zip":
        return (files,)
    if files.kind != "folder":
        return ()
    known = [name for name in files.names if PurePosixPath(name).name in _CHECKSUMS]
    if len({PurePosixPath(name).name.partition("-")[0] for name in known}) > 1:
        raise StreamgaugeError(
            f"{files.path} holds both CLEAR-10 and CLEAR-100: name a folder with one of them."
        )
    return tuple(Files(files.path / name) for name in known)


def _parse_path(name: str) -> tuple[int, str, bool] | None:
    """Period, class and whether it is of the test set, from where an image lies."""
    path = PurePosixPath(name)
    if len(path.parts) < 3 or path.suffix.lower() not in SUFFIXES:
        return None
    period, kind = path.parts[-3], path.parts[-2]
    if not period.isdecimal():
        return None
    return int(period), kind, "test" in path.parts[:-3]


DATA = described(
    "clear",
    read=_read,
    remotes=tuple(
        Remote(name, (_SITE + name,), md5, None)
        for name, md5 in _CHECKSUMS.items()
        if name.startswith("clear10-")
    ),
    checksums=_CHECKSUMS,
)
