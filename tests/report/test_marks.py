"""Marks of curves along the stream: known changes are marked where they are, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from browser import Browser, needs_browser
from streamgauge import catalogue
from streamgauge.record import Run
from streamgauge.report import leaderboard
from streamgauge.report.figures import figures
from streamgauge.report.page import report_page

STEPS, BATCH, CLASSES = 400, 5, 4
NEW_INPUTS, NEW_LABELS = 800, 1400  # samples at which inputs, and labels, change


class Means:
    """Nearest class mean that reports drift at two steps."""

    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
        import torch

        self.sums = torch.zeros(spec.classes, *spec.input_shape)
        self.count = torch.zeros(spec.classes)
        self.steps = 0

    def predict(self, x: Any) -> Any:
        import torch

        means = self.sums / self.count.clamp(min=1)[:, None]
        return -torch.cdist(x.float(), means)

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        self.steps += 1
        for x, y in zip(batch.x, batch.y.tolist(), strict=True):
            self.sums[y] += x
            self.count[y] += 1
        return {"drift": float(self.steps in (170, 300))}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "count": self.count, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def one_run(out: Path, changing: bool) -> Run:
    rng = np.random.default_rng(0)
    count = STEPS * BATCH
    label = rng.integers(0, CLASSES, count)
    at = np.arange(count)
    seen = label.copy()
    if changing:
        label[NEW_LABELS:] = rng.choice(CLASSES, count - NEW_LABELS, p=[0.7, 0.1, 0.1, 0.1])
        seen = np.where(at < NEW_INPUTS, label, (label + 1) % CLASSES)
    x = (4 * np.eye(CLASSES)[seen] + rng.normal(size=(count, CLASSES))).astype(np.float32)
    stream = sg.stream(x, label, batch=BATCH, classes=CLASSES)
    return sg.run(stream, Means, out=out, log=lambda _: None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return one_run(tmp_path_factory.mktemp("marks"), changing=True)


def test_changes_are_marked_where_they_are_and_say_where_they_come_from(run: Run) -> None:
    (board,) = leaderboard([run])
    found = figures(board).marks
    at = {mark.kind: mark for mark in found}
    assert abs(at["accuracy"].position - NEW_INPUTS) < 0.05 * STEPS * BATCH
    assert abs(at["labels"].position - NEW_LABELS) < 0.05 * STEPS * BATCH
    # What is learnt in a step is known to the answers from the next step on.
    reported = [(m.position, m.key) for m in found if m.kind == "reported"]
    assert reported == [(170 * BATCH, "Means"), (300 * BATCH, "Means")]
    assert [m.position for m in found] == sorted(m.position for m in found)
    text = report_page([run]).render()
    for words in ("found in the labels", "reported by the learner", "labels change", "at 1 %"):
        assert words in text


def test_a_stream_that_does_not_change_has_no_found_mark(tmp_path: Path) -> None:
    (board,) = leaderboard([one_run(tmp_path, changing=False)])
    assert {mark.kind for mark in figures(board).marks} == {"reported"}


def test_tasks_are_marked_and_changes_of_their_labels_are_not_marked_twice(tmp_path: Path) -> None:
    stream = catalogue.stream("blobs", tasks=4)
    run = sg.run(stream, catalogue.learner("majority"), out=tmp_path, log=lambda _: None)
    (board,) = leaderboard([run])
    found = figures(board).marks
    task = np.asarray(run.predictions["task"])
    assert [m.position for m in found] == (np.flatnonzero(np.diff(task)) + 1).tolist()
    assert [m.text for m in found] == ["task 2", "task 3", "task 4"]


@pytest.mark.browser
@needs_browser
def test_marks_are_drawn_in_the_windowed_curves(run: Run, tmp_path: Path) -> None:
    file = report_page([run]).write(tmp_path / "report.html")
    figure = next(
        f for f in json.loads(re.search(r'id="figures">(.*?)</script>', file.read_text())[1])  # type: ignore[index]
        if f["moving"] and f["moving"]["marks"]
    )  # fmt: skip
    browser = Browser()
    try:
        browser.open(file)
        plot = (
            "[...document.querySelectorAll('.plot')].find((p) => p.layout && "
            "p.layout.shapes.some((s) => s.name === 'labels'))"
        )
        browser.wait(f"{plot} !== undefined")
        shapes = browser.run(f"{plot}.layout.shapes.map((s) => [s.x0, s.name])")
        marks = figure["moving"]["marks"]
        assert shapes == [[x, kind] for x, _, kind, _ in marks if kind != "reported"]
        triangles = browser.run(
            f"{plot}.data.filter((t) => t.meta.role === 'reported').map((t) => t.x)"
        )
        assert triangles == [[170 * BATCH, 300 * BATCH]]
        texts = browser.run(f"{plot}.layout.annotations.map((a) => a.text)")
        assert texts[:2] == ["accuracy falls", "labels change"]
        assert browser.errors == []
    finally:
        browser.close()
