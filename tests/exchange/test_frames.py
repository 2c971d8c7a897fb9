"""Tables of a log in Arrow, pandas, polars and DuckDB, and results as notebooks show them."""

from __future__ import annotations

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.report import leaderboard

ROOT = Path(__file__).parents[2]
LATE = ROOT / "tests" / "corpus" / "log2" / "finished"


def same_columns(table: Any, frame: Any) -> bool:
    names = list(frame.columns)
    return names == list(table) and all(
        np.array_equal(
            np.asarray(frame[name]), table[name], equal_nan=table[name].dtype.kind == "f"
        )
        for name in names
    )


def test_every_table_of_a_run_goes_to_arrow(task_run: sg.Run) -> None:
    for name in ("predictions", "evaluations", "answers", "training", "jobs", "labels"):
        table = task_run.table(name)
        arrow = table.to_arrow()
        assert arrow.column_names == list(table)
        assert arrow.num_rows == table.rows
        for column in table:
            assert arrow[column].to_pylist() == table[column].tolist()
    assert str(task_run.table("evaluations").to_arrow()["split"].type).startswith("dictionary")


def test_pandas_and_polars_have_the_columns_of_the_log(task_run: sg.Run) -> None:
    pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    for name in ("predictions", "evaluations"):
        table = task_run.table(name)
        assert same_columns(table, table.to_pandas())
        frame = table.to_polars()
        assert isinstance(frame, polars.DataFrame)
        assert same_columns(table, frame)


def test_late_labels_are_joined_in_arrow_too() -> None:
    (run,) = sg.find_runs(LATE)
    assert run.unlabelled > 0
    joined = run.predictions
    arrow = joined.to_arrow()
    assert arrow.num_rows == joined.rows
    for column in joined:
        np.testing.assert_array_equal(np.asarray(arrow[column]), joined[column])
    everything = run.joined_predictions(keep_all=True).to_arrow()
    assert everything["label"].null_count == run.unlabelled


def test_files_are_the_committed_segments_only(task_run: sg.Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(task_run.path, folder)
    run = sg.Run(folder)
    (file,) = run.files()
    shutil.copy(file, Path(file).with_name("00001.parquet"))  # left over from a kill
    assert sg.Run(folder).files() == [file]
    assert run.files("labels") == []
    with pytest.raises(sg.StreamgaugeError, match="did you mean 'predictions'"):
        run.files("prediction")
    Path(file).unlink()
    with pytest.raises(sg.StreamgaugeError, match="is missing"):
        sg.Run(folder).files()


def test_the_queries_of_the_docs_run(task_run: sg.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pandas", "polars", "duckdb"):
        pytest.importorskip(package)
    text = (ROOT / "docs" / "exchange.md").read_text()
    section = text.split("## Tables of a log")[1].split("\n## ")[0]
    queries = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(task_run.path.parent)
    results = []
    for code in queries:
        found: dict[str, Any] = {"run": task_run}
        exec(code.replace("runs/blobs-er-s0-4f9b84e7", str(task_run.path)), found)
        results.append(found)
    table = task_run.predictions
    online = table["shift"] == 0
    correct = (table["label"] == table["prediction"])[online]
    by_duckdb = next(found["worst"] for found in results if "worst" in found)
    by_polars = next(found["by_task"] for found in results if "by_task" in found)
    labels = table["label"][online]
    by_class = sorted((correct[labels == label].mean(), label) for label in np.unique(labels))
    assert [row[1] for row in by_duckdb] == pytest.approx([share for share, _ in by_class[:5]])
    tasks = table["task"][online]
    assert by_polars["accuracy"].to_list() == pytest.approx(
        [correct[tasks == task].mean() for task in np.unique(tasks)]
    )


def test_a_missing_library_is_one_sentence(
    task_run: sg.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(sg.StreamgaugeError, match=f"pip install .{package}"):
            getattr(task_run.predictions, f"to_{package}")()


class Tags(HTMLParser):
    """The tags of a text, and whether each is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)
        assert not [name for name, _ in attrs if name != "style"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


HOSTILE = '<img src=x onerror=alert(1)>"&'
TAGS = {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}


def check_html(result: Any, *words: str) -> None:
    parsed = Tags(result._repr_html_())
    assert not parsed.open
    assert parsed.seen <= TAGS
    text = " ".join(parsed.text)
    for word in words:
        assert word in text


def test_notebooks_show_tables_and_hostile_names_are_escaped(
    task_run: sg.Run, tmp_path: Path
) -> None:
    run = sg.Run(task_run.path)
    run.header["config"]["learner"]["name"] = run.header["stream"]["name"] = HOSTILE
    check_html(run, HOSTILE, "rows of predictions", "done")
    check_html(leaderboard([run]), HOSTILE, "online", "seeds")
    check_html(leaderboard([run])[0], HOSTILE)
    scores = sg.score(task_run)
    assert isinstance(scores, dict)
    check_html(scores, "online_accuracy", f"{100 * scores['online_accuracy']:.1f}")
    scores["learner"] = HOSTILE
    check_html(scores, HOSTILE)
    check_html(sg.score(task_run.path.parent), str(task_run.path), "online_accuracy")
    matrix = tmp_path / f"{HOSTILE.replace('/', '')}.csv"
    matrix.write_text("0.9,\n0.5,0.7")
    check_html(sg.score_matrix(matrix), HOSTILE, "average_forgetting", "shares")


def test_an_audit_in_a_notebook(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 3, 100), 5)
    names = np.array([HOSTILE, "b", "c"])[label]
    audit = sg.audit_log({HOSTILE: names, "prediction": names}, label=HOSTILE)
    check_html(audit, "Audit of", HOSTILE, "Bits per sample", audit.words[0])
