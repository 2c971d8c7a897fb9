"""Samples packed into seekable shards by `streamgauge data pack`: opens at once, whatever its size.

Labels, times, users and offsets are mapped from the disk; docs/pack.md has the format.
"""

from __future__ import annotations

import hashlib
import operator
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import partial as partial_call
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamgauge.errors import Damaged, StreamgaugeError
from streamgauge.files import check_file, file_checksum, misfit, read_sealed, readable
from streamgauge.settings import configure
from streamgauge.streams.images.image_source import Decoding, EncodedImages
from streamgauge.streams.images.items import OpenFiles, read_at, read_into_at
from streamgauge.streams.order import mapped
from streamgauge.streams.source import Array, IntArray, Spec
from streamgauge.streams.stream import Arrangement, Stream, arrange

VERSION = 1  # of the layout of samples; it is part of the fingerprint
REMEDY = "get the packed folder again, or remove it and pack again"
REQUEST = {
    "version": int, "name": str, "form": str, "items": int, "input_shape": [int], "shard": int,
    "shards": int, "dtype": str, "classes": int, "class_names": (list, None), "columns": [str],
    "has_test": bool, "decode": dict, "source": str, "arrangement?": (dict, None),
}  # fmt: skip
RESULT = {
    "samples": int, "fingerprint": str, "beside": str, "in_time_order": bool, "has_test": bool,
    "rows": [int], "checksums": {"*": str}, "sums?": bool,
}  # fmt: skip
SHARD = {"samples": int, "bytes": int, "checksum": str, "bad": [list], "files?": {"*": list}}


@dataclass(frozen=True)
class Config:
    """Settings of a packed stream; settings of the arrangement default to the packed ones."""

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
    path: str = ""  # the folder written by `streamgauge data pack`
    size: int = 0  # pixels per side to decode images to; 0: as packed
    first: int = 0  # use only this many samples from the start; 0: all
    partial: bool = False  # open an incomplete folder, up to its first missing shard


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    config = complete(config)
    path = Path(config.path).expanduser()
    source = PackedSource(path, config.size, config.first, config.partial)
    settings = {**vars(config), "path": str(path.resolve())}  # to resume from another folder
    return arrange(
        source,
        Arrangement(**{field.name: getattr(config, field.name) for field in fields(Arrangement)}),
        name=source.name,
        test=source.test,
        settings=settings,
        cache=path / "orders",
    )


def complete(config: Config) -> Config:
    """Fill in settings that are not given: as packed, or else the defaults of every stream."""
    if not config.path:
        raise StreamgaugeError("Name the packed folder: --stream.path DIR.")
    path = Path(config.path).expanduser()
    with packed_readable(path):
        packed = read_request(path).get("arrangement")
        given = configure(Arrangement, packed or {}, "arrangement")
    defaults = vars(given).items()
    return replace(config, **{k: v for k, v in defaults if getattr(config, k) is None})


_MOST_AXES = 32  # of an array of samples, in every version of NumPy


