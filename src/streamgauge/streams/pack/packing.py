"""Packing: writes any source as seekable shards, on all cores, in bounded memory, resumable.

A shard is a fixed range of the source's samples, so the result does not depend on the number of
processes. A shard file is written atomically, then its description; resuming writes the missing
shards. docs/pack.md documents the format.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.files import (
    LOCK,
    TEMPORARY,
    file_checksum,
    locked,
    make_folder,
    replace_synced,
    size_and_checksum,
    temporary_path,
    write_atomic,
    write_sealed,
    write_text,
)
from streamgauge.settings import check_choices, coerce
from streamgauge.streams import order as orders
from streamgauge.streams.images.image_source import BadImage, Decoding, import_pillow
from streamgauge.streams.order import mapped
from streamgauge.streams.pack import packed
from streamgauge.streams.prefetch import decodes
from streamgauge.streams.source import Array, IntArray, Source, pieces
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.streams.workers import Failed, Workers, cores

Form = Literal["auto", "kept", "jpeg", "array"]
OnBad = Literal["fatal", "skip"]
SHARD_BYTES = 64 << 20  # approximate size of a shard of arrays
BLOCK = 64  # samples per read and per progress report
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Packing:
    """Options of packing."""

    form: Form = "auto"  # kept: the bytes of the files; jpeg: resized, then JPEG; array: raw values
    size: int = 0  # pixels per side; 0: as in the source
    quality: int = 90  # of form jpeg
    shard: int = 0  # samples per shard; 0: up to 4,096 images, or 64 MB of arrays

    def __post_init__(self) -> None:
        check_choices(self)
        if self.size < 0 or self.shard < 0 or not 1 <= self.quality <= 95:
            raise StreamgaugeError(
                "size and shard must be 0 or more, quality between 1 and 95; they are "
                f"{self.size}, {self.shard} and {self.quality}."
            )


def pack(
    data: Source | Stream,
    out: str | Path,
    how: Packing | None = None,
    *,
    name: str | None = None,
    test: IntArray | None = None,
    on_bad: OnBad = "fatal",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> packed.PackedSource:
    """Pack all samples of a source into a folder, or resume an earlier call that stopped.

    For a stream, its name, its arrangement and its test set are packed, too, so that the packed
    stream is the same for every seed.

    `on_bad` handles images that cannot be decoded: `fatal` stops with an error; `skip` leaves them
    out and lists them with the reason in `bad.csv`. `workers` is the number of processes (default:
    one per core; 0 or 1: this process alone); the result does not depend on it.
    """
    coerce(on_bad, OnBad, "on_bad")
    folder = Path(out)
    source: Source
    if isinstance(data, Stream):
        source, arrangement = data.source, arrangement_of(data)
        split = data.splits.get("test")
        name, test = name or data.name, test if split is None else split.index
    else:
        source, arrangement = data, None
    request = _request(source, how or Packing(), name or "packed", test)
    request["arrangement"] = arrangement
    try:
        make_folder(folder)
        with locked(folder, f"Another process is packing into '{folder}' now."):
            _begin(folder, request)
            if any(
                packed.read_shard(folder, number) is None for number in range(request["shards"])
            ):
                (folder / "about.json").unlink(missing_ok=True)  # to be written again
            if not (folder / "about.json").exists():
                _columns(folder, source, request, test)
                _shards(folder, source, request, on_bad, workers, progress)
                _finish(folder, request)
    except OSError as error:
        raise _stopped(error, folder, request) from None
    return packed.PackedSource(folder)


def arrangement_of(stream: Stream) -> dict[str, Any] | None:
    """The arrangement that makes the same stream from its source, or None: the data may come with
    their own parts, or a program may have made the stream in another way. A seed other than 0 was
    chosen by the user and is kept for every seed that the packed stream is opened with; the default
    0 leaves the seed open."""
    names = [field.name for field in fields(Arrangement)]
    how = {name: value for name, value in stream.describe()["settings"].items() if name in names}
    if len(how) < len(names):
        return None
    if how["order"] == "time" and "time" not in stream.source.columns:
        how["order"] = "given"  # data in order of time may have no time column
    seeds = ("order_seed", "class_seed", "split_seed")
    if how["seed"] and not all(how[name] is not None for name in seeds):
        how |= {name: how["seed"] if how[name] is None else how[name] for name in seeds}
    test = stream.splits.get("test")
    try:
        again = arrange(
            stream.source, Arrangement(**how), test=None if test is None else np.sort(test.index)
        )
    except StreamgaugeError:
        return None
    return how if again.order_hash == stream.order_hash else None


def _request(source: Source, how: Packing, name: str, test: IntArray | None) -> dict[str, Any]:
    """Everything that determines the result; resuming with another request is an error."""
    images = decodes(source)
    form = how.form if how.form != "auto" else ("kept" if images else "array")
    shape, kind = tuple(source.spec.input_shape), np.dtype(np.uint8)
    if form == "kept" and not images:
        raise StreamgaugeError(
            "This source has no image files that could be kept as they are: leave --form out."
        )
    rgb = len(shape) == 3 and shape[0] == 3
    if not images:
        kind = source.read(np.zeros(1, np.int64)).dtype
        if (form == "jpeg" or how.size) and not (rgb and kind == np.uint8):
            raise StreamgaugeError(
                f"Only images can be resized or made JPEGs; the inputs here are of shape {shape} "
                f"and type {kind}."
            )
    if how.size:
        shape = (3, how.size, how.size)
    each = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    items = len(source)
    # Small sources also get shards for many cores; the result is independent of their number.
    shard = how.shard or max(64, min(4096, -(-items // 64)))
    if form == "array" and not how.shard:
        shard = max(1, min(65536, SHARD_BYTES // max(1, each)))
    names = source.class_names
    return {
        "version": packed.VERSION,
        "name": name,
        "form": form,
        "items": items,
        "input_shape": list(shape),
        "quality": how.quality if form == "jpeg" else None,
        "shard": shard,
        "shards": 0 if each == 0 else -(-items // shard),
        "resize": bool(how.size) and not images,
        "dtype": kind.str,
        "classes": source.spec.classes,
        "class_names": None if names is None else list(names),
        "columns": ["label", *sorted(source.columns)],
        "has_test": test is not None,
        "decode": getattr(source, "settings", {}) if images else {},
        "source": source.fingerprint,
    }


def _begin(folder: Path, request: dict[str, Any]) -> None:
    if packed.is_packed(folder):
        before = packed.read_request(folder)
        before.pop("format", None)
        old, new = _flat(before), _flat(request)
        if "arrangement" not in before:  # packed by an older version, which did not store it
            old = {**old, **{k: v for k, v in new.items() if k.startswith("stream.")}}
        different = [k for k in {**new, **old} if new.get(k) != old.get(k)]
        if different:
            name = different[0]
            was, now = _short(old.get(name)), _short(new.get(name))
            raise StreamgaugeError(
                f"'{folder}' holds a pack of something else ('{name}' was {was} and is {now}): "
                "choose another folder."
            )
        if "arrangement" not in before:
            write_sealed(folder / "pack.json", request)
        return
    if any(not _begun(entry) for entry in folder.iterdir()):
        raise StreamgaugeError(f"'{folder}' is not empty and not a packed folder: choose another.")
    write_sealed(folder / "pack.json", request)


def _begun(entry: Path) -> bool:
    """Whether a kill before `pack.json` was written may have left this entry."""
    if entry.name in ("shards", "columns"):  # versions before 0.2 made them first
        return entry.is_dir() and not any(entry.iterdir())
    return entry.name == LOCK or entry.suffix in TEMPORARY


def _flat(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the settings of the arrangement under their names on the command line."""
    how = request.get("arrangement") or {}
    rest = {name: value for name, value in request.items() if name != "arrangement"}
    return {**rest, **{f"stream.{name}": value for name, value in how.items()}}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 40 else f"{text[:36]} ..."


