"""Files of data sets: downloads that resume, and local files behind one interface: a folder, a tar,
a zip, or a single file.

Archives are read without unpacking. An archive with a path that leaves its folder is refused, and
so are links, devices, sparse files, and what becomes far larger than the archive.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import http.client
import io
import lzma
import os
import shutil
import socket
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable, refuse_bomb, replace_synced, unpacked_limit

_DEPTH, _MAX_FILES = 5, 300_000  # limits of the search in a folder
_MEMBERS = 5_000_000  # of an archive, at most
_HEADER_BYTES = 1 << 20  # of one header of a tar, at most
_COMPRESSED: dict[bytes, Callable[[Path], Any]]
_COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open, b"]\0": lzma.open}


class Files:
    """The files at a path, by name. `kind` is folder, tar, zip or file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise StreamgaugeError(f"There is nothing at {path}.")
        if path.is_dir():
            self.kind = "folder"
        elif zipfile.is_zipfile(path):
            self.kind = "zip"
        elif _is_tar(path):
            self.kind = "tar"
        else:
            self.kind = "file"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All file names; in a folder, those within the limits of the search."""
        if self.kind == "file":
            return (self.path.name,)
        if self.kind == "folder":
            return tuple(_search(self.path))
        with readable(str(self.path), "get the file again"):
            if self.kind == "zip":
                with zipfile.ZipFile(self.path) as archive:
                    names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
            else:
                with _open_tar(self.path) as (tar, _):
                    names = [member.name for member in _members(tar, self.path) if member.isfile()]
        for name in names:
            refuse_leaving(name, self.path)
        return tuple(names)

    def called(self, name: str) -> str:
        """The name of a file in error messages."""
        return str(self.path) if self.kind == "file" else f"{name} in {self.path}"

    def locate(self, wanted: Sequence[str]) -> dict[str, str] | None:
        """The least deep path of each of these names (or NAME.gz); None if one is missing."""
        paths: dict[str, str] = {}
        for name in self.names:
            last = PurePosixPath(name).name
            for key in (last, last.removesuffix(".gz")):
                if key in wanted and (key not in paths or name.count("/") < paths[key].count("/")):
                    paths[key] = name
        return paths if len(paths) == len(set(wanted)) else None

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The bytes of some files, NAME.gz decompressed, in one pass over an archive."""
        wanted, contents = set(names), dict[str, bytes]()
        with readable(str(self.path), "get the file again"):
            if self.kind == "zip":
                with zipfile.ZipFile(self.path) as archive:
                    refuse_bomb(sum(archive.getinfo(name).file_size for name in wanted), self.path)
                    contents = {name: archive.read(name) for name in wanted}
            elif self.kind == "tar":
                with _open_tar(self.path) as (tar, opened):
                    for member in _members(tar, self.path):
                        if member.name in wanted and member.isfile():
                            contents[member.name] = opened.content(tar, member)
                            if len(contents) == len(wanted):
                                break
            else:
                base = self.path if self.kind == "folder" else self.path.parent
                contents = {name: (base / name).read_bytes() for name in wanted}
            return {
                name: self._decompressed(data) if name.endswith(".gz") else data
                for name, data in contents.items()
            }

    def _decompressed(self, data: bytes) -> bytes:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(unpacked_limit(self.path) + 1)
        refuse_bomb(len(content), self.path)
        return content

    def unpack(self, names: Sequence[str], to: Path) -> None:
        """Extract files of a zip below a folder; `names` has checked their paths."""
        with zipfile.ZipFile(self.path) as archive:
            refuse_bomb(sum(archive.getinfo(name).file_size for name in names), self.path)
            for name in names:
                target = to / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as part, target.open("wb") as out:
                    shutil.copyfileobj(part, out)


class _TarBytes:
    """The bytes of a tar, decompressed where it is compressed. Neither all of it nor a single
    header may be larger than allowed: `tarfile` reads a header into memory whatever its size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            compressed = _COMPRESSED.get(file.read(2))
        self._file: Any = path.open("rb") if compressed is None else compressed(path)
        self._most = path.stat().st_size if compressed is None else unpacked_limit(path)
        self._largest = _HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._largest:
            raise StreamgaugeError(f"{self._path} is refused: one of its headers is too large.")
        return bytes(self._file.read(size))

    def seek(self, position: int, whence: int = 0) -> int:
        if whence == 0 and position > self._most:
            refuse_bomb(position, self._path)
            raise tarfile.ReadError("unexpected end of data")
        return int(self._file.seek(position, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    def content(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
        """The bytes of a member, which `_members` has checked."""
        self._largest = max(member.size, tarfile.BLOCKSIZE)
        try:
            part = tar.extractfile(member)
            assert part is not None  # it is a file
            return part.read()
        finally:
            self._largest = _HEADER_BYTES


@contextlib.contextmanager
def _open_tar(path: Path) -> Iterator[tuple[tarfile.TarFile, _TarBytes]]:
    with (
        contextlib.closing(_TarBytes(path)) as opened,
        tarfile.open(fileobj=cast(BinaryIO, opened), mode="r:") as tar,
    ):
        yield tar, opened


def _members(tar: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """The members of a tar; an error for what is neither a plain file nor a folder."""
    for number, member in enumerate(tar):
        if member.issparse():
            raise StreamgaugeError(
                f"{path} is refused: '{member.name}' in it is a sparse file, which can be of any"
                " size when it is unpacked."
            )
        if not (member.isfile() or member.isdir()):
            raise StreamgaugeError(
                f"{path} is refused: '{member.name}' in it is a link or a device."
            )
        if member.size < 0 or number >= _MEMBERS:
            raise StreamgaugeError(f"{path} is refused: it has too many files, or of no size.")
        refuse_bomb(member.offset_data + member.size, path)
        yield member


def md5(data: Any) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def leaves_folder(name: str) -> bool:
    """Whether a path is absolute or goes up, on any operating system."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or "\0" in name or name[1:2] == ":"


