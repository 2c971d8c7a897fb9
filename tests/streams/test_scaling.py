"""Online standardisation: statistics by hand, and which statistics each read of a run uses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.scaled import build_scaled
from streamgauge.streams import Gate
from streamgauge.streams.gate import Resident
from streamgauge.streams.scaling import CLIP, ROWS, OnlineScaler, location_and_spread
from streamgauge.streams.source import VectorSource

CPU = torch.device("cpu")


def slow_statistics(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median and spread, one column at a time."""
    location, spread = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    for number, column in enumerate(rows.T.astype(np.float64)):
        values = column[np.isfinite(column)]
        if len(values) == 0:
            continue
        location[number] = np.median(values)
        for low, high, width in ((25, 75, 1.349), (5, 95, 3.290), (1, 99, 4.653), (0, 100, 6.0)):
            distance = np.percentile(values, high) - np.percentile(values, low)
            if distance > 0:
                spread[number] = distance / width
                break
    return location, spread


def slow_scaled(trained: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Inputs as a version reads them that was trained on some batches, fewer rows than ROWS."""
    location, spread = np.zeros(x.shape[1]), np.ones(x.shape[1])
    count, due = 0, 1
    for number, batch in enumerate(trained):
        count += len(batch)
        if count >= due:
            location, spread = slow_statistics(np.concatenate(trained[: number + 1]))
            due = max(count + 1, int(count * 1.05))
    scaled = np.clip((x - location) / spread, -10, 10)
    return np.where(np.isnan(scaled), 0, scaled)


VALUES = st.one_of(st.sampled_from([0.0, 5.0, np.nan, np.inf, -np.inf, 1e30]), st.integers(-99, 99))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=60))
def test_statistics_are_the_slow_ones(rows: list[tuple[float, float]]) -> None:
    table = np.array(rows, np.float32)
    for fast, slow in zip(location_and_spread(table), slow_statistics(table), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-5)


def test_outliers_infinities_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(50, 15, (400, 3)).astype(np.float32)
    x[::20, 0] = 1e30
    x[::7, 1] = np.nan
    scaler = OnlineScaler(3, 3)
    assert scaler(x)[:, 2].max() == CLIP  # before the first update: clipped, and nothing else
    assert np.isfinite(scaler(x)).all()
    scaler.update(x)
    scaled = scaler(x)
    usual = scaled[1:20]
    assert abs(usual[:, 0].mean()) < 0.5
    assert 0.7 < usual[:, 0].std() < 1.4
    assert (scaled[::20, 0] == CLIP).all()
    assert (scaled[::7, 1] == 0).all()
    assert scaler(np.array([[np.inf, -np.inf, np.nan]])).tolist() == [[CLIP, -CLIP, 0]]
    np.testing.assert_array_equal(scaler.on_tensor(torch.from_numpy(x)).numpy(), scaled)


def test_the_reservoir_is_a_sample_of_all_rows_and_does_not_depend_on_batches() -> None:
    x = np.arange(20_000, dtype=np.float32)[:, None]
    whole, parts = OnlineScaler(1, 1), OnlineScaler(1, 1)
    whole.update(x)
    for start in range(0, len(x), 7):
        parts.update(torch.from_numpy(x[start : start + 7]))
    kept = whole.state_dict()["rows"][:, 0]
    assert kept.tolist() == parts.state_dict()["rows"][:, 0].tolist()
    assert len(np.unique(kept)) == ROWS
    # A uniform sample: the mean of 1,000 of 20,000 numbers has a standard error of 178.
    assert abs(kept.mean() - 10_000) < 4 * 178
    assert abs((kept < 5000).mean() - 0.25) < 4 * 0.014


def test_the_factor_and_offset_of_new_statistics() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(3, 2, (60, 2)).astype(np.float32)
    scaler = OnlineScaler(2, 1)
    scaler.update(x[:20])
    before = scaler(x)
    factor, offset = scaler.update(x[20:] * 5)  # type: ignore[misc]
    np.testing.assert_allclose(before * factor + offset, scaler(x), atol=1e-5)
    assert scaler.update(x[:1]) is None  # the count has grown by less than 5 %


class Watch:
    """Notes what it reads; its scores are the first inputs."""

    calls: list[tuple[str, np.ndarray]] = []  # noqa: RUF012
    kind = "predict"

    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
        self.source, self.classes = source, spec.classes
        self.learnt: list[int] = []
        type(self).calls = []

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append((self.kind, x.numpy().copy()))
        return x[:, : self.classes].clone()

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        self.kind = "learn"
        self.predict(batch.x)  # within `learn`: must not be scaled twice
        self.kind = "predict"
        self.learnt.append(int(batch.index[0]))
        self.calls.append(("replay", self.source.samples(np.array(self.learnt))[0].numpy().copy()))
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"learnt": list(self.learnt)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert set(state) == {"learnt"}
        self.learnt = list(state["learnt"])


def vectors(count: int = 90, batch: int = 3, **how: Any) -> sg.Stream:
    rng = np.random.default_rng(3)
    x = rng.normal(0, 1, (count, 4)).astype(np.float32) * [1, 30, 0.01, 1] + [0, 500, 0, 0]
    x[::6, 1] = np.nan
    x[:, 3] = rng.integers(0, 2, count)  # not scaled
    columns = {"time": np.arange(count), "user": np.zeros(count, np.int64)}
    source = VectorSource(x.astype(np.float32), np.arange(count) % 3, 3, **columns)
    return sg.arrange(source, sg.Arrangement(batch=batch, **how))


def expected(stream: sg.Stream, trained: list[int], index: np.ndarray) -> np.ndarray:
    read = stream.source.read
    x = read(index)
    some = slow_scaled([read(stream.index(step))[:, :3] for step in trained], x[:, :3])
    return np.concatenate([some, x[:, 3:]], axis=1)


@pytest.mark.parametrize("protocol", [{}, {"cost": "5/2"}, {"cost": "5/2", "label_delay": 4}])
def test_every_read_has_the_statistics_of_its_version(
    tmp_path: Path, protocol: dict[str, Any]
) -> None:
    """Online and near-future answers, delayed and skipped training, replay."""
    stream = vectors()
    how = sg.Protocol(evaluate="never", shifts=(9,), **protocol)
    run = sg.run(stream, Watch, protocol=how, out=tmp_path)
    trained = run.jobs["step"].tolist()
    assert len(trained) < len(stream) if "cost" in protocol else len(trained) == len(stream)
    rows = run.predictions
    answers, learnt, replays = (
        [x for kind, x in Watch.calls if kind == wanted]
        for wanted in ("predict", "learn", "replay")
    )
    for number, x in enumerate(answers):
        one = slice(3 * number, 3 * number + 3)
        version = int(rows["version"][one][0])
        want = expected(stream, trained[:version], rows["sample"][one])
        np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-4)
    for number, x in enumerate(learnt):
        want = expected(stream, trained[: number + 1], stream.index(trained[number]))
        np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-4)
        first = np.array([stream.index(step)[0] for step in trained[: number + 1]])
        want = expected(stream, trained[: number + 1], first)
        np.testing.assert_allclose(replays[number], want, rtol=1e-4, atol=1e-4)


def test_an_evaluation_has_the_statistics_of_its_version(tmp_path: Path) -> None:
    stream = vectors(held_out=0.2)
    run = sg.run(stream, Watch, protocol=sg.Protocol(evaluate=10), out=tmp_path)
    sizes = np.diff(stream.starts)
    evaluated = [x for kind, x in Watch.calls if kind == "predict" and len(x) > sizes.max()]
    assert len(evaluated) >= 2
    trained = run.jobs["step"].tolist()
    split = stream.splits["held_out"]
    want = expected(stream, trained, split.index[: len(evaluated[-1])])
    np.testing.assert_allclose(evaluated[-1], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learner", ["er", "slda", "ncm", "finetune"])
def test_a_resumed_run_writes_the_same_log(learner: str) -> None:
    from streamgauge.checks.conformance import _Drive, _predictions, _through_disk

    stream = vectors()
    settings = {"model": "mlp"} if learner in ("er", "finetune") else {}
    recipe = sg.learner(learner, **settings)
    protocol = sg.Protocol(evaluate="never", cost="3/2", shifts=(9,))
    whole = _predictions(_Drive(recipe, CPU, stream, protocol).end())
    for stop in (1, 8, 20):
        begun = _Drive(recipe, CPU, stream, protocol).to(stop)
        rest = _Drive(recipe, CPU, stream, protocol)
        rest.loop.load_state_dict(_through_disk(begun.loop.state_dict(), CPU))
        late = whole["step"] >= stop
        assert (_predictions(rest.end())["confidence"] == whole["confidence"][late]).all()


def test_linear_statistics_are_those_of_standardised_inputs(tmp_path: Path) -> None:
    """Class means and covariances move along with the statistics: SLDA on raw columns of very
    different sizes ends where it ends on the columns as the last version reads them."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 300)
    x = (rng.normal(size=(300, 5)) + 2 * np.eye(3, 5)[y]) * 10.0 ** np.arange(-2, 3) + 40
    stream = sg.arrange(VectorSource(x, y, 5), sg.Arrangement(batch=1))
    recipe = sg.learner("slda")
    gate = Gate(stream.source, stream.preparation, CPU)
    gate.reveal(stream.order)
    gate.label_due(stream.order)
    online = recipe.build(stream.spec, gate, 0, CPU)
    for step in range(len(stream)):
        index = stream.index(step)
        online.learn(sg.Batch(*gate.samples(index), index), None)
    state = online.state_dict()["input_scaler"]
    fixed = (x.astype(np.float32) - state["location"]) * state["factor"]
    plain = sg.arrange(sg.ArraySource(fixed, y), sg.Arrangement(batch=1))
    offline = recipe.build(plain.spec, Gate(plain.source, plain.order, CPU), 0, CPU)
    offline.learn(sg.Batch(torch.from_numpy(fixed), torch.from_numpy(y), plain.order), None)
    scores = online.predict(torch.from_numpy(x.astype(np.float32)))
    same = offline.predict(torch.from_numpy(fixed))
    assert (scores.argmax(1) == same.argmax(1)).float().mean() > 0.99
    assert (scores.argmax(1).numpy() == y).mean() > 0.7


def test_scaling_costs_no_flops(tmp_path: Path) -> None:
    stream = vectors()
    plain = sg.ArraySource(np.nan_to_num(stream.source.read(np.arange(90))), stream.source.label)
    flops = [
        sg.run(some, sg.learner("er", model="mlp"), out=tmp_path).jobs["flops"].tolist()
        for some in (stream, sg.arrange(plain, sg.Arrangement(batch=3)))
    ]
    assert flops[0] == flops[1]


def test_preparation_samples_are_the_first_statistics() -> None:
    stream = vectors(preparation=0.5)
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = build_scaled(lambda gate: Watch(stream.spec, gate, 0, CPU), gate)
    x = stream.source.read(stream.order)
    learner.predict(torch.from_numpy(x))
    want = slow_scaled([stream.source.read(stream.preparation)[:, :3]], x[:, :3])
    np.testing.assert_allclose(Watch.calls[-1][1][:, :3], want, rtol=1e-4, atol=1e-4)


def test_a_source_on_a_device_is_scaled_in_the_same_way(tmp_path: Path) -> None:
    from dataclasses import replace

    from streamgauge.checks.conformance import _Drive, _predictions

    stream = vectors()
    there = replace(stream, source=Resident(stream.source, CPU))
    recipe, protocol = sg.learner("er", model="mlp"), sg.Protocol(evaluate="never")
    logs = [_predictions(_Drive(recipe, CPU, some, protocol).end()) for some in (stream, there)]
    assert (logs[0]["confidence"] == logs[1]["confidence"]).all()


def test_a_recorded_run_is_scaled_in_the_same_way(tmp_path: Path) -> None:
    stream = vectors(240)
    runs = [
        sg.run(
            stream,
            sg.learner("er", model="mlp"),
            execution=sg.Execution(device="cpu", engine=engine),
            out=tmp_path / engine,
        )
        for engine in ("eager", "graph")
    ]
    first, second = (run.predictions["confidence"] for run in runs)
    np.testing.assert_allclose(first, second, rtol=1e-3)


def test_a_live_run_answers_with_the_statistics_of_its_trainer(tmp_path: Path) -> None:
    from streamgauge.live import live

    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 400)
    x = (rng.normal(size=(400, 3)) + 3 * y[:, None]) * [1, 100, 0.01] + [0, 5000, 0]
    stream = sg.arrange(VectorSource(x, y, 3), sg.Arrangement(batch=4))
    run = live(stream, "ncm", 2000, trainer="thread", shifts=(40,), out=tmp_path, device="cpu")
    rows = run.predictions
    late = rows["step"] > 50
    assert (rows["label"] == rows["prediction"])[late].mean() > 0.9
    assert set(rows["shift"][late].tolist()) > {0}


