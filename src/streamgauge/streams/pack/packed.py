"""Samples packed into seekable shards by `streamgauge data pack`: opens at once, whatever its size.

Labels, times, users and offsets are mapped from the disk; docs/pack.md has the format.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Spec
from streamgauge.streams.stored_order import mapped
from streamgauge.streams.stream import Arrangement, Stream, arrange

VERSION = 1
OPEN_FILES = 64  # shards held open at a time


@dataclass(frozen=True)
class Config:
    """Settings of a packed stream. Those of an arrangement are as they were packed unless given."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] | None = None
    batch: int | None = None
    step: Literal["batch", "album"] | None = None
    tasks: int | None = None
    overlap: float | None = None
    held_out: float | None = None
    held_out_by: Literal["time", "task", "random"] | None = None
    preparation: float | None = None
    seed: int | None = None
    order_seed: int | None = None
    class_seed: int | None = None
    split_seed: int | None = None
    path: str = ""  # the folder that `streamgauge data pack` made
    size: int = 0  # pixels a side that kept images are decoded to; 0: as they were packed
    first: int = 0  # use only so many samples, from the first on; 0: all
    partial: bool = False  # open a folder whose packing has not come to its end, as far as it is


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    config = complete(config)
    path = Path(config.path).expanduser()
    source = PackedSource(path, config.size, config.first, config.partial)
    settings = {**vars(config), "path": str(path.resolve())}  # found again from another folder
    return arrange(
        source,
        Arrangement(**{one.name: getattr(config, one.name) for one in fields(Arrangement)}),
        name=source.name,
        test=source.test,
        settings=settings,
        cache=path / "orders",
    )


def complete(config: Config) -> Config:
    """What is not given as it was packed, or as any stream has it where only samples were."""
    if not config.path:
        raise StreamgaugeError("Name the packed folder: --stream.path DIR.")
    packed = _request(Path(config.path).expanduser()).get("arrangement")
    known = {**vars(Arrangement()), **(packed or {})}
    return replace(config, **{k: v for k, v in known.items() if getattr(config, k) is None})


