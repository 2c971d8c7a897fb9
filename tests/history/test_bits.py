"""Bits that past labels explain and that answers add, on streams whose truth is known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamgauge.audit import explain
from streamgauge.errors import StreamgaugeError
from streamgauge.history.bits import SCHEMA, Explanation
from streamgauge.history.forecasters import Forecaster, family_right, forecast
from streamgauge.history.known import Regular, known_labels
from streamgauge.history.periods import repeating_lags

N = 20_000
Array = np.ndarray[Any, Any]


def sticky(n: int = N, classes: int = 10, stay: float = 0.9, seed: int = 0) -> Array:
    """The last label with probability ``stay``, else any class."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, classes, n)
    begins = np.where((rng.random(n) >= stay) | (np.arange(n) == 0), np.arange(n), 0)
    return drawn[np.maximum.accumulate(begins)]


def back(labels: Array, lag: int) -> Array:
    return np.concatenate([np.zeros(lag, labels.dtype), labels])[: labels.size]


def honest(labels: Array, accuracy: float, classes: int, seed: int = 7) -> Array:
    rng = np.random.default_rng(seed)
    wrong = (labels + rng.integers(1, classes, labels.size)) % classes
    return np.where(rng.random(labels.size) < accuracy, labels, wrong)


def information(prior: Array, channel: Array) -> float:
    """Mutual information in bits of a label with this prior and an answer p(answer | label)."""
    joint = prior[:, None] * channel
    split = prior[:, None] * joint.sum(axis=0)
    return float(np.sum(joint * np.log2(np.where(joint > 0, joint / split, 1))))


def entropy_rate(stay: float, classes: int, gap: int = 1) -> float:
    kept = stay**gap
    rest = (1 - kept) / classes
    top = kept + rest
    return -top * math.log2(top) - (classes - 1) * rest * math.log2(rest)


def modes(labels: Array, window: int, classes: int) -> Array:
    counts = np.zeros(classes, int)
    answers = np.zeros_like(labels)
    for j in range(1, labels.size):
        counts[labels[j - 1]] += 1
        if j > window:
            counts[labels[j - 1 - window]] -= 1
        answers[j] = counts.argmax()
    return answers


def least_recent(labels: Array, classes: int) -> Array:
    seen = np.full(classes, N * 10)
    answers = np.zeros_like(labels)
    for j in range(1, labels.size):
        seen[labels[j - 1]] = j
        answers[j] = seen.argmin()
    return answers


def blind_answers(labels: Array, classes: int, *periods: int) -> dict[str, Array]:
    """Answers of models that never saw an input."""
    answers = {"last": back(labels, 1), "last + 1": (back(labels, 1) + 1) % classes}
    answers |= {f"mode of {k}": modes(labels, k, classes) for k in (3, 10, 50, 300, 2000, N)}
    answers |= {"constant": np.full_like(labels, np.bincount(labels).argmax())}
    answers |= {"least recent": least_recent(labels, classes)}
    return answers | {f"{period} back": back(labels, period) for period in periods}


def test_sticky_labels_an_honest_model_a_copy_and_half_of_each() -> None:
    labels = sticky()
    truth = math.log2(10) - entropy_rate(0.9, 10)
    assert abs(entropy_rate(0.9, 10) - 0.722) < 0.001
    copy = explain(labels, back(labels, 1))
    assert abs(copy.history.value - truth) < 0.03
    assert copy.history.low < truth < copy.history.high
    assert abs(copy.added.value) < 0.005
    assert abs(copy.placebo.value) < 0.005
    assert copy.experts[0].name.startswith("the last label")
    # Given the last label, the answer tells I(label; answer) with p(label | last) as the prior.
    prior = np.full(10, 0.01)
    prior[0] = 0.91
    channel = np.full((10, 10), 0.3 / 9) + np.eye(10) * (0.7 - 0.3 / 9)
    model = honest(labels, 0.7, 10)
    added = explain(labels, model).added
    assert abs(added.value - information(prior, channel)) < 0.02
    assert added.low > 0.2
    half = np.where(np.random.default_rng(3).random(N) < 0.5, model, back(labels, 1))
    channel = 0.5 * channel + 0.5 * np.eye(10)[0]
    got = explain(labels, half).added.value
    assert abs(got - 0.05) < 0.015
    assert got < information(prior, channel)


