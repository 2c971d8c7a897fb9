"""Eight wrong results that a new user got without a word, each as the user meets it: by commands,
files and names that every version has, so that these tests run on earlier code, too."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg


def write_table(path: Path, x: np.ndarray, y: Any) -> None:
    names = [f"f{number}" for number in range(x.shape[1])]
    rows = [f"{','.join(map(repr, row))},{label}" for row, label in zip(x.tolist(), y, strict=True)]
    path.write_text("\n".join([",".join([*names, "label"]), *rows]))


def run_table(call: Any, *words: str) -> dict[str, sg.Run]:
    """Run learners on mine.csv: the complete runs by learner."""
    call("run", "--stream", "tabular", "--stream.path", "mine.csv", *words)
    found = [run for run in sg.find_runs([Path("runs")]) if run.done]
    return {run.header["config"]["learner"]["name"]: run for run in found}


def accuracy(run: sg.Run) -> float:
    rows = run.predictions
    return float((rows["label"] == rows["prediction"]).mean())


# 1. Raw tables give chance level


def test_a_raw_table_is_learnt(call: Any, tmp_path: Path) -> None:
    """Columns of mean 50 and deviation 15; a network was below the class frequencies."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 600)
    x = rng.normal(size=(600, 6)) + 0.8 * y[:, None] * np.linspace(-1, 1, 6)
    write_table(tmp_path / "mine.csv", 15 * x + 50, y)
    runs = run_table(call, "--learner", "er", "--er.model", "mlp", "--learner", "blind")
    assert accuracy(runs["er"]) > accuracy(runs["blind"]) + 0.1


