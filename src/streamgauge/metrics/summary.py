"""All metrics of a log, by name."""

from __future__ import annotations

import inspect
import math
import warnings

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.metrics import agreement, continual, online, tasks, transfer
from streamgauge.metrics._arrays import Anything, Floats, UndefinedMetric
from streamgauge.metrics.compute import training_flops
from streamgauge.metrics.log import (
    PROBE,
    RunLog,
    accuracy_matrix,
    choose_split,
    classes_seen,
    columns,
    continual_accuracy,
    cumulative_matrix,
    evaluation_sizes,
    known_at_answers,
    retained_accuracy,
    splits_of,
    table_of,
    task_order,
)

WORST_WINDOW = 1000  # samples
ANSWER_COLUMNS = ("evaluation", "step", "split", "label", "prediction", "position")
# Names that `score` prints and that are not functions of `streamgauge.metrics`.
_MEANINGS = {
    "near_future_common": "Accuracy at a shift on the samples that are answered at every shift of"
    " the log, 0 included: for comparing shifts within one run.",
    "average_accuracy_continuum": "Mean accuracy over all pairs of a model and a task that it has"
    " seen, as `accuracy_A` of the library Continuum.",
    "average_forgetting_first": "Average forgetting relative to the accuracy right after a task was"
    " trained, divided by the number of all tasks so far, as in the survey.",
    "backward_transfer_capymoa": "Backward transfer as CapyMOA and Continuum define it: mean over"
    " all pairs of an earlier task and a later model of the change since the task was trained.",
    "forward_transfer_capymoa": "Forward transfer as CapyMOA defines it: mean accuracy over all"
    " pairs of a model and a task that it has not seen, without a baseline.",
    "forward_transfer_continuum": "Forward transfer as Continuum defines it: mean accuracy on the"
    " next task, without a baseline.",
    "cumulative_forgetting_first": "Cumulative forgetting relative to the accuracy right after a"
    " task was trained; negative is an improvement.",
    "anytime_accuracy_capymoa": "Anytime accuracy as CapyMOA's `anytime_accuracy_all_avg`: mean"
    " over all evaluations of the mean accuracy on all tasks, unseen ones included.",
    "anytime_accuracy_error": "Standard error of `anytime_accuracy` because not every step was"
    " evaluated.",
    "worst_case_smoothed": "Worst-case accuracy with a rolling mean over `worst_case_window`"
    " evaluations before the minimum.",
    "worst_case_window": "Evaluations in the rolling mean of `worst_case_smoothed`.",
    "worst_case_interval": "Median number of steps between evaluations; a minimum over more"
    " evaluations is lower.",
    "worst_case_set_size": "Median number of held-out samples per task; a minimum over smaller sets"
    " is lower.",
    "stability_gap_depth": "Accuracy on the earlier tasks before a boundary minus its minimum in"
    " the new task, averaged over boundaries.",
    "stability_gap_recovered": "Share of boundaries after which the accuracy on the earlier tasks"
    " came back within the task.",
    "stability_gap_recovery": "Evaluations until that accuracy came back, averaged over the"
    " boundaries where it did.",
}
# Functions of `streamgauge.metrics` whose results `score` does not print under their names.
_NOT_PRINTED = {
    "accuracy_error", "accuracy_matrix", "all_kappas", "anytime_error", "classes_seen", "compare",
    "continual_accuracy", "cumulative_accuracy", "cumulative_matrix", "forgetting_matrix",
    "geolocation_error", "holm", "leaderboard", "linear_probe", "meaning", "pareto_front",
    "per_class_accuracy", "random_forgetting", "retention_curve", "running_accuracy", "score",
    "spread", "stability_gap", "unnormalised_rescaled_accuracy",
    "unnormalised_rescaled_forgetting", "worst_case"
}  # fmt: skip
MOMENTS = {1 / 3: "H/3", 2 / 3: "2H/3", 1.0: "H"}


