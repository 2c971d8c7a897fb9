"""Clients that are slow, impatient, too many or hostile: none ends the service."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kill_service import kill_and_check
from load import growth, load
from many_connections import connect_and_ask
from test_live_serve import SPEC, Bare, Client, Server, refused

import streamgauge as sg
from streamgauge.live import http_server, serve, summarise
from streamgauge.live.dispatcher import TrainingRequest
from streamgauge.live.service import Limits
from streamgauge.live.spool import Spool
from streamgauge.live.trainer import ProcessBackend, Setup, TrainerDied
from streamgauge.streams import ArraySource, Spec

HELLO = b'POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{"x": [0, 0, 9]}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path, connections=8)
    yield started
    started.stop.set()
    started.thread.join(30)


def raw(port: int, data: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(data)
    return client


def reply_to(port: int, data: bytes) -> tuple[int, dict[str, Any]]:
    with raw(port, data) as client:
        response = http.client.HTTPResponse(client)
        response.begin()
        return response.status, json.loads(response.read())


def answered_soon(server: Server, seconds: float = 15) -> bool:
    """Whether a client that comes back after a refusal is answered."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if Client(server.ports[0]).send("/predict", {"x": [0, 0, 9]})[0] == 200:
                return True
    return False


def test_an_impatient_client_does_not_end_the_service(server: Server) -> None:
    for number in range(30):
        client = raw(server.ports[0], HELLO)
        if number % 2:  # closing with a reset instead of an end
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    assert answered_soon(server)
    run = server.end()
    assert run.done
    assert summarise(run).arrivals >= 1


@pytest.mark.parametrize(
    ("head", "status", "reason"),
    [
        (b"Content-Length: " + b"9" * 5000, 413, "too_large"),
        (b"Content-Length: 123456789", 413, "too_large"),
        (b"Content-Length: -1", 400, "malformed"),
        (b"Content-Length: 1_0", 400, "malformed"),
        (b"Content-Length: \xb2", 400, "malformed"),
        (b"Content-Length: 2\r\nContent-Length: 3", 400, "malformed"),
        (b"Transfer-Encoding: chunked", 400, "malformed"),
        (b"no header", 400, "malformed"),
        (b" : folded", 400, "malformed"),
        (b"X: " + b"a" * 70_000, 413, "too_large"),
        (b"\r\n".join(b"X%d: 1" % n for n in range(200)), 400, "malformed"),
        (b"Origin: null\r\nContent-Length: 2", 400, "malformed"),
        (b"X: a\nContent-Length: 2", 400, "malformed"),
        (b"Content-Length: 2\r\nX: a\x00b", 400, "malformed"),
    ],
)
def test_an_odd_head_is_refused(server: Server, head: bytes, status: int, reason: str) -> None:
    request = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n{}"
    found = reply_to(server.ports[0], request)
    assert (found[0], found[1]["reason"]) == (status, reason)
    assert Client(server.ports[0]).send("/predict", {"x": [0, 0, 9]})[0] == 200


def test_the_body_of_a_question_is_no_second_request(server: Server) -> None:
    """Behind a proxy, which knows one request, it would have the answer to another client's."""
    inside = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"GET /status HTTP/1.1\r\nHost: localhost\r\n"
    chunk = b"%x\r\n" % len(inside) + inside + b"\r\n0\r\n\r\n"
    with raw(server.ports[0], head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk) as client:
        reply = b""
        while block := client.recv(10_000):
            reply += block
    assert reply.count(b"HTTP/1.1 ") == 1
    assert reply.startswith(b"HTTP/1.1 400")
    with raw(
        server.ports[0], head + b"Content-Length: %d\r\n\r\n" % len(inside) + inside
    ) as client:
        client.shutdown(socket.SHUT_WR)
        reply = b""
        while block := client.recv(10_000):
            reply += block
    assert reply.count(b"HTTP/1.1 ") == 1
    assert reply.startswith(b"HTTP/1.1 200")


def test_odd_lines_and_messages_are_refused(server: Server) -> None:
    port = server.ports[0]
    for line in (b"GET", b"GET /status", b"GET  /status HTTP/1.1", b"GET /status HTTP/2", b"\x00"):
        assert reply_to(port, line + b"\r\nHost: localhost\r\n\r\n")[1]["reason"] == "malformed"
    client = Client(port)
    for body in (b"", b"\xff", b"9" * 4900, b"[" * 4000, b'{"x": 1e999}', b"nul", b'{"x": NaN}',
                 b'{"x": [0,0,0], "id": ' + b"1" * 4400 + b"}"):  # fmt: skip
        status, reply = client.send("/predict", body)
        assert (status, reply["reason"]) in ((400, "malformed"), (413, "too_large")), body[:20]
    assert client.send("/predict", {"x": [0, 0, 9]})[0] == 200


