"""Metrics of evaluations taken all along the stream, not only when a task ends.

``acc[n, i]`` is the accuracy on task i at evaluation n, NaN before task i is seen, and ``task[n]``
the task being trained at evaluation n (-1: none). A task counts as seen from the first evaluation
at which it is being trained, whatever its number, so relabelling the tasks changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats, Integers, divide


class WorstCase(NamedTuple):
    """Worst-case accuracy with what is needed to judge it.

    A minimum over many evaluations on few images is biased low, and the more often one looks the
    lower it gets, so the value means little without the two.
    """

    accuracy: float  # at the last evaluation
    smoothed: float  # the same with a rolling mean over `window` evaluations before the minimum
    window: int
    interval: float  # median number of steps between evaluations
    set_size: float  # median number of samples in one task's evaluation set


class StabilityGap(NamedTuple):
    """What each change of task did to the tasks before it; one entry a boundary."""

    boundary: Integers  # row of the first evaluation in the new task
    depth: Floats  # of the mean accuracy over the tasks seen before the boundary
    recovery: Floats  # evaluations until it was back, NaN if never
    task_depth: Floats  # [boundaries, tasks], NaN for tasks not seen before the boundary
    task_recovery: Floats


class WorstWindow(NamedTuple):
    """The worst stretch of the stream."""

    accuracy: float
    start: int  # index of its first sample, -1 if the stream is shorter than the window


def _checked(acc: ArrayLike, task: ArrayLike) -> tuple[Floats, Integers]:
    values = np.asarray(acc, dtype=np.float64)
    current = np.asarray(task, dtype=np.int64)
    if values.ndim != 2 or current.shape != values.shape[:1]:
        raise StreamgaugeError(
            "continual metrics want acc [evaluations, tasks] and task [evaluations], and got "
            f"{values.shape} and {current.shape}."
        )
    if current.size and current.max() >= values.shape[1]:
        raise StreamgaugeError(
            f"task {current.max()} is being trained, but acc has columns for only "
            f"{values.shape[1]} tasks."
        )
    return values, current


def _seen(task: Integers, tasks: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """seen[n, i]: has task i been trained at or before evaluation n?"""
    rows = np.flatnonzero(task >= 0)
    first = np.full(tasks, len(task))
    np.minimum.at(first, task[rows], rows)
    return np.asarray(np.arange(len(task))[:, None] >= first[None, :])


def anytime_accuracy(acc: ArrayLike, task: ArrayLike) -> Floats:
    """Average anytime accuracy: how good the model was all along, on what it had seen by then.

    AAA_n = mean over evaluations m <= n of (mean over tasks i seen by m of acc[m, i]).
    Evaluations before any training are not counted.

    Source: Soutif-Cormerais et al. 2023, equation 3; Caccia et al. 2022.

    >>> anytime_accuracy([[0.8, np.nan], [0.4, 0.8]], task=[0, 1]).round(6)
    array([0.8, 0.7])
    """
    values, current = _checked(acc, task)
    seen = _seen(current, values.shape[1])
    width = seen.sum(axis=1)
    total = np.where(seen, values, 0.0).sum(axis=1)
    counted = width > 0
    mean = np.divide(total, width, out=np.zeros(len(values)), where=counted)
    number = np.cumsum(counted)
    return divide(np.cumsum(mean), number)


def anytime_error(acc: ArrayLike, task: ArrayLike, step: ArrayLike) -> float:
    """Standard error of the last anytime accuracy, where not every step was evaluated: how far it
    may be from what evaluations after every step would have given; 0 if there were.

    In task t n_t of N_t steps were evaluated, one every so often, with d the differences between
    the accuracies (means over the tasks seen) of one evaluation and the next; n = sum of n_t:

        error^2 = sum over t of (n_t / n)^2 * (1 - n_t / N_t) / n_t * mean of d^2 / 2.

    Differences and not deviations from a mean, since evaluations at equal distances follow a curve
    that rises and falls. A task evaluated once takes its mean of d^2 from all others; NaN if all
    were. It says nothing of how many samples were held out. ``step`` as for :func:`worst_case`.

    >>> error = anytime_error([[0.8], [0.6], [0.8], [0.6]], [0, 0, 0, 0], step=[10, 20, 30, 40])
    >>> round(error, 6)
    0.067082
    """
    values, current = _checked(acc, task)
    when = np.asarray(step, dtype=np.float64)
    counted = np.flatnonzero(current >= 0)
    if not len(counted):
        return float("nan")
    seen = _seen(current, values.shape[1])[counted]
    mean = np.where(seen, values[counted], 0.0).sum(axis=1) / seen.sum(axis=1)
    number, done = current[counted], when[counted]
    inside = number[1:] == number[:-1]
    squares = np.diff(mean) ** 2 / 2
    error = before = 0.0
    for part in np.split(np.arange(len(number)), np.flatnonzero(~inside) + 1):  # task by task
        looks, end = len(part), float(done[part[-1]])
        own = squares[part[:-1]] if looks > 1 else squares[inside]
        missed = 1 - looks / (end - before) if end - before > looks else 0.0
        if missed:
            error += looks * missed * (float(own.mean()) if len(own) else float("nan"))
        before = end
    return float(np.sqrt(error)) / len(number)


def minimum_accuracy(acc: ArrayLike, task: ArrayLike, window: int = 1) -> Floats:
    """How low each finished task ever fell, on average over the finished tasks.

    min-ACC_n = 1/(k-1) * sum over tasks i finished by n of min over m <= n, m strictly after task i
    ended, of acc[m, i]; k is the number of tasks seen. NaN during the first task. The evaluation at
    the very end of a task belongs to the task and does not count (Soutif-Cormerais et al. 2023,
    equation 2, with the bound read as the end of task i; De Lange et al. 2023).

    With ``window`` > 1 the minimum is taken of a rolling mean over that many evaluations, all of
    them after the task ended: less biased by small evaluation sets. NaN until each finished task
    has one full window.

    >>> minimum_accuracy([[0.8, np.nan], [0.4, 0.8], [0.6, 0.9]], task=[0, 1, 1])
    array([nan, 0.4, 0.4])
    """
    values, current = _checked(acc, task)
    if window < 1:
        raise StreamgaugeError(f"window must be 1 or more evaluations, not {window}.")
    finished = _seen(current, values.shape[1]) & (current[:, None] != np.arange(values.shape[1]))
    usable = finished
    if window > 1:
        values, usable = _rolling(values, finished, window)
    lowest = np.minimum.accumulate(np.where(usable, values, np.inf), axis=0)
    number = finished.sum(axis=1)
    total = np.where(finished, lowest, 0.0).sum(axis=1)
    return divide(np.where(np.isinf(total), np.nan, total), number)


def _rolling(
    values: Floats, finished: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], window: int
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Rolling means, and where all evaluations of the window count."""
    means = np.full(values.shape, np.nan)
    whole = np.zeros(values.shape, dtype=bool)
    if len(values) >= window:
        views = np.lib.stride_tricks.sliding_window_view
        means[window - 1 :] = views(values, window, axis=0).mean(axis=-1)
        whole[window - 1 :] = views(finished, window, axis=0).all(axis=-1)
    return means, whole


