"""Log version 2: labels that come after the answers, or never; see `tests/corpus/make.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import streamgauge as sg
from streamgauge.audit import audit
from streamgauge.errors import StreamgaugeError
from streamgauge.record import RunWriter
from streamgauge.record.diff import differences
from streamgauge.report import leaderboard
from streamgauge.report.terminal import differences_text, scores_text
from streamgauge.tables.late import LateLabels

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))
import make

(RECORDED,) = (make.HERE / "log2" / "finished").iterdir()


def newest_by_hand(run: sg.Run) -> dict[int, tuple[float, int]]:
    """Sample -> time and label, by a loop over the table as it is stored."""
    newest: dict[int, tuple[float, int]] = {}
    table = run.table("labels")
    for sample, label, time in zip(
        *(table[name].tolist() for name in ("sample", "label", "label_time")), strict=True
    ):
        if sample not in newest or time >= newest[sample][0]:
            newest[sample] = time, label
    return newest


def test_labels_are_joined_to_the_answers() -> None:
    run = sg.Run(RECORDED)
    newest = newest_by_hand(run)
    assert len(newest) < run.table("labels").rows  # some labels were corrected
    answers, stored = run.predictions, run.table("predictions")
    known = np.isin(stored["sample"], list(newest))
    assert 10 < run.unlabelled == (~known).sum()
    assert answers.rows == known.sum()
    for column in ("sample", "prediction", "logp", "id", "time"):
        np.testing.assert_array_equal(answers[column], stored[column][known])
    pairs = [newest[sample] for sample in answers["sample"].tolist()]
    assert list(zip(answers["label_time"], answers["label"], strict=True)) == pairs
    assert answers["label"].dtype == np.int32
    pieces = list(answers.pieces(["label", "confidence"], rows=100))
    np.testing.assert_array_equal(np.concatenate([p["label"] for p in pieces]), answers["label"])
    right = np.mean(answers["label"] == answers["prediction"])
    assert sg.score(run)["online_accuracy"] == pytest.approx(right)


def test_a_recorded_run_is_audited_with_the_times_of_its_labels() -> None:
    run = sg.Run(RECORDED)
    found = audit(RECORDED)
    assert found.columns["label_time"] == "label_time"
    assert found.columns["logp"] == "logp"
    assert found.samples == run.predictions.rows
    assert found.unlabelled == run.unlabelled
    assert found.values["online"] == pytest.approx(sg.score(run)["online_accuracy"])
    assert audit(RECORDED / "log" / "predictions").values["online"] == found.values["online"]


def test_scores_and_reports_say_how_many_answers_have_no_label(tmp_path: Path) -> None:
    run = sg.Run(RECORDED)
    said = f"mine, seed 0: {run.unlabelled} answers have no label and are not scored."
    (board,) = leaderboard([run])
    assert said in board.left_out
    assert said in scores_text([run])
    assert said in Path(sg.plot([run], tmp_path / "report.html")).read_text()


def test_versions_1_and_2_are_compared_on_the_columns_that_both_have(tmp_path: Path) -> None:
    old = make.write_recorded(tmp_path / "old", late=False)
    new = make.write_recorded(tmp_path / "new", complete=True)
    assert (old.header["log_version"], new.header["log_version"]) == (1, 2)
    found = differences(old, new)
    assert found["same"]
    assert found["columns"] == {"predictions": [[], ["logp", "id", "label_time"]]}
    text = differences_text(found)
    assert "only the second log has predictions: logp, id, label_time" in text
    assert "identical in the columns that both have" in text
    # A label that never came is a difference, at its row.
    some = differences(old, sg.Run(RECORDED))["logs"]["predictions"]
    missing = np.setdiff1d(old.predictions["sample"], sg.Run(RECORDED).predictions["sample"])
    assert (some["row"], some["columns"]) == (missing[0], ["label"])
    repeated = make.write_recorded(tmp_path / "again")
    again = differences(sg.Run(RECORDED), repeated)
    assert again["columns"] == {}
    logp, before = repeated.predictions["logp"], sg.Run(RECORDED).predictions["logp"]
    assert np.allclose(logp, before, rtol=1e-12)  # NumPy's versions round logarithms differently
    assert again["logs"] == {} or again["logs"]["predictions"]["columns"] == ["logp"]


def test_columns_that_one_log_of_a_version_has_are_a_difference(tmp_path: Path) -> None:
    runs = []
    for name, absent in (("a", {"task"}), ("b", {"task", "user"})):
        writer = RunWriter(tmp_path / name, make.recorded_header(), frozenset(absent))
        writer.rows["predictions"].append(600, **make.recorded_rows(True)[0])
        writer.checkpoint(60, None, done=True)
        writer.close()
        runs.append(sg.Run(tmp_path / name))
    found = differences(*runs)
    assert not found["same"]
    assert found["columns"] == {"predictions": [["user"], []]}
    assert "differ only in the columns" in differences_text(found)


def test_a_log_without_what_version_2_adds_stays_version_1(tmp_path: Path) -> None:
    run = make.write_recorded(tmp_path / "run", late=False)
    assert run.header["log_version"] == 1
    assert "labels" not in json.loads((run.path / "progress.json").read_text())["segments"]
    assert list(run.predictions) == list(run.table("predictions"))
    assert "logp" not in run.predictions
    assert run.unlabelled == 0


def write_tables(folder: Path, predictions: dict[str, Any], labels: dict[str, Any]) -> Path:
    for name, columns in (("predictions", predictions), ("labels", labels)):
        (folder / "log" / name).mkdir(parents=True)
        parquet.write_table(pa.table(columns), folder / "log" / name / "00000.parquet")
    return folder


def test_a_label_among_the_predictions_comes_first(tmp_path: Path) -> None:
    """Some rows have their label at once; of those without, some get one later."""
    n = 400
    sample = np.arange(n)
    label = sample % 3
    at_once = sample % 4 == 0
    late = (sample % 4 == 1) | (sample % 8 == 0)
    predictions = {
        "sample": sample,
        "step": sample,
        "label": pa.array(np.where(at_once, label, 0), mask=~at_once),
        "prediction": label,
        "shift": np.zeros(n, int),
        "time": sample * 10.0,
    }
    labels = {
        "sample": sample[late],
        "label": np.where(at_once, 7, label)[late],  # of those with a label at once: not used
        "label_time": sample[late] * 10.0 + 500,
    }
    folder = write_tables(tmp_path / "run", predictions, labels)
    known = at_once | late
    found = audit(folder)
    assert (found.samples, found.unlabelled) == (known.sum(), (~known).sum())
    assert found.values["online"] == 1.0
    from streamgauge.audit.log import PredictionLog
    from streamgauge.audit.tally import join

    rows = join(list(PredictionLog(folder).pieces()))
    expected = np.where(at_once, sample * 10, sample * 10 + 500)[known]
    np.testing.assert_array_equal(rows.label_time, expected)
    header = {"log_version": 2, **make.recorded_header()}
    (folder / "run.json").write_text(json.dumps(header))
    done = {"step": n, "done": True, "checkpoint": None}
    segments = {"predictions": 1, "labels": 1}
    (folder / "progress.json").write_text(json.dumps({**done, "segments": segments}))
    run = sg.Run(folder)
    np.testing.assert_array_equal(run.predictions["label"], label[known])
    np.testing.assert_array_equal(run.predictions["label_time"], expected)


def test_a_recorded_run_is_audited_in_pieces(tmp_path: Path) -> None:
    def serial_map(function: Any, tasks: Any) -> list[Any]:
        return [function(*task) for task in tasks]

    make.write_recorded(tmp_path / "run", complete=True)
    one = audit(tmp_path / "run", hold=100)
    many = audit(tmp_path / "run", hold=100, spread=serial_map, rows=200)
    assert many.to_dict() == one.to_dict()
    assert one.values["online"] == audit(tmp_path / "run").values["online"]


def test_names_are_joined_too_and_tables_without_samples_are_refused(tmp_path: Path) -> None:
    n = 300
    names = np.array(["cat", "dog"])[np.arange(n) % 2]
    labels = {"sample": np.arange(n)[::-1], "label": names[::-1]}
    answers = {"sample": np.arange(n), "prediction": names}
    assert audit(write_tables(tmp_path / "a", answers, labels)).values["online"] == 1.0
    del answers["sample"]
    with pytest.raises(StreamgaugeError, match="no column 'sample'"):
        audit(write_tables(tmp_path / "b", answers, labels))


def test_the_newest_label_counts() -> None:
    late = LateLabels(np.array([5, 3, 5, 3, 5, 9]), np.array([2.0, 7, 9, 7, np.nan, np.nan]))
    assert late.find(np.array([3, 4, 5, 9, 10, -1])).tolist() == [3, -1, 2, 5, -1, -1]
    assert LateLabels(np.zeros(0, int), np.zeros(0)).find(np.array([0, 1])).tolist() == [-1, -1]


def test_rows_of_text_and_target_columns_are_written(tmp_path: Path) -> None:
    added = frozenset({"target", "answer", "id"})
    writer = RunWriter(tmp_path / "run", make.recorded_header(), frozenset({"task"}), added)
    rows = make.recorded_rows(True)[0]
    target = np.linspace(0, 1, 600)
    writer.rows["predictions"].append(600, **rows, target=target, answer=target + 0.5)
    writer.checkpoint(60, None)
    writer.close()
    # Recording goes on in the same folder.
    writer = RunWriter(tmp_path / "run", make.recorded_header(), frozenset({"task"}), added)
    assert writer.step == 60
    writer.rows["predictions"].append(600, **rows, target=target, answer=target + 0.5)
    writer.checkpoint(120, None, done=True)
    writer.close()
    table = sg.Run(tmp_path / "run").predictions
    assert table.rows == 1200
    assert table["id"].tolist() == rows["id"] * 2
    np.testing.assert_array_equal(table["answer"][:600], target + 0.5)
