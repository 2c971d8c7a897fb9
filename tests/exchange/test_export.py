"""Runs in other tools: what the real library reads back is what the log says, and what was logged
live is what an export gives."""

from __future__ import annotations

import csv
import json
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.exchange import open_sink
from streamgauge.exchange.replay import Windows, curves, end_scalars
from streamgauge.exchange.sinks import CsvFiles

Points = dict[str, list[tuple[int, float]]]


def expected(run: sg.Run, window: int) -> Points:
    """Every scalar by name, by plain loops over the rows of the log."""
    points: Points = defaultdict(list)
    table = run.predictions
    for shift, prefix in ((0, "online"), (200, "near_future@200")):
        hits: list[bool] = []
        start = 0
        rows = [row for row in range(len(table["step"])) if table["shift"][row] == shift]
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            hits.append(bool(table["label"][row] == table["prediction"][row]))
            step = int(table["step"][row])
            ends = following is None or table["step"][following] != step
            if ends and len(hits) - start >= window:
                points[f"{prefix}/window_accuracy"].append((step + 1, float(np.mean(hits[start:]))))
                points[f"{prefix}/accuracy"].append((step + 1, float(np.mean(hits))))
                start = len(hits)
    evaluations = run.evaluations
    steps = sorted({int(step) for step in evaluations["step"]})
    for step in steps:
        right = count = 0
        for row in range(len(evaluations["step"])):
            if evaluations["step"][row] == step and evaluations["within"][row] < 0:
                name = f"evaluation/held_out/task_{evaluations['task'][row]}"
                share = evaluations["correct"][row] / evaluations["count"][row]
                points[name].append((step, float(share)))
                right += int(evaluations["correct"][row])
                count += int(evaluations["count"][row])
        points["evaluation/held_out"].append((step, right / count))
    for row in range(len(run.training["step"])):
        name = f"training/{run.training['name'][row]}"
        points[name].append((int(run.training["step"][row]), float(run.training["value"][row])))
    for name, value in sg.score(run).items():
        points[f"score/{name}"].append((run.step, value))
    return points


def read_csv(folder: Path, run: sg.Run) -> Points:
    points: Points = defaultdict(list)
    with open(folder / f"{run.path.name}.curves.csv", newline="") as file:
        for row in csv.DictReader(file):
            points[row["name"]].append((int(row["step"]), float(row["value"])))
    return points


def test_the_scalars_of_a_run_are_those_of_slow_loops_over_its_log(
    task_run: sg.Run, tmp_path: Path
) -> None:
    assert sg.export(task_run, "csv", tmp_path, window=70)[0].path == task_run.path
    assert read_csv(tmp_path, task_run) == expected(task_run, 70)
    with open(tmp_path / f"{task_run.path.name}.settings.csv", newline="") as file:
        settings = dict(csv.reader(file))
    assert settings["learner"] == "finetune"
    assert settings["stream.batch"] == "10"
    assert "finetune.lr" in settings


def test_a_run_without_tasks_is_exported(tmp_path: Path) -> None:
    x, y = np.zeros((200, 2), np.float32), np.arange(200) % 2
    run = sg.run(sg.stream(x, y, batch=10, held_out=0.2), "majority", out=tmp_path, progress=False)
    assert "task" not in run.evaluations
    sg.export(run, "csv", tmp_path)
    points = read_csv(tmp_path, run)
    assert points["evaluation/held_out"][-1] == (run.step, sg.score(run)["retained_accuracy"])
    assert len(points["evaluation/held_out"]) == 3  # at each third of the stream
    assert not any(name.startswith("evaluation/held_out/task") for name in points)


