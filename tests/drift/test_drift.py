"""Is there a shift at all: false alarms and power on streams whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamgauge import catalogue
from streamgauge.cli import app
from streamgauge.drift import find_drift, stream_drift, table_drift
from streamgauge.drift.compare import Drift
from streamgauge.drift.layout import correlation_length, lay_out
from streamgauge.drift.models import FeatureScaling, RidgeRegression, scores_blind
from streamgauge.drift.page import drift_page
from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Figure, PageTable


def chain(seed: int, count: int, rho: float, classes: int = 10) -> np.ndarray:
    """Labels that repeat with probability rho and are else drawn afresh, by Zipf's law."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, classes + 1)
    drawn = rng.choice(classes, count, p=share / share.sum())
    fresh = rng.random(count) >= rho
    fresh[0] = True
    return drawn[np.maximum.accumulate(np.where(fresh, np.arange(count), 0))]


def turning(seed: int, count: int, rho: float, most: float) -> np.ndarray:
    """The same, but more and more labels are exchanged, up to a share `most` at the end."""
    label = chain(seed, count, rho)
    moved = np.random.default_rng([seed, 1]).random(count) < most * np.arange(count) / count
    return np.where(moved, 9 - label, label)


def alarms(streams) -> float:
    return float(np.mean([find_drift(y, chance=0.05, permutations=99).drift for y in streams]))


def sure_below(rate: float, runs: int) -> float:
    """A share that 'runs' runs at this rate stay under, but for one time in 30,000 (4 sigma)."""
    return rate + 4 * np.sqrt(rate * (1 - rate) / runs)


@pytest.mark.parametrize(("rho", "count"), [(0.0, 3000), (0.9, 6000), (0.97, 12000)])
def test_false_alarms_are_as_rare_as_asked_also_where_labels_repeat(rho: float, count: int) -> None:
    assert alarms(chain(seed, count, rho) for seed in range(60)) <= sure_below(0.05, 60)


def test_without_a_gap_albums_would_be_taken_for_a_shift() -> None:
    """What the gap is for: the same streams, tested right beside what was learnt."""
    found = [
        find_drift(chain(seed, 4000, 0.97), gap=0, chance=0.05, permutations=99).drift
        for seed in range(30)
    ]
    assert np.mean(found) > sure_below(0.05, 30)


def test_a_shift_of_the_labels_is_found() -> None:
    assert alarms(turning(seed, 6000, 0.0, 0.7) for seed in range(20)) == 1
    assert alarms(turning(seed, 20000, 0.9, 0.8) for seed in range(10)) >= 0.8


def test_a_shift_of_the_inputs_is_found_where_labels_say_nothing() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 4000)
    centre = rng.normal(size=(4, 3))
    turned = rng.permutation(4)
    late = np.arange(4000) / 4000 > rng.random(4000)
    still = centre[label] + 0.5 * rng.normal(size=(4000, 3))
    moving = np.where(late[:, None], centre[turned][label], centre[label])
    moving = moving + 0.5 * rng.normal(size=(4000, 3))
    assert not find_drift(label).drift
    assert not find_drift(label, still).drift
    assert find_drift(label, moving).drift


def test_generated_photos_shift_only_when_scenes_do() -> None:
    moving = stream_drift(catalogue.stream("albums", length=6000))
    still = stream_drift(catalogue.stream("albums", length=6000, drift=0))
    assert moving.drift
    assert not still.drift
    assert moving.inputs
    assert moving.time is not None


def test_the_advantage_of_class_frequencies_has_a_closed_form() -> None:
    """Half a stream of class 0, half of 1: own 1, other 0, and the whole range a half."""
    found = find_drift(np.repeat([0, 1], 2000), periods=2, gap=0)
    assert (found.own, found.other, found.advantage) == (1.0, 0.0, 1.0)
    assert found.whole == pytest.approx(0.5, abs=0.05)
    assert found.matrix.tolist() == [[1, 0], [0, 1]]
    assert found.drift
    with pytest.warns(DeprecationWarning, match=r"Drift\.drift"):
        assert found.shift


def test_the_statistic_is_that_of_a_slow_version() -> None:
    label = turning(3, 4000, 0.5, 0.5)
    found = find_drift(label, periods=4, seed=5)
    plan = lay_out(4000, found.gap, 4, 20_000, 20_000, 5)
    lead, own = [], []
    for unit in range(len(plan.period)):
        scores = []
        for index in plan.train:
            tested = [y for y, b in zip(label[plan.test], plan.block, strict=True) if b == unit]
            learnt = label[index].tolist()
            scores.append(np.mean([learnt.count(y) / len(learnt) for y in tested]))
        mine = scores.pop(plan.period[unit])
        lead.append(mine - np.mean(scores))
        own.append(mine)
    assert found.advantage == pytest.approx(np.mean(lead), abs=1e-6)
    assert found.own == pytest.approx(np.mean(own), abs=1e-6)
    assert found.other == pytest.approx(np.mean(own) - np.mean(lead), abs=1e-6)