def test_images_are_not_scaled() -> None:
    with pytest.raises(StreamgaugeError, match="no vectors"):
        VectorSource(np.zeros((4, 3, 8, 8), np.float32), np.arange(4), 3)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_many_steps_at_once_are_standardised_as_one_after_the_other(size: int) -> None:
    rng = np.random.default_rng(size)
    x = (rng.normal(size=(2300, 3)) * [1, 10, 1e4]).astype(np.float32)
    x[rng.random(x.shape) < 0.02] = np.nan
    ends = np.unique(np.r_[rng.integers(1, len(x), len(x) // size), len(x)])
    ends = np.arange(1, len(x) + 1) if size == 1 else ends
    one, many = OnlineScaler(3, 2), OnlineScaler(3, 2)
    answered, learnt = [], []
    for begin, end in pairwise([0, *ends.tolist()]):
        answered.append(one(x[begin:end]))
        one.update(x[begin:end])
        learnt.append(one(x[begin:end]))
    at = 0
    for turn in np.array_split(ends, 7):  # turns of several steps
        begin, at = at, int(turn[-1])
        ours = many.in_turns(x[begin:at], turn - begin)
        for mine, theirs in zip(ours, (answered, learnt), strict=True):
            np.testing.assert_array_equal(mine, np.concatenate(theirs)[begin:at])
    for name, value in one.state_dict().items():
        np.testing.assert_array_equal(value, many.state_dict()[name])
