"""Metrics that other streaming and learning libraries report: kappas, macro F1, log loss.

The references of ``kappa_t`` and ``kappa_m`` know what the model knew: ``known`` (see
``history.known_labels``) says which labels had arrived when each sample was answered. By default
these are all earlier ones. Samples are in stream order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.history.kappas import Kappas, kappas
from streamgauge.history.known import Known
from streamgauge.metrics._arrays import Integers, divide, same_length

MAX_LOGP = 1e-6  # a log-softmax in float32 may round to slightly more than 0


def kappa(label: ArrayLike, prediction: ArrayLike) -> float:
    """Cohen's kappa: accuracy above the agreement that is expected by chance.

    kappa = (a - e) / (1 - e), a the accuracy and e = sum over classes c of (share of labels that
    are c) * (share of predictions that are c). NaN where all labels and predictions are equal.

    Source: Cohen 1960.

    >>> kappa([0, 0, 1, 1], [0, 0, 1, 0])
    0.5
    """
    return all_kappas(label, prediction).kappa


def kappa_t(label: ArrayLike, prediction: ArrayLike, known: Known | None = None) -> float:
    """Temporal kappa: accuracy above that of repeating the last label that was known.

    kappa_t = (a - e) / (1 - e), e the share of samples whose label is the newest label known when
    they were answered; a sample before any label was known counts as wrong. Below 0 for a model
    that is worse than "no change". NaN where the last label is always right.

    Source: Bifet et al. 2013; Zliobaite et al. 2015 (kappa_per).

    >>> kappa_t([0, 0, 1, 1], [0, 0, 1, 0])
    0.5
    """
    return all_kappas(label, prediction, known).kappa_t


def kappa_m(label: ArrayLike, prediction: ArrayLike, known: Known | None = None) -> float:
    """Accuracy above that of the majority class so far.

    kappa_m = (a - e) / (1 - e), e the share of samples whose label is the most frequent one among
    the labels known when they were answered (among equals the one that reached this count last); a
    sample before any label was known counts as wrong. NaN where the majority is always right.

    Source: Bifet et al. 2015.

    >>> round(kappa_m([0, 0, 1, 1], [0, 0, 1, 0]), 3)
    0.667
    """
    return all_kappas(label, prediction, known).kappa_m


def kappa_combined(label: ArrayLike, prediction: ArrayLike, known: Known | None = None) -> float:
    """The geometric mean of kappa and kappa_t, 0 where one of them is negative.

    kappa_combined = sqrt(max(0, kappa) * max(0, kappa_t)). NaN where one of them is NaN.

    Source: Zliobaite et al. 2015, kappa plus.

    >>> kappa_combined([0, 0, 1, 1], [0, 0, 1, 0])
    0.5
    """
    return all_kappas(label, prediction, known).kappa_combined


def all_kappas(label: ArrayLike, prediction: ArrayLike, known: Known | None = None) -> Kappas:
    """The four kappas at once, with the accuracies of their references."""
    return kappas(*_codes(label, prediction), known)


def macro_f1(label: ArrayLike, prediction: ArrayLike) -> float:
    """Unweighted mean of the F1 scores of the classes that occur as a label or as a prediction.

    F1[c] = 2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall of class c.

    Source: van Rijsbergen 1979; the mean of F1 scores as in scikit-learn (``average="macro"``).

    >>> round(macro_f1([0, 0, 0, 2], [0, 0, 0, 1]), 3)
    0.333
    """
    labels, predictions = _codes(label, prediction)
    number = int(max(labels.max(initial=-1), predictions.max(initial=-1))) + 1
    hits = np.bincount(labels[labels == predictions], minlength=number)
    occurrences = np.bincount(np.concatenate([labels, predictions]), minlength=number)
    f1 = divide(2 * hits, occurrences)
    return float(np.nanmean(f1)) if len(labels) else float("nan")


def log_loss(logp: ArrayLike) -> float:
    """Mean negative log-probability of the true labels, in nats (divide by ln 2 for bits).

    loss = -1/N * sum over n of ln p_n(label[n]). Infinite if a true label had probability 0; NaN if
    a value is missing.

    >>> log_loss(np.log([0.5, 0.5]))  # ln 2
    0.6931471805599453
    """
    (values,) = same_length(logp=logp)
    values = values.astype(np.float64)
    if np.any(values > MAX_LOGP):
        raise StreamgaugeError(
            "logp is the natural logarithm of the probability of the true label, so 0 or less; "
            "apply a log-softmax to scores first."
        )
    return float(-values.mean()) if len(values) else float("nan")


def auc(positive: ArrayLike, score: ArrayLike) -> float:
    """Area under the ROC curve of two classes.

    The probability that the score of a random positive sample is larger than that of a random
    negative one, ties counting one half. NaN if a class has no sample, or a score is missing.

    For two classes, ``score`` is ``confidence`` where the positive class is predicted and
    1 - ``confidence`` elsewhere. More classes would need the scores of all classes, which a log
    does not hold.

    Source: Hanley and McNeil 1982 (the Mann-Whitney statistic).

    >>> auc([False, False, True, True], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    flags, scores = same_length(positive=positive, score=score)
    flags, scores = flags.astype(bool), scores.astype(np.float64)
    first, last = int(flags.sum()), int((~flags).sum())
    if not first or not last or np.isnan(scores).any():
        return float("nan")
    _, inverse, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[inverse]  # the mean rank of equal scores, from 1
    return float((rank[flags].sum() - first * (first + 1) / 2) / (first * last))


def _codes(label: ArrayLike, prediction: ArrayLike) -> tuple[Integers, Integers]:
    """Classes as codes from 0. Small integers are their own codes."""
    labels, predictions = same_length(label=label, prediction=prediction)
    if labels.dtype.kind in "iu" and predictions.dtype.kind in "iu":
        smallest = min(labels.min(initial=0), predictions.min(initial=0))
        largest = max(labels.max(initial=0), predictions.max(initial=0))
        if smallest >= 0 and largest <= 8 * len(labels) + 1024:
            return labels.astype(np.int64), predictions.astype(np.int64)
    codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)[1]
    return codes[: len(labels)], codes[len(labels) :]
