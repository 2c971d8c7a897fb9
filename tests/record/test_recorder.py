"""`sg.Recorder`: what it writes is what a plain dictionary says; also after restarts and kills."""

from __future__ import annotations

import ctypes
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from streamgauge.audit import audit
from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_bytes
from streamgauge.record import recorder as module
from streamgauge.record.diff import differences
from streamgauge.report.terminal import scores_text
from streamgauge.tables.journal import read_journal

sys.path.insert(0, str(Path(__file__).parents[1]))
import kill_recorder

CLASSES = ["buy", "look", "leave"]
ABOUT: dict[str, Any] = {"stream": "clicks", "learner": "mine"}


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """No look at git, and no waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamgauge.record.recorded.environment", lambda _: {"streamgauge": "0"})
        patch.setattr(os, "fsync", lambda _: None)
        yield


class SlowLog:
    """The same log, one dictionary entry per answer and label."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int, int, list[float]]] = []
        self.labels: dict[str, tuple[float, int]] = {}

    def predict(self, id: str, scores: list[float], shift: int) -> None:
        if all((id, shift) != (name, other) for name, other, *_ in self.answers):
            self.answers.append((id, shift, int(np.argmax(scores)), scores))

    def label(self, id: str, label: int, time: float) -> None:
        if id not in self.labels or time >= self.labels[id][0]:
            self.labels[id] = time, label

    def rows(self) -> list[tuple[str, int, int, int, float, float]]:
        return [
            (id, shift, answer, self.labels[id][1], self.labels[id][0], self.logp(id, scores))
            for id, shift, answer, scores in self.answers
            if id in self.labels
        ]

    def logp(self, id: str, scores: list[float]) -> float:
        p = scores[self.labels[id][1]] / sum(scores)
        return math.log(p) if p else -math.inf


def rows_of(run: sg.Run) -> list[tuple[Any, ...]]:
    names = ["id", "shift", "prediction", "label", "label_time", "logp"]
    table = run.predictions
    if not table.rows:
        return []
    return list(zip(*(table[name].tolist() for name in names), strict=True))


def assert_same(run: sg.Run, slow: SlowLog, kept: bool) -> None:
    expected = slow.rows()
    found = rows_of(run)
    assert [row[:5] for row in found] == [row[:5] for row in expected]
    assert run.unlabelled == len(slow.answers) - len(expected)
    for row, wanted in zip(found, expected, strict=True):
        # Only a label that is corrected after its scores were dropped has no log-probability.
        assert row[5] == pytest.approx(wanted[5], rel=1e-6, abs=1e-7) or (
            not kept and math.isnan(row[5])
        )


scores = st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(lambda s: sum(s) > 0)
calls = st.one_of(
    st.tuples(st.just("predict"), st.lists(st.tuples(st.integers(0, 9), scores), max_size=4)),
    st.tuples(st.just("shift"), st.lists(st.tuples(st.integers(0, 9), scores), max_size=2)),
    st.tuples(
        st.just("label"),
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3)), max_size=4),
    ),
    st.tuples(st.sampled_from(["restart", "crash", "commit", "read"]), st.just([])),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(calls, max_size=12), st.booleans(), st.booleans())
def test_any_interleaving_is_what_a_dictionary_says(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, single: bool, kept: bool
) -> None:
    path = tmp_path_factory.mktemp("recorder") / "mine"
    name = "request {}".format if single else str  # text and numbers

    def opened() -> sg.Recorder:
        return sg.Recorder(path, **ABOUT, classes=CLASSES, keep_scores=kept)

    slow, rec = SlowLog(), opened()
    for kind, values in [*steps, ("read", [])]:
        if kind in ("predict", "shift"):
            shift = 10 if kind == "shift" else 0
            for n, s in values:
                slow.predict(name(n), s, shift)
            p = [np.array(s) / sum(s) for _, s in values]
            if single:
                for (n, _), row in zip(values, p, strict=True):
                    rec.predict(name(n), row, shift=shift)
            elif values:
                rec.predict([n for n, _ in values], p, shift=shift)
        elif kind == "label":
            for n, label, time in values:
                slow.label(name(n), label, float(time))
            if single:
                for n, label, time in values:
                    rec.label(name(n), CLASSES[label], time=float(time))
            elif values:
                ids, labels, times = zip(*values, strict=True)
                rec.label(list(ids), list(labels), time=list(times))
        elif kind == "restart":
            rec.close()
            rec = opened()
        elif kind == "crash":
            rec._writer.close()  # the lock goes with a process
            rec = opened()
        elif kind == "commit":
            rec._commit_journal()
        else:
            assert_same(sg.Run(path), slow, kept)
    rec.close()
    assert_same(sg.Run(path), slow, kept)


