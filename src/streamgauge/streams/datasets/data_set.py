"""Data sets: their descriptions, and how downloaded or local files become stored arrays.

A data set is a file in `datasets/` or `named/` with `DATA = described(...)`, and a table in
`about.toml`; there is no registry. A stored data set is a folder with memory-mapped arrays and
`about.json`: contents, origin, and how the contents were verified.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.files import read_sealed, replace_synced, write_sealed
from streamgauge.streams.datasets.archive import Files, Progress, download
from streamgauge.streams.source import Array, ArraySource, IntArray, pieces

_STREAMS = Path(__file__).parents[1]
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


UNKNOWN_SIZE = 1_000_000_000  # bytes; the most that is downloaded of a file of unknown size


@dataclass(frozen=True)
class Remote:
    """A file at its official URL. If `md5` is None, the contents are verified instead."""

    name: str
    urls: tuple[str, ...]
    md5: str | None
    megabytes: int | None = None


@dataclass(frozen=True)
class Contents:
    """The result of reading the files of a data set."""

    arrays: Mapping[str, Array]  # as stored; always with `label`
    form: str  # description of the published form
    classes: int
    class_names: Sequence[str] | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)  # part: md5
    streamed: int | None = None  # number of samples before the official test set, which comes last
    verified: str = ""  # how, if not by `checksums`
    more: Mapping[str, Any] = field(default_factory=dict)  # further facts for its streams


Reader = Callable[[Files, Path, "DataRequest"], Contents | None]


@dataclass(frozen=True)
class DataRequest:
    """Options of reading a data set, besides its files."""

    images: Path | None = None  # folder of the images, if not that of the metadata
    progress: Progress | None = None

    def report(self, what: str, done: int, total: int | None) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


_ARRAY = {"bytes": int, "changed": int, "md5": str}
# Entries of `about.json` that are read.
ABOUT = {
    "arrays": {"label": _ARRAY, "*": _ARRAY}, "classes": int, "class_names": (None, [str]),
    "streamed": int, "form": str, "from": str, "verified": str, "more": dict,
}  # fmt: skip


@dataclass(frozen=True)
class DataSet:
    """The description of a data set."""

    name: str
    title: str
    revision: str
    licence: str
    citation: str
    home: str
    forms: str  # that `add` accepts
    read: Reader  # returns None for files of something else
    remotes: tuple[Remote, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""  # how to get it, if it cannot be downloaded by a program

    TEXTS: ClassVar = ("title", "revision", "licence", "citation", "home", "forms")

    @property
    def how_to_get(self) -> str:
        if self.remotes:
            return f"streamgauge data fetch {self.name}"
        return f"{self.by_hand} Then: streamgauge data add {self.name} PATH"


def described(name: str, **facts: Any) -> DataSet:
    """A data set with the texts of its table in `about.toml`."""
    texts = tomllib.loads(Path(__file__).with_name("about.toml").read_text(encoding="utf-8"))
    return DataSet(name=name, **texts[name], **facts)


def data_folder(given: Path | None = None) -> Path:
    """The folder of data sets: the given one, $STREAMGAUGE_DATA, or the user's data folder."""
    if given is not None:
        return given.expanduser()
    if chosen := os.environ.get("STREAMGAUGE_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "streamgauge"


@cache
def _packages() -> dict[str, str]:
    """The package or module below `streams` that has each data set, by name."""
    from streamgauge.streams.datasets.published import published

    files = [f for folder in ("datasets", "named") for f in (_STREAMS / folder).glob("[a-z]*.py")]
    own = {file.stem: file.parent.name for file in files if "\nDATA = " in file.read_text()}
    return own | dict.fromkeys(published(), "datasets.published")


def names() -> list[str]:
    """The names of all data sets."""
    return sorted(_packages())


def find(name: str) -> DataSet:
    if name not in _packages():
        raise StreamgaugeError(f"There is no data set '{name}'; {nearest(name, names())}")
    package = f"streamgauge.streams.{_packages()[name]}"
    if package.endswith(".published"):
        data: DataSet = getattr(importlib.import_module(package), name).DATA
    else:
        data = importlib.import_module(f"{package}.{name}").DATA
    return data


class Stored:
    """A data set in the data folder: memory-mapped arrays, and the facts of about.json."""

    def __init__(self, data: DataSet, folder: Path | None = None) -> None:
        self.data = data
        self.folder = data_folder(folder) / data.name
        try:
            self.about = read_sealed(self.folder / "about.json", ABOUT, self._remedy)
        except FileNotFoundError:
            local = f", or with files you have: streamgauge data add {data.name} PATH"
            raise StreamgaugeError(
                f"The data set {data.name} is not in {self.folder.parent}. Get it:"
                f" {data.how_to_get}{local if data.remotes else ''}."
            ) from None
        self.arrays = {name: self._open(name) for name in self.about["arrays"]}
        if not 0 <= self.about["streamed"] <= len(self):
            raise self._damaged("about.json has an impossible number of samples")

    def __len__(self) -> int:
        return len(self.arrays["label"])

    @property
    def test(self) -> IntArray:
        """Addresses of the official test set."""
        return np.arange(self.about["streamed"], len(self))

    def source(self) -> ArraySource:
        """The whole data set as a source, official test set last."""
        columns = {k: v for k, v in self.arrays.items() if k not in ("x", "label")}
        source = ArraySource(
            self.arrays["x"],
            self.arrays["label"],
            classes=self.about["classes"],
            class_names=self.about["class_names"],
            **columns,
        )
        source.x_hash = self.about["arrays"]["x"]["md5"]
        return source

    def _open(self, name: str) -> Array:
        """A stored array, checked against about.json. The checksum is computed only if the size or
        the modification time of the file has changed, as in a copied folder."""
        file, known = self.folder / f"{name}.npy", self.about["arrays"][name]
        if file.parent != self.folder:
            raise self._damaged(f"'{name}' names no array in it")
        try:
            status = file.stat()
            if [status.st_size, status.st_mtime_ns] != [known["bytes"], known["changed"]]:
                if status.st_size != known["bytes"] or array_md5(file) != known["md5"]:
                    raise self._damaged(f"{file.name} is not what was stored")
                known["changed"] = status.st_mtime_ns
                with suppress(OSError):  # the data folder may not be writable
                    write_sealed(self.folder / "about.json", self.about)
            mapped: Array = np.load(file, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise self._damaged(f"{file.name} is missing") from None
        except (OSError, ValueError) as error:
            raise self._damaged(f"{file.name} cannot be read ({error})") from None
        return mapped

    @property
    def _remedy(self) -> str:
        return f"remove that folder and get it again: {self.data.how_to_get}"

    def _damaged(self, why: str) -> StreamgaugeError:
        return StreamgaugeError(f"The data set in {self.folder} is damaged, {why}: {self._remedy}.")


def array_md5(file: Path) -> str:
    """MD5 of the values of a stored array, without the file header."""
    mapped = np.load(file, mmap_mode="r", allow_pickle=False)
    digest = hashlib.md5(usedforsecurity=False)
    if mapped.flags.c_contiguous:  # read, not mapped: the pages would count as memory
        with file.open("rb") as values:
            values.seek(mapped.offset)
            while block := values.read(1 << 24):
                digest.update(block)
        return digest.hexdigest()
    for part in pieces(len(mapped), max(1, (1 << 24) // max(1, mapped[:1].nbytes))):
        digest.update(np.ascontiguousarray(mapped[part]).data)
    return digest.hexdigest()


def add(
    data: DataSet,
    path: Path,
    folder: Path | None = None,
    *,
    other_contents: bool = False,
    images: Path | None = None,
    progress: Progress | None = None,
) -> Stored:
    """Store a data set from local files (a folder or an archive) in any known form."""
    base = data_folder(folder)
    target = base / data.name
    if path.expanduser().resolve().is_relative_to(target.resolve()):
        raise StreamgaugeError(f"{path} is the stored data set itself; there is nothing to add.")
    scratch = base / f".{data.name}.{os.getpid()}"
    try:
        _remove_leftovers(base, data.name)
        scratch.mkdir(parents=True)
        contents, origin = _read(data, path.expanduser(), scratch, DataRequest(images, progress))
        verified = _verify(data, contents, origin, other_contents)
        about = _store(data, contents, scratch)
        about |= {"from": str(origin.resolve()), "form": contents.form, "verified": verified}
        write_sealed(scratch / "about.json", about)
        shutil.rmtree(target, ignore_errors=True)
        replace_synced(scratch, target)
    except OSError as error:
        raise StreamgaugeError(
            f"{data.name} cannot be stored in {base}: {error.strerror or error}. Another folder is"
            " chosen with --data-folder or $STREAMGAUGE_DATA."
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Stored(data, folder)


def _remove_leftovers(base: Path, name: str) -> None:
    """Remove incomplete folders of processes that no longer run."""
    for folder in base.glob(f".{name}.*"):
        number = folder.name.rpartition(".")[2]
        if number == str(os.getpid()) or (os.name == "posix" and not _is_running(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(number: str) -> bool:
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (ValueError, OSError):
        return False
    return True


def fetch(
    data: DataSet,
    folder: Path | None = None,
    *,
    progress: Progress | None = None,
    tries: int = 4,
    wait: float = 1.0,
) -> Stored:
    """Download a data set from its official URL and store it."""
    if not data.remotes:
        raise StreamgaugeError(f"{data.name} cannot be downloaded by a program. {data.how_to_get}.")
    downloads = data_folder(folder) / "downloads" / data.name
    for number, remote in enumerate(data.remotes):
        try:
            # Known sizes are rounded to whole megabytes.
            most = UNKNOWN_SIZE if remote.megabytes is None else (remote.megabytes + 1) * 1_100_000
            target = downloads / remote.name
            download(remote.urls, target, remote.md5, progress, tries, wait, most)
        except StreamgaugeError as problem:
            rest = "; ".join(f"{file.name} from {file.urls[0]}" for file in data.remotes[number:])
            raise StreamgaugeError(
                f"{problem} Without a network: get {rest} on another machine, put it into"
                f" {downloads} and run the same command, or run: streamgauge data add"
                f" {data.name} PATH."
            ) from None
        except OSError as error:
            raise StreamgaugeError(
                f"{remote.name} cannot be written to {downloads}: {error.strerror or error}."
            ) from None
    stored = add(data, downloads, folder, progress=progress)
    shutil.rmtree(downloads)  # the stored arrays are verified
    return stored


def describe(data: DataSet, folder: Path | None = None) -> dict[str, Any]:
    """The facts of a data set and of its stored copy, for `list` and `info`."""
    facts: dict[str, Any] = {
        "name": data.name,
        **{key: getattr(data, key) for key in DataSet.TEXTS},
        "get": data.how_to_get,
        "files": [vars(remote) for remote in data.remotes],
        "checksums": dict(data.checksums),
        "here": (data_folder(folder) / data.name / "about.json").is_file(),
    }
    if facts["here"]:
        try:
            stored = Stored(data, folder)
        except StreamgaugeError as problem:
            return facts | {"here": False, "problem": str(problem)}
        bytes_ = sum(entry["bytes"] for entry in stored.about["arrays"].values())
        facts |= {
            "folder": str(stored.folder),
            "samples": len(stored),
            "test": len(stored.test),
            "megabytes": round(bytes_ / 1e6, 1),
            "classes": stored.about["classes"],
            **{key: stored.about[key] for key in ("form", "from", "verified", "more")},
            "columns": sorted(set(stored.arrays) - {"x"}),
        }
    return facts


def _read(data: DataSet, path: Path, scratch: Path, request: DataRequest) -> tuple[Contents, Path]:
    """The contents at a path or in an archive in that folder, and the path that was read."""
    files = Files(path)
    candidates = [files]
    if files.kind == "folder":
        candidates += [
            Files(path / name) for name in files.names if name.lower().endswith(_ARCHIVES)
        ]
    broken: StreamgaugeError | None = None
    for candidate in candidates:
        try:
            _ = candidate.names  # a folder may contain broken archives of other things
        except StreamgaugeError as error:
            if candidate is files:
                raise
            broken = broken or error
            continue
        contents = data.read(candidate, scratch, request)
        if contents is not None:
            return contents, candidate.path
    if broken is not None:
        raise broken
    raise StreamgaugeError(
        f"{path} contains no {data.title} in a known form. Known forms: {data.forms}."
    )


def _verify(data: DataSet, contents: Contents, origin: Path, other_contents: bool) -> str:
    """How the contents were verified; an error if a checksum differs."""
    for part, expected in data.checksums.items():
        actual = contents.checksums.get(part)
        if actual is not None and actual != expected:
            if other_contents:
                return f"no, {part} has md5 {actual} where {expected} is expected, and was accepted"
            raise StreamgaugeError(
                f"{origin} is not {data.title} as published: {part} has md5 {actual} where"
                f" {expected} is expected. Get the file again, or accept it with --other-contents."
            )
    compared = sorted(set(data.checksums) & set(contents.checksums))
    if compared:
        return f"yes, by the md5 of {', '.join(compared)}"
    return contents.verified or "no, no checksum of this form is published"


def _store(data: DataSet, contents: Contents, scratch: Path) -> dict[str, Any]:
    arrays = {}
    for name, array in contents.arrays.items():
        file = scratch / f"{name}.npy"
        if not file.exists():  # a reader of large data has written it already
            np.save(file, array, allow_pickle=False)
        elif isinstance(array, np.memmap):
            array.flush()
        status = file.stat()
        size, changed = status.st_size, status.st_mtime_ns
        arrays[name] = {"bytes": size, "changed": changed, "md5": array_md5(file)}
    count = len(contents.arrays["label"])
    return {
        "name": data.name,
        "revision": data.revision,
        "arrays": arrays,
        "classes": contents.classes,
        "class_names": None if contents.class_names is None else list(contents.class_names),
        "streamed": count if contents.streamed is None else contents.streamed,
        "checksums": dict(contents.checksums),
        "more": dict(contents.more),
    }
