"""A heartbeat: a small file that comes and goes, and that nothing else minds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from helpers import small_stream
from streamgauge.record import Run
from streamgauge.record import heartbeat as beats
from streamgauge.record.diff import differences
from streamgauge.record.heartbeat import NAME, Heartbeat, HeartbeatWriter, read_heartbeat
from streamgauge.record.verify import verify

FACTS = {"step": 3, "steps": 10, "right": 5, "asked": 9}


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_comes_at_once_goes_on_and_goes(tmp_path: Path) -> None:
    facts = dict(FACTS)
    with HeartbeatWriter(tmp_path, lambda: facts, every=0.02) as beat:
        first = read_heartbeat(tmp_path)
        assert first is not None
        assert (first.step, first.steps, first.right, first.asked) == (3, 10, 5, 9)
        assert first.pid == os.getpid()
        assert not first.ended
        assert first.left != first.left  # no pace yet
        facts["step"] = 7
        wait_for(lambda: (b := read_heartbeat(tmp_path)) is not None and b.step == 7)
        facts["step"] = 8
        wait_for(lambda: (b := read_heartbeat(tmp_path)) is not None and b.step == 8)
        later = read_heartbeat(tmp_path)
        assert later is not None
        assert later.time > first.time
        assert later.pace > 0
        assert later.left == pytest.approx(2 / later.pace)
        assert len((tmp_path / NAME).read_bytes()) < 400
    assert list(tmp_path.iterdir()) == []
    beat.stop()  # again


def test_no_heartbeat_follows_the_end(tmp_path: Path) -> None:
    """Also where the end comes in the middle of one."""
    reached, go_on = threading.Event(), threading.Event()

    def facts() -> dict[str, int]:
        if threading.current_thread() is not threading.main_thread():
            reached.set()
            go_on.wait(20)
        return FACTS

    beat = HeartbeatWriter(tmp_path, facts, every=0.01)
    beat.start()
    assert reached.wait(20)
    threading.Timer(0.05, go_on.set).start()
    beat.stop()
    time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", ["no folder", "facts fail", "read-only"])
def test_whatever_goes_wrong_is_no_concern_of_the_run(tmp_path: Path, trouble: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def facts() -> dict[str, int]:
        if trouble == "facts fail":
            raise ValueError("a counter of a learner")
        return FACTS

    with HeartbeatWriter(folder, facts, every=0.01):
        if trouble == "no folder":
            shutil.rmtree(folder)
        if trouble == "read-only":
            folder.chmod(0o500)
        time.sleep(0.1)
    folder.chmod(0o700) if folder.exists() else None
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "[" * 5000, '{"step": 1}', "x" * 5000, '{"step": "1"}',
     json.dumps({**FACTS, "pace": float("nan"), "time": 1.0, "pid": 1, "host": "a"}),
     json.dumps({**FACTS, "pace": True, "time": 1.0, "pid": 1, "host": "a"}),
     json.dumps({**FACTS, "pace": 1.0, "time": 1.0, "pid": 10**400, "host": "a"}),
     json.dumps({**FACTS, "pace": 1, "time": 1, "pid": 1, "host": "a", "more": {"a": 10**400}})],
)  # fmt: skip
def test_a_file_that_is_none_is_no_heartbeat(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert read_heartbeat(tmp_path) is None


def test_other_numbers_are_kept_and_nothing_else(tmp_path: Path) -> None:
    about = {**FACTS, "pace": 1, "time": 1.0, "pid": 1, "host": "a"}
    more = {"p99 ms": 2.5, "text": "no", "inf": float("inf")}
    (tmp_path / NAME).write_text(json.dumps({**about, "more": more}))
    beat = read_heartbeat(tmp_path)
    assert beat is not None
    assert beat.more == {"p99 ms": 2.5}


def test_a_process_that_ended_is_known(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    beat = Heartbeat(0, 0, 0, 0, 0.0, 0.0, child.pid, __import__("socket").gethostname(), {})
    assert beat.ended
    assert not beat._replace(host="elsewhere").ended


def test_a_run_has_one_while_it_goes_on_and_the_same_folder_after_it(tmp_path: Path) -> None:
    seen: list[Heartbeat | None] = []

    def watch(loop: Any) -> None:
        if not seen:
            seen.append(read_heartbeat(next(tmp_path.glob("runs/*/"))))

    stream = small_stream(20)
    run = sg.run(stream, "ncm", out=tmp_path / "runs", progress=watch)
    assert seen[0] is not None
    assert seen[0].steps == 20
    names = {path.name for path in run.path.iterdir()}
    assert names == {"run.json", "progress.json", "checkpoint-20.pt", "log", "lock"}


def test_nothing_else_minds_it(tmp_path: Path) -> None:
    """A run that was killed leaves it; the same command goes on to the same log."""
    stream = small_stream(20)
    whole = sg.run(stream, "ncm", out=tmp_path / "whole")
    run = sg.run(stream, "ncm", out=tmp_path / "runs")
    left = HeartbeatWriter(run.path, lambda: FACTS)
    left._beat()
    (run.path / f"{NAME}.1.part").write_text("half")
    assert [found.problems for found in verify(run.path)] == [[]]
    assert differences(run, whole)["same"]
    assert Run(run.path).id == whole.id
    assert sg.score(run) == sg.score(whole)


def test_a_run_that_cannot_start_or_go_on_leaves_no_folder(tmp_path: Path) -> None:
    class NoStart:
        def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
            raise ValueError("no")

        def predict(self, x: Any) -> Any: ...
        def learn(self, batch: Any, predicted: Any) -> Any: ...
        def state_dict(self) -> Any: ...
        def load_state_dict(self, state: Any) -> None: ...

    with pytest.raises(Exception, match="no"):
        sg.run(small_stream(5), NoStart, out=tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*/*"))


def test_a_failing_run_has_a_reason_and_no_heartbeat(tmp_path: Path) -> None:
    def watch(loop: Any) -> None:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        sg.run(small_stream(5), "ncm", out=tmp_path, progress=watch)
    (folder,) = tmp_path.iterdir()
    assert "in the middle" in Run(folder).failure
    assert not (folder / NAME).exists()


def test_a_heartbeat_costs_next_to_nothing(tmp_path: Path) -> None:
    """Seconds of this thread: one in two seconds, so a millisecond would be 0.05 %."""
    beat = HeartbeatWriter(tmp_path, lambda: FACTS)
    beat._beat()
    start = time.thread_time()
    for _ in range(200):
        beat._beat()
    assert (time.thread_time() - start) / 200 < 0.001 * (beats.EVERY / 2)
