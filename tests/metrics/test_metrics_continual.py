"""Continual-evaluation metrics against loops over evaluations, hand-computed cases, identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError

NAN = float("nan")


@st.composite
def curves(draw):
    """Evaluations over a few tasks, some tasks with a single evaluation, unseen tasks NaN."""
    tasks = draw(st.integers(1, 5))
    per_task = draw(st.lists(st.integers(1, 5), min_size=tasks, max_size=tasks))
    task = np.repeat(np.arange(tasks), per_task)
    values = draw(
        st.lists(st.integers(0, 125), min_size=len(task) * tasks, max_size=len(task) * tasks)
    )
    acc = np.array(values, dtype=float).reshape(len(task), tasks) / 125
    acc[np.arange(tasks)[None, :] > task[:, None]] = NAN
    return acc, task


# --- slow ------------------------------------------------------------------------------------


def slow_anytime(acc, task):
    rows, result = [], []
    for n in range(len(acc)):
        seen = [i for i in range(acc.shape[1]) if i in list(task[: n + 1])]
        rows.append(sum(acc[n, i] for i in seen) / len(seen))
        result.append(sum(rows) / len(rows))
    return result


def slow_minimum(acc, task, window=1):
    result = []
    for n in range(len(acc)):
        lows = []
        for i in range(acc.shape[1]):
            training = [r for r in range(len(task)) if task[r] == i]
            if not training or task[n] == i or training[0] > n:
                continue
            ended = training[-1]
            means = [np.mean(acc[r - window + 1 : r + 1, i]) for r in range(ended + window, n + 1)]
            lows.append(min(means) if means else NAN)
        result.append(sum(lows) / len(lows) if lows else NAN)
    return result


def slow_worst_case(acc, task, window=1):
    lows = slow_minimum(acc, task, window)
    result = []
    for n in range(len(acc)):
        k = task[n] + 1
        result.append(NAN if k == 1 else acc[n, task[n]] / k + (1 - 1 / k) * lows[n])
    return result


@given(curves(), st.integers(1, 4))
def test_against_the_loops(curve, window):
    acc, task = curve
    np.testing.assert_allclose(m.anytime_accuracy(acc, task), slow_anytime(acc, task), atol=1e-12)
    np.testing.assert_allclose(
        m.minimum_accuracy(acc, task, window), slow_minimum(acc, task, window), atol=1e-12
    )
    np.testing.assert_allclose(
        m.worst_case_accuracy(acc, task, window), slow_worst_case(acc, task, window), atol=1e-12
    )


@given(curves())
def test_anytime_accuracy_over_all_tasks(curve):
    """Task by task, then over tasks; accuracies on unseen tasks count."""
    acc, task = np.nan_to_num(curve[0], nan=0.25), curve[1]
    found = m.anytime_accuracy(acc, task, "capymoa")
    for n in range(len(task)):
        of_task = {}
        for row in range(n + 1):
            of_task.setdefault(task[row], []).append(sum(acc[row]) / acc.shape[1])
        means = [sum(values) / len(values) for values in of_task.values()]
        assert found[n] == pytest.approx(sum(means) / len(means), abs=1e-12)
    if acc.shape[1] > 1:  # a missing accuracy is not left out
        assert math.isnan(m.anytime_accuracy(curve[0], task, "capymoa")[0])


def test_by_hand():
    acc = [[0.5, NAN], [0.9, NAN], [0.3, 0.4], [0.6, 0.8]]
    task = [0, 0, 1, 1]
    np.testing.assert_allclose(m.anytime_accuracy(acc, task), [0.5, 0.7, 1.75 / 3, 2.45 / 4])
    # 0.5 was measured while task 0 was trained, so it is no minimum of a finished task.
    np.testing.assert_allclose(m.minimum_accuracy(acc, task), [NAN, NAN, 0.3, 0.3])
    np.testing.assert_allclose(m.worst_case_accuracy(acc, task), [NAN, NAN, 0.35, 0.55])
    np.testing.assert_allclose(m.minimum_accuracy(acc, task, 2), [NAN, NAN, NAN, 0.45])


def test_the_end_of_a_task_does_not_count_as_after_it():
    acc = [[0.9, NAN], [0.1, NAN], [0.6, 0.5], [0.7, 0.5]]
    assert m.minimum_accuracy(acc, [0, 0, 1, 1])[-1] == pytest.approx(0.6)


@given(curves(), st.randoms(use_true_random=False))
def test_identities(curve, random):
    acc, task = curve
    tasks = acc.shape[1]
    low, worst = m.minimum_accuracy(acc, task), m.worst_case_accuracy(acc, task)
    later = task > 0
    assert np.isnan(worst[~later]).all()
    assert np.all((worst[later] >= 0) & (worst[later] <= 1))
    # As bad as ever is never better than now.
    now = np.array([np.nanmean(acc[n, : task[n] + 1]) for n in range(len(acc))])
    assert np.all(worst[later] <= now[later] + 1e-12)
    # A rolling mean can only lift a minimum.
    smooth = m.minimum_accuracy(acc, task, 2)
    known = ~np.isnan(smooth)
    assert np.all(smooth[known] >= low[known] - 1e-12)
    # Within one task the minimum only falls.
    for k in range(1, tasks):
        assert np.all(np.diff(low[task == k]) <= 1e-12)
    # Names of tasks do not matter, and neither do values for tasks not yet seen.
    names = np.array(random.sample(range(tasks), tasks))
    moved = np.empty_like(acc)
    moved[:, names] = np.nan_to_num(acc, nan=0.01)
    np.testing.assert_allclose(m.worst_case_accuracy(moved, names[task]), worst)
    np.testing.assert_allclose(
        m.anytime_accuracy(moved, names[task]), m.anytime_accuracy(acc, task)
    )
    perfect = np.ones_like(acc)
    np.testing.assert_array_equal(m.anytime_accuracy(perfect, task), 1)
    np.testing.assert_allclose(m.worst_case_accuracy(perfect, task)[later], 1)


def test_evaluations_before_any_training_are_not_counted():
    acc = [[0.1, 0.1], [0.8, NAN], [0.4, 0.6]]
    np.testing.assert_allclose(m.anytime_accuracy(acc, [-1, 0, 1]), [NAN, 0.8, 0.65])
    np.testing.assert_allclose(m.worst_case_accuracy(acc, [-1, 0, 1]), [NAN, NAN, 0.5])


def test_a_minimum_over_small_sets_is_biased_low_and_smoothing_helps():
    rng = np.random.default_rng(0)
    per_task, tasks, truth = 60, 5, 0.5
    task = np.repeat(np.arange(tasks), per_task)

    def last(images, window):
        acc = rng.binomial(images, truth, (len(task), tasks)) / images
        return m.minimum_accuracy(acc, task, window)[-1]

    small, large = last(125, 1), last(12_500, 1)
    assert truth - small > 5 * (truth - large) > 0
    assert truth - last(125, 20) < (truth - small) / 2


def test_worst_case_comes_with_interval_and_set_size():
    acc = np.array([[0.9, NAN]] * 3 + [[0.4, 0.8], [0.6, 0.8], [0.5, 0.8], [0.7, 0.9]])
    task = [0, 0, 0, 1, 1, 1, 1]
    report = m.worst_case(acc, task, step=[5, 10, 15, 20, 25, 30, 30], count=[125] * 9, window=2)
    assert report.accuracy == pytest.approx(0.9 / 2 + 0.4 / 2)
    assert report.smoothed == pytest.approx(0.9 / 2 + 0.5 / 2)
    assert report[2:] == (2, 5.0, 125.0)
    # Too long a window is shortened, and says so.
    assert m.worst_case(acc, task, [0] * 7, [125], window=50).window == 3
    assert math.isnan(m.worst_case(np.empty((0, 2)), [], [], []).accuracy)


# --- stability gap ---------------------------------------------------------------------------


def slow_gap(curve, recovered):
    """One curve: the first entry is the last evaluation before the boundary."""
    before, after = curve[0], list(curve[1:])
    depth = before - min(after)
    if all(value >= recovered * before for value in after):
        return depth, 0.0
    bottom = after.index(min(after))
    for i in range(bottom, len(after)):
        if after[i] >= recovered * before:
            return depth, float(i + 1)
    return depth, NAN


@given(curves(), st.sampled_from([1.0, 0.9, 0.5]))
def test_stability_gap(curve, recovered):
    acc, task = curve
    gap = m.stability_gap(acc, task, recovered)
    starts = [n for n in range(1, len(task)) if task[n] != task[n - 1]]
    assert gap.boundary.tolist() == starts
    for row, start in enumerate(starts):
        end = start
        while end < len(task) and task[end] == task[start]:
            end += 1
        old = list(range(task[start]))
        mean = acc[start - 1 : end, old].mean(axis=1)
        np.testing.assert_allclose(
            (gap.depth[row], gap.recovery[row]), slow_gap(mean, recovered), atol=1e-12
        )
        for i in range(acc.shape[1]):
            got = gap.task_depth[row, i], gap.task_recovery[row, i]
            if i in old:
                np.testing.assert_allclose(
                    got, slow_gap(acc[start - 1 : end, i], recovered), atol=1e-12
                )
            else:
                assert np.isnan(got).all()


def test_stability_gap_by_hand():
    acc = [[0.8, NAN], [0.3, 0.1], [0.5, 0.4], [0.75, 0.6], [0.8, 0.6]]
    gap = m.stability_gap(acc, [0, 1, 1, 1, 1])
    assert gap.depth[0] == pytest.approx(0.5)
    assert gap.recovery[0] == 4
    assert m.stability_gap(acc, [0, 1, 1, 1, 1], recovered=0.9).recovery[0] == 3
    assert math.isnan(m.stability_gap(acc[:4], [0, 1, 1, 1]).recovery[0])
    rising = m.stability_gap([[0.5, NAN], [0.6, 0.2]], [0, 1])
    assert rising.depth[0] == pytest.approx(-0.1)
    assert rising.recovery[0] == 0
    assert len(m.stability_gap([[0.5], [0.6]], [0, 0]).depth) == 0


# --- worst window ----------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 12))
def test_worst_window(correct, window):
    found = m.worst_window(np.array(correct, dtype=bool), window)
    means = [sum(correct[s : s + window]) / window for s in range(len(correct) - window + 1)]
    if not means:
        assert math.isnan(found.accuracy)
        assert found.start == -1
    else:
        assert found == (min(means), means.index(min(means)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.anytime_accuracy([0.1], [0]), r"\[evaluations, tasks\]"),
        (lambda: m.minimum_accuracy([[0.1]], [1]), "columns for only 1 tasks"),
        (lambda: m.minimum_accuracy([[0.1]], [0], window=0), "1 or more evaluations"),
        (lambda: m.worst_window([1, 0], 0), "1 or more samples"),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(StreamgaugeError, match=words):
        call()


def test_anytime_error_is_the_spread_of_thinned_looks() -> None:
    """Curves that fall and recover in every task, with noise that hangs together: what is stated is
    near the root mean square of (thinned - every step)."""
    rng = np.random.default_rng(0)
    tasks, each, every = 4, 300, 12
    off, stated = [], []
    for _ in range(60):
        noise = np.convolve(rng.normal(size=tasks * each + 40), np.ones(8) / 8, "same")[20:-20]
        dip = np.exp(-np.arange(each) / 30.0)
        acc = 0.5 - 0.3 * np.tile(dip, tasks) + 0.05 * noise
        task = np.repeat(np.arange(tasks), each)
        whole = np.repeat(acc[:, None], tasks, axis=1)
        step = np.arange(1, tasks * each + 1)
        looks = np.arange(rng.integers(every), tasks * each, every)
        full = m.anytime_accuracy(whole, task)[-1]
        thin = m.anytime_accuracy(whole[looks], task[looks])[-1]
        off.append(thin - full)
        stated.append(m.anytime_error(whole[looks], task[looks], step[looks]))
        assert m.anytime_error(whole, task, step) == 0
    actual = float(np.sqrt(np.mean(np.square(off))))
    assert 0.5 * actual < np.mean(stated) < 3 * actual


def test_anytime_error_by_hand() -> None:
    """Two tasks of 10 and 4 steps, three looks and one: the second takes its d from the first."""
    acc = [[0.5, np.nan], [0.7, np.nan], [0.6, np.nan], [0.4, 0.8]]
    d = (0.2**2 + 0.1**2) / 2 / 2
    by_hand = ((3 / 4) ** 2 * (1 - 3 / 10) / 3 + (1 / 4) ** 2 * (1 - 1 / 4) / 1) * d
    found = m.anytime_error(acc, task=[0, 0, 0, 1], step=[3, 6, 10, 14])
    assert found == pytest.approx(np.sqrt(by_hand))
    assert np.isnan(m.anytime_error([[0.5], [0.6]], task=[-1, -1], step=[1, 2]))
    assert np.isnan(m.anytime_error([[0.5, np.nan], [0.5, 0.6]], task=[0, 1], step=[10, 20]))