def score(
    log: RunLog, classes: ArrayLike | None = None, baseline: ArrayLike | None = None
) -> dict[str, float]:
    """All scalar metrics that are defined for this log; undefined ones are left out.

    Metrics that are arrays over tasks or evaluations are given by their last value. By default
    ``classes`` (number of classes seen up to each task) is counted in the log and ``baseline``
    (accuracies of the untrained model, for forward transfer) is read from an evaluation at step 0.
    ``worst_case_accuracy`` comes with ``worst_case_interval`` (steps between evaluations),
    ``worst_case_set_size``, and ``worst_case_smoothed`` with ``worst_case_window`` (evaluations).

    >>> from streamgauge.metrics._example import LOG
    >>> score(LOG)["online_accuracy"], score(LOG)["retained_accuracy"]
    (0.75, 0.65)
    """
    scores: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetric)  # undefined metrics are left out
        if _filled(log, "predictions", "step", "label", "prediction", "shift"):
            if hasattr(log, "check_classes"):
                log.check_classes()
            scores.update(_stream_scores(log))
        if _filled(log, "evaluations", "evaluation", "step", "split", "correct", "count"):
            scores.update(_held_out_scores(log))
            if _filled(log, "evaluations", "task", "current"):
                scores.update(_task_scores(log, classes, baseline))
        if _filled(log, "answers", *ANSWER_COLUMNS):
            scores.update(_transfer_scores(log))
        scores["training_flops"] = training_flops(log)
    return {name: float(value) for name, value in scores.items() if not math.isnan(value)}


def names() -> list[str]:
    """Names of metrics that are numbers, as `score` prints them, without what follows an @."""
    from streamgauge import metrics

    known = {*_MEANINGS, *metrics.__all__} - _NOT_PRINTED
    return sorted(name for name in known if name.islower() and meaning(name))


def meaning(name: str) -> str:
    """What a name that `score` prints means; "" for other names.

    >>> meaning("near_future_error@100").partition(";")[0]
    'Standard errors of `near_future_accuracy`'
    """
    from streamgauge import metrics

    plain = name.partition("@")[0]
    function = getattr(metrics, plain, None) if plain in metrics.__all__ else None
    text = _MEANINGS.get(plain) or (inspect.getdoc(function) if callable(function) else "") or ""
    text = text.partition(">>>")[0].replace("``", "`").replace(":func:", "")
    return " ".join(text.split())


def _filled(log: RunLog, name: str, *columns: str) -> bool:
    """Whether the log has this table with these columns and at least one row."""
    table = table_of(log, name)
    return all(column in table for column in columns) and len(table[columns[0]]) > 0


def _stream_scores(log: RunLog) -> dict[str, float]:
    shift, step = columns(log, "predictions", "shift", "step")
    online_rows = np.flatnonzero(shift == 0)
    if np.any(np.diff(step[online_rows]) < 0):  # albums and windows need the order of the stream
        online_rows = online_rows[np.argsort(step[online_rows], kind="stable")]

    def online_column(name: str) -> Anything:
        return np.asarray(log.predictions[name])[online_rows]

    label, prediction = online_column("label"), online_column("prediction")
    scores = {"online_accuracy": online.online_accuracy(label, prediction)}
    shifts = [int(s) for s in np.unique(shift)]
    future = [s for s in shifts if s > 0]
    accuracy, error = (
        online.near_future_accuracy(log, future),
        online.near_future_error(log, future),
    )
    for i, s in enumerate(future):
        scores |= {f"near_future_accuracy@{s}": accuracy[i], f"near_future_error@{s}": error[i]}
    if future and "sample" in log.predictions:
        common = online.near_future_accuracy(log, shifts, common=True)
        scores |= {f"near_future_common@{s}": v for s, v in zip(shifts, common, strict=True)}
    known, _ = known_at_answers(log, online_rows)
    kappas = agreement.all_kappas(label, prediction, known)
    scores |= {
        "kappa": kappas.kappa,
        "kappa_t": kappas.kappa_t,
        "kappa_m": kappas.kappa_m,
        "kappa_combined": kappas.kappa_combined,
        "macro_f1": agreement.macro_f1(label, prediction),
    }
    if label.dtype.kind in "iu" and label.min(initial=0) >= 0:
        macro = online.macro_accuracy(label, prediction)
        scores |= {"macro_accuracy": macro, "balanced_accuracy": macro}
    if "logp" in log.predictions:
        scores["log_loss"] = agreement.log_loss(online_column("logp"))
    if "confidence" in log.predictions:
        confidence = online_column("confidence")
        # Other values are scores, or missing.
        if np.all((confidence >= 0) & (confidence <= online.MAX_CONFIDENCE)):
            scores["calibration_error"] = online.calibration_error(label, prediction, confidence)
            if "logp" in log.predictions:
                scores["auc"] = _auc(label, prediction, confidence, online_column("logp"))
    if "user" in log.predictions:
        user = online_column("user")
        scores["album_accuracy"] = online.album_accuracy(
            label, prediction, user, online_column("step")
        )
    worst = continual.worst_window(label == prediction, WORST_WINDOW)
    scores[f"worst_window@{WORST_WINDOW}"] = worst.accuracy
    return scores


