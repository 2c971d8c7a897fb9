from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kill_runs import kill_and_resume
from PIL import Image

import streamgauge as sg
from helpers import Spy, rewrite, same_log, small_stream
from streamgauge.errors import StreamgaugeError
from streamgauge.models.pretrain import pretrain
from streamgauge.record import RunWriter, writer
from streamgauge.record.diff import differences
from streamgauge.record.tables import RowBuffer
from streamgauge.running.header import identity
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import resume as take_up
from streamgauge.running.runner import run_all

PROTOCOL = sg.Protocol(evaluate=5, shifts=(7,), cost="4/3")


def go(out: Path, **more: Any) -> sg.Run:
    stream = small_stream(20, held_out=0.1)
    return sg.run(stream, "er", protocol=PROTOCOL, out=out, log=lambda text: None, **more)


@pytest.mark.long
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
        resumed = sg.run(stream, Spy, protocol=PROTOCOL, out=out, log=lambda text: None)
        assert same_log(whole, resumed), f"after a crash at write {call}"
        assert not list(out.rglob("*.part"))
        if child.exitcode == 0:
            break
    assert crashes > 20


def test_a_repeated_command_does_nothing_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    stream = small_stream(5)
    first = sg.run(stream, "blind", out=tmp_path, log=said.append)
    before = (first.path / "progress.json").stat().st_mtime_ns
    second = sg.run(stream, "blind", out=tmp_path, log=said.append)
    assert second.path == first.path
    assert (first.path / "progress.json").stat().st_mtime_ns == before
    assert said == [f"{first.path} is complete already (made {first.made}); nothing to do."]
    made = datetime.strptime(first.made, "%Y-%m-%d %H:%M")
    assert abs(datetime.now() - made) < timedelta(minutes=5)


def test_identity_changes_with_what_determines_the_result(tmp_path: Path) -> None:
    def identity(stream: Any = None, learner: Any = "blind", **more: Any) -> str:
        return sg.run(stream or small_stream(3), learner, out=tmp_path, log=str, **more).id

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
    recorder = RunWriter(tmp_path / "run", header, frozenset())
    with pytest.raises(StreamgaugeError, match="being written by another process"):
        RunWriter(tmp_path / "run", header, frozenset())
    recorder.close()
    RunWriter(tmp_path / "run", header, frozenset()).close()


