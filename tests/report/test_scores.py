"""Stored runs from Python: `sg.find_runs`, `sg.score`, `sg.compare`, tables as data frames."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streamgauge as sg
from streamgauge.cli import main
from streamgauge.errors import StreamgaugeError
from streamgauge.metrics import compare as compare_values
from streamgauge.metrics import score as score_log


def stream(seed: int, batch: int = 5) -> sg.streams.Stream:  # type: ignore[name-defined]
    """Labels that stay for 20 samples, so that learners without input differ."""
    rng = np.random.default_rng(seed)
    label = np.repeat(rng.integers(0, 4, 60), 20)
    return sg.stream(rng.random((1200, 3), np.float32), label, batch=batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two learners, three seeds each."""
    out = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for learner in ("blind", "majority"):
            sg.run(stream(seed), learner, seed=seed, out=out, log=lambda _: None)
    return out


def of(folder: Path, learner: str) -> list[sg.Run]:
    return [run for run in sg.find_runs(folder) if run.learner == learner]


def test_find_runs_takes_one_folder_or_several(folder: Path) -> None:
    runs = sg.find_runs(str(folder))
    assert len(runs) == 6
    assert [run.path for run in sg.find_runs([folder])] == [run.path for run in runs]
    assert sg.find_runs(runs[0].path)[0].path == runs[0].path
    assert sg.find_runs(runs) == runs


def test_score_of_a_folder_or_a_list_gives_every_run(folder: Path) -> None:
    runs = sg.find_runs(folder)
    rows = sg.score(folder)
    assert rows == sg.score(runs) == sg.score(str(folder)) == sg.score([run.path for run in runs])
    assert len(rows) == 6
    for run, row in zip(runs, rows, strict=True):
        own = {name: row.pop(name) for name in ("path", "stream", "learner", "seed", "done")}
        assert (own["learner"], own["seed"]) == (run.learner, run.seed)
        assert row == score_log(run) == sg.score(run) == sg.score(run.path)


def test_a_recording_without_a_labelled_answer_says_why_nothing_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(name: str, answers: int, labels: int) -> Path:
        about = {"stream": "s", "learner": name, "classes": 2}
        with sg.Recorder(tmp_path / name, **about) as recorder:  # type: ignore[arg-type]
            for at in range(answers):
                recorder.predict(at, 1)
            for at in range(labels):
                recorder.label(at, 1)
        return tmp_path / name

    reasons = {
        record("labels", 0, 1): "no answer and no evaluation is stored.",
        record("answers", 3, 0): "3 answers are stored, but none of their labels.",
    }
    record("both", 3, 3)
    for path, why in reasons.items():
        with pytest.raises(StreamgaugeError, match=f"{path} has nothing to score: {why}"):
            sg.score(path)
    assert len(sg.score(tmp_path)) == 3  # others do not keep a run from being scored
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["streamgauge", "score", str(tmp_path), *more])
        with pytest.raises(SystemExit) as stop:
            main()
        out = "".join(capsys.readouterr())
        assert stop.value.code == 0
        assert out.count("has nothing to score") == 2
        assert all(why in out for why in reasons.values())


def test_score_of_columns_says_what_to_call() -> None:
    for columns in ({"label": [1]}, pa.table({"label": [1]}), 42):
        with pytest.raises(StreamgaugeError, match=r"sg\.audit_log\(columns\)"):
            sg.score(columns)


