"""Curves over held-out data, and distances on the globe."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError

NAN = float("nan")


def make_log(seed, steps=60, batch=4, held_out=50, at=(20, 40, 60), times=True, predict=True):
    """A stream of steps * batch samples, held-out samples strewn over it, asked at a few steps."""
    rng = np.random.default_rng(seed)
    n = steps * batch
    position = rng.integers(0, n + 1, held_out)  # unsorted, several at one place
    columns = {
        "evaluation": np.repeat(np.arange(len(at)), held_out),
        "step": np.repeat(at, held_out),
        "split": np.array(["heldout"] * held_out * len(at), dtype=object),
        "label": np.tile(rng.integers(0, 3, held_out), len(at)),
        "prediction": rng.integers(0, 3, held_out * len(at)),
        "position": np.tile(position, len(at)),
    }
    if times:
        columns["time"] = 1000.0 + 10 * columns["position"]
    predictions = {}
    if predict:
        index = np.arange(n)
        shifted = index[8:]
        predictions = {
            "step": np.concatenate([index // batch, shifted // batch]),
            "shift": np.concatenate([np.zeros(n, int), np.full(n - 8, 8)]),
        }
    return SimpleNamespace(predictions=predictions, evaluations={}, answers=columns)


def rows_of(log, number):
    a = log.answers
    keep = [i for i in range(len(a["step"])) if a["evaluation"][i] == number]
    return [(int(a["position"][i]), bool(a["label"][i] == a["prediction"][i])) for i in keep]


@pytest.mark.parametrize("seed", range(6))
def test_transfer_curves(seed):
    log = make_log(seed)
    for past, curves in (
        (True, m.backward_transfer_curve(log)),
        (False, m.forward_transfer_curve(log)),
    ):
        assert [c.step for c in curves] == [20, 40, 60]
        for number, curve in enumerate(curves):
            moment = curve.step * 4
            assert curve.position == moment
            side = [r for r in rows_of(log, number) if (r[0] < moment) == past]
            assert len(curve.accuracy) == len(side)
            assert np.all(np.diff(curve.lag) >= 0)
            for i in range(len(curve.lag)):
                # All held-out samples at most this far from the model's moment; samples at the same
                # place come in some order, so look only at the last of them.
                lag = curve.lag[i]
                if i + 1 < len(curve.lag) and curve.lag[i + 1] == lag:
                    continue
                near = [ok for p, ok in side if abs(p - moment) <= lag]
                assert curve.accuracy[i] == pytest.approx(sum(near) / len(near))
                where = moment - lag if past else moment + lag
                assert curve.time[i] == 1000 + 10 * where


def test_past_and_future_together_are_everything():
    log = make_log(3)
    for back, forth in zip(
        m.backward_transfer_curve(log), m.forward_transfer_curve(log), strict=True
    ):
        hits = sum(
            round(curve.accuracy[-1] * len(curve.accuracy))
            for curve in (back, forth)
            if len(curve.accuracy)
        )
        number = [20, 40, 60].index(back.step)
        assert len(back.accuracy) + len(forth.accuracy) == 50
        assert hits == sum(ok for _, ok in rows_of(log, number))


@pytest.mark.parametrize("seed", range(4))
def test_retention_curves(seed):
    log = make_log(seed, times=False)
    final = m.retention_curve(log)
    rows = sorted(rows_of(log, 2), key=lambda r: r[0])
    assert final.position.tolist() == [p for p, _ in rows]
    hits = np.cumsum([ok for _, ok in rows])
    np.testing.assert_allclose(final.accuracy, hits / np.arange(1, 51))
    assert final.direction == "oldest to newest"
    assert np.isnan(final.time).all()
    each = m.retention_curve(log, kind="each")
    assert each.position.tolist() == [80, 160, 240]
    for number, moment in enumerate([80, 160, 240]):
        seen = [ok for p, ok in rows_of(log, number) if p < moment]
        assert each.accuracy[number] == pytest.approx(sum(seen) / len(seen))


def test_directions_are_opposite():
    """A model that knows only the newest third: CLOC's curve falls, EvalOCL's rises."""
    position = np.arange(90)
    log = SimpleNamespace(
        predictions={"step": np.arange(90), "shift": np.zeros(90, int)},
        evaluations={},
        answers={
            "evaluation": np.zeros(90, int),
            "step": np.full(90, 90),
            "split": np.array(["test"] * 90),
            "label": np.zeros(90, int),
            "prediction": np.where(position >= 60, 0, 1),
            "position": position,
        },
    )
    (back,) = m.backward_transfer_curve(log, at=[1.0])
    kept = m.retention_curve(log)
    assert back.accuracy[0] == 1
    assert kept.accuracy[0] == 0
    assert np.all(np.diff(back.accuracy) <= 0)
    assert np.all(np.diff(kept.accuracy) >= 0)
    assert back.accuracy[-1] == kept.accuracy[-1] == pytest.approx(1 / 3)


def test_without_predictions_steps_are_taken_as_equal():
    log = make_log(1, predict=False)
    last = log.answers["position"].max()
    positions = [curve.position for curve in m.backward_transfer_curve(log)]
    assert positions == [round((last + 1) / 3), round(2 * (last + 1) / 3), last + 1]
    # At the end everything is past.
    assert len(m.backward_transfer_curve(log)[2].accuracy) == 50


def test_a_missing_moment_is_said_and_the_split_is_checked():
    log = make_log(0, at=(20, 60))
    with pytest.warns(m.UndefinedMetric, match=r"near 0\.667 of the stream"):
        curves = m.backward_transfer_curve(log)
    assert [c.step for c in curves] == [20, -1, 60]
    assert len(curves[1].accuracy) == 0
    with pytest.raises(StreamgaugeError, match="did you mean 'heldout'"):
        m.retention_curve(log, split="held_out")
    with pytest.raises(StreamgaugeError, match="did you mean 'final'"):
        m.retention_curve(log, kind="finl")
    del log.answers["position"]
    with pytest.raises(StreamgaugeError, match="no column 'position'"):
        m.retention_curve(log)


# --- geolocation -----------------------------------------------------------------------------


def haversine(lat1, lon1, lat2, lon2):
    """The usual formula, good away from antipodes."""
    p, q = math.radians(lat1), math.radians(lat2)
    d = math.radians(lon2 - lon1)
    h = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin(d / 2) ** 2
    return 2 * 6371.0088 * math.asin(math.sqrt(min(1.0, h)))


places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(places, places)
def test_great_circle_distance(a, b):
    there = m.geolocation_error([a], [b]).distance[0]
    back = m.geolocation_error([b], [a]).distance[0]
    half = math.pi * 6371.0088
    # Near the antipode the haversine loses digits, about 1e-8 of a half turn.
    assert there == pytest.approx(haversine(*a, *b), rel=1e-6, abs=1e-3 * half * 1e-3)
    assert there == pytest.approx(back, abs=1e-6)
    assert 0 <= there <= half * (1 + 1e-12)
    assert m.geolocation_error([a], [a]).distance[0] == pytest.approx(0, abs=1e-9)


def test_known_distances_and_thresholds():
    degree = math.pi * 6371.0088 / 180
    true = [[0, 0], [0, 0], [90, 0], [0, 0], [10, 179.5], [0, 0]]
    guess = [[0, 1], [0, 180], [-90, 77], [0.001, 0], [10, -179.5], [0, NAN]]
    error = m.geolocation_error(true, guess)
    np.testing.assert_allclose(
        error.distance[[0, 1, 2, 3]], [degree, 180 * degree, 180 * degree, degree / 1000], rtol=1e-9
    )
    assert error.distance[4] < degree  # across the date line, not around the world
    assert math.isnan(error.distance[5])
    # One at 0.11 km, two at about 110 km, two at the antipode, one unknown and not counted.
    np.testing.assert_allclose(error.within, [0.2, 0.2, 0.6, 0.6, 0.6])
    np.testing.assert_array_equal(error.thresholds, [1, 25, 200, 750, 2500])
    assert np.isnan(m.geolocation_error([[NAN, 0]], [[0, 0]]).within).all()
    with pytest.raises(StreamgaugeError, match=r"\[samples, 2\]"):
        m.geolocation_error([1, 2], [1, 2])
    with pytest.raises(StreamgaugeError, match="latitude is outside"):
        m.geolocation_error([[151, -33]], [[0, 0]])
