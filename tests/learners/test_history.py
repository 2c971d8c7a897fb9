"""The learner `history`: what past labels alone are worth in the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from helpers import small_stream
from streamgauge.history.forecasters import forecast
from streamgauge.metrics.log import known_in_loop
from streamgauge.record import Run
from streamgauge.record.diff import differences


def quiet(text: str) -> None:
    pass


def online(labels: Any, out: Path, **settings: Any) -> Run:
    stream = sg.stream(np.zeros((len(labels), 1)), labels, **settings)
    protocol = sg.Protocol(evaluate="never")
    return sg.run(stream, "history", protocol=protocol, out=out, log=quiet)


def accuracy(run: Run) -> float:
    return float(np.mean(run.predictions["label"] == run.predictions["prediction"]))


@pytest.mark.parametrize("batch", [1, 10])
def test_labels_in_a_circle_are_forecast_within_a_step_too(tmp_path: Path, batch: int) -> None:
    run = online(np.arange(3000) % 10, tmp_path, batch=batch)
    assert accuracy(run) > 0.97
    late = run.predictions["step"] > run.predictions["step"].max() // 2
    table = run.predictions
    assert np.array_equal(table["label"][late], table["prediction"][late])
    assert (table["confidence"][late] > 0.9).all()


def test_chains_and_sticky_labels_reach_their_closed_forms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chain = [0]
    for leap in rng.random(1999) < 0.2:
        chain.append(int(rng.integers(10)) if leap else (7 * chain[-1] + 3) % 10)
    assert accuracy(online(chain, tmp_path, batch=1)) == pytest.approx(0.8 + 0.2 / 10, abs=0.03)
    begins = np.where(rng.random(2000) < 0.1, np.arange(2000), 0)
    sticky = rng.integers(0, 5, 2000)[np.maximum.accumulate(begins)]
    assert accuracy(online(sticky, tmp_path, batch=1)) == pytest.approx(0.9 + 0.1 / 5, abs=0.03)
    unrelated = (rng.random(2000) < 0.3).astype(int)
    assert accuracy(online(unrelated, tmp_path, batch=1)) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("batch", [1, 7])
def test_its_answers_are_those_of_the_mixture(tmp_path: Path, batch: int) -> None:
    rng = np.random.default_rng(batch)
    labels = np.where(rng.random(1500) < 0.3, rng.integers(0, 4, 1500), np.arange(1500) % 12 // 3)
    run = online(labels, tmp_path, batch=batch)
    table = run.predictions
    known, _ = known_in_loop(table["step"])
    done = forecast(labels.astype(np.int32), 4, known, start=batch, block=1500)
    right = np.count_nonzero(table["label"][batch:] == table["prediction"][batch:])
    assert right == done.hits[0, -1]


def test_a_resumed_run_writes_the_same_log(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 3, 150).repeat(4)
    stream = sg.stream(np.zeros((600, 1)), labels, held_out=0.1)

    def stop(loop: Any) -> None:
        if loop.step == 23:
            raise KeyboardInterrupt

    whole = sg.run(stream, "history", out=tmp_path / "whole", log=quiet)
    with pytest.raises(KeyboardInterrupt):
        sg.run(stream, "history", out=tmp_path / "cut", checkpoint=0, progress=stop, log=quiet)
    resumed = sg.run(stream, "history", out=tmp_path / "cut", log=quiet)  # goes on
    assert resumed.done
    assert differences(whole, resumed)["same"]


def test_before_any_label_all_classes_are_equal() -> None:
    import torch

    from streamgauge.learners.gradient_free.history import History

    stream = small_stream(4, classes=3)
    learner = History(stream.source.spec, None, 0, torch.device("cpu"))  # type: ignore[arg-type]
    scores = learner.predict(torch.empty(5, 0))
    assert torch.allclose(scores.softmax(1), torch.full((5, 3), 1 / 3), atol=1e-3)
    assert learner.predict(torch.empty(0, 0)).shape == (0, 3)