class PackedSource(EncodedImages):
    """A source over a packed folder: opening reads small files, a sample is read with one seek."""

    remedy = "Check the folder with `streamgauge data info FOLDER --verify`."

    def __init__(
        self,
        path: str | Path,
        size: int = 0,
        first: int = 0,
        partial: bool = False,
        check: bool = True,
    ) -> None:
        self.path = Path(path)
        self._arguments = (str(path), size, first, partial, False)  # a copy needs no check
        with packed_readable(self.path):
            self._open(size, first, partial, check)

    def _open(self, size: int, first: int, partial: bool, check: bool) -> None:
        request, about = _facts(self.path, partial, check)
        self.request = request
        self.form: str = request["form"]
        self.settings: Mapping[str, Any] = request["decode"]  # of images, to pack them again
        self.decoding = configure(Decoding, self.settings, "decode")
        self.name: str = request["name"]
        self._rows = np.asarray(about["rows"], np.int64)  # first sample of each shard, and the end
        count: int = about["samples"]
        if not 0 <= first <= count or size < 0:
            raise StreamgaugeError(
                f"stream.first must be between 0 and the {count} packed samples, stream.size 0 or "
                f"more; they are {first} and {size}."
            )
        used = first or count
        columns = {name: column[:used] for name, column in about["columns"].items()}
        self.label: IntArray = columns.pop("label")
        self.columns: Mapping[str, Array] = columns
        self.class_names: Sequence[str] | None = request["class_names"]
        self.in_time_order: bool = about["in_time_order"]
        test = about["test"]
        self.test: IntArray | None = None if test is None else test[test < used]
        shape = tuple(map(operator.index, request["input_shape"]))
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
        self._sums: Array | None = about["sample_sums"]  # CRC-32; older packs have none
        self._files = OpenFiles(partial_call(shard_file, self.path))
        self._refuse_misfits(count)

    def _refuse_misfits(self, count: int) -> None:
        """Refuse arrays that do not belong to each other; their values are checked when used."""
        rows, offset, shape = self._rows, self._offset, self.spec.input_shape
        whole = [self.label, *((offset,) if self.encoded_images else ())]
        fits = [
            rows.ndim == 1 and len(rows) > 0 and int(rows[0]) == 0 and int(rows[-1]) == count,
            bool((np.diff(rows) >= 0).all()),
            all(a is not None and a.ndim == 1 and a.dtype.kind in "iu" for a in whole),
            len(self.label) == len(self),
            not self.encoded_images or (offset is not None and len(offset) == count + 1),
            not self.encoded_images or (len(shape) == 3 and shape[0] == 3 and min(shape) > 0),
            len(shape) < _MOST_AXES and all(0 <= side < 1 << 31 for side in shape),
            all(len(column) == len(self.label) for column in self.columns.values()),
            self._type.kind in "iufb" and not self._type.hasobject,
        ]
        if not all(fits):
            raise ValueError("its arrays do not belong to each other")
        if not self.encoded_images and len(rows) > 1 and self._each:
            size = shard_file(self.path, 0).stat().st_size
            if size != int(rows[1]) * self._each:
                raise ValueError(f"shard 0 has {size:,} bytes for {int(rows[1]):,} samples")

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedSource, self._arguments

    def __len__(self) -> int:
        return len(self.label)

    def read(self, index: IntArray) -> Array:
        addresses = np.asarray(index, np.int64)
        if self.encoded_images:
            return super().read(addresses)
        out = np.empty((len(addresses), *self.spec.input_shape), self._type)
        if out.nbytes == 0:
            return out
        # Consecutive samples of a shard are read together.
        shard = np.searchsorted(self._rows, addresses, side="right") - 1
        breaks = (np.diff(addresses) != 1) | (np.diff(shard) != 0)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(addresses)]
        flat = out.reshape(-1).data.cast("B")
        for start, end in pairwise(edges):
            number = int(shard[start])
            offset = int(addresses[start] - self._rows[number]) * self._each
            part = flat[start * self._each : end * self._each]
            if read_into_at(self._files.descriptor(number), part, offset) != len(part):
                raise self._truncated(number)
            for row in range(end - start if self._sums is not None else 0):
                sample = part[row * self._each : (row + 1) * self._each]
                self._check(int(addresses[start]) + row, number, sample)
        return out

    def _check(self, address: int, number: int, data: Any) -> None:
        """Refuse a sample that is not what was packed."""
        if self._sums is not None and zlib.crc32(data) != self._sums[address]:
            raise Damaged(
                f"{shard_file(self.path, number)} is damaged (sample {address} is not what was"
                f" packed); {REMEDY}."
            )

    def encoded(self, index: int) -> bytes:
        assert self._offset is not None
        number = int(np.searchsorted(self._rows, index, side="right")) - 1
        begin = int(self._offset[index])
        length = int(self._offset[index + 1]) - begin
        begin -= int(self._offset[self._rows[number]])
        descriptor = self._files.descriptor(number)
        if min(begin, length) < 0 or begin + length > os.fstat(descriptor).st_size:
            raise self._truncated(number)  # before memory for all of it is taken
        data = read_at(descriptor, length, begin)
        self._check(index, number, data)
        return data

    def read_into(self, index: IntArray, out: Array) -> None:
        if self.encoded_images:
            super().read_into(index, out)
        else:
            out[: len(index)] = self.read(index)

    def _truncated(self, number: int) -> StreamgaugeError:
        return StreamgaugeError(
            f"Shard {number} of {self.path} is shorter than it was packed: check the folder with"
            f" `streamgauge data info {self.path} --verify`."
        )


def packed_readable(path: Path) -> AbstractContextManager[None]:
    """Turn any error of a damaged folder into one sentence."""
    return readable(f"The packed folder '{path}'", "pack it again, or get it again")


def is_packed(path: str | Path) -> bool:
    return (Path(path) / "pack.json").is_file()