def record(path: Path, n: int = 400, **options: Any) -> sg.Recorder:
    """A recording of which 50 labels are missing."""
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(3), n)
    label = np.repeat(rng.integers(0, 3, n // 4), 4)
    rec = sg.Recorder(path, **ABOUT, classes=CLASSES, **options)
    for i in range(0, n, 10):
        ids = [f"r{j}" for j in range(i, i + 10)]
        rec.predict(ids, scores[i : i + 10], time=np.arange(i, i + 10.0), user=np.arange(10))
        if i >= 50:
            late = range(i - 50, i - 40)
            rec.label([f"r{j}" for j in late], [CLASSES[label[j]] for j in late], time=float(i))
        rec.trained(ids, seconds=0.1, flops=5.0)
        rec.scalar("loss", 0.5)
    return rec


def test_an_open_recording_is_scored_audited_and_reported_like_a_closed_one(tmp_path: Path) -> None:
    rec = record(tmp_path / "mine")
    run = sg.Run(tmp_path / "mine")
    before, audited = sg.score(run), audit(tmp_path / "mine").to_dict()
    assert run.unlabelled == 50
    assert run.stream["class_names"] == CLASSES
    assert len(run.jobs["version"]) == run.stream["steps"] == 40
    assert run.jobs["flops"].tolist() == [5.0] * 40
    assert run.predictions["version"].tolist() == np.repeat(np.arange(35), 10).tolist()
    assert set(run.training["name"]) == {"loss", "trained_samples"}
    assert not list((tmp_path / "mine" / "log").glob("*/*.parquet"))
    page = Path(sg.plot([run], tmp_path / "open.html")).read_text()
    assert "50 answers have no label" in page
    rec.close()
    closed = sg.Run(tmp_path / "mine")
    assert sg.score(closed) == before
    assert audit(tmp_path / "mine").to_dict() == audited
    assert differences(run, closed)["same"]
    assert (closed.stream["order_hash"], closed.id) == (run.stream["order_hash"], run.id)


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "recorder.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    loop = code.split("\n\n")[1]
    assert len(loop.splitlines()) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code + "\nimport sys; assert 'torch' not in sys.modules"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 0.4 < float(done.stdout) < 0.6
    assert sg.Run(tmp_path / "runs" / "mine").unlabelled == 40


def test_an_empty_recording_can_be_read(tmp_path: Path) -> None:
    rec = sg.Recorder(tmp_path / "mine", **ABOUT)
    for _ in range(2):
        run = sg.Run(tmp_path / "mine")
        assert (run.predictions.rows, run.unlabelled, run.step) == (0, 0, 0)
        with pytest.raises(StreamgaugeError, match="has no answers yet"):
            audit(tmp_path / "mine")
        rec.label("a", "x")  # a label alone
    rec.close()
    assert sg.Run(tmp_path / "mine").table("labels").rows == 2


def test_classes_by_first_appearance_and_by_name(tmp_path: Path) -> None:
    with sg.Recorder(tmp_path / "a", **ABOUT) as rec:
        rec.predict([1, 2, 3], ["x", 7, None])
        rec.label(3, "y")
    with sg.Recorder(tmp_path / "a", **ABOUT) as rec:
        rec.label(np.array([1, 2]), np.array(["z", "7.5"]))
        rec.label("2", 7.0)
        with pytest.raises(StreamgaugeError, match="give the recorder classes="):
            rec.predict([4], [[0.5, 0.5]])
    run = sg.Run(tmp_path / "a")
    assert run.stream["class_names"] == ["x", "7", "y", "z", "7.5"]
    assert run.predictions["prediction"].tolist() == [0, 1, -1]
    assert run.predictions["label"].tolist() == [3, 1, 2]
    assert sg.score(run)["online_accuracy"] == pytest.approx(1 / 3)
    with sg.Recorder(tmp_path / "b", **ABOUT) as rec:  # scores without names
        rec.predict([5, 6], [[0.1, 0.9], [1.0, 0.0]])
        rec.label([5, 6], [1, "0"])
        with pytest.raises(StreamgaugeError, match="none of the 2 classes"):
            rec.label(5, 2)
        with pytest.raises(StreamgaugeError, match="3 scores per id for 2 classes"):
            rec.predict(7, [0.2, 0.2, 0.6])
    with sg.Recorder(tmp_path / "b", **ABOUT) as rec, pytest.raises(StreamgaugeError, match="none"):
        rec.label(5, "buy")
    run = sg.Run(tmp_path / "b")
    assert (run.stream["classes"], run.stream["class_names"]) == (2, None)
    assert run.predictions["confidence"].tolist() == pytest.approx([0.9, 1.0])
    with sg.Recorder(tmp_path / "c", **ABOUT, classes=[10, 20]) as rec:  # numbers are names here
        rec.predict([1, 2], [20, "10"])
        with pytest.raises(StreamgaugeError, match="none of the 2 classes"):
            rec.label(1, 1)
    assert sg.Run(tmp_path / "c").table("predictions")["prediction"].tolist() == [1, 0]


WRONG: list[tuple[Any, str]] = [
    (lambda rec: rec.predict(1, [0.5, 0.3, 0.1]), "does not sum to one"),
    (lambda rec: rec.predict(1, [5.0, -3, 0]), "kind='logits'"),
    (lambda rec: rec.predict(1, [-1.0, -1.0, -1.0]), "does not sum to one"),
    (lambda rec: rec.predict(1, [-1.0, 1.0, 1.0], kind="probabilities"), "not probabilities"),
    (lambda rec: rec.predict(1, [1.0, 0, 0], kind="log-probabilities"), "not log-prob"),
    (lambda rec: rec.predict(1, [1.0, 0, 0], kind="scores"), "kind is 'probabilities'"),
    (lambda rec: rec.predict(1, [math.nan, 0, 1]), "NaN or an infinite"),
    (lambda rec: rec.predict(1, [math.inf, 0, 1], kind="logits"), "NaN or an infinite"),
    (lambda rec: rec.predict(1, [-math.inf] * 3, kind="logits"), "NaN or an infinite"),
    (lambda rec: rec.predict([1, 2], [[1.0, 0, 0]]), "2 ids and 1 rows"),
    (lambda rec: rec.predict([1, 2], ["buy"]), "2 ids, but 1 values"),
    (lambda rec: rec.predict(1, ["buy"]), "Scores are numbers"),
    (lambda rec: rec.predict([1, 2], "buy", user=[1, 2, 3]), "2 ids, but 3 values"),
    (lambda rec: rec.predict([[1]], ["buy"]), "ids are one id or a list"),
    (lambda rec: rec.predict(1.5, "buy"), "An id is a whole number or text"),
    (lambda rec: rec.predict([True], ["buy"]), "An id is a whole number or text"),
    (lambda rec: rec.predict(1, "sell"), "none of the 3 classes"),
    (lambda rec: rec.predict(1, 0.5), "not 0.5"),
    (lambda rec: rec.predict(1, "buy", time=math.nan), "time holds NaN"),
    (lambda rec: rec.predict(1, "buy", time="now"), "time is in seconds"),
    (lambda rec: rec.predict(1, "buy", time=[1.0]), "one value of each kind"),
    (lambda rec: rec.predict(1, "buy", version=-1), "version is a whole number"),
    (lambda rec: rec.predict(1, "buy", task=1 << 31), "task is a whole number"),
    (lambda rec: rec.predict(1, "buy", user=1.5), "A user is"),
    (lambda rec: rec.label(1, None), "not None"),
    (lambda rec: rec.label([1, 2], [0, math.nan]), "not nan"),
    (lambda rec: rec.label([1, 2], [[0], [1]]), "one class"),
    (lambda rec: rec.evaluate(correct=3, count=2), "correct from 0 to count"),
    (lambda rec: rec.evaluate(correct=1, count=2, split="train"), "split='test'"),
    (lambda rec: rec.evaluate(correct=1.5, count=2), "correct is a whole number"),
    (lambda rec: rec.predict([1, 2], ["buy", "buy"], shift=[0, 5]), "shift is one number"),
    (lambda rec: rec.predict([1], ["buy"], time=[datetime(2026, 1, 1), "now"]), "in seconds"),
    (lambda rec: rec.scalar("loss", "low"), "value is one number, not 'low'"),
    (lambda rec: rec.scalar("loss", [1.0, 2.0]), "value is one number"),
    (lambda rec: rec.trained(seconds="2 s"), "seconds is one number"),
    (lambda rec: rec.trained(version=[1, 2]), "version is one number"),
    (lambda rec: rec.predict(1, "buy", shift=None), "shift is one number, not None"),
    (lambda rec: rec.predict(1, "buy", time=pd.NaT), "time holds NaN"),
    (lambda rec: rec.evaluate(correct=[1, 2], count=[2, 2]), "correct is one number"),
    (lambda rec: rec.evaluate(correct=1, count=2, task=[0, 1]), "task is one number"),
]


def test_wrong_values_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    rec = sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES)
    for call, sentence in WRONG:
        with pytest.raises(StreamgaugeError, match=sentence):
            call(rec)
        assert rec._file().size == 0
    rec.predict(2, [0.0, -math.inf, -9.0], kind="logits", time=5.0, user="b")
    rec.close()
    run = sg.Run(tmp_path / "mine")
    assert run.table("predictions")["id"].tolist() == ["2"]
    assert run.table("predictions")["prediction"].tolist() == [0]


def test_a_task_and_a_version_may_be_one_number_or_one_per_answer(tmp_path: Path) -> None:
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES) as rec:
        rec.predict([1, 2], ["buy", "look"], task=[0, 5], version=np.int32(7))
        rec.predict([3, 4], ["buy", "look"], task=np.array([(1 << 31) - 1, 3]), version=0)
    table = sg.Run(tmp_path / "mine").table("predictions")
    assert table["task"].tolist() == [0, 5, (1 << 31) - 1, 3]
    assert table["version"].tolist() == [7, 7, 0, 0]


