"""Packing: any source into seekable shards, over all cores, in bounded memory, resumable.

A shard is a fixed stretch of the source's samples, so what comes out does not depend on how many
processes made it. A shard appears under its name when it is whole, and its description after it;
what is missing is made when packing goes on. docs/pack.md has the format.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.files import (
    LOCK,
    locked,
    replace_synced,
    temporary_path,
    write_atomic,
    write_text,
)
from streamgauge.streams import order as orders
from streamgauge.streams.pack.packed import (
    VERSION,
    PackedSource,
    file_checksum,
    is_packed,
    kept_items,
    read_shard,
    rows_of,
    shard_file,
    sizes_file,
)
from streamgauge.streams.source import Array, IntArray, Source
from streamgauge.streams.stored_order import mapped
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.streams.workers import Failed, Workers, cores

Form = Literal["auto", "kept", "jpeg", "array"]
OnBad = Literal["fatal", "skip"]
SHARD_BYTES = 64 << 20  # of a shard of arrays, about
BLOCK = 64  # samples that are read at once, and after which progress is told
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Packing:
    """How samples are packed."""

    form: Form = "auto"  # kept: bytes of the files; jpeg: resized, then JPEG; array: plain values
    size: int = 0  # pixels a side; 0: the source's own
    quality: int = 90  # of form jpeg
    shard: int = 0  # samples a shard; 0: up to 4,096 images, or 64 MB of arrays

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise StreamgaugeError(
                f"form cannot be {self.form!r}; {nearest(self.form, get_args(Form))}"
            )
        if self.size < 0 or self.shard < 0 or not 1 <= self.quality <= 95:
            raise StreamgaugeError(
                "size and shard are 0 or more, quality lies between 1 and 95; they are "
                f"{self.size}, {self.shard} and {self.quality}."
            )


def pack(
    what: Source | Stream,
    out: str | Path,
    how: Packing | None = None,
    *,
    name: str | None = None,
    test: IntArray | None = None,
    on_bad: OnBad = "fatal",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PackedSource:
    """Pack all samples of a source into a folder, or go on where an earlier call stopped.

    Of a stream, the settings that arrange it, its name and which samples are its test set are
    packed too, so that the packed stream is the same one, seed by seed.

    `on_bad`: what becomes of an image that cannot be used. `fatal` stops with a sentence; `skip`
    leaves it out, counts it and lists it with its reason in `bad.csv`. `workers` processes share
    the work (by default one a core; 0 or 1: none but this one). The result is the same for any
    number of them.
    """
    if on_bad not in get_args(OnBad):
        raise StreamgaugeError(f"on_bad cannot be {on_bad!r}; {nearest(on_bad, get_args(OnBad))}")
    folder = Path(out)
    source: Source
    if isinstance(what, Stream):
        source, arrangement = what.source, arrangement_of(what)
        apart = what.splits.get("test")
        name, test = name or what.name, test if apart is None else apart.index
    else:
        source, arrangement = what, None
    request = _request(source, how or Packing(), name or "packed", test)
    request["arrangement"] = arrangement
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, f"Another process is packing into '{folder}' now."):
            _begin(folder, request)
            if any(read_shard(folder, number) is None for number in range(request["shards"])):
                (folder / "about.json").unlink(missing_ok=True)  # a shard was lost: make it again
            if not (folder / "about.json").exists():
                _columns(folder, source, request, test)
                _shards(folder, source, request, on_bad, workers, progress)
                _finish(folder, request)
    except OSError as error:
        raise _stopped(error, folder, request) from None
    return PackedSource(folder)


def arrangement_of(stream: Stream) -> dict[str, Any] | None:
    """The settings that make this stream of its source again. None where none do: the data came
    with parts of their own, or a program made the stream in a way of its own.

    A seed other than 0 was chosen by someone, so the packed stream keeps it whatever seed it is
    opened with; 0 is what a stream has unless told otherwise, and leaves the seed open.
    """
    names = [one.name for one in fields(Arrangement)]
    how = {name: value for name, value in stream.describe()["settings"].items() if name in names}
    if len(how) < len(names):
        return None
    if how["order"] == "time" and "time" not in stream.source.columns:
        how["order"] = "given"  # data that are known to lie in order of time may have no times
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
    """Everything that decides what is packed; going on with another request is refused."""
    images = hasattr(source, "encoded") and getattr(source, "encoded_images", True)
    form = how.form if how.form != "auto" else ("kept" if images else "array")
    shape, kind = tuple(source.spec.input_shape), np.dtype(np.uint8)
    if form == "kept" and not images:
        raise StreamgaugeError(
            "This source has no image files that could be kept as they are: leave --form out."
        )
    pictures = len(shape) == 3 and shape[0] == 3
    if not images:
        kind = source.read(np.zeros(1, np.int64)).dtype
        if (form == "jpeg" or how.size) and not (pictures and kind == np.uint8):
            raise StreamgaugeError(
                f"Only images can be resized or made JPEGs; the inputs here are of shape {shape} "
                f"and type {kind}."
            )
    if how.size:
        shape = (3, how.size, how.size)
    each = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    items = len(source)
    # Small sources too have shards for every core; the number of cores itself plays no part.
    shard = how.shard or max(64, min(4096, -(-items // 64)))
    if form == "array" and not how.shard:
        shard = max(1, min(65536, SHARD_BYTES // max(1, each)))
    names = source.class_names
    return {
        "version": VERSION,
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
    if is_packed(folder):
        before = json.loads((folder / "pack.json").read_text())
        old, new = _flat(before), _flat(request)
        if "arrangement" not in before:  # packed by a version that did not keep it: keep it now
            old = {**old, **{k: v for k, v in new.items() if k.startswith("stream.")}}
        different = [k for k in {**new, **old} if new.get(k) != old.get(k)]
        if different:
            what = different[0]
            was, now = _short(old.get(what)), _short(new.get(what))
            raise StreamgaugeError(
                f"'{folder}' holds a pack of something else ('{what}' was {was} and is {now}): "
                "choose another folder."
            )
        if "arrangement" not in before:
            write_text(folder / "pack.json", json.dumps(request, indent=1))
        return
    if any(entry.name != LOCK for entry in folder.iterdir()):
        raise StreamgaugeError(f"'{folder}' is not empty and no packed folder: choose another.")
    (folder / "shards").mkdir()
    (folder / "columns").mkdir()
    write_text(folder / "pack.json", json.dumps(request, indent=1))


def _flat(request: dict[str, Any]) -> dict[str, Any]:
    """With settings of the arrangement by the names they are given under."""
    how = request.get("arrangement") or {}
    rest = {name: value for name, value in request.items() if name != "arrangement"}
    return {**rest, **{f"stream.{name}": value for name, value in how.items()}}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 40 else f"{text[:36]} ..."


# The three parts of the work: columns, shards, and what is known when all of them are there.


def _columns(folder: Path, source: Source, request: dict[str, Any], test: IntArray | None) -> None:
    for name in request["columns"]:
        values = source.label if name == "label" else source.columns[name]
        file = folder / "columns" / f"{name}.npy"
        if not file.exists():
            _save(file, np.asarray(values))
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
    missing = []
    done = 0
    for number in range(request["shards"]):
        facts = read_shard(folder, number)
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
    told = _Told(progress, done, items)
    if count <= 1:
        packer.told = told.more
        for number in missing:
            told.shard(packer(number))
        return
    pool = Workers(count, packer)
    try:
        _share(pool, missing, told)
    finally:
        pool.stop()


def _share(pool: Workers, missing: list[int], told: _Told) -> None:
    """Give every worker a shard at a time, until none is left."""
    coming = iter(missing)
    busy = {}
    for worker in range(len(pool)):
        busy[worker] = next(coming)
        pool.send(worker, busy[worker])
    while busy:
        for worker, answer in pool.receive(list(busy), None):
            if isinstance(answer, int):
                told.more(answer)
                continue
            number = busy.pop(worker)
            if answer is None:
                raise StreamgaugeError(
                    f"A process that packed was ended from outside, at shard {number} (perhaps the"
                    " memory was full): run the same command to go on."
                )
            told.shard(answer)
            number = next(coming, -1)
            if number >= 0:
                busy[worker] = number
                pool.send(worker, number)


class _Told:
    """Tells how far it is, and raises what a shard could not be made for."""

    def __init__(self, progress: Callable[[int, int], None] | None, done: int, items: int) -> None:
        self.progress, self.done, self.items = progress, done, items
        self.more(0)

    def more(self, samples: int) -> None:
        self.done += samples
        if self.progress is not None:
            self.progress(self.done, self.items)

    def shard(self, answer: Any) -> None:
        if isinstance(answer, Failed):
            raise StreamgaugeError(f"Packing stopped: {answer}")
        kind, value = answer
        if kind == "bad":
            raise _bad(*value)
        if kind == "os":
            raise OSError(*value)
        if kind == "said":
            raise StreamgaugeError(value)


def _bad(item: int, name: str | None, kind: str, reason: str) -> StreamgaugeError:
    called = f"of sample {item}" if name is None else f"'{name}' (sample {item})"
    return StreamgaugeError(
        f"The image {called} cannot be packed. {reason} Mend or remove it, or use --on-bad skip to"
        " leave such images out and list them."
    )


class _Packer:
    """Makes one shard; lives in every worker."""

    def __init__(
        self, folder: Path, source: Source, request: dict[str, Any], on_bad: OnBad
    ) -> None:
        self.folder, self.source, self.request, self.on_bad = folder, source, request, on_bad
        self.told: Callable[[int], None] | None = None
        self._parent = os.getpid()

    def __call__(self, number: int) -> tuple[str, Any]:
        aside = temporary_path(shard_file(self.folder, number))
        try:
            return self._make(number, aside)
        except OSError as error:
            return "os", (error.errno, error.strerror)
        except StreamgaugeError as error:
            return "said", str(error)
        finally:
            aside.unlink(missing_ok=True)

    def _make(self, number: int, aside: Path) -> tuple[str, Any]:
        start = number * self.request["shard"]
        end = min(start + self.request["shard"], self.request["items"])
        digest = hashlib.blake2b(digest_size=16)
        sizes: list[int] = []
        bad: list[tuple[int, str | None, str, str]] = []
        with aside.open("wb", buffering=1 << 20) as file:
            for block in range(start, end, BLOCK):
                stop = min(block + BLOCK, end)
                for data in self._block(block, stop, bad):
                    file.write(data)
                    digest.update(data)
                    sizes.append(len(data))
                if bad and self.on_bad == "fatal":
                    return "bad", bad[0]
                if os.getpid() != self._parent and os.getppid() != self._parent:
                    raise StreamgaugeError("The process that asked for it is gone.")
                if self.told is not None:
                    self.told(stop - block)
        if self.request["form"] != "array":
            _save(sizes_file(self.folder, number), np.array(sizes, np.uint32))
        replace_synced(aside, shard_file(self.folder, number))
        facts = {
            "samples": len(sizes),
            "bytes": sum(sizes),
            "checksum": digest.hexdigest(),
            "bad": bad,
        }
        write_text(shard_file(self.folder, number).with_suffix(".json"), json.dumps(facts))
        return "done", end - start

    def _block(
        self, start: int, end: int, bad: list[tuple[int, str | None, str, str]]
    ) -> Iterator[Any]:
        request = self.request
        if not hasattr(self.source, "encoded") or not getattr(self.source, "encoded_images", True):
            rows = self.source.read(np.arange(start, end))
            if request["resize"]:
                from streamgauge.streams.images.image_source import decode

                rows = np.stack([decode(_as_ppm(r), request["input_shape"][1:]) for r in rows])
            for row in rows:
                yield (
                    _as_jpeg(row, request["quality"])
                    if request["form"] == "jpeg"
                    else (np.ascontiguousarray(row).data.cast("B") if row.ndim else row.tobytes())
                )
            return
        from streamgauge.streams.images.image_source import BadImage, decode

        source: Any = self.source
        called = getattr(source, "name", None)
        for item in range(start, end):
            name = called(item) if callable(called) else None
            try:
                data = _read(source, item)
                # Kept images are decoded too: that is how a bad one is found now and not in a run.
                pixels = decode(data, tuple(request["input_shape"][1:]), name=name,
                                **request["decode"])  # fmt: skip
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
    from streamgauge.streams.images.image_source import BadImage

    try:
        data: bytes = source.encoded(item)
    except OSError as error:
        raise BadImage(f"It cannot be read: {error.strerror}.", "unreadable") from None
    return data


def _as_ppm(pixels: Array) -> bytes:
    _, height, width = pixels.shape
    return b"P6 %d %d 255 " % (width, height) + pixels.transpose(1, 2, 0).tobytes()


def _as_jpeg(pixels: Array, quality: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _finish(folder: Path, request: dict[str, Any]) -> None:
    """What is known once all shards are there; `about.json` comes last."""
    shards = []
    for number in range(request["shards"]):
        facts = read_shard(folder, number)
        if facts is None:
            raise StreamgaugeError(f"Shard {number} of '{folder}' vanished: run the command again.")
        shards.append(facts)
    bad = [entry for facts in shards for entry in facts["bad"]]
    items = request["items"]
    samples = items - len(bad)
    write_bad(folder, bad)
    if samples == 0:
        raise StreamgaugeError(
            f"None of the {items} images can be used; see {folder / 'bad.csv'} for the reasons."
        )
    beside = "columns"
    if bad:
        beside = "kept"
        (folder / "kept").mkdir(exist_ok=True)
        good = kept_items(shards, items)
        for name in request["columns"]:
            column = mapped(folder / "columns" / f"{name}.npy")
            _save_pieces(folder / "kept" / f"{name}.npy", column.dtype, samples,
                         (column[p] for p in _pieces(good)))  # fmt: skip
    if request["has_test"]:
        test = mapped(folder / "columns" / "test-addresses.npy")
        if bad:
            test = np.searchsorted(good, test[np.isin(test, good)])
        _save(folder / "test.npy", test)
    if request["form"] != "array":
        _save_pieces(folder / "offset.npy", np.dtype(np.int64), samples + 1,
                     _offsets(folder, len(shards)))  # fmt: skip
    files = [f"{beside}/{name}.npy" for name in request["columns"]]
    files += ["test.npy"] * request["has_test"] + ["offset.npy"] * (request["form"] != "array")
    checksums = {name: file_checksum(folder / name) for name in files}
    fingerprint = hashlib.blake2b(digest_size=16)
    same = ("version", "form", "input_shape", "dtype", "classes", "class_names", "decode")
    fingerprint.update(json.dumps({name: request[name] for name in same}).encode())
    for name in sorted(checksums):
        fingerprint.update(f"{Path(name).name} {checksums[name]};".encode())
    for facts in shards:
        fingerprint.update(facts["checksum"].encode())
    time_column = folder / beside / "time.npy"
    about = {
        "samples": samples,
        "fingerprint": fingerprint.hexdigest(),
        "beside": beside,
        "in_time_order": time_column.exists() and orders.is_sorted(mapped(time_column)),
        "has_test": request["has_test"],
        "bad": len(bad),
        "rows": rows_of(shards) if shards else [0, samples],
        "checksums": checksums,
    }
    write_text(folder / "about.json", json.dumps(about))


def write_bad(folder: Path, bad: list[Any]) -> None:
    if not bad:
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["item", "name", "kind", "reason"])
    writer.writerows(bad)
    write_text(folder / "bad.csv", text.getvalue())


def _offsets(folder: Path, shards: int) -> Iterator[IntArray]:
    at = 0
    yield np.zeros(1, np.int64)
    for number in range(shards):
        ends = at + np.cumsum(np.load(sizes_file(folder, number)), dtype=np.int64)
        at = int(ends[-1]) if len(ends) else at
        yield ends


def _pieces(index: IntArray) -> Iterator[IntArray]:
    return (index[start : start + orders.PIECE] for start in range(0, len(index), orders.PIECE))


def _save(file: Path, values: Array) -> None:
    _save_pieces(file, values.dtype, len(values), (values[p] for p in _slices(len(values))))


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, start + orders.PIECE) for start in range(0, count, orders.PIECE))


def _save_pieces(file: Path, kind: np.dtype[Any], count: int, pieces: Iterator[Array]) -> None:
    """A `.npy` file of one axis, written piece by piece."""
    header = {"descr": kind.str, "fortran_order": False, "shape": (count,)}
    with write_atomic(file) as part, part.open("wb") as opened:
        np.lib.format.write_array_header_1_0(opened, header)
        for piece in pieces:
            opened.write(np.ascontiguousarray(piece).data)


def _stopped(error: OSError, folder: Path, request: dict[str, Any]) -> StreamgaugeError:
    if error.errno not in FULL:
        where = f" ({error.filename})" if error.filename else ""
        return StreamgaugeError(f"'{folder}' cannot be packed into: {error.strerror}{where}.")
    done = sum(
        min(request["shard"], request["items"] - number * request["shard"])
        for number in range(request["shards"])
        if read_shard(folder, number) is not None
    )
    return StreamgaugeError(
        f"The disk is full: {done:,} of {request['items']:,} samples are packed in '{folder}' and"
        " can be read (--stream.partial true); make room and run the same command to go on."
    )