def test_a_table_of_a_run_becomes_a_data_frame(folder: Path) -> None:
    table = sg.find_runs(folder)[0].predictions
    assert isinstance(table, dict)  # what pandas and polars test for
    expected = {name: table[name] for name in table}
    for copy in (dict(table), {**table}, table | {}, {} | table, table.copy(),
                 pickle.loads(pickle.dumps(table))):  # fmt: skip
        assert list(copy) == list(expected)
        for name, column in copy.items():
            np.testing.assert_array_equal(column, expected[name])
    arrow = pa.table(table)
    assert arrow.column_names == list(expected)
    assert arrow["label"].to_pylist() == expected["label"].tolist()
    assert "1,200 rows" in repr(table)
    with pytest.raises(TypeError, match="cannot be changed"):
        table["label"] = expected["label"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_of_a_run_in_pandas_and_polars(folder: Path, library: str) -> None:
    frames = pytest.importorskip(library)
    table = sg.find_runs(folder)[0].predictions
    frame = frames.DataFrame(table)
    assert frame.shape == (1200, len(table))
    assert list(frame.columns) == list(table)
    np.testing.assert_array_equal(frame["prediction"].to_numpy(), table["prediction"])
    assert frames.DataFrame(sg.score(folder)).shape[0] == 6


def test_dir_shows_the_tables_of_a_run(folder: Path) -> None:
    names = dir(sg.find_runs(folder)[0])
    assert {"predictions", "evaluations", "jobs", "training", "timing", "path"} <= set(names)


def test_a_run_can_be_audited(folder: Path) -> None:
    run = sg.find_runs(folder)[0]
    assert sg.audit_log(run).values == sg.audit_log(run.path).values


def test_compare_says_which_is_better_and_how_surely(folder: Path) -> None:
    blind, majority = of(folder, "blind"), of(folder, "majority")
    found = sg.compare(blind, majority)
    correct = [
        [run.predictions["label"] == run.predictions["prediction"] for run in runs]
        for runs in (blind, majority)
    ]
    slow = compare_values(*correct)  # equal steps: the same blocks of samples
    assert found.metric == "online_accuracy"
    assert (found.seeds, found.blocks) == (3, 10)
    for name in ("difference", "low", "high", "p"):
        assert getattr(found, name) == pytest.approx(getattr(slow, name))
    assert found.better == "blind"
    assert "blind is better than majority by" in str(found)
    other = sg.compare(majority, blind)
    assert other.better == "blind"
    assert other.difference == pytest.approx(-found.difference)
    assert sg.compare(blind[0], majority[0].path).better == "blind"


def test_compare_by_a_score_of_which_less_is_better(folder: Path) -> None:
    blind, majority = of(folder, "blind"), of(folder, "majority")
    found = sg.compare(majority, blind, metric="kappa")
    assert (found.better, found.blocks) == ("blind", 0)
    less = sg.compare(blind, majority, metric="calibration_error")
    expected = "blind" if less.difference < 0 else "majority"
    assert less.better in (None, expected)
    alone = sg.compare(blind[0], majority[0], metric="kappa")
    assert alone.better is None
    assert "one seed cannot tell" in str(alone)


def test_compare_of_equal_runs_finds_no_difference(folder: Path) -> None:
    blind = of(folder, "blind")
    same = sg.compare(blind, blind)
    assert (same.difference, same.p, same.better) == (0, 1, None)
    assert "cannot be told apart" in str(same)


def test_compare_refuses_what_cannot_be_paired(folder: Path, tmp_path: Path) -> None:
    blind, majority = of(folder, "blind"), of(folder, "majority")
    with pytest.raises(StreamgaugeError, match="runs of blind and majority"):
        sg.compare(folder, blind)
    with pytest.raises(StreamgaugeError, match=r"seeds \[0, 1\] and majority has \[2\]"):
        sg.compare(blind[:2], majority[2:])
    other = sg.run(stream(9), "majority", out=tmp_path, log=lambda _: None)
    with pytest.raises(StreamgaugeError, match="not on the same stream"):
        sg.compare(blind, other)
    with pytest.raises(StreamgaugeError, match="did you mean 'kappa'"):
        sg.compare(blind, majority, metric="kapa")
    assert "1 run without a partner" in str(sg.compare(blind, majority[1:]))


def test_compare_says_what_would_settle_it(folder: Path) -> None:
    blind, majority = of(folder, "blind"), of(folder, "majority")
    settled = sg.compare(blind, majority)
    assert settled.plan is not None
    assert (settled.plan.difference, settled.plan.seeds) == (None, None)
    assert "3 seeds of 1,200 samples find a true difference of" in str(settled.plan)
    asked = sg.compare(blind, majority, metric="kappa", difference=0.01).plan
    assert asked is not None
    assert asked.seeds is not None
    assert asked.samples is None
    assert f"takes {asked.seeds} seeds." in str(asked)
    one = sg.compare(blind[0], majority[0], difference=0.01).plan
    assert one is not None
    assert one.seeds is None
    assert one.samples is not None
    assert one.samples > 1200
    assert f"{one.samples:,} samples per run with 1 seed" in str(one)
    same = sg.compare(blind, blind).plan
    assert "No variance was measured" in str(same)


def test_power_from_a_baseline_is_twice_its_variance(folder: Path) -> None:
    blind = of(folder, "blind")
    values = [sg.score(run)["kappa"] for run in blind]
    found = sg.power(blind, metric="kappa", difference=0.05)
    scaled = sg.power(deviation=float(np.std(values, ddof=1) * np.sqrt(2)), difference=0.05)
    assert found.seeds is not None
    assert scaled.seeds is not None
    assert found.seeds > scaled.seeds  # three seeds know the deviation badly
    paired = sg.power(blind, metric="kappa", difference=0.05, correlation=0.5)
    assert paired.seeds is not None
    assert paired.seeds < found.seeds
    assert [seeds for seeds, _, _ in found.smallest] == [3, 5, 10, 20]
    assert sg.power(blind[0], difference=0.01).samples > 1200
    for wrong, why in [
        ({"baseline": folder}, "several learners"),
        ({"baseline": blind[0], "metric": "kappa"}, "one number per seed"),
        ({"deviation": 0.1, "difference": 0.0}, "must not be 0"),
        ({"block_deviation": 0.1}, "block deviation needs samples"),
        ({}, "Give one of these"),
        ({"baseline": blind, "correlation": 1.0}, "below 1"),
    ]:
        with pytest.raises(StreamgaugeError, match=why):
            sg.power(**wrong)


def test_compare_refuses_runs_of_two_protocols(folder: Path, tmp_path: Path) -> None:
    other = sg.run(
        stream(0), "blind", out=tmp_path, protocol=sg.Protocol(shifts=(10,)), log=lambda _: None
    )
    with pytest.raises(StreamgaugeError, match=r"differ in the stream or the protocol \(protocol"):
        sg.compare([*of(folder, "blind"), other], of(folder, "majority"))


def test_the_commands_compare_and_power(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str, code: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["streamgauge", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == code
        out = capsys.readouterr()
        return out.out + out.err

    text = said("compare", "blind", "majority", "--runs", str(folder))
    assert "blind is better than majority by" in text
    assert re.search(r"seed 2 +\d+\.\d +\d+\.\d", text)
    assert "find a true difference of" in text
    first, second = (str(of(folder, name)[0].path) for name in ("blind", "majority"))
    found = json.loads(said("compare", first, second, "--json"))
    assert found["better"] == "blind"
    assert found["plan"]["smallest"][0]["seeds"] == 1
    assert "did you mean 'blind'" in said("compare", "blid", "er", "--runs", str(folder), code=2)
    assert "--runs FOLDER" in said("compare", "a", "b", "--runs", "nowhere", code=2)
    assert "no run on 'albums'" in said("compare", first, second, "--stream", "albums", code=2)
    text = said("power", "--deviation", "0.01", "--difference", "0.01")
    assert "takes 10 seeds." in text
    assert json.loads(said("power", first, "--json"))["smallest"][1]["samples"] == 2400


def test_the_python_part_of_the_page_runs_as_written(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (code,) = re.findall(r"```python\n(import streamgauge as sg\n\n.*?)```", page, re.DOTALL)
    (tmp_path / "runs").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    exec(code.replace('"er"', '"majority"'), {})
    assert "blind is better than majority by" in capsys.readouterr().out