WRONG_FACTS: list[tuple[dict[str, Any], str]] = [
    ({"classes": 0}, "classes is a list of names, or their number, not 0"),
    ({"classes": 2.0}, "not 2.0"),
    ({"classes": "abc"}, "not 'abc'"),
    ({"classes": {"a"}}, "not {'a'}"),
    ({"classes": ["a", "a"]}, "each name once"),
    ({"stream": 3}, "stream is a name, not 3"),
    ({"learner": None}, "learner is a name, not None"),
    ({"optimizer": object()}, "The setting optimizer is a number"),
    ({"seed": "first"}, "seed is a whole number, not 'first'"),
    ({"seed": None}, "seed is a whole number, not None"),
    ({"clases": ["a", "b"]}, "no keyword 'clases': did you mean 'classes'"),
    ({"keep_score": True}, "did you mean 'keep_scores'"),
    ({"Library": "river"}, "did you mean 'library'"),
]


def test_wrong_facts_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    for facts, sentence in WRONG_FACTS:
        with pytest.raises(StreamgaugeError, match=sentence):
            sg.Recorder(tmp_path / "mine", **{**ABOUT, **facts})
    assert not list(tmp_path.iterdir())


def test_settings_whose_names_are_a_bit_like_keywords_are_taken(tmp_path: Path) -> None:
    settings = {"speed": 1, "patch": 2, "learning_rate": 0.1, "keys": 3, "stride": 4}
    with sg.Recorder(tmp_path / "mine", **ABOUT, **settings):
        pass
    assert sg.Run(tmp_path / "mine").header["config"]["learner"]["settings"] == settings


