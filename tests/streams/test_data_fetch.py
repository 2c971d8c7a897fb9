"""Downloads against a server in the test: resumed, cut, refused, and what is said offline."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets import data_set as _data
from streamgauge.streams.datasets import published as _idx
from streamgauge.streams.datasets.archive import download
from streamgauge.streams.datasets.published import mnist

BODY = np.random.default_rng(0).bytes(900_000)
MD5 = hashlib.md5(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY (or `files`); how badly is set by a test."""

    files: dict[str, bytes]
    ranges = True  # whether it knows Range
    cut_after: int | None = None  # bytes of an answer after which it hangs up, `cuts` times
    cuts = 0
    asked: list[str | None]

    def url(self, name: str = "file") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        body = server.files.get(self.path.strip("/"))
        if body is None:
            self.send_error(404)
            return
        start = 0
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        body = body[start:]
        if server.cuts and server.cut_after is not None:
            server.cuts -= 1
            body = body[: server.cut_after]
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.files, made.asked = {"file": BODY}, []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_cut_connection_is_resumed_where_it_ended(server: Server, tmp_path: Path) -> None:
    server.cuts, server.cut_after = 2, 300_000
    seen: list[tuple[int, int | None]] = []
    download(
        (server.url(),),
        tmp_path / "f",
        MD5,
        lambda _, done, all_: seen.append((done, all_)),
        wait=0,
    )
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.asked == [None, "bytes=300000-", "bytes=600000-"]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(BODY), len(BODY))
    assert not (tmp_path / "f.part").exists()


def test_tries_that_bring_the_file_further_do_not_count(server: Server, tmp_path: Path) -> None:
    server.cuts, server.cut_after = 8, 100_000
    download((server.url(),), tmp_path / "f", MD5, tries=2, wait=0)
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_server_that_knows_no_ranges_sends_all_of_it(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cuts, server.cut_after = False, 1, 300_000
    download((server.url(),), tmp_path / "f", MD5, wait=0)
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.asked == [None, "bytes=300000-"]


def test_what_an_earlier_call_left_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(BODY[:500_000])
    download((server.url(),), tmp_path / "f", MD5, wait=0)
    assert server.asked == ["bytes=500000-"]
    download((server.url(),), tmp_path / "f", MD5, wait=0)  # it is there: nothing is asked
    assert server.asked == ["bytes=500000-"]


@pytest.mark.parametrize("length", [500_000, len(BODY), len(BODY) + 7])
def test_what_another_file_left_is_thrown_away(server: Server, tmp_path: Path, length: int) -> None:
    (tmp_path / "f.part").write_bytes(b"x" * length)
    download((server.url(),), tmp_path / "f", MD5, wait=0)
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_nothing_is_left(server: Server, tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=f"has md5 {MD5} where 0{{32}} is expected"):
        download((server.url(),), tmp_path / "f", "0" * 32, wait=0)
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    download((server.url("gone"), server.url()), tmp_path / "f", MD5, wait=0)
    assert (tmp_path / "f").read_bytes() == BODY
    with pytest.raises(StreamgaugeError, match="404"):
        download((server.url("gone"),), tmp_path / "g", MD5, wait=0)


def _little_mnist(server: Server) -> _data.DataSet:
    """MNIST with other digits, at this server."""
    rng = np.random.default_rng(0)
    remotes, checksums = [], {}
    for part, count in zip(_idx.PARTS, (30, 30, 10, 10), strict=True):
        sides = (28, 28) if "images" in part else ()
        head = bytes([0, 0, 8, 1 + len(sides)])
        head += b"".join(n.to_bytes(4, "big") for n in (count, *sides))
        raw = head + rng.integers(0, 10, (count, *sides), np.uint8).tobytes()
        packed = gzip.compress(raw)
        server.files[f"{part}.gz"] = packed
        checksums[part] = hashlib.md5(raw).hexdigest()
        md5 = hashlib.md5(packed).hexdigest()
        remotes.append(_data.Remote(f"{part}.gz", (server.url(f"{part}.gz"),), md5, 1))
    return replace(mnist.DATA, remotes=tuple(remotes), checksums=checksums)


def test_fetch_downloads_verifies_stores_and_tidies_up(server: Server, tmp_path: Path) -> None:
    data = _little_mnist(server)
    stored = _data.fetch(data, tmp_path, wait=0)
    assert len(stored) == 40
    assert stored.test.tolist() == list(range(30, 40))
    assert stored.about["verified"].startswith("yes")
    assert sorted(p.name for p in (tmp_path / "mnist").iterdir()) == [
        "about.json", "label.npy", "x.npy",
    ]  # fmt: skip
    assert list((tmp_path / "downloads").iterdir()) == []


def test_offline_it_says_what_to_get_from_where_and_put_where(
    server: Server, tmp_path: Path
) -> None:
    data = _little_mnist(server)
    first = data.remotes[0].name
    packed = server.files.pop(first)
    with pytest.raises(StreamgaugeError) as said:
        _data.fetch(data, tmp_path, wait=0)
    place = tmp_path / "downloads" / "mnist"
    for words in (
        server.url(first),
        server.url(data.remotes[3].name),
        str(place),
        "streamgauge data add mnist PATH",
    ):
        assert words in str(said.value)
    place.mkdir(parents=True, exist_ok=True)
    (place / first).write_bytes(packed)  # doing what it says mends it
    assert len(_data.fetch(data, tmp_path, wait=0)) == 40


def test_no_network_at_all_is_said_at_once(tmp_path: Path) -> None:
    remote = _data.Remote("f.gz", ("http://no-such-host.invalid/f.gz",), MD5, 1)
    data = replace(mnist.DATA, remotes=(remote,))
    with pytest.raises(StreamgaugeError, match=r"no-such-host\.invalid.*data add mnist"):
        _data.fetch(data, tmp_path, wait=100)
