"""The bits in a report are those of the audit, and what is not known is not shown as a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge import catalogue
from streamgauge.record import Run
from streamgauge.report import bits as bits_module
from streamgauge.report import leaderboard
from streamgauge.report.bits import added_bits, sentence
from streamgauge.report.page import report_page


def _run(stream: Any, learner: str, out: Path, **protocol: Any) -> Run:
    return sg.run(
        stream,
        catalogue.learner(learner),
        protocol=sg.Protocol(**protocol),
        out=out,
        log=lambda _: None,
    )


@pytest.mark.parametrize("label_delay", [0, 3])
def test_bits_are_those_of_the_audit(tmp_path: Path, label_delay: int) -> None:
    stream = sg.stream("albums", length=1500)  # with users and times
    runs = [_run(stream, name, tmp_path, label_delay=label_delay) for name in ("ncm", "blind")]
    (board,) = leaderboard(runs)
    found = added_bits(board.rows)
    for run in runs:
        late = {"label_delay": label_delay * run.stream["step_size"]} if label_delay else {}
        expected = sg.audit_log(run, **late).bits
        assert expected is not None
        each = found[run.learner]
        assert (each.added, each.low, each.high) == expected.added[:3]
        assert (each.base, each.history) == (expected.base.value, expected.history.value)
        assert each.whole
    assert found["ncm"].low > 0 > found["blind"].added - 0.01
    text = report_page(runs).render()
    assert f"the answers of ncm add {found['ncm'].added:.2f} bits" in text
    assert "adds, bits" in text


@pytest.mark.parametrize("column", ["probabilities", "age", "time"])
def test_bits_of_a_recording_are_those_of_the_audit(tmp_path: Path, column: str) -> None:
    """Of its probabilities, its ages, and its times within a second."""
    rng = np.random.default_rng(0)
    path, labels = tmp_path / "mine", np.repeat(rng.integers(0, 3, 400), 3).tolist()
    with sg.Recorder(path, stream="mine", learner="linear", classes=3) as recorder:
        for number, label in enumerate(labels):
            given: dict[str, Any] = {"time": number * 0.25} if column == "time" else {}
            given |= {"age": number % 7} if column == "age" else {}
            scores = rng.dirichlet(np.ones(3) + 3 * (np.arange(3) == label))
            answer = scores if column == "probabilities" else int(scores.argmax())
            recorder.predict(number, answer, **given)
            late = {"time": number * 0.25 + 0.3} if column == "time" else {}
            recorder.label(number, label, **late)
    run = Run(path)
    expected = sg.audit_log(path).bits
    assert expected is not None
    (board,) = leaderboard([run])
    (each,) = added_bits(board.rows).values()
    assert (each.added, each.low, each.high) == expected.added[:3]
    assert (each.base, each.history) == (expected.base.value, expected.history.value)
    assert each.whole


def test_a_long_stream_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(sg.stream("albums", length=1500, size=0), "majority", tmp_path)
    monkeypatch.setattr(bits_module, "MOST", 600)
    (board,) = leaderboard([run])
    (each,) = added_bits(board.rows).values()
    assert (each.samples, each.whole) == (600, False)
    assert "in the first 600 samples" in sentence({"majority": each}, ["majority"])
    assert "Not shown to add anything: majority." in sentence({"majority": each}, ["majority"])


def test_too_few_labels_are_not_known(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    run = _run(sg.stream(x, np.arange(60) % 2, batch=5), "ncm", tmp_path)
    (board,) = leaderboard([run])
    assert added_bits(board.rows) == {}
    assert sentence({}, ["ncm"]) == ""
    assert "adds, bits" not in report_page([run]).render()
