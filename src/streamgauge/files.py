"""Atomic writes, checksums and folder locks, for every file that this package writes.

A reader sees the old file or the new one, never half of one, also after a crash: the data go to a
temporary file in the same folder, which is synced to disk and then renamed.

A sealed JSON file has the entries `format`, the version of its format, and `own_checksum`, the
BLAKE2b of its other entries. Versions before 0.2 wrote neither.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge.errors import Busy, Damaged, StreamgaugeError, first_line

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK = "lock"  # name of the lock file in a folder
OWN = "own_checksum"  # entry of a sealed file
FORMAT = 2  # of sealed files; files without a checksum are of format 1
MAX_DEPTH = 32  # of nested values in a sealed file
MOST_BYTES = 1 << 30  # of a sealed file
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


def write_unsynced(path: Path, text: str) -> None:
    """Replace a small file that need not survive a crash of the machine. A reader sees the old file
    or the new one."""
    temporary = temporary_path(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def open_regular(file: Path) -> io.BufferedReader:
    """Open a file to read. An OSError for a pipe or a device: reading it might never end."""

    def without_waiting(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    opened = open(file, "rb", opener=without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    return opened


def read_bytes(file: Path) -> bytes:
    with open_regular(file) as opened:
        return opened.read()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file with its format and checksum."""
    write_json(path, sealed(value))


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """The entries of a sealed file with this content."""
    plain: dict[str, Any] = json.loads(json.dumps({**value, "format": FORMAT}))
    plain.pop(OWN, None)
    return {**plain, OWN: _checksum_of(plain)}


def read_sealed(file: Path, shape: Any, remedy: str) -> dict[str, Any]:
    """The entries of a sealed JSON file, checked to be as they were written and of this `shape`
    (see `misfit`). Files of older versions have no checksum. `remedy` ends the sentence on a
    damaged file. A missing file is a FileNotFoundError."""
    try:
        with open_regular(file) as opened:
            data = opened.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        value = json.loads(data)
        problem = misfit(value, dict, "the file") or _too_deep(value)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"{file} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        problem = str(error) or type(error).__name__
    if not problem:
        file_format = value.get("format", 1)
        if isinstance(file_format, int) and file_format > FORMAT:
            raise StreamgaugeError(
                f"{file} has format {file_format}, and this streamgauge reads formats up to"
                f" {FORMAT}: install a newer streamgauge to read it."
            )
        sum_of = value.pop(OWN, None)
        if (sum_of is not None or file_format != 1) and sum_of != _checksum_of(value):
            problem = "its checksum is that of another content"
    if problem := problem or misfit(value, shape, ""):
        raise Damaged(f"{file} is damaged ({problem}); {remedy}.")
    return value  # type: ignore[no-any-return]


