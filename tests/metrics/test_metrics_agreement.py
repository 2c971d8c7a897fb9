"""Kappas, macro F1 and log loss against slow loops and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError
from streamgauge.history.kappas import majorities
from streamgauge.history.known import Known

answered = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def slow_kappa(accuracy: Fraction, reference: Fraction) -> float:
    return float((accuracy - reference) / (1 - reference)) if reference < 1 else math.nan


def slow_majority(labels: list[int]) -> int:
    """Counted one by one: the leader changes when another class reaches the leader's count."""
    counts: dict[int, int] = {}
    leader = -1
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
        if leader < 0 or counts[label] >= counts[leader]:
            leader = label
    return leader


def slow_kappas(pairs, known: list[list[int]]) -> dict[str, float]:
    """`known`: for each sample the labels that had arrived, oldest first."""
    count = len(pairs)
    accuracy = Fraction(sum(a == b for a, b in pairs), count)
    labels, predictions = zip(*pairs, strict=True)
    chance = sum(Fraction(labels.count(c) * predictions.count(c), count**2) for c in set(labels))
    last = sum(bool(k) and k[-1] == a for k, a in zip(known, labels, strict=True))
    major = sum(bool(k) and slow_majority(k) == a for k, a in zip(known, labels, strict=True))
    kappa = slow_kappa(accuracy, chance)
    kappa_t = slow_kappa(accuracy, Fraction(last, count))
    both = [kappa, kappa_t]
    combined = math.nan if any(map(math.isnan, both)) else math.sqrt(math.prod(
        max(0.0, k) for k in both))  # fmt: skip
    return {
        "kappa": kappa,
        "kappa_t": kappa_t,
        "kappa_m": slow_kappa(accuracy, Fraction(major, count)),
        "kappa_combined": combined,
    }


@given(answered, st.data())
def test_the_four_kappas_by_their_definitions(pairs, data):
    label, prediction = np.array(pairs).T
    count = len(pairs)
    by_default = slow_kappas(pairs, [label[:n].tolist() for n in range(count)])
    order = data.draw(st.permutations(range(count)))
    counts = data.draw(st.lists(st.integers(0, count), min_size=count, max_size=count))
    arrived = label[list(order)]
    late = slow_kappas(pairs, [arrived[:n].tolist() for n in counts])
    known = Known(np.array(order), np.array(counts))
    for name in ("kappa_t", "kappa_m", "kappa_combined"):
        metric = getattr(m, name)
        assert metric(label, prediction) == pytest.approx(by_default[name], nan_ok=True)
        assert metric(label, prediction, known) == pytest.approx(late[name], nan_ok=True)
    assert m.kappa(label, prediction) == pytest.approx(by_default["kappa"], nan_ok=True)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_the_majority_so_far(labels):
    found = majorities(np.array(labels)).tolist()
    assert found == [slow_majority(labels[: n + 1]) for n in range(len(labels))]


def test_kappas_of_known_streams():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 40_000)
    # Right with probability .7, else uniform: .775 right, chance .25, (.775 - .25) / .75 = .7.
    prediction = np.where(rng.random(40_000) < 0.7, label, rng.integers(0, 4, 40_000))
    for metric in (m.kappa, m.kappa_t, m.kappa_m, m.kappa_combined):
        assert metric(label, prediction) == pytest.approx(0.7, abs=0.02)
        assert metric(label, rng.integers(0, 4, 40_000)) == pytest.approx(0, abs=0.02)
        assert metric(label, label) == 1
    # Labels that stay with probability .9: repeating the last one is worth 0 in kappa_t alone.
    change = np.flatnonzero(rng.random(40_000) >= 0.9)
    sticky = label[
        np.concatenate([[0], change])[np.searchsorted(change, np.arange(40_000), "right")]
    ]
    repeated = np.append(3, sticky[:-1])
    assert m.kappa(sticky, repeated) == pytest.approx(0.9, abs=0.01)
    assert abs(m.kappa_t(sticky, repeated)) < 1e-3
    assert m.kappa_combined(sticky, repeated) < 0.05
    assert m.kappa_t(sticky, np.zeros(40_000, int)) < -5
    # The majority of unequal classes: kappa sees nothing, nor does kappa_m, though 80 % are right.
    unequal = (rng.random(40_000) < 0.2).astype(int)
    assert m.kappa(unequal, np.zeros(40_000, int)) == 0
    assert m.kappa_m(unequal, np.zeros(40_000, int)) == pytest.approx(0, abs=1e-3)


def test_kappas_that_are_undefined_are_left_out_of_the_scores():
    constant = np.zeros(5, int)
    assert math.isnan(m.kappa(constant, constant))
    assert m.kappa_t(constant, constant) == 1  # the first answer came before any label
    assert math.isnan(m.kappa_combined(constant, constant))
    assert math.isnan(m.kappa([], []))
    rows = {"step": np.arange(5), "label": constant, "prediction": constant, "shift": constant}
    assert "kappa" not in m.score(SimpleNamespace(predictions=rows))