@pytest.mark.parametrize(
    ("stay", "shift", "within"), [(0.9, 5, 0.03), (0.9, 20, 0.012), (0.99, 50, 0.15)]
)
def test_sticky_labels_at_a_shift(stay: float, shift: int, within: float) -> None:
    truth = math.log2(10) - entropy_rate(stay, 10, shift + 1)
    streams = [sticky(stay=stay, seed=seed) for seed in range(4)]
    got = [explain(labels, back(labels, shift + 1), shift=shift) for labels in streams]
    assert abs(np.mean([one.history.value for one in got]) - truth) < within
    assert max(one.added.value for one in got) < 0.005


def test_nothing_is_found_where_nothing_is() -> None:
    rng = np.random.default_rng(5)
    for shift, step in ((0, 1), (5, 1), (50, 1), (0, 10), (20, 7), (500, 1)):
        labels, answers = rng.integers(0, 10, (2, N))
        got = explain(labels, answers, shift=shift, step=step)
        assert -0.01 < got.history.value < 0.005, (shift, step)
        assert abs(got.added.value) < 0.001
    far = explain(sticky(), shift=200)  # the truth is 1e-9 bits
    assert -0.01 < far.history.value < 0.01


def cover_type(seed: int) -> tuple[Array, int]:
    """Sticky labels with a stay rate per class and a skewed prior that drifts."""
    rng = np.random.default_rng(seed)
    stay, logit = rng.uniform(0.6, 0.97, 7), np.log([0.4, 0.3, 0.12, 0.08, 0.05, 0.03, 0.02])
    labels = np.zeros(N, int)
    for j in range(1, N):
        if j % 50 == 0:
            logit += rng.normal(0, 0.15, 7)
            prior = np.cumsum(np.exp(logit))
        leaves = j < 50 or rng.random() >= stay[labels[j - 1]]
        prior = np.cumsum(np.exp(logit)) if j < 50 else prior
        drawn = int(np.searchsorted(prior, rng.random() * prior[-1]))
        labels[j] = drawn if leaves else labels[j - 1]
    return labels, 7


def chain() -> tuple[Array, int]:
    rng = np.random.default_rng(1)
    successor, noise, drawn = rng.permutation(50), rng.random(N) < 0.2, rng.integers(0, 50, N)
    labels = drawn.copy()
    for j in range(1, N):
        labels[j] = drawn[j] if noise[j] else successor[labels[j - 1]]
    return labels, 50


def period(length: int, n: int, kept: float) -> tuple[Array, int]:
    rng = np.random.default_rng(length)
    pattern = np.tile(rng.integers(0, 8, length), n)[:n]
    return np.where(rng.random(n) < kept, pattern, rng.integers(0, 8, n)), 8


def rounds(count: int) -> tuple[Array, int]:
    rng = np.random.default_rng(2)
    return np.concatenate([rng.permutation(4) for _ in range(count)]), 4


# Stream, periods that an answer exploits, least and most history, most that any answer adds.
BLIND: dict[str, tuple[Callable[[], tuple[Array, int]], tuple[int, ...], float, float, float]] = {
    "chain": (chain, (), 3.54, 3.85, 0.001),
    "Rialto": (lambda: (np.arange(N) % 10, 10), (10,), 3.32, 3.33, 0.001),
    "period 48": (lambda: period(48, N, 0.85), (48,), 1.5, 2.3, 0.01),
    "period 24": (lambda: period(24, 1000, 0.65), (24,), 0.5, 1.5, 0.02),
    "Keystroke": (lambda: rounds(400), (4,), 0.8, 0.88, 0.01),
    "CoverType": (lambda: cover_type(0), (), 1.0, 2.2, 0.01),
    "CoverType again": (lambda: cover_type(1), (), 1.0, 2.2, 0.01),
}


def test_missing_answers_where_class_numbers_have_gaps() -> None:
    labels = np.arange(2000) % 3 * 2
    answers = np.where(np.arange(2000) % 2, labels, -1)
    assert explain(labels, answers).scored == 900


@pytest.mark.parametrize("name", BLIND)
def test_answers_that_never_saw_an_input_add_nothing(name: str) -> None:
    make, periods, least, most, limit = BLIND[name]
    labels, classes = make()
    answers = blind_answers(labels, classes, *periods)
    if name == "chain":
        pairs = np.bincount(labels[:-1] * 50 + labels[1:], minlength=2500).reshape(50, 50)
        answers["successor"] = np.append(0, pairs.argmax(axis=1)[labels[:-1]])
    for answer, given in answers.items():
        got = explain(labels, given)
        assert got.added.value < limit, answer
        assert got.placebo.value < 0.005
        assert least < got.history.value < most
    if name.startswith("period"):
        assert f"{periods[0]} samples" in got.experts[0].name


