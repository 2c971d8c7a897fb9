"""Tiny ImageNet: 110,000 photos of 64 x 64 pixels in two hundred classes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5_of
from streamgauge.streams.datasets.data_set import Contents, DataRequest, Remote, described
from streamgauge.streams.images.image_source import BadImage, Decoding

_ARCHIVE, _MD5 = "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
_AT_ONCE = 2000  # files per read


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    """Classes are numbered in the order of wnids.txt, as in the survey's code; the official
    validation set, whose labels are published, is the test set."""
    paths = files.locate(["wnids.txt", "val_annotations.txt"])
    if paths is None:
        return None
    lists = {name: text.decode() for name, text in files.read(list(paths.values())).items()}
    ids = lists[paths["wnids.txt"]].split()
    number = {name: label for label, name in enumerate(ids)}
    root = PurePosixPath(paths["wnids.txt"]).parent
    rows = [line.split("\t") for line in lists[paths["val_annotations.txt"]].splitlines() if line]
    test = [(str(root / "val" / "images" / row[0]), row[1]) for row in rows if len(row) > 1]
    at = len(root.parts)
    train = sorted(
        (name, parts[at + 1])
        for name in files.names
        if len(parts := PurePosixPath(name).parts) == at + 4
        and parts[at] == "train"
        and parts[at + 2] == "images"
        and name.endswith(".JPEG")
    )
    listed = [*train, *test]
    unknown = next((wnid for _, wnid in listed if wnid not in number), None)
    if unknown is not None:
        raise StreamgaugeError(f"{files.path} has images of '{unknown}', not among its wnids.txt.")
    if not train or not test:
        raise StreamgaugeError(
            f"{files.path} has {len(train)} training images below train/ and {len(test)} labelled"
            " ones below val/: it is not complete."
        )
    decoding = Decoding()
    x = np.lib.format.open_memmap(
        scratch / "x.npy", mode="w+", dtype=np.uint8, shape=(len(listed), 3, 64, 64)
    )
    for start in range(0, len(listed), _AT_ONCE):
        names = [name for name, _ in listed[start : start + _AT_ONCE]]
        contents = files.read(names)
        for row, name in enumerate(names, start):
            try:
                decoding.decode(contents[name], 64, name, out=x[row])
            except BadImage as error:
                raise StreamgaugeError(f"{files.called(name)}: {error.reason}") from None
        request.report("decoding", min(start + _AT_ONCE, len(listed)), len(listed))
    label = np.array([number[wnid] for _, wnid in listed], np.uint8)
    arrays = {"x": x, "label": label}
    if files.kind == "folder":
        verified = "by its counts only, since no checksum of the unpacked files is published"
        return Contents(arrays, "JPEGs in a folder", len(ids), ids, {}, len(train), verified)
    checksums = {_ARCHIVE: md5_of(files.path)}
    return Contents(arrays, "the official zip", len(ids), ids, checksums, len(train))


DATA = described(
    "tinyimagenet",
    read=_read,
    remotes=(Remote(_ARCHIVE, (f"http://cs231n.stanford.edu/{_ARCHIVE}",), _MD5, 248),),
    checksums={_ARCHIVE: _MD5},
)