def test_score_knows_only_labels_of_earlier_steps_that_have_arrived():
    label = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    rows = {
        "step": np.array([0, 0, 1, 1, 2, 2, 3, 3]),
        "label": label,
        "prediction": np.array([0, 0, 1, 1, 0, 0, 1, 0]),
        "shift": np.zeros(8, int),
    }
    # In step n the last label is that of step n - 1: never right. One step later: 4 of 8.
    assert m.score(SimpleNamespace(predictions=rows))["kappa_t"] == pytest.approx(7 / 8)
    late = SimpleNamespace(predictions=rows, label_delay=1)
    assert m.score(late)["kappa_t"] == pytest.approx((7 / 8 - 4 / 8) / (1 - 4 / 8))
    # Known to step 2 are 0, 0, and to step 3 are 0, 0, 1, 1, of which 1 came last.
    assert m.score(late)["kappa_m"] == pytest.approx((7 / 8 - 4 / 8) / (1 - 4 / 8))


def test_classes_may_be_words_or_large_numbers():
    pairs = [(0, 0), (0, 1), (1, 1), (2, 1), (2, 2)]
    label, prediction = np.array(pairs).T
    for names in (np.array(["cat", "dog", "owl"]), np.array([-5, 10**12, 7])):
        for metric in (m.kappa, m.kappa_t, m.kappa_m, m.kappa_combined, m.macro_f1):
            assert metric(names[label], names[prediction]) == pytest.approx(
                metric(label, prediction)
            )


@given(answered)
def test_macro_f1_by_precision_and_recall(pairs):
    label, prediction = np.array(pairs).T
    each = []
    for c in set(label.tolist()) | set(prediction.tolist()):
        right = sum(a == b == c for a, b in pairs)
        precision = Fraction(right, max(1, int((prediction == c).sum())))
        recall = Fraction(right, max(1, int((label == c).sum())))
        each.append(2 * precision * recall / (precision + recall) if right else Fraction(0))
    assert m.macro_f1(label, prediction) == pytest.approx(float(sum(each) / len(each)))


def test_macro_f1_of_a_constant_answer():
    """Of C equal classes one has precision 1/C and recall 1: 2 / (C + 1), divided by C."""
    label = np.repeat(np.arange(5), 8)
    assert m.macro_f1(label, np.full(40, 2)) == pytest.approx(2 / 6 / 5)
    assert m.macro_f1(label, label) == 1
    assert math.isnan(m.macro_f1([], []))


def test_balanced_accuracy_is_the_mean_recall():
    label = np.array([0, 0, 0, 1])
    assert m.balanced_accuracy(label, [0, 0, 1, 1]) == pytest.approx((2 / 3 + 1) / 2)


def test_log_loss():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 1, 50)
    assert m.log_loss(np.log(p)) == pytest.approx(-sum(map(math.log, p)) / 50)
    assert m.log_loss(np.full(9, -math.log(8))) == pytest.approx(math.log(8))  # uniform, 8 classes
    assert m.log_loss([0.0, -math.inf]) == math.inf
    assert math.isnan(m.log_loss([0.0, math.nan]))
    assert math.isnan(m.log_loss([]))
    with pytest.raises(StreamgaugeError, match="natural logarithm"):
        m.log_loss([0.5])
    rows = {
        "step": np.arange(2), "label": np.arange(2), "prediction": np.arange(2),
        "shift": np.zeros(2, int), "logp": np.log([0.5, 0.25]),
    }  # fmt: skip
    found = m.score(SimpleNamespace(predictions=rows))["log_loss"]
    assert found == pytest.approx(1.5 * math.log(2))


def test_score_of_a_log_with_late_labels_uses_their_times():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 60)
    label_time = np.arange(60.0) + rng.uniform(0, 9, 60)
    rows = {
        "step": np.arange(60) // 3, "label": label, "prediction": rng.integers(0, 2, 60),
        "shift": np.zeros(60, int), "time": np.arange(60.0), "label_time": label_time,
    }  # fmt: skip
    pairs = list(zip(label.tolist(), rows["prediction"].tolist(), strict=True))
    known = []
    for n in range(60):
        start = n // 3 * 3  # the samples of a step are answered when its first one comes
        arrived = [i for i in range(60) if label_time[i] < start]
        known.append([int(label[i]) for i in sorted(arrived, key=lambda i: label_time[i])])
    found = m.score(SimpleNamespace(predictions=rows))
    for name, value in slow_kappas(pairs, known).items():
        assert found[name] == pytest.approx(value)


# --- AUC -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=40))
def test_auc_is_the_share_of_ordered_pairs(cases):
    positive, score = [case[0] for case in cases], [case[1] / 6 for case in cases]
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, first in zip(score, positive, strict=True)
        for b, second in zip(score, positive, strict=True)
        if first and not second
    ]
    if pairs:
        assert m.auc(positive, score) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    else:
        assert math.isnan(m.auc(positive, score))


def test_auc_with_a_missing_score_is_missing():
    assert math.isnan(m.auc([True, False, True], [0.9, float("nan"), 0.2]))


def test_auc_of_a_log_needs_two_classes():
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        scores = rng.dirichlet(np.ones(classes), 300)
        label = rng.integers(0, 2, 300)  # the third class never comes, and is never the answer
        prediction = scores[:, :2].argmax(1)
        rows = np.arange(300)
        table = {
            "step": rows, "label": label, "prediction": prediction, "shift": np.zeros(300, int),
            "confidence": scores[rows, prediction].astype(np.float32),
            "logp": np.log(scores[rows, label]).astype(np.float32),
        }  # fmt: skip
        found = m.score(SimpleNamespace(predictions=table, evaluations={}, answers={}))
        if classes == 2:
            assert found["auc"] == pytest.approx(m.auc(label == 1, scores[:, 1]), abs=1e-6)
        else:
            assert "auc" not in found