class PackedSource:
    """A source over a packed folder. Opening it reads a few small files; samples are read by
    address, each with one seek."""

    def __init__(
        self, path: str | Path, size: int = 0, first: int = 0, partial: bool = False
    ) -> None:
        self.path = Path(path)
        self._made_with = (str(path), size, first, partial)
        request, about = _facts(self.path, partial)
        self.request = request
        self.form: str = request["form"]
        self.settings: Mapping[str, Any] = request["decode"]  # of images, for whoever packs again
        self.name: str = request["name"]
        self._rows = np.asarray(about["rows"], np.int64)  # first sample of each shard, and the end
        count: int = about["samples"]
        if not 0 <= first <= count or size < 0:
            raise StreamgaugeError(
                f"stream.first lies between 0 and the {count} samples packed, stream.size is 0 or "
                f"more; they are {first} and {size}."
            )
        taken = first or count
        columns = {name: column[:taken] for name, column in about["columns"].items()}
        self.label: IntArray = columns.pop("label")
        self.columns: Mapping[str, Array] = columns
        self.class_names: Sequence[str] | None = request["class_names"]
        self.in_time_order: bool = about["in_time_order"]
        test = about["test"]
        self.test: IntArray | None = None if test is None else test[test < taken]
        shape = tuple(request["input_shape"])
        self.encoded_images = self.form != "array"
        if size and not self.encoded_images:
            raise StreamgaugeError(
                f"The samples in {self.path} have one size and cannot be decoded to another: leave"
                " stream.size out, or pack them in the form 'kept' or 'jpeg'."
            )
        if size:
            shape = (3, size, size)
        self.spec = Spec(shape, request["classes"])
        self.fingerprint: str = about["fingerprint"]
        if size or first:
            self.fingerprint = hashlib.blake2b(
                f"{self.fingerprint} {size} {first}".encode(), digest_size=16
            ).hexdigest()
        self._type = np.dtype(request["dtype"])
        self._each = int(np.prod(shape, dtype=np.int64)) * self._type.itemsize
        self._offset: IntArray | None = about["offset"]
        self._files: OrderedDict[int, int] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedSource, self._made_with

    def __len__(self) -> int:
        return len(self.label)

    def __del__(self) -> None:
        for file in getattr(self, "_files", {}).values():
            os.close(file)

    def read(self, index: IntArray) -> Array:
        wanted = np.asarray(index, np.int64)
        out = np.empty((len(wanted), *self.spec.input_shape), self._type)
        if self.encoded_images:
            self.read_into(wanted, out)
            return out
        if out.nbytes == 0:
            return out
        # Neighbours in a shard are read together.
        shard = np.searchsorted(self._rows, wanted, side="right") - 1
        apart = (np.diff(wanted) != 1) | (np.diff(shard) != 0)
        edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(wanted)]
        flat = out.reshape(-1).data.cast("B")
        for start, end in pairwise(edges):
            number = int(shard[start])
            offset = int(wanted[start] - self._rows[number]) * self._each
            part = flat[start * self._each : end * self._each]
            if os.preadv(self._file(number), [part], offset) != len(part):
                raise self._short(number)
        return out

    def encoded(self, index: int) -> bytes:
        """An image as it is stored."""
        assert self._offset is not None
        number = int(np.searchsorted(self._rows, index, side="right")) - 1
        begin = int(self._offset[index])
        length = int(self._offset[index + 1]) - begin
        data = os.pread(self._file(number), length, begin - int(self._offset[self._rows[number]]))
        if len(data) != length:
            raise self._short(number)
        return data

    def read_into(self, index: IntArray, out: Array) -> None:
        """Read samples to where they are wanted, without a copy in between."""
        if not self.encoded_images:
            out[: len(index)] = self.read(index)
            return
        from streamgauge.streams.images.image_source import decode

        _, high, wide = self.spec.input_shape
        there: dict[int, int] = {}  # steps are padded by repeating samples
        for row, sample in enumerate(np.asarray(index).tolist()):
            if sample in there:
                out[row] = out[there[sample]]
                continue
            there[sample] = row
            decode(self.encoded(sample), (high, wide), out=out[row], **self.settings)

    def _file(self, number: int) -> int:
        file = self._files.pop(number, None)
        if file is None:
            try:
                file = os.open(shard_file(self.path, number), os.O_RDONLY)
            except OSError as error:
                raise StreamgaugeError(
                    f"Shard {number} of {self.path} cannot be read: {error.strerror}."
                ) from None
            if len(self._files) >= OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
        self._files[number] = file
        return file

    def _short(self, number: int) -> StreamgaugeError:
        return StreamgaugeError(
            f"Shard {number} of {self.path} is shorter than it was packed: see what else is wrong"
            f" with `streamgauge data info {self.path} --verify`."
        )


def is_packed(path: str | Path) -> bool:
    return (Path(path) / "pack.json").is_file()


