"""An index of a folder with many runs: `.index.sqlite` in that folder.

It has, for each run folder, the two JSON files and results that take long to compute, such as
scores. A row counts while `run.json` and `progress.json` have the size and time of change that they
had, and has a checksum. Any row, and the whole file, can be removed: it is made again from the run
folders.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.files import checksum

NAME = ".index.sqlite"
FEWEST = 200  # runs in a folder that has an index
VERSION = 2  # one more where a kept figure is computed otherwise
TABLE = (
    "CREATE TABLE IF NOT EXISTS runs"
    " (name TEXT PRIMARY KEY, stamp TEXT, content TEXT, checksum TEXT)"
)


class Entry:
    """What the index knows of one run."""

    def __init__(self, name: str, stamp: str, content: dict[str, Any], new: bool) -> None:
        self.name, self.stamp, self.content, self.changed = name, stamp, content, new

    def result(self, name: str, compute: Callable[[], Any], keep: bool = True) -> Any:
        """A stored result, or the computed one, which is stored if it is to be kept."""
        results = self.content["results"]
        if name in results or not keep:
            return results[name] if name in results else compute()
        results[name] = compute()
        self.changed = True
        return results[name]


class Index:
    """The index of one folder of runs, in memory; `save` writes what changed."""

    def __init__(self, folder: Path) -> None:
        self.file, self.folder = folder / NAME, folder
        self._stored = self._read()
        self._entries: dict[str, Entry] = {}

    def _read(self) -> dict[str, tuple[str, str]]:
        rows = []
        with suppress(sqlite3.Error, OSError):
            if self.file.is_file():
                only_read = f"{self.file.absolute().as_uri()}?mode=ro"
                with closing(sqlite3.connect(only_read, uri=True)) as database:
                    rows = database.execute("SELECT * FROM runs").fetchall()
        return {
            row[0]: (row[1], row[2])
            for row in rows
            if all(isinstance(value, str) for value in row) and row[3] == _row_checksum(*row[:3])
        }

    def entry(self, path: Path, read: Callable[[], Mapping[str, Any]]) -> Entry:
        """The entry of a run folder: stored, or `read` again where its files changed."""
        stamp = _stamp(path)
        before, content = self._stored.get(path.name, ("", ""))
        if before == stamp:
            entry = Entry(path.name, stamp, json.loads(content), False)
        else:
            entry = Entry(path.name, stamp, {**read(), "results": {}}, True)
        self._entries[path.name] = entry
        return entry

    def save(self) -> None:
        """Write the changed entries; an index that cannot be written is made again next time."""
        rows = []
        for entry in self._entries.values():
            # A file that changes while it is read may keep its time of change.
            if entry.changed and _stamp(self.folder / entry.name) == entry.stamp:
                row = (entry.name, entry.stamp, json.dumps(entry.content))
                rows.append((*row, _row_checksum(*row)))
                entry.changed = False
        if not rows or self.file.is_symlink():  # of another database
            return
        for _ in range(2):
            try:
                with closing(sqlite3.connect(self.file, timeout=5)) as database, database:
                    database.execute(TABLE)
                    database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", rows)
                return
            except sqlite3.OperationalError:  # read-only, full, or locked
                return
            except sqlite3.Error:  # damaged
                with suppress(OSError):
                    self.file.unlink()


def _stamp(path: Path) -> str:
    parts = [str(VERSION)]
    for name in ("run.json", "progress.json"):
        try:
            about = (path / name).stat()
            parts.append(f"{about.st_size}-{about.st_mtime_ns}-{about.st_ino}")
        except OSError:
            parts.append("none")
    return " ".join(parts)


def _row_checksum(name: str, stamp: str, content: str) -> str:
    return checksum(f"{name}\n{stamp}\n{content}".encode())


def index_of(folder: Path, count: int) -> Index | None:
    """The index of a folder with so many runs; None where they are few."""
    with suppress(OSError, StreamgaugeError):
        return Index(folder) if count >= FEWEST else None
    return None
