"""Label patterns on which the audit was once wrong; each is made on the spot, with known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamgauge import audit_log
from streamgauge.audit import explain, holds, select_shift

TOLERANCE = 0.02


def chain(n, rows, seed):
    """A Markov chain of labels; `rows` are the transition probabilities."""
    rng = np.random.default_rng(seed)
    edges, uniform = np.cumsum(rows, 1), rng.random(n)
    edges[:, -1] = 2
    labels = np.zeros(n, np.int64)
    for i in range(1, n):
        labels[i] = np.searchsorted(edges[labels[i - 1]], uniform[i], side="right")
    return labels


def sticky_rows(classes, stay):
    rows = np.full((classes, classes), (1 - stay) / (classes - 1))
    np.fill_diagonal(rows, stay)
    return rows


def true_excess(rows, shift):
    """Points that the best blind forecaster has left at a shift; all classes are as frequent."""
    return np.linalg.matrix_power(rows, int(shift) + 1).max(1).mean() - 1 / len(rows)


def shuffled_rounds(rounds, classes, seed):
    """Keystroke: every class once per round, in random order."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(classes) for _ in range(rounds)])


def few_runs(n, runs, seed):
    """KDD99: long runs, most of them of one class, which has 76 % of the labels."""
    rng = np.random.default_rng(seed)
    lengths = rng.exponential(np.where(np.arange(runs) % 2 == 0, 0.76, 0.24))
    stops = np.round(np.cumsum(lengths) / lengths.sum() * n)
    run = np.searchsorted(stops, np.arange(n), side="right")
    return np.where(run % 2 == 0, 0, 1 + run // 2 % 17)


def honest(labels, right, seed):
    """A model with an input: right with a probability that is the same for every sample."""
    rng = np.random.default_rng(seed)
    classes = labels.max() + 1
    wrong = (labels + rng.integers(1, classes, labels.size)) % classes
    return np.where(rng.random(labels.size) < right, labels, wrong)


def behind(labels, lag=1):
    return np.concatenate([labels[:1].repeat(lag), labels[:-lag]])


def majority(labels):
    counts, answers = np.zeros(labels.max() + 1), np.zeros_like(labels)
    for i, label in enumerate(labels):
        answers[i] = counts.argmax()
        counts[label] += 1
    return answers


def audited(labels, answers, **columns):
    return audit_log({"label": labels, "prediction": answers, **columns})


def test_rialto_labels_in_a_fixed_order():
    labels = np.arange(5_000) % 10
    found = audited(labels, (behind(labels) + 1) % 10)
    assert found.values["blind"] > 0.999
    assert found.values["history_bits"] == pytest.approx(np.log2(10), abs=0.02)
    assert found.values["added_bits"] < 0.01
    assert found.answer == "cannot tell"  # nothing remains that an input could add
    assert holds("share > 90%", found.values)
    assert found.choice.shift is None  # a cycle is never over


def test_keystroke_the_class_that_was_away_longest():
    labels = shuffled_rounds(400, 4, 0)
    answers = majority(labels)
    found = audited(labels, answers)
    assert found.values["blind"] == pytest.approx(0.52, abs=0.04)
    assert found.values["added_bits"] < 0.01
    assert found.answer != "yes"
    assert found.values["history_bits"] > 0.3


def test_kdd99_a_few_long_runs_are_label_correlation():
    labels = few_runs(50_000, 69, 0)
    choice = select_shift(labels)
    # Beyond a typical run the most frequent class is the best forecast, whatever the past was.
    assert choice.shift is None or choice.shift > 100
    assert choice.low > 10 or math.isnan(choice.low)
    found = audited(labels, behind(labels))
    assert found.values["last_label"] > 0.998
    assert found.values["remaining_bits"] < 0.04
    assert found.answer == "cannot tell"


def test_covertype_levels_are_on_the_same_samples():
    """A first fifth with little correlation must not count for one level and not for another."""
    early, late = chain(4_000, sticky_rows(7, 0.57), 0), chain(16_000, sticky_rows(7, 0.91), 1)
    labels = np.concatenate([early, late])
    found = audited(labels, behind(labels))
    values = found.values
    assert values["added_bits"] < 0.01
    assert found.answer == "no"
    # The copy is the last label: both figures are the same if they are of the same samples.
    assert values["last_label"] == pytest.approx(found.online_scored, abs=1e-9)


def test_permutation_chain():
    classes = 50
    order = np.random.default_rng(1).permutation(classes)
    successor = np.empty(classes, np.int64)
    successor[order] = np.roll(order, -1)
    rows = np.full((classes, classes), 0.2 / classes)
    rows[np.arange(classes), successor] += 0.8
    labels = chain(20_000, rows, 2)
    found = audited(labels, successor[behind(labels)])
    assert found.values["blind"] > 0.78
    assert found.values["history_bits"] > 3.5
    assert abs(found.values["added_bits"]) < 0.01
    assert found.answer == "no"
    assert holds("share > 90%", found.values)


def test_noisy_period_of_24_on_a_thousand_labels():
    rng = np.random.default_rng(3)
    pattern = rng.integers(0, 6, 24)
    labels = np.where(rng.random(1_000) < 0.84, np.resize(pattern, 1_000), rng.integers(0, 6, 1000))
    choice = select_shift(labels)
    assert choice.shift is None
    found = audited(labels, behind(labels, 24))
    assert found.values["blind"] > 0.55
    assert found.values["history_bits"] > 0.5
    assert found.answer != "yes"


def elec2_like(n, seed):
    """Two classes that stay, and a day of 48 half-hours."""
    rng = np.random.default_rng(seed)
    day = 0.5 + 0.3 * np.sin(2 * np.pi * np.arange(n) / 48)
    labels = np.zeros(n, np.int64)
    for i in range(1, n):
        stays = rng.random() < 0.65
        labels[i] = labels[i - 1] if stays else rng.random() < day[i]
    return labels


def test_elec2_a_copy_and_a_model_of_the_same_accuracy():
    labels = elec2_like(20_000, 0)
    copy = audited(labels, behind(labels))
    right = (labels == behind(labels)).mean()
    model = audited(labels, honest(labels, right, 1))
    assert abs(copy.values["online"] - model.values["online"]) < 0.01
    assert copy.answer == "no"
    assert copy.values["added_bits"] < 0.01
    assert model.answer == "yes"
    assert model.values["added_bits_low"] > 0.1
    assert copy.words[0] != model.words[0]


def test_elec2_steps_of_one_and_of_ten_agree():
    labels = elec2_like(10_000, 0)
    named = [select_shift(labels, step=step).shift for step in (1, 10)]
    assert named == [None, None]  # the day is never over


@pytest.mark.parametrize(("classes", "stay", "n"), [(20, 0.99, 20_000), (20, 0.9, 2_000)])
def test_markov_labels_are_not_called_gone_too_early(classes, stay, n):
    rows = sticky_rows(classes, stay)
    early = 0
    for seed in range(4):
        choice = select_shift(chain(n, rows, seed), tolerance=TOLERANCE)
        early += choice.shift is not None and true_excess(rows, choice.shift) >= TOLERANCE
    assert early <= 1  # 5 % at most: 2 of 4 have a chance of 1 %


def test_drifting_prior_is_not_called_gone():
    """The most frequent class changes every 1,000 labels on average: its advantage of 31 points
    falls below 2 only after 2,700 labels, more than 20,000 labels can show."""
    n, rng = 20_000, np.random.default_rng(5)
    peak = np.cumsum(rng.random(n) < 1 / 1_000) * 3 % 10
    labels = np.where(rng.random(n) < 0.35, peak, rng.integers(0, 10, n))
    choice = select_shift(labels)
    assert choice.shift is None
    assert not math.isfinite(choice.high)


def test_an_age_of_50_is_compared_with_blind_at_50():
    labels = chain(20_000, sticky_rows(10, 0.9), 6)
    found = audited(labels, honest(labels, 0.5, 7), age=np.full(labels.size, 50))
    assert found.values["blind"] == pytest.approx(0.1, abs=0.03)
    assert found.values["share"] < 0.3
    assert found.answer == "yes"
    # 50 labels back nothing is known of the label: the answers add what they add to the prior.
    truth = np.log2(10) + 0.5 * np.log2(0.5) + 0.5 * np.log2(0.5 / 9)
    assert found.values["added_bits"] == pytest.approx(truth, abs=0.05)


def test_an_honest_model_worse_than_the_last_label():
    """Blind alone is right more often than the model, which nevertheless adds .27 bits."""
    labels = chain(20_000, sticky_rows(10, 0.9), 8)
    found = audited(labels, honest(labels, 0.7, 9))
    assert found.values["share"] > 1.2
    assert found.answer == "yes"
    # H(answer | past) - H(answer | label), by hand.
    predicted = np.full(10, 0.1 / 9)
    predicted[0] = 0.9
    answer = 0.7 * predicted + 0.3 / 9 * (1 - predicted)
    channel = np.append(np.full(9, 0.3 / 9), 0.7)
    truth = (channel * np.log2(channel)).sum() - (answer * np.log2(answer)).sum()
    assert truth == pytest.approx(0.28, abs=0.01)
    assert found.values["added_bits"] == pytest.approx(truth, abs=0.04)


def test_half_honest_half_copy_is_in_between():
    labels = chain(20_000, sticky_rows(10, 0.9), 10)
    seen = np.random.default_rng(11).random(labels.size) < 0.5
    answers = np.where(seen, honest(labels, 0.7, 12), behind(labels))
    found = explain(labels, answers)
    assert 0.03 < found.added.low < found.added.high < 0.2
    assert explain(labels, behind(labels)).added.value == pytest.approx(0, abs=0.003)


def test_independent_labels_and_random_answers():
    rng = np.random.default_rng(13)
    found = explain(rng.integers(0, 10, 20_000), rng.integers(0, 10, 20_000))
    assert found.history.value == pytest.approx(0, abs=0.005)
    assert found.added.value == pytest.approx(0, abs=0.002)
    assert found.base.value == pytest.approx(np.log2(10), abs=0.01)
