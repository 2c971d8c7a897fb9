"""Run folders made with bad intent: nothing outside of them is changed, and nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from helpers import Spy, small_stream
from streamgauge.cli import main
from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_sealed, write_sealed
from streamgauge.record.environment import git_state
from streamgauge.record.heartbeat import read_heartbeat
from streamgauge.record.index import Index
from streamgauge.record.verify import verify

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


def interrupted(out: Path) -> Path:
    """The folder of a run that can go on."""

    def stop(loop: Any) -> None:
        if loop.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(out, progress=stop)
    (folder,) = (path for path in out.iterdir() if (path / "run.json").exists())
    return folder


def go(out: Path, **more: Any) -> sg.Run:
    return sg.run(small_stream(6), Spy, out=out, checkpoint=0, log=str, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return interrupted(tmp_path / "runs")


def change(file: Path, act: Callable[[dict[str, Any]], None]) -> None:
    """Change a sealed file and seal it again."""
    value = read_sealed(file, dict, "")
    act(value)
    write_sealed(file, value)


@pytest.mark.parametrize("table", ["../../../others", "/etc", "a/b", ""])
def test_a_table_name_that_is_a_path_removes_nothing(folder: Path, table: str) -> None:
    others = folder.parents[1] / "others"
    others.mkdir()
    (others / "00007.parquet").write_bytes(b"of somebody else")
    change(folder / "progress.json", lambda progress: progress["segments"].update({table: 0}))
    with pytest.raises(StreamgaugeError, match=r"progress\.json is damaged"):
        go(folder.parent)
    assert (others / "00007.parquet").exists()


@pytest.mark.parametrize("part", ["log", "log/predictions"])
def test_a_linked_log_is_not_written_to(folder: Path, part: str) -> None:
    outside = folder.parents[1] / "outside"
    shutil.move(folder / part, outside)
    (folder / part).symlink_to(outside, target_is_directory=True)
    extra = outside / ("predictions/00099.parquet" if part == "log" else "00099.parquet")
    extra.write_bytes(b"of somebody else")
    before = sorted(outside.rglob("*"))
    with pytest.raises(StreamgaugeError, match="symbolic link"):
        go(folder.parent)
    assert sorted(outside.rglob("*")) == before
    assert sg.Run(folder).predictions.rows > 0  # reading changes nothing


def test_a_linked_lock_empties_no_other_file(folder: Path) -> None:
    other = folder.parents[1] / "diary.txt"
    other.write_text("of somebody else")
    (folder / "lock").unlink(missing_ok=True)
    (folder / "lock").symlink_to(other)
    with pytest.raises(StreamgaugeError, match="symbolic link"):
        go(folder.parent)
    assert other.read_text() == "of somebody else"


def test_copies_that_other_programs_leave_are_left_alone(folder: Path) -> None:
    copy = folder / "log" / "predictions" / "00000 (conflicted copy).parquet"
    copy.write_bytes(b"")
    (folder / "log" / "predictions" / "00099.parquet").write_bytes(b"")  # of an interrupted write
    assert go(folder.parent).done
    assert copy.exists()
    assert not (folder / "log" / "predictions" / "00099.parquet").exists()


@needs_pipes
@pytest.mark.parametrize("name", ["run.json", "progress.json", "log/predictions/00000.parquet"])
def test_a_pipe_in_the_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    """Opening one would wait for a writer for ever; a pipe has zero bytes."""
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if name.endswith("parquet"):
        change(folder / "progress.json", lambda progress: progress["files"][name].__setitem__(0, 0))
    with pytest.raises(StreamgaugeError, match="pipe"):
        sg.score(sg.Run(folder))
    (checked,) = verify(folder)
    assert "pipe" in checked.problems[0]
    with pytest.raises(StreamgaugeError, match="pipe"):
        go(folder.parent)


def test_a_folder_in_the_place_of_a_journal_is_a_problem(tmp_path: Path) -> None:
    rec = sg.Recorder(tmp_path / "mine", stream="s", learner="l")
    rec.predict(1, "a")
    (journal,) = rec.path.glob("journal-*")
    journal.unlink()
    journal.mkdir()
    with pytest.raises(StreamgaugeError, match="journal-00000 cannot be read"):
        sg.Run(rec.path)
    (checked,) = verify(rec.path)
    assert "journal-00000 cannot be read" in "".join(checked.problems)


@needs_pipes
def test_a_pipe_is_no_heartbeat_and_no_part_of_a_repository(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "heartbeat.json")
    assert read_heartbeat(tmp_path) is None
    git = tmp_path / ".git"
    (git / "refs").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/main\n")
    for name in ("commondir", "refs/main", "packed-refs"):
        os.mkfifo(git / name)
    assert git_state(tmp_path) is None


def test_a_process_number_that_is_none_has_not_ended(tmp_path: Path) -> None:
    import socket

    facts = {"step": 1, "steps": 2, "right": 0, "asked": 1, "pace": 1.0, "time": 1.0}
    facts |= {"pid": 10**30, "host": socket.gethostname()}
    (tmp_path / "heartbeat.json").write_text(json.dumps(facts))
    heartbeat = read_heartbeat(tmp_path)
    assert heartbeat is not None
    assert not heartbeat.ended


def test_a_count_without_files_is_not_believed(folder: Path) -> None:
    """Versions before 0.2 stored no checksums, so only the count says what there should be."""

    def older(progress: dict[str, Any]) -> None:
        del progress["files"]
        progress["segments"]["predictions"] = 10**15

    change(folder / "progress.json", older)
    (checked,) = verify(folder)
    assert len(checked.problems) == 1
    with pytest.raises(StreamgaugeError, match="missing"):
        go(folder.parent)


@pytest.mark.parametrize("time", [1e400, 10**30, -(10**18), float("nan")])
def test_a_time_that_is_none_is_not_shown(folder: Path, time: float) -> None:
    change(folder / "progress.json", lambda progress: progress.update(time=time))
    assert sg.Run(folder).made[:2] == "20"  # of the file instead


def test_an_index_is_read_whatever_its_folder_is_called(tmp_path: Path, folder: Path) -> None:
    runs = tmp_path / "runs#1?mode=rwc%20"
    shutil.move(folder.parent, runs)
    index = Index(runs)
    index.entry(runs / folder.name, dict).result("answer", lambda: 42)
    index.save()
    again = Index(runs).entry(runs / folder.name, dict)
    assert again.result("answer", lambda: 43) == 42


def test_an_index_that_is_a_link_is_not_written_to(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other.sqlite"
    other.write_bytes(b"")
    (folder.parent / ".index.sqlite").symlink_to(other)
    index = Index(folder.parent)
    index.entry(folder, dict).result("answer", lambda: 42)
    index.save()
    assert other.read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 here")
def test_a_run_folder_whose_name_is_not_utf8_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "na\udcffme"  # the byte FF
    with sg.Recorder(path, stream="s", learner="mine", classes=2) as recorder:
        for ids in (range(200), range(200, 400)):
            recorder.predict(ids, [0, 1, 1, 0] * 50)
            recorder.label(ids, [0, 1, 1, 1] * 50)
    shutil.copytree(path, tmp_path / "plain")
    report = str(tmp_path / "report.html")
    for words in (["score"], ["report", "--out", report], ["verify"], ["audit"],
                  ["diff", str(tmp_path / "plain")]):  # fmt: skip
        monkeypatch.setattr("sys.argv", ["streamgauge", *words[:1], str(path), *words[1:]])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert stop.value.code == 0, err
        assert "damaged" not in err
        assert words != ["score"] or "75.0" in out
    assert sg.score(path) == sg.score(tmp_path / "plain")