# Three phases: columns, shards, and what is computed from all shards.


def _columns(folder: Path, source: Source, request: dict[str, Any], test: IntArray | None) -> None:
    make_folder(folder / "columns")
    for name in request["columns"]:
        values = source.label if name == "label" else source.columns[name]
        _save(folder / "columns" / f"{name}.npy", np.asarray(values))
    if test is not None:
        _save(folder / "columns" / "test-addresses.npy", np.sort(np.asarray(test, np.int64)))


def _shards(
    folder: Path,
    source: Source,
    request: dict[str, Any],
    on_bad: OnBad,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    items, each = request["items"], request["shard"]
    make_folder(folder / "shards")
    missing = []
    done = 0
    for number in range(request["shards"]):
        facts = packed.read_shard(folder, number)
        if facts is None:
            missing.append(number)
            continue
        if on_bad == "fatal" and facts["bad"]:
            raise _bad(*facts["bad"][0])
        done += min(each, items - number * each)
    for leftover in (folder / "shards").glob("*.part"):  # of a process that was killed
        leftover.unlink()
    count = min(cores() if workers is None else workers, len(missing))
    packer = _Packer(folder, source, request, on_bad)

    def report(samples: int) -> None:
        nonlocal done
        done += samples
        if progress is not None:
            progress(done, items)

    report(0)
    if count <= 1:
        packer.report = report
        for number in missing:
            packer(number)
        return
    pool = Workers(count, packer)
    try:
        _distribute(pool, missing, report)
    finally:
        pool.stop()


def _distribute(pool: Workers, missing: list[int], report: Callable[[int], None]) -> None:
    """Give each idle worker the next missing shard."""
    queue = iter(missing)
    busy = {}
    for worker in range(len(pool)):
        busy[worker] = next(queue)
        pool.send(worker, busy[worker])
    while busy:
        for worker, answer in pool.receive(list(busy), None):
            if isinstance(answer, int):
                report(answer)
                continue
            number = busy.pop(worker)
            if answer is None:
                raise StreamgaugeError(
                    f"A worker process was killed at shard {number} (perhaps memory was full): run"
                    " the same command to go on."
                )
            if isinstance(answer, Failed):
                raise StreamgaugeError(f"Packing stopped: {answer}")
            if isinstance(answer, Exception):
                raise answer
            number = next(queue, -1)
            if number >= 0:
                busy[worker] = number
                pool.send(worker, number)


def _bad(item: int, name: str | None, kind: str, reason: str) -> StreamgaugeError:
    image = f"of sample {item}" if name is None else f"'{name}' (sample {item})"
    return StreamgaugeError(
        f"The image {image} cannot be packed. {reason} Repair or remove it, or use --on-bad skip to"
        " leave such images out and list them."
    )


class _Packer:
    """Writes one shard per call; runs in every worker."""

    def __init__(
        self, folder: Path, source: Source, request: dict[str, Any], on_bad: OnBad
    ) -> None:
        self.folder, self.source, self.request, self.on_bad = folder, source, request, on_bad
        self.report: Callable[[int], None] | None = None
        self._parent = os.getpid()
        self._decoding = Decoding(**request["decode"])
        self._sides = tuple(request["input_shape"][1:])

    def __call__(self, number: int) -> str:
        temporary = temporary_path(packed.shard_file(self.folder, number))
        try:
            self._make(number, temporary)
        finally:
            temporary.unlink(missing_ok=True)
        return "done"

    def _make(self, number: int, temporary: Path) -> None:
        start = number * self.request["shard"]
        end = min(start + self.request["shard"], self.request["items"])
        digest = hashlib.blake2b(digest_size=16)
        sizes: list[int] = []
        sums: list[int] = []
        bad: list[tuple[int, str | None, str, str]] = []
        with temporary.open("wb", buffering=1 << 20) as file:
            for block in range(start, end, BLOCK):
                stop = min(block + BLOCK, end)
                for data in self._block(block, stop, bad):
                    file.write(data)
                    digest.update(data)
                    sizes.append(len(data))
                    sums.append(zlib.crc32(data))
                if bad and self.on_bad == "fatal":
                    raise _bad(*bad[0])
                if os.getpid() != self._parent and os.getppid() != self._parent:
                    raise StreamgaugeError("The parent process has ended.")
                if self.report is not None:
                    self.report(stop - block)
        arrays = {packed.sums_file(self.folder, number): sums}
        if self.request["form"] != "array":
            arrays[packed.sizes_file(self.folder, number)] = sizes
        for target, values in arrays.items():
            _save(target, np.array(values, np.uint32))
        replace_synced(temporary, packed.shard_file(self.folder, number))
        facts = {
            "samples": len(sizes),
            "bytes": sum(sizes),
            "checksum": digest.hexdigest(),
            "bad": bad,
            "files": {each.name: size_and_checksum(each) for each in arrays},
        }
        write_sealed(packed.shard_file(self.folder, number).with_suffix(".json"), facts)

    def _block(
        self, start: int, end: int, bad: list[tuple[int, str | None, str, str]]
    ) -> Iterator[Any]:
        request = self.request
        if not decodes(self.source):
            rows = self.source.read(np.arange(start, end))
            if request["resize"]:
                rows = np.stack([Decoding().decode(_as_ppm(row), self._sides) for row in rows])
            for row in rows:
                yield (
                    _as_jpeg(row, request["quality"])
                    if request["form"] == "jpeg"
                    else (np.ascontiguousarray(row).data.cast("B") if row.ndim else row.tobytes())
                )
            return
        source: Any = self.source
        name_of = getattr(source, "name", None)
        for item in range(start, end):
            name = name_of(item) if callable(name_of) else None
            try:
                data = _read(source, item)
                # Images of form `kept` are decoded, too, to find bad ones before a run does.
                pixels = self._decoding.decode(data, self._sides, name)
            except BadImage as error:
                bad.append((item, name, error.kind, error.reason))
                if self.on_bad == "fatal":
                    return
                continue
            if request["form"] == "kept":
                yield data
            elif request["form"] == "jpeg":
                yield _as_jpeg(pixels, request["quality"])
            else:
                yield pixels.data.cast("B")


def _read(source: Any, item: int) -> bytes:
    try:
        data: bytes = source.encoded(item)
    except OSError as error:
        raise BadImage(f"It cannot be read: {error.strerror}.", "unreadable") from None
    return data


def _as_ppm(pixels: Array) -> bytes:
    _, height, width = pixels.shape
    return b"P6 %d %d 255 " % (width, height) + pixels.transpose(1, 2, 0).tobytes()


def _as_jpeg(pixels: Array, quality: int) -> bytes:
    pillow = import_pillow()
    file = io.BytesIO()
    image = pillow.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _finish(folder: Path, request: dict[str, Any]) -> None:
    """Write what depends on all shards; `about.json` last."""
    shards = []
    for number in range(request["shards"]):
        facts = packed.read_shard(folder, number)
        if facts is None:
            raise StreamgaugeError(
                f"Shard {number} of '{folder}' is missing: run the command again."
            )
        shards.append(facts)
    bad = [entry for facts in shards for entry in facts["bad"]]
    items = request["items"]
    samples = items - len(bad)
    if bad:
        text = io.StringIO()
        csv.writer(text).writerows([("item", "name", "kind", "reason"), *bad])
        write_text(folder / "bad.csv", text.getvalue())
    if samples == 0:
        raise StreamgaugeError(
            f"None of the {items} images can be used; see {folder / 'bad.csv'} for the reasons."
        )
    folder_name = "columns"
    if bad:
        folder_name = "kept"
        make_folder(folder / "kept")
        good = packed.kept_items(shards, items)
        for name in request["columns"]:
            column = mapped(folder / "columns" / f"{name}.npy")
            _save_pieces(folder / "kept" / f"{name}.npy", column.dtype, samples,
                         (column[good[part]] for part in pieces(samples)))  # fmt: skip
    if request["has_test"]:
        listed = mapped(folder / "columns" / "test-addresses.npy")
        _save(folder / "test.npy", packed.kept_test(folder, good) if bad else listed)
    if request["form"] != "array":
        _save_pieces(folder / "offset.npy", np.dtype(np.int64), samples + 1,
                     packed.offsets(folder, len(shards)))  # fmt: skip
    files = [f"{folder_name}/{name}.npy" for name in request["columns"]]
    files += ["test.npy"] * request["has_test"] + ["offset.npy"] * (request["form"] != "array")
    checksums = {name: file_checksum(folder / name) for name in files}
    fingerprint = hashlib.blake2b(digest_size=16)
    same = ("version", "form", "input_shape", "dtype", "classes", "class_names", "decode")
    fingerprint.update(json.dumps({name: request[name] for name in same}).encode())
    for name in sorted(checksums):
        fingerprint.update(f"{Path(name).name} {checksums[name]};".encode())
    for facts in shards:
        fingerprint.update(facts["checksum"].encode())
    time_column = folder / folder_name / "time.npy"
    has_sums = bool(shards) and all("files" in facts for facts in shards)
    if has_sums:  # not part of the fingerprint, which older packs of the same samples have
        _save_pieces(folder / "sums.npy", np.dtype(np.uint32), samples,
                     packed.sums(folder, len(shards)))  # fmt: skip
        checksums["sums.npy"] = file_checksum(folder / "sums.npy")
    about = {
        "samples": samples,
        "fingerprint": fingerprint.hexdigest(),
        "beside": folder_name,
        "in_time_order": time_column.exists() and orders.is_sorted(mapped(time_column)),
        "has_test": request["has_test"],
        "bad": len(bad),
        "rows": packed.rows_of(shards) if shards else [0, samples],
        "checksums": checksums,
        "sums": has_sums,
    }
    write_sealed(folder / "about.json", about)


def _save(file: Path, values: Array) -> None:
    _save_pieces(file, values.dtype, len(values), (values[part] for part in pieces(len(values))))


def _save_pieces(file: Path, kind: np.dtype[Any], count: int, parts: Iterator[Array]) -> None:
    """Write a one-dimensional `.npy` file in pieces."""
    header = {"descr": kind.str, "fortran_order": False, "shape": (count,)}
    with write_atomic(file) as temporary, temporary.open("wb") as opened:
        np.lib.format.write_array_header_1_0(opened, header)
        for values in parts:
            opened.write(np.ascontiguousarray(values).data)


def _stopped(error: OSError, folder: Path, request: dict[str, Any]) -> StreamgaugeError:
    if error.errno not in FULL:
        file = f" ({error.filename})" if error.filename else ""
        return StreamgaugeError(
            f"'{folder}' cannot be packed into: {error.strerror}{file}; choose another folder."
        )
    done = sum(
        min(request["shard"], request["items"] - number * request["shard"])
        for number in range(request["shards"])
        if packed.read_shard(folder, number) is not None
    )
    return StreamgaugeError(
        f"The disk is full: {done:,} of {request['items']:,} samples are packed in '{folder}' and"
        " can be read (--stream.partial true); free some space and run the same command to go on."
    )