def test_values_of_other_libraries_are_taken_as_they_come(tmp_path: Path) -> None:
    """Tensors and arrays without axes, dates in lists and with a time zone, NumPy's settings."""
    facts: dict[str, Any] = {"classes": np.int64(2), "betas": (0.9, np.float32(0.5))}
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (2, 3, 4, 5)]
    with sg.Recorder(tmp_path / "mine", **ABOUT, **facts) as rec:
        rec.predict(torch.tensor(7), torch.tensor(1), time=datetime(2026, 1, 1))
        rec.predict([8, 9], np.array([[0.4, 0.6]] * 2)[:, 1] > 0.5, time=days[:2])
        rec.predict([10, 11], [1, 1], time=pd.DatetimeIndex(days[2:]).tz_convert("Europe/Berlin"))
        late = torch.tensor(days[3].timestamp() + 7, dtype=torch.float64)  # no float32 is near
        rec.predict(12, 1, time=late)
        rec.label(np.array(7), torch.tensor(1), time=days[0])
        rec.scalar("loss", torch.tensor(0.25, requires_grad=True))
        rec.trained(torch.tensor(7), seconds=None)
    sg.Recorder(tmp_path / "mine", **ABOUT, **facts).close()  # goes on
    run = sg.Run(tmp_path / "mine")
    assert run.table("predictions")["sample"].tolist() == [7, 8, 9, 10, 11, 12]
    seconds = run.table("predictions")["time"] - datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert (seconds[:5] / 86400).tolist() == [0, 1, 2, 3, 4]
    assert seconds[5] == 4 * 86400 + 7
    assert run.training["value"].tolist() == [0.25, 1.0]
    assert sg.score(run)["online_accuracy"] == 1.0