def worst_case_accuracy(acc: ArrayLike, task: ArrayLike, window: int = 1) -> Floats:
    """Worst-case accuracy: the current task as it is, the finished ones as bad as they ever got.

    WC-ACC_n = acc[n, current]/k + (1 - 1/k) * min-ACC_n, k the number of tasks seen; NaN during the
    first task. ``window`` smooths the minimum as in :func:`minimum_accuracy`. Report it with the
    evaluation interval and set size: :func:`worst_case`.

    Source: Soutif-Cormerais et al. 2023, equation 1; De Lange et al. 2023.

    >>> worst_case_accuracy([[0.8, np.nan], [0.4, 0.8], [0.6, 0.9]], task=[0, 1, 1]).round(6)
    array([ nan, 0.6 , 0.65])
    """
    lowest = minimum_accuracy(acc, task, window)
    values, current = _checked(acc, task)
    seen = _seen(current, values.shape[1]).sum(axis=1)
    now = np.full(len(values), np.nan)
    rows = np.flatnonzero(current >= 0)
    now[rows] = values[rows, current[rows]]
    share = 1.0 / np.maximum(seen, 1)
    return np.asarray(share * now + (1.0 - share) * lowest)


def worst_case(
    acc: ArrayLike,
    task: ArrayLike,
    step: ArrayLike,
    count: ArrayLike,
    window: int = 10,
) -> WorstCase:
    """The last worst-case accuracy, with the evaluation interval, the set size and a smoothed one.

    ``step[n]`` is how many steps had been made at evaluation n and ``count`` the sizes of the
    evaluation sets (any shape). The smoothing window is shortened to the smallest number of
    evaluations in any task, so that every finished task has a full window.

    >>> acc = [[0.8, np.nan], [0.4, 0.8], [0.6, 0.9]]
    >>> worst_case(acc, [0, 1, 1], step=[10, 20, 30], count=[125, 125], window=2)
    WorstCase(accuracy=0.65, smoothed=0.65, window=1, interval=10.0, set_size=125.0)
    """
    values, current = _checked(acc, task)
    if not len(values):
        return WorstCase(np.nan, np.nan, window, np.nan, np.nan)
    per_task = np.bincount(current[current >= 0], minlength=1)
    window = int(max(1, min(window, per_task[per_task > 0].min(initial=window))))
    gaps = np.diff(np.asarray(step, dtype=np.float64))
    # Two evaluations at one step (a remainder that is not trained on) are one look, not two.
    gaps = gaps[gaps > 0]
    sizes = np.asarray(count, dtype=np.float64).ravel()
    sizes = sizes[sizes > 0]
    return WorstCase(
        accuracy=float(worst_case_accuracy(values, current)[-1]),
        smoothed=float(worst_case_accuracy(values, current, window)[-1]),
        window=window,
        interval=float(np.median(gaps)) if gaps.size else float("nan"),
        set_size=float(np.median(sizes)) if sizes.size else float("nan"),
    )


