"""Mistakes of a first hour: each gets a sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamgauge as sg
from streamgauge.errors import StreamgaugeError

X, Y = np.zeros((20, 3), np.float32), np.arange(20) % 2
FRAME = pd.DataFrame({"a": X[:, 0], "kind": Y})


def untyped(name: str) -> Callable[..., Any]:
    """A function of the package for calls with arguments of the wrong kind."""
    function: Callable[..., Any] = getattr(sg, name)
    return function


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("run", (X, Y, "er"), r"write sg\.run\(stream, learner\)\. Arrays .* sg\.stream\(x, y\)"),
        ("run", ("albums",), r"'learner': write sg\.run\(stream, learner\)"),
        ("stream", (), r"'data': write sg\.stream\(data, y\)"),
        ("stream", (FRAME, "kind"), r"has a keyword: sg\.stream\(data, label='kind'\)"),
        ("find_runs", (None,), "Give runs or the paths of their folders, not None"),
        ("plot", (None,), "Give runs or the paths of their folders, not None"),
        ("score_matrix", ([[1, 2], [3]],), "The matrix must be numbers in rows of equal length"),
        ("check_loop", (lambda stream: None,), "returned None; return one answer for each of"),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_write(
    name: str, arguments: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        untyped(name)(*arguments)


def test_a_recording_beside_runs_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    sg.Recorder(tmp_path / "runs" / "first", stream="clicks", learner="v1").close()
    with pytest.raises(StreamgaugeError, match=r"folder of runs: .* such as .*runs/v2"):
        sg.Recorder(tmp_path / "runs", stream="clicks", learner="v2")
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["first"]


@pytest.mark.parametrize("below", ["first", "demo/first"])
def test_an_audit_of_a_folder_of_runs_names_a_run(tmp_path: Path, below: str) -> None:
    sg.Recorder(tmp_path / below, stream="clicks", learner="v1").close()
    with pytest.raises(StreamgaugeError, match=rf"folder of runs: name one .* such as .*{below}"):
        sg.audit_log(tmp_path)
    with pytest.raises(StreamgaugeError, match="first has no answers yet"):
        sg.audit_log(tmp_path / below)


def test_bytes_that_are_no_text_are_not_shown_as_columns(tmp_path: Path) -> None:
    file = tmp_path / "photo.csv"
    file.write_bytes(np.random.default_rng(0).integers(0, 256, 5_000, np.uint8).tobytes())
    with pytest.raises(StreamgaugeError, match=r"photo\.csv is no text"):
        sg.audit_log(file)


def test_columns_that_are_no_features_are_named_with_the_reason() -> None:
    with pytest.raises(StreamgaugeError, match=r"Left out: 'a' \(no value in any row\)\."):
        sg.stream(FRAME.assign(a=np.nan), label="kind")


def test_times_with_two_meanings_are_quoted_as_times_that_cannot_be_read() -> None:
    days = [f"3/{1 + n}/2024" for n in range(20)]
    with pytest.raises(StreamgaugeError, match="has times that cannot be read, such as '3/1/2024'"):
        sg.stream(FRAME.assign(date=days), label="kind")
