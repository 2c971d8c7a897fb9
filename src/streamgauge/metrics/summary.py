"""Every number that a log can give, by name."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.metrics import continual, online, tasks, transfer
from streamgauge.metrics._arrays import Floats, UndefinedMetric
from streamgauge.metrics.compute import training_flops
from streamgauge.metrics.log import (
    PROBE,
    Log,
    accuracy_matrix,
    choose_split,
    classes_seen,
    continual_accuracy,
    cumulative_matrix,
    evaluation_sizes,
    retained_accuracy,
    splits_of,
    table_of,
    task_order,
)

WORST_WINDOW = 1000  # samples
ANSWER_COLUMNS = ("evaluation", "step", "split", "label", "prediction", "position")
MOMENTS = {1 / 3: "H/3", 2 / 3: "2H/3", 1.0: "H"}


def score(
    log: Log, classes: ArrayLike | None = None, baseline: ArrayLike | None = None
) -> dict[str, float]:
    """All scalars that are defined for this log; what it cannot give is left out.

    Metrics that are arrays over tasks or evaluations appear with their last value. ``classes`` (how
    many classes had been seen up to each task) is read from the log where it can be, and
    ``baseline`` (accuracies of the untrained model, for forward transfer) from an evaluation at
    step 0. Numbers that belong to another stand beside it: ``worst_case_accuracy`` comes with
    ``worst_case_interval`` (steps between evaluations), ``worst_case_set_size`` and
    ``worst_case_smoothed`` with its ``worst_case_window`` (evaluations).

    >>> from types import SimpleNamespace
    >>> rows = {"step": np.array([0, 1]), "sample": np.array([0, 1]), "shift": np.array([0, 0]),
    ...         "label": np.array([3, 1]), "prediction": np.array([3, 2])}
    >>> score(SimpleNamespace(predictions=rows))
    {'online_accuracy': 0.5, 'macro_accuracy': 0.5}
    """
    found: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetric)  # what is undefined is left out anyway
        if _filled(log, "predictions", "step", "label", "prediction", "shift"):
            found.update(_stream_scores(log))
        if _filled(log, "evaluations", "evaluation", "step", "split", "correct", "count"):
            found.update(_held_out_scores(log))
            if _filled(log, "evaluations", "task", "current"):
                found.update(_task_scores(log, classes, baseline))
        if _filled(
            log, "answers", "evaluation", "step", "split", "label", "prediction", "position"
        ):
            found.update(_transfer_scores(log))
        found["training_flops"] = training_flops(log)
    return {name: float(value) for name, value in found.items() if not math.isnan(value)}


def _filled(log: Log, name: str, *columns: str) -> bool:
    """Does the log have this table, with these columns, and any rows?"""
    table = table_of(log, name)
    return all(one in table for one in columns) and len(table[columns[0]]) > 0


def _stream_scores(log: Log) -> dict[str, float]:
    table = log.predictions
    shift = np.asarray(table["shift"])
    live = np.flatnonzero(shift == 0)
    step = np.asarray(table["step"])[live]
    if np.any(step[1:] < step[:-1]):  # albums and windows want the order of the stream
        live = live[np.argsort(step, kind="stable")]
    label, prediction = np.asarray(table["label"])[live], np.asarray(table["prediction"])[live]
    found = {"online_accuracy": online.online_accuracy(label, prediction)}
    shifts = [int(s) for s in np.unique(shift)]
    later = [s for s in shifts if s > 0]
    for s, value in zip(later, online.near_future_accuracy(log, later), strict=True):
        found[f"near_future_accuracy@{s}"] = value
        found[f"near_future_error@{s}"] = float(online.near_future_error(log, s)[0])
    if later and "sample" in table:
        same = online.near_future_accuracy(log, shifts, common=True)
        for s, value in zip(shifts, same, strict=True):
            found[f"near_future_common@{s}"] = value
    if label.dtype.kind in "iu" and label.min(initial=0) >= 0:
        found["macro_accuracy"] = online.macro_accuracy(label, prediction)
    if "confidence" in table:
        sure = np.asarray(table["confidence"])[live]
        if np.all((sure >= 0) & (sure <= online.SURE)):  # else a score or missing, no probability
            found["calibration_error"] = online.calibration_error(label, prediction, sure)
    if "user" in table:
        user, step = np.asarray(table["user"])[live], np.asarray(table["step"])[live]
        found["album_accuracy"] = online.album_accuracy(label, prediction, user, step)
    worst = continual.worst_window(label == prediction, WORST_WINDOW)
    found[f"worst_window@{WORST_WINDOW}"] = worst.accuracy
    return found


def _splits(log: Log) -> set[str]:
    return set(splits_of(log.evaluations, "evaluations"))


def _held_out_scores(log: Log) -> dict[str, float]:
    splits = _splits(log)
    found = {}
    if splits - {PROBE}:
        found["retained_accuracy"] = retained_accuracy(log)
    if PROBE in splits:
        found["probed_accuracy"] = retained_accuracy(log, PROBE)
    return found


def _task_scores(
    log: Log, classes: ArrayLike | None, baseline: ArrayLike | None
) -> dict[str, float]:
    current = np.asarray(log.evaluations["current"])
    if not _splits(log) - {PROBE} or current.max() < 0 or np.max(log.evaluations["task"]) < 0:
        return {}
    # A run may have been cut short, evaluate tasks that it never trains, or only after the last.
    newest = int(task_order(log)[current[current >= 0]].max())
    a, b = accuracy_matrix(log), cumulative_matrix(log)
    results = {
        "average_accuracy": tasks.average_accuracy(a),
        "average_forgetting": tasks.average_forgetting(a),
        "average_forgetting_first": tasks.average_forgetting(a, "first", "all"),
        "backward_transfer": tasks.backward_transfer(a),
        "cumulative_forgetting": tasks.cumulative_forgetting(b),
        "cumulative_forgetting_first": tasks.cumulative_forgetting(b, "first"),
    }
    seen = classes_seen(log) if classes is None else np.asarray(classes)
    if seen is not None:
        results["rescaled_accuracy"] = tasks.rescaled_accuracy(a, seen)
        results["rescaled_forgetting"] = tasks.rescaled_forgetting(a, seen)
    untrained = _untrained(log) if baseline is None else baseline
    results["forward_transfer"] = tasks.forward_transfer(a, untrained)
    found = {name: float(values[newest]) for name, values in results.items()}
    found.update(_continual_scores(log))
    return found


def _continual_scores(log: Log) -> dict[str, float]:
    acc, task, step = continual_accuracy(log)
    if not len(acc):
        return {}
    worst = continual.worst_case(acc, task, step, evaluation_sizes(log))
    found = {"worst_case_accuracy": worst.accuracy}
    if len(acc) > 1 or acc.shape[1] == 1:  # one evaluation after many tasks is no time to average
        found["anytime_accuracy"] = _last(continual.anytime_accuracy(acc, task))
        found["minimum_accuracy"] = _last(continual.minimum_accuracy(acc, task))
    if worst.interval > 1:  # not every step was evaluated
        found["anytime_accuracy_error"] = continual.anytime_error(acc, task, step)
    if not math.isnan(worst.accuracy):
        found["worst_case_smoothed"] = worst.smoothed
        found["worst_case_window"] = worst.window
        found["worst_case_interval"] = worst.interval
        found["worst_case_set_size"] = worst.set_size
    gap = continual.stability_gap(acc, task)
    depth, recovery = gap.depth[~np.isnan(gap.depth)], gap.recovery[~np.isnan(gap.recovery)]
    if len(depth):
        found["stability_gap_depth"] = float(depth.mean())
        found["stability_gap_recovered"] = len(recovery) / len(depth)
    if len(recovery):
        found["stability_gap_recovery"] = float(recovery.mean())
    return found


def _untrained(log: Log) -> Floats | None:
    """Accuracies per task at an evaluation made before any step, if there was one."""
    split = choose_split(log.evaluations, None, "evaluations")  # the one that a is read from
    acc, _, step = continual_accuracy(log, split)
    rows = np.flatnonzero(step == 0)
    return np.asarray(acc[rows[0]]) if len(rows) else None


def _transfer_scores(log: Log) -> dict[str, float]:
    found = {}
    for curve in transfer.backward_transfer_curve(log):
        if len(curve.accuracy):
            found[f"backward_transfer_curve@{MOMENTS[curve.fraction]}"] = _last(curve.accuracy)
    for curve in transfer.forward_transfer_curve(log):
        if len(curve.accuracy):
            found[f"forward_transfer_curve@{MOMENTS[curve.fraction]}"] = _last(curve.accuracy)
    return found


def _last(values: Floats) -> float:
    return float(values[-1]) if len(values) else float("nan")