def test_another_version_a_torn_file_and_no_run_get_a_sentence(tmp_path: Path) -> None:
    run = go(tmp_path)
    header = run.path / "run.json"
    stored = header.read_text()
    rewrite(header, lambda old: {**old, "log_version": 99})
    with pytest.raises(StreamgaugeError, match=r"log version 99, .* up to 2: install a newer"):
        sg.Run(run.path)
    header.write_text(stored[:50])
    with pytest.raises(StreamgaugeError, match=r"run.json is damaged"):
        sg.Run(run.path)
    header.write_text(stored)
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
    rewrite(run.path / "progress.json", lambda old: {**old, "done": False})
    with pytest.raises(StreamgaugeError, match=r"checkpoint.* is damaged \(it has 100 bytes"):
        go(tmp_path)
    as_before = {k: v for k, v in progress.items() if k not in ("files", "format", "own_checksum")}
    (run.path / "progress.json").write_text(json.dumps({**as_before, "done": False}))
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
    # A limit on file size fails a write exactly as a full disk does, in the middle of it. Without
    # -B it would cut off the compiled files of modules that are imported for the first time.
    done = subprocess.run(
        [sys.executable, "-B", "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    sentence, state = done.stdout.splitlines()
    step, finished, rows = state.split()
    assert sentence.startswith("Cannot write to "), done.stdout + done.stderr
    assert sentence.endswith(f"the log up to step {step} is safe.")
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
    rows = RowBuffer({"step": "int32", "name": "text", "value": "scalar"}, capacity=2)
    for i in range(9):
        rows.append(1, step=i, name="a" if i % 2 else "b", value=torch.tensor(i / 2))
    rows.append(2, step=np.array([9, 10]), name="c", value=1.5)
    table = rows.take()
    assert table.column("step").to_pylist() == list(range(11))
    assert table.column("value").to_pylist() == [i / 2 for i in range(9)] + [1.5, 1.5]
    assert table.column("name").to_pylist()[-3:] == ["b", "c", "c"]
    assert rows.count == 0


class Far(torch.Tensor):
    """A tensor that says it is not the processor's."""

    is_cpu = False


def test_what_lies_on_a_device_is_fetched_to_its_rows() -> None:
    rows = RowBuffer({"a": "int32", "b": "float32", "value": "scalar"}, capacity=2)
    rows.append(2, a=torch.tensor([1, 2]).as_subclass(Far), b=0.5, value=torch.tensor([7]))
    rows.append(1, a=3, b=torch.tensor(1.5).as_subclass(Far), value=torch.tensor(2.5))
    rows.append(3, a=torch.tensor([4, 5, 6]).as_subclass(Far), b=np.arange(3), value=np.float32(4))
    rows.append(1, a=torch.tensor([7]).as_subclass(Far), b=2, value=torch.tensor(True))
    assert rows.peek("a").tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert rows.peek("b").tolist() == [0.5, 0.5, 1.5, 0, 1, 2, 2]
    assert rows.peek("value").tolist() == [7, 7, 2.5, 4, 4, 4, 1]


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
    rewrite(run.path / "run.json", lambda old: {**old, "log_version": 0})
    assert sg.Run(run.path).predictions.rows == run.predictions.rows
    rewrite(run.path / "run.json", lambda old: {**old, "log_version": 1})
    (run.path / "log" / "predictions" / "notes.txt").write_text("mine")
    rewrite(run.path / "progress.json", lambda old: {**old, "done": False})
    again = go(tmp_path)
    assert again.done
    assert (run.path / "log" / "predictions" / "notes.txt").read_text() == "mine"


def test_identity_sees_edited_classes_classes_and_weights(tmp_path: Path) -> None:
    def made(answer: int) -> type:
        # As at a prompt: a class without a file.
        space = {"Spy": Spy, "torch": torch, "__name__": "__main__", "answer": answer}
        exec(
            "class Mine(Spy):\n"
            "    def predict(self, x):\n"
            "        s = torch.zeros(len(x), self.classes); s[:, answer] = 1; return s\n",
            space,
        )
        kind: type = space["Mine"]
        return kind

    first = sg.run(small_stream(3), made(1), out=tmp_path, log=str)
    second = sg.run(small_stream(3), made(2), out=tmp_path, log=str)
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

    threads = sg.learner(Threads)  # once: what `seen` holds is part of the code of the class
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with pytest.raises(KeyboardInterrupt):
            sg.run(stream, threads, out=tmp_path, checkpoint=0)
        torch.set_num_threads(2)
        sg.run(stream, threads, out=tmp_path, log=str)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_data_that_were_moved_are_the_same_data(tmp_path: Path) -> None:
    def made(folder: Path) -> sg.Run:
        stream = sg.stream(
            "manifest",
            path=f"{folder}/t.csv",
            root=f"{folder}/photos",
            names=f"{folder}/names.txt",
            size=8,
        )
        return sg.run(stream, "majority", out=tmp_path / folder.name, log=str)

    here, there = tmp_path / "here", tmp_path / "there"
    (here / "photos").mkdir(parents=True)
    for number in range(30):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 6, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(here / "photos" / f"{number}.png")
    rows = [f"{number}.png,{'ab'[number % 2]}" for number in range(30)]
    (here / "t.csv").write_text("\n".join(["image,label", *rows]) + "\n")
    (here / "names.txt").write_text("a\nb\n")
    first = made(here)
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("*-majority-*"))
    assert made(there).id == first.id
    (there / "names.txt").write_text("b\na\n")  # other numbers for the classes
    assert made(there).id != first.id


def test_weights_count_by_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where they lie, nor what lies beside them."""
    stream = sg.stream("albums", length=300, preparation=0.2)
    settings = {"model": "mlp", "epochs": 1}
    file = pretrain(stream, out=tmp_path / "backbones", **settings)
    monkeypatch.chdir(tmp_path)

    def made(weights: Any, out: str = "runs") -> sg.Run:
        learner = sg.learner("er", model="mlp", weights=str(weights))
        return sg.run(stream, learner, out=tmp_path / out, log=str)

    first = made("backbones")
    shutil.copy(file, tmp_path / "moved.pt")
    assert made(tmp_path / "moved.pt", "moved").id == first.id
    other = sg.stream("albums", length=300, preparation=0.2, seed=1)
    pretrain(other, out=tmp_path / "backbones", **settings)
    said: list[str] = []
    again = sg.run(
        stream, sg.learner("er", model="mlp", weights="backbones"), out=tmp_path / "runs",
        log=said.append,
    )  # fmt: skip
    assert again.id == first.id
    assert "complete already" in said[0]
    monkeypatch.chdir("/")  # a run is to be taken up again from any folder
    where = first.header["config"]["learner"]["settings"]["weights"]
    assert where == str((tmp_path / "backbones").resolve())


def _interrupt(experiment: Experiment, out: Path, at: int, checkpoint: float) -> Path:
    """The folder of a run that was stopped on its way."""

    def stop(loop: Any) -> None:
        if loop.step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_all(experiment, out=out, checkpoint=checkpoint, watch=lambda *_: stop, log=str))
    (path,) = out.iterdir()
    return path


@pytest.mark.parametrize("checkpoint", [0, 30])
def test_what_is_resumed_keeps_its_notes_and_its_folder(tmp_path: Path, checkpoint: float) -> None:
    """Before the first checkpoint and after it, and under whatever name the folder has by now."""
    notes = {"er": {"tuned": {"trials": 3, "prefix": "a tenth", "flops": None}}}
    experiment = Experiment("albums", ("er",), 1, {"stream.length": 200}, notes=notes)
    path = _interrupt(experiment, tmp_path / "runs", 5, checkpoint)
    before = json.loads((path / "run.json").read_text())
    renamed = path.rename(path.with_name("mine"))
    (run,) = take_up(renamed, log=str)
    assert run.done
    assert run.path == renamed
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["mine"]
    assert json.loads((renamed / "run.json").read_text()) == before
    (whole,) = run_all(experiment, out=tmp_path / "whole", log=str)
    assert same_log(run, whole)


def test_an_identity_of_an_older_kind_can_be_resumed(tmp_path: Path) -> None:
    """What counts is that nothing changed, not how the identity was written when it began."""
    experiment = Experiment("albums", ("er",), 1, {"stream.length": 200})
    path = _interrupt(experiment, tmp_path / "runs", 5, 0)
    header = json.loads((path / "run.json").read_text())
    assert identity(header["config"], header["stream"]) == header["id"]
    del header["format"], header["own_checksum"]  # as versions before 0.2 wrote it
    (path / "run.json").write_text(json.dumps({**header, "id": "0" * 32}))
    (run,) = take_up(path, log=str)
    assert run.done
    assert run.path == path


def test_the_step_at_which_logs_part_is_the_one_at_which_it_was_answered(tmp_path: Path) -> None:
    """An answer ahead of its time stands in the log under the step that it is about."""

    class Later(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            scores = super().predict(x)
            said = len([c for c in self.calls if c[0] == "predict"])
            return scores.roll(1, 1) if said == self.other else scores

        other = 0

    class Other(Later):
        other = 6

    stream, protocol = small_stream(20), sg.Protocol(shifts=(50,))
    a, b = (sg.run(stream, kind, protocol=protocol, out=tmp_path) for kind in (Later, Other))
    # Calls: steps 0 to 2 are each answered with the step 10 further on: the sixth is step 2's.
    found = differences(a, b)
    assert found["logs"]["predictions"]["columns"] == ["prediction"]
    assert a.predictions["step"][found["logs"]["predictions"]["row"]] == 12
    assert found["first_step"] == 2


def test_a_damaged_column_gets_a_sentence(tmp_path: Path) -> None:
    run = go(tmp_path)
    file = run.path / "log" / "predictions" / "00000.parquet"
    whole, complaints = file.read_bytes(), 0
    for place in range(4, 400, 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        for read in (
            lambda: [sg.Run(run.path).predictions[c] for c in run.predictions],
            lambda: list(sg.Run(run.path).predictions.pieces(list(run.predictions))),
        ):
            try:
                read()
            except StreamgaugeError:
                complaints += 1
    assert complaints > 0


def test_a_learner_file_that_is_edited_is_another_learner(tmp_path: Path) -> None:
    """In one process, as in a notebook: the identity must be that of the code that ran."""
    text = (
        "import torch\nfrom helpers import Spy\nclass Mine(Spy):\n    def predict(self, x):\n"
        "        s = torch.zeros(len(x), self.classes); s[:, ANSWER] = 1; return s\n"
    )
    file = tmp_path / "mine.py"
    answers = []
    for answer in "12":
        file.write_text(text.replace("ANSWER", answer))
        run = sg.run(small_stream(3), f"{file}:Mine", out=tmp_path / "runs", log=str)
        answers.append(set(run.predictions["prediction"].tolist()))
    assert answers == [{1}, {2}]


@pytest.mark.parametrize("folder", ["a@b", "c=d", "e=f@g"])
def test_a_learner_file_may_lie_in_any_folder(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "mine.py"
    file.parent.mkdir()
    file.write_text("from helpers import Spy\nclass Mine(Spy):\n    pass\n")
    for text, name in ((f"{file}:Mine", "Mine"), (f"x={file}:Mine", "x"), (f"{file}", "mine")):
        found = sg.learner(text)
        assert found.name == name
        assert sg.learner(f"{found.name}={found.where}").where == found.where


def test_weights_that_are_no_file_are_a_setting_like_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom helpers import Spy\n"
        "@dataclass(frozen=True)\nclass Config:\n    weights: tuple[float, ...] = (0.5, 1.0)\n"
        "class Mine(Spy):\n    def __init__(self, spec, source, seed, device, config: Config):\n"
        "        super().__init__(spec, source, seed, device)\n"
    )
    run = sg.run(small_stream(3), f"{file}:Mine", out=tmp_path / "runs", log=str)
    other = sg.run(
        small_stream(3), sg.learner(f"{file}:Mine", weights=(1,)), out=tmp_path / "runs", log=str
    )
    assert run.header["config"]["learner"]["weights"] is None
    assert run.id != other.id