def test_tensorboard_reads_what_was_exported(task_run: sg.Run, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / task_run.path.name
    folder.mkdir()
    (folder / "events.out.tfevents.1.other").touch()
    for _ in range(2):  # the second export replaces the first
        sg.export(task_run.path, "tensorboard", tmp_path, window=70)
    files = sorted(path.name for path in folder.iterdir())
    assert [name.endswith(".streamgauge") for name in files] == [False, True]
    read = EventAccumulator(str(folder / files[1]), size_guidance={"scalars": 0})
    read.Reload()
    wanted = expected(task_run, 70)
    assert set(read.Tags()["scalars"]) == set(wanted)
    for name, points in wanted.items():
        found = [(event.step, event.value) for event in read.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in points]
        assert [v for _, v in found] == pytest.approx([v for _, v in points], rel=1e-6)
    assert "_hparams_/session_start_info" in read.summary_metadata


def test_mlflow_reads_what_was_exported(
    task_run: sg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        sg.export(task_run.path, "mlflow", "tracked", window=70)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'tracked' / 'mlflow.db'}")
    (experiment,) = (e for e in client.search_experiments() if e.name == "blobs")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["learner"] == "finetune"
    assert run.data.tags["streamgauge.id"] == task_run.id
    wanted = expected(task_run, 70)
    assert len(run.data.metrics) == len(wanted)
    for name in ("online/window_accuracy", "near_future@200/accuracy", "score/kappa_t"):
        history = client.get_metric_history(run.info.run_id, name.replace("@", "_"))
        assert [(point.step, point.value) for point in history] == wanted[name]
    assert [path.name for path in tmp_path.iterdir()] == ["tracked"]  # no stray folder


def wandb_records(file: Path) -> Iterator[bytes]:
    """The records of an offline run, in LevelDB's log format: blocks of 32 KB, each record in one
    or more parts of (checksum, length, kind)."""
    content, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.long
def test_wandb_takes_a_run_offline(task_run: sg.Run, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    sg.export(task_run.path, "wandb", tmp_path, window=70)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found, settings = defaultdict(list), {}
    for data in wandb_records(file):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            settings = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        items = {
            item.key or ".".join(item.nested_key): item.value_json for item in record.history.item
        }
        for name, value in items.items():
            if not name.startswith("_") and name != "stream_step":
                found[name].append((int(items["stream_step"]), float(value)))
    assert found == expected(task_run, 70)
    assert settings["learner"] == "finetune"


def test_a_live_log_is_what_an_export_gives(tmp_path: Path) -> None:
    stream = sg.stream("blobs", batch=10)
    calls = []
    with sg.LiveLog("csv", tmp_path / "live", window=70).combined_with(calls.append) as live:
        run = sg.run(stream, "ncm", out=tmp_path / "runs", progress=live)
        during = (tmp_path / "live" / f"{run.path.name}.curves.csv").read_text()
    assert "score/" not in during
    assert len(calls) == run.step
    sg.export(run.path, "csv", tmp_path / "later", window=70)
    assert read_csv(tmp_path / "live", run) == read_csv(tmp_path / "later", run)


def test_a_live_log_of_a_resumed_run_has_all_of_it(tmp_path: Path) -> None:
    stream = sg.stream("blobs", batch=10)
    sg.run(stream, "ncm", out=tmp_path, progress=False, steps=25)
    with sg.LiveLog("csv", tmp_path / "live", window=70) as live:
        run = sg.run(stream, "ncm", out=tmp_path, progress=live)
    sg.export(run.path, "csv", tmp_path / "later", window=70)
    assert read_csv(tmp_path / "live", run) == read_csv(tmp_path / "later", run)


def test_a_failing_tool_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(sink: CsvFiles, name: str, value: float, step: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(CsvFiles, "scalar", fails)
    stream = sg.stream("blobs", batch=10)
    with pytest.warns(RuntimeWarning, match="ended at step 7: No space left"):  # noqa: SIM117
        with sg.LiveLog("csv", tmp_path / "live", window=70) as live:
            run = sg.run(stream, "ncm", out=tmp_path / "runs", progress=live)
    assert run.done
    assert "No space left" in live.problem


def test_run_logs_to_a_tool_and_says_what_was_complete(call: Any, tmp_path: Path) -> None:
    words = ("run", "--stream", "blobs", "--learner", "random", "--out", "runs", "--log-to", "csv")
    code, out, _ = call(*words, "--log-out", "live")
    assert code == 0
    assert "The files are in live" in out
    (curves_file,) = (tmp_path / "live").glob("*.curves.csv")
    code, out, _ = call(*words)
    assert code == 0
    assert "was complete already: streamgauge export runs" in out
    code, out, _ = call("export", "runs", "--to", "csv", "--out", "live2")
    assert code == 0
    assert (tmp_path / "live2" / curves_file.name).read_text() == curves_file.read_text()
    assert call("run", "--stream", "blobs", "--learner", "random", "--log-out", "x")[0] == 2


def test_errors_are_one_sentence(
    task_run: sg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(sg.StreamgaugeError, match="did you mean 'mlflow'"):
        sg.export(task_run.path, "mlflo", tmp_path)
    with pytest.raises(sg.StreamgaugeError, match="did you mean 'wandb'"):
        sg.LiveLog("wandbb")
    with pytest.raises(sg.StreamgaugeError, match="--window must be 1 or more"):
        sg.export(task_run.path, "csv", tmp_path, window=0)
    for name, module in (("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "tensorboard")):
        for loaded in [key for key in sys.modules if key.partition(".")[0] == module]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(sg.StreamgaugeError, match=rf"pip install .streamgauge\[{name}\]"):
            open_sink(name, str(tmp_path / name), task_run)


def test_a_short_stream_gives_one_point_and_a_half_window_gives_none() -> None:
    windows = Windows(100)
    assert list(windows.feed(1, 3, 4)) == []
    assert [step for _, _, step in windows.feed(2, 6, 8, last=True)] == [2, 2]
    windows = Windows(8)
    assert len(list(windows.feed(1, 3, 9))) == 2
    assert list(windows.feed(2, 4, 12, last=True)) == []


def test_a_run_without_answers_exports_nothing_wrong(task_run: sg.Run) -> None:
    """NaN and infinite scalars are left out; every value of a log is finite or skipped."""
    values = [value for _, value, _ in (*curves(task_run), *end_scalars(task_run))]
    assert np.isfinite(values).all()


def test_a_tool_that_fails_at_the_end_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(sink: CsvFiles) -> None:
        raise OSError("The server is gone")

    monkeypatch.setattr(CsvFiles, "close", fails)
    live = sg.LiveLog("csv", tmp_path / "live")
    run = sg.run(sg.stream("blobs", batch=10), "ncm", out=tmp_path / "runs", progress=live)
    with pytest.warns(RuntimeWarning, match="ended after the run: The server is gone"):
        live.close()
    assert run.done