def _facts(path: Path, partial: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was asked of the packer, and what came out: arrays are mapped, not read."""
    request = _request(path)
    if (path / "about.json").exists():
        about = _json(path / "about.json")
        about["columns"] = {
            name: mapped(path / about["beside"] / f"{name}.npy") for name in request["columns"]
        }
        about["offset"] = mapped(path / "offset.npy") if request["form"] != "array" else None
        about["test"] = mapped(path / "test.npy") if about["has_test"] else None
        return request, about
    return request, _unfinished(path, request, partial)


def _request(path: Path) -> dict[str, Any]:
    """What was asked of the packer."""
    if not is_packed(path):
        raise StreamgaugeError(
            f"'{path}' is not a packed folder: make one with `streamgauge data pack`."
        )
    request = _json(path / "pack.json")
    if request.get("version") != VERSION:
        raise StreamgaugeError(
            f"'{path}' was packed in version {request.get('version')} of the format; this is "
            f"{VERSION}: pack it again."
        )
    return request


def _json(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise StreamgaugeError(
            f"{file} cannot be read ({error}): pack into another folder, or get this one again."
        ) from None
    return found


def _unfinished(path: Path, request: dict[str, Any], partial: bool) -> dict[str, Any]:
    """As far as the packing has come: the shards before the first that is missing."""
    shards = []
    for number in range(request["shards"]):
        shard = read_shard(path, number)
        if shard is None:
            break
        shards.append(shard)
    items = min(len(shards) * request["shard"], request["items"])
    if not partial:
        raise StreamgaugeError(
            f"'{path}' is not packed to its end ({items:,} of {request['items']:,} samples): run "
            "the same `streamgauge data pack` again to go on, or set --stream.partial true to use"
            " what is there."
        )
    good = kept_items(shards, items)
    if len(good) == 0:
        raise StreamgaugeError(f"Nothing is packed in '{path}' yet: run `streamgauge data pack`.")
    columns = {
        name: np.asarray(mapped(path / "columns" / f"{name}.npy")[:items][good])
        for name in request["columns"]
    }
    test = None
    if request["has_test"]:
        listed = mapped(path / "columns" / "test-addresses.npy")
        test = np.flatnonzero(np.isin(good, listed))
    offset = None
    if request["form"] != "array":
        sizes = [np.load(sizes_file(path, number)) for number in range(len(shards))]
        offset = np.concatenate(([0], np.cumsum(np.concatenate(sizes), dtype=np.int64)))
    digest = hashlib.blake2b(f"unfinished {request['source']}".encode(), digest_size=16)
    digest.update("".join(shard["checksum"] for shard in shards).encode())
    time = columns.get("time")
    return {
        "samples": len(good),
        "rows": rows_of(shards),
        "columns": columns,
        "in_time_order": time is not None and bool(np.all(time[1:] >= time[:-1])),
        "fingerprint": digest.hexdigest(),
        "offset": offset,
        "test": test,
    }


def kept_items(shards: Sequence[Mapping[str, Any]], items: int) -> IntArray:
    """Which of the source's samples were packed: all but the bad."""
    good = np.ones(items, bool)
    for shard in shards:
        good[[item for item, *_ in shard["bad"]]] = False
    return np.flatnonzero(good)


def rows_of(shards: Sequence[Mapping[str, Any]]) -> list[int]:
    return [0, *np.cumsum([shard["samples"] for shard in shards], dtype=np.int64).tolist()]


def shard_file(path: Path, number: int) -> Path:
    return path / "shards" / f"{number:06d}.bin"


def sizes_file(path: Path, number: int) -> Path:
    return path / "shards" / f"{number:06d}.npy"


def read_shard(path: Path, number: int) -> dict[str, Any] | None:
    """What is known of a shard; None while it is not whole."""
    try:
        facts: dict[str, Any] = json.loads(
            shard_file(path, number).with_suffix(".json").read_text()
        )
        whole = shard_file(path, number).stat().st_size == facts["bytes"]
    except (OSError, ValueError, KeyError):
        return None
    return facts if whole else None


def info(path: str | Path) -> dict[str, Any]:
    """What lies in a packed folder, finished or not."""
    path = Path(path)
    request = _facts(path, partial=True)[0] if _begun(path) else _facts(path, partial=False)[0]
    shards = [read_shard(path, number) for number in range(request["shards"])]
    there = [shard for shard in shards if shard is not None]
    bad: dict[str, int] = {}
    for shard in there:
        for _, _, kind, _ in shard["bad"]:
            bad[kind] = bad.get(kind, 0) + 1
    found: dict[str, Any] = {
        "name": request["name"],
        "form": request["form"],
        "finished": (path / "about.json").exists(),
        "items": request["items"],
        "samples": sum(shard["samples"] for shard in there) if request["shards"] else None,
        "classes": request["classes"],
        "input_shape": request["input_shape"],
        "columns": request["columns"],
        "arrangement": request.get("arrangement"),
        "shards": f"{len(there)} of {request['shards']}",
        "bytes": sum(shard["bytes"] for shard in there),
        "bad": bad,
    }
    if found["finished"]:
        about = _json(path / "about.json")
        found |= {"samples": about["samples"], "fingerprint": about["fingerprint"]}
    return found


def _begun(path: Path) -> bool:
    return read_shard(path, 0) is not None or (path / "about.json").exists()


def verify(path: str | Path, progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Compare every shard, label and column with the checksum taken when it was written; one
    sentence for each that differs."""
    path = Path(path)
    request, _ = _facts(path, partial=True)
    wrong = []
    for number in range(request["shards"]):
        facts = read_shard(path, number)
        if facts is None:
            if (path / "about.json").exists():
                wrong.append(
                    f"Shard {number} of {path} is missing or has another length: pack again."
                )
        elif file_checksum(shard_file(path, number)) != facts["checksum"]:
            wrong.append(
                f"Shard {number} of {path} is not what was packed: delete "
                f"{shard_file(path, number).name} and pack again."
            )
        if progress is not None:
            progress(number + 1, request["shards"])
    if (path / "about.json").exists():
        about = _json(path / "about.json")
        for name, checksum in about["checksums"].items():
            try:
                same = file_checksum(path / name) == checksum
            except OSError:
                same = False
            if not same:
                wrong.append(f"{path / name} is missing or not what was packed.")
    return wrong


def file_checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
