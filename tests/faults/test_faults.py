"""Short forms of the scripts in this folder; docs/promises.md has the figures of the long ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from helpers import rewrite, same_log, small_stream
from streamgauge.errors import Busy, Damaged, StreamgaugeError
from streamgauge.files import make_folder, read_sealed, write_sealed
from streamgauge.record import index
from streamgauge.record import run as run_module
from streamgauge.record.verify import verify
from streamgauge.report.terminal import scores_text
from streamgauge.running.active_run import opened_in_turn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import drive  # noqa: E402
import flip  # noqa: E402


def test_faults_at_file_operations_lose_nothing(tmp_path: Path) -> None:
    library = drive.compile_library(tmp_path / "faults.so")
    if library is None:
        pytest.skip("The fault library needs Linux and a C compiler.")
    words = ["--actions", "run,pack", "--every", "60", "--kinds", "kill,enospc,strict"]
    words += ["--state", str(tmp_path / "result.json")]
    done = drive.preloaded(HERE / "drive.py", words, library, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["complete"]
    assert len(result["parts"]) == 6
    for part in result["parts"].values():
        assert part["counts"] == {"identical": part["tried"]}
        assert part["tried"] >= 2


@pytest.mark.long
def test_faults_of_every_kind(tmp_path: Path) -> None:
    library = drive.compile_library(tmp_path / "faults.so")
    if library is None:
        pytest.skip("The fault library needs Linux and a C compiler.")
    done = drive.preloaded(HERE / "drive.py", ["--every", "10"], library)
    assert done.returncode == 0


def test_a_lost_fsync_of_a_folder_is_noticed(tmp_path: Path) -> None:
    """The model of a power cut itself: an entry that was not synced is gone, a synced one stays."""
    (tmp_path / "shadow").mkdir()
    for name in ("kept", "lost"):
        (tmp_path / name).write_text("data")
    trace = "".join(
        f"{number}\t{op}\t{tmp_path}{path}\t\t{value}\n"
        for number, (op, path, value) in enumerate(
            [("create", "/kept", 0), ("write", "/kept", 4), ("fsync", "/kept", 4),
             ("syncdir", "", 0), ("create", "/lost", 0), ("write", "/lost", 4)]
        )
    )  # fmt: skip
    drive.power_cut(trace, tmp_path / "shadow", strict=False)
    assert (tmp_path / "lost").read_text() == ""  # its data were not synced
    drive.power_cut(trace, tmp_path / "shadow", strict=True)
    assert (tmp_path / "kept").read_text() == "data"
    assert not (tmp_path / "lost").exists()


def test_no_flip_is_silent() -> None:
    said: list[str] = []
    made = flip.campaign(flip.KINDS, 250, seed=1, workers=2, say=said.append)
    made.run()
    assert not made.findings, said
    for part in made.parts.values():
        assert part.tried == part.planned
        assert part.counts["found"] > part.planned / 3


@pytest.mark.long
def test_no_flip_of_thousands_is_silent() -> None:
    made = flip.campaign(flip.KINDS, 5000, seed=2, workers=2)
    made.run()
    assert not made.findings


def made(out: Path, steps: int = 10, **more: Any) -> sg.Run:
    return sg.run(small_stream(steps), "ncm", out=out, log=str, **more)


def test_a_deleted_segment_is_noticed_before_a_run_goes_on(tmp_path: Path) -> None:
    run = made(tmp_path)
    rewrite(run.path / "progress.json", lambda old: {**old, "done": False})
    segment = run.path / "log" / "predictions" / "00000.parquet"
    segment.unlink()
    with pytest.raises(Damaged, match=r"00000.parquet is missing; restore it from a copy"):
        made(tmp_path)


def test_a_changed_setting_in_a_header_is_refused(tmp_path: Path) -> None:
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import resume, run_all

    experiment = Experiment("albums", ("ncm",), 1, {"stream.length": 200})
    (run,) = run_all(experiment, out=tmp_path, steps=5, log=str)
    file = run.path / "run.json"
    text = file.read_text()
    file.write_text(text.replace('"cost": "1"', '"cost": "2"'))
    assert file.read_text() != text
    with pytest.raises(StreamgaugeError, match=r"run\.json is damaged"):
        resume(run.path, log=str)
    header = json.loads(file.read_text())
    write_sealed(file, header)  # by someone who also makes a new checksum
    with pytest.raises(StreamgaugeError, match="its id is not that of its configuration"):
        resume(run.path, log=str)


def test_verify_names_the_damaged_file(call: Any, tmp_path: Path) -> None:
    run = made(tmp_path / "runs")
    code, out, _ = call("verify", "runs")
    assert code == 0
    assert "0 runs are damaged" in out
    (checkpoint,) = run.path.glob("checkpoint-*")
    data = bytearray(checkpoint.read_bytes())
    data[-1] ^= 1
    checkpoint.write_bytes(data)
    code, out, _ = call("verify", "runs")
    assert code == 1
    assert f"{checkpoint.name} is damaged (its checksum" in out
    code, out, _ = call("verify", "runs", "--json")
    assert len(json.loads(out)["runs"][0]["problems"]) == 1


def test_a_newer_format_is_refused_with_the_way_forward(tmp_path: Path) -> None:
    run = made(tmp_path)
    for name in ("run.json", "progress.json"):
        file = run.path / name
        text = file.read_text()
        file.write_text(json.dumps({**json.loads(text), "format": 3}))
        with pytest.raises(StreamgaugeError, match=r"has format 3, .* up to 2: install a newer"):
            sg.Run(run.path)
        file.write_text(text)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 60 + "1" + "}" * 60, "[]", "{}", '"x"', "\xff", "",
             '{"log_version": ' + "9" * 5000 + "}", '{"log_version": true}'],
)  # fmt: skip
def test_any_text_as_a_description_is_one_sentence(tmp_path: Path, text: str) -> None:
    run = made(tmp_path)
    for name in ("run.json", "progress.json"):
        file = run.path / name
        whole = file.read_bytes()
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(StreamgaugeError, match=name):
            sg.Run(run.path)
        file.write_bytes(whole)


def test_a_sealed_file_is_read_as_written(tmp_path: Path) -> None:
    value = {"text": "ä\ud800", "number": 0.1, "list": [1, None, {"a": True}], "format": 7}
    write_sealed(tmp_path / "x.json", value)
    assert read_sealed(tmp_path / "x.json", dict, "") == {**value, "format": 2}


@pytest.mark.long
def test_four_commands_on_one_folder_share_the_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamgauge", "run", "--stream", "albums",
               "--stream.length", "200", "--learner", "ncm", "--seeds", "4",
               "--out", "runs"]  # fmt: skip
    processes = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    runs = sg.find_runs(tmp_path / "runs")
    assert [run.done for run in runs] == [True] * 4
    assert not any(one.problems for one in verify(tmp_path / "runs"))
    alone = sg.run(
        sg.stream("albums", length=200, seed=2), "ncm", seed=2, out=tmp_path / "alone", log=str
    )
    (shared,) = (run for run in runs if run.seed == 2)
    assert same_log(alone, shared)


def test_a_run_that_another_process_writes_comes_last() -> None:
    busy, said = {"b": 2}, list[str]()

    def open_run(name: str) -> None:
        if busy.get(name):
            busy[name] -= 1
            raise Busy(f"{name} is being written by another process.")

    assert list(opened_in_turn("abc", open_run, said.append)) == ["a", "c", "b"]
    assert said == ["b is being written by another process. It comes after the others."]


def test_a_run_that_ended_elsewhere_meanwhile_is_complete(tmp_path: Path) -> None:
    from streamgauge import catalogue
    from streamgauge.running.active_run import ActiveRun
    from streamgauge.running.execution import Execution

    stream = small_stream(5)
    waiting = ActiveRun(stream, catalogue.learner("ncm"), Execution(log=str), out=tmp_path)
    assert not waiting.complete
    run = sg.run(stream, "ncm", out=tmp_path, log=str)
    before = (run.path / "progress.json").read_bytes()
    with waiting:
        assert waiting.complete
        assert list(waiting.steps()) == []
    assert (run.path / "progress.json").read_bytes() == before


def test_an_index_gives_what_the_folders_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FEWEST", 2)
    runs = tmp_path / "runs"
    for seed in range(3):
        sg.run(small_stream(10, data_seed=seed), "ncm", seed=seed, out=runs, log=str)
    expected = scores_text([sg.Run(run.path) for run in sg.find_runs(runs)])
    assert (runs / index.NAME).exists()
    assert scores_text(sg.find_runs(runs)) == expected

    def refuse(*_: Any) -> None:
        raise AssertionError("The log was read.")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "segment_files", refuse)
        patch.setattr(run_module, "read_header", refuse)
        assert scores_text(sg.find_runs(runs)) == expected
    # A changed folder is read again, and so is everything if the index is damaged.
    file = sg.find_runs(runs)[0].path / "run.json"
    rewrite(file, lambda old: old["config"]["learner"].update(name="other"))
    assert "other" in scores_text(sg.find_runs(runs))
    data = bytearray((runs / index.NAME).read_bytes())
    for place in range(0, len(data), 97):
        data[place] ^= 0x55
    (runs / index.NAME).write_bytes(data)
    assert "other" in scores_text(sg.find_runs(runs))
    assert "other" in scores_text(sg.find_runs(runs))
    file.write_bytes(b"{")
    with pytest.raises(Damaged, match=r"run.json is damaged"):
        sg.find_runs(runs)


def test_folders_are_synced_into_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("streamgauge.files.sync_folder", synced.append)
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_writer_checks_files_of_before_it_knew_checksums(tmp_path: Path) -> None:
    """A folder without checksums is accepted, and has them after the next commit."""
    run = made(tmp_path)
    for name in ("run.json", "progress.json"):
        value = json.loads((run.path / name).read_text())
        kept = {k: v for k, v in value.items() if k not in ("format", "own_checksum", "files")}
        kept |= {"done": False} if name == "progress.json" else {}
        (run.path / name).write_text(json.dumps(kept))
    (found,) = verify(run.path)
    assert found.unchecked
    assert not found.problems
    assert same_log(made(tmp_path), run)
    progress = json.loads((run.path / "progress.json").read_text())
    assert "files" in progress
    shutil.rmtree(run.path / "log" / "jobs")
    (found,) = verify(run.path)
    assert "jobs/00000.parquet is missing" in found.problems[0]
