"""Inputs of one's own tables: scales, text, missing cells, ids; and what is said about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamgauge as sg
from streamgauge.streams.own.tabular import SLOTS


def accuracy(stream: sg.Stream, learner: str, out: Path, **settings: Any) -> float:
    run = sg.run(stream, sg.learner(learner, **settings), out=out, device="cpu")
    rows = run.predictions
    return float((rows["label"] == rows["prediction"]).mean())


def write_csv(path: Path, x: np.ndarray, y: np.ndarray) -> str:
    names = [f"f{number}" for number in range(x.shape[1])]
    lines = [
        ",".join([*map(repr, row.tolist()), str(label)]) for row, label in zip(x, y, strict=True)
    ]
    path.write_text("\n".join([",".join([*names, "label"]), *lines]))
    return str(path)


def measurements(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Generated tables like the well-known ones of cell nuclei and of wines: positive columns that
    differ in size by a factor of thousands, two or three classes that overlap a little."""
    rng = np.random.default_rng(7)
    rows, columns, classes = {"cells": (569, 30, 2), "wines": (178, 13, 3)}[kind]
    y = rng.integers(0, classes, rows)
    centre = rng.normal(0, 1.6 if kind == "wines" else 0.7, (classes, columns))
    latent = rng.normal(size=(rows, columns)) + centre[y]
    size = 10 ** rng.uniform(-2.5, 3, columns)
    return size * np.exp(0.3 * latent), y


@pytest.mark.parametrize(("kind", "batch"), [("cells", 10), ("wines", 1), ("wines", 10)])
@pytest.mark.parametrize("learner", ["er", "finetune"])
def test_a_raw_table_reaches_the_accuracy_of_a_standardised_copy(
    kind: str, learner: str, batch: int, tmp_path: Path
) -> None:
    x, y = measurements(kind)
    raw = write_csv(tmp_path / "raw.csv", x, y)
    standardised = write_csv(tmp_path / "std.csv", (x - x.mean(0)) / x.std(0), y)
    how: dict[str, Any] = {"batch": batch}
    online = accuracy(sg.stream("tabular", path=raw, **how), learner, tmp_path, model="mlp")
    copy = sg.stream("tabular", path=standardised, scale="none", **how)
    assert online > accuracy(copy, learner, tmp_path, model="mlp") - 0.02
    if learner == "er":  # with the other, training diverges
        as_given = sg.stream("tabular", path=raw, scale="none", **how)
        assert online > accuracy(as_given, learner, tmp_path, model="mlp") + 0.15


@pytest.mark.parametrize("name", ["breast_cancer", "wine"])
def test_the_tables_of_scikit_learn(name: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    table = getattr(datasets, f"load_{name}")()
    shuffled = np.random.default_rng(0).permutation(len(table.target))
    x, y = table.data[shuffled], table.target[shuffled]
    path = write_csv(tmp_path / "t.csv", x, y)
    stream = sg.stream("tabular", path=path, batch=10)
    least = {"breast_cancer": 0.933, "wine": 0.730}[name]
    assert accuracy(stream, "er", tmp_path, model="mlp") > least - 0.02


def test_a_table_of_river(tmp_path: Path) -> None:
    datasets = pytest.importorskip("river.datasets")
    rows = [(list(x.values()), y) for x, y in datasets.Phishing().take(400)]
    x, y = (np.array(part, float) for part in zip(*rows, strict=True))
    stream = sg.stream("tabular", path=write_csv(tmp_path / "t.csv", x, y.astype(int)))
    assert accuracy(stream, "slda", tmp_path) > 0.8


def test_shifted_and_stretched_columns_change_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 600)
    x = rng.normal(size=(600, 6)) + 0.8 * y[:, None] * np.linspace(-1, 1, 6)
    plain = sg.stream("tabular", path=write_csv(tmp_path / "a.csv", x, y))
    moved = sg.stream("tabular", path=write_csv(tmp_path / "b.csv", x * 15 + 50, y))
    figures = [accuracy(stream, "er", tmp_path, model="mlp") for stream in (plain, moved)]
    assert abs(figures[0] - figures[1]) < 0.01
    assert min(figures) > accuracy(moved, "blind", tmp_path) + 0.1


