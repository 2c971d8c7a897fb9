"""The server: who may ask, what is answered, ETags, and what is bounded."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watching import Watched, wait_for, watched

from made_runs import finished, made_run
from streamgauge.record.heartbeat import HeartbeatWriter
from streamgauge.record.run import FAILED
from streamgauge.report.blind import BlindLevel
from streamgauge.view import server as servers
from streamgauge.view.bundle import write_bundle
from streamgauge.view.content import KEPT, PageContent
from streamgauge.view.follow import RunFollower

TOKEN = "a-token-of-some-length"
TABS = ("board", "stream", "compare", "studies")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        for name, share in (("er", 0.7), ("ncm", 0.5)):
            finished(folder, learner=name, seed=seed, share=share, settings={"lr": 0.1})
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Watched]:
    with watched(runs) as made:
        wait_for(lambda: not made.follower.pending())
        yield made


# What is answered.


def test_the_page_and_its_files_load_from_here_alone(server: Watched) -> None:
    page = server.ask("/")
    assert page.status == 200
    text = page.body.decode()
    assert "<script>" not in text
    assert "style=" not in text
    assert not re.search(r"\son\w+=", text)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    for name in ("assets/watch.js", "assets/style.css", "assets/plotly.js", "assets/icon.svg"):
        assert name in text
        found = server.ask(f"/{name}")
        assert found.status == 200
        assert len(found.body) > 50
        assert found.headers["x-content-type-options"] == "nosniff"
        assert server.ask(f"/{name}", if_none_match=found.headers["etag"]).status == 304


def test_large_answers_are_compressed_where_asked(server: Watched) -> None:
    plain, packed = server.ask("/data/board"), server.ask("/data/board", accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2


@pytest.mark.parametrize("name", ["alive", "runs", *TABS])
def test_an_answer_that_is_known_is_304(server: Watched, name: str) -> None:
    wait_for(lambda: "retry-after" not in server.ask(f"/data/{name}").headers)
    first = server.ask(f"/data/{name}")
    assert first.status == 200
    again = server.ask(f"/data/{name}", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    weak = server.ask(f"/data/{name}", if_none_match=f'"other", W/{first.headers["etag"]}')
    assert weak.status == 304
    assert server.ask(f"/data/{name}", if_none_match='"other"').status == 200


def test_head_has_no_body(server: Watched) -> None:
    found = server.ask("/data/runs", "HEAD")
    assert (found.status, found.body) == (200, b"")
    assert "etag" in found.headers


def test_tags_change_with_what_they_stand_for(tmp_path: Path) -> None:
    with watched(tmp_path) as server, made_run(tmp_path, steps=60) as run:

        def tags() -> dict[str, str]:
            names = ("alive", "runs", "board")
            return {name: server.ask(f"/data/{name}").headers["etag"] for name in names}

        run.go_on(20)
        wait_for(lambda: server.ask("/data/runs").value["numbers"])
        wait_for(lambda: not server.follower.pending())
        server.follower.scan()
        before = tags()
        HeartbeatWriter(run.path, lambda: {"step": 25, "steps": 60, "right": 1, "asked": 2})._beat()
        wait_for(lambda: server.ask("/data/alive").value["counts"]["running"] == 1)
        after = tags()
        assert after["alive"] != before["alive"]
        assert after["runs"] == before["runs"]
        run.go_on(40)
        changed = server.follower.changed["log"]
        wait_for(lambda: server.follower.changed["log"] > changed)
        wait_for(lambda: tags()["board"] != after["board"])


def test_runs_are_columns(server: Watched) -> None:
    found = server.ask("/data/runs").value
    assert len(found["numbers"]) == len(found["alive"]) == 4
    learner = found["columns"]["learner"]
    assert sorted(learner["values"][n] for n in learner["of"]) == ["er", "er", "ncm", "ncm"]
    assert found["columns"]["lr"] == {"all": 0.1}
    assert found["alive"][0]["status"] == "done"


def test_a_filter_chooses_runs(server: Watched) -> None:
    both = server.ask("/data/board").value["html"]
    one = server.ask("/data/board?filter=learner:ncm").value["html"]
    assert 'data-learner="er"' in both
    assert 'data-learner="er"' not in one
    assert 'data-learner="ncm"' in one
    nothing = server.ask("/data/board?filter=learner:none").value["html"]
    assert "No run matches the filter." in nothing


def test_two_are_compared_by_name(server: Watched) -> None:
    found = server.ask("/data/compare?a=er&b=ncm").value
    assert {"er", "ncm"} <= set(found["choices"])
    assert "er is better than ncm" in found["html"]
    names = [name for name in found["choices"] if name.startswith("made-er")]
    single = server.ask(f"/data/compare?a={names[0]}&b={names[1]}").value
    assert "Runs are paired by seed" in single["html"]
    odd = server.ask("/data/compare?a=%3Cscript%3E&b=ncm").value
    assert "&lt;script&gt;" in odd["html"]
    assert "<script>" not in odd["html"]


def test_one_twice_is_no_comparison_and_a_folder_does_not_hide_a_learner(
    runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    first = next((tmp_path / "runs").glob("made-er-s0*"))
    first.rename(first.with_name("er"))
    with watched(tmp_path / "runs") as server:
        wait_for(lambda: not server.follower.pending())
        same = server.ask("/data/compare?a=er&b=er").value["html"]
        assert "A comparison needs two different runs or learners." in same
        both = server.ask("/data/compare?a=er&b=ncm").value["html"]
        assert "er (2 runs)" in both


def test_runs_of_one_name_in_two_folders_are_compared(tmp_path: Path) -> None:
    name = finished(tmp_path / "first", share=0.9).name
    assert finished(tmp_path / "second", share=0.3).name == name
    paths = [str(tmp_path / folder / name) for folder in ("first", "second")]
    with watched(tmp_path / "first", tmp_path / "second") as server:
        wait_for(lambda: not server.follower.pending())
        assert set(paths) <= set(server.ask("/data/compare").value["choices"])
        asked = urllib.parse.urlencode(dict(zip("ab", paths, strict=True)))
        html = server.ask(f"/data/compare?{asked}").value["html"]
        assert all(f"{path} (1 run)" in html for path in paths)


def test_a_bundle_has_nothing_of_runs_that_the_filter_leaves_out(tmp_path: Path) -> None:
    finished(tmp_path / "runs", learner="er")
    with made_run(tmp_path / "runs", learner="secret") as run:
        run.go_on(10)
    (run.path / FAILED).write_text("private reason")
    write_bundle(RunFollower([tmp_path / "runs"]), tmp_path / "out", filter_text="learner:er")
    text = "".join(file.read_text() for file in (tmp_path / "out/data").iterdir())
    assert '"done":1,' in text
    assert '"failed":0' in text
    assert "private reason" not in text


# Who may ask.


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "example.org"}, 403),
        ({"host": "127.0.0.1.example.org:80"}, 403),
        ({"host": ""}, 403),
        ({"host": "localhost:99"}, 200),
        ({"host": "[::1]:99"}, 200),
        ({"origin": "http://example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost:99", "origin": "http://localhost:99"}, 200),
        ({"host": "localhost:99", "origin": "https://localhost:99"}, 403),
    ],
)
def test_other_hosts_and_pages_are_refused(
    server: Watched, headers: dict[str, str], status: int
) -> None:
    for path in ("/", "/data/runs", "/assets/watch.js"):
        assert server.ask(path, **headers).status == status


def test_a_token_is_asked_for(runs: Path) -> None:
    with watched(runs, token=TOKEN) as server:
        assert server.ask("/").status == 200  # the page has nothing of the runs
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": f"Bearer {TOKEN}x"},
                        {"authorization": "Bearer \xe9\xff"}):  # fmt: skip
            for name in ("alive", "runs", "board", "nothing"):
                found = server.ask(f"/data/{name}?token={TOKEN}", **headers)
                assert found.status == 401
                assert found.headers["www-authenticate"] == "Bearer"
                assert set(found.value) == {"error"}
        good = {"authorization": f"Bearer {TOKEN}"}
        assert server.ask("/data/runs", **good).status == 200
        assert server.ask("/data/runs", host="anything.example", **good).status == 200
        assert server.ask("/data/runs", origin="http://example.org", **good).status == 403


# What is refused and bounded.


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/data/runs", 405),
        ("PUT", "/", 405),
        ("DELETE", "/data/board", 405),
        ("OPTIONS", "/data/runs", 405),
        ("TRACE", "/", 405),
        ("GET", "/nothing", 404),
        ("GET", "/data/nothing", 404),
        ("GET", "/data/ledger", 404),
        ("GET", "/assets/../server.py", 404),
        ("GET", "/assets/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/assets/server.py", 404),
        ("GET", "/data/board?filter=lr%3E", 400),
        ("GET", "/data/board?filter=%ff%00%22", 400),
        ("GET", "/data/board?filter=" + "x" * 1500, 400),
        ("GET", "/data/board?filter=" + "x" * 5000, 414),
    ],
)
def test_what_is_refused_is_a_sentence(
    server: Watched, method: str, path: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    found = server.ask(path, method)
    assert found.status == status
    assert found.headers["content-security-policy"].startswith("default-src 'self'")
    if method == "GET":
        assert found.value["error"].endswith(".")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        b"GET\r\n\r\n",
        b"GET /data/runs\r\n\r\n",
        b"\x00\xff" * 100,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 5000 + b"\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"POST /data/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"ffff\r\n" + b"x" * 0xFFFF,
    ],
)  # fmt: skip
def test_odd_bytes_do_no_harm(
    server: Watched, data: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        reply = b""
        try:
            while block := client.recv(65536):
                reply += block
        except ConnectionResetError:
            pass
    assert not reply or reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))
    assert server.ask("/data/alive").status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_slow_head_is_cut_off(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "REQUEST_SECONDS", 0.3)
    with watched(runs) as server:
        for beginning in (b"", b"GET / HT"):
            start = time.monotonic()
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                client.sendall(beginning)
                assert client.recv(10) == b""
            assert time.monotonic() - start < 15
        # A second request on a connection has its own time.
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(b"GET /data/alive HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(10_000).startswith(b"HTTP/1.1 200")
            client.sendall(b"GET")
            rest = client.recv(10_000)
            while rest:
                rest = client.recv(10_000)


def test_idle_connections_give_way_and_busy_ones_do_not(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "CONNECTIONS", 5)
    request = b"GET /data/alive HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with watched(runs) as server:
        kept = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(12)]
        assert kept[0].recv(10) == b""  # cut, as it was idle the longest
        assert server.ask("/data/alive").status == 200
        for client in kept[-3:]:  # they ask in time
            client.sendall(request)
            assert client.recv(10_000).startswith(b"HTTP/1.1 200")
        asked, wait = list[Any](), threading.Event()

        def slow(name: str, options: Any) -> Any:
            asked.append(options)
            wait.wait(30)
            return {}

        monkeypatch.setattr(server.content, "value", slow)
        busy = []
        try:
            for number in range(6):
                busy.append(socket.create_connection(("127.0.0.1", server.port), 20))
                path = b"GET /data/board?filter=seed:%d" % number
                busy[-1].sendall(path + request[len(b"GET /data/alive") :])
                wait_for(lambda number=number: len(asked) > min(number, 4))
            assert busy[-1].recv(100).startswith(b"HTTP/1.1 503")
        finally:
            wait.set()
        assert busy[0].recv(100).startswith(b"HTTP/1.1 200")
        for client in (*kept, *busy):
            client.close()
        wait_for(lambda: server.ask("/data/alive").status == 200)


def test_a_client_that_does_not_read_is_cut_off(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RESPONSE_SECONDS", 0.5)
    request = b"GET /assets/plotly.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with watched(runs) as server, socket.socket() as client:
        size = len(server.ask("/assets/plotly.js").body)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request * 30)
        time.sleep(2)
        received = 0
        with contextlib.suppress(ConnectionError):
            while block := client.recv(1 << 16):
                received += len(block)
        assert 0 < received < 30 * size


def test_an_error_of_ours_is_a_sentence_and_the_server_goes_on(
    server: Watched, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(server.content.tabs, "board_page", fail)
    found = server.ask("/data/board?filter=learner:er")
    assert found.status == 500
    assert "Streamgauge itself" in found.value["error"]
    assert b"secret" not in found.body
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert server.ask("/data/alive").status == 200


def test_a_page_whose_follower_has_ended_says_so(
    server: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old numbers would look like those of now."""
    server.ask("/data/alive")
    monkeypatch.setattr(server.follower, "error", ZeroDivisionError("secret"))
    found = server.ask("/data/alive")
    assert found.status == 500
    assert "Streamgauge itself (ZeroDivisionError)" in found.value["error"]


