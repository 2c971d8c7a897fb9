"""Tiny ImageNet: 110,000 photos of 64 x 64 pixels in two hundred classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5, md5_of
from streamgauge.streams.datasets.data_set import Contents, DataRequest, Remote, described
from streamgauge.streams.images.image_source import BadImage, Decoding

_ARCHIVE, _MD5 = "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
# MD5 of lines "path class md5", one per labelled image, sorted: of the unpacked files, for which no
# checksum is published; from the copy in github.com/seshuad/IMagenet, commit 153dbc1.
_IMAGES, _IMAGES_MD5 = "the list of image hashes", "985748c84d515b5de21200017c5261d5"
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
    digests = _write(scratch / "x.npy", files, [name for name, _ in listed], request)
    label = np.array([number[wnid] for _, wnid in listed], np.uint8)
    arrays = {"x": np.load(scratch / "x.npy", mmap_mode="r"), "label": label}
    below = [(PurePosixPath(name).relative_to(root), wnid, digests[name]) for name, wnid in listed]
    of_images = md5(
        "\n".join(sorted(f"{path} {wnid} {hash}" for path, wnid, hash in below)).encode()
    )
    if files.kind == "folder":
        checksums = {_IMAGES: of_images}
        return Contents(arrays, "JPEGs in a folder", len(ids), ids, checksums, len(train))
    checksums = {_ARCHIVE: md5_of(files.path)}
    more = {"images_md5": of_images}
    return Contents(arrays, "the official zip", len(ids), ids, checksums, len(train), more=more)


def _write(to: Path, files: Files, names: Sequence[str], request: DataRequest) -> dict[str, str]:
    """Decode images into an array file, a block at a time; returns the MD5 of each image file."""
    decoding, digests = Decoding(), {}
    block = np.empty((_AT_ONCE, 3, 64, 64), np.uint8)
    with to.open("wb") as out:
        facts = {"descr": "|u1", "fortran_order": False, "shape": (len(names), *block.shape[1:])}
        np.lib.format.write_array_header_1_0(out, facts)
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            contents = files.read(some)
            for row, name in enumerate(some):
                try:
                    decoding.decode(contents[name], 64, name, out=block[row])
                except BadImage as error:
                    raise StreamgaugeError(f"{files.called(name)}: {error.reason}") from None
                digests[name] = md5(contents[name])
            out.write(block[: len(some)].data)
            request.report("decoding", start + len(some), len(names))
    return digests


DATA = described(
    "tinyimagenet",
    read=_read,
    remotes=(Remote(_ARCHIVE, (f"http://cs231n.stanford.edu/{_ARCHIVE}",), _MD5, 248),),
    checksums={_ARCHIVE: _MD5, _IMAGES: _IMAGES_MD5},
)
