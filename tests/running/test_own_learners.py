"""Learners of one's own: no stale result is used, and no state that cannot be read is written."""

from __future__ import annotations

import importlib
import pickle
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.record.writer import from_plain, read_checkpoint, to_plain
from streamgauge.running.loop import Loop


def small_stream() -> sg.streams.Stream:
    return sg.stream(np.random.default_rng(0).random((40, 2)), np.arange(40) % 2, batch=4)


class Constant:
    """Answers class 0; `estimator` is what its state holds."""

    estimator: Any = None

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.classes, self.learnt = spec.classes, 0

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return torch.eye(self.classes)[torch.zeros(len(x), dtype=torch.long)]

    def learn(self, batch: sg.Batch, predicted: Any) -> None:
        self.learnt += 1

    def state_dict(self) -> dict[str, Any]:
        return {"learnt": self.learnt, "parts": [1, {"model": self.estimator}]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learnt = state["learnt"]


def with_state(value: Any) -> type:
    return type("Holding", (Constant,), {"estimator": value})


class Estimator:
    """As one of a library: it can be pickled, and a checkpoint runs no code to read it."""


def run(learner: Any, out: Path, log: list[str] | None = None, **options: Any) -> sg.Run:
    return sg.run(
        small_stream(),
        learner,
        out=out,
        device="cpu",
        log=(lambda _: None) if log is None else log.append,
        **options,
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Estimator(), r"Estimator"),
        (np.array([None, "a"]), "array of type object"),
        (np.array(["a", "b"]), "array of type <U1"),
        (lambda: None, "method"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_after_the_first_training(
    value: Any, kind: str, tmp_path: Path
) -> None:
    steps: list[int] = []

    def progress(loop: Loop) -> None:
        steps.append(loop.step)

    place = r"state_dict\(\)\['parts'\]\[1\]\['model'\] is of type .*"
    with pytest.raises(StreamgaugeError, match=f"{place}{kind}.* pickle.dumps"):
        run(with_state(value), tmp_path, progress=progress)
    assert len(steps) <= 1
    assert list(tmp_path.iterdir()) == []


class Leaves(Constant):
    """Ends the program at its third training, as an argument parser in a learner may."""

    def learn(self, batch: sg.Batch, predicted: Any) -> None:
        self.learnt += 1
        if self.learnt == 3:
            sys.exit("no such option")

    def state_dict(self) -> dict[str, Any]:
        return {"learnt": self.learnt}


class NeverBegins(Leaves):
    def __init__(self, *arguments: Any) -> None:
        sys.exit()


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (Leaves, r"test_own_learners.py, line \d+, in learn: SystemExit: no such option\. Code"),
        (NeverBegins, r"test_own_learners.py, line \d+, in __init__: SystemExit\. Code that a run"),
    ],
)
def test_a_learner_that_ends_the_program_is_an_error_with_its_line(
    tmp_path: Path, learner: type, words: str
) -> None:
    with pytest.raises(StreamgaugeError, match=words) as error:
        run(learner, tmp_path)
    assert error.value.exit_code == 3  # type: ignore[attr-defined]
    kept = [sg.Run(file.parent).failure for file in tmp_path.glob("*/run.json")]
    assert kept == ([str(error.value)] if learner is Leaves else [])  # or it could not begin


def test_a_signal_handler_may_end_the_program_during_a_run(tmp_path: Path) -> None:
    def leave(number: int, frame: Any) -> None:
        sys.exit(7)

    class Signalled(Leaves):
        def learn(self, batch: sg.Batch, predicted: Any) -> None:
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit) as stop:
            run(Signalled, tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stop.value.code == 7


def test_a_state_that_becomes_unreadable_is_refused_at_the_first_checkpoint(
    tmp_path: Path,
) -> None:
    class Late(Constant):
        def state_dict(self) -> dict[str, Any]:
            return {"learnt": self.learnt, "model": Estimator() if self.learnt > 2 else None}

    with pytest.raises(StreamgaugeError, match="Estimator"):
        run(Late, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        ("self.weight = state['weights']", "mine.py, line 10, in load_state_dict: KeyError"),
        ("self.weight.copy_(state['learnt'][:2])", "size"),
    ],
)
def test_a_state_that_its_learner_does_not_take_is_refused_after_the_first_training(
    load: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch, numpy, random\n"
        "class Mine:\n"
        "    def __init__(self, spec, source, seed, device):\n"
        "        self.weight = torch.rand(3, spec.classes)\n"
        "    def predict(self, x):\n"
        "        return torch.rand(len(x), 2) + numpy.random.rand() + random.random()\n"
        "    def learn(self, batch, predicted): ...\n"
        "    def state_dict(self): return {'learnt': self.weight}\n"
        "    def load_state_dict(self, state):\n"
        f"        {load}\n"
    )
    with pytest.raises(StreamgaugeError, match="does not take what its state_dict ret") as refused:
        run(f"{tmp_path / 'mine.py'}:Mine", tmp_path / "runs")
    assert sentence in str(refused.value)
    assert not list((tmp_path / "runs").iterdir())