def test_curves_say_that_runs_are_left_out_where_some_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("er", "ncm"):
        for seed in range(2):
            finished(tmp_path, learner=name, seed=seed)
    with made_run(tmp_path, seed=2):
        pass  # it has no answer yet
    content = PageContent(RunFollower([tmp_path]), wait=True)
    content.follower.scan()
    content.follower.count_all()
    assert "These are" not in content.tab("stream", {})["html"]
    monkeypatch.setattr("streamgauge.view.tabs.MOST_CURVES", 3)
    found = content.tab("stream", {})
    assert "These are at most 3 of 5 runs" in found["html"]
    assert 2 <= len([s for s in found["figures"][0]["moving"]["series"] if not s["level"]]) <= 3
    content.close()


def test_the_blind_level_is_that_of_the_protocol(tmp_path: Path) -> None:
    """Of one stream with and without late labels."""
    for delay in (0, 20):
        finished(tmp_path, learner="er", protocol={"shifts": [], "label_delay": delay})
    content = PageContent(RunFollower([tmp_path]), wait=True)
    content.follower.scan()
    content.follower.count_all()
    boards = content.tabs.boards(content.chosen(""))
    assert len(boards) == 2
    levels = [content.tabs._level(board) for board in boards]
    assert all(isinstance(level, BlindLevel) for level in levels)
    assert levels[0] is not levels[1]
    content.close()


