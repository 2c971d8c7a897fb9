"""Atomic writes and folder locks, for every file that this package writes.

A reader sees the old file or the new one, never half of one, also after a crash: the data go to a
temporary file in the same folder, which is synced to disk and then renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK = "lock"  # name of the lock file in a folder
TEMPORARY = (".part", ".aside")  # endings of temporary files; versions up to 0.1 wrote ".aside"


# What a compressed file may become: this much in any case, and otherwise so many times its size.
# Data compress by a factor of 2 to 20; zeros by a thousand.
UNPACKED_BYTES = 512 << 20
UNPACKED_TIMES = 200


def unpacked_limit(path: Path) -> int:
    """The most bytes that are read out of a compressed file."""
    return max(UNPACKED_BYTES, UNPACKED_TIMES * path.stat().st_size)


def refuse_bomb(size: int, path: Path) -> None:
    """An error for a compressed file that would become too large in memory or on disk."""
    limit = unpacked_limit(path)
    if size > limit:
        raise StreamgaugeError(
            f"{path} is refused: its {path.stat().st_size / 1e6:,.1f} MB become more than "
            f"{limit / 1e6:,.0f} MB when they are unpacked. If that is right, unpack it yourself."
        )


@contextlib.contextmanager
def write_atomic(path: Path) -> Iterator[Path]:
    """Give the path of a temporary file to write to; afterwards that file replaces `path`. If the
    block raises, the temporary file is removed and `path` stays as it was."""
    temporary = temporary_path(path)
    try:
        yield temporary
        replace_synced(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    with write_atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Create the folder of a file that the user asked for, and turn errors of writing it into one
    sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {path}: {error.strerror or error}.") from None


def write_result(path: str | Path, text: str) -> Path:
    """Write a text file that the user asked for."""
    target = Path(path)
    with writing(target):
        write_text(target, text)
    return target


def temporary_path(path: Path) -> Path:
    """A name in the same folder that no other process uses."""
    return path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY[0]}")


def replace_synced(temporary: Path, path: Path) -> None:
    """Sync a complete temporary file or folder to disk and rename it to `path`."""
    if temporary.is_dir():
        sync_folder(temporary)
    else:
        with open(temporary, "r+b") as file:
            sync_file(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_file(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def acquire_lock(folder: Path, busy: str) -> BaseFileLock:
    """Lock a folder for this process; `busy` is the error message if another process has the lock.
    The operating system releases the lock when the process ends, however it ends, and forked
    children do not inherit it. The lock file stays: removing it would be a race."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, mode=0o644, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise StreamgaugeError(busy) from None
    return lock


@contextlib.contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a folder for the duration of a block."""
    lock = acquire_lock(folder, busy)
    try:
        yield
    finally:
        lock.release()