def test_columns_of_any_size_end_no_run(call: Any, tmp_path: Path) -> None:
    """Sizes as in CoverType, KDD99 and EEG (with its outliers): scores held a NaN, and the
    learners after it were not run."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 300)
    x = np.exp(rng.normal(size=(300, 8)) + y[:, None]) * 10.0 ** np.arange(-2, 6)
    x[::97, 3] = 7e8
    write_table(tmp_path / "mine.csv", x, y)
    runs = run_table(
        call, "--learner", "finetune", "--finetune.model", "mlp", "--learner", "majority"
    )
    assert set(runs) == {"finetune", "majority"}
    assert accuracy(runs["finetune"]) > accuracy(runs["majority"]) + 0.1


def test_text_and_missing_cells_are_inputs(call: Any, tmp_path: Path) -> None:
    """Columns of text were left out, and a missing cell ended the command."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 400)
    colour = np.array(["red", "blue", "green"])[y]
    noise = [f"{value:.2f}" if value < 1 else "" for value in rng.normal(size=400)]
    rows = [f"{a},{b},{c}" for a, b, c in zip(noise, colour, y, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(["size,colour,label", *rows]))
    runs = run_table(call, "--learner", "slda")
    assert accuracy(runs["slda"]) > 0.9


def test_samples_of_a_table_come_one_by_one(call: Any, tmp_path: Path) -> None:
    """With ten samples per step the last label of a sequence sorted in runs seemed worthless."""
    y = np.arange(120) // 5 % 4
    write_table(tmp_path / "mine.csv", np.arange(120.0)[:, None], y)
    (tmp_path / "newest.py").write_text(
        LEARNER.format(
            set_up="self.newest = 0", answer="self.newest", learn="self.newest = int(batch.y[-1])"
        )
    )
    runs = run_table(call, "--learner", "newest.py:Mine")
    assert accuracy(runs["Mine"]) > 0.75


# 2. Stale results

LEARNER = """
import numpy as np
import torch

class Mine:
    def __init__(self, spec, source, seed, device):
        self.classes = spec.classes
        {set_up}
    def predict(self, x):
        return torch.eye(self.classes)[torch.full((len(x),), {answer})]
    def learn(self, batch, predicted):
        {learn}
    def state_dict(self):
        return {{}}
    def load_state_dict(self, state):
        pass
"""
STREAM = """
import numpy as np
import streamgauge as sg
stream = sg.stream(np.zeros((40, 2), np.float32), np.arange(40) % 2, batch=5)
def answers(learner):
    run = sg.run(stream, learner, out="runs", device="cpu")
    return sorted(set(run.predictions["prediction"].tolist()))
"""


def python(program: str, folder: Path) -> list[str]:
    """The lines that a program prints in a folder, with the code under test."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_changed_helper_module_is_another_run(tmp_path: Path) -> None:
    learner = LEARNER.format(set_up="", answer="helper.answer()", learn="pass")
    (tmp_path / "mine.py").write_text("import helper\n" + learner)
    found = []
    for number in (0, 1):
        (tmp_path / "helper.py").write_text(f"def answer():\n    return {number}\n" + "\n" * number)
        found.append(python(STREAM + "import mine\nprint(answers(mine.Mine))", tmp_path)[-1])
    assert found == ["[0]", "[1]"]


def test_a_changed_helper_function_of_a_session_is_another_run(tmp_path: Path) -> None:
    cells = [
        "def answer():\n    return 0",
        LEARNER.format(set_up="", answer="answer()", learn="pass"),
        "print(answers(Mine))",
        "def answer():\n    return 1",
        "print(answers(Mine))",
    ]
    lines = python("\n".join([STREAM, *cells]), tmp_path)
    assert [line for line in lines if line.startswith("[")] == ["[0]", "[1]"]


# 3. State that `run` accepts and `resume` cannot read

STATEFUL = LEARNER.replace("return {{}}", "return {{'value': self.value}}").replace(
    "        pass", "        self.value = state['value']"
)


def test_a_state_that_cannot_be_read_ends_the_run_at_once(call: Any, tmp_path: Path) -> None:
    """A run of hours was stored with a checkpoint that no `resume` could read."""
    write_table(tmp_path / "mine.csv", np.arange(200.0)[:, None], np.arange(200) % 2)
    (tmp_path / "mine.py").write_text(
        "class Estimator:\n    pass\n"
        + STATEFUL.format(
            set_up="self.value = Estimator()", answer="0", learn="open('learnt', 'a').write('x')"
        )
    )
    words = ("run", "--stream", "tabular", "--stream.path", "mine.csv", "--learner", "mine.py:Mine")
    code, _, err = call(*words)
    assert code == 2
    assert "Estimator" in err
    assert len((tmp_path / "learnt").read_text()) < 20
    assert not list((tmp_path / "runs").glob("*/run.json"))


def test_arrays_without_dimensions_come_back_so(call: Any, tmp_path: Path) -> None:
    """The first command is stopped by Ctrl-C in its third step, the second goes on."""
    write_table(tmp_path / "mine.csv", np.arange(60.0)[:, None], np.arange(60) % 2)
    (tmp_path / "mine.py").write_text(
        STATEFUL.format(
            set_up="self.value = np.array(0.0)",
            answer="0",
            learn="self.value = self.value + np.array(1.0)[()]\n"
            "        open('shapes', 'a').write(f'{np.shape(self.value)} ')\n"
            "        if open('shapes').read().count('(') == 3:\n"
            "            raise KeyboardInterrupt\n"
            "        self.value = np.array(self.value)",
        )
    )
    words = ("run", "--stream", "tabular", "--stream.path", "mine.csv", "--stream.batch", "10",
             "--checkpoint", "0", "--learner", "mine.py:Mine")  # fmt: skip
    assert call(*words)[0] != 0
    assert call(*words)[0] == 0
    assert set((tmp_path / "shapes").read_text().split()) == {"()"}


# 4. Label ids become classes


@pytest.mark.parametrize("labels", [(94103, 10001, 60601), (-1, 1), (7, 3)])
def test_label_ids_are_as_many_classes_as_there_are(
    labels: tuple[int, ...], call: Any, tmp_path: Path
) -> None:
    """Three zip codes made 94,104 classes, and labels -1 and 1 were refused."""
    given = [labels[number % len(labels)] for number in range(60)]
    assert sg.stream(np.zeros((60, 1)), np.array(given)).spec.classes == len(labels)
    write_table(tmp_path / "mine.csv", np.arange(60.0)[:, None], given)
    runs = run_table(call, "--learner", "majority")
    stream = runs["majority"].header["stream"]
    assert stream["classes"] == len(labels)
    names = stream["class_names"]
    shown = [int(names[code]) for code in runs["majority"].predictions["label"]]
    assert shown == given


# 5. Vocabularies that never meet


@pytest.mark.parametrize(
    ("labels", "predictions"), [(("OK", "BAD"), ("ok", "bad")), (("cat", "dog"), ("0", "1"))]
)
def test_vocabularies_that_never_meet_are_shown(
    labels: tuple[str, ...], predictions: tuple[str, ...], call: Any, tmp_path: Path
) -> None:
    """Codes against names, and upper against lower case, were 0 % right."""
    rng = np.random.default_rng(0)
    rows = [f"{labels[y]},{predictions[y]}" for y in rng.integers(0, 2, 400)]
    (tmp_path / "log.csv").write_text("\n".join(["label,prediction", *rows]))
    code, _, err = call("audit", "log.csv")
    assert code == 2
    assert all(word in err for word in (*labels, *predictions))


# 6. FLOPs of what is not torch are unknown


def test_flops_that_cannot_be_counted_are_unknown(call: Any, tmp_path: Path) -> None:
    """A learner in NumPy or river had 0 FLOPs, and was on the Pareto front with them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100)
    write_table(tmp_path / "mine.csv", rng.normal(size=(100, 3)) + y[:, None], y)
    (tmp_path / "mine.py").write_text(
        LEARNER.format(
            set_up="self.sums = np.zeros((2, 3))",
            answer="int(self.sums.sum() > 0)",
            learn="np.add.at(self.sums, batch.y.numpy(), batch.x.numpy())",
        )
    )
    words = ("--learner", "mine.py:Mine", "--learner", "er", "--er.model", "mlp")
    runs = run_table(call, *words)
    assert np.isnan(sg.score(runs["Mine"]).get("training_flops", np.nan))
    assert sg.score(runs["er"])["training_flops"] > 0


