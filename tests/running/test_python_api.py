"""`sg.run` in Python: progress in notebooks, and what it says of arguments of the wrong kind."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import small_stream
from streamgauge.errors import StreamgaugeError
from streamgauge.running import progress
from streamgauge.running.progress import progress_line


class Mine:
    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None: ...
    def predict(self, x: Any) -> Any: ...
    def learn(self, batch: Any, predicted: Any) -> Any: ...
    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> None: ...


class Estimator:
    def partial_fit(self, x: Any, y: Any) -> None: ...
    def predict(self, x: Any) -> None: ...


class Forest:
    def fit(self, x: Any, y: Any) -> None: ...
    def predict(self, x: Any) -> None: ...


class Tree:
    def learn_one(self, x: Any, y: Any) -> None: ...
    def predict_one(self, x: Any) -> None: ...


def train(batch: Any) -> None: ...


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (torch.nn.Linear(3, 2), "torch module Linear is a network, not a learner: write a class"),
        (torch.nn.Linear, "torch module Linear is a network"),
        (train, "The function train is not a learner: a learner is a class with"),
        (Mine(None, None, 0, None), r"not an instance of it: sg\.run\(stream, Mine\)"),
        (
            Estimator(),
            "Estimator is a model with partial_fit and predict, not a learner: let it extend",
        ),
        (
            Forest(),
            "Forest is a model with fit and predict, which learns once and not from a stream",
        ),
        (
            Tree(),
            r"let it extend river\.base\.Classifier, or write a class .*learn calls learn_one",
        ),
        (dict, "The class dict is not a learner: it has no predict, learn"),
        (3, "A int is not a learner: give a name"),
        (["er", "finetune"], r"one learner per run: \[sg\.run\(stream, learner\) for"),
    ],
)
def test_what_is_no_learner_is_answered_by_a_sentence(learner: Any, words: str) -> None:
    with pytest.raises(StreamgaugeError, match=words):
        sg.run(small_stream(), learner)
    with pytest.raises(StreamgaugeError, match=words):
        sg.learner(learner)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ((np.zeros((9, 2)), np.zeros(9, int)), r"A tuple is not a stream: .*sg\.stream\(x, y\)"),
        ("albums", r"sg\.run\(sg\.stream\('albums'\), learner\)"),
        (np.zeros((9, 2)), r"A ndarray is not a stream: write sg\.run\(sg\.stream\(data\)"),
        (sg.ArraySource(np.zeros((9, 2)), np.zeros(9, int)), r"sg\.arrange\(source"),
    ],
)
def test_what_is_no_stream_is_answered_by_a_sentence(stream: Any, words: str) -> None:
    with pytest.raises(StreamgaugeError, match=words):
        sg.run(stream, "er")


def test_swapped_arguments() -> None:
    with pytest.raises(StreamgaugeError, match="The arguments are swapped"):
        sg.run("er", small_stream())  # type: ignore[arg-type]
    with pytest.raises(StreamgaugeError, match="A stream is not a learner"):
        sg.learner(small_stream())  # type: ignore[arg-type]
    with pytest.raises(StreamgaugeError, match="The arguments are swapped"):
        sg.run("er", "albums")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"lr": 0.1}, r"no keyword 'lr' here; .* sg\.learner\(NAME, lr=\.\.\.\)"),
        ({"sed": 1}, "did you mean 'seed'"),
        ({"protocol": {"shifts": [10]}}, r"must be sg\.Protocol\(\.\.\.\), .*not a dict"),
    ],
)
def test_wrong_keywords_are_answered_by_a_sentence(keywords: Any, words: str) -> None:
    with pytest.raises(StreamgaugeError, match=words):
        sg.run(small_stream(), "er", **keywords)


def test_a_column_that_is_not_there_lists_those_there_are(tmp_path: Path) -> None:
    run = sg.run(small_stream(), "majority", out=tmp_path, log=lambda _: None)
    with pytest.raises(KeyError, match="predicted; the columns are step, sample, label"):
        run.predictions["predicted"]
    assert run.predictions.get("predicted") is None
    assert "predicted" not in run.predictions


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(line: Any, count: int) -> None:
    for step in range(1, count + 1):
        line(SimpleNamespace(step=step, stream=range(count), right=step, asked=2 * step))


def test_progress_updates_one_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    screen = Screen()
    steps(progress_line("er, seed 0", out=screen), 4)
    shown = screen.getvalue().split("\r")[1:]
    assert len(shown) == 4
    assert shown[1].startswith("er, seed 0: step 2 of 4, online 50.0 %,")
    assert shown[-1].startswith("er, seed 0: 4 steps in ")
    assert screen.getvalue().count("\n") == 1


def test_progress_in_a_notebook_but_not_in_a_file_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert progress_line("er", out=io.StringIO()) is None
    file = io.StringIO()
    steps(progress_line("er", show=True, out=file), 1000)
    assert 10 <= len(file.getvalue().splitlines()) <= 11
    assert "\r" not in file.getvalue()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(
        __import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell)
    )
    cell = io.StringIO()
    steps(progress_line("er", out=cell), 3)
    assert cell.getvalue().startswith("\r")
    assert progress_line("er", show=False, out=cell) is None


def test_run_shows_progress_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sg.run(small_stream(), "majority", out=tmp_path, progress=True)
    assert "majority, seed 0: 30 steps in" in capsys.readouterr().err
