"""Downloads a file: resumes, retries, and verifies the checksum."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from streamgauge.errors import StreamgaugeError
from streamgauge.files import replace_synced
from streamgauge.streams.datasets.archive import md5_of

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
) -> None:
    """Download a file to `target` from the first URL that has it.

    The bytes received so far are in `target`.part and are not requested again (HTTP Range), also by
    a later call; a server without ranges sends the whole file. An attempt that received data does
    not count as a retry. If `md5` is None, the caller verifies the contents.
    """
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
                _get(url, part, progress, target.name)
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


def _get(url: str, part: Path, progress: Progress | None, name: str) -> None:
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
        with part.open("ab" if have else "wb") as out:
            while block := answer.read(_BLOCK):
                out.write(block)
                have += len(block)
                if progress is not None:
                    progress(name, have, total)
        if total is not None and have < total:
            raise CutShort(f"the connection ended after {have:,} of {total:,} bytes")
