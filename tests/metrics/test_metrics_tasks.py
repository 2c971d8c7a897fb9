"""Task metrics against loops over the printed formulas, the papers' tables, and identities."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError

NAN = float("nan")


# --- slow and obvious, tasks counted from 1 as in the papers ---------------------------------


def slow_average_accuracy(a):
    K = len(a)
    return [sum(a[k - 1][j - 1] for j in range(1, k + 1)) / k for k in range(1, K + 1)]


def slow_forgetting(a, k, j, reference):
    after = range(j, k) if reference == "max" else [j]
    return max(a[i - 1][j - 1] for i in after) - a[k - 1][j - 1]


def slow_average_forgetting(a, reference, over):
    result = [NAN]
    for k in range(2, len(a) + 1):
        total = sum(slow_forgetting(a, k, j, reference) for j in range(1, k))
        result.append(total / (k - 1 if over == "previous" else k))
    return result


def slow_random_forgetting(classes):
    result = [NAN]
    for k in range(2, len(classes) + 1):
        result.append(sum(1 / classes[j - 1] - 1 / classes[k - 1] for j in range(1, k)) / (k - 1))
    return result


def harmonic(k):
    return sum(1 / i for i in range(1, k + 1))


def random_classifier(classes):
    """What guessing among the classes seen so far gets, on every task, seen or not."""
    K = len(classes)
    return np.array([[1 / classes[k]] * K for k in range(K)])


def lower(a):
    """NaN where the task is not yet seen."""
    a = np.array(a, dtype=float)
    a[np.triu_indices(len(a), 1)] = NAN
    return a


matrices = st.integers(1, 7).flatmap(
    lambda K: st.lists(st.lists(st.floats(0, 1), min_size=K, max_size=K), min_size=K, max_size=K)
)
growing = st.lists(st.integers(1, 30), min_size=2, max_size=8).map(lambda n: np.cumsum(n))


# --- the metrics paper's tables --------------------------------------------------------------

TABLE_1 = """
50 - - - - 50
25 25 - - - 25
16.7 16.7 16.7 - - 16.7
12.5 12.5 12.5 12.5 - 12.5
10 10 10 10 10 10
"""
TABLE_2 = """
- - - - - -
25 - - - - 25
33.3 8.33 - - - 20.83
37.5 12.5 4.16 - - 18.06
40 15 6.66 2.5 - 16.04
"""


def assert_printed(text, entries, average):
    """Each printed entry within .01, or within the rounding of those printed to one decimal."""
    for k, line in enumerate(text.split("\n")[1:-1]):
        *cells, mean = line.split(" ")
        for value, printed in [*zip(entries[k], cells, strict=True), (average[k], mean)]:
            if printed == "-":
                assert math.isnan(value)
                continue
            decimals = len(printed.partition(".")[2])
            allowed = 0.05 if decimals == 1 else 0.01
            assert abs(100 * value - float(printed)) <= allowed + 1e-9


def test_tables_of_the_metrics_paper():
    classes = [2, 4, 6, 8, 10]
    a = lower(random_classifier(classes))
    assert_printed(TABLE_1, a, m.average_accuracy(a))
    assert_printed(TABLE_2, m.forgetting_matrix(a), m.average_forgetting(a))
    # The averages to the digits of the lemma, not of the print.
    np.testing.assert_allclose(
        m.average_forgetting(a)[1:], [0.25, 0.2083333333, 0.1805555556, 0.1604166667], atol=1e-10
    )


def test_survey_and_first_value_definitions_by_hand():
    a = [[0.8, NAN, NAN], [0.6, 0.9, NAN], [0.7, 0.5, 0.9]]
    np.testing.assert_allclose(m.average_accuracy(a), [0.8, 0.75, 0.7])
    np.testing.assert_allclose(m.average_forgetting(a), [NAN, 0.2, 0.25])
    np.testing.assert_allclose(m.average_forgetting(a, over="all"), [NAN, 0.1, 0.5 / 3])
    np.testing.assert_allclose(m.average_forgetting(a, "first"), [NAN, 0.2, 0.25])
    # Task 0 rises after its own training: only "max" sees the higher point.
    b = [[0.5, NAN, NAN], [0.9, 0.9, NAN], [0.6, 0.9, 0.9]]
    np.testing.assert_allclose(m.average_forgetting(b)[2], (0.3 + 0.0) / 2)
    np.testing.assert_allclose(m.average_forgetting(b, "first")[2], (-0.1 + 0.0) / 2)


# --- against the slow ones -------------------------------------------------------------------


@given(matrices)
def test_average_accuracy_and_forgetting(a):
    np.testing.assert_allclose(m.average_accuracy(a), slow_average_accuracy(a), atol=1e-12)
    np.testing.assert_allclose(m.average_accuracy(lower(a)), slow_average_accuracy(a), atol=1e-12)
    for reference in ("max", "first"):
        for over in ("previous", "all"):
            slow = slow_average_forgetting(a, reference, over)
            fast = m.average_forgetting(a, reference, over)
            np.testing.assert_allclose(fast, slow, atol=1e-12)
            # What lies above the diagonal, unseen tasks, does not matter.
            np.testing.assert_array_equal(m.average_forgetting(lower(a), reference, over), fast)


@given(matrices, st.data())
def test_rescaled_pair(a, data):
    K = len(a)
    counts = data.draw(st.lists(st.integers(1, 20), min_size=K, max_size=K))
    classes = np.cumsum(counts)
    AA, AF = slow_average_accuracy(a), slow_average_forgetting(a, "max", "previous")
    R = slow_random_forgetting(classes)
    uRAA = [x * c for x, c in zip(AA, classes, strict=True)]
    np.testing.assert_allclose(m.unnormalised_rescaled_accuracy(a, classes), uRAA)
    np.testing.assert_allclose(m.rescaled_accuracy(a, classes), [u / classes[-1] for u in uRAA])
    np.testing.assert_allclose(m.random_forgetting(classes), R, atol=1e-15)
    uRAF = [f / r for f, r in zip(AF, R, strict=True)]
    np.testing.assert_allclose(m.unnormalised_rescaled_forgetting(a, classes), uRAF, atol=1e-9)
    if K > 1:
        # The definition: divide by the largest that a classifier forgetting everything can have.
        largest = max(1 / r for r in R[1:])
        np.testing.assert_allclose(
            m.rescaled_forgetting(a, classes), [u / largest for u in uRAF], atol=1e-9
        )


@pytest.mark.parametrize(("tasks", "each"), [(5, 2), (10, 10), (20, 5), (100, 2)])
def test_rescaled_forgetting_of_equal_tasks_is_the_closed_form(tasks, each):
    rng = np.random.default_rng(tasks)
    a = rng.random((tasks, tasks))
    classes = each * np.arange(1, tasks + 1)
    beta = [
        (harmonic(tasks) - 1) * (k - 1) / ((harmonic(k) - 1) * (tasks - 1))
        for k in range(2, tasks + 1)
    ]
    AF = m.average_forgetting(a)
    np.testing.assert_allclose(m.rescaled_forgetting(a, classes)[1:], AF[1:] * beta, rtol=1e-10)
    assert m.rescaled_forgetting(a, classes)[-1] == pytest.approx(AF[-1])
    assert m.rescaled_accuracy(a, classes)[-1] == pytest.approx(m.average_accuracy(a)[-1])


def factors(classes):
    """RAF / AF over k, read off a matrix that forgets a known amount."""
    K = len(classes)
    a = np.where(np.indices((K, K))[0] == np.indices((K, K))[1], 0.9, 0.4)
    return (m.rescaled_forgetting(a, classes) / m.average_forgetting(a))[1:]


def test_difficulty_coefficients():
    beta = {
        5: {2: 0.64167, 3: 0.77},
        10: {2: 0.42866, 3: 0.51439, 5: 0.66804},
        20: {2: 0.27345, 3: 0.32814, 5: 0.42615, 10: 0.63791},
        100: {2: 0.08459, 10: 0.19734, 50: 0.59229},
    }
    for K, values in beta.items():
        measured = factors(np.arange(1, K + 1))
        for k, value in values.items():
            assert measured[k - 2] == pytest.approx(value, abs=6e-6)
    # Unequal tasks: the minimum over all m, not the last one.
    np.testing.assert_allclose(
        factors([50, 60, 70, 80, 90, 100]), [1, 0.8235, 0.7434, 0.7015, 0.6785], atol=5e-5
    )
    np.testing.assert_allclose(
        m.random_forgetting([10, 11, 1000])[1:], [0.00909, 0.09445], atol=6e-6
    )
    np.testing.assert_allclose(factors([10, 11, 1000]), [1, 0.009091 / 0.094455], rtol=1e-4)


# --- identities ------------------------------------------------------------------------------


@given(growing)
def test_random_classifier_is_flat_once_rescaled(classes):
    for a in (random_classifier(classes), lower(random_classifier(classes))):
        np.testing.assert_allclose(m.rescaled_accuracy(a, classes), 1 / classes[-1], rtol=1e-12)
        np.testing.assert_allclose(m.unnormalised_rescaled_accuracy(a, classes), 1, rtol=1e-12)
        RAF = m.rescaled_forgetting(a, classes)[1:]
        np.testing.assert_allclose(RAF, np.nanmin(m.random_forgetting(classes)), rtol=1e-9)
        np.testing.assert_allclose(m.unnormalised_rescaled_forgetting(a, classes)[1:], 1, rtol=1e-9)
        assert np.isnan(m.rescaled_forgetting(a, classes)[0])


@given(growing)
def test_perfect_classifier(classes):
    a = np.ones((len(classes), len(classes)))
    np.testing.assert_array_equal(m.average_accuracy(a), 1)
    np.testing.assert_array_equal(m.average_forgetting(a)[1:], 0)
    np.testing.assert_array_equal(m.backward_transfer(a)[1:], 0)
    np.testing.assert_allclose(m.rescaled_accuracy(a, classes), classes / classes[-1])
    np.testing.assert_array_equal(m.rescaled_forgetting(a, classes)[1:], 0)


@given(matrices, growing, st.randoms(use_true_random=False))
def test_bounds_and_invariances(a, classes, random):
    a = np.array(a)
    K = len(a)
    classes = np.cumsum(np.resize(np.diff(classes, prepend=0), K))
    assert np.all((m.average_accuracy(a) >= 0) & (m.average_accuracy(a) <= 1 + 1e-12))
    assert np.all(m.rescaled_accuracy(a, classes) <= m.average_accuracy(a) + 1e-12)
    assert np.all(np.abs(m.average_forgetting(a)[1:]) <= 1 + 1e-12)
    # RAF is at most 1 for anybody, and a factor of at most 1 of AF.
    RAF, AF = m.rescaled_forgetting(a, classes)[1:], m.average_forgetting(a)[1:]
    assert np.all(np.abs(RAF) <= np.abs(AF) * (1 + 1e-12))
    # "max" never forgets less than "first", and the two normalisers differ by (k-1)/k.
    assert np.all(m.average_forgetting(a, "first")[1:] - 1e-12 <= AF)
    k = np.arange(2, K + 1)
    np.testing.assert_allclose(
        m.average_forgetting(a, over="all")[1:], AF * (k - 1) / k, atol=1e-12
    )
    np.testing.assert_array_equal(m.backward_transfer(a), -m.average_forgetting(a, "first"))
    # The last average does not care which task was which.
    order = list(range(K))
    random.shuffle(order)
    assert m.average_accuracy(a[:, order])[-1] == pytest.approx(m.average_accuracy(a)[-1])
    # Percent in, percent out.
    np.testing.assert_allclose(
        m.rescaled_forgetting(100 * a, classes),
        100 * m.rescaled_forgetting(a, classes),
        atol=1e-12,
    )


def test_domain_tasks_without_new_classes_have_no_rescaled_forgetting():
    a = [[0.9, 0.1], [0.5, 0.9]]
    assert np.isnan(m.rescaled_forgetting(a, [10, 10])).all()
    np.testing.assert_allclose(m.rescaled_accuracy(a, [10, 10]), m.average_accuracy(a))
    # Later new classes: only the first part is undefined.
    a = np.full((4, 4), 0.5)
    a[np.diag_indices(4)] = 1
    result = m.rescaled_forgetting(a, [10, 10, 20, 30])
    assert np.isnan(result[:2]).all()
    assert np.isfinite(result[2:]).all()


def test_unknown_entries_stay_unknown():
    a = lower(np.full((3, 3), 0.5))
    a[1, 0] = NAN  # not evaluated after task 1
    np.testing.assert_array_equal(np.isnan(m.average_accuracy(a)), [False, True, False])
    np.testing.assert_array_equal(np.isnan(m.average_forgetting(a)), [True, True, True])
    np.testing.assert_array_equal(np.isnan(m.average_forgetting(a, "first")), [True, True, False])


# --- transfer --------------------------------------------------------------------------------


@given(matrices, st.data())
def test_forward_and_backward_transfer(a, data):
    T = len(a)
    base = data.draw(st.lists(st.floats(0, 1), min_size=T, max_size=T))
    forward, backward = m.forward_transfer(a, base), m.backward_transfer(a)
    assert math.isnan(forward[0])
    assert math.isnan(backward[0])
    for k in range(2, T + 1):  # GEM, 1-based, with k in the place of T
        FWT = sum(a[i - 2][i - 1] - base[i - 1] for i in range(2, k + 1)) / (k - 1)
        BWT = sum(a[k - 1][i - 1] - a[i - 1][i - 1] for i in range(1, k)) / (k - 1)
        assert forward[k - 1] == pytest.approx(FWT, abs=1e-12)
        assert backward[k - 1] == pytest.approx(BWT, abs=1e-12)


@given(matrices)
def test_transfer_as_two_libraries_define_it(a):
    """Loops over all pairs, on the tasks up to each k."""
    forward, backward = m.forward_transfer(a, None, "capymoa"), m.backward_transfer(a, "capymoa")
    plain, average = m.forward_transfer(a, None, "continuum"), m.average_accuracy(a, "continuum")
    for k in range(len(a)):
        above = [a[i][j] for j in range(k + 1) for i in range(k + 1) if i < j]
        below = [a[i][j] - a[j][j] for j in range(k + 1) for i in range(k + 1) if i > j]
        seen = [a[i][j] for i in range(k + 1) for j in range(i + 1)]
        assert average[k] == pytest.approx(sum(seen) / len(seen), abs=1e-12)
        if k == 0:
            assert np.isnan([forward[0], backward[0], plain[0]]).all()
            continue
        assert forward[k] == pytest.approx(sum(above) / len(above), abs=1e-12)
        assert backward[k] == pytest.approx(sum(below) / len(below), abs=1e-12)
        assert plain[k] == pytest.approx(sum(a[i - 1][i] for i in range(1, k + 1)) / k, abs=1e-12)
    np.testing.assert_allclose(m.backward_transfer(lower(a), "capymoa"), backward)


def test_forward_transfer_says_what_is_missing():
    full = np.full((3, 3), 0.5)
    with pytest.warns(m.UndefinedMetric, match="no baseline"):
        assert np.isnan(m.forward_transfer(full, None)).all()
    with pytest.warns(m.UndefinedMetric, match="not evaluated before it was trained"):
        assert np.isnan(m.forward_transfer(lower(full), [0.1, 0.1, 0.1])).all()
    with pytest.warns(m.UndefinedMetric, match="not evaluated before it was trained"):
        assert np.isnan(m.forward_transfer(lower(full), None, "capymoa")).all()
    with pytest.warns(m.UndefinedMetric, match="baseline of a task is missing"):
        assert np.isnan(m.forward_transfer(full, [0.1, 0.1, NAN])[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(m.forward_transfer(full, [NAN, 0.1, 0.3])[1:], [0.4, 0.3])
    with pytest.raises(StreamgaugeError, match="each of the 3 tasks"):
        m.forward_transfer(full, [0.1])


# --- cumulative accuracy ---------------------------------------------------------------------


def slow_cumulative(scores, labels, class_task):
    T, K = len(scores), max(class_task) + 1
    b = np.full((T, K), NAN)
    for t in range(T):
        for k in range(min(t + 1, K)):
            allowed = [c for c in range(len(class_task)) if 0 <= class_task[c] <= k]
            hits = []
            for n, label in enumerate(labels):
                if 0 <= class_task[label] <= k:
                    best = max(allowed, key=lambda c: (scores[t][n][c], -c))
                    hits.append(best == label)
            if hits:
                b[t, k] = sum(hits) / len(hits)
    return b


@pytest.mark.parametrize("seed", range(12))
def test_cumulative_accuracy(seed):
    rng = np.random.default_rng(seed)
    T, N, C = 4, 30, 9
    class_task = rng.integers(-1 if seed % 3 == 0 else 0, T, C)
    class_task[rng.integers(C)] = T - 1
    labels = rng.integers(0, C, N)
    scores = rng.integers(0, 4, (T, N, C)).astype(float)  # many ties
    if seed % 2:
        scores = rng.normal(size=(T, N, C))
    fast = m.cumulative_accuracy(scores, labels, class_task)
    np.testing.assert_array_equal(fast, slow_cumulative(scores, labels, class_task.tolist()))


def test_cumulative_accuracy_with_masked_classes_and_bad_input():
    scores = np.array([[[-np.inf, -np.inf]], [[-np.inf, 1.0]]])
    np.testing.assert_array_equal(m.cumulative_accuracy(scores, [0], [0, 1]), [[1, NAN], [1, 0]])
    with pytest.raises(StreamgaugeError, match=r"\[tasks, samples, classes\]"):
        m.cumulative_accuracy(scores[0], [0], [0, 1])
    with pytest.raises(StreamgaugeError, match="outside the 2 classes"):
        m.cumulative_accuracy(scores, [2], [0, 1])


@given(matrices)
def test_cumulative_forgetting(b):
    T = len(b)
    for reference in ("max", "first"):
        fast = m.cumulative_forgetting(lower(b), reference)
        assert math.isnan(fast[0])
        for t in range(1, T):
            total = 0.0
            for k in range(t):
                before = b[k][k] if reference == "first" else max(b[i][k] for i in range(k, t + 1))
                total += before - b[t][k]
            assert fast[t] == pytest.approx(total / t, abs=1e-12)
    assert np.all(m.cumulative_forgetting(b)[1:] >= 0)
    assert np.all(m.cumulative_forgetting(b)[1:] >= m.cumulative_forgetting(b, "first")[1:] - 1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.average_accuracy([[0.1, 0.2]]), "must be square"),
        (lambda: m.average_forgetting([[0.1]], reference="maximum"), "did you mean 'max'"),
        (lambda: m.average_forgetting([[0.1]], over="al"), "did you mean 'all'"),
        (lambda: m.cumulative_forgetting([[0.1]], reference="frist"), "did you mean 'first'"),
        (lambda: m.rescaled_accuracy([[0.1]], [1, 2]), "each of the 1 tasks"),
        (lambda: m.rescaled_accuracy(np.eye(2), [5, 2]), "cumulative sum"),
        (lambda: m.rescaled_forgetting(np.eye(2), [0, 2]), "cumulative sum"),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(StreamgaugeError, match=words):
        call()
