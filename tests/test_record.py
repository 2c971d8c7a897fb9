from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import Spy, same_log, small_stream
from kill_runs import kill_and_resume
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Recorder, writer
from streamgauge.record.diff import differences
from streamgauge.record.tables import Rows

PROTOCOL = sg.Protocol(evaluate=5, shifts=(7,), cost="4/3")


def go(out: Path, **more: Any) -> sg.Run:
    stream = small_stream(20, held_out=0.1)
    return sg.run(stream, "er", protocol=PROTOCOL, out=out, said=lambda text: None, **more)


def test_three_killed_runs_resume_to_the_identical_log(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, kills=3) == 0


def _crash_at(out: Path, call: int) -> None:
    """Die without a word at the n-th time that something is put on disk."""
    count = 0
    real = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == call:
            os._exit(9)
        real(descriptor)

    os.fsync = fsync
    torch.set_num_threads(1)
    sg.run(small_stream(2, held_out=0.1), Spy, protocol=PROTOCOL, out=out, checkpoint=0)
    os._exit(0)


def test_a_crash_at_any_write_leaves_a_folder_that_resumes(tmp_path: Path) -> None:
    stream = small_stream(2, held_out=0.1)
    whole = sg.run(stream, Spy, protocol=PROTOCOL, out=tmp_path / "whole")
    fork = multiprocessing.get_context("fork")
    crashes = 0
    for call in range(1, 200):
        out = tmp_path / str(call)
        child = fork.Process(target=_crash_at, args=(out, call))
        child.start()
        child.join()
        crashes += child.exitcode == 9
        resumed = sg.run(stream, Spy, protocol=PROTOCOL, out=out, said=lambda text: None)
        assert same_log(whole, resumed), f"after a crash at write {call}"
        assert not list(out.rglob("*.aside"))
        if child.exitcode == 0:
            break
    assert crashes > 20


def test_a_repeated_command_does_nothing_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    stream = small_stream(5)
    first = sg.run(stream, "blind", out=tmp_path, said=said.append)
    before = (first.path / "progress.json").stat().st_mtime_ns
    second = sg.run(stream, "blind", out=tmp_path, said=said.append)
    assert second.path == first.path
    assert (first.path / "progress.json").stat().st_mtime_ns == before
    assert said == [f"{first.path} is complete already; nothing to do."]


def test_identity_changes_with_what_determines_the_result(tmp_path: Path) -> None:
    def identity(stream: Any = None, learner: Any = "blind", **more: Any) -> str:
        return sg.run(stream or small_stream(3), learner, out=tmp_path, said=str, **more).id

    same = identity()
    assert identity(learner=sg.learner("other=blind")) == same  # a name is only a name
    others = [
        identity(stream=small_stream(3, data_seed=1)),
        identity(stream=small_stream(3, order="iid")),
        identity(learner=sg.learner("blind", window=3)),
        identity(learner="majority"),
        identity(seed=1),
        identity(protocol=sg.Protocol(evaluate="never")),
    ]
    assert len({same, *others}) == len(others) + 1


def test_two_processes_on_one_folder_are_refused(tmp_path: Path) -> None:
    header = {"environment": {}, "id": "x", "config": {}, "stream": {}}
    recorder = Recorder(tmp_path / "run", header, frozenset())
    with pytest.raises(StreamgaugeError, match="being written by another process"):
        Recorder(tmp_path / "run", header, frozenset())
    recorder.close()
    Recorder(tmp_path / "run", header, frozenset()).close()


def test_another_version_a_torn_file_and_no_run_get_a_sentence(tmp_path: Path) -> None:
    run = go(tmp_path)
    header = run.path / "run.json"
    stored = json.loads(header.read_text())
    header.write_text(json.dumps({**stored, "log_version": 99}))
    with pytest.raises(StreamgaugeError, match="has log version 99; this program reads version"):
        sg.Run(run.path)
    header.write_text(json.dumps(stored)[:50])
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        sg.Run(run.path)
    header.write_text(json.dumps(stored))
    segment = next((run.path / "log" / "predictions").glob("*.parquet"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StreamgaugeError, match="is damaged"):
        _ = sg.Run(run.path).predictions["label"]
    segment.unlink()
    with pytest.raises(StreamgaugeError, match="is missing"):
        _ = sg.Run(run.path).predictions
    progress = run.path / "progress.json"
    progress.write_text("{")
    with pytest.raises(StreamgaugeError, match="damaged"):
        sg.Run(run.path)
    with pytest.raises(StreamgaugeError, match="not a run folder"):
        sg.Run(tmp_path)


def test_a_torn_checkpoint_gets_a_sentence(tmp_path: Path) -> None:
    run = go(tmp_path)
    progress = json.loads((run.path / "progress.json").read_text())
    checkpoint = run.path / progress["checkpoint"]
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    (run.path / "progress.json").write_text(json.dumps({**progress, "done": False}))
    with pytest.raises(StreamgaugeError, match=r"checkpoint .* is damaged"):
        go(tmp_path)


def test_an_unwritable_folder_gets_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StreamgaugeError, match="Cannot write to"):
        go(blocked)


FULL = """
import resource, signal, sys
import numpy as np
import streamgauge as sg
from helpers import Spy, small_stream

class Growing(Spy):
    def state_dict(self):
        return {"learnt": self.learnt, "kept": np.zeros(200 * self.learnt)}

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (15000, resource.RLIM_INFINITY))
try:
    sg.run(small_stream(20), Growing, out=sys.argv[1], checkpoint=0)
except sg.StreamgaugeError as error:
    print(error)
(run,) = sg.find_runs([sys.argv[1]])
print(run.step, run.done, len(run.predictions["label"]))
"""


