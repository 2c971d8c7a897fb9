"""Files of data sets: downloads that resume, and local files behind one interface: a folder, a tar,
a zip, or a single file.

Archives are read without unpacking. An archive with a path that leaves its folder is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
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
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable, replace_synced

_DEPTH, _MAX_FILES = 5, 300_000  # limits of the search in a folder


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
                with zipfile.ZipFile(self.path) as held:
                    names = [entry.filename for entry in held.infolist() if not entry.is_dir()]
            else:
                with tarfile.open(self.path) as held_tar:
                    members = held_tar.getmembers()
                for member in members:
                    if not (member.isfile() or member.isdir()):
                        raise StreamgaugeError(
                            f"{self.path} is refused: '{member.name}' in it is a link or a device."
                        )
                names = [member.name for member in members if member.isfile()]
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
                with zipfile.ZipFile(self.path) as held:
                    contents = {name: held.read(name) for name in wanted}
            elif self.kind == "tar":
                with tarfile.open(self.path) as held_tar:
                    for member in held_tar:
                        if member.name in wanted:
                            part = held_tar.extractfile(member)
                            assert part is not None  # `names` has files only
                            contents[member.name] = part.read()
                            if len(contents) == len(wanted):
                                break
            else:
                base = self.path if self.kind == "folder" else self.path.parent
                contents = {name: (base / name).read_bytes() for name in wanted}
            return {
                name: gzip.decompress(data) if name.endswith(".gz") else data
                for name, data in contents.items()
            }

    def unpack(self, names: Sequence[str], to: Path) -> None:
        """Extract files of a zip below a folder; `names` has checked their paths."""
        with zipfile.ZipFile(self.path) as held:
            for name in names:
                target = to / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with held.open(name) as part, target.open("wb") as out:
                    shutil.copyfileobj(part, out)


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
        return tarfile.is_tarfile(path)
    except Exception:  # of damaged bytes, any
        return False


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
) -> None:
    """Download a file to `target` from the first URL that has it. The bytes received so far are in
    `target`.part and are not requested again (HTTP Range), also by a later call; a server without
    ranges sends the whole file. An attempt that received data does not count as a retry. If `md5`
    is None, the caller verifies the contents. A file of more than `most` bytes is refused."""
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
                _get(url, part, progress, target.name, most)
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
    url: str, part: Path, progress: Progress | None, name: str, most: int | None = None
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
        _refuse_large(total or 0, most, url, part)
        with part.open("ab" if have else "wb") as out:
            while block := answer.read(_BLOCK):
                out.write(block)
                have += len(block)
                _refuse_large(have, most, url, part)
                if progress is not None:
                    progress(name, have, total)
        if total is not None and have < total:
            raise CutShort(f"the connection ended after {have:,} of {total:,} bytes")


def _refuse_large(size: int, most: int | None, url: str, part: Path) -> None:
    if most is not None and size > most:
        part.unlink(missing_ok=True)
        raise StreamgaugeError(
            f"{url} is refused: it has more than {most / 1e6:,.0f} MB (set --stream.max_megabytes)."
        )
