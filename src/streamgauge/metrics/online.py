"""Metrics of the online predictions: each sample is predicted before the model trains on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import (
    Floats,
    Integers,
    block_variance,
    divide,
    same_length,
    share,
)
from streamgauge.metrics.log import RunLog, columns

MAX_CONFIDENCE = 1 + 1e-6  # a softmax in float32 may round to slightly more than 1


def online_accuracy(label: ArrayLike, prediction: ArrayLike) -> float:
    """Share of the stream's samples that were predicted correctly before training on them.

    acc = 1/N * sum over n of [prediction[n] = label[n]]: all samples have the same weight,
    including those before the first training step. NaN for an empty stream.

    Source: Ghunaim et al. 2023 (Real-Time Evaluation in OCL), average online accuracy; Cai et al.
    2021 (CLOC), equation 1 at the last step.

    >>> online_accuracy([3, 3, 1, 2], [3, 1, 1, 2])
    0.75
    """
    labels, predictions = same_length(label=label, prediction=prediction)
    return share(np.count_nonzero(labels == predictions), len(labels))


def running_accuracy(label: ArrayLike, prediction: ArrayLike, window: int | None = None) -> Floats:
    """Online accuracy up to each sample, or over the last ``window`` samples.

    Without ``window``, entry n is the mean over samples 0..n, and the last entry is exactly
    :func:`online_accuracy`. With ``window``, entry n is the mean over samples n-window+1..n, NaN
    before the first full window.

    Source: Cai et al. 2021 (CLOC), equation 1.

    >>> running_accuracy([3, 3, 1, 2], [3, 1, 1, 2]).round(3)
    array([1.   , 0.5  , 0.667, 0.75 ])
    >>> running_accuracy([3, 3, 1, 2], [3, 1, 1, 2], window=2)
    array([nan, 0.5, 0.5, 1. ])
    """
    labels, predictions = same_length(label=label, prediction=prediction)
    hits = np.cumsum(labels == predictions)
    if window is None:
        return np.asarray(hits / np.arange(1, len(hits) + 1))
    if window < 1:
        raise StreamgaugeError(f"window must be 1 or more samples, not {window}.")
    result = np.full(len(hits), np.nan)
    if len(hits) >= window:
        earlier_hits = np.concatenate([[0], hits[:-window]])
        result[window - 1 :] = (hits[window - 1 :] - earlier_hits) / window
    return result


def album_accuracy(
    label: ArrayLike, prediction: ArrayLike, user: ArrayLike, step: ArrayLike
) -> float:
    """Online accuracy on the first album of each step: the online accuracy of CLOC.

    An album is a run of consecutive samples of one user. Per step, the first album whose user is
    not the last user of the previous step is scored, so that no album is scored after training on
    its first half; the result is the unweighted mean of the accuracies of these albums. Steps
    without such an album are skipped. Rows are in stream order; ``step`` never decreases.

    Source: Cai et al. 2021 (CLOC), section 5 and its code.

    >>> album_accuracy([1, 1, 2, 1, 4], [1, 0, 0, 0, 4], user=[7, 7, 8, 8, 9], step=[0, 0, 0, 1, 1])
    0.75
    """
    labels, predictions, users, steps = same_length(
        label=label, prediction=prediction, user=user, step=step
    )
    if not len(labels):
        return float("nan")
    if np.any(steps[1:] < steps[:-1]):
        raise StreamgaugeError(
            "album_accuracy needs rows in the order of the stream, but step decreases; "
            "sort the rows by step, keeping the order within a step."
        )
    index = np.arange(len(labels))
    step_starts = np.flatnonzero(np.concatenate([[True], steps[1:] != steps[:-1]]))
    batch = np.repeat(np.arange(len(step_starts)), np.diff([*step_starts, len(labels)]))
    last_user = np.concatenate([users[:1], users[step_starts[1:] - 1]])
    new_user = (users != last_user[batch]) | (batch == 0)
    first = np.minimum.reduceat(np.where(new_user, index, len(labels)), step_starts)
    first = first[first < len(labels)]
    is_run_start = np.concatenate([[True], (users[1:] != users[:-1]) | (steps[1:] != steps[:-1])])
    run_starts = np.append(np.flatnonzero(is_run_start), len(labels))
    end = run_starts[np.searchsorted(run_starts, first, side="right")]
    hits = np.concatenate([[0], np.cumsum(labels == predictions)])
    if not len(first):
        return float("nan")
    return float(np.mean((hits[end] - hits[first]) / (end - first)))


def near_future_accuracy(log: RunLog, shifts: int | Sequence[int], common: bool = False) -> Floats:
    """Accuracy on samples that lie ``S`` samples after the last sample the model was trained on.

    a(S) = mean over target samples n >= S of [the model not trained on the last S samples before n
    predicts n correctly]. S = 0 is exactly the online accuracy. For S > 0 the first S samples of
    the stream are not targets. With ``common``, all shifts in the log are scored on the targets
    (step, sample) that all of them share, which makes shifts comparable. NaN for a shift that is
    not in the log, or if there is no common target.

    Source: Hammoud et al. 2023 (Rapid Adaptation in OCL: Are We Evaluating It Right?), section 3.5.

    >>> from streamgauge.metrics._example import LOG
    >>> near_future_accuracy(LOG, [0, 1, 2])
    array([0.75, 0.5 ,  nan])
    >>> near_future_accuracy(LOG, [0, 1], common=True)
    array([1. , 0.5])
    """
    shift, label, prediction = columns(log, "predictions", "shift", "label", "prediction")
    given = np.atleast_1d(np.asarray(shifts, dtype=np.int64))
    if np.any(given < 0):
        raise StreamgaugeError("a shift is a number of samples, 0 or more.")
    rows = {int(s): np.flatnonzero(shift == s) for s in np.unique(given)}
    rows = {s: indices for s, indices in rows.items() if len(indices)}
    if common and rows:
        target = _targets(*columns(log, "predictions", "step", "sample"))
        in_all = np.ones(int(target.max()) + 1, dtype=bool)
        for indices in rows.values():
            present = np.zeros(len(in_all), dtype=bool)
            present[target[indices]] = True
            in_all &= present
        rows = {s: indices[in_all[target[indices]]] for s, indices in rows.items()}
    correct = label == prediction
    hits = [correct[rows.get(int(s), [])] for s in given]
    return np.array([share(np.count_nonzero(h), len(h)) for h in hits], dtype=np.float64)


def near_future_error(log: RunLog, shifts: int | Sequence[int], blocks: int = 20) -> Floats:
    """Standard errors of :func:`near_future_accuracy`; steps without predictions are allowed.

    See :func:`accuracy_error`; NaN for a shift that is not in the log.
    """
    shift, *logged = columns(log, "predictions", "shift", "label", "prediction", "step")
    errors = []
    for s in np.atleast_1d(np.asarray(shifts, dtype=np.int64)):
        label, prediction, step = (values[shift == s] for values in logged)
        errors.append(accuracy_error(label == prediction, step, blocks))
    return np.asarray(errors, dtype=np.float64)


def accuracy_error(right: ArrayLike, step: ArrayLike, blocks: int = 20) -> float:
    """Standard error of an accuracy over correlated samples, from means over blocks of the stream.

    Neighbouring samples of a stream are correlated, and so are a model's mistakes on them, so the
    square root of a (1 - a) / n is far too small. The steps that have predictions are cut, in
    order, into ``blocks`` equal blocks; with w_b the share of samples in block b and a_b the
    accuracy in it, e_b = w_b (a_b - a), and

        error^2 = n/(n - 1) * (sum over b of e_b^2 + max(0, 2 * sum over b of e_b e_(b+1))),

    n the number of blocks. Valid if blocks are long compared to bursts. NaN for fewer than two
    steps; with fewer steps than ``blocks``, every step is a block.

    >>> round(accuracy_error([1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3]), 4)
    0.2887
    """
    correct, sample_step = same_length(right=right, step=step)
    distinct, step_index = np.unique(sample_step, return_inverse=True)
    steps = len(distinct)
    number = min(blocks, steps)
    if number < 2:
        return float("nan")
    block = (np.arange(steps) * number // steps)[step_index]
    size = np.bincount(block, minlength=number)
    hits = np.bincount(block, weights=correct.astype(np.float64), minlength=number)
    deviations = hits / size.sum() - size / size.sum() * (hits.sum() / size.sum())
    return float(np.sqrt(block_variance(deviations)))


def _targets(step: ArrayLike, sample: ArrayLike) -> Integers:
    """One small integer per target, a distinct pair of step and sample."""
    steps, samples = np.asarray(step, dtype=np.int64), np.asarray(sample, dtype=np.int64)
    if int(samples.max(initial=0)) - int(samples.min(initial=0)) >= 1 << 31:
        # Large sample numbers multiplied by a step would overflow.
        samples = np.unique(samples, return_inverse=True)[1]
    samples = samples - samples.min(initial=0)
    width = int(samples.max(initial=0)) + 1
    if width <= 8 * len(samples) + 1024:
        # In most streams each sample occurs once; its number then identifies the target, unsorted.
        step_of = np.zeros(width, dtype=np.int64)
        step_of[samples] = steps
        if np.array_equal(step_of[samples], steps):
            return np.asarray(samples)
    return np.asarray(np.unique(steps * width + samples, return_inverse=True)[1])


def per_class_accuracy(
    label: ArrayLike, prediction: ArrayLike, classes: int | None = None
) -> Floats:
    """Accuracy on the samples of each class, NaN for a class without samples.

    acc[c] = share of samples with label c that were predicted c. Labels are integers from 0;
    ``classes`` is how many there are (by default, up to the largest label).

    >>> per_class_accuracy([0, 0, 2], [0, 1, 2])
    array([0.5, nan, 1. ])
    """
    labels, predictions = same_length(label=label, prediction=prediction)
    if len(labels) and (labels.dtype.kind not in "iub" or labels.min() < 0):
        raise StreamgaugeError("per-class accuracy needs integer labels from 0.")
    number = int(labels.max(initial=-1)) + 1 if classes is None else classes
    if len(labels) and labels.max() >= number:
        raise StreamgaugeError(
            f"label {labels.max()} is outside the {number} classes: pass more classes."
        )
    return _accuracy_per_class(labels.astype(np.int64), labels == predictions, number)


def _accuracy_per_class(code: Integers, correct: NDArray[np.bool_], number: int) -> Floats:
    count = np.bincount(code, minlength=number)
    return divide(np.bincount(code[correct], minlength=number), count)


def macro_accuracy(label: ArrayLike, prediction: ArrayLike) -> float:
    """Unweighted mean of the accuracies of the classes that occur.

    macro = 1/C' * sum over classes c that occur of acc[c], as in :func:`per_class_accuracy`. On a
    long-tailed stream it is far below online accuracy if only the frequent classes are learnt.
    Also called balanced accuracy (scikit-learn, river): ``balanced_accuracy`` is this function.

    >>> macro_accuracy([0, 0, 0, 2], [0, 0, 0, 1])
    0.5
    """
    labels, predictions = same_length(label=label, prediction=prediction)
    if len(labels) and labels.dtype.kind in "iu" and int(labels.max()) > 8 * len(labels) + 1024:
        # Labels may be ids of a catalogue: an array up to the largest label would be too long.
        code = np.unique(labels, return_inverse=True)[1]
        accuracy = _accuracy_per_class(code, labels == predictions, int(code.max()) + 1)
    else:
        accuracy = per_class_accuracy(labels, predictions)
    occurring = accuracy[~np.isnan(accuracy)]
    return float(occurring.mean()) if occurring.size else float("nan")


balanced_accuracy = macro_accuracy


def calibration_error(
    label: ArrayLike, prediction: ArrayLike, confidence: ArrayLike, bins: int = 15
) -> float:
    """Expected calibration error: the mean distance between confidence and accuracy.

    ECE = sum over bins b of n_b/N * |accuracy in b - mean confidence in b|, with ``bins`` bins of
    equal width, (lower, upper], over the confidence in the predicted class. NaN if the log is empty
    or a confidence is missing.

    Source: Naeini et al. 2015; Guo et al. 2017, equation 3.

    >>> round(calibration_error([0, 0, 1, 1], [0, 0, 0, 1], [0.9, 0.9, 0.9, 0.9]), 6)
    0.15
    """
    labels, predictions, confidences = same_length(
        label=label, prediction=prediction, confidence=confidence
    )
    confidences = confidences.astype(np.float64)
    if bins < 1:
        raise StreamgaugeError(f"calibration error needs 1 bin or more, not {bins}.")
    if not len(labels) or np.isnan(confidences).any():
        return float("nan")
    if confidences.min() < 0 or confidences.max() > MAX_CONFIDENCE:
        raise StreamgaugeError(
            "a confidence is the probability of the predicted class and must be between 0 and 1; "
            "apply a softmax to scores first."
        )
    bin_index = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    # n_b * |accuracy - confidence| is |hits - summed confidence|, so no bin can be 0 / 0.
    hits = np.bincount(
        bin_index, weights=(labels == predictions).astype(np.float64), minlength=bins
    )
    confidence_sums = np.bincount(bin_index, weights=confidences, minlength=bins)
    return float(np.abs(hits - confidence_sums).sum() / len(labels))