def test_a_full_disk_gets_a_sentence_and_what_was_written_stays(tmp_path: Path) -> None:
    # A limit on file size fails a write exactly as a full disk does, in the middle of it.
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    sentence, state = done.stdout.splitlines()
    step, finished, rows = state.split()
    assert sentence.startswith("Cannot write to "), done.stdout + done.stderr
    assert sentence.endswith(f"what was recorded up to step {step} is safe.")
    assert 2 < int(step) < 20
    assert finished == "False"
    assert int(rows) == 5 * int(step)


def test_diff_names_what_differs_and_where_the_logs_part(tmp_path: Path) -> None:
    stream = small_stream(20, held_out=0.1)
    a = sg.run(stream, "er", out=tmp_path)
    again = sg.run(stream, "er", out=tmp_path / "again")
    assert differences(a, again)["same"]
    assert differences(a, again)["configuration"] == {}
    b = sg.run(stream, sg.learner("er", lr=0.04), out=tmp_path)
    found = differences(a, b)
    assert not found["same"]
    assert found["configuration"] == {"learner.settings.lr": [0.05, 0.04]}
    assert found["data"] == {}
    first = next(
        int(a.predictions["step"][i])
        for i in range(a.predictions.rows)
        if a.predictions["confidence"][i] != b.predictions["confidence"][i]
    )
    assert found["logs"]["predictions"]["step"] == first == 1  # the first update is after step 0
    other = sg.run(small_stream(20, held_out=0.1, data_seed=1), "er", out=tmp_path)
    assert set(differences(a, other)["data"]) >= {"data_hash"}
    shorter = sg.run(small_stream(10, held_out=0.1), "er", out=tmp_path)
    assert "samples" in differences(a, shorter)["data"]


def test_rows_grow_and_hold_what_was_put_in() -> None:
    rows = Rows({"step": "int32", "name": "text", "value": "scalar"}, room=2)
    for i in range(9):
        rows.append(1, step=i, name="a" if i % 2 else "b", value=torch.tensor(i / 2))
    rows.append(2, step=np.array([9, 10]), name="c", value=1.5)
    table = rows.take()
    assert table.column("step").to_pylist() == list(range(11))
    assert table.column("value").to_pylist() == [i / 2 for i in range(9)] + [1.5, 1.5]
    assert table.column("name").to_pylist()[-3:] == ["b", "c", "c"]
    assert rows.count == 0


def test_states_survive_a_safe_load(tmp_path: Path) -> None:
    state = {"a": np.arange(3), "b": [np.float64(1.5), "x", None, True], "c": {"t": torch.ones(2)},
             "big": 2**100}  # fmt: skip
    writer._save(state, tmp_path / "state.pt")
    back = writer.read_checkpoint(tmp_path / "state.pt")
    assert back["a"].tolist() == [0, 1, 2]
    assert isinstance(back["a"], np.ndarray)
    assert back["b"] == [1.5, "x", None, True]
    assert back["big"] == 2**100
    assert back["c"]["t"].tolist() == [1, 1]


def test_a_learner_that_cannot_be_made_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=r"er cannot be made: Invalid learning rate"):
        sg.run(small_stream(3), sg.learner("er", lr=-1.0), out=tmp_path)
    with pytest.raises(StreamgaugeError, match="passes must be at least 1"):
        sg.run(small_stream(3), sg.learner("er", passes=0), out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_older_logs_are_read_and_strange_files_left_alone(tmp_path: Path) -> None:
    run = go(tmp_path)
    header = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**header, "log_version": 0}))
    assert sg.Run(run.path).predictions.rows == run.predictions.rows
    (run.path / "run.json").write_text(json.dumps(header))
    (run.path / "log" / "predictions" / "notes.txt").write_text("mine")
    progress = json.loads((run.path / "progress.json").read_text())
    (run.path / "progress.json").write_text(json.dumps({**progress, "done": False}))
    again = go(tmp_path)
    assert again.done
    assert (run.path / "log" / "predictions" / "notes.txt").read_text() == "mine"


def test_identity_sees_edited_classes_classes_and_weights(tmp_path: Path) -> None:
    def made(answer: int) -> type:
        # As at a prompt: a class without a file.
        space: dict[str, Any] = {"Spy": Spy, "torch": torch, "__name__": "__main__"}
        exec(
            "class Mine(Spy):\n"
            "    def predict(self, x):\n"
            f"        s = torch.zeros(len(x), self.classes); s[:, {answer}] = 1; return s\n",
            space,
        )
        kind: type = space["Mine"]
        return kind

    first = sg.run(small_stream(3), made(1), out=tmp_path, said=str)
    second = sg.run(small_stream(3), made(2), out=tmp_path, said=str)
    assert set(first.predictions["prediction"]) == {1}
    assert set(second.predictions["prediction"]) == {2}
    weights = tmp_path / "w.pt"
    weights.write_bytes(b"one")
    before = sg.learner("er", weights=str(weights)).describe()["weights"]
    weights.write_bytes(b"two")
    assert sg.learner("er", weights=str(weights)).describe()["weights"] != before


def test_a_resumed_run_takes_up_its_number_of_threads(tmp_path: Path) -> None:
    stream, seen = small_stream(6), []

    class Threads(Spy):
        def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
            seen.append(torch.get_num_threads())
            if len(seen) == 3:
                raise KeyboardInterrupt
            return super().learn(batch, predicted)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with pytest.raises(KeyboardInterrupt):
            sg.run(stream, Threads, out=tmp_path, checkpoint=0)
        torch.set_num_threads(2)
        sg.run(stream, Threads, out=tmp_path, said=str)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