@given(st.integers(400, 5000), st.integers(0, 12), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_nothing_tested_lies_near_what_was_learnt(count: int, gap: int, seed: int) -> None:
    plan = lay_out(count, gap, None, 20_000, 20_000, seed)
    learnt = np.unique(np.concatenate([*plan.train, plan.whole]))
    after = np.searchsorted(learnt, plan.test)
    right = learnt[np.minimum(after, len(learnt) - 1)] - plan.test
    left = plan.test - learnt[np.maximum(after - 1, 0)]
    nearest = np.minimum(np.where(right > 0, right, count), np.where(left > 0, left, count))
    assert nearest.min() > gap
    assert not np.isin(plan.test, learnt).any()
    assert len({len(index) for index in [*plan.train, plan.whole]}) == 1  # equally many samples
    for period, index in enumerate(plan.train):
        assert index.min() >= plan.starts[period]
        assert index.max() < plan.starts[period + 1]


def test_the_correlation_length_grows_with_the_albums() -> None:
    lengths = [correlation_length(chain(0, 40_000, rho)) for rho in (0.0, 0.5, 0.9, 0.98)]
    assert lengths[0] == 0
    assert lengths == sorted(lengths)
    # (1 - pi) rho^d is a twentieth of what it is at 1: d = 1 + log .05 / log rho, on a coarse grid.
    for rho, found in zip((0.5, 0.9), lengths[1:], strict=False):
        exact = 1 + np.log(0.05) / np.log(rho)
        assert exact / 1.6 <= found <= exact * 1.6


def test_the_linear_model_is_that_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 6)).astype(np.float32)
    label = rng.choice([0, 2, 3], 1500, p=[0.2, 0.3, 0.5])
    x[np.arange(1500), label] += 2
    everything = np.arange(1500)
    inputs = FeatureScaling(lambda index: x[index], everything, 0)
    model = RidgeRegression(inputs, everything, label)
    features = inputs(everything)
    np.testing.assert_allclose(features[:, :6], (x - x.mean(0)) / x.std(0), atol=1e-5)
    design = np.concatenate([features, np.ones((1500, 1))], axis=1)
    centred = features - features.mean(0)
    ridge = 0.01 * np.mean((centred**2).sum(0)) * np.eye(features.shape[1] + 1)
    ridge[-1, -1] = 0  # the constant is not held back
    target = np.stack([label == c for c in (0, 2, 3)], axis=1).astype(float)
    wanted = design @ np.linalg.solve(design.T @ design + ridge, design.T @ target)
    np.testing.assert_allclose(model.scores(features), wanted, atol=1e-6)
    assert model.predict(features).tolist() == [(0, 2, 3)[k] for k in wanted.argmax(1)]


def test_waves_are_a_gaussian_kernel_as_wide_as_the_median_distance() -> None:
    x = np.random.default_rng(0).normal(size=(400, 3))
    inputs = FeatureScaling(lambda index: x[index], np.arange(400), 1)
    z = (x - x.mean(0)) / x.std(0)
    away = np.linalg.norm(z[:, None] - z, axis=-1)
    middle = np.median(away[np.triu_indices(400, 1)])
    waves = inputs(np.arange(400))[:, 3:]
    kernel = np.exp(-(away**2) / (2 * middle**2))
    assert np.abs(waves @ waves.T - kernel).mean() < 0.05  # 512 waves: about 1 / sqrt(512)


def test_a_model_follows_what_is_not_linear() -> None:
    x = np.random.default_rng(0).normal(size=(4000, 2))
    inside = (np.hypot(*x.T) < 1.1).astype(int)
    assert find_drift(inside, x).own > 0.85


def test_scores_without_inputs_are_class_frequencies() -> None:
    label = np.array([0, 0, 1, 2, 0, 1])
    scores = scores_blind(label, [np.array([0, 1, 2, 3])], np.array([4, 5]), 3)
    assert scores.tolist() == [[0.5, 0.25]]


def test_wide_images_of_bytes_are_projected() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 1200)
    patterns = rng.integers(0, 150, (3, 3, 20, 20))
    x = (patterns[label] + rng.integers(0, 100, (1200, 3, 20, 20))).astype(np.uint8)
    found = find_drift(label, x)
    assert found.own > 0.9
    assert not found.drift


def test_a_table_is_sorted_by_time_and_gaps_in_features_are_counted(tmp_path: Path) -> None:
    label = np.sort(np.random.default_rng(0).integers(0, 5, 2000))
    shuffled = np.random.default_rng(1).permutation(2000)
    feature = np.random.default_rng(2).normal(size=2000)
    feature[7] = np.nan
    table = {"label": label[shuffled], "time": shuffled, "f": feature}
    assert table_drift(table).drift
    assert not table_drift({"label": label[shuffled]}).drift
    assert "taken as the order of time" in table_drift({"label": label[shuffled]}).notes[0]
    found = table_drift(table, features=["f"])
    assert found.samples == 1999
    assert "1 rows with a missing feature" in found.notes[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"chance": 0}, "--chance must be between 0 and 1"),
        ({"chance": 0.001, "permutations": 99}, "--chance must be at least 0.01"),
        ({"periods": 1}, "--periods must be from 2 to"),
        ({"shown": 11}, "--period must be a number from 1 to 10, not 11"),
        ({"gap": -1}, "--gap must be a number of samples from 0"),
        ({"gap": 900}, "too few"),
        ({"samples": 1}, "--samples must be at least 2"),
        ({"seed": -1}, "--seed must be a whole number from 0"),
        ({"x": np.zeros((3, 2))}, "3 inputs for 4000 labels"),
    ],
)
def test_impossible_wishes_are_refused(options, says: str) -> None:
    with pytest.raises(StreamgaugeError, match=says):
        find_drift(chain(0, 4000, 0), **options)


