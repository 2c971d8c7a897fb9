"""The report: its numbers against slow and obvious ones, and its page in a browser."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import re
import shutil
import statistics
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import streamgauge as sg
from browser import Browser, needs_browser
from helpers import rewrite
from streamgauge import catalogue, metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.files import size_and_checksum, write_sealed
from streamgauge.metrics import leaderboard as metrics_board
from streamgauge.metrics import pareto_front, score
from streamgauge.metrics.log import known_in_loop
from streamgauge.pages.figures import POINTS
from streamgauge.record import Run
from streamgauge.record.diff import differences
from streamgauge.report import failures as failures_module
from streamgauge.report import leaderboard, plot, write_report
from streamgauge.report.blind import LEVEL, blind_level, choose
from streamgauge.report.compute import compute
from streamgauge.report.figures import figures, mean_lines, verdict_figure
from streamgauge.report.leaderboard import TIMING, ties
from streamgauge.report.page import natural, report_page, run_blocks, summary
from streamgauge.report.terminal import (
    compute_text,
    differences_text,
    leaderboard_text,
    scores_text,
)
from streamgauge.report.watching import EVERY, PARTS, Watcher, _RunProgress, blind_hits, sparkline
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import run_all
from streamgauge.settings import as_plain

SHIFT = 25  # no whole number of steps: the loop rounds it up


class Guess:
    """Answers at random but repeatably, and logs a loss: a learner without a network."""

    needs = frozenset({"horizon"})

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.classes, self.seed, self.count = spec.classes, seed, 0

    def tell(self, horizon: int) -> None:
        pass

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        rng = np.random.default_rng([self.seed, self.count])
        return torch.from_numpy(rng.random((len(x), self.classes)))

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        self.count += 1
        return {"loss": 1 / self.count}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    """Two seeds each of three learners on a stream without tasks."""
    made = []
    for seed in (0, 1):
        stream = sg.stream("albums", length=1500, size=0, held_out=0.1, seed=seed)
        protocol = sg.Protocol(shifts=(SHIFT,))
        for learner in (catalogue.learner("blind"), catalogue.learner("majority"), Guess):
            run = sg.run(
                stream, learner, protocol=protocol, seed=seed, out=folder / "albums", log=_quiet
            )
            made.append(run)
    return made


@pytest.fixture(scope="module")
def task_runs(folder: Path) -> list[Run]:
    experiment = Experiment("blobs", ("blind", "majority"), 2, {"stream.tasks": 4})
    return list(run_all(experiment, out=folder / "tasks", log=_quiet))


def _quiet(text: str) -> None:
    pass


def _interrupted(stream: Any, learner: str, out: Path, seed: int, at: int) -> Run:
    def stop(loop: Any) -> None:
        if loop.step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.run(stream, learner, seed=seed, out=out, checkpoint=0, progress=stop, log=_quiet)
    (path,) = out.glob(f"*-{learner}-s{seed}-*")
    return Run(path)


def _accuracy(run: Run, shift: int) -> float:
    table = run.predictions
    rows = zip(table["shift"], table["label"], table["prediction"], strict=True)
    right = [label == answer for s, label, answer in rows if s == shift]
    return sum(right) / len(right)


def _written(out: Path, name: str, seed: int, right: Any, flops: float, steps: int) -> Run:
    """A run of a learner whose answers and FLOPs are given."""

    class Told(Guess):
        needs = frozenset()

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            wanted = label[self.asked : self.asked + len(x)]
            good = right[self.asked : self.asked + len(x)]
            self.asked += len(x)
            answer = np.where(good, wanted, (wanted + 1) % self.classes)
            return torch.nn.functional.one_hot(torch.from_numpy(answer), self.classes).float()

        def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
            torch.ones(int(flops) // 2, 1) @ torch.ones(1, 1)
            return {}

    Told.asked = 0  # type: ignore[attr-defined]
    label = np.random.default_rng(7).integers(0, 3, steps * 5)
    stream = sg.stream(np.zeros((steps * 5, 2), np.float32), label, batch=5, classes=3)
    # The answers are in the closure, so the code would differ between seeds.
    recipe = dataclasses.replace(catalogue.learner(Told), name=name, code="told", unknown="")
    return sg.run(stream, recipe, seed=seed, out=out, log=_quiet)


def test_every_run_is_scored_once(
    task_runs: list[Run], call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores take most of a report's time: table, ties, page and compute share them."""
    room = sys.modules["streamgauge.report.leaderboard"]
    scored = []

    def counted(run: Run) -> dict[str, float]:
        scored.append(run.path)
        return score(run)

    monkeypatch.setattr(room, "score", counted)
    code, _, _ = call("report", *(str(run.path) for run in task_runs))
    assert code == 0
    assert sorted(scored) == sorted(run.path for run in task_runs)
    (board,) = leaderboard(task_runs)
    for row in board.rows:
        assert list(row.each) == [score(run) for run in row.runs]


def test_who_cannot_be_told_apart_from_the_best_is_marked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = []
    for seed in range(3):
        luck = rng.random(600)
        for name, share in (("good", 0.8), ("equal", 0.79), ("bad", 0.5)):
            mine = rng.random(600) if name == "equal" else luck
            made.append(_written(tmp_path, name, seed, mine < share, 20, 120))
    # One seed more of one of them: pairs are made of what all have.
    made.append(_written(tmp_path, "good", 3, rng.random(600) < 0.8, 20, 120))
    (board,) = leaderboard(made)
    assert board.ties.names == {"good", "equal"}
    assert "3 seeds and 10 stretches" in board.ties.sentence
    # By hand: the same samples, the same blocks.
    results = {
        row.learner: [
            run.predictions["label"] == run.predictions["prediction"] for run in row.runs[:3]
        ]
        for row in board.rows
    }
    wanted = metrics_board(results, 10)
    assert {line.name for line in wanted if line.rank == 1} == {"good", "equal"}
    text, page = leaderboard_text(made), report_page(made).render()
    assert len(re.findall(r"(?m)^(?:good|equal) +=", text)) == 2
    assert page.count(f'title="cannot be told apart from {board.ties.best}"') == 2
    assert f"= cannot be told apart from {board.ties.best}, the best" in text
    assert f"= cannot be told apart from {board.ties.best}, the best" in page
    (alone,) = leaderboard([run for run in made if run.learner != "equal"])
    assert not alone.ties.names
    assert alone.ties.sentence.startswith("good differs from every other learner")
    (one,) = leaderboard(made[:3])
    assert "1 seed and 10 stretches" in one.ties.sentence
    assert "other seeds may differ" in one.ties.sentence
    assert leaderboard(made[:1])[0].ties.sentence == ""


def _board_of(results: dict[str, list[float]]) -> Any:
    """What ties are made of, without runs: one score a seed."""
    rows = []
    for name, values in sorted(results.items(), key=lambda item: -statistics.mean(item[1])):
        runs = [
            SimpleNamespace(seed=s, stream={"data_hash": "", "order_hash": ""})
            for s in range(len(values))
        ]
        rows.append(
            SimpleNamespace(
                learner=name,
                runs=runs,
                each=[{"retained_accuracy": value} for value in values],
                scores={"retained_accuracy": metrics.spread(values)},
            )
        )
    return ties(rows, "retained_accuracy", "retained")