def _facts(path: Path, partial: bool, check: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request and the result of packing; arrays are memory-mapped, and checked before."""
    request = read_request(path)
    if (path / "about.json").exists():
        about = read_sealed(path / "about.json", RESULT, REMEDY)
        if about["beside"] not in ("columns", "kept"):
            raise Damaged(f"{path / 'about.json'} is damaged ('beside' is unknown); {REMEDY}.")
        if len(about["rows"]) != max(1, request["shards"]) + 1:  # [0, samples] without shards
            raise Damaged(f"{path / 'about.json'} is damaged (it is of other shards); {REMEDY}.")
        for name, stored in about["checksums"].items() if check else ():
            _check_listed(path, name, stored)
        about["columns"] = {
            name: mapped(path / about["beside"] / f"{name}.npy") for name in request["columns"]
        }
        about["offset"] = mapped(path / "offset.npy") if request["form"] != "array" else None
        about["test"] = mapped(path / "test.npy") if about["has_test"] else None
        about["sample_sums"] = mapped(path / "sums.npy") if about.get("sums") else None
        return request, about
    return request, _unfinished(path, request, partial)


def _check_listed(path: Path, name: str, stored: str) -> None:
    try:
        if file_checksum(path / name) != stored:
            raise Damaged(f"{path / name} is damaged (it is not what was packed); {REMEDY}.")
    except OSError as error:
        raise Damaged(f"{path / name} cannot be read: {error.strerror}; {REMEDY}.") from None


def read_request(path: Path) -> dict[str, Any]:
    """The request of packing: pack.json."""
    if not is_packed(path):
        raise StreamgaugeError(
            f"'{path}' is not a packed folder: make one with `streamgauge data pack`."
        )
    request = read_sealed(path / "pack.json", {"version": int}, REMEDY)
    if request["version"] != VERSION:
        way = "install a newer streamgauge" if request["version"] > VERSION else "pack it again"
        raise StreamgaugeError(
            f"'{path}' was packed in version {request['version']} of the format; this is "
            f"{VERSION}: {way}."
        )
    problem = misfit(request, REQUEST, "")
    if not problem and request["form"] not in ("kept", "jpeg", "array"):
        problem = "its form is unknown"
    if not problem and any(Path(name).name != name for name in request["columns"]):
        problem = "a column has a name that is no file name"
    try:
        np.dtype(request.get("dtype"))
    except (TypeError, ValueError):
        problem = problem or "its dtype is unknown"
    if problem:
        raise Damaged(f"{path / 'pack.json'} is damaged ({problem}); {REMEDY}.")
    return request


def _unfinished(path: Path, request: dict[str, Any], partial: bool) -> dict[str, Any]:
    """The facts of an incomplete folder: the shards before the first missing one."""
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
    whole = {name: mapped(path / "columns" / f"{name}.npy") for name in request["columns"]}
    if any(len(column) < items for column in whole.values()):
        raise ValueError("its shards have more samples than its columns")
    good = kept_items(shards, items)
    if len(good) == 0:
        raise StreamgaugeError(f"Nothing is packed in '{path}' yet: run `streamgauge data pack`.")
    columns = {name: np.asarray(column[:items][good]) for name, column in whole.items()}
    encoded = request["form"] != "array"
    digest = hashlib.blake2b(f"unfinished {request['source']}".encode(), digest_size=16)
    digest.update("".join(shard["checksum"] for shard in shards).encode())
    time = columns.get("time")
    return {
        "samples": len(good),
        "rows": rows_of(shards),
        "columns": columns,
        "in_time_order": time is not None and bool(np.all(time[1:] >= time[:-1])),
        "fingerprint": digest.hexdigest(),
        "offset": np.concatenate(list(offsets(path, len(shards)))) if encoded else None,
        "sample_sums": np.concatenate(list(sums(path, len(shards)))) if _all_have(shards) else None,
        "test": kept_test(path, good) if request["has_test"] else None,
    }


def kept_items(shards: Sequence[Mapping[str, Any]], items: int) -> IntArray:
    """Addresses in the source of the packed samples: all except bad images."""
    good = np.ones(items, bool)
    for shard in shards:
        good[[item for item, *_ in shard["bad"]]] = False
    return np.flatnonzero(good)


def kept_test(path: Path, good: IntArray) -> IntArray:
    """The packed samples that are in the test set."""
    return np.flatnonzero(np.isin(good, mapped(path / "columns" / "test-addresses.npy")))


def offsets(path: Path, shards: int) -> Iterator[IntArray]:
    """Where each image begins and the last ends, counted over all shards, shard by shard."""
    end = 0
    yield np.zeros(1, np.int64)
    for number in range(shards):
        ends = end + np.cumsum(np.load(sizes_file(path, number)), dtype=np.int64)
        end = int(ends[-1]) if len(ends) else end
        yield ends


def sums(path: Path, shards: int) -> Iterator[Array]:
    """The CRC-32 of each packed sample, shard by shard."""
    for number in range(shards):
        yield np.load(sums_file(path, number))


def _all_have(shards: Sequence[Mapping[str, Any]]) -> bool:
    return bool(shards) and all("files" in shard for shard in shards)


def rows_of(shards: Sequence[Mapping[str, Any]]) -> list[int]:
    return [0, *np.cumsum([shard["samples"] for shard in shards], dtype=np.int64).tolist()]


def shard_file(path: Path, number: int) -> Path:
    return path / "shards" / f"{number:06d}.bin"


def sizes_file(path: Path, number: int) -> Path:
    return path / "shards" / f"{number:06d}.npy"


def sums_file(path: Path, number: int) -> Path:
    return path / "shards" / f"{number:06d}.crc.npy"


def read_shard(path: Path, number: int) -> dict[str, Any] | None:
    """The description of a shard; None if the shard is missing or incomplete."""
    try:
        facts = read_sealed(shard_file(path, number).with_suffix(".json"), SHARD, REMEDY)
        complete = shard_file(path, number).stat().st_size == facts["bytes"]
        for name, stored in facts.get("files", {}).items():
            check_file(path / "shards" / Path(name).name, stored, REMEDY)
    except (OSError, Damaged, IndexError, TypeError):
        return None
    return facts if complete else None


def _shard_numbers(path: Path, request: Mapping[str, Any]) -> list[int]:
    """The shards that have a description: a damaged count of them may be any number."""
    names = [file.stem for file in (path / "shards").glob("*.json")]
    numbers = (int(name) for name in names if name.isdecimal() and len(name) < 19)
    return sorted(number for number in numbers if number < request["shards"])


def info(path: str | Path) -> dict[str, Any]:
    """The facts of a packed folder, complete or not."""
    with packed_readable(Path(path)):
        return _info(Path(path))


def _info(path: Path) -> dict[str, Any]:
    begun = read_shard(path, 0) is not None or (path / "about.json").exists()
    request, _ = _facts(path, begun, check=False)
    shards = [read_shard(path, number) for number in _shard_numbers(path, request)]
    present = [shard for shard in shards if shard is not None]
    bad: dict[str, int] = {}
    for shard in present:
        for _, _, kind, _ in shard["bad"]:
            bad[kind] = bad.get(kind, 0) + 1
    facts: dict[str, Any] = {
        "name": request["name"],
        "form": request["form"],
        "finished": (path / "about.json").exists(),
        "items": request["items"],
        "samples": sum(shard["samples"] for shard in present) if request["shards"] else None,
        "classes": request["classes"],
        "input_shape": request["input_shape"],
        "columns": request["columns"],
        "arrangement": request.get("arrangement"),
        "shards": f"{len(present)} of {request['shards']}",
        "bytes": sum(shard["bytes"] for shard in present),
        "bad": bad,
    }
    if facts["finished"]:
        about = read_sealed(path / "about.json", RESULT, REMEDY)
        facts |= {"samples": about["samples"], "fingerprint": about["fingerprint"]}
    return facts


def verify(path: str | Path, progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Compare every file with its stored checksum; one sentence per file that differs."""
    with packed_readable(Path(path)):
        return _verify(Path(path), progress)


def _verify(path: Path, progress: Callable[[int, int], None] | None) -> list[str]:
    request, _ = _facts(path, True, check=False)
    problems = []
    finished = (path / "about.json").exists()
    for number in range(request["shards"]) if finished else _shard_numbers(path, request):
        facts = read_shard(path, number)
        if facts is None:
            if finished:
                problems.append(
                    f"Shard {number} of {path} is missing or has another length: pack again."
                )
        elif file_checksum(shard_file(path, number)) != facts["checksum"]:
            problems.append(
                f"Shard {number} of {path} is not what was packed: delete "
                f"{shard_file(path, number).name} and pack again."
            )
        if progress is not None:
            progress(number + 1, request["shards"])
    if finished:
        about = read_sealed(path / "about.json", RESULT, REMEDY)
        for name, stored in about["checksums"].items():
            try:
                _check_listed(path, name, stored)
            except Damaged as error:
                problems.append(str(error))
    return problems