def test_scores_of_one_id_are_any_tensor(tmp_path: Path) -> None:
    scores = torch.tensor([0.5, 2.5], dtype=torch.bfloat16, requires_grad=True)
    with sg.Recorder(tmp_path / "mine", **ABOUT) as rec:
        rec.predict(1, scores, kind="logits")
    assert sg.Run(tmp_path / "mine").table("predictions")["prediction"].tolist() == [1]


def test_the_three_kinds_of_scores_are_one(tmp_path: Path) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(4), 20).astype(np.float32)
    kinds = {"probabilities": p, "log-probabilities": np.log(p), "logits": np.log(p) + 3.0}
    with sg.Recorder(tmp_path / "mine", **ABOUT) as rec:
        for number, (kind, values) in enumerate(kinds.items()):
            ids = 100 * number + np.arange(20)
            rec.predict(ids, values, kind=None if number < 2 else kind)  # type: ignore[arg-type]
            rec.label(ids, np.arange(20) % 4)
    found = sg.Run(tmp_path / "mine").predictions["logp"].reshape(3, 20)
    np.testing.assert_allclose(found, [np.log(p)[np.arange(20), np.arange(20) % 4]] * 3, atol=1e-5)


def test_columns_are_fixed_by_the_first_call_and_times_do_not_go_back(tmp_path: Path) -> None:
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=2) as rec:
        rec.predict([1, 2], [[0.5, 0.5]] * 2, time=[100.0, 99.0])
        with pytest.raises(StreamgaugeError, match="differs in user"):
            rec.predict(3, [0.5, 0.5], time=101.0, user=4)
        with pytest.raises(StreamgaugeError, match="goes back by 61 s"):
            rec.predict(3, [0.5, 0.5], time=39.0)
        rec.label(1, 0, time=200.0)
        with pytest.raises(StreamgaugeError, match="differs in time"):
            rec.label(2, 0)
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=2) as rec:  # also after a restart
        rec.predict(4, 1, time=np.datetime64("1970-01-01T00:01:30"))
        with pytest.raises(StreamgaugeError, match="differs in time"):
            rec.predict(5, 1)
    table = sg.Run(tmp_path / "mine").table("predictions")
    assert table["time"].tolist() == [100.0, 100.0, 100.0]


def test_evaluations_and_versions_go_on_after_a_restart(tmp_path: Path) -> None:
    def opened() -> sg.Recorder:
        return sg.Recorder(tmp_path / "mine", **ABOUT, classes=2)

    rec = opened()
    for task in range(3):
        rec.predict([10 * task, 10 * task + 1], [0, 1], task=task)
        rec.trained(seconds=0.5)
        for old in range(task + 1):
            rec.evaluate(task=old, correct=9 - task, count=10)
        rec._writer.close()
        rec = opened()
    assert rec.samples == 6
    rec.predict([30], [1], task=2, version=7)
    rec.trained(version=9)
    rec.predict([31], [1], task=2, shift=20)
    assert rec.samples == 7
    rec.label(np.array([0, 1, 10, 11, 20, 21, 30, 31]), [0, 1, 0, 1, 0, 1, 1, 1])
    rec.close()
    run = sg.Run(tmp_path / "mine")
    assert run.evaluations["evaluation"].tolist() == [0, 1, 1, 2, 2, 2]
    assert run.evaluations["current"].tolist() == [0, 1, 1, 2, 2, 2]
    assert run.table("predictions")["version"].tolist() == [0, 0, 1, 1, 2, 2, 7, 9]
    assert run.table("predictions")["step"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert run.stream["tasks"] == 3
    found = sg.score(run)
    assert found["online_accuracy"] == found["near_future_accuracy@20"] == 1.0
    assert found["retained_accuracy"] == pytest.approx(0.7)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "mine", 50).close()
    for change in ({"learner": "other"}, {"classes": 3}, {"seed": 1}, {"lr": 0.1}):
        with pytest.raises(StreamgaugeError, match=f"with {next(iter(change))}=|with settings="):
            sg.Recorder(tmp_path / "mine", **{**ABOUT, "classes": CLASSES, **change})
    own = sg.run(sg.stream(np.eye(4), np.arange(4)), "blind", out=tmp_path / "runs")
    with pytest.raises(StreamgaugeError, match="a run and no recording"):
        sg.Recorder(own.path, **ABOUT)


