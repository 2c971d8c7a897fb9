"""Labels of any values are classes: coded in order of first appearance, shown by their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamgauge as sg
from streamgauge.report import write_report

LABELS: dict[str, list[Any]] = {
    "zip codes": [94103, 10001, 94103, 60601, 10001, 60601],
    "below 0": [1, -1, -1, 1, 1, -1],
    "from 1": [3, 1, 2, 3, 1, 2],
    "with a gap": [0, 3, 0, 3, 1, 1],
    "text": ["wren", "ant", "wren", "bee", "bee", "ant"],
}


def by_csv(labels: list[Any], path: Path) -> sg.streams.Stream:
    rows = "".join(f"{number}.5,{label}\n" for number, label in enumerate(labels))
    (path / "t.csv").write_text("x,label\n" + rows)
    return sg.stream("tabular", path=str(path / "t.csv"))


def by_parquet(labels: list[Any], path: Path) -> sg.streams.Stream:
    """As a dictionary whose values are sorted, as pandas writes categories."""
    values = sorted(set(labels))
    column = pa.DictionaryArray.from_arrays([values.index(v) for v in labels], pa.array(values))
    table = pa.table({"x": np.arange(len(labels)) + 0.5, "label": column})
    pq.write_table(table, path / "t.parquet")
    return sg.stream("tabular", path=str(path / "t.parquet"))


def by_npz(labels: list[Any], path: Path) -> sg.streams.Stream:
    np.savez(path / "t.npz", x=np.ones((len(labels), 1)), y=np.array(labels))
    return sg.stream("arrays", path=str(path / "t.npz"))


def by_arrays(labels: list[Any], path: Path) -> sg.streams.Stream:
    return sg.stream(np.ones((len(labels), 1)), np.array(labels))


READERS = [by_csv, by_parquet, by_npz, by_arrays]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", LABELS)
def test_labels_are_coded_by_first_appearance(read: Any, case: str, tmp_path: Path) -> None:
    labels = LABELS[case]
    order = list(dict.fromkeys(labels))
    stream = read(labels, tmp_path)
    assert stream.source.label.tolist() == [order.index(label) for label in labels]
    assert list(stream.source.class_names) == [str(label) for label in order]
    assert stream.spec.classes == len(order)


@pytest.mark.parametrize("read", READERS)
def test_labels_from_0_without_a_gap_stay_as_they_are(read: Any, tmp_path: Path) -> None:
    stream = read([2, 0, 1, 2, 1, 0], tmp_path)
    assert stream.source.label.tolist() == [2, 0, 1, 2, 1, 0]
    assert stream.source.class_names is None


def test_a_run_keeps_the_values_of_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = by_csv(LABELS["zip codes"], tmp_path)
    line = "coded in order of first appearance: 94103 is class 0, 10001 is class 1"
    assert line in capsys.readouterr().err
    run = sg.run(stream, "majority", out=tmp_path / "runs", device="cpu", log=lambda _: None)
    names = run.stream["class_names"]
    assert [int(names[code]) for code in run.predictions["label"]] == LABELS["zip codes"]
    assert run.stream["classes"] == 3
    page = write_report([run], tmp_path / "report.html").read_text()
    assert "6 samples of 3 classes (94103, 10001, 60601)" in page


def test_tables_of_a_run_have_the_values_of_labels(tmp_path: Path) -> None:
    labels = LABELS["zip codes"]
    stream = by_csv(labels, tmp_path)
    run = sg.run(stream, "majority", out=tmp_path / "runs", device="cpu", log=lambda _: None)
    table = run.predictions.to_arrow()
    assert [int(name) for name in table["label_name"].to_pylist()] == labels
    names = run.class_names or []
    assert table["prediction_name"].to_pylist() == [names[p] for p in run.predictions["prediction"]]
    plain = sg.run(by_csv([0, 1, 0], tmp_path), "majority", out=tmp_path / "runs", device="cpu")
    assert plain.class_names is None
    assert "label_name" not in plain.predictions.to_arrow().column_names
