"""What a new user types first in Python: results that can be read, mistakes that are sentences."""

from __future__ import annotations

from io import StringIO
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.errors import StreamgaugeError

LABELS = np.arange(300) // 3 % 3
ANSWERS = np.where(np.arange(300) % 5 == 0, 0, LABELS)


def test_an_audit_is_read_in_a_prompt() -> None:
    result = sg.audit_log({"label": LABELS, "prediction": ANSWERS})
    assert repr(result) == str(result)
    assert len(repr(result)) < 4000
    assert result.words[0] in repr(result)
    assert repr(result).startswith("Audit of the arrays given\n\nColumns: label = 'label'")


def test_labels_and_predictions_are_a_log() -> None:
    named = sg.audit_log({"label": LABELS, "prediction": ANSWERS})
    for given in ((LABELS, ANSWERS), (LABELS.tolist(), ANSWERS.tolist())):
        assert sg.audit_log(*given).values == pytest.approx(named.values, nan_ok=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labels": "label"}, "audit_log has no option 'labels'; did you mean 'label'"),
        ({"sort": True}, "name it with time"),
        ({"prediction": "answer"}, "no column 'answer'"),
    ],
)
def test_a_wrong_option_of_an_audit_is_a_sentence(options: Any, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.audit_log({"label": LABELS, "prediction": ANSWERS}, **options)


X, Y = np.random.default_rng(0).random((60, 2)).astype("f4"), np.arange(60) % 3


def missing(y: Any) -> Any:
    return np.where(np.arange(60) == 7, np.nan, y)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((X, missing(Y)), "1 of 60 labels are missing, the first of sample 7: leave"),
        ((X, [None, *Y[1:]]), "1 of 60 labels are missing, the first of sample 0: leave"),
        ((X, Y.astype(float)), r"classes are whole numbers, y.astype\(int\)"),
        ((X, np.eye(3)[Y]), r"For one-hot labels: y.argmax\(axis=1\)"),
        ((X, X), r"not of shape \(60, 2\).$"),
        ((StringIO("a,b\n"),), r"Give the path, not an open file: sg.stream\('PATH'\)"),
    ],
)
def test_labels_and_inputs_that_cannot_be_used_say_what_to_write(given: Any, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.stream(*given)


def test_a_sparse_matrix_says_what_to_write() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(StreamgaugeError, match=r"the sparse one's .toarray\(\)"):
        sg.stream(sparse.csr_matrix(X), Y)


def test_frames_of_pandas_with_odd_columns(recwarn: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).assign(label=Y)
    assert sg.stream(frame).spec.input_shape == (2,)
    assert not recwarn.list  # of narwhals, about names that are numbers
    twice = pandas.concat([frame, frame[[0]]], axis=1)
    with pytest.raises(StreamgaugeError, match="The column '0' comes twice in the data frame:"):
        sg.stream(twice, label="label")
    with pytest.raises(StreamgaugeError, match="'0' comes twice in the data frame with its index"):
        sg.stream(frame.set_index(0, drop=False), label="label")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learning_rate": 1.0}, "did you mean 'er.lr'"),
        ({"buffer_size": 10}, "did you mean 'er.memory'"),
        ({"lrr": 1.0}, "did you mean 'er.lr'"),
        ({"lr": float("nan")}, "er.lr must be a number, not nan"),
    ],
)
def test_a_wrong_setting_of_a_learner_names_the_right_one(settings: Any, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.learner("er", **settings)


def test_reports_comparisons_and_resume_take_what_others_take(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = sg.stream(X, Y, batch=5)
    runs = [sg.run(stream, name) for name in ("majority", "ncm")]
    for given in ("runs", ["runs"], runs, [run.path for run in runs]):
        assert sg.plot(given, "report.html").exists()
    assert sg.compare("majority", "ncm").sentence == sg.compare(*runs).sentence
    with pytest.raises(StreamgaugeError, match="paths of their folders, not 1"):
        sg.score([1])
    with pytest.raises(StreamgaugeError, match="deviation must be a number, not 'big'"):
        sg.power(deviation="big", difference=0.01)
    sg.run(stream, sg.learner("ncm", distance="cosine"))
    with pytest.raises(StreamgaugeError, match="holds runs of ncm with different settings or code"):
        sg.compare("majority", "ncm")
    with pytest.raises(StreamgaugeError, match="runs has no run of 'er'; there is majority"):
        sg.compare("majority", "er")
    assert [run.path for run in sg.resume(runs[0])] == [runs[0].path]
    with pytest.raises(AttributeError, match="did you mean 'score'"):
        _ = sg.scores
    with pytest.raises(StreamgaugeError, match="A int is no loop: give a function"):
        sg.check_loop(5)
    with pytest.raises(StreamgaugeError, match=r"^threads must be at least 1"):
        sg.run(stream, "ncm", threads=0)


def test_an_error_of_python_names_no_option_of_the_command_line() -> None:
    with pytest.raises(StreamgaugeError) as refused:
        sg.audit_log({"label": LABELS, "time": LABELS})
    assert "sort=True" in str(refused.value)
    with pytest.raises(StreamgaugeError) as refused_plan:
        sg.power()
    assert "--" not in f"{refused.value}{refused_plan.value}"
    with pytest.raises(StreamgaugeError, match=r"there is no file er--lr\.0\.1\.csv"):
        sg.audit_log("er--lr.0.1.csv")