def test_a_recorder_is_the_only_one_and_closed_once(tmp_path: Path) -> None:
    rec = record(tmp_path / "mine", 50)
    with pytest.raises(StreamgaugeError, match="written by another process"):
        record(tmp_path / "mine", 50)
    fork = multiprocessing.get_context("fork")
    queue: Any = fork.SimpleQueue()

    def call() -> None:
        try:
            rec.scalar("loss", 1.0)
        except StreamgaugeError as error:
            queue.put(str(error))

    child = fork.Process(target=call)
    child.start()
    child.join()
    assert "belongs to another process" in queue.get()
    rec.close()
    rec.close()
    with pytest.raises(StreamgaugeError, match="is closed"):
        rec.flush()


def test_threads_share_a_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMIT_ROWS", 200)
    rec = sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES)

    def work(thread: int) -> None:
        for n in range(100):
            rec.predict(f"{thread}-{n}", [0.2, 0.3, 0.5])
            rec.label([f"{thread}-{n}"], ["leave"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rec.close()
    run = sg.Run(tmp_path / "mine")
    assert sorted(run.predictions["id"]) == sorted(f"{t}-{n}" for t in range(4) for n in range(100))
    assert (run.unlabelled, run.repeated) == (0, 0)
    assert run.predictions["step"].tolist() == list(range(400))
    assert len(list((tmp_path / "mine" / "log" / "predictions").iterdir())) > 3


def test_hashed_ids_are_not_in_the_folder_and_need_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def opened(**more: Any) -> sg.Recorder:
        return sg.Recorder(tmp_path / "mine", **ABOUT, classes=2, hash_ids=True, **more)

    rec = opened()
    rec.predict(["alice@example", 123456789], [0, 1], user=["alice", 987654321])
    assert sg.Run(rec.path).unlabelled == 2
    rec._writer.close()
    data = b"".join(f.read_bytes() for f in (tmp_path / "mine").rglob("*") if f.is_file())
    assert not any(word in data for word in (b"alice", b"123456789", b"987654321"))
    assert (123456789).to_bytes(4, "little") not in data
    with opened() as rec:  # the key of the configuration folder
        rec.label([123456789, "alice@example"], [1, 0])
    table = sg.Run(tmp_path / "mine").predictions
    assert table["label"].tolist() == [0, 1]
    assert len(set(table["user"].tolist())) == 2
    assert all(len(text) == 32 for text in table["id"].tolist())
    key = tmp_path / "config" / "streamgauge" / "id.key"
    assert os.stat(key).st_mode & 0o77 == 0
    with pytest.raises(StreamgaugeError, match="key="):
        opened(key="another key of mine")
    with pytest.raises(StreamgaugeError, match="at least 16 bytes"):
        opened(key="short")
    with pytest.raises(StreamgaugeError, match="recorded with hash_ids=True: give the same"):
        sg.Recorder(tmp_path / "mine", **ABOUT, classes=2)


@pytest.mark.parametrize("lost", [1, 5, 30])
def test_a_record_that_is_cut_off_is_ignored(tmp_path: Path, lost: int) -> None:
    rec = record(tmp_path / "mine", 100)
    rec.scalar("last", 1.0)
    rec._writer.close()
    file = rec._file().path
    file.write_bytes(file.read_bytes()[:-lost])
    for _ in range(2):  # as it is, and committed
        run = sg.Run(tmp_path / "mine")
        assert run.table("predictions").rows == 100
        assert "last" not in run.training["name"]
        sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES).close()


def test_a_damaged_journal_is_kept_and_named(tmp_path: Path) -> None:
    rec = record(tmp_path / "mine", 100)
    rec._writer.close()
    file = rec._file().path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="is damaged after byte"):
        rows = sg.Run(tmp_path / "mine").table("predictions").rows
    assert 0 < rows < 100
    with pytest.warns(UserWarning, match="is damaged after byte"):
        sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES).close()
    assert (tmp_path / "mine" / f"{file.name}.damaged").read_bytes() == bytes(data)
    assert sg.Run(tmp_path / "mine").table("predictions").rows == rows