def test_text_becomes_columns_that_do_not_depend_on_later_rows(tmp_path: Path) -> None:
    colours = ["red", "blue", "", "red", "green"]
    later = [f"colour{number}" for number in range(40)]
    lines = [f"{n},{c},{n % 2}" for n, c in enumerate([*colours, *later])]
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    whole.write_text("\n".join(["a,colour,label", *lines]))
    part.write_text("\n".join(["a,colour,label", *lines[:5]]))
    streams = [sg.stream("tabular", path=str(path)) for path in (whole, part)]
    x, early = (stream.source.read(np.arange(5)) for stream in streams)
    assert x.tolist() == early.tolist()
    assert x.shape == (5, 1 + SLOTS)
    assert x[0, 1:].tolist() == x[3, 1:].tolist() == np.eye(SLOTS)[0].tolist()
    assert x[1, 1:].tolist() == np.eye(SLOTS)[1].tolist()
    assert x[2, 1:].tolist() == [0] * SLOTS
    assert streams[0].source.scaled == 1


def test_missing_cells_are_filled_and_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n1,10,x\n,20,y\n3,30,x\n5,NA,x\n")
    stream = sg.stream("tabular", path=str(path))
    assert stream.spec.input_shape == (4,)
    x = stream.source.read(np.arange(4))
    assert x[:, 2].tolist() == [0, 1, 0, 0]
    assert x[:, 3].tolist() == [0, 0, 0, 1]
    assert np.isnan(x[1, 0])
    said = capsys.readouterr().err
    assert "filled with the median so far and flagged by a 0/1 column each: a (1 cells)" in said
    run = sg.run(stream, "ncm", out=tmp_path)
    assert np.isfinite(run.predictions["confidence"]).all()
    assert run.stream["notes"]["inputs"]["missing"] == {"a": 1, "b": 1}
    assert run.stream["settings"]["scale"] == "online"
    with pytest.raises(sg.StreamgaugeError, match=r"Line 3 of 't\.csv' has no value in column 'a'"):
        sg.stream("tabular", path=str(path), scale="none")


def test_ids_row_numbers_and_times_are_no_silent_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "index": pa.array(range(200)),
        "id": pa.array(np.random.default_rng(0).permutation(200)),
        "note": pa.array([f"note {number}" for number in range(200)]),
        "seen": pa.array(range(200), pa.timestamp("s")),
        "ts": pa.array(range(200)),
        "a": pa.array(np.random.default_rng(1).normal(size=200)),
        "label": pa.array([number % 2 for number in range(200)]),
    }
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    stream = sg.stream("tabular", path=str(path))
    said = capsys.readouterr().err
    assert stream.spec.input_shape == (1,)
    for words in ("time = 'ts'; inputs: a", "'index' (row numbers)", "'id' (ids)", "'seen' (times)",
                  "'note' (text that differs in most rows)",
                  "Numbers are standardised online", "Samples come one by one"):  # fmt: skip
        assert words in said
    kept = sg.stream("tabular", path=str(path), id="none", drop=("note", "ts"))
    assert kept.spec.input_shape == (3,)
    assert sg.stream("tabular", path=str(path), id="a", time="none").spec.input_shape == (1,)


def test_times_and_users_are_found_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    table = {"time": np.arange(60) * 10, "user_id": np.arange(60) // 5, "a": rng.normal(size=60),
             "y": np.arange(60) % 2}  # fmt: skip
    stream = sg.stream(table)
    assert "label = 'y', time = 'time', user = 'user_id'; inputs: a;" in capsys.readouterr().err
    assert stream.source.columns["time"].tolist() == table["time"].tolist()
    assert stream.source.columns["user"].tolist() == table["user_id"].tolist()
    assert stream.spec.input_shape == (1,)
    assert sg.stream(table, time="none", user="none").spec.input_shape == (3,)
    # Numbers that decrease or have a fraction are neither times nor users.
    stream = sg.stream({**table, "time": table["time"][::-1], "user_id": rng.normal(size=60)})
    assert stream.spec.input_shape == (3,)
    assert "An input like any other: time, user_id" in capsys.readouterr().err


BAD = "a,colour,label\n1,red,x\n,red,y\n3,,x\n4,blue,\n5,blue,y\n6,red,\n7,red,\n"