def test_two_seeds_that_differ_are_not_called_equal() -> None:
    """89 and 62 % are no tie, though one difference between seeds is no proof either."""
    found = _board_of({"er": [0.886, 0.894], "finetune": [0.593, 0.647]})
    assert found.names == frozenset()
    assert found.sentence == (
        "? Whether er differs from finetune is not known: two seeds are too few (by retained, "
        "paired over 2 seeds, all pairs, Holm's correction, 5 %); run three or more."
    )
    # The same number in both is a tie for all that is known, and what is clear stays clear.
    mixed = {"ncm": [1.0, 1.0], "er": [1.0, 1.0], "x": [0.9, 0.7], "finetune": [0.2, 0.2001]}
    found = _board_of(mixed)
    assert found.names == {"ncm", "er"}
    assert found.sentence.startswith("= cannot be told apart from ncm, the best (by retained")
    assert found.sentence.endswith(
        "differs from x is not known: two seeds are too few; run three or more. Without a mark: "
        "differs from ncm."
    )
    assert [found.mark(name) for name in mixed] == ["=", "=", "?", ""]
    many = {"best": [0.9, 0.8], **{f"l{i}": [0.3 + i / 50, 0.31] for i in range(6)}}
    assert "best differs from 6 of the 6 others is not known" in _board_of(many).sentence
    clear = _board_of({"er": [0.900, 0.910], "finetune": [0.300, 0.310]})
    assert clear.sentence.startswith("er differs from every other learner")
    three = _board_of({"er": [0.9, 0.8, 0.85], "mir": [0.91, 0.79, 0.84]})
    assert three.names == {"er", "mir"}


def test_what_differs_alone_but_not_after_correction_is_not_called_equal() -> None:
    rng = np.random.default_rng(0)
    pair = {"er": [0.90, 0.91, 0.92], "mir": [0.85, 0.83, 0.86]}
    alone = metrics.compare(pair["er"], pair["mir"], 1)
    assert alone.p < 0.05
    others = {f"l{n}": list(0.8 + 0.08 * rng.random(3)) for n in range(5)}
    found = _board_of({**pair, **others})
    assert found.mark("mir") == "?"
    assert "not known: this is too little" in found.sentence
    assert found.sentence.count("run more seeds.") == 1


def test_a_difference_that_may_be_large_is_not_called_equal() -> None:
    wide = _board_of({"er": [0.90, 0.50, 0.70], "mir": [0.70, 0.60, 0.60]})
    assert wide.mark("mir") == "?"
    narrow = _board_of({"er": [0.90, 0.50, 0.70], "mir": [0.90, 0.49, 0.70]})
    assert narrow.mark("mir") == "="
    assert "a difference above 5 points is excluded" in narrow.sentence


def test_whiskers_of_the_verdict_end_at_100_as_in_the_table(tmp_path: Path) -> None:
    made = [
        _written(tmp_path, "er", seed, np.arange(600) < right, 20, 120)
        for seed, right in ((0, 600), (1, 540))
    ]
    (board,) = leaderboard(made)
    drawn = verdict_figure(board, None)
    assert drawn is not None
    (trace,) = drawn.data
    assert trace["x"][0] == 95
    assert trace["error_x"]["array"][0] == 5
    assert trace["error_x"]["arrayminus"][0] == pytest.approx(12.706 * 5, abs=0.01)


def test_scores_without_samples_need_seeds_to_be_compared(task_runs: list[Run]) -> None:
    (board,) = leaderboard(task_runs)
    assert "paired over 2 seeds, all pairs" in board.ties.sentence
    (single,) = leaderboard([run for run in task_runs if run.seed == 0])
    assert single.ties.sentence.startswith("? By average over tasks one seed cannot tell which")
    assert sorted(map(single.ties.mark, ("blind", "majority"))) == ["", "?"]
    (apart,) = leaderboard([r for r in task_runs if r.seed == (r.learner == "blind")])
    assert "share no seed" in apart.ties.sentence


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8))
def test_the_pareto_front_by_its_definition(points: list[tuple[int, int]]) -> None:
    found = pareto_front([c for c, _ in points], [v for _, v in points])
    for (cost, value), on in zip(points, found, strict=True):
        worse = [(c, v) for c, v in points if c <= cost and v >= value and (c, v) != (cost, value)]
        assert on == (not worse)


def test_the_front_leaves_out_what_is_unknown() -> None:
    assert pareto_front([1, np.nan, 2], [0.5, 0.9, np.nan]).tolist() == [True, False, False]


