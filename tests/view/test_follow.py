"""Run folders as they are now: what each status needs, and what is read when."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from made_runs import finished, made_run
from streamgauge.files import read_bytes, write_sealed
from streamgauge.record import Run, find_runs
from streamgauge.record.heartbeat import NAME, STALLED, HeartbeatWriter
from streamgauge.report.leaderboard import leaderboard
from streamgauge.report.terminal import board_text
from streamgauge.view.follow import RECENT, RunFollower
from streamgauge.view.tally import RunTally


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def following(*paths: Path, clock: Any = time.monotonic) -> RunFollower:
    follower = RunFollower(list(paths), clock)
    follower.scan()
    follower.count_all()
    return follower


def only(follower: RunFollower) -> dict[str, Any]:
    (run,) = follower.runs.values()
    return run.alive(follower.now())


def test_a_complete_run_is_done(tmp_path: Path) -> None:
    path = finished(tmp_path)
    alive = only(following(tmp_path))
    assert (alive["status"], alive["reason"], alive["left"]) == ("done", "", None)
    assert alive["online"] == pytest.approx(sg.score(path)["online_accuracy"], abs=1e-5)


def test_a_run_that_goes_on_stalls_and_goes_on_again(tmp_path: Path) -> None:
    clock = Clock()
    with made_run(tmp_path, steps=100) as run:
        run.go_on(30)
        facts = {"step": 35, "steps": 100, "right": 200, "asked": 350}
        beat = HeartbeatWriter(run.path, lambda: facts)
        beat._beat()
        follower = following(tmp_path, clock=clock)
        alive = only(follower)
        assert (alive["status"], alive["step"], alive["steps"]) == ("running", 35, 100)
        assert alive["online"] == pytest.approx(200 / 350, abs=1e-5)  # newer than the checkpoint
        before = dict(follower.changed)
        clock.seconds += STALLED + 1
        follower.scan()
        assert only(follower)["status"] == "stalled"
        assert follower.changed["status"] == before["status"] + 1
        assert "No heartbeat for 31 s" in only(follower)["reason"]
        facts |= {"step": 40, "asked": 400, "right": 240}
        beat._beat()
        follower.scan()
        assert (only(follower)["status"], only(follower)["step"]) == ("running", 40)


def test_the_list_says_for_how_long_there_was_no_heartbeat(tmp_path: Path) -> None:
    """Also where nothing but the time has changed."""
    clock = Clock()
    with made_run(tmp_path, steps=100) as run:
        run.go_on(30)
        HeartbeatWriter(
            run.path, lambda: {"step": 30, "steps": 100, "right": 1, "asked": 2}
        )._beat()
    follower = following(tmp_path, clock=clock)
    tags = []
    for seconds in (60, 60, 0):
        clock.seconds += seconds
        follower.scan()
        tags.append((follower.changed["alive"], follower.changed["status"]))
    assert tags[1][0] > tags[0][0]
    assert tags[1][1] == tags[0][1]  # the tabs are not made again
    assert tags[2] == tags[1]
    assert "No heartbeat for 2 min" in only(follower)["reason"]


def test_a_folder_that_could_not_be_read_for_a_while_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network disk that was gone."""
    path = finished(tmp_path)
    follower = following(tmp_path)
    stat = os.stat

    def broken(file: Any, **more: Any) -> os.stat_result:
        if Path(file) == path:
            raise OSError(5, "Input/output error")
        return stat(file, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", broken)
        follower.scan()
        assert "Input/output error" in only(follower)["reason"]
    follower.scan()
    follower.count_all()
    assert only(follower)["status"] == "done"


def test_a_folder_that_others_may_not_enter_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the report; tests may run as a user who may enter all folders."""
    finished(tmp_path)
    (tmp_path / "private").mkdir()
    stat = os.stat

    def denied(file: Any, **more: Any) -> os.stat_result:
        if "private/" in str(file):
            raise PermissionError(13, "Permission denied", str(file))
        return stat(file, **more)

    monkeypatch.setattr(os, "stat", denied)
    assert only(following(tmp_path))["status"] == "done"


def test_a_log_that_is_replaced_while_it_is_counted_has_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made_run(tmp_path) as run:
        run.go_on(50)
    follower = RunFollower([tmp_path])
    follower.scan()
    (followed,) = follower.runs.values()
    read = RunTally.read

    def replaced(tally: RunTally, folder: Path, progress: Any, segments: int) -> bool:
        monkeypatch.setattr(RunTally, "read", read)
        shutil.rmtree(folder)
        with made_run(tmp_path, share=0.99) as again:
            again.go_on(20)
        follower.scan()
        return read(tally, folder, progress, segments)

    monkeypatch.setattr(RunTally, "read", replaced)
    follower.count(followed)
    assert followed.problem == ""
    follower.count_all()
    assert followed.tally.asked() == 200
    # One whose commit point is gone when its turn comes.
    (run.path / "progress.json").unlink()
    follower.scan()
    followed.count()
    assert followed.problem == ""


def test_an_old_heartbeat_says_whether_its_process_is_gone(tmp_path: Path) -> None:
    with made_run(tmp_path) as run:
        run.go_on(30)
        HeartbeatWriter(
            run.path, lambda: {"step": 30, "steps": 100, "right": 1, "asked": 2}
        )._beat()
    file = run.path / NAME
    old = time.time() - 300
    os.utime(file, (old, old))
    reason = only(following(tmp_path))["reason"]
    assert "No heartbeat for 5 min" in reason
    assert f"process {os.getpid()}" in reason
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "pid": 2**22 - 7}))
    os.utime(file, (old, old))
    assert "has ended without a word" in only(following(tmp_path))["reason"]


@pytest.mark.parametrize("odd", [{"pace": 5e-324}, {"asked": 10**400}, {"more": {"x": 10**400}}])
def test_odd_numbers_in_a_heartbeat_stop_nobody(tmp_path: Path, odd: dict[str, Any]) -> None:
    with made_run(tmp_path) as run:
        run.go_on(10)
    beat = {"step": 10, "steps": 20, "right": 1, "asked": 2, "pace": 1.0, "time": 0.0, "pid": 1,
            "host": "elsewhere"}  # fmt: skip
    (run.path / NAME).write_text(json.dumps(beat | odd))
    assert only(following(tmp_path))["left"] is None


def test_a_run_without_a_heartbeat_has_stopped_or_failed(tmp_path: Path) -> None:
    with made_run(tmp_path) as run:
        run.go_on(30)
    follower = following(tmp_path)
    assert only(follower)["status"] == "stopped"
    (run.path / "failed.txt").write_text("ValueError: the data end early.")
    follower.scan()
    alive = only(follower)
    assert (alive["status"], alive["reason"]) == ("failed", "ValueError: the data end early.")


def test_only_new_segments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(path: Path) -> bytes:
        read.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr("streamgauge.view.tally.read_bytes", reading)
    with made_run(tmp_path) as run:
        run.go_on(20)
        run.go_on(50)
        follower = following(tmp_path)
        assert read == ["00000.parquet", "00001.parquet"]
        follower.scan()
        follower.count_all()
        run.go_on(80)
        follower.scan()
        follower.count_all()
        assert read == ["00000.parquet", "00001.parquet", "00002.parquet"]
    (followed,) = follower.runs.values()
    assert followed.tally.asked() == 800


def test_a_folder_that_does_not_change_costs_one_stat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path)
    follower = following(tmp_path)
    (run,) = follower.runs.values()
    run._read_at = (run._read_at[0], time.time() - RECENT - 2)
    asked: list[Any] = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: asked.append(path) or stat(path, **more))
    assert run.look(follower.now()) == set()
    assert asked == [run.folder]


def test_a_log_that_began_again_is_counted_again(tmp_path: Path) -> None:
    with made_run(tmp_path) as run:
        run.go_on(50)
    follower = following(tmp_path)
    shutil.rmtree(run.path)
    with made_run(tmp_path, share=0.99) as again:
        assert again.path == run.path
        again.go_on(20)
        follower.scan()
        follower.count_all()
    (followed,) = follower.runs.values()
    assert followed.tally.asked() == 200
    assert followed.tally.accuracy(0) == pytest.approx(0.99, abs=0.05)


def test_runs_come_and_go(tmp_path: Path) -> None:
    first = finished(tmp_path, seed=0)
    follower = following(tmp_path)
    number = follower.runs[first].number
    finished(tmp_path, seed=1)
    follower.scan()
    assert len(follower.runs) == 2
    assert follower.runs[first].number == number
    (tmp_path / "replaced").mkdir()
    first.rename(tmp_path / "replaced" / first.name)
    follower.scan()
    assert len(follower.runs) == 1
    shutil.rmtree(tmp_path)
    follower.scan()
    assert not follower.runs


def test_a_damaged_run_says_so_and_the_others_are_read(tmp_path: Path) -> None:
    good = finished(tmp_path, seed=0)
    for seed, name in ((1, "run.json"), (2, "progress.json"), (3, "log/predictions/00000.parquet")):
        file = finished(tmp_path, seed=seed) / name
        file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    follower = following(tmp_path)
    states = {run.folder.name.split("-")[2]: run.alive(0) for run in follower.runs.values()}
    assert states["s0"]["status"] == "done"
    for seed, name in ((1, "run.json"), (2, "progress.json"), (3, "00000.parquet")):
        assert states[f"s{seed}"]["status"] == "failed"
        assert name in states[f"s{seed}"]["reason"]
    assert follower.runs[good].scores is not None
    # Mended, it is read again.
    (bad,) = (run for run in follower.runs.values() if run.folder.name.split("-")[2] == "s2")
    shutil.rmtree(bad.folder)
    finished(tmp_path, seed=2)
    follower.scan()
    follower.count_all()
    assert follower.runs[bad.folder].alive(0)["status"] == "done"


def test_leaderboards_are_those_of_the_report(tmp_path: Path) -> None:
    for seed in range(3):
        for name, share in (("er", 0.7), ("mir", 0.69), ("ncm", 0.4)):
            finished(tmp_path, 2, learner=name, seed=seed, share=share, steps=150)
    follower = following(tmp_path)
    here = leaderboard([run.run() for run in follower.runs.values()])
    there = leaderboard(find_runs(tmp_path))
    assert [board_text(board) for board in here] == [board_text(board) for board in there]
    assert "er" in board_text(here[0])


def test_a_recording_is_counted_with_labels_that_come_late(tmp_path: Path) -> None:
    recorder = sg.Recorder(tmp_path / "rec", stream="s", learner="mine", classes=["a", "b"])
    recorder.predict(["x", "y", "z"], ["a", "b", "a"])
    recorder.label(["x", "y"], ["a", "a"])
    follower = following(tmp_path)
    alive = only(follower)
    assert (alive["status"], alive["online"]) == ("running", 0.5)
    recorder.label("z", "a")
    (run,) = follower.runs.values()
    run.due = 0
    follower.scan()
    follower.count_all()
    assert only(follower)["online"] == pytest.approx(2 / 3, abs=1e-5)
    recorder.close()
    follower.scan()
    run.due = 0
    follower.count_all()
    alive = only(follower)
    assert (alive["status"], alive["online"]) == ("done", pytest.approx(2 / 3, abs=1e-5))
    assert run.scores is not None
    assert run.scores["online_accuracy"] == sg.score(run.folder)["online_accuracy"]


def test_labels_that_come_while_a_recording_is_counted_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = sg.Recorder(tmp_path / "rec", stream="s", learner="mine", classes=["a", "b"])
    recorder.predict(["x", "y"], ["a", "b"])
    recorder.label("x", "a")
    follower = RunFollower([tmp_path])
    follower.scan()
    (followed,) = follower.runs.values()
    add = RunTally.add

    def meanwhile(tally: RunTally, *columns: Any) -> None:
        monkeypatch.setattr(RunTally, "add", add)
        add(tally, *columns)
        recorder.label("y", "a")
        recorder.close()
        follower.scan()

    monkeypatch.setattr(RunTally, "add", meanwhile)
    follower.count(followed)
    followed.due = 0
    follower.count_all()
    assert followed.scores is not None
    assert followed.scores["online_accuracy"] == 0.5
    assert only(follower)["online"] == 0.5


def test_a_recording_is_not_read_again_too_soon(tmp_path: Path) -> None:
    clock = Clock()
    recorder = sg.Recorder(tmp_path / "rec", stream="s", learner="mine")
    recorder.predict([1], [1])
    recorder.label([1], [1])
    follower = following(tmp_path, clock=clock)
    (run,) = follower.runs.values()
    assert run.due > clock()
    recorder.predict([2], [1])
    follower.scan()
    assert follower.pending() == []
    clock.seconds += 1e6
    assert follower.pending() == [run]
    recorder.close()


def test_a_live_run_and_its_service(tmp_path: Path) -> None:
    """Of a service the length is unknown, and an end may not be its last."""
    with made_run(tmp_path, steps=40, live={"rate": 3}) as run:
        run.header["stream"]["steps"] = run.header["stream"]["samples"] = 0
        write_sealed(run.path / "run.json", {"log_version": 1, **run.header})
        run.go_on()
        assert only(following(tmp_path))["status"] == "done"
        more = {"p99 ms": 3.0, "waiting": 7}
        facts = {"step": 40, "steps": 0, "right": 200, "asked": 400, "more": more}
        HeartbeatWriter(run.path, lambda: facts)._beat()
        alive = only(following(tmp_path))
    assert (alive["status"], alive["steps"], alive["left"]) == ("running", 0, None)
    assert alive["more"] == more


def test_trials_of_a_study_are_told_apart(tmp_path: Path) -> None:
    study = tmp_path / "studies" / "albums-er"
    finished(study / "trials", settings={"lr": 0.1}, trial={"study": "albums-er", "number": 4})
    (study / "study.json").write_text(json.dumps({"study": "albums-er", "trials": 1}))
    for paths in ((tmp_path / "studies",), (study,)):
        follower = following(*paths)
        (run,) = follower.runs.values()
        assert run.study == study
        assert run.facts()["trial"] == 4
        assert follower.studies[study]["trials"] == 1
    (study / "study.json").write_text("{ no json")
    follower.scan()
    assert follower.studies[study]["trials"] == 1  # what was read before
    # A page may be made while another thread looks: what it goes through does not change.
    seen, changed = follower.studies, follower.changed["studies"]
    shutil.rmtree(study)
    follower.scan()
    assert list(seen) == [study]
    assert not follower.studies
    assert follower.changed["studies"] == changed + 1


def test_names_of_classes_are_in_memory_once(tmp_path: Path) -> None:
    for seed in range(2):
        with made_run(tmp_path, seed=seed) as run:
            run.header["stream"]["class_names"] = ["a", "b", "c", "d"]
            write_sealed(run.path / "run.json", {"log_version": 1, **run.header})
            run.go_on()
    one, two = (run.header["stream"]["class_names"] for run in following(tmp_path).runs.values())
    assert one is two


def test_nothing_is_written(tmp_path: Path) -> None:
    finished(tmp_path)

    def content() -> dict[str, float]:
        return {str(p): p.stat().st_mtime_ns for p in tmp_path.rglob("*")}

    before = content()
    follower = following(tmp_path)
    leaderboard([run.run() for run in follower.runs.values()])
    assert content() == before
    assert Run(next(iter(follower.runs))).done


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_in_a_run_folder_stop_nobody(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    for name in ("failed.txt", "heartbeat.json"):
        os.mkfifo(folder / name)
    os.mkfifo(tmp_path / "study.json")
    follower = RunFollower([tmp_path])
    follower.scan()
    follower.count_all()
    (followed,) = follower.runs.values()
    assert followed.status(follower.now())[0] == "done"