def test_the_last_label_of_a_user_adds_only_without_the_column() -> None:
    rng = np.random.default_rng(4)
    users, last = rng.integers(0, 50, N), dict[int, int]()
    labels, answers = np.zeros(N, int), np.zeros(N, int)
    for j, user in enumerate(users.tolist()):
        answers[j] = last.get(user, 0)
        labels[j] = answers[j] if rng.random() < 0.9 else rng.integers(0, 10)
        last[user] = int(labels[j])
    without = explain(labels, answers)
    assert without.added.value > 2.2
    assert without.missing == ["user", "album", "time"]
    given = explain(labels, answers, users=[f"user {u}" for u in users])
    assert abs(given.added.value) < 0.005
    assert given.missing == ["album", "time"]
    assert given.experts[0].name == "the last label of the same user"


def test_ages_that_vary_from_sample_to_sample() -> None:
    labels = sticky()
    ages = np.random.default_rng(1).integers(0, 400, N)
    copies = labels[np.maximum(np.arange(N) - ages - 1, 0)]
    truth = np.mean([math.log2(10) - entropy_rate(0.9, 10, age + 1) for age in ages])
    got = explain(labels, copies, shift=ages)
    assert abs(got.history.value - truth) < 0.01
    assert abs(got.added.value) < 0.005


def test_copies_in_albums_of_users_add_nothing() -> None:
    rng = np.random.default_rng(2)
    home = rng.integers(0, 70, 2000)
    labels, users = list[int](), list[int]()
    while len(labels) < N:
        user = int(2000 * rng.random() ** 3)
        album = home[user] if rng.random() < 0.5 else rng.integers(70)
        for _ in range(rng.geometric(0.5)):
            labels.append(int(album if rng.random() < 0.9 else rng.integers(70)))
            users.append(user)
    codes = np.array(labels[:N])
    for columns in ({"users": users[:N]}, {"albums": users[:N]}):
        assert abs(explain(codes, back(codes, 1), **columns).added.value) < 0.005


