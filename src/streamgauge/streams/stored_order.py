"""Orders that are kept: what was arranged once over a long source is mapped from the disk later.

Next to the data is a folder per arrangement, named by a hash of everything that decides it.
It holds one `.npy` file for each part and, written last, `order.json` with the hash of the order.
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

LONG = 1 << 20  # samples; shorter ones are arranged faster than they are found
_VERSION = 1  # of the rules of arranging; with another number orders are made again


@dataclass(frozen=True)
class Known:
    """The hash of an order, which counts as long as the order still is the arrays it was made of:
    a stream that was changed after it was loaded is hashed and checked as any other."""

    hash: str
    parts: Mapping[str, Any]  # arrays, or None

    def fits(self, parts: Mapping[str, IntArray | None]) -> bool:
        return parts.keys() == self.parts.keys() and all(
            parts[name] is self.parts[name] for name in parts
        )


def folder(cache: Path, source: Source, chosen: Mapping[str, Any], test: IntArray | None) -> Path:
    """Where the order of this source, arranged and split like this, is kept."""
    settings = json.dumps(dict(chosen), sort_keys=True, default=str)
    digest = hashlib.blake2b(f"{_VERSION} {source.fingerprint} {settings}".encode(), digest_size=12)
    if test is not None:
        digest.update(np.asarray(test, np.int64).tobytes())
    return cache / digest.hexdigest()


def load(folder: Path) -> tuple[Known, IntArray | None] | None:
    """The parts, mapped, and the home task of each class; None if any is missing or not whole."""
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
    return Known(about["hash"], arrays), class_task


def save(
    folder: Path, parts: Mapping[str, IntArray | None], class_task: IntArray | None, hashed: str
) -> None:
    """Keep an order. A folder that cannot be written (full, or not ours) is no reason to stop: the
    order is made again next time."""
    aside = temporary_path(folder)
    everything = {**parts, "class_task": class_task}
    files = {
        name: None if part is None else f"{number}.npy"
        for number, (name, part) in enumerate(everything.items())
    }
    about = {
        "hash": hashed,
        "parts": files,
        "lengths": {name: len(part) for name, part in everything.items() if part is not None},
    }
    try:
        aside.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            if file is not None:
                np.save(aside / file, everything[name])  # type: ignore[arg-type]
        (aside / "order.json").write_text(json.dumps(about, indent=1))
        if folder.exists() and load(folder) is None:  # damaged
            shutil.rmtree(folder)
        replace_synced(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)


def mapped(file: Path) -> Any:
    """A `.npy` file as an array that stays on the disk. A plain array over the map: indexing
    NumPy's own class of maps costs several times as much."""
    array = np.load(file, mmap_mode="r")
    return np.asarray(array)