def _auc(label: Anything, prediction: Anything, confidence: Anything, logp: Anything) -> float:
    """AUC of two classes; NaN where the log does not show that the model has just two: there the
    probabilities of a wrong answer and of the true label add up to 1."""
    names = np.unique(label)
    if len(names) != 2 or not np.isin(prediction, names).all():
        return float("nan")
    wrong = prediction != label
    both = confidence[wrong].astype(np.float64) + np.exp(logp[wrong].astype(np.float64))
    if not np.allclose(both, 1.0, atol=1e-3):
        return float("nan")
    score = confidence.astype(np.float64)
    return agreement.auc(label == names[1], np.where(prediction == names[1], score, 1 - score))


def _held_out_scores(log: RunLog) -> dict[str, float]:
    splits = set(splits_of(log.evaluations, "evaluations"))
    scores = {}
    if splits - {PROBE}:
        scores["retained_accuracy"] = retained_accuracy(log)
    if PROBE in splits:
        scores["probed_accuracy"] = retained_accuracy(log, PROBE)
    return scores


def _task_scores(
    log: RunLog, classes: ArrayLike | None, baseline: ArrayLike | None
) -> dict[str, float]:
    current = np.asarray(log.evaluations["current"])
    if (
        not set(splits_of(log.evaluations, "evaluations")) - {PROBE}
        or current.max() < 0
        or np.max(log.evaluations["task"]) < 0
    ):
        return {}
    # The run may be interrupted, evaluate tasks it never trains, or evaluate only at the end.
    newest = int(task_order(log)[current[current >= 0]].max())
    b = cumulative_matrix(log)
    seen = classes_seen(log) if classes is None else np.asarray(classes)
    arrays = tasks.task_curves(
        accuracy_matrix(log), seen, _untrained(log) if baseline is None else baseline
    ) | {
        "cumulative_forgetting": tasks.cumulative_forgetting(b),
        "cumulative_forgetting_first": tasks.cumulative_forgetting(b, "first"),
    }
    scores = {name: float(values[newest]) for name, values in arrays.items()}
    scores.update(_continual_scores(log))
    return scores


def _continual_scores(log: RunLog) -> dict[str, float]:
    acc, task, step = continual_accuracy(log)
    if not len(acc):
        return {}
    worst = continual.worst_case(acc, task, step, evaluation_sizes(log))
    scores = {"worst_case_accuracy": worst.accuracy}
    # A single evaluation after many tasks is no average over time.
    if len(acc) > 1 or acc.shape[1] == 1:
        scores["anytime_accuracy"] = _last(continual.anytime_accuracy(acc, task))
        everything = continual.anytime_accuracy(acc, task, "capymoa")
        scores["anytime_accuracy_capymoa"] = _last(everything)
        scores["minimum_accuracy"] = _last(continual.minimum_accuracy(acc, task))
    if worst.interval > 1:  # not every step was evaluated
        scores["anytime_accuracy_error"] = continual.anytime_error(acc, task, step)
    if not math.isnan(worst.accuracy):
        scores["worst_case_smoothed"] = worst.smoothed
        scores["worst_case_window"] = worst.window
        scores["worst_case_interval"] = worst.interval
        scores["worst_case_set_size"] = worst.set_size
    gap = continual.stability_gap(acc, task)
    depth, recovery = gap.depth[~np.isnan(gap.depth)], gap.recovery[~np.isnan(gap.recovery)]
    if len(depth):
        scores["stability_gap_depth"] = float(depth.mean())
        scores["stability_gap_recovered"] = len(recovery) / len(depth)
    if len(recovery):
        scores["stability_gap_recovery"] = float(recovery.mean())
    return scores


def _untrained(log: RunLog) -> Floats | None:
    """Accuracies per task at an evaluation before the first step, None if there is none."""
    split = choose_split(log.evaluations, None, "evaluations")  # the split of accuracy_matrix
    acc, _, step = continual_accuracy(log, split)
    rows = np.flatnonzero(step == 0)
    return np.asarray(acc[rows[0]]) if len(rows) else None


def _transfer_scores(log: RunLog) -> dict[str, float]:
    curves = {
        "backward_transfer_curve": transfer.backward_transfer_curve(log),
        "forward_transfer_curve": transfer.forward_transfer_curve(log),
    }
    return {
        f"{name}@{MOMENTS[curve.fraction]}": _last(curve.accuracy)
        for name, models in curves.items()
        for curve in models
    }


def _last(values: Floats) -> float:
    return float(values[-1]) if len(values) else float("nan")