def test_streams_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(StreamgaugeError, match="too few"):
        find_drift(chain(0, 100, 0))
    with pytest.raises(StreamgaugeError, match="one class only"):
        find_drift(np.zeros(1000, int))
    with pytest.raises(StreamgaugeError, match="whole number"):
        find_drift(np.zeros(1000))


def test_the_answer_repeats_and_follows_its_seed() -> None:
    label = turning(1, 4000, 0.3, 0.3)
    assert find_drift(label, samples=50).to_dict() == find_drift(label, samples=50).to_dict()
    assert find_drift(label, samples=50).own != find_drift(label, samples=50, seed=1).own


def sentence(p_value: float, limits: tuple[float, float]) -> str:
    found = find_drift(chain(0, 1000, 0))
    facts = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return Drift(**{**facts, "p_value": p_value, "limits": limits}).words


def test_the_sentence_says_one_of_three_things() -> None:
    assert sentence(0.001, (0.01, 0.02)).startswith("There is drift:")
    assert sentence(0.2, (-0.01, 0.02)).startswith("No drift was detected:")
    assert "more than 2.0 points is unlikely" in sentence(0.2, (-0.01, 0.02))
    assert sentence(0.02, (0.001, 0.02)).startswith("Drift is not certain")


def test_the_page_draws_both_curves_and_escapes_names() -> None:
    found = find_drift(
        turning(0, 4000, 0, 0.8), time=1_300_000_000 + 3600 * np.arange(4000), name="<b>mine</b>"
    )
    page = drift_page(found).render()
    assert "&lt;b&gt;mine" in page
    assert "<b>mine" not in page
    assert "model of the whole range" in page
    assert "2011-03-13" in page
    assert "<script src" not in page


def test_the_page_draws_what_the_result_is_about() -> None:
    """The middle period may say the opposite of the mean over all."""
    found = find_drift(turning(0, 6000, 0, 0.8))
    distance, over_time = (b for b in drift_page(found).blocks if isinstance(b, Figure))
    (line,) = distance.data
    assert line["y"][0] == pytest.approx(100 * found.advantage, abs=0.5)
    assert line["y"][0] > line["y"][3] > line["y"][-1]
    own = np.diag(found.matrix) - (found.matrix.sum(0) - np.diag(found.matrix)) / (
        found.periods - 1
    )
    assert abs(own - found.advantage).argmin() + 1 == found.shown
    assert f"{found.shown} of {found.periods}" in over_time.caption
    assert find_drift(turning(0, 6000, 0, 0.8), shown=2).shown == 2
    table = drift_page(found).blocks[-1]
    assert isinstance(table, PageTable)
    shares = [cell.share for row in table.rows for cell in row[1:]]  # type: ignore[union-attr]
    assert (min(shares), max(shares)) == (0, 1)  # type: ignore[type-var]


def test_the_command_answers_for_a_table_and_for_a_stream(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(str(y) for y in turning(0, 3000, 0, 0.9))
    Path("log.csv").write_text(f"y\n{lines}\n")
    run = CliRunner()
    done = run.invoke(app, ["data", "shift", "log.csv", "--report", "s.html"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("There is drift:")
    assert Path("s.html").is_file()
    words = ["data", "shift", "--stream", "markov", "--json"]
    done = run.invoke(app, words, obj={"stream.length": "3000", "stream.rho": "0.5"})
    assert json.loads(done.output)["drift"] is json.loads(done.output)["shift"] is False
    done = run.invoke(app, ["drift"])
    assert "a table, or --stream" in str(done.exception)
    done = run.invoke(app, ["data", "shift", "--stream", "markov"], obj={"er.lr": "1"})
    assert "--er.lr has no meaning here" in str(done.exception)


def test_a_table_and_the_same_table_as_a_stream_give_one_answer(tmp_path: Path) -> None:
    """The relation of input and label turns over; the frequencies of the classes do not change."""
    rng = np.random.default_rng(0)
    x, late = rng.normal(size=2000), np.arange(2000) >= 1000
    label = (x > 0) ^ late
    lines = [f"{value:.4f},{int(y)}" for value, y in zip(x, label, strict=True)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["a,label", *lines]))
    answers = []
    for words in ([str(path)], ["--stream", str(path)]):
        done = CliRunner().invoke(app, ["drift", *words, "--json"], obj={})
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
    assert answers[0]["drift"]
    blind = CliRunner().invoke(app, ["drift", str(path), "--feature", "none"], obj={})
    assert blind.stdout.startswith("No drift was detected:")
