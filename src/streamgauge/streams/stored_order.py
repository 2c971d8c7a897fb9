"""Stored orders: the order of a long source is computed once and memory-mapped afterwards.

The cache has a folder per arrangement, named by a hash of all_parts that determines the order. It
holds one `.npy` file per part and `order.json` with the hash of the order.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.files import replace_synced, temporary_path
from streamgauge.streams.source import IntArray, Source

LONG = 1 << 20  # samples; shorter orders are computed faster than loaded
_VERSION = 1  # of the ordering rules; a new number invalidates stored orders


@dataclass(frozen=True)
class StoredHash:
    """The stored hash of an order. It is valid for exactly these arrays: a stream that was changed
    after loading is hashed and checked again."""

    hash: str
    parts: Mapping[str, Any]  # arrays, or None

    def fits(self, parts: Mapping[str, IntArray | None]) -> bool:
        return parts.keys() == self.parts.keys() and all(parts[n] is self.parts[n] for n in parts)


def folder(cache: Path, source: Source, chosen: Mapping[str, Any], test: IntArray | None) -> Path:
    """The folder of the stored order of this source with these settings and test set."""
    settings = json.dumps(dict(chosen), sort_keys=True, default=str)
    digest = hashlib.blake2b(f"{_VERSION} {source.fingerprint} {settings}".encode(), digest_size=12)
    if test is not None:
        digest.update(np.asarray(test, np.int64).tobytes())
    return cache / digest.hexdigest()


def load(folder: Path) -> tuple[StoredHash, IntArray | None] | None:
    """A stored order, memory-mapped, and the task of each class; None if it is incomplete."""
    try:
        about = json.loads((folder / "order.json").read_text())
        arrays = {
            name: None if file is None else mapped(folder / file)
            for name, file in about["parts"].items()
        }
        for name, array in arrays.items():
            if array is not None and len(array) != about["lengths"][name]:
                return None
    except (OSError, ValueError, KeyError, EOFError):
        return None
    class_task = arrays.pop("class_task")
    return StoredHash(about["hash"], arrays), class_task


def save(
    folder: Path, parts: Mapping[str, IntArray | None], class_task: IntArray | None, hashed: str
) -> None:
    """Store an order. If the folder cannot be written, the order is computed again next time."""
    temporary = temporary_path(folder)
    all_parts = {**parts, "class_task": class_task}
    files = {
        name: None if part is None else f"{number}.npy"
        for number, (name, part) in enumerate(all_parts.items())
    }
    about = {
        "hash": hashed,
        "parts": files,
        "lengths": {name: len(part) for name, part in all_parts.items() if part is not None},
    }
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            if file is not None:
                np.save(temporary / file, all_parts[name])  # type: ignore[arg-type]
        (temporary / "order.json").write_text(json.dumps(about, indent=1))
        if folder.exists() and load(folder) is None:  # damaged
            shutil.rmtree(folder)
        replace_synced(temporary, folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)


def mapped(file: Path) -> Any:
    """A memory-mapped `.npy` file as a plain array; indexing `np.memmap` is much slower."""
    array = np.load(file, mmap_mode="r")
    return np.asarray(array)
