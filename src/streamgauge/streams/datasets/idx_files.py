"""Reads the idx files of MNIST and similar data sets: a header of sizes, then bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5
from streamgauge.streams.datasets.data_set import Contents, DataRequest, Reader

TRAIN, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
PARTS = (TRAIN, TRAIN_LABELS, TEST, TEST_LABELS)


def read_idx(raw: bytes, what: str) -> NDArray[np.uint8]:
    """Bytes of an idx file as an array: two zeros, the type (8 = bytes), the number of axes, their
    lengths as big-endian 32-bit numbers, the values.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "this").tolist()
    [7, 9]
    """
    axes = raw[3] if len(raw) > 3 else 0
    if raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * axes:
        raise StreamgaugeError(f"{what} is not an idx file of bytes: its head is another.")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", axes, 4))
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if len(values) != math.prod(shape):
        raise StreamgaugeError(
            f"{what} claims {math.prod(shape):,} values and holds {len(values):,}: it is cut off,"
            " or something else."
        )
    return values.reshape(shape)


def reader(names: Sequence[str]) -> Reader:
    """A reader of the four files; some copies have a dot instead of a hyphen in the file names."""

    def read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
        paths = files.locate(PARTS)
        if paths is None:
            dotted = files.locate([part.replace("-idx", ".idx") for part in PARTS])
            if dotted is None:
                return None
            paths = {part: dotted[part.replace("-idx", ".idx")] for part in PARTS}
        raw = files.read(list(paths.values()))
        parts = {part: read_idx(raw[name], files.called(name)) for part, name in paths.items()}
        for images, labels in ((TRAIN, TRAIN_LABELS), (TEST, TEST_LABELS)):
            if parts[images].ndim != 3 or parts[labels].shape != (len(parts[images]),):
                raise StreamgaugeError(
                    f"{files.path} has images of shape {parts[images].shape} and labels of shape"
                    f" {parts[labels].shape} in {images}: these do not belong together."
                )
        x = np.concatenate([parts[TRAIN], parts[TEST]])[:, None]
        label = np.concatenate([parts[TRAIN_LABELS], parts[TEST_LABELS]])
        checksums = {part: md5(raw[name]) for part, name in paths.items()}
        return Contents(
            {"x": x, "label": label}, "idx files", len(names), names, checksums, len(parts[TRAIN])
        )

    return read