def test_the_second_learner_that_is_tried_changes_no_random_number(tmp_path: Path) -> None:
    """Its constructor draws from global generators, which the run draws from, too."""

    class Drawing(Constant):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand(len(x), 2) + np.random.rand() + random.random()  # noqa: NPY002

    def rows(out: str) -> list[float]:
        torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
        stored = run(Drawing, tmp_path / out)
        return list(stored.predictions["confidence"])

    tried = rows("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamgauge.running.active_run._QUICK_BUILD", -1.0)
        assert rows("b") == tried


@pytest.mark.parametrize("value", [pickle.dumps(Estimator()), {1, 2}, (1, 2), np.float32(1), None])
def test_states_that_can_be_read(value: Any, tmp_path: Path) -> None:
    stored = run(with_state(value), tmp_path)
    assert stored.checkpoint is not None
    state = read_checkpoint(stored.path / stored.checkpoint)["learner"]
    assert state["learnt"] == 10
    read = state["parts"][1]["model"]
    assert (tuple(read) if isinstance(value, tuple) else read) == value


@pytest.mark.parametrize("shape", [(), (1,), (2, 0), (2, 3)])
def test_an_array_comes_back_with_its_shape(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    for given in (array, np.broadcast_to(array, shape), array.T):
        back = from_plain(to_plain({"a": given}))["a"]
        assert back.shape == given.shape
        assert back.dtype == given.dtype
        assert np.array_equal(back, given)


# Stale results

FILE = """
import torch
from helper import answer

class Mine:
    def __init__(self, spec, source, seed, device):
        self.classes = spec.classes
    def predict(self, x):
        return torch.eye(self.classes)[torch.full((len(x),), answer())]
    def learn(self, batch, predicted): ...
    def state_dict(self): return {}
    def load_state_dict(self, state): ...
"""


def mine(folder: Path, helper: str, name: str = "helper.py") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(helper)
    (folder / "mine.py").write_text(FILE)
    return f"{folder / 'mine.py'}:Mine"


def answers(stored: sg.Run) -> set[int]:
    return set(stored.predictions["prediction"].tolist())


def test_an_edited_neighbour_of_a_file_is_other_code(tmp_path: Path) -> None:
    first = run(mine(tmp_path, "def answer(): return 0\n"), tmp_path / "runs")
    again = run(mine(tmp_path, "def answer(): return 0\n"), tmp_path / "runs")
    edited = run(mine(tmp_path, "def answer(): return 1\n"), tmp_path / "runs")
    assert again.path == first.path
    assert edited.path != first.path
    assert (answers(first), answers(edited)) == ({0}, {1})


def test_neighbours_of_neighbours_and_of_other_folders(tmp_path: Path) -> None:
    where = [mine(tmp_path / name, "from inner.part import answer\n") for name in "ab"]
    for number, name in enumerate("ab"):
        text = f"def answer(): return {number}\n"
        mine(tmp_path / name, text, "inner/part.py")
    stored = [run(text, tmp_path / "runs") for text in [*where, *where]]
    assert [answers(one) for one in stored] == [{0}, {1}, {0}, {1}]
    assert stored[0].path == stored[2].path
    mine(tmp_path / "a", "def answer(): return 1\n", "inner/part.py")
    assert answers(run(where[0], tmp_path / "runs")) == {1}


def notebook(cells: str, space: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names of a notebook after its cells."""
    space = {"__name__": "__main__", "torch": torch, "np": np} if space is None else space
    exec(compile(cells, "<cell>", "exec"), space)
    return space


CELL = """
class Mine:
    def __init__(self, spec, source, seed, device):
        self.classes = spec.classes
    @torch.no_grad()
    def predict(self, x):
        chosen = [answer(row) for row in x]
        return torch.eye(self.classes)[torch.tensor(chosen)]
    def learn(self, batch, predicted): ...
    def state_dict(self): return {}
    def load_state_dict(self, state): ...
"""
BEFORE = "WHICH = 0\ndef inner(): return WHICH\ndef answer(row): return inner()\n"


@pytest.mark.parametrize(
    "cell",
    [
        "def answer(row): return 1",
        "def inner(): return 1",
        "WHICH = 1",
        "from functools import partial\ndef given(row, value): return value\n"
        "answer = partial(given, value=1)",
        "def made(value): return lambda row: value\nanswer = made(1)",
        "class Answer:\n    def __init__(self): self.value = 1\n"
        "    def __call__(self, row): return self.value\nanswer = Answer()",
    ],
)
def test_a_changed_cell_of_a_notebook_is_other_code(cell: str, tmp_path: Path) -> None:
    space = notebook(BEFORE + CELL)
    first = run(space["Mine"], tmp_path)
    said: list[str] = []
    assert run(notebook(BEFORE + CELL)["Mine"], tmp_path, said).path == first.path
    assert "complete already (made 20" in said[0]
    notebook("unused = 1", space)
    assert run(space["Mine"], tmp_path).path == first.path
    notebook(cell, space)
    changed = run(space["Mine"], tmp_path)
    assert changed.path != first.path
    assert (answers(first), answers(changed)) == ({0}, {1})


def test_code_that_cannot_be_known_is_not_reused(tmp_path: Path) -> None:
    space = notebook("answer = lambda row: eval('0')\n" + CELL)
    said: list[str] = []
    first = run(space["Mine"], tmp_path, said)
    (first.path / "mark").touch()
    second = run(space["Mine"], tmp_path, said)
    (line,) = (line for line in said if "run again" in line)
    assert "uses eval, so what it uses cannot be known" in line
    assert second.path == first.path
    assert not (second.path / "mark").exists()
    assert [path.name for path in (tmp_path / "replaced").glob("*/mark")] == ["mark"]


def test_a_file_that_imports_by_a_computed_name_is_not_reused(tmp_path: Path) -> None:
    text = mine(tmp_path, "import importlib\nname = 'math'\nimportlib.import_module(name)\n"
                "def answer(): return 0\n")  # fmt: skip
    said: list[str] = []
    run(text, tmp_path / "runs")
    run(text, tmp_path / "runs", said)
    assert "'helper.py' loads code by name in line 3" in said[0]


@pytest.mark.parametrize(
    ("cell", "where"),
    [
        ("def answer(row): return int(open('value.txt').read())", "open in 'answer'"),
        ("import os\ndef answer(row): return int(os.environ['VALUE'])", "environ in 'answer'"),
        ("def answer(row): return 0", ""),
    ],
)
def test_a_learner_that_reads_files_is_announced_when_its_run_is_used(
    cell: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VALUE", "1")
    (tmp_path / "value.txt").write_text("1")
    said: list[str] = []
    for _ in range(2):
        run(notebook(f"{cell}\n{CELL}")["Mine"], tmp_path, said)
    assert "complete already" in said[-1]
    assert said[-1].endswith("nothing to do.") == (not where)
    assert where in said[-1]


def test_a_file_that_reads_files_is_announced_with_its_line(tmp_path: Path) -> None:
    helper = "import os\n\ndef answer(): return len(os.getenv('PATH', '')) * 0\n"
    said: list[str] = []
    for _ in range(2):
        run(mine(tmp_path, helper), tmp_path / "runs", said)
    assert "Mine reads a file or the environment (getenv in line 3 of 'helper.py')" in said[-1]


def test_force_runs_again_and_keeps_the_stored_run(tmp_path: Path) -> None:
    said: list[str] = []
    first = run("majority", tmp_path)
    for number in (1, 2):
        (first.path / "mark").touch()
        again = run("majority", tmp_path, said, force=True)
        assert again.path == first.path
        assert again.done
        assert not (first.path / "mark").exists()
        assert (tmp_path / "replaced" / f"{first.path.name}.{number}" / "mark").exists()
    assert all("is run again; the stored run is now" in line for line in said)
    assert len(sg.find_runs([tmp_path])) == 1


def test_a_module_that_was_edited_after_its_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    mine(tmp_path, "def answer(): return 0\n", "edited_helper.py")
    (tmp_path / "edited_mine.py").write_text(FILE.replace("from helper", "from edited_helper"))
    module = importlib.import_module("edited_mine")
    sg.learner(module.Mine)
    (tmp_path / "edited_helper.py").write_text("def answer(): return 1\n")
    with pytest.raises(StreamgaugeError, match=r"edited_helper.py' was changed after Python"):
        sg.learner(module.Mine)
    importlib.reload(importlib.import_module("edited_helper"))
    importlib.reload(module)
    assert answers(run(module.Mine, tmp_path / "runs")) == {1}