def test_content_is_made_once_and_not_too_often(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = RunFollower([runs])
    follower.scan()
    follower.count_all()
    content = PageContent(follower)
    made: list[str] = []
    value = content.value

    def slow(name: str, options: Any) -> Any:
        made.append(name)
        time.sleep(0.05)
        return value(name, options)

    monkeypatch.setattr(content, "value", slow)
    options = {"filter": ""}
    first = content.answer("board", options)
    assert content.answer("board", options) is first
    follower.note("log")
    assert content.answer("board", options) is first  # it took long, so it may be a little older
    assert content.tag("board", options) != first.tag
    wait_for(lambda: content.answer("board", options) is not first)
    assert made == ["board", "board"]
    monkeypatch.setattr(content, "value", value)
    for number in range(KEPT + 6):
        content.answer("stream", {"filter": f"seed:{number}"})
    assert len(content._made) <= KEPT
    content.close()


def test_the_board_says_up_to_which_step_answers_are_stored(tmp_path: Path) -> None:
    """The list has the step of the heartbeat, which is newer."""
    facts = {"step": 35, "steps": 100, "right": 200, "asked": 350}
    with made_run(tmp_path, steps=100) as run:
        run.writer.checkpoint(0, None, False)
        beat = HeartbeatWriter(run.path, lambda: facts)
        beat._beat()
        follower, content = _board(tmp_path)
        html = content.tab("board", {})["html"]
        assert "seed 0, running, nothing stored yet" in html
        run.go_on(30)
        follower.scan()
        html = content.tab("board", {})["html"]
        assert "seed 0, running, stored up to step 30 of 100" in html
        (run.path / "heartbeat.json").unlink()
        follower.scan()
        html = content.tab("board", {})["html"]
        assert "is incomplete (stored up to step 30 of 100) and left out of the means." in html
        content.close()


def test_a_run_that_is_not_read_yet_is_still_being_read(tmp_path: Path) -> None:
    finished(tmp_path)
    follower, content = _board(tmp_path)
    html = content.tab("board", {})["html"]
    assert "er, seed 0, is still being read." in html
    assert "nothing to score" not in html
    boards = content.tabs.boards(follower.runs.values())
    follower.count_all()  # between the board and its sentences
    assert content.tabs._left_out(boards[0], {}) == ["er, seed 0, is still being read."]
    html = content.tab("board", {})["html"]
    assert "still being read" not in html
    content.close()


def _board(folder: Path) -> tuple[RunFollower, PageContent]:
    follower = RunFollower([folder])
    follower.scan()
    return follower, PageContent(follower)


# The command.


def test_a_taken_port_and_a_missing_folder_are_sentences(call: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (tmp_path / "runs").mkdir()
        code, _, said = call("view", "runs", "--port", str(taken.getsockname()[1]))
        assert code == 2
        assert "choose another port" in said
    assert "There is no folder nowhere/runs." in call("view", "nowhere/runs")[2]
    assert "There is no folder nowhere." in call("view", "nowhere", "--bundle", "out")[2]
    (tmp_path / "pred.csv").write_text("label\n")
    assert "pred.csv is a file, not a folder of runs." in call("view", "pred.csv")[2]
    for words, sentence in (
        (("--host", "0.0.0.0"), "would let other machines in"),
        (("--host", "0.0.0.0", "--anywhere"), "give a token"),
        (("--token-file", "none"), "cannot be read"),
        (("--filter", "er"), "--filter is for --bundle"),
        (("--port", "99999"), "0-65535; choose another port"),
    ):
        code, _, said = call("view", "runs", *words)
        assert (code, sentence in said) == (2, True), said


def test_without_runs_it_says_what_to_do(call: Any) -> None:
    code, _, said = call("view")
    assert code == 2
    assert "streamgauge demo" in said


def test_a_missing_extra_is_one_sentence(tmp_path: Path) -> None:
    """Without Starlette: the server is refused, files can be written."""
    finished(tmp_path / "runs")
    (tmp_path / "without").mkdir()
    for name in ("starlette", "uvicorn", "torch"):
        text = f'raise ModuleNotFoundError("No module named {name}", name="{name}")'
        (tmp_path / "without" / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")])

    def view(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streamgauge", "view", "runs", *words], cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = view("--port", "0")
    assert done.returncode == 2
    sentence = r"streamgauge: `streamgauge view` needs \w+: pip install 'streamgauge\[view\]'\.\n"
    assert re.fullmatch(sentence, done.stderr)
    done = view("--bundle", "out")
    assert done.returncode == 0, done.stderr
    texts = [file.read_text() for file in (tmp_path / "out/data").iterdir()]
    assert sum("The tab of suites needs torch" in text for text in texts) == 1


def test_a_folder_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "view", "runs/", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "runs does not exist yet; waiting for the first run.\n"
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found is not None

        def runs() -> list[int]:
            with urllib.request.urlopen(f"{found[0]}data/runs", timeout=30) as reply:
                numbers: list[int] = json.load(reply)["numbers"]
                return numbers

        wait_for(lambda: _answers(runs))
        assert runs() == []
        with urllib.request.urlopen(f"{found[0]}data/board", timeout=30) as reply:
            assert "There is no run yet." in json.load(reply)["html"]
        finished(tmp_path / "runs")
        wait_for(lambda: len(runs()) == 1)
    finally:
        process.kill()
        process.communicate()


def _answers(ask: Any) -> bool:
    try:
        ask()
    except OSError:  # the server has not begun
        return False
    return True


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    finished(tmp_path / "runs")
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "view", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Watching runs on http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "Ended." in out
