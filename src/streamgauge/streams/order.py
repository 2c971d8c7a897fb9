"""Orders over a source: the sequence in which samples arrive, and the task of each.

Every function returns addresses in order of arrival and a task number per position, or None where
the stream has no tasks. Labels stay as they are.

The order of a long source is computed once and memory-mapped afterwards. The cache has a folder per
arrangement, named by a hash of all that determines the order. It holds one `.npy` file per part and
`order.json` with the hash of the order.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.files import (
    check_file,
    read_sealed,
    replace_synced,
    size_and_checksum,
    temporary_path,
    write_sealed,
)
from streamgauge.streams.source import Array, IntArray, Source, pieces


class Order(NamedTuple):
    index: IntArray  # type: ignore[assignment]
    task: IntArray | None = None
    class_task: IntArray | None = None  # task of each class, where classes have one


def address_type(count: int) -> type[np.int32] | type[np.int64]:
    """The smallest integer type for addresses: 39 million take 156 MB instead of 312."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64


def addresses(count: int) -> IntArray:
    """All addresses, in order."""
    return np.arange(count, dtype=address_type(count))


def given(source: Source) -> Order:
    """The order of the source."""
    return Order(addresses(len(source)))


def by_time(source: Source) -> Order:
    """Oldest first; samples of equal time stay in the order of the source."""
    time = _column(source, "time", "a time-ordered stream")
    if getattr(source, "in_time_order", False) or is_sorted(time):
        return given(source)
    return Order(np.argsort(time, kind="stable").astype(address_type(len(source))))


def is_sorted(time: Array) -> bool:
    """Whether no value is smaller than its predecessor; in pieces, to bound memory."""
    return all(
        bool(np.all(time[part.start + 1 : part.stop + 1] >= time[part]))
        for part in pieces(len(time) - 1)
    )


def iid(source: Source, seed: int) -> Order:
    """Shuffled."""
    return Order(np.random.default_rng(seed).permutation(addresses(len(source))))


def class_order(classes: int, seed: int) -> IntArray:
    """A permutation of the classes by `torch.randperm`, equal to the survey's for equal seeds."""
    with packages_for("A random order of the classes"):
        import torch

    order: IntArray = torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).numpy()
    return order


def class_incremental(source: Source, tasks: int, class_seed: int, seed: int) -> Order:
    """Classes arrive task by task; inside a task the samples are shuffled."""
    class_task = _class_tasks(source.spec.classes, tasks, class_seed)
    task = class_task.astype(np.int32)[source.label]
    return Order(*_by_task(task, tasks, seed), class_task)


def blurry(source: Source, tasks: int, overlap: float, class_seed: int, seed: int) -> Order:
    """Class-incremental, except that a share `overlap` of the samples gets a task drawn uniformly
    from all tasks. 0 is class-incremental, 1 is i.i.d."""
    if not 0 <= overlap <= 1:
        raise StreamgaugeError(f"overlap must be between 0 and 1, not {overlap}.")
    rng = np.random.default_rng([seed, 1])
    class_task = _class_tasks(source.spec.classes, tasks, class_seed)
    task = class_task[source.label]
    strays = rng.random(len(task)) < overlap
    task = np.where(strays, rng.integers(0, tasks, len(task)), task)
    return Order(*_by_task(task, tasks, seed), class_task)


def domain_incremental(source: Source, seed: int) -> Order:
    """One domain (a year, a camera, a style) after the other, in increasing order of its value."""
    domain = _column(source, "domain", "a domain-incremental stream")
    values, task = np.unique(domain, return_inverse=True)
    return Order(*_by_task(task, len(values), seed))


def _class_tasks(classes: int, tasks: int, class_seed: int) -> IntArray:
    if not 1 <= tasks <= classes:
        raise StreamgaugeError(f"{classes} classes cannot be divided into {tasks} tasks.")
    task = np.empty(classes, np.int64)
    for number, chunk in enumerate(np.array_split(class_order(classes, class_seed), tasks)):
        task[chunk] = number
    return task


def _by_task(task: IntArray, tasks: int, seed: int) -> tuple[IntArray, IntArray]:
    shuffled = np.random.default_rng(seed).permutation(addresses(len(task)))
    index = shuffled[np.argsort(task[shuffled], kind="stable")]
    return index, task[index].astype(np.int32, copy=False)


def _column(source: Source, name: str, purpose: str) -> Array:
    if name not in source.columns:
        present = ", ".join(sorted(source.columns)) or "no columns"
        raise StreamgaugeError(f"{purpose} needs a column '{name}'; this source has {present}.")
    return source.columns[name]


LONG = 1 << 20  # samples; shorter orders are computed faster than loaded
ORDER = {"hash": str, "parts": dict, "lengths": dict, "files": dict}  # of order.json
_VERSION = 1  # of the ordering rules; a new number invalidates stored orders


@dataclass(frozen=True)
class StoredHash:
    """The stored hash of an order. It is valid for exactly these arrays: a stream that was changed
    after loading is hashed and checked again."""

    hash: str
    parts: Mapping[str, Any]  # arrays, or None

    def fits(self, parts: Mapping[str, IntArray | None]) -> bool:
        return parts.keys() == self.parts.keys() and all(parts[n] is self.parts[n] for n in parts)


def stored_folder(
    cache: Path, source: Source, chosen: Mapping[str, Any], test: IntArray | None
) -> Path:
    """The folder of the stored order of this source with these settings and test set."""
    settings = json.dumps(dict(chosen), sort_keys=True, default=str)
    digest = hashlib.blake2b(f"{_VERSION} {source.fingerprint} {settings}".encode(), digest_size=12)
    if test is not None:
        digest.update(np.asarray(test, np.int64).tobytes())
    return cache / digest.hexdigest()


def load_order(folder: Path) -> tuple[StoredHash, IntArray | None] | None:
    """A stored order, memory-mapped, and the task of each class; None if it is incomplete."""
    try:
        about = read_sealed(folder / "order.json", ORDER, "")
        for file, stored in about["files"].items():
            check_file(folder / file, stored, "")
        arrays = {
            name: None if file is None else mapped(folder / file)
            for name, file in about["parts"].items()
        }
        for name, array in arrays.items():
            if array is not None and len(array) != about["lengths"][name]:
                return None
    except (OSError, ValueError, KeyError, EOFError, StreamgaugeError):
        return None  # it is computed again
    class_task = arrays.pop("class_task")
    return StoredHash(about["hash"], arrays), class_task


def save_order(
    folder: Path, parts: Mapping[str, IntArray | None], class_task: IntArray | None, hashed: str
) -> None:
    """Store an order. If the folder cannot be written, the order is computed again next time."""
    temporary = temporary_path(folder)
    all_parts = {**parts, "class_task": class_task}
    files = {
        name: None if part is None else f"{number}.npy"
        for number, (name, part) in enumerate(all_parts.items())
    }
    about: dict[str, Any] = {
        "hash": hashed,
        "parts": files,
        "lengths": {name: len(part) for name, part in all_parts.items() if part is not None},
    }
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            if file is not None:
                np.save(temporary / file, all_parts[name])  # type: ignore[arg-type]
        names = [file for file in files.values() if file is not None]
        about["files"] = {file: size_and_checksum(temporary / file) for file in names}
        write_sealed(temporary / "order.json", about)
        if folder.exists() and load_order(folder) is None:  # damaged
            shutil.rmtree(folder)
        replace_synced(temporary, folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)


def mapped(file: Path) -> Any:
    """A memory-mapped `.npy` file as a plain array; indexing `np.memmap` is much slower."""
    array = np.load(file, mmap_mode="r")
    return np.asarray(array)