def test_hours_of_the_day_are_history_where_times_are_given() -> None:
    rng = np.random.default_rng(6)
    times = np.cumsum(rng.exponential(1500, N))
    hour = (times // 3600 % 24).astype(int)
    labels = np.where(rng.random(N) < 0.8, hour // 4, rng.integers(0, 6, N))
    assert explain(labels, times=times).history.value > explain(labels).history.value + 0.05
    dates = np.datetime64("2024-01-01") + (times * 1e6).astype("timedelta64[us]")
    got = explain(labels, times=dates)
    assert got.experts[0].name.endswith("hour of the day")


def test_probabilities_of_the_model_add_more_than_its_answers() -> None:
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 4, N)
    sure = rng.uniform(0.25, 1, N)
    answers = np.where(rng.random(N) < sure, labels, (labels + rng.integers(1, 4, N)) % 4)
    plain = explain(labels, answers).added.value
    confident = explain(labels, answers, confidence=sure).added.value
    own = np.log(np.where(answers == labels, sure, (1 - sure) / 3))
    with_logp = explain(labels, answers, logp=own).added.value
    truth = 2 + float(np.mean(np.log2(np.exp(own))))
    assert plain < truth - 0.1
    assert abs(confident - truth) < 0.02
    assert abs(with_logp - truth) < 0.02
    assert abs(explain(labels, logp=own).added.value - truth) < 0.02


def test_regret_at_shift_0_is_at_most_that_of_equal_weights_and_a_share() -> None:
    for labels, classes in ((sticky(2000), 10), rounds(400), cover_type(2)):
        codes = labels[:2000].astype(np.int32)
        forecaster = Forecaster(classes)
        alone = np.zeros(forecaster.state.weights.shape[1])
        together = 0.0
        experts = np.empty((max(2, classes), alone.size))
        from streamgauge.history import kernels

        for label in codes[:400]:
            q = forecaster.probabilities()
            kernels.ask(forecaster.state, 0, np.zeros(0, np.int64), 0, q, experts)
            assert np.allclose(experts[:, :20].sum(axis=0), 1, atol=1e-9)
            assert abs(q.sum() - 1) < 1e-9
            mixed = float(experts[label, :20] @ forecaster.state.weights[0, :20])
            together -= math.log2(mixed)
            alone[:20] -= np.log2(experts[label, :20])
            forecaster.learn([label])
            if forecaster.state.numbers[kernels.PERIODS]:
                break
        n = int(forecaster.state.numbers[kernels.KNOWN])
        assert n > 60
        bound = math.log2(20) + n * math.log2(1 / (1 - kernels.SHARE))
        assert together <= alone[:20].min() + bound


@pytest.mark.parametrize("late", [False, True])
def test_no_label_is_used_before_it_is_known(late: bool) -> None:
    rng = np.random.default_rng(9)
    n = 3000
    labels = (np.arange(n) % 24 // 3 + (rng.random(n) < 0.1)).astype(np.int32)
    times = np.arange(n, dtype=float)
    arrival = times + rng.integers(0, 60, n) if late else None
    known = known_labels(n, shift=7, step=3, times=times, label_times=arrival)
    order = np.arange(n) if known.order is None else known.order
    changed = labels.copy()
    unknown = order[known.known[2000] :]
    changed[unknown] = rng.integers(0, 9, unknown.size)
    same = (known.known <= known.known[2000]) & (labels == changed)
    assert same[:2001].sum() > 1950
    before = [forecast(y, 9, known, block=1).bits for y in (labels, changed)]
    np.testing.assert_array_equal(before[0][same], before[1][same])


def test_late_labels_are_a_shift() -> None:
    labels = sticky(5000, stay=0.95)
    times = np.arange(5000.0)
    late = explain(labels, times=times, label_times=times + 10.5).history.value
    assert abs(late - explain(labels, times=times, shift=10).history.value) < 1e-6
    assert abs(late - explain(labels, times=times, delay=10).history.value) < 1e-6
    assert late < explain(labels, times=times).history.value - 1


def test_intervals_hold_the_mean_of_other_streams() -> None:
    for stay in (0.0, 0.9):
        streams = [sticky(1000, stay=stay, seed=seed) for seed in range(100)]
        got = [explain(y, honest(y, 0.7, 10, 500 + seed)).added for seed, y in enumerate(streams)]
        mean = np.mean([one.value for one in got])
        held = np.mean([one.low <= mean <= one.high for one in got])
        assert 0.88 < held <= 0.99


def test_longer_correlations_make_longer_blocks() -> None:
    assert explain(sticky(stay=0.99)).blocks < 40 < explain(sticky(stay=0.5)).blocks <= 50


def check_json(value: dict[str, Any], answered: bool) -> None:
    """The JSON object against SCHEMA, by hand."""
    named = {name for names in SCHEMA for name in names.split(", ")}
    assert set(value) == named
    for name in ("base", "history", "remaining", "added", "placebo"):
        figure = value[name]
        assert set(figure) == {"value", "low", "high", "blocks", "samples"}
        if answered or name in ("base", "history", "remaining"):
            assert figure["low"] <= figure["value"] <= figure["high"]
            assert figure["samples"] == value["scored"]
        else:
            assert figure["value"] is figure["low"] is figure["high"] is None
            assert figure["samples"] == 0
    parts = len(value["over_time"]["position"])
    assert 2 <= parts <= 100
    curves = {"position", "samples", "base", "history", "remaining", "added", "placebo"}
    assert set(value["over_time"]) == curves
    assert all(len(curve) == parts for curve in value["over_time"].values())
    assert value["over_time"]["position"][0] == value["warm_up"]
    assert sum(value["over_time"]["samples"]) == value["scored"]
    weights = np.array([expert["weights"] for expert in value["experts"]])
    assert weights.shape[1] == parts
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-9)
    means = [expert["weight"] for expert in value["experts"]]
    assert means == sorted(means, reverse=True)
    assert set(value["experts"][0]) == {"name", "weight", "weights"}
    assert set(value["missing"]) <= {"user", "album", "time"}


def test_the_json_form_is_as_documented() -> None:
    labels = sticky(3000)
    for answers in (None, honest(labels, 0.7, 10)):
        got = explain(labels, answers)
        check_json(json.loads(json.dumps(got.to_dict(), allow_nan=False)), answers is not None)
        assert got.warm_up == 300
        assert got.scored == 2700
        total = got.history.value + got.remaining.value
        assert abs(total - got.base.value) < 1e-9


def test_labels_of_any_kind_and_answers_that_are_missing() -> None:
    labels = sticky(2000)
    answers = honest(labels, 0.7, 10)
    plain = explain(labels, answers)
    names = np.array([f"class {c}" for c in range(10)])
    for kind in (
        (names[labels], names[answers]),
        (names[labels].astype(object), names[answers].tolist()),
        (labels * 7 + 3, answers * 7 + 3),
        (labels, answers.astype(float)),
        (labels - 5 + 5, [int(a) for a in answers]),
    ):
        assert explain(*kind).added == plain.added
    gaps = [None if j % 3 else int(a) for j, a in enumerate(answers)]
    some = explain(labels, gaps)
    assert some.scored == sum(j % 3 == 0 for j in range(200, 2000))
    floats = np.array([np.nan if g is None else g for g in gaps])
    assert explain(labels, floats).added == some.added
    assert explain(labels, np.nan_to_num(floats, nan=-1).astype(int)).added == some.added
    named = np.array([None if g is None else names[g] for g in gaps], object)
    assert explain(names[labels], named).added == some.added
    assert abs(explain(labels, np.full(2000, 99)).added.value) < 1e-12
    assert abs(explain(labels, labels + 0.5).added.value) < 1e-12
    longer = np.array([f"class {c}0" for c in range(10)])  # no label, but begins like one
    assert abs(explain(names[labels], longer[labels]).added.value) < 1e-12
    unknown: Explanation = explain(labels)
    assert math.isnan(unknown.added.value)
    assert unknown.added.samples == 0
    assert explain([1]).scored == 1
    assert math.isnan(explain([]).base.value)
    assert explain([3] * 500, [3] * 500).added.value < 0.01


def test_errors_say_what_to_do() -> None:
    with pytest.raises(StreamgaugeError, match="predictions has 2 entries for 3 labels"):
        explain([0, 1, 0], [0, 1])
    with pytest.raises(StreamgaugeError, match="give both in the same form"):
        explain([0, 1, 0], ["a", "b", "c"])
    with pytest.raises(StreamgaugeError, match="between 0 and 1"):
        explain([0, 1], [0, 1], confidence=[0.5, 3])


def test_periods_are_found_and_chance_is_not() -> None:
    labels, _ = period(168, 2000, 0.6)
    assert repeating_lags(labels.astype(np.int32))[0] == 168
    assert [repeating_lags(sticky(5000, seed=s).astype(np.int32)) for s in range(5)] == [[]] * 5


def test_points_are_the_same_with_and_without_the_mixture() -> None:
    labels = cover_type(3)[0].astype(np.int32)[:3000]
    right, names = family_right(labels, 7, Regular(2))
    full = np.zeros(3000, np.uint64)
    forecast(labels, 7, Regular(2), right=full)
    lower = (np.uint64(1) << np.uint64(len(names))) - np.uint64(1)
    np.testing.assert_array_equal(right & lower, full & lower)


def test_missing_answers_are_not_scored_whatever_the_class_numbers() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, 2000)
    answers = np.where(rng.random(2000) < 0.8, labels, rng.integers(0, 4, 2000))
    answered = rng.random(2000) < 0.5
    plain = explain(labels, np.where(answered, answers, -1))
    for gaps in (explain(3 * labels, np.where(answered, 3 * answers, -1)),
                 explain(3 * labels, np.where(answered, 3.0 * answers, np.nan))):  # fmt: skip
        assert gaps.scored == plain.scored == np.count_nonzero(answered[200:])
        assert gaps.added == plain.added


@pytest.mark.parametrize("by_user", [False, True])
def test_the_label_of_the_newest_sample_is_history_if_labels_arrive_out_of_order(
    by_user: bool,
) -> None:
    rng = np.random.default_rng(6)
    count, times = 3000, 60.0 * np.arange(3000)
    users = rng.integers(0, 8, count) if by_user else np.zeros(count, int)
    label_times = times + rng.exponential(60 * (40 if by_user else 10), count)
    labels, answers = np.zeros(count, int), np.zeros(count, int)
    state = np.zeros(8, int)
    for j in range(count):
        if rng.random() < 0.05:
            state[users[j]] = rng.integers(10)
        labels[j] = state[users[j]]
        known = np.flatnonzero((users[:j] == users[j]) & (label_times[:j] < times[j]))
        answers[j] = labels[known[-1]] if known.size else 0
    found = explain(labels, answers, times=times, label_times=label_times,
                    users=users if by_user else None)  # fmt: skip
    # 0.2 bits and more if "the last label" were the one that arrived last.
    assert found.added.value < 0.02 < 0.5 < found.history.low