def stability_gap(acc: ArrayLike, task: ArrayLike, recovered: float = 1.0) -> StabilityGap:
    """How deep accuracy falls when a new task begins, and how long it takes to come back.

    For each boundary: depth = (accuracy at the last evaluation before it) - (minimum within the new
    task), below 0 if it only rose; recovery = evaluations, counted from the last one before the
    boundary, until, at or after the deepest one, accuracy is again at least ``recovered`` times
    what it was before; 0 if it was never below that, NaN if it does not come back within the task.
    Once for the mean over all tasks seen before, once for each of them.

    Source: De Lange et al. 2023 (Continual evaluation for lifelong learning) for the phenomenon.

    >>> acc = [[0.8, np.nan], [0.4, 0.8], [0.8, 0.9]]
    >>> gap = stability_gap(acc, task=[0, 1, 1])
    >>> gap.boundary, gap.depth, gap.recovery
    (array([1]), array([0.4]), array([2.]))
    """
    values, current = _checked(acc, task)
    tasks = values.shape[1]
    seen = _seen(current, tasks)
    changes = np.flatnonzero((current[1:] != current[:-1]) & (current[:-1] >= 0)) + 1
    changes = changes[current[changes] >= 0]
    ends = np.append(changes, len(values))[1:]
    depth, recovery = np.full((2, len(changes), 1 + tasks), np.nan)
    for row, (start, end) in enumerate(zip(changes, ends, strict=True)):
        old = np.flatnonzero(seen[start - 1] & (np.arange(tasks) != current[start]))
        if not old.size:
            continue
        curve = values[start - 1 : end, old]
        curve = np.hstack([curve.mean(axis=1, keepdims=True), curve])
        drop, wait = _dips(curve, recovered)
        depth[row, [0, *(1 + old)]] = drop
        recovery[row, [0, *(1 + old)]] = wait
    return StabilityGap(changes, depth[:, 0], recovery[:, 0], depth[:, 1:], recovery[:, 1:])


def _dips(curve: Floats, recovered: float) -> tuple[Floats, Floats]:
    """Depth and recovery per column; the first row is the last evaluation before the boundary."""
    before, after = curve[0], curve[1:]
    deepest = after.argmin(axis=0)
    drop = before - after[deepest, np.arange(curve.shape[1])]
    good = after >= recovered * before
    late_good = good & (np.arange(len(after))[:, None] >= deepest)
    wait = np.where(late_good.any(axis=0), late_good.argmax(axis=0) + 1.0, np.nan)
    wait = np.where(good.all(axis=0), 0.0, wait)
    return drop, np.where(np.isnan(drop), np.nan, wait)


def worst_window(correct: ArrayLike, window: int) -> WorstWindow:
    """The lowest accuracy over any ``window`` consecutive samples, and where it begins.

    min over s of 1/w * sum of correct[s : s + w]; the first such s. An average hides the hour in
    which the model was useless; this shows it. NaN if there are fewer than ``window`` samples.

    >>> worst_window([1, 1, 0, 0, 1], window=2)
    WorstWindow(accuracy=0.0, start=2)
    """
    hits = np.asarray(correct)
    if hits.ndim != 1 or window < 1:
        raise StreamgaugeError(
            "worst_window wants one-dimensional correctness and a window of 1 or more samples."
        )
    if len(hits) < window:
        return WorstWindow(float("nan"), -1)
    exact = np.int64 if hits.dtype.kind in "bui" else np.float64
    total = np.concatenate([np.zeros(1, exact), np.cumsum(hits, dtype=exact)])
    sums = total[window:] - total[:-window]
    start = int(sums.argmin())
    return WorstWindow(float(sums[start]) / window, start)