def test_a_full_disk_loses_only_the_call_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rec = sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES)
    rec.predict("a", "buy")
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) - 30])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StreamgaugeError, match="No space left on device; this call is not rec"):
        rec.predict("b", "buy")
    monkeypatch.undo()
    rec.predict("c", "buy")

    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streamgauge.record.writer.write_sealed", failing)
    with pytest.raises(StreamgaugeError, match="No space left"):
        rec._commit_journal()
    monkeypatch.undo()
    assert sg.Run(tmp_path / "mine").table("predictions")["id"].tolist() == ["a", "c"]
    rec.label(["a", "c"], ["buy", "look"])
    rec.close()
    run = sg.Run(tmp_path / "mine")
    assert run.predictions["id"].tolist() == ["a", "c"]
    assert run.predictions["label"].tolist() == [0, 1]


def test_an_interrupted_commit_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the commit point the old journal takes no more calls; before, it goes on."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    rec = sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES)
    rec.predict("a", "buy")
    monkeypatch.setattr("streamgauge.record.writer.RunWriter.checkpoint", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rec._commit_journal()
    monkeypatch.undo()
    rec.predict("b", "buy")
    monkeypatch.setattr(module, "JournalFile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rec._commit_journal()
    monkeypatch.undo()
    with pytest.raises(StreamgaugeError, match="is closed: open a new one"):
        rec.predict("c", "buy")
    rec.close()
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=CLASSES) as rec:
        rec.predict("d", "buy")
    assert sg.Run(tmp_path / "mine").table("predictions")["id"].tolist() == ["a", "b", "d"]


def test_calls_without_ids_record_nothing(tmp_path: Path) -> None:
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=2) as rec:
        rec.predict([], [])
        rec.label([], [])
        rec.predict([1], [[0.5, 0.5]], time=[3.0])
        rec.label([1], [0], time=[4.0])
    run = sg.Run(tmp_path / "mine")
    assert (run.step, run.predictions["logp"].tolist()) == (1, pytest.approx([math.log(0.5)]))


def test_what_is_flushed_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rec = sg.Recorder(tmp_path / "mine", **ABOUT)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    rec.predict("a", "x")
    assert synced == []
    rec.flush()
    assert synced == [rec._file().path.stat().st_size]
    rec.close()


FREED_AFTER_COMMITS = """
import ctypes, sys, numpy as np, streamgauge as sg
from streamgauge.record.recorder import Recorder

class Mallinfo2(ctypes.Structure):
    _fields_ = [(f"field{n}", ctypes.c_size_t) for n in range(10)]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2
commit = Recorder._commit_journal

def counted(self):
    commit(self)
    print(mallinfo2().field9)  # bytes at the end of the heap that could be given back

Recorder._commit_journal = counted
scores = np.full((1000, 10), 0.1)
with sg.Recorder(sys.argv[1], stream="s", learner="l", classes=10) as rec:
    for start in range(0, 300_000, 1000):
        ids = np.arange(start, start + 1000)
        rec.predict(ids, scores)
        rec.label(ids, ids % 10)
"""


def test_memory_that_a_commit_freed_is_given_back(tmp_path: Path) -> None:
    """The C library else keeps some 10 MB after the first commit, and up to 64 MB later on."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("only glibc 2.33 or later says how much freed memory it keeps")
    done = subprocess.run(
        [sys.executable, "-c", FREED_AFTER_COMMITS, str(tmp_path / "mine")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept = list(map(int, done.stdout.split()))
    assert len(kept) >= 4
    assert max(kept) < 2e6


def test_repeated_answers_are_counted_and_the_age_is_audited(tmp_path: Path) -> None:
    label = np.random.default_rng(0).integers(0, 2, 300).repeat(3)
    with sg.Recorder(tmp_path / "mine", **ABOUT, classes=2) as rec:
        for start in range(0, 900, 9):
            ids = np.arange(start, start + 9)
            rec.predict(ids, label[ids], age=9)
            rec.label(ids, label[ids])
            rec.predict(ids[:1], 1 - label[ids[:1]], age=0)  # again, with another answer
    run = sg.Run(tmp_path / "mine")
    assert (run.repeated, run.unlabelled) == (100, 0)
    assert sg.score(run)["online_accuracy"] == 1.0
    found = audit(tmp_path / "mine")
    assert (found.samples, found.unlabelled, found.values["online"]) == (900, 0, 1.0)
    assert found.columns["age"] == "age"
    page = Path(sg.plot([run], tmp_path / "report.html")).read_text()
    assert "100 answers repeat an earlier one" in page
    (line,) = [line for line in scores_text([run]).splitlines() if "learning_seconds" in line]
    assert "unknown" in line  # no call of `trained` said


def test_a_reader_sees_every_call_while_the_writer_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is committed between the reader's look at the commit point and at the journal."""
    rec = record(tmp_path / "mine", 100)
    committed: list[Path] = []

    def late(path: Path) -> bytes:
        if path.name.startswith("journal-") and not committed:
            committed.append(path)
            rec._commit_journal()
            rec.scalar("after", 1.0)
        return read_bytes(path)

    monkeypatch.setattr("streamgauge.tables.journal.read_bytes", late)
    progress, content = read_journal(tmp_path / "mine")
    assert committed
    assert content is not None
    assert (progress["recorder"]["journal"], len(content.answers)) == (1, 0)
    assert content.rows["training"] == [{"name": "after", "value": 1.0, "step": 9}]
    monkeypatch.undo()
    rec.close()
    assert (
        json.loads((tmp_path / "mine" / "progress.json").read_text())["recorder"]["samples"] == 100
    )


