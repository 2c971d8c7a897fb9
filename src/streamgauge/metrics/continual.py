"""Metrics of evaluations made throughout the stream, not only at the end of each task.

``acc[n, i]`` is the accuracy on task i at evaluation n, NaN before task i is seen, and ``task[n]``
the task being trained at evaluation n (-1: none). A task counts as seen from the first evaluation
during its training on; task numbers need not be in order of training.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats, Integers, choice, divide


class WorstCase(NamedTuple):
    """Worst-case accuracy with the evaluation interval and set size.

    A minimum over evaluations is biased low; the bias grows with more evaluations and with smaller
    evaluation sets, so report the value with ``interval`` and ``set_size``.
    """

    accuracy: float  # at the last evaluation
    smoothed: float  # the same with a rolling mean over `window` evaluations before the minimum
    window: int
    interval: float  # median number of steps between evaluations
    set_size: float  # median number of samples in one task's evaluation set


class StabilityGap(NamedTuple):
    """Drop and recovery of the previous tasks at each change of task; one entry per boundary."""

    boundary: Integers  # row of the first evaluation in the new task
    depth: Floats  # of the mean accuracy over the tasks seen before the boundary
    recovery: Floats  # evaluations until the accuracy was recovered, NaN if never
    task_depth: Floats  # [boundaries, tasks], NaN for tasks not seen before the boundary
    task_recovery: Floats


class WorstWindow(NamedTuple):
    """The window of the stream with the lowest accuracy."""

    accuracy: float
    start: int  # index of its first sample, -1 if the stream is shorter than the window


def _checked(acc: ArrayLike, task: ArrayLike) -> tuple[Floats, Integers]:
    values = np.asarray(acc, dtype=np.float64)
    current = np.asarray(task, dtype=np.int64)
    if values.ndim != 2 or current.shape != values.shape[:1]:
        raise StreamgaugeError(
            "continual metrics need acc [evaluations, tasks] and task [evaluations], but got the "
            f"shapes {values.shape} and {current.shape}."
        )
    if current.size and current.max() >= values.shape[1]:
        raise StreamgaugeError(
            f"task holds the number {current.max()}, but acc has columns for only "
            f"{values.shape[1]} tasks."
        )
    return values, current


def _seen(task: Integers, tasks: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """seen[n, i]: whether training of task i has begun at or before evaluation n."""
    rows = np.flatnonzero(task >= 0)
    first = np.full(tasks, len(task))
    np.minimum.at(first, task[rows], rows)
    return np.asarray(np.arange(len(task))[:, None] >= first[None, :])


def anytime_accuracy(acc: ArrayLike, task: ArrayLike, definition: str = "seen") -> Floats:
    """Average anytime accuracy: mean over evaluations of the accuracy on the tasks seen so far.

    definition="seen": AAA_n = mean over evaluations m <= n of (mean over tasks i seen by m of
    acc[m, i]). Source: Soutif-Cormerais et al. 2023, equation 3; Caccia et al. 2022.

    definition="capymoa": unseen tasks count, too: per task t trained up to n, the mean over its
    evaluations m <= n of (mean over all tasks i of acc[m, i]); then the mean over t. NaN from an
    evaluation without all tasks on. Source: `anytime_accuracy_all_avg` of the library CapyMOA.

    Evaluations before any training are not counted.

    >>> anytime_accuracy([[0.8, np.nan], [0.4, 0.8]], task=[0, 1]).round(6)
    array([0.8, 0.7])
    >>> anytime_accuracy([[0.8, 0.2], [0.4, 0.8]], task=[0, 1], definition="capymoa").round(6)
    array([0.5 , 0.55])
    """
    choice("definition", definition, ("seen", "capymoa"))
    values, current = _checked(acc, task)
    if definition == "capymoa":
        return _over_all_tasks(values.mean(axis=1), current)
    mean, tasks_seen = _mean_over_seen(values, current)
    return divide(np.cumsum(np.where(tasks_seen > 0, mean, 0.0)), np.cumsum(tasks_seen > 0))


def _over_all_tasks(mean: Floats, current: Integers) -> Floats:
    """Per evaluation, the mean over tasks of the mean over the evaluations of a task so far."""
    counts: dict[int, int] = {}
    totals: dict[int, float] = {}
    result = np.full(len(mean), np.nan)
    for n, task in enumerate(current.tolist()):
        if task >= 0:
            counts[task] = counts.get(task, 0) + 1
            totals[task] = totals.get(task, 0.0) + float(mean[n])
        if counts:
            result[n] = np.mean([totals[task] / counts[task] for task in counts])
    return result


def _mean_over_seen(values: Floats, current: Integers) -> tuple[Floats, Integers]:
    """Per evaluation, the mean accuracy over the tasks seen (NaN if none) and their number."""
    seen = _seen(current, values.shape[1])
    tasks_seen = seen.sum(axis=1)
    return divide(np.where(seen, values, 0.0).sum(axis=1), tasks_seen), tasks_seen


def anytime_error(acc: ArrayLike, task: ArrayLike, step: ArrayLike) -> float:
    """Standard error of the last anytime accuracy due to steps that were not evaluated, relative to
    an evaluation after every step; 0 if every step was evaluated.

    In task t, n_t of N_t steps were evaluated at regular intervals; d are the differences between
    the accuracies (means over the tasks seen) of consecutive evaluations; n = sum of n_t:

        error^2 = sum over t of (n_t / n)^2 * (1 - n_t / N_t) / n_t * mean of d^2 / 2.

    Differences, not deviations from a mean, because the accuracies follow a curve. A task evaluated
    once uses the mean of d^2 of all other tasks; NaN if every task was evaluated once. The error
    due to the size of the evaluation sets is not included. ``step`` as for :func:`worst_case`.

    >>> error = anytime_error([[0.8], [0.6], [0.8], [0.6]], [0, 0, 0, 0], step=[10, 20, 30, 40])
    >>> round(error, 6)
    0.067082
    """
    values, current = _checked(acc, task)
    steps = np.asarray(step, dtype=np.float64)
    counted = np.flatnonzero(current >= 0)
    if not len(counted):
        return float("nan")
    mean = _mean_over_seen(values, current)[0][counted]
    task_now, steps_made = current[counted], steps[counted]
    same_task = task_now[1:] == task_now[:-1]
    squares = np.diff(mean) ** 2 / 2
    error = previous_end = 0.0
    for rows in np.split(np.arange(len(task_now)), np.flatnonzero(~same_task) + 1):  # task by task
        evaluated, end = len(rows), float(steps_made[rows[-1]])
        task_squares = squares[rows[:-1]] if evaluated > 1 else squares[same_task]
        missed_share = (
            1 - evaluated / (end - previous_end) if end - previous_end > evaluated else 0.0
        )
        if missed_share:
            error += (
                evaluated
                * missed_share
                * (float(task_squares.mean()) if len(task_squares) else float("nan"))
            )
        previous_end = end
    return float(np.sqrt(error)) / len(task_now)


def minimum_accuracy(acc: ArrayLike, task: ArrayLike, window: int = 1) -> Floats:
    """Lowest accuracy of each finished task so far, averaged over the finished tasks.

    min-ACC_n = 1/(k-1) * sum over tasks i finished by n of min over m <= n, m strictly after task i
    ended, of acc[m, i]; k is the number of tasks seen. NaN during the first task. The evaluation at
    the end of a task belongs to that task and is not counted (Soutif-Cormerais et al. 2023,
    equation 2, with the bound read as the end of task i; De Lange et al. 2023).

    With ``window`` > 1, the minimum of a rolling mean over that many evaluations after the end of
    the task, which reduces the bias of small evaluation sets. NaN until every finished task has
    one full window.

    >>> minimum_accuracy([[0.8, np.nan], [0.4, 0.8], [0.6, 0.9]], task=[0, 1, 1])
    array([nan, 0.4, 0.4])
    """
    values, current = _checked(acc, task)
    if window < 1:
        raise StreamgaugeError(f"window must be 1 or more evaluations, not {window}.")
    finished = _seen(current, values.shape[1]) & (current[:, None] != np.arange(values.shape[1]))
    counted = finished
    if window > 1:
        values, counted = _rolling(values, finished, window)
    lowest = np.minimum.accumulate(np.where(counted, values, np.inf), axis=0)
    tasks_finished = finished.sum(axis=1)
    total = np.where(finished, lowest, 0.0).sum(axis=1)
    return divide(np.where(np.isinf(total), np.nan, total), tasks_finished)


def _rolling(
    values: Floats, finished: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], window: int
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Rolling means, and which of them have a full window after the end of the task."""
    means = np.full(values.shape, np.nan)
    full = np.zeros(values.shape, dtype=bool)
    if len(values) >= window:
        views = np.lib.stride_tricks.sliding_window_view
        means[window - 1 :] = views(values, window, axis=0).mean(axis=-1)
        full[window - 1 :] = views(finished, window, axis=0).all(axis=-1)
    return means, full