def test_expect_continue_is_answered(server: Server) -> None:
    head, body = HELLO.split(b"\r\n\r\n")
    with raw(server.ports[0], head + b"\r\nExpect: 100-continue\r\n\r\n") as client:
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_who_may_ask(server: Server) -> None:
    """A page that a browser loaded from elsewhere has an Origin, or another Host."""
    port = server.ports[0]

    def status(*headers: bytes) -> int:
        return reply_to(port, b"GET /status HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n")[0]

    for host in (b"localhost", b"127.0.0.1:80", b"[::1]:1234", b"LOCALHOST:9"):
        assert status(b"Host: " + host) == 200
    for host in (
        b"example.org",
        b"localhost.example.org",
        b"192.168.0.1",
        b"",
        b"[::1",
        b"a" * 999,
    ):
        assert status(b"Host: " + host) == (200 if host == b"[::1" else 400), host
    assert status(b"X: 1") == 400
    assert status(b"Host: localhost", b"Origin: https://example.org") == 400


def test_slow_sockets_do_not_starve_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections are taken by clients that send a byte now and then."""
    monkeypatch.setattr(http_server, "GRACE_SECONDS", 0.2)
    slow = [raw(server.ports[0], HELLO[:20]) for _ in range(8)]
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            for client in slow:
                with contextlib.suppress(OSError):
                    client.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        assert all(answered_soon(server) for _ in range(3))
    finally:
        stop.set()
        thread.join()
        for client in slow:
            client.close()


def test_a_request_has_a_deadline_however_often_a_byte_comes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.3)
    began = time.monotonic()
    with raw(server.ports[0]) as client, contextlib.suppress(OSError):
        for byte in HELLO:
            client.sendall(bytes([byte]))
            if time.monotonic() - began > 8:
                break
            time.sleep(0.05)
    assert time.monotonic() - began < 8
    assert Client(server.ports[0]).send("/predict", {"x": [0, 0, 9]})[0] == 200


def test_many_connections_do_not_starve_others(server: Server) -> None:
    """400 clients that connect and say nothing; a client that asks is answered soon after."""
    many = []
    for _ in range(400):
        with contextlib.suppress(OSError):
            many.append(raw(server.ports[0]))
    assert answered_soon(server)
    for client in many:
        client.close()


def test_refused_bodies_are_not_kept_in_memory(server: Server) -> None:
    body = b"x" * (10 * http_server.largest_message(3))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client = Client(server.ports[0])
    for _ in range(200):
        assert client.send("/predict", body)[0] == 413
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} kB"  # 8 MB were refused


def test_rate_and_token(tmp_path: Path) -> None:
    server = Server(tmp_path, token="a long enough secret", max_rate=5.0)
    try:
        client = Client(server.ports[0])
        good = {"Authorization": "Bearer a long enough secret"}
        for wrong in ({}, {"Authorization": "Bearer a"}, {"Authorization": "Basic x"}):
            status, reply = client.send("/predict", {"x": [0, 0, 9]}, wrong)
            assert (status, reply["reason"]) == (401, "denied")
        statuses = [client.send("/predict", {"x": [0, 0, 9]}, good)[0] for _ in range(12)]
        assert statuses[:3] == [200] * 3
        assert 429 in statuses
    finally:
        run = server.end()
    assert run.done
    assert summarise(run).refused["denied"] == 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"host": "0.0.0.0"}, "other machines"),
        ({"host": "0.0.0.0", "anywhere": True}, "give a token"),
        ({"host": "0.0.0.0", "anywhere": True, "token": "short"}, "at least 16"),
        ({"token": "\u00e9" * 20}, "ASCII"),
        ({"max_rate": 0.0}, "at least 1"),
        ({"port": 99_999}, "choose another port"),
    ],
)
def test_what_lets_others_in_is_refused(
    options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(sg.StreamgaugeError, match=match):
        serve(SPEC, "blind", out=tmp_path, trainer="thread", log=str, **{"port": 0, **options})


# The spool, the trainer and the figures.


def test_the_spool_has_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "a", Spec((100_000,), 2), "float32", 20)
    taken = sum(file.stat().st_blocks * 512 for file in (tmp_path / "a").iterdir())
    assert taken >= spool.nbytes > 8e6

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(sg.StreamgaugeError, match=r"needs 8 MB on disk: No space.*Make room"):
        Spool(tmp_path / "b", Spec((100_000,), 2), "float32", 20)
    assert not list((tmp_path / "b").iterdir())
    monkeypatch.delattr(os, "posix_fallocate")
    Spool(tmp_path / "b", Spec((100_000,), 2), "float32", 20)
    assert sum(file.stat().st_blocks * 512 for file in (tmp_path / "b").iterdir()) >= taken


@pytest.mark.parametrize("name", ["spool.json", "facts.bin", "inputs.bin"])
def test_a_damaged_spool_is_refused(tmp_path: Path, name: str) -> None:
    """A file that is too short is not filled up: its zeros would be samples that nobody sent."""
    spool = Spool(tmp_path, Spec((3,), 2), "float32", 20)
    spool.put(7, np.zeros(3), time=1.0)
    spool.flush()
    again = Spool(tmp_path, Spec((3,), 2), "float32", 20)
    assert list(again.slot_of) == [7]
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
    with pytest.raises(sg.StreamgaugeError, match=rf"{name}.*(damaged|another size)"):
        Spool(tmp_path, Spec((3,), 2), "float32", 20)
    (tmp_path / name).unlink()
    if name != "spool.json":
        with pytest.raises(sg.StreamgaugeError, match=rf"{name} is missing"):
            Spool(tmp_path, Spec((3,), 2), "float32", 20)


def test_status_tells_when_training_has_ended(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    assert bare.service.status()["training"] == "running"
    bare.trainer.outcome = sg.StreamgaugeError("The learner failed.")
    for _ in range(2):
        bare.label(bare.sample())
    bare.service.advance()
    assert bare.service.status()["training"] == "ended: The learner failed."


def test_figures_after_a_kill_come_from_the_spool(tmp_path: Path) -> None:
    """One checkpoint, then 5 samples of a later version; 2 expire, and the service is killed."""
    bare = Bare(tmp_path, limits=Limits(waiting=3))
    bare.service._today = lambda: 1e9 + bare.service.arrivals
    bare.label(bare.sample())
    bare.service.dispatcher.version = 2
    for _ in range(5):
        bare.sample()
    again = Bare(tmp_path)
    state = {"learner": {"learnt": 0}, "version": 1, "arrivals": 1, "expired": 0,
             "trained_step": -1, "offered": 0, "finished": 1, "lost": 0, "refused": {},
             "duration": 7.0, "until": 1e9, "restarts": ["it hung"]}  # fmt: skip
    again.service.restore(state, committed=1, right=0)
    assert (again.service.arrivals, again.service.labels, again.service.expired) == (6, 1, 2)
    assert again.service.duration() == 7.0 + 5
    assert again.service.restarts == ["it hung"]
    assert again.service.version == 3  # neither 1 nor 2, which answered as other models
    assert refused(again.service.label, {"sample": 1, "label": 0}).reason == "gone"


def test_a_trainer_that_is_stuck_while_it_gets_a_request_is_replaced(tmp_path: Path) -> None:
    """A process that is stuck reads nothing: a request larger than the buffer of a pipe cannot be
    sent. The deadline covers that, too."""
    source = ArraySource(np.zeros((40, 3), np.float32), np.arange(40) % 4, classes=4)
    backend = ProcessBackend(sg.learner("ncm"), Setup(Spec((3,), 4), source, 10))
    backend._pipe, theirs = Pipe()
    backend._process = subprocess.Popen(["sleep", "60"], pass_fds=[theirs.fileno()])
    theirs.close()
    request = TrainingRequest(0, np.arange(10), np.zeros((10, 200_000), np.float32))
    began = time.monotonic()
    with pytest.raises(TrainerDied, match="hung"):
        backend.train(request, 0.5)
    assert time.monotonic() - began < 20
    assert not backend.alive()
    backend.close()


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    counts = kill_and_check(tmp_path, kills=3, seed=1)
    assert counts["acknowledged"] > 0


@pytest.mark.long
def test_two_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    assert kill_and_check(tmp_path, kills=200, seed=2)["acknowledged"] > 2000


@pytest.mark.long
def test_memory_is_flat_under_load(server: Server) -> None:
    """20,000 messages of all kinds after a warm-up of 4,000."""
    client = Client(server.ports[0])

    def talk(count: int) -> None:
        for number in range(count):
            if number % 7 == 0:
                client.send("/predict", b"{")
            elif number % 11 == 0:
                client.send("/predict", b"x" * 50_000)
            else:
                sample = client.send("/predict", {"x": [0, 0, number % 9]})[1]["sample"]
                if number % 3:
                    client.send("/label", {"sample": sample, "label": number % 4})

    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    talk(4000)
    before = memory()
    talk(20_000)
    assert memory() - before < 20e6


@pytest.mark.long
def test_thousands_of_silent_connections_do_not_starve_others(tmp_path: Path) -> None:
    measured = connect_and_ask(tmp_path, 2000, limit=30)
    assert [one.connections for one in measured] == list(range(200, 2001, 200))
    assert all(one.seconds < 30 and one.files < 200 for one in measured)


@pytest.mark.long
def test_two_minutes_of_load_lose_nothing_and_take_no_memory(tmp_path: Path) -> None:
    """`python tests/live/load.py --minutes 60` is the long form."""
    result = load(tmp_path, 120, rate=40)
    assert result["labels"] > 500
    grown = growth(result["measured"])
    assert grown["service MB"] < 20
    assert grown["trainer MB"] < 20
    assert grown["service files"] <= 0


def test_a_leak_is_seen() -> None:
    measured = [
        {"MB": 300.0 + max(0, n - 20), "files": 9.0 + (n > 60), "other files": 9.0 + n % 2}
        for n in range(100)
    ]
    assert growth(measured) == {"MB": 50.0, "files": 1.0, "other files": 0.0}