def refuse_leaving(name: str, where: Path | str) -> str:
    """The path; an error if it comes from an archive or a list and leaves its folder."""
    if leaves_folder(name):
        raise StreamgaugeError(f"{where} is refused: the path '{name}' in it leaves its folder.")
    return name


def inside(root: Path, name: str) -> Path:
    """A file below a folder; an error if its name or a link leads out of the folder."""
    refuse_leaving(name, "The list of images")
    path = root / name
    real, base = os.path.realpath(path), os.path.realpath(root)
    if not real.startswith(base + os.sep):
        raise StreamgaugeError(f"{path} is refused: it is a link that leads out of {root}.")
    return path


def _search(folder: Path) -> Iterator[str]:
    """File names in a folder, the least deep first, within the limits of the search."""
    queue, seen = deque([("", 0)]), 0
    while queue and seen < _MAX_FILES:
        below, depth = queue.popleft()
        try:
            entries = sorted(os.scandir(folder / below), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            seen += 1
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH:
                    queue.append((name + "/", depth + 1))
            elif entry.is_file():
                yield name


def _is_tar(path: Path) -> bool:
    try:
        with _open_tar(path) as (tar, _):
            tar.next()
    except StreamgaugeError:
        return True  # one that will be refused
    except Exception:  # of damaged bytes, any
        return False
    return True


Progress = Callable[[str, int, int | None], None]  # name, bytes so far, total bytes
_BLOCK = 1 << 18


class CutShort(OSError):
    """The connection ended before the file did."""


def download(
    urls: tuple[str, ...],
    target: Path,
    md5: str | None,
    progress: Progress | None = None,
    tries: int = 4,
    wait: float = 1.0,
    most: int | None = None,
    hint: str = "",
) -> None:
    """Download a file to `target` from the first URL that has it. The bytes received so far are in
    `target`.part and are not requested again (HTTP Range), also by a later call; a server without
    ranges sends the whole file. An attempt that received data does not count as a retry. If `md5`
    is None, the caller verifies the contents. A file of more than `most` bytes is refused,
    and `hint` ends the sentence."""
    if target.is_file() and (md5 is None or md5_of(target) == md5):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reasons: list[str] = []
    for url in urls:
        left, fresh = tries, not part.exists()
        while left:
            before = part.stat().st_size if part.exists() else 0
            try:
                _get(url, part, progress, target.name, most, hint)
            except urllib.error.HTTPError as error:
                reasons.append(f"{url}: {error.code} {error.reason}")
                if error.code == 416:  # more bytes here than on the server: another file
                    part.unlink(missing_ok=True)
                    left -= 1
                    continue
                if error.code < 500:
                    break
                left -= 1
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                reasons.append(f"{url}: {reason}")
                if isinstance(reason, socket.gaierror):  # unknown host, or no network
                    break
                further = part.exists() and part.stat().st_size > before
                left = tries if further else left - 1
            else:
                if md5 is None or md5_of(part) == md5:
                    replace_synced(part, target)
                    return
                actual = md5_of(part)
                part.unlink()
                reasons.append(f"{url}: the received file has md5 {actual} where {md5} is expected")
                if fresh:  # the server has another file
                    break
                fresh = True  # the earlier part was wrong: start again
                continue
            if left:
                time.sleep(wait)
    raise StreamgaugeError(f"{target.name} could not be downloaded ({reasons[-1]}).")


def _get(
    url: str,
    part: Path,
    progress: Progress | None,
    name: str,
    most: int | None = None,
    hint: str = "",
) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "streamgauge", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        if have and not (
            answer.status == 206
            and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        ):
            have = 0  # the server sends the whole file
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        _refuse_large(total or 0, most, url, part, hint)
        with part.open("ab" if have else "wb") as out:
            while block := answer.read(_BLOCK):
                out.write(block)
                have += len(block)
                _refuse_large(have, most, url, part, hint)
                if progress is not None:
                    progress(name, have, total)
        if total is not None and have < total:
            raise CutShort(f"the connection ended after {have:,} of {total:,} bytes")


def _refuse_large(size: int, most: int | None, url: str, part: Path, hint: str) -> None:
    if most is not None and size > most:
        part.unlink(missing_ok=True)
        raise StreamgaugeError(f"{url} is refused: it has more than {most / 1e6:,.0f} MB{hint}.")