def _checksum_of(value: dict[str, Any]) -> str:
    return checksum(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def misfit(value: Any, shape: Any, where: str) -> str:
    """What of a value is not of a shape; "" if it fits. A shape is a type, a tuple of shapes of
    which one must fit, a list with the shape of all items, or a dictionary with the shape of each
    entry: a name that ends in `?` may be missing, and "*" is any other name.

    >>> misfit({"step": 3, "names": ["a", 2]}, {"step": int, "names": [str]}, "")
    "entry 'names' has an unexpected value"
    """
    wrong = f"entry '{where}' has an unexpected value" if where else "it has an unexpected value"
    if isinstance(shape, tuple):
        return "" if any(not misfit(value, one, where) for one in shape) else wrong
    if isinstance(shape, list):
        fits = isinstance(value, list) and not any(misfit(item, shape[0], "") for item in value)
        return "" if fits else wrong
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return wrong
        for name, inside in shape.items():
            key = name.removesuffix("?")
            names = [k for k in value if k not in shape] if name == "*" else [key]
            for each in names:
                if each in value:
                    if problem := misfit(value[each], inside, f"{where}.{each}".lstrip(".")):
                        return problem
                elif name == key:
                    return f"entry '{f'{where}.{each}'.lstrip('.')}' is missing"
        return ""
    if shape is None:
        return "" if value is None else wrong
    if shape in (int, float) and isinstance(value, bool):
        return wrong
    kinds = (int, float) if shape is float else shape
    return "" if isinstance(value, kinds) else wrong


def _too_deep(value: Any) -> str:
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = [v for v in level if isinstance(v, (dict, list))]
        if not inside:
            return ""
        level = [i for v in inside for i in (v.values() if isinstance(v, dict) else v)]
    return f"it nests more than {MAX_DEPTH} levels"


def checksum(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def json_hash(value: Any, size: int = 16, **how: Any) -> str:
    """A hash of that many bytes of a value as JSON; `how` is for `json.dumps`."""
    return hashlib.blake2b(json.dumps(value, **how).encode(), digest_size=size).hexdigest()


def file_checksum(file: Path) -> str:
    with open_regular(file) as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def size_and_checksum(file: Path) -> list[Any]:
    return [file.stat().st_size, file_checksum(file)]


def check_file(file: Path, expected: Sequence[Any], remedy: str) -> None:
    """Refuse a file that has not this size and checksum."""
    try:
        size = file.stat().st_size
        reason = f"it has {size:,} bytes instead of {expected[0]:,}" if size != expected[0] else ""
        if not reason and file_checksum(file) != expected[1]:
            reason = "its checksum is that of another content"
    except FileNotFoundError:
        raise Damaged(f"{file} is missing; {remedy}.") from None
    except OSError as error:
        raise Damaged(f"{file} cannot be read: {error.strerror or error}.") from None
    if reason:
        raise Damaged(f"{file} is damaged ({reason}); {remedy}.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Create the folder of a file that the user asked for, and turn errors of writing it into one
    sentence."""
    if not path.name:  # "", "." or "/"
        raise StreamgaugeError(f"Cannot write {path}: it is a folder; give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {path}: {error.strerror or error}.") from None


@contextlib.contextmanager
def readable(what: str, remedy: str = "write it again") -> Iterator[None]:
    """Turn every error of reading a file into one sentence. Decoders of damaged bytes raise any
    type (KeyError, RecursionError, errors of their own), so no type is left out: put only what
    reads and checks a file into the block. `what` names the file, `remedy` ends the sentence.

    >>> with readable("The file 'a.json'", "get it again"):
    ...     json.loads("[1, 2")
    Traceback (most recent call last):
    streamgauge.errors.StreamgaugeError: The file 'a.json' cannot be read, it may be damaged or cut
    off (Expecting ',' delimiter: line 1 column 6 (char 5)): get it again
    """
    try:
        yield
    except StreamgaugeError:
        raise
    except MemoryError:
        raise StreamgaugeError(
            f"{what} cannot be read: it needs, or claims to need, more memory than there is"
        ) from None
    except Exception as error:
        system = error.strerror if isinstance(error, OSError) else None
        if system or isinstance(error, FileNotFoundError):
            raise StreamgaugeError(f"{what} cannot be read: {system or error}") from None
        why = first_line(error).strip()[:200].rstrip(".")
        if isinstance(error, LookupError):  # its message is the key alone
            why = f"{type(error).__name__} {why}"
        raise StreamgaugeError(
            f"{what} cannot be read, it may be damaged or cut off ({why}): {remedy}"
        ) from error


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
        for inside in temporary.rglob("*"):
            if inside.is_dir():
                sync_folder(inside)
                continue
            with open(inside, "r+b") as file:
                sync_file(file.fileno())
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


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each synced into the folder above it."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def acquire_lock(folder: Path, busy: str) -> BaseFileLock:
    """Lock a folder for this process; `busy` is the error message if another process has the lock.
    The operating system releases the lock when the process ends, however it ends, and forked
    children do not inherit it. The lock file stays: removing it would be a race."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, mode=0o644, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise Busy(busy) from None
    return lock


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder for the duration of a block; wait until it is free."""
    from filelock import FileLock

    lock = FileLock(folder / LOCK, mode=0o644, thread_local=False)
    lock.acquire()
    try:
        yield
    finally:
        release_lock(lock)


def release_lock(lock: BaseFileLock) -> None:
    """Closing its file frees the lock, also where a failing disk makes that an error."""
    with contextlib.suppress(OSError):
        lock.release()


@contextlib.contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Hold the lock of a folder for the duration of a block."""
    lock = acquire_lock(folder, busy)
    try:
        yield
    finally:
        release_lock(lock)
