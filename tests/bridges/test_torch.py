"""The torch bridge: a recorded loop, and streams as data sets."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import streamgauge as sg
from streamgauge.bridges import torch as bridge
from streamgauge.errors import StreamgaugeError


def stream(samples: int = 103, batch: int = 10) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 4)).astype(np.float32)
    return sg.stream(x, (x @ rng.normal(size=(4, 3))).argmax(1), batch=batch)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_a_recorded_loop_has_the_answers_of_the_model_before_each_step(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected, labels = [], []
    facts: dict[str, Any] = {"stream": "mine", "classes": 3, "optimizer": optimizer}
    with bridge.recording(model, tmp_path / "run", **facts) as rec:
        for x, y in bridge.loader(stream()):
            twin = copy.deepcopy(model).eval()
            expected += twin(x).argmax(1).tolist()
            labels += y.tolist()
            rec.answer(x, y)
            train(model, optimizer, x, y)
    run = sg.Run(tmp_path / "run")
    assert run.table("predictions")["prediction"].tolist() == expected
    accuracy = np.mean(np.array(expected) == labels)
    assert sg.score(run)["online_accuracy"] == pytest.approx(accuracy)
    # One version per step of the optimizer: 11 batches.
    assert run.table("predictions")["version"].tolist()[-1] == 10
    assert run.header["config"]["learner"]["name"] == "Sequential"


def test_recording_changes_nothing_in_the_loop(tmp_path: Path) -> None:
    """Same weights, batch norm statistics and random numbers with and without recording."""

    def loop(record: bool) -> nn.Module:
        model = network()
        model[1].eval()  # a frozen layer stays in evaluation mode
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rec = bridge.recording(model, tmp_path / "run", stream="mine") if record else None
        torch.manual_seed(1)
        for x, y in bridge.loader(stream()):
            if rec is not None:
                rec.answer(x, y)
            assert [m.training for m in model] == [True, False, True, True, True]
            train(model, optimizer, x, y)
        if rec is not None:
            rec.close()
        return model

    recorded, plain = loop(True).state_dict(), loop(False).state_dict()
    assert all(torch.equal(recorded[name], plain[name]) for name in plain)


def test_labels_may_come_later_and_ids_are_the_callers(tmp_path: Path) -> None:
    model = network()
    with bridge.recording(model, tmp_path / "run", stream="mine", classes=3) as rec:
        for x, y, ids in bridge.loader(stream(30), ids=True):
            rec.answer(x, ids=ids)
            rec.trained()
            rec.label(ids.numpy()[:5], y.numpy()[:5])
    run = sg.Run(tmp_path / "run")
    assert run.table("predictions")["id"].tolist() == [str(i) for i in range(30)]
    assert len(run.table("labels")["label"]) == 15  # the others never came


def test_a_recording_goes_on_with_the_next_number(tmp_path: Path) -> None:
    model, x = network(), torch.zeros(5, 4)
    for _ in range(2):
        with bridge.recording(model, tmp_path / "run", stream="mine", classes=3) as rec:
            rec.answer(x, torch.zeros(5, dtype=torch.int64))
    ids = sg.Run(tmp_path / "run").table("predictions")["id"].tolist()
    assert [str(i) for i in ids] == [str(i) for i in range(10)]


def test_answers_that_are_no_class_scores_are_refused(tmp_path: Path) -> None:
    with (
        bridge.recording(nn.Linear(4, 3), tmp_path / "run", stream="mine") as rec,
        pytest.raises(StreamgaugeError, match="one row of class scores per sample"),
    ):
        rec.answer(torch.zeros(2, 5, 4))


@pytest.mark.parametrize("classes", [3, None])
@pytest.mark.parametrize("labels", [[0, 3], [0, 1, 2], [0.5, 1.0], [0, None]])
def test_answers_whose_labels_are_refused_are_not_recorded(
    labels: Any, classes: int | None, tmp_path: Path
) -> None:
    with bridge.recording(nn.Linear(4, 3), tmp_path / "run", stream="mine", classes=classes) as rec:
        with pytest.raises(StreamgaugeError):
            rec.answer(torch.zeros(2, 4), labels)
        assert rec.recorder.samples == 0
        rec.answer(torch.zeros(2, 4), [0, 2])
    run = sg.Run(tmp_path / "run")
    assert run.table("predictions")["id"].tolist() == ["0", "1"]
    assert run.predictions["label"].tolist() == [0, 2]


def test_answers_are_not_recorded_where_earlier_labels_had_times(tmp_path: Path) -> None:
    with bridge.recording(nn.Linear(4, 3), tmp_path / "run", stream="mine", classes=3) as rec:
        rec.answer(torch.zeros(2, 4))
        rec.label([0, 1], [0, 1], time=[1.0, 2.0])
        with pytest.raises(StreamgaugeError, match="differs in time"):
            rec.answer(torch.zeros(2, 4), [0, 1])
        assert rec.recorder.samples == 2


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_sample_comes_once_and_in_order_with_workers(workers: int) -> None:
    made = stream()
    loader = bridge.loader(made, ids=True, num_workers=workers)
    assert len(loader) == len(made) == 11
    for _ in range(2):  # a second pass begins at the start
        steps = list(loader)
        assert torch.cat([ids for _, _, ids in steps]).tolist() == made.order.tolist()
        assert [len(y) for _, y, _ in steps] == [10] * 10 + [3]
        x = torch.cat([x for x, _, _ in steps]).numpy()
        np.testing.assert_array_equal(x, made.source.read(made.order))


def test_a_dataset_can_be_sent_to_spawned_workers() -> None:
    again = pickle.loads(pickle.dumps(bridge.dataset(stream())))
    assert sum(len(y) for _, y in again) == 103


def test_order_and_steps_are_the_streams() -> None:
    with pytest.raises(StreamgaugeError, match="set batch= when you make the stream"):
        bridge.loader(stream(), batch_size=32)


def test_random_numbers_of_a_learner_are_its_own() -> None:
    def draw() -> tuple[float, float]:
        return float(torch.rand(())), float(np.random.rand())  # noqa: NPY002

    torch.manual_seed(5)
    before = torch.get_rng_state()
    state = bridge.RandomState(7)
    with state:
        first = draw()
    assert torch.equal(torch.get_rng_state(), before)
    stored = pickle.dumps(state)
    with state:
        second = draw()
    with pickle.loads(stored):
        assert draw() == second != first