@pytest.mark.parametrize(
    ("on_bad", "samples", "left_out", "says"),
    [
        ("fill", 4, {"missing label": 3}, "Left out: 3 of 7 rows: 3 missing label (2 of them at"),
        ("skip", 2, {"missing label": 3, "without 'a'": 1, "without 'colour'": 1}, "5 of 7 rows"),
    ],
)
def test_bad_cells_are_counted(
    on_bad: str, samples: int, left_out: Any, says: str, call: Any, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(BAD)
    words = ("run", "--stream", "t.csv", "--learner", "ncm", "--on-bad", on_bad)
    code, _, err = call(*words)
    assert code == 0
    assert says in err
    assert ("2 missing values are filled" in err) == (on_bad == "fill")
    (run,) = sg.find_runs(tmp_path / "runs")
    assert len(run.predictions["label"]) == samples
    assert run.stream["notes"]["left_out"] == left_out


STRAY = "a,b,label\n" + "".join(f"{n}.5,{n % 3},{n % 2}\n" for n in range(30)) + "error,1,0\n"


@pytest.mark.parametrize("rows", [30, 300])
def test_text_among_numbers_is_no_category(rows: int, call: Any, tmp_path: Path) -> None:
    text = STRAY.replace("error", "".join(f"{n}.5,1,0\n" for n in range(30, rows)) + "error")
    (tmp_path / "t.csv").write_text(text)
    words = ("run", "--stream", "t.csv", "--learner", "ncm", "--on-bad")
    code, _, err = call(*words, "fill")
    line = f"Text among numbers counts as missing: a (1 cells, such as 'error' in line {rows + 2})"
    assert (code, line in err) == (0, True)
    (run,) = sg.find_runs(tmp_path / "runs")
    inputs = run.stream["notes"]["inputs"]
    assert (inputs["numbers"], inputs["missing"], inputs["text"]) == (2, {"a": 1}, [])
    code, _, err = call(*words, "refuse")
    assert (code, f"Line {rows + 2} of 't.csv' has 'error' in column 'a'" in err) == (2, True)
    code, _, err = call(*words, "skip")
    assert (code, f"Left out: 1 of {rows + 1} rows: 1 text in 'a'" in err) == (0, True)


def test_utf_16_is_named(call: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STRAY, encoding="utf-16")
    code, _, err = call("run", "--stream", "t.csv", "--learner", "ncm")
    assert (code, "'t.csv' is UTF-16 text" in err) == (2, True)


def test_bad_cells_are_refused(call: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(BAD)
    words = ("run", "--learner", "ncm", "--on-bad", "refuse", "--stream")
    code, _, err = call(*words, "t.csv")
    assert (code, "Line 5 of 't.csv' has no label" in err) == (2, True)
    assert "3 rows in all are like this one" in err
    offer = "set --stream.on_bad skip to leave out bad rows, or fill to fill in missing inputs"
    assert offer in err
    (tmp_path / "t.csv").write_text(BAD.replace(",\n", ",x\n"))
    code, _, err = call(*words, "t.csv")
    assert (code, "Line 3 of 't.csv' has no value in column 'a'" in err) == (2, True)
    assert offer in err
    assert call("run", "--learner", "ncm", "--on-bad", "fill", "--stream", "t.csv")[0] == 0
    code, _, err = call(*words, "albums")
    assert (code, "--on-bad is for your own data" in err) == (2, True)
    frame = {"a": np.array([1.0, np.nan]), "label": ["x", "y"]}
    with pytest.raises(sg.StreamgaugeError, match=r"no value in column 'a'.* on_bad skip"):
        sg.stream(frame, on_bad="refuse")
    assert len(sg.stream(frame, on_bad="skip").source) == 1


def test_samples_come_one_by_one_unless_said_otherwise(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", np.arange(30.0).reshape(15, 2), np.arange(15) % 2)
    assert len(sg.stream("tabular", path=path)) == 15
    assert len(sg.stream("tabular", path=path, batch=5)) == 3


def test_arrays_are_scaled_where_asked(tmp_path: Path) -> None:
    x, y = measurements("wines")
    np.savez(tmp_path / "a.npz", x=x.astype(np.float32), y=y)
    path = str(tmp_path / "a.npz")
    plain, online = (sg.stream("arrays", path=path, **s) for s in ({}, {"scale": "online"}))
    assert "scale" not in plain.settings  # as in runs of earlier versions
    assert plain.source.fingerprint != online.source.fingerprint
    figures = [accuracy(stream, "er", tmp_path, model="mlp") for stream in (plain, online)]
    assert figures[1] > figures[0] + 0.15


def test_only_a_run_that_diverges_fails(call: Any, tmp_path: Path) -> None:
    """Two numbers are far too large for a network: its learner fails, those after it run."""
    x, y = measurements("wines")
    write_csv(tmp_path / "t.csv", x * 1e6, y)
    words = "run --stream tabular --stream.path t.csv --learner finetune --finetune.model mlp"
    code, out, complaint = call(*words.split(), "--learner", "majority", "--stream.scale", "none")
    assert code == 2
    assert "majority" in out
    assert "finetune, seed 0, is incomplete" in out
    assert "tabular-finetune-s0" in complaint
    assert "scores hold a NaN" in complaint
    assert "--stream.scale online" in complaint
    _, out, _ = call("score", "runs")
    assert "finetune, seed 0, is incomplete (nothing stored yet)" in out
    assert "It failed: The learner's scores hold a NaN" in out
    code, out, _ = call(*words.split(), "--learner", "majority")
    assert code == 0
    assert "finetune" in out


@pytest.mark.parametrize("learner", ["er", "ncm"])
def test_mean_and_std_of_vectors_are_refused(learner: str, tmp_path: Path) -> None:
    stream = sg.stream(np.zeros((20, 3)), np.arange(20) % 2)
    settings = {"model": "mlp"} if learner == "er" else {}
    with pytest.raises(sg.StreamgaugeError, match="'std' is for images"):
        sg.run(stream, sg.learner(learner, std=(2.0,), **settings), out=tmp_path)


@pytest.mark.parametrize("learner", ["er", "ncm"])
def test_mean_and_std_of_float_images_are_refused(learner: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 3, 8, 8)).astype(np.float32)
    streams = [sg.stream(images, np.arange(20) % 2) for images in (x, (255 * x).astype(np.uint8))]
    with pytest.raises(sg.StreamgaugeError, match="'std' is for images of bytes"):
        sg.run(streams[0], sg.learner(learner, std=(2.0,)), out=tmp_path)
    assert sg.run(streams[0], learner, out=tmp_path).done
    assert sg.run(streams[1], sg.learner(learner, std=(2.0,)), out=tmp_path).done


@pytest.mark.parametrize("kind", ["arrays", "pairs"])
def test_raw_vectors_in_python_are_announced_or_scaled(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs x 15 + 50 leave a network at chance level; standardised online, it learns."""
    rng = np.random.default_rng(len(kind))  # a line is printed once per process
    y = rng.integers(0, 3, 600)
    x = (15 * (rng.normal(size=(600, 4)) + 2 * np.eye(3)[y][:, [0, 1, 2, 0]]) + 50).astype(
        "float32"
    )

    def stream(**settings: Any) -> sg.Stream:
        if kind == "arrays":
            return sg.stream(x, y, **settings)
        return sg.stream(list(zip(x, y.tolist(), strict=True)), **settings)

    raw = stream()
    assert "networks may learn nothing from such numbers" in capsys.readouterr().err
    scaled = stream(scale="online")
    assert "may learn nothing" not in capsys.readouterr().err
    assert raw.source.fingerprint != scaled.source.fingerprint
    assert accuracy(scaled, "er", tmp_path) > 0.8
    table = sg.stream({**{f"c{i}": x[:, i] for i in range(4)}, "y": y}, batch=10)
    same = accuracy(table, "er", tmp_path)
    assert accuracy(scaled, "er", tmp_path) == pytest.approx(same, abs=1e-9)
    sg.stream(x / 100, y)
    assert "may learn nothing" not in capsys.readouterr().err
    with pytest.raises(sg.StreamgaugeError, match="it can be online or none"):
        stream(scale="yes")
    with pytest.raises(sg.StreamgaugeError, match="only vectors are standardised"):
        sg.stream(x.reshape(-1, 1, 2, 2), y, scale="online")