# 7. Times on a busy machine


class LoadedClock:
    """The processor's time of this process, longer by a load: 1, and from some reading on 8 at
    times that no two jobs share."""

    def __init__(self, idle_readings: int) -> None:
        self.left, self.shown, self.last = idle_readings, 0.0, time.process_time()
        self.load = self._loads()

    def _loads(self) -> Iterator[float]:
        while True:
            self.left -= 1
            yield 1.0 if self.left > 0 else 8.0

    def __call__(self) -> float:
        now = time.process_time()
        self.shown += (now - self.last) * next(self.load)
        self.last = now
        return self.shown


@pytest.mark.parametrize("idle_readings", [10, 20])
def test_er_costs_as_much_as_er(
    idle_readings: int, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cost` gave er 0.19 and 1.6 of er where other programs began or ended meanwhile."""
    monkeypatch.setattr(time, "perf_counter", LoadedClock(idle_readings))
    words = ("cost", "er", "--er.model", "mlp", "--er.memory", "50", "--er.lr", "0.1", "--json")
    code, out, _ = call(*words)
    assert code == 0
    (found,) = json.loads(out)["costs"]
    assert found.get("busy") or 0.8 < found["relative_seconds"] < 1.25


# 8. Drift of a table and of the same table as a stream


def test_a_table_and_its_stream_have_one_answer(call: Any, tmp_path: Path) -> None:
    """Inputs and labels turn over in the middle, class frequencies do not: of the file alone no
    shift was seen, since no column was looked at."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 1))
    y = (x[:, 0] > 0) ^ (np.arange(2000) >= 1000)
    write_table(tmp_path / "mine.csv", x, y.astype(int))
    answers = []
    for words in (["mine.csv"], ["--stream", "tabular", "--stream.path", "mine.csv"]):
        code, out, _ = call("data", "shift", *words, "--json")
        assert code == 0
        answers.append(json.loads(out))
    assert answers[0]["shift"] is answers[1]["shift"] is True
    assert answers[0] == answers[1]