def worst_case_accuracy(acc: ArrayLike, task: ArrayLike, window: int = 1) -> Floats:
    """Worst-case accuracy: the current accuracy of the current task and the minima of the others.

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
    current_accuracy = np.full(len(values), np.nan)
    rows = np.flatnonzero(current >= 0)
    current_accuracy[rows] = values[rows, current[rows]]
    weight = 1.0 / np.maximum(seen, 1)
    return np.asarray(weight * current_accuracy + (1.0 - weight) * lowest)


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
    # Two evaluations at the same step (samples left over, not trained on) count as one.
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
    """Drop in accuracy when a new task begins, and the time to recover.

    Per boundary: depth = (accuracy at the last evaluation before the boundary) - (minimum within
    the new task), negative if the accuracy only rose; recovery = evaluations, counted from the last
    one before the boundary, until the accuracy, at or after its minimum, is at least ``recovered``
    times the accuracy before the boundary; 0 if it was never below that, NaN if it is not reached
    within the task. For the mean over all tasks seen before, and for each of these tasks.

    Source: De Lange et al. 2023 (Continual evaluation for lifelong learning) for the phenomenon.

    >>> acc = [[0.8, np.nan], [0.4, 0.8], [0.8, 0.9]]
    >>> gap = stability_gap(acc, task=[0, 1, 1])
    >>> gap.boundary, gap.depth, gap.recovery
    (array([1]), array([0.4]), array([2.]))
    """
    values, current = _checked(acc, task)
    tasks = values.shape[1]
    seen = _seen(current, tasks)
    boundaries = np.flatnonzero((current[1:] != current[:-1]) & (current[:-1] >= 0)) + 1
    boundaries = boundaries[current[boundaries] >= 0]
    ends = np.append(boundaries, len(values))[1:]
    depth, recovery = np.full((2, len(boundaries), 1 + tasks), np.nan)
    for row, (start, end) in enumerate(zip(boundaries, ends, strict=True)):
        previous = np.flatnonzero(seen[start - 1] & (np.arange(tasks) != current[start]))
        if not previous.size:
            continue
        curve = values[start - 1 : end, previous]
        curve = np.hstack([curve.mean(axis=1, keepdims=True), curve])
        dip_depth, dip_recovery = _dips(curve, recovered)
        depth[row, [0, *(1 + previous)]] = dip_depth
        recovery[row, [0, *(1 + previous)]] = dip_recovery
    return StabilityGap(boundaries, depth[:, 0], recovery[:, 0], depth[:, 1:], recovery[:, 1:])


def _dips(curve: Floats, recovered: float) -> tuple[Floats, Floats]:
    """Depth and recovery per column; row 0 is the last evaluation before the boundary."""
    before, after = curve[0], curve[1:]
    lowest = after.argmin(axis=0)
    depth = before - after[lowest, np.arange(curve.shape[1])]
    recovered_now = after >= recovered * before
    recovered_later = recovered_now & (np.arange(len(after))[:, None] >= lowest)
    recovery = np.where(recovered_later.any(axis=0), recovered_later.argmax(axis=0) + 1.0, np.nan)
    recovery = np.where(recovered_now.all(axis=0), 0.0, recovery)
    return depth, np.where(np.isnan(depth), np.nan, recovery)


def worst_window(correct: ArrayLike, window: int) -> WorstWindow:
    """The lowest accuracy over any ``window`` consecutive samples, and the start of that window.

    min over s of 1/w * sum of correct[s : s + w], with the first such s. Shows a period of low
    accuracy that an average hides. NaN if there are fewer than ``window`` samples.

    >>> worst_window([1, 1, 0, 0, 1], window=2)
    WorstWindow(accuracy=0.0, start=2)
    """
    hits = np.asarray(correct)
    if hits.ndim != 1 or window < 1:
        raise StreamgaugeError(
            "worst_window needs a one-dimensional array and a window of 1 or more samples."
        )
    if len(hits) < window:
        return WorstWindow(float("nan"), -1)
    dtype = np.int64 if hits.dtype.kind in "bui" else np.float64
    cumulative = np.concatenate([np.zeros(1, dtype), np.cumsum(hits, dtype=dtype)])
    sums = cumulative[window:] - cumulative[:-window]
    start = int(sums.argmin())
    return WorstWindow(float(sums[start]) / window, start)
