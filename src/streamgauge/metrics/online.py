"""Metrics of the predictions made on the stream itself, before each label was learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats, Integers, divide, same_length, share
from streamgauge.metrics.log import Log, column

SURE = 1 + 1e-6  # a softmax in float32 may round to a little more than 1


def online_accuracy(label: ArrayLike, prediction: ArrayLike) -> float:
    """Share of the stream's samples that were predicted right before they were learnt from.

    acc = 1/N * sum over n of [prediction[n] = label[n]]: every sample counts the same, the first,
    untrained ones too. NaN for an empty stream.

    Source: Ghunaim et al. 2023 (Real-Time Evaluation in OCL), average online accuracy; Cai et al.
    2021 (CLOC), equation 1 at the last step.

    >>> online_accuracy([3, 3, 1, 2], [3, 1, 1, 2])
    0.75
    """
    truth, answer = same_length(label=label, prediction=prediction)
    return share(np.count_nonzero(truth == answer), len(truth))


def running_accuracy(label: ArrayLike, prediction: ArrayLike, window: int | None = None) -> Floats:
    """Online accuracy up to each sample, or over the last ``window`` samples.

    Without a window, entry n is the mean over samples 0..n, and the last entry is exactly
    :func:`online_accuracy`. With one, entry n is the mean over samples n-window+1..n, NaN before
    the first full window.

    Source: Cai et al. 2021 (CLOC), equation 1.

    >>> running_accuracy([3, 3, 1, 2], [3, 1, 1, 2]).round(3)
    array([1.   , 0.5  , 0.667, 0.75 ])
    >>> running_accuracy([3, 3, 1, 2], [3, 1, 1, 2], window=2)
    array([nan, 0.5, 0.5, 1. ])
    """
    truth, answer = same_length(label=label, prediction=prediction)
    total = np.cumsum(truth == answer)
    if window is None:
        return np.asarray(total / np.arange(1, len(total) + 1))
    if window < 1:
        raise StreamgaugeError(f"window must be 1 or more samples, not {window}.")
    result = np.full(len(total), np.nan)
    if len(total) >= window:
        before = np.concatenate([[0], total[:-window]])
        result[window - 1 :] = (total[window - 1 :] - before) / window
    return result


def album_accuracy(
    label: ArrayLike, prediction: ArrayLike, user: ArrayLike, step: ArrayLike
) -> float:
    """Online accuracy on the first album of each step: what CLOC calls online accuracy.

    An album is a run of consecutive samples of one user. Of each step's samples the first album
    whose user is not the last user of the step before is scored, so that a model cannot gain from
    having just learnt the first half of the album; the result is the unweighted mean of those
    albums' accuracies over steps. Steps that hold no such album are left out. Rows are in stream
    order, ``step`` never falling.

    Source: Cai et al. 2021 (CLOC), section 5 and its code.

    >>> album_accuracy([1, 1, 2, 1, 4], [1, 0, 0, 0, 4], user=[7, 7, 8, 8, 9], step=[0, 0, 0, 1, 1])
    0.75
    """
    truth, answer, who, when = same_length(label=label, prediction=prediction, user=user, step=step)
    if not len(truth):
        return float("nan")
    if np.any(when[1:] < when[:-1]):
        raise StreamgaugeError(
            "album_accuracy wants its rows in the order of the stream, and step falls somewhere; "
            "sort the rows by step, keeping the order within a step."
        )
    index = np.arange(len(truth))
    first = np.flatnonzero(np.concatenate([[True], when[1:] != when[:-1]]))
    batch = np.repeat(np.arange(len(first)), np.diff([*first, len(truth)]))
    last_user = np.concatenate([who[:1], who[first[1:] - 1]])
    fresh = (who != last_user[batch]) | (batch == 0)
    begin = np.minimum.reduceat(np.where(fresh, index, len(truth)), first)
    begin = begin[begin < len(truth)]
    new_run = np.concatenate([[True], (who[1:] != who[:-1]) | (when[1:] != when[:-1])])
    starts = np.append(np.flatnonzero(new_run), len(truth))
    end = starts[np.searchsorted(starts, begin, side="right")]
    hits = np.concatenate([[0], np.cumsum(truth == answer)])
    if not len(begin):
        return float("nan")
    return float(np.mean((hits[end] - hits[begin]) / (end - begin)))


def near_future_accuracy(log: Log, shifts: int | Sequence[int], common: bool = False) -> Floats:
    """Accuracy on samples that lie ``S`` samples beyond what the model had learnt from.

    a(S) = mean over target samples n >= S of [the model that has not seen the last S samples before
    n predicts n right]. S = 0 is online accuracy, bit for bit. For S > 0 the first S samples of the
    stream are no targets. Comparing shifts fairly needs the same targets: with ``common`` all
    shifts that the log holds are scored on those (step, sample) that every one of them has. NaN for
    a shift that the log does not hold, or where no target is common.

    Source: Hammoud et al. 2023 (Rapid Adaptation in OCL: Are We Evaluating It Right?), section 3.5.

    >>> from types import SimpleNamespace
    >>> rows = {
    ...     "step": np.array([0, 1, 2, 1, 2]), "sample": np.array([5, 6, 7, 6, 7]),
    ...     "label": np.array([0, 0, 1, 0, 1]), "prediction": np.array([1, 0, 1, 0, 0]),
    ...     "shift": np.array([0, 0, 0, 1, 1]),
    ... }
    >>> near_future_accuracy(SimpleNamespace(predictions=rows), [0, 1, 2]).round(3)
    array([0.667, 0.5  ,   nan])
    >>> near_future_accuracy(SimpleNamespace(predictions=rows), [0, 1], common=True)
    array([1. , 0.5])
    """
    table = log.predictions
    shift = column(table, "shift", "predictions")
    label = column(table, "label", "predictions")
    prediction = column(table, "prediction", "predictions")
    wanted = np.atleast_1d(np.asarray(shifts, dtype=np.int64))
    if np.any(wanted < 0):
        raise StreamgaugeError("a shift is a number of samples, 0 or more.")
    rows = {int(s): np.flatnonzero(shift == s) for s in np.unique(wanted)}
    rows = {s: found for s, found in rows.items() if len(found)}
    if common and rows:
        target = _targets(
            column(table, "step", "predictions"), column(table, "sample", "predictions")
        )
        shared = np.ones(int(target.max()) + 1, dtype=bool)
        for found in rows.values():
            present = np.zeros(len(shared), dtype=bool)
            present[target[found]] = True
            shared &= present
        rows = {s: found[shared[target[found]]] for s, found in rows.items()}
    result = np.full(len(wanted), np.nan)
    for i, s in enumerate(wanted):
        if int(s) in rows:
            found = rows[int(s)]
            result[i] = online_accuracy(label[found], prediction[found])
    return result


def near_future_error(log: Log, shifts: int | Sequence[int], blocks: int = 20) -> Floats:
    """Standard errors of :func:`near_future_accuracy`, whether or not every step was asked.

    See :func:`accuracy_error`; NaN for a shift that the log does not hold.
    """
    table = log.predictions
    shift = column(table, "shift", "predictions")
    found = []
    for s in np.atleast_1d(np.asarray(shifts, dtype=np.int64)):
        mine = np.flatnonzero(shift == s)
        label, prediction, step = (
            column(table, name, "predictions")[mine] for name in ("label", "prediction", "step")
        )
        found.append(accuracy_error(label == prediction, step, blocks))
    return np.asarray(found, dtype=np.float64)


def accuracy_error(right: ArrayLike, step: ArrayLike, blocks: int = 20) -> float:
    """Standard error of an accuracy over samples that are alike: by means of stretches.

    Neighbouring samples of a stream hang together, and so do a model's mistakes on them, so the
    square root of a (1 - a) / n is far too small. The steps that were asked, in their order, are
    cut into ``blocks`` equal stretches; with w_b the share of samples in stretch b and a_b the
    accuracy there, e_b = w_b (a_b - a), and

        error^2 = n/(n - 1) * (sum over b of e_b^2 + max(0, 2 * sum over b of e_b e_(b+1))),

    n the number of stretches. It is right as long as stretches are long compared to bursts. NaN for
    fewer than two steps; with fewer steps than ``blocks``, each is a stretch.

    >>> round(accuracy_error([1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3]), 4)
    0.2887
    """
    good, when = same_length(right=right, step=step)
    _, place, count = np.unique(when, return_inverse=True, return_counts=True)
    steps = len(count)
    number = min(blocks, steps)
    if number < 2:
        return float("nan")
    stretch = (np.arange(steps) * number // steps)[place]
    size = np.bincount(stretch, minlength=number)
    hits = np.bincount(stretch, weights=good.astype(np.float64), minlength=number)
    away = hits / size.sum() - size / size.sum() * (hits.sum() / size.sum())
    beside = max(0.0, 2 * float(np.sum(away[1:] * away[:-1])))
    return float(np.sqrt(number / (number - 1) * (float(np.sum(away**2)) + beside)))


def _targets(step: ArrayLike, sample: ArrayLike) -> Integers:
    """A small integer a target; a sample that comes back at another step is another target."""
    when, which = np.asarray(step, dtype=np.int64), np.asarray(sample, dtype=np.int64)
    if int(which.max(initial=0)) - int(which.min(initial=0)) >= 1 << 31:
        # Numbers drawn at random: multiplied by a step they would wrap around and fall together.
        which = np.unique(which, return_inverse=True)[1]
    which = which - which.min(initial=0)
    width = int(which.max(initial=0)) + 1
    if width <= 8 * len(which) + 1024:
        # Most streams show each sample once, and then its number will do, without any sorting.
        shown = np.zeros(width, dtype=np.int64)
        shown[which] = when
        if np.array_equal(shown[which], when):
            return np.asarray(which)
    return np.asarray(np.unique(when * width + which, return_inverse=True)[1])


def per_class_accuracy(
    label: ArrayLike, prediction: ArrayLike, classes: int | None = None
) -> Floats:
    """Accuracy on the samples of each class, NaN for a class without samples.

    acc[c] = share of samples with label c that were predicted c. Labels are integers from 0;
    ``classes`` is how many there are (by default, up to the largest label).

    >>> per_class_accuracy([0, 0, 2], [0, 1, 2])
    array([0.5, nan, 1. ])
    """
    truth, answer = same_length(label=label, prediction=prediction)
    if len(truth) and (truth.dtype.kind not in "iub" or truth.min() < 0):
        raise StreamgaugeError("per-class accuracy wants labels that are integers from 0 on.")
    number = int(truth.max(initial=-1)) + 1 if classes is None else classes
    if len(truth) and truth.max() >= number:
        raise StreamgaugeError(f"label {truth.max()} is outside the {number} classes given.")
    return _share_right(truth.astype(np.int64), truth == answer, number)


def _share_right(code: Integers, right: NDArray[np.bool_], number: int) -> Floats:
    count = np.bincount(code, minlength=number)
    return divide(np.bincount(code[right], minlength=number), count)


def macro_accuracy(label: ArrayLike, prediction: ArrayLike) -> float:
    """Mean of the accuracies of the classes that occur, rare and frequent alike.

    macro = 1/C' * sum over classes c that occur of acc[c], as in :func:`per_class_accuracy`. On a
    long-tailed stream it falls far below online accuracy when only the frequent classes are known.

    >>> macro_accuracy([0, 0, 0, 2], [0, 0, 0, 1])
    0.5
    """
    truth, answer = same_length(label=label, prediction=prediction)
    if len(truth) and truth.dtype.kind in "iu" and int(truth.max()) > 8 * len(truth) + 1024:
        # Labels may be numbers of a catalogue: an entry for each up to the largest is too much.
        code = np.unique(truth, return_inverse=True)[1]
        each = _share_right(code, truth == answer, int(code.max()) + 1)
    else:
        each = per_class_accuracy(truth, answer)
    known = each[~np.isnan(each)]
    return float(known.mean()) if known.size else float("nan")


def calibration_error(
    label: ArrayLike, prediction: ArrayLike, confidence: ArrayLike, bins: int = 15
) -> float:
    """Expected calibration error: how far confidence and accuracy lie apart.

    ECE = sum over bins b of n_b/N * |accuracy in b - mean confidence in b|, with ``bins`` bins of
    equal width, (lower, upper], over the confidence in the predicted class. NaN if the log is empty
    or some confidence is missing.

    Source: Naeini et al. 2015; Guo et al. 2017, equation 3.

    >>> round(calibration_error([0, 0, 1, 1], [0, 0, 0, 1], [0.9, 0.9, 0.9, 0.9]), 6)
    0.15
    """
    truth, answer, sure = same_length(label=label, prediction=prediction, confidence=confidence)
    sure = sure.astype(np.float64)
    if bins < 1:
        raise StreamgaugeError(f"calibration error wants 1 bin or more, not {bins}.")
    if not len(truth) or np.isnan(sure).any():
        return float("nan")
    if sure.min() < 0 or sure.max() > SURE:
        raise StreamgaugeError(
            "a confidence is the probability given to the predicted class and lies between 0 and "
            "1; apply a softmax to scores first."
        )
    where = np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)
    # n_b * |accuracy - confidence| is |hits - summed confidence|, so no bin can be 0 / 0.
    hits = np.bincount(where, weights=(truth == answer).astype(np.float64), minlength=bins)
    claimed = np.bincount(where, weights=sure, minlength=bins)
    return float(np.abs(hits - claimed).sum() / len(truth))