def test_no_call_that_returned_is_lost_by_a_kill(tmp_path: Path) -> None:
    assert kill_recorder.kill_and_go_on(tmp_path / "mine", 20, longest=0.1) > 100


@pytest.mark.long
def test_no_call_that_returned_is_lost_by_200_kills(tmp_path: Path) -> None:
    assert kill_recorder.kill_and_go_on(tmp_path / "mine", 200) > 1000


@pytest.mark.parametrize(
    ("arguments", "keywords", "wrong"),
    [
        ((), {}, "Missing a required argument: 'path'"),
        (("mine",), {}, "Missing a required (keyword-only )?argument: 'stream'"),
        (("mine",), {"stream": "s"}, "Missing a required (keyword-only )?argument: 'learner'"),
        (("mine", "s", "er"), {}, "Too many positional arguments"),
    ],
)
def test_missing_arguments_of_a_recorder_are_a_sentence(
    arguments: Any, keywords: Any, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write = r": write sg\.Recorder\(path, stream=\.\.\., learner=\.\.\.\)\."
    with pytest.raises(StreamgaugeError, match=f"^{wrong}{write}$"):
        sg.Recorder(*arguments, **keywords)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answers", [["ok", "bad"], [0, 1]])
def test_vocabularies_that_never_meet_are_an_error_that_shows_both(
    answers: list[Any], tmp_path: Path
) -> None:
    with sg.Recorder(tmp_path / "run", stream="s", learner="mine") as recorder:
        for number in range(40):
            recorder.predict([number], [answers[number % 2]])
            recorder.label([number], [["OK", "BAD"][number % 2]])
            if number == 10:  # too early to tell
                with pytest.warns(UserWarning, match="accuracy of 0 means nothing"):
                    assert sg.score(sg.Run(tmp_path / "run"))["online_accuracy"] == 0
    shown = ", ".join(repr(str(answer)) for answer in answers)
    with pytest.raises(sg.StreamgaugeError, match=f"labels are 'OK', 'BAD', answers {shown}"):
        sg.score(tmp_path / "run")


def test_one_sample_is_told_apart_from_a_wrong_answer_where_classes_are_known(
    tmp_path: Path,
) -> None:
    for classes in (None, ["a", "A"]):
        with sg.Recorder(tmp_path / f"{classes}", **ABOUT, classes=classes) as recorder:
            recorder.predict(1, "a")
            recorder.label(1, "A")
    with pytest.warns(UserWarning, match="labels are 'A', answers 'a'"):
        assert sg.score(tmp_path / "None")["online_accuracy"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert sg.score(tmp_path / str(["a", "A"]))["online_accuracy"] == 0


def test_labels_for_ids_without_an_answer_are_told(call: Any, tmp_path: Path) -> None:
    with sg.Recorder(tmp_path / "run", **ABOUT) as recorder:
        recorder.predict([10, 11], ["a", "b"])
        recorder.label(["a", "b"], [10, 11])  # ids and labels swapped
    sentence = (
        r"came for 2 ids that have no answer \(the first label is '10'\)\."
        r" Answers have ids such as '10'\. `label` takes the ids first"
    )
    with pytest.warns(UserWarning, match=sentence), pytest.raises(StreamgaugeError):
        sg.score(tmp_path / "run")
    code, _, err = call("score", str(tmp_path))
    assert (code, len(re.findall(sentence, err)), "Warning" in err) == (0, 1, False)