def test_accuracy_over_compute(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    made = [
        _written(tmp_path, name, seed, rng.random(300) < share, flops, 60)
        for seed in (0, 1)
        for name, share, flops in (("cheap", 0.5, 20), ("dear", 0.9, 60), ("waste", 0.4, 80))
    ]
    (board,) = leaderboard(made)
    found = compute(board)
    assert found is not None
    assert [(p.learner, p.flops.mean, p.front) for p in found.points] == [
        ("cheap", 60 * 20, True), ("dear", 60 * 60, True), ("waste", 60 * 80, False)
    ]  # fmt: skip
    assert found.reference == ""
    assert all(np.isnan(p.relative) for p in found.points)
    assert sg.score(made[0])["training_flops"] == 1200
    figure, over_time = figures(board).cost
    assert figure.title == "Accuracy over compute"
    assert over_time.title == "Accuracy over time"
    front, *points = figure.data
    assert (front["x"], front["mode"]) == ([1200.0, 3600.0], "lines")
    assert [p["meta"]["hollow"] for p in points] == [False, False, True]
    assert points[1]["y"] == [
        pytest.approx(100 * np.mean([_accuracy(r, 0) for r in made[1::3]]), 1e-4)
    ]
    text = compute_text(leaderboard(made))
    assert re.search(r"dear +3\.6 k +\d+\.\d ± \d+\.\d +#{30}", text)
    assert re.search(r"waste +4\.8 k .* -+$", text, re.MULTILINE)
    # Relative to ER, and what is missing is named.
    er = {**made[0].header["config"]["learner"], "where": "er"}
    for run in made[::3]:
        _rewrite(run, lambda header: header["config"]["learner"].update(er, name="er"))
    for run in made[2::3]:
        _forget_flops(run)
    again = [Run(run.path) for run in made]
    (board,) = leaderboard(again)
    found = compute(board)
    assert found is not None
    assert [p.relative for p in found.points] == [1, 3]
    assert list(found.missing) == ["waste"]
    assert re.search(r"FLOPs unknown, .* not shown .*: waste \([\d.]+ s\)\.", found.sentence)
    assert found.sentence in compute_text(leaderboard(again))
    assert found.sentence in figures(board).cost[0].caption
    assert "×" in figures(board).cost[0].data[-1]["hovertemplate"]


def test_a_wide_range_of_compute_is_drawn_on_a_logarithmic_axis(tmp_path: Path) -> None:
    right = np.ones(50, bool)
    made = [_written(tmp_path, n, 0, right, f, 10) for n, f in (("a", 0), ("b", 2), ("c", 2000))]
    (board,) = leaderboard(made)
    figure = figures(board).cost[0]
    assert figure.layout["xaxis"]["type"] == "log"
    assert {t["name"] for t in figure.data} == {"b", "c"}
    assert re.search(r"not shown \(seconds of learning per run\): a \(", figure.caption)
    assert compute(leaderboard(made[:1])[0]) is None


def test_flops_that_nobody_counted_are_unknown_and_on_no_front(tmp_path: Path) -> None:
    """A learner in NumPy was on the Pareto front with 0 FLOPs."""
    stream = sg.stream(
        np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3, batch=5
    )
    names = (Arrays, "blind", "finetune", "ncm")
    made = [
        sg.run(stream, catalogue.learner(n, **({"model": "mlp"} if n == "finetune" else {})),
               out=tmp_path, log=_quiet)
        for n in names
    ]  # fmt: skip
    arrays, blind, torch_run, _ = made
    assert np.isnan(arrays.jobs["flops"]).all()
    assert (blind.jobs["flops"] == 0).all()  # as ever in its log
    assert (torch_run.jobs["flops"] > 0).all()
    assert "training_flops" not in sg.score(arrays) | sg.score(blind)
    assert sg.score(torch_run)["training_flops"] > 0
    text = scores_text(made)
    assert re.search(r"training_flops .*unknown.*unknown", text)
    assert re.search(r"learning_seconds +\d", text)
    assert compute_text(leaderboard(made)) == ""  # one point is no comparison
    other = sg.run(stream, catalogue.learner("er", model="mlp"), out=tmp_path, log=_quiet)
    found = compute(leaderboard([*made, other])[0])
    assert found is not None
    assert {p.learner for p in found.points} == {"finetune", "er"}
    assert set(found.missing) == {"Arrays", "blind", "ncm"}


class Arrays:
    """Class means in NumPy."""

    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
        self.sums, self.counts = np.zeros((spec.classes, 4)), np.ones(spec.classes)

    def predict(self, x: torch.Tensor) -> Any:
        return x.numpy() @ (self.sums / self.counts[:, None]).T

    def learn(self, batch: Any, predicted: Any) -> None:
        np.add.at(self.sums, batch.y.numpy(), batch.x.numpy())
        np.add.at(self.counts, batch.y.numpy(), 1)

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = state["sums"], state["counts"]


def _rewrite(run: Run, change: Any) -> None:
    file = run.path / "run.json"
    header = json.loads(file.read_text())
    change(header)
    write_sealed(file, header)


def _forget_flops(run: Run) -> None:
    """A log of a time at which FLOPs were not counted."""
    for file in (run.path / "log" / "jobs").glob("*.parquet"):
        table = pq.read_table(file)
        place = table.column_names.index("flops")
        nothing = pa.array(np.full(table.num_rows, np.nan), table.schema.field("flops").type)
        pq.write_table(table.set_column(place, table.schema.field("flops"), nothing), file)
        stored = {file.relative_to(run.path).as_posix(): size_and_checksum(file)}
        rewrite(run.path / "progress.json", lambda now, new=stored: now["files"].update(new))


# The leaderboard.


def test_means_and_deviations_are_those_of_the_seeds(runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    assert [c.title for c in board.columns] == ["online", "near future, 25 ahead", "retained"]
    assert {row.learner for row in board.rows} == {"blind", "majority", "Guess"}
    for row in board.rows:
        mine = [run for run in runs if run.learner == row.learner]
        for name, shift in (("online_accuracy", 0), (f"near_future_accuracy@{SHIFT}", SHIFT)):
            each = [_accuracy(run, shift) for run in mine]
            assert row.scores[name].mean == pytest.approx(statistics.mean(each))
            assert row.scores[name].deviation == pytest.approx(statistics.stdev(each))
            assert row.scores[name].seeds == 2
    assert [row.needs for row in board.rows if row.learner == "Guess"] == [("horizon",)]
    order = [row.scores[f"near_future_accuracy@{SHIFT}"].mean for row in board.rows]
    assert order == sorted(order, reverse=True)
    assert board.ordered_by == "near future, 25 ahead"


def test_a_run_given_twice_counts_once(runs: list[Run]) -> None:
    assert [row.seeds for row in leaderboard([*runs, *runs])[0].rows] == ["2", "2", "2"]


def test_a_learner_under_two_names_has_two_rows(tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((60, 1)), np.arange(60) % 3)
    recipes = [catalogue.learner("blind"), catalogue.learner("twin=blind")]
    made = [sg.run(stream, recipe, out=tmp_path, log=_quiet) for recipe in recipes]
    assert made[0].id == made[1].id
    (board,) = leaderboard([*made, *made])
    assert sorted((row.learner, row.seeds) for row in board.rows) == [("blind", "1"), ("twin", "1")]


def test_a_timing_that_is_not_the_ordinary_one_is_told(tmp_path: Path) -> None:
    ordinary = as_plain(sg.Protocol())
    assert {name: ordinary[name] for name in TIMING} == TIMING
    stream = sg.stream(np.zeros((60, 1)), np.arange(60) % 3)
    for protocol, told in (
        (sg.Protocol(), ""),
        (sg.Protocol(cost="4/3"), "protocol.cost=4/3"),
        (
            sg.Protocol(cost="2", costs=("a=1", "b=3"), busy="store", label_delay=1),
            "protocol.cost=2, protocol.costs=a=1,b=3, protocol.busy=store, protocol.label_delay=1",
        ),
    ):
        run = sg.run(stream, "majority", protocol=protocol, out=tmp_path, log=_quiet)
        for text in (leaderboard_text([run]), scores_text([run]), report_page([run]).render()):
            assert ("Timing is not" in text) == bool(told)
            assert not told or f"Timing is not the default: {told}." in text


def test_tasks_add_columns(task_runs: list[Run]) -> None:
    (board,) = leaderboard(task_runs)
    titles = ["online", "retained", "average over tasks", "forgetting"]
    assert [c.title for c in board.columns] == titles


def test_streams_and_protocols_have_boards_of_their_own(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    made = []
    for x in (np.zeros((60, 1)), np.ones((60, 1))):
        for protocol in (sg.Protocol(), sg.Protocol(shifts=(10,))):
            stream = sg.stream(x, labels)
            made.append(sg.run(stream, "majority", protocol=protocol, out=tmp_path, log=_quiet))
    boards = leaderboard(made)
    assert len(boards) == 4
    titles = {board.title for board in boards}
    assert len(titles) == 4
    assert all(re.fullmatch(r"arrays \(protocol.shifts=.*, data=\w{6}\)", t) for t in titles)


def test_settings_tell_rows_of_one_name_apart(tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((60, 1)), np.arange(60) % 3)
    made = [
        sg.run(stream, catalogue.learner("blind", window=w), out=tmp_path, log=_quiet)
        for w in (1, 5)
    ]
    (board,) = leaderboard(made)
    assert sorted(row.learner for row in board.rows) == ["blind (window=1)", "blind (window=5)"]


def test_incomplete_runs_are_shown_and_not_averaged(tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((200, 1)), np.arange(200) // 50)
    done = sg.run(stream, "blind", seed=0, out=tmp_path, log=_quiet)
    cut = _interrupted(stream, "blind", tmp_path, seed=1, at=7)
    lost = _interrupted(stream, "majority", tmp_path, seed=0, at=3)
    assert not cut.done
    (board,) = leaderboard([done, cut, lost])
    blind, majority = board.rows
    assert blind.seeds == "1 + 1 incomplete"
    assert blind.scores["online_accuracy"].mean == pytest.approx(_accuracy(done, 0))
    assert majority.seeds == "0 + 1 incomplete"
    assert not majority.scores
    text = leaderboard_text([done, cut, lost])
    assert f"blind, seed 1, is incomplete (stored up to step {cut.step} of 20)" in text
    assert re.search(r"^majority +– +0 \+ 1 incomplete", text, re.MULTILINE)
    page = report_page([done, cut, lost]).render()
    assert "is incomplete" in page
    assert "<small>+ 1 incomplete</small>" in page


def _again(run: Run, out: Path, **changes: Any) -> Run:
    """A copy of a run's folder whose header says something else."""
    path = out / run.path.name
    shutil.copytree(run.path, path)
    header = json.loads((path / "run.json").read_text())
    for dotted, value in changes.items():
        *groups, name = dotted.split("__")
        part = header
        for group in groups:
            part = part[group]
        part[name] = value
    write_sealed(path / "run.json", header)
    return Run(path)


def test_a_complete_run_is_not_hidden_by_a_copy_that_is_not(tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((200, 1)), np.arange(200) // 50)
    cut = _interrupted(stream, "blind", tmp_path / "cut", seed=0, at=7)
    done = sg.run(stream, "blind", out=tmp_path / "done", log=_quiet)
    assert cut.id == done.id
    for several in ([cut, done], [done, cut]):
        (board,) = leaderboard(several)
        assert [row.seeds for row in board.rows] == ["1"]


def test_other_engines_are_not_other_seeds(tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((60, 1)), np.arange(60) % 3)
    eager = sg.run(stream, "blind", out=tmp_path / "a", log=_quiet)
    others = [
        _again(eager, tmp_path / precision, id=precision,
               config__engine={"name": "graph", "precision": precision})
        for precision in ("fp16", "fp32")
    ]  # fmt: skip
    (board,) = leaderboard([eager, *others])
    assert [row.seeds for row in board.rows] == ["1", "1", "1"]
    assert {row.learner for row in board.rows} == {
        "blind (engine=eager)", "blind (engine=graph fp16)", "blind (engine=graph fp32)"
    }  # fmt: skip


def test_own_data_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """Data that were moved share a board; data that were changed where they lie do not."""

    def made(folder: str, seed: int, last: int) -> Run:
        file = tmp_path / folder / "t.csv"
        file.parent.mkdir(exist_ok=True)
        rows = [f"{n / 7},{n % 3}" for n in range(59)]
        file.write_text("\n".join(["x,label", *rows, f"{last},0"]) + "\n")
        stream = sg.stream("tabular", path=str(file), seed=seed)
        return sg.run(stream, "majority", seed=seed, out=tmp_path / "runs", log=_quiet)

    here, moved = made("here", 0, 1), made("there", 1, 1)
    (board,) = leaderboard([here, moved])
    assert board.title == "tabular"
    assert [row.seeds for row in board.rows] == ["2"]
    changed = made("here", 0, 2)
    boards = leaderboard([here, changed])
    assert [row.seeds for board in boards for row in board.rows] == ["1", "1"]
    assert {board.title for board in boards} == {
        f"tabular (data={run.stream['data_hash'][:6]})" for run in (here, changed)
    }
    titles = " ".join(board.title for board in leaderboard([here, made("there", 0, 3)]))
    for folder in ("here", "there"):
        assert f"path={tmp_path / folder / 't.csv'}" in titles


# Text.


def test_scores_of_an_incomplete_run_stand_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = sg.stream(np.zeros((200, 1)), np.arange(200) // 50)
    done = sg.run(stream, "blind", seed=0, out=tmp_path, log=_quiet)
    cut = _interrupted(stream, "blind", tmp_path, seed=1, at=7)
    lost = _interrupted(stream, "majority", tmp_path, seed=0, at=3)
    text = scores_text([done, cut, lost])
    titles, _, seeds, *_ = text.splitlines()[1:]
    assert re.split(r"  +", titles.strip()) == [
        "blind",
        "blind, incomplete",
        "majority, incomplete",
    ]
    told = [f"seed {run.seed}, step {run.step}" for run in (cut, lost)]
    assert re.split(r"  +", seeds) == ["seeds", "1 + 1 incomplete", *told]
    (line,) = [s for s in text.splitlines() if s.startswith("online_accuracy")]
    each = [f"{100 * _accuracy(run, 0):.1f}" for run in (done, cut, lost)]
    assert line.split()[1:] == each
    assert len(set(each)) == 3
    assert each[2] in scores_text([lost])


def test_intervals_of_the_table_are_students(task_runs: list[Run]) -> None:
    (board,) = leaderboard(task_runs)
    page = report_page(task_runs).render()
    for row in board.rows:
        value = row.scores["average_forgetting"]  # may be below 0, as no accuracy is
        half = 12.7062 * value.deviation / math.sqrt(2)
        low, high = max(-1, value.mean - half), min(1, value.mean + half)
        assert f"<small>[{100 * low:.1f}, {100 * high:.1f}]</small>" in page


def test_text_and_page_show_the_same_numbers(runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    text, page = leaderboard_text(runs), report_page(runs).render()
    for row in board.rows:
        for column in board.columns:
            value = row.scores[column.score]
            cell = f"{100 * value.mean:.1f} ± {100 * value.deviation:.1f}"
            assert cell in text
            assert re.search(rf"<td[^>]*>\s*{cell}[\s<]", page)


@pytest.mark.parametrize("width", [60, 90, 200])
def test_tables_fit_the_terminal(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = scores_text(runs)
    rows = [line for line in text.splitlines() if not line.startswith("Accuracies")]
    assert max(map(len, rows)) <= width
    for name in metrics.score(runs[0]):
        assert name in text
    for line in leaderboard_text(runs).splitlines():
        assert len(line) <= width or line.startswith(("Accuracies", "= cannot", "? Whether"))


def test_scores_that_are_no_shares_are_not_percentages(task_runs: list[Run]) -> None:
    score = metrics.score(task_runs[0])["worst_case_interval"]
    line = next(s for s in scores_text(task_runs).splitlines() if "worst_case_interval" in s)
    assert f"{score:g} ± 0" in line


def test_differences_in_words(runs: list[Run], tmp_path: Path) -> None:
    first, second = [run for run in runs if run.learner == "blind"]
    same = differences_text(differences(first, first))
    assert "identical" in same
    assert "configuration: the same" in same
    found = differences(first, second)
    text = differences_text(found)
    assert f"The logs differ first at step {found['first_step']}" in text
    assert "stream.settings.seed" in text
    assert "data_hash" in text
    assert "identical" not in text
    shorter = {"predictions": {"step": 4, "row": 40, "columns": [], "rows": [40, 60]}}
    text = differences_text({**found, "logs": shorter, "first_step": 4})
    assert "predictions, step 4: one ends after 40 rows, the other after 60" in text


# Watching.


def _loop(steps: int) -> Any:
    return SimpleNamespace(step=0, right=0, asked=0, end=steps)


def _watched(console: Console | None, steps: int, quiet: bool = False) -> float:
    """Seconds a step that watching takes."""
    with Watcher(quiet=quiet, console=console) as watcher:
        watcher.say("[begin]")
        progress = watcher.watch_run(SimpleNamespace(learner="e[r]", seed=3))
        loop = _loop(steps)
        began = time.perf_counter()
        for _ in range(steps):
            loop.step += 1
            loop.asked += 4
            loop.right += 1
            progress(loop)
        return (time.perf_counter() - began) / steps


def test_one_line_a_run_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _watched(None, 50)
    begin, line = capsys.readouterr().out.splitlines()
    assert begin == "[begin]"
    assert line.startswith("e[r], seed 3: online 25.0 %, 50 steps (")


def test_a_resumed_run_counts_all_its_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Watcher() as watcher:
        progress = watcher.watch_run(SimpleNamespace(learner="er", seed=0))
        loop = _loop(50)
        for loop.step in range(21, 51):
            progress(loop)
    assert "er, seed 0: 50 steps (30 of them now, " in capsys.readouterr().out


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _watched(None, 50, quiet=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_bar_on_a_terminal_that_costs_next_to_nothing() -> None:
    screen = io.StringIO()
    cost = _watched(Console(file=screen, force_terminal=True, width=100), 500_000)
    shown = screen.getvalue()
    assert "steps/s" in shown
    assert "500000 steps (" in shown
    assert cost < 1e-5


def _planned(learner: str, seed: int, label_delay: int = 0) -> Any:
    protocol = SimpleNamespace(label_delay=label_delay)
    return SimpleNamespace(
        recipe=SimpleNamespace(name=learner), learner_seed=seed, protocol=protocol
    )


def _several(console: Console, monkeypatch: pytest.MonkeyPatch, stop_in: str) -> None:
    """Two learners, two seeds, 64 steps of 10 samples; steps of `slow` take 4 s, others 1 s. The
    watcher's clock is advanced instead of waiting. Half of a learner's answers are right."""
    clock = [0.0]
    monkeypatch.setattr("streamgauge.report.watching.time.perf_counter", lambda: clock[0])
    label = np.arange(640) // 5 % 4  # the newest label of a step of ten is right 0 times
    stream = sg.stream(np.zeros((640, 2), np.float32), label, batch=10)
    planned = [_planned(name, seed) for seed in (0, 1) for name in ("quick", "slow")]
    with Watcher(console=console) as watcher:
        watcher.expect(planned)
        for planned_run in planned:
            progress = watcher.watch(planned_run, stream)
            loop = _loop(64)
            for step in range(64):
                clock[0] += 4.0 if planned_run.recipe.name == "slow" else 1.0
                loop.step, loop.asked, loop.right = step + 1, 10 * (step + 1), 5 * (step + 1)
                progress(loop)
                if f"{planned_run.recipe.name} {planned_run.learner_seed} {step}" == stop_in:
                    return


def test_a_plain_line_every_30_seconds_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    _several(Console(file=out, width=200), monkeypatch, "slow 1 40")
    lines = out.getvalue().splitlines()
    ends = [line for line in lines if "steps (" in line]
    assert len(ends) == 3
    assert ends[
        0
    ] == "quick, seed 0: online 50.0 %, 64 steps (64.0 s), +50.0 against last label  " + (
        "▅" * PARTS
    )
    between = [line for line in lines if "steps (" not in line]
    assert between[0].startswith("run 1 of 4: quick, seed 0: step 30 of 64, online 50.0 %, +50.0")
    assert len(between) == 2 + 256 // 32 - 1 + 2 + 41 * 4 // 32  # lines are EVERY seconds apart
    assert EVERY == 30
    # 24 steps of 4 s are left.
    assert between[-1] == (
        "run 4 of 4: slow, seed 1: step 40 of 64, online 50.0 %, +50.0 against last label, "
        "96 s left for all"
    )
    # quick takes 64 s; slow has begun: 4 s per step, and both once more.
    second = next(line for line in between if line.startswith("run 2 of 4: slow, seed 0: step 8 "))
    assert second.endswith(f"{(56 * 4 + 64 + 256) / 60:.1f} min left for all")


def test_a_line_per_learner_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=80, color_system=None)
    _several(screen, monkeypatch, "slow 1 40")
    drawn = re.split(r"\x1b\[[0-9;?]*[A-Za-z]", out.getvalue())
    lines = [line.rstrip() for part in drawn for line in part.splitlines()]
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("run 4 of 4: slow, seed 1") for line in lines)
    learners = [line for line in lines if re.match(r"(quick|slow) +online", line)]
    assert f"slow      online  50.0 %   +50.0 against last label  {'▅' * 10}" in learners
    assert f"quick     online  50.0 %   +50.0 against last label  {'▅' * PARTS}" in learners
    assert "92 s left for all" in lines


def test_the_first_step_says_nothing_about_the_time_left() -> None:
    """Much is made ready in it: a run once announced 15 hours after its first step."""
    out = io.StringIO()
    watcher = Watcher(console=Console(file=out, width=200))
    watcher.expect([_planned("er", 0), _planned("er", 1)])
    run = _RunProgress("er", 0, first=0, first_took=30.0, step=1, steps=101, seconds=30.0)
    watcher._runs.append(run)
    assert watcher._left() == ""
    run.step, run.seconds = 11, 40.0  # a second per step
    assert watcher._left() == f"{(90 + 101) / 60:.1f} min left for all"


def test_a_long_name_leaves_room_for_its_sparkline() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    watcher = Watcher(console=screen)
    parts = [(n + 1, n + 1) for n in range(PARTS)]
    run = _RunProgress("a learner with a very long name indeed", 0, right=16, asked=16, parts=parts)
    watcher._runs.append(run)
    with screen.capture() as drawn:
        screen.print(watcher._view(run, 1.0))
    (line,) = [text for text in drawn.get().splitlines() if text.startswith("a learner")
               and "%" in text and "steps/s" not in text]  # fmt: skip
    assert line.startswith("a learner with a v...")
    assert line.rstrip().endswith("█" * PARTS)
    assert len(line.rstrip()) <= 80


def test_the_blind_level_of_progress_is_that_of_the_blind_learner(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 3, 60), 7)
    stream = sg.stream(np.zeros((420, 2), np.float32), label, batch=6)
    for delay in (0, 2):
        learner = sg.learner("blind", window=1)
        protocol = sg.Protocol(label_delay=delay)
        run = sg.run(stream, learner, protocol=protocol, out=tmp_path, log=lambda _: None)
        table = run.predictions
        known = table["step"] > delay  # before, blind answers class 0 and is right by chance
        right = (table["label"] == table["prediction"]) & known
        blind = blind_hits(stream, delay)
        assert blind is not None
        assert blind.hits[-1] == right.sum()
        assert blind.samples[-1] == 420
    assert sparkline([0.0, 0.49, 1.0]) == "▁▄█"


# The blind level.


class Knowing(Guess):
    """Answers with the number of labels it was told."""

    needs = frozenset()

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(len(x), self.classes)
        scores[:, self.count] = 1
        return scores

    def learn(self, batch: Any, predicted: torch.Tensor | None) -> dict[str, float]:
        self.count += len(batch.y)
        return {}


@pytest.mark.parametrize("step", ["batch", "album"])
@pytest.mark.parametrize("delay", [0, 2])
def test_blind_forecasters_know_what_a_learner_is_told(
    tmp_path: Path, step: str, delay: int
) -> None:
    user = np.random.default_rng(1).integers(0, 9, 80).repeat(5)
    stream = sg.stream(np.zeros((400, 1)), np.arange(400), user=user, step=step)
    protocol = sg.Protocol(shifts=(SHIFT, 1000), label_delay=delay)
    run = sg.run(stream, Knowing, protocol=protocol, out=tmp_path, log=_quiet)
    table = run.predictions
    for shift in (0, SHIFT, 1000):
        rows = np.flatnonzero(table["shift"] == shift)
        known, start = known_in_loop(table["step"][table["shift"] == 0], run.label_delay, shift)
        assert table["sample"][rows].tolist() == list(range(start, 400))
        assert table["prediction"][rows].tolist() == known.known[start:].tolist()
    assert np.isnan(blind_level([run], [0, 1000]).accuracy[1])  # type: ignore[union-attr]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=12), st.integers(0, 5))
def test_the_forecaster_of_a_part_had_the_most_hits_before(
    hits: list[tuple[int, int, int]], late: int
) -> None:
    expected = []
    for block in range(len(hits)):
        past = [sum(hits[b][f] for b in range(block - late)) for f in range(3)]
        expected.append(past.index(max(past)))
    assert choose(np.array(hits), late).tolist() == expected


def test_the_blind_level_of_streams_whose_truth_is_known(tmp_path: Path) -> None:
    """Labels in a circle, a noisy permutation chain, and labels that stay; in steps of 10, 1, 1."""
    rng = np.random.default_rng(0)
    chain = [0]
    for leap in rng.random(3999) < 0.2:
        chain.append(int(rng.integers(10)) if leap else (7 * chain[-1] + 3) % 10)
    stay = rng.integers(0, 5, 4000)
    begins = np.where(rng.random(4000) < 0.1, np.arange(4000), 0)
    stay = stay[np.maximum.accumulate(begins)]
    for labels, batch, truth, ahead, name in (
        (np.arange(4000) % 10, 10, 1.0, 1.0, "10 samples"),
        (np.array(chain), 1, 0.8 + 0.2 / 10, 0.8**6 + (1 - 0.8**6) / 10, "follow.*the last"),
        (stay, 1, 0.9 + 0.1 / 5, 1 / 5 + 4 / 5 * 0.9**6, "the last label|half-life 0.5"),
    ):
        stream = sg.stream(np.zeros((4000, 1)), labels, batch=batch)
        run = sg.run(stream, "majority", out=tmp_path, log=_quiet)
        level = blind_level([run], [0, 5])
        assert level is not None
        assert level.accuracy == pytest.approx([truth, ahead], abs=0.05)
        assert re.search(name, level.forecaster)


def test_on_held_out_samples_the_level_is_the_majority(folder: Path) -> None:
    for order, name in (("time", "albums"), ("classes", "blobs")):
        settings = {"order": order, "tasks": 4, "held_out": 0.1}
        stream = sg.stream(name, **settings)
        run = sg.run(stream, "majority", out=folder / "check", log=_quiet)
        level = blind_level([run])
        assert level is not None
        if order == "time":
            assert not len(level.average)
        else:
            after = metrics.average_accuracy(metrics.accuracy_matrix(run))
            assert level.average == pytest.approx(after)
        assert level.retained == pytest.approx(metrics.retained_accuracy(run))


def test_learners_that_never_look_are_not_counted(tmp_path: Path) -> None:
    labels = np.arange(300) // 50
    stream = sg.stream(np.zeros((300, 1)), labels)
    learners = ["blind", "history", "majority", "random"]
    made = [sg.run(stream, one, out=tmp_path, log=_quiet) for one in learners]
    made.append(sg.run(stream, Guess, out=tmp_path, log=_quiet))

    def told(runs: list[Run]) -> str:
        (board,) = leaderboard(runs)
        return summary(board, figures(board))

    assert re.search(r"\(mostly [^)]+\); Guess is not above that\.", told(made))
    assert re.search(r"worth [\d.]+ % \(mostly [^)]+\)\.$", told(made[:4]))
    for run in made:  # as runs are that were stored before they said it
        run.header["config"]["learner"].pop("sees_input", None)
    assert "; Guess is not above that." in told(made)
    made[4].header["config"]["learner"]["sees_input"] = False
    assert "above that" not in told(made)
    made[0].header["config"]["learner"]["sees_input"] = True
    assert re.search(r"; blind is (not )?above that\.", told(made))
    made[4].header["config"]["learner"]["sees_input"] = True
    assert re.search(r"; \d of the 2 learners that use their inputs (is|are) above", told(made))


def test_a_report_of_one_learner_compares_it_with_no_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 900)
    stream = sg.stream(rng.normal(size=(900, 2)) + labels[:, None], labels)
    made = [sg.run(stream, one, out=tmp_path, log=_quiet) for one in ("ncm", "majority")]
    (alone,), (both,) = leaderboard(made[:1]), leaderboard(made)

    text, drawn = summary(alone, figures(alone)), figures(alone).stream
    assert re.search(r"Online, ncm is right [\d.]+ % of the time", text)
    assert "most" not in text.replace("(mostly", "")
    assert "ncm is above that." in text
    assert "Past labels save nothing of the 1.5" in text
    assert re.search(r"the answers of ncm add [\d.]+ bits \[", text)
    assert drawn is not None
    assert "minus the baseline" not in drawn.caption
    assert "Bands" not in drawn.caption
    assert "At the bottom: how often the most frequent labels" in drawn.caption

    drawn = figures(both).stream
    assert drawn is not None
    assert "minus the baseline" in drawn.caption
    assert "is right most often, " in summary(both, figures(both))


def test_no_blind_level_without_labels(tmp_path: Path) -> None:
    stream = sg.stream("albums", length=300, size=0, held_out=0.1)
    silent = sg.Protocol(predict=False)
    run = sg.run(stream, "majority", protocol=silent, out=tmp_path, log=_quiet)
    assert blind_level([run]) is None
    page = report_page([run]).render()
    assert "There is no blind level" in page
    (figure,) = [f for f in json.loads(_embedded(page)) if f["moving"]]
    assert [trace["name"] for trace in figure["data"]] == ["majority"]


# The page.


class _Page(HTMLParser):
    """Tags, attributes, and the data of script elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def _embedded(page: str) -> str:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)
    assert found is not None
    return found[1]


def _end(figure: Any, learner: str) -> float:
    (trace,) = [t for t in figure.data if t.get("name") == learner]
    return float(trace["y"][-1]) / 100


def test_curves_end_at_the_numbers_of_the_table(runs: list[Run], task_runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    found = figures(board)
    running, near, (retained,) = found.stream, found.ahead, found.stays
    for row in board.rows:
        # Of figures over a moving window, `data` has the accuracy over all samples.
        assert _end(running, row.learner) == pytest.approx(
            row.scores["online_accuracy"].mean, abs=1e-4
        )
        assert _end(near, row.learner) == pytest.approx(
            row.scores[f"near_future_accuracy@{SHIFT}"].mean, abs=1e-4
        )
        assert _end(retained, row.learner) == pytest.approx(
            row.scores["retained_accuracy"].mean, abs=1e-4
        )
    (board,) = leaderboard(task_runs)
    found = figures(board)
    average, forgotten = found.stays[1:]
    assert forgotten.title == "Forgetting of each task"
    for row, (_, matrix) in zip(board.rows, found.matrices, strict=True):
        expected = row.scores["average_accuracy"].mean
        assert _end(average, row.learner) == pytest.approx(expected, abs=1e-4)
        assert np.nanmean(matrix[-1]) == pytest.approx(expected)
        assert np.isnan(matrix[0][1])
        lost = next(t for t in forgotten.data if t.get("name") == row.learner)["y"]
        assert np.mean(lost) == pytest.approx(100 * row.scores["average_forgetting"].mean, abs=1e-3)


def test_the_blind_level_is_drawn_like_the_learners(runs: list[Run], task_runs: list[Run]) -> None:
    """Along the stream as a curve in the same window, and at every shift: it needs labels alone."""
    (board,) = leaderboard(runs)
    found = figures(board)
    assert found.blind is not None
    assert found.stream is not None
    moving = found.stream.moving
    assert moving is not None
    levels = [run for run in moving["series"] if run["level"]]
    assert {run["key"] for run in levels} == {LEVEL}
    assert len(levels) == 2  # one per stream
    learner = next(run for run in moving["series"] if not run["level"])
    for run in levels:
        assert moving["end"][run["end"]] == moving["end"][learner["end"]]
        assert len(run["hits"]) == len(learner["hits"])
    share = np.mean([sum(run["hits"]) / sum(moving["counts"][run["counts"]]) for run in levels])
    assert share == pytest.approx(found.blind.at(0))
    assert found.ahead is not None
    (ahead,) = [t for t in found.ahead.data if t["meta"]["role"] == "level"]
    assert found.blind.shifts == (0, 1, 3, 7, 15, SHIFT)
    assert ahead["x"] == pytest.approx(np.log2(1 + np.array(found.blind.shifts)), abs=1e-4)
    assert found.ahead.layout["xaxis"]["ticktext"][0] == "0"
    assert str(SHIFT) in found.ahead.layout["xaxis"]["ticktext"]
    tasks = figures(leaderboard(task_runs)[0])
    assert tasks.stream is not None
    assert [text for _, text, *_ in tasks.stream.moving["marks"]] == ["task 2", "task 3", "task 4"]  # type: ignore[index]
    (after,) = [f for f in tasks.stays if f.title.startswith("Average")]
    assert [t["name"] for t in after.data if t["meta"]["role"] == "level"] == [LEVEL]


def test_the_right_answers_of_bins_are_those_of_the_log(runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    moving = figures(board).stream.moving  # type: ignore[union-attr]
    assert moving is not None
    for row in board.rows:
        for run in row.runs:
            table = run.predictions
            online = table["shift"] == 0
            right = (table["label"] == table["prediction"])[online]
            mine = [s for s in moving["series"] if s["key"] == row.learner]
            (series,) = [s for s in mine if s["pair"].startswith(f"{run.seed} ")]
            ends = moving["end"][series["end"]]
            wanted = np.cumsum(right)[np.array(ends) - 1]
            assert np.cumsum(series["hits"]).tolist() == wanted.tolist()
            assert ends[-1] == len(right)


def test_confusions_and_the_cost_of_training_are_counted(runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    (found,) = figures(board).fails.learners
    assert found.learner == "Guess"  # the only one that looks
    label, answer = (
        np.concatenate([r.predictions[name][r.predictions["shift"] == 0] for r in runs[2::3]])
        for name in ("label", "prediction")
    )
    for true, said, times, share in found.confusions:
        count = int(((label == int(true)) & (answer == int(said))).sum())
        assert times == f"{count:,}"
        assert share == f"{100 * count / (label == int(true)).sum():.1f}"
    counts = [int(row[2].replace(",", "")) for row in found.confusions]
    assert counts == sorted(counts, reverse=True)
    page = report_page(runs).render()
    assert "Training per run" in page
    titles = ["Verdict", "Leaderboard", "Along the stream", "How far ahead", "What stays",
              "What it costs", "Where it fails", "Training", "Runs"]  # fmt: skip
    assert re.findall(r"<h2>(.*?)</h2>", page) == titles


def test_accuracy_per_class_and_reliability_are_those_of_the_log(tmp_path: Path) -> None:
    """Against loops over the rows of the log, of two learners that look at inputs."""
    stream = sg.stream("albums", length=1500, classes=6, seed=3)
    runs = [
        sg.run(stream, catalogue.learner(name), out=tmp_path, log=_quiet)
        for name in ("ncm", "slda", "majority")
    ]
    (board,) = leaderboard(runs)
    found = figures(board).fails
    assert {each.learner for each in found.learners} == {"ncm", "slda"}
    stretches = failures_module.STRETCHES
    for each in found.learners:
        run = next(run for run in runs if run.learner == each.learner)
        names = ("label", "prediction", "confidence")
        rows = list(zip(*(run.predictions[name].tolist() for name in names), strict=True))
        (heat,) = each.classes.data
        for name, shares in zip(heat["y"], heat["z"], strict=True):
            for stretch, share in enumerate(shares):
                cell = [a == y for n, (y, a, _) in enumerate(rows)
                        if y == int(name) and n * stretches // len(rows) == stretch]  # fmt: skip
                expected = round(100 * sum(cell) / len(cell)) if cell else None
                assert share == pytest.approx(expected, abs=0.51) if cell else share is None
        levels = [[(c, a == y) for y, a, c in rows if min(9, int(10 * c)) == k] for k in range(10)]
        levels = [level for level in levels if len(level) >= failures_module.FEWEST]
        assert found.reliability is not None
        lines = [t for t in found.reliability.data if t["name"] == each.learner]
        if len(levels) < 2:  # nothing varies
            assert not lines
            continue
        (line,) = lines
        expected_x = [100 * statistics.fmean(c for c, _ in level) for level in levels]
        expected_y = [100 * statistics.fmean(right for _, right in level) for level in levels]
        assert line["x"] == pytest.approx(expected_x, rel=1e-3)
        assert line["y"] == pytest.approx(expected_y, rel=1e-3)
    first, second = (each.learner for each in found.learners)
    page = report_page(runs).render()
    assert f"What {first} mistakes most often" in page
    assert f"<summary>{second}</summary>" in page


def test_runs_are_listed_once_and_numbers_sort_as_numbers(runs: list[Run]) -> None:
    table, shared = run_blocks(runs)
    assert len(table.rows) == len(runs)  # type: ignore[union-attr]
    assert "engine" not in " ".join(map(str, table.head))  # type: ignore[union-attr]
    assert "learner.name" not in table.head  # type: ignore[union-attr]
    assert "stream.settings.seed" not in table.head  # type: ignore[union-attr]
    assert "What all runs share" in shared.title  # type: ignore[union-attr]
    fakes = [SimpleNamespace(learner=f"er{n}", seed=0) for n in (10, 2, 1, 11)]
    ordered = sorted(fakes, key=natural)  # type: ignore[arg-type]
    assert [run.learner for run in ordered] == ["er1", "er2", "er10", "er11"]


def test_bands_are_one_deviation(runs: list[Run]) -> None:
    (board,) = leaderboard(runs)
    near = figures(board).ahead
    assert near is not None
    row = board.rows[0]
    (line,) = [t for t in near.data if t.get("name") == row.learner]
    each = [100 * _accuracy(run, SHIFT) for run in row.runs]
    deviation = statistics.stdev(each)
    assert line["customdata"][-1] == pytest.approx(deviation, rel=1e-3)
    assert line["error_y"]["array"][-1] == pytest.approx(deviation, rel=1e-3)
    assert line["mode"] == "markers"  # no line through two shifts
    x, y = np.arange(3.0), np.array([[0.1, 0.2, 0.3], [0.3, 0.4, 0.5]])
    band, curve = mean_lines([("a", [(x, y[0]), (x, y[1])])])
    assert curve["mode"] == "lines"
    assert band["y"][:3] == pytest.approx(100 * (y.mean(0) + y.std(0, ddof=1)), abs=1e-2)
    assert band["y"][3:] == pytest.approx((100 * (y.mean(0) - y.std(0, ddof=1)))[::-1], abs=1e-2)


def test_the_page_is_one_small_file_without_outside_parts(runs: list[Run]) -> None:
    from plotly.offline import get_plotlyjs

    page = report_page(runs).render()
    for name, value in _Page(page).attributes:
        if name in ("src", "href"):
            assert value == "data:,"
    assert len(page) < 2_500_000 < len(get_plotlyjs())
    for figure in json.loads(_embedded(page)):
        for trace in figure["data"]:
            assert len(trace["x"]) <= 2 * POINTS


def test_what_a_run_holds_is_escaped(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    names = ["</script><script>alert(2)</script>", "{{ 7*7 }}", '"&'.join("ab")]
    stream = sg.stream(np.zeros((90, 1)), np.arange(90) % 3, class_names=names)
    recipe = dataclasses.replace(catalogue.learner("blind"), name=evil)
    page = report_page([sg.run(stream, recipe, out=tmp_path, log=_quiet)]).render()
    parsed = _Page(page)
    assert "img" not in parsed.tags
    assert parsed.tags.count("script") == 3
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "{{ 7*7 }}" in page
    drawn = json.loads(_embedded(page))
    stream = next(figure for figure in drawn if figure["moving"])
    assert stream["data"][0]["name"] == "&lt;img src=x onerror=alert(1)&gt;"
    assert stream["moving"]["series"][0]["key"] == "&lt;img src=x onerror=alert(1)&gt;"
    assert "<script>" not in json.dumps(stream["moving"])


def test_a_run_without_any_number_still_has_a_page(tmp_path: Path) -> None:
    protocol = sg.Protocol(predict=False, evaluate="never")
    stream = sg.stream("albums", length=300, size=0)
    run = sg.run(stream, Guess, protocol=protocol, out=tmp_path, log=_quiet)
    assert "Guess" in leaderboard_text([run])
    drawn = json.loads(_embedded(report_page([run]).render()))
    assert [figure["layout"]["xaxis"]["title"]["text"] for figure in drawn] == ["step"]


def test_where_a_plot_goes(runs: list[Run], tmp_path: Path) -> None:
    assert sg.plot(runs[0]) == runs[0].path / "report.html"
    assert sg.plot(str(runs[0].path)) == runs[0].path / "report.html"
    assert sg.plot(runs) == runs[0].path.parent / "report.html"
    assert sg.plot(runs[0].path.parent) == runs[0].path.parent / "report.html"
    assert plot(runs, tmp_path / "new" / "r.html").exists()
    with pytest.raises(StreamgaugeError, match="no run"):
        write_report([], tmp_path / "r.html")
    (tmp_path / "file").touch()
    with pytest.raises(StreamgaugeError, match="Cannot write"):
        write_report(runs, tmp_path / "file" / "r.html")


@pytest.mark.browser
@needs_browser
def test_the_page_in_a_browser(runs: list[Run], task_runs: list[Run], tmp_path: Path) -> None:
    page = write_report([*runs, *task_runs], tmp_path / "report.html")
    browser = Browser()
    try:
        for scheme in ("light", "dark"):
            browser.theme(scheme)
            browser.open(page)
            assert browser.errors == []
            fetched = [url for url in browser.requests if not url.startswith("data:")]
            assert fetched == [page.resolve().as_uri()]
            unseen = "[...document.querySelectorAll('.plot')].filter((p) => !p.data)"
            folded = f"{unseen}.every((p) => p.closest('details:not([open])'))"
            assert browser.run(folded) is True
            assert browser.run("document.querySelectorAll('.plot .main-svg').length") > 20
        boards = browser.run(
            "[...document.querySelector('[name=board]').options].map((o) => o.value)"
        )
        assert boards == ["", *[board.title for board in leaderboard([*runs, *task_runs])]]
        browser.open(page, f"#board={boards[1]}")
        assert browser.run("document.querySelectorAll('[data-board]:not([hidden])').length") == 1
        # Sections that are opened are drawn then.
        browser.run("document.querySelectorAll('section:not([hidden]) details')"
                    ".forEach((d) => { d.open = true; })")  # fmt: skip
        last = "[...document.querySelectorAll('[data-board]:not([hidden]) details .plot')].at(-1)"
        assert browser.run(f"{last}.data === undefined")
        browser.run(f"{last}.scrollIntoView()")
        browser.wait(f"{last}.data !== undefined")
        levels = browser.run(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])"
        )
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    finally:
        browser.close()
