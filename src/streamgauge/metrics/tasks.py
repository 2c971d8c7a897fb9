"""Metrics of a sequence of tasks, from the accuracy matrix.

Throughout, ``a`` is ``[K, K]``: ``a[k, j]`` is the accuracy on task j after training task k, tasks
counted from 0, NaN where it was not measured. ``classes[k]`` is the number of classes seen up to
task k. Results are arrays over k; undefined values, and values that depend on a missing accuracy,
are NaN. All but the two unnormalised metrics are linear in ``a``: percent in, percent out.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats, UndefinedMetric, choice, class_counts, square

Flags = NDArray[np.bool_]
UNTRAINED = "a task was not evaluated before it was trained"


def average_accuracy(a: ArrayLike, definition: str = "last") -> Floats:
    """Mean accuracy over the tasks seen so far.

    definition="last": AA_k = 1/(k+1) * sum over j <= k of a[k, j]. Source: Michel et al. 2023 (New
    metrics for analyzing continual learners), definition 3.1; the survey's Acc is the last entry on
    the test sets.

    definition="continuum": the mean of a[i, j] over all pairs j <= i <= k, so that models of the
    past count, too. Source: `accuracy_A` of the library Continuum (Diaz-Rodriguez et al. 2018).

    >>> average_accuracy([[0.5, np.nan], [0.25, 0.75]])
    array([0.5, 0.5])
    >>> average_accuracy([[0.8, np.nan], [0.25, 0.75]], "continuum").round(6)
    array([0.8, 0.6])
    """
    choice("definition", definition, ("last", "continuum"))
    a = square(a)
    k, j = np.indices(a.shape)
    tasks = np.arange(1, len(a) + 1)
    rows = np.where(j <= k, a, 0.0).sum(axis=1)
    if definition == "last":
        return np.asarray(rows / tasks)
    return np.asarray(np.cumsum(rows) / np.cumsum(tasks))


def forgetting_matrix(a: ArrayLike, reference: str = "max") -> Floats:
    """Drop in accuracy on each earlier task after each task, ``f[k, j]`` for j < k.

    reference="max": f[k, j] = max over l in j..k-1 of a[l, j], minus a[k, j] (Michel et al. 2023,
    definition 3.2). reference="first": f[k, j] = a[j, j] - a[k, j], relative to the accuracy right
    after training the task (Soutif-Cormerais et al. 2023, section 4). Negative where the accuracy
    on a task improved later. NaN for j >= k.

    >>> forgetting_matrix([[0.5, np.nan], [0.25, 0.25]])
    array([[ nan,  nan],
           [0.25,  nan]])
    """
    return _forgetting(square(a), reference, with_current=False)


def _forgetting(a: Floats, reference: str, with_current: bool) -> Floats:
    """Reference accuracy minus a[k, j], for j < k; ``with_current``: a[k, j] may be the maximum."""
    choice("reference", reference, ("max", "first"))
    k, j = np.indices(a.shape)
    if reference == "first":
        reference_accuracy = np.broadcast_to(np.diag(a), a.shape)
    else:
        # Accuracies before task j was trained do not count as a maximum.
        reference_accuracy = np.maximum.accumulate(np.where(k >= j, a, -np.inf), axis=0)
        if not with_current:
            reference_accuracy = np.roll(reference_accuracy, 1, axis=0)
    return np.where(j < k, reference_accuracy - a, np.nan)


def average_forgetting(a: ArrayLike, reference: str = "max", over: str = "previous") -> Floats:
    """Mean forgetting of the previous tasks.

    AF_k = 1/n * sum over j < k of f[k, j], with f as in :func:`forgetting_matrix` and n the number
    of previous tasks, k (over="previous"; Michel et al. 2023, definition 3.2), or of all tasks so
    far, k + 1 (over="all"; the survey's 1/k with a zero term for the current task). NaN at k = 0.

    >>> average_forgetting([[0.5, np.nan], [0.25, 0.25]])
    array([ nan, 0.25])
    >>> average_forgetting([[0.5, np.nan], [0.25, 0.25]], over="all")
    array([  nan, 0.125])
    """
    choice("over", over, ("previous", "all"))
    return _mean_of_earlier(forgetting_matrix(a, reference), extra=int(over == "all"))


def _mean_of_earlier(values: Floats, extra: int = 0) -> Floats:
    """Per row k, the sum of values[k, :k] divided by k + extra; NaN in the first row."""
    k, j = np.indices(values.shape)
    result = np.full(len(values), np.nan)
    rows = np.arange(1, len(values))
    result[1:] = np.where(j < k, values, 0.0).sum(axis=1)[1:] / (rows + extra)
    return result


def random_forgetting(classes: ArrayLike) -> Floats:
    """The average forgetting of a classifier that guesses uniformly among the classes seen so far.

    R_k = 1/k * sum over j < k of (1/C_j - 1/C_k). Positive without any learning, because guessing
    gets harder with more classes; NaN at k = 0.

    Source: Michel et al. 2023, lemma A.2.1 (written there for equal tasks).

    >>> random_forgetting([2, 4, 6]).round(4)
    array([   nan, 0.25  , 0.2083])
    """
    counts = np.asarray(classes, dtype=np.float64)
    chance = 1.0 / class_counts(counts, counts.size)
    # Differences first: equal counts must give exactly 0, since the result is a divisor.
    return _mean_of_earlier(chance[None, :] - chance[:, None])


def unnormalised_rescaled_accuracy(a: ArrayLike, classes: ArrayLike) -> Floats:
    """Average accuracy as a multiple of the accuracy of guessing: uRAA_k = C_k * AA_k.

    Source: Michel et al. 2023, definition 4.1, with AA_k of a random classifier = 1/C_k. Needs
    accuracies as fractions.

    >>> unnormalised_rescaled_accuracy([[0.5, np.nan], [0.25, 0.75]], [2, 4])
    array([1., 2.])
    """
    average = average_accuracy(a)
    return class_counts(classes, len(average)) * average


def rescaled_accuracy(a: ArrayLike, classes: ArrayLike) -> Floats:
    """Average accuracy corrected for the growing number of classes.

    RAA_k = C_k / C_K * AA_k: the multiple of chance, divided by the largest multiple that any
    classifier can have at any k, which is C_K (a perfect classifier at the end). Constant for a
    random classifier; equal to AA at the last task. It depends on the final number of classes, so
    curves of streams with different numbers of tasks are not comparable.

    Source: Michel et al. 2023, definition 4.2 and proposition 4.3; any class counts.

    >>> rescaled_accuracy([[0.5, np.nan], [0.25, 0.25]], [2, 4])
    array([0.25, 0.25])
    """
    average = average_accuracy(a)
    counts = class_counts(classes, len(average))
    return counts / counts[-1:] * average


def unnormalised_rescaled_forgetting(a: ArrayLike, classes: ArrayLike) -> Floats:
    """Average forgetting as a multiple of a random classifier's: uRAF_k = AF_k / R_k.

    R is :func:`random_forgetting`. NaN at k = 0, and until a task adds a new class (R_k = 0).
    Needs accuracies as fractions.

    Source: Michel et al. 2023, definition 4.1.

    >>> unnormalised_rescaled_forgetting([[0.9, np.nan], [0.4, 0.9]], [2, 4])
    array([nan,  2.])
    """
    forgetting = average_forgetting(a)
    return forgetting / _positive(random_forgetting(class_counts(classes, len(forgetting))))


def rescaled_forgetting(a: ArrayLike, classes: ArrayLike) -> Floats:
    """Average forgetting corrected for the growing number of classes.

    RAF_k = AF_k * min over m >= 1 of R_m / R_k (tasks from 0), R as in :func:`random_forgetting`.
    uRAF divided by the largest uRAF that any classifier can have at any k: that of a classifier
    that forgets everything, at the m with the smallest R. For equal tasks m is the last, and

        RAF_k = (H_K - 1) (k - 1) / ((H_k - 1) (K - 1)) * AF_k      (tasks from 1, H harmonic),

    so RAF_K = AF_K. With unequal tasks any m may have the smallest R, and the last RAF need not
    equal the last AF. Constant for a random classifier.

    Source: Michel et al. 2023, definition 4.2 and proposition 4.4.

    >>> guesses = [[1 / 2, 0, 0], [1 / 4, 1 / 4, 0], [1 / 6, 1 / 6, 1 / 6]]
    >>> rescaled_forgetting(guesses, [2, 4, 6]).round(6)
    array([     nan, 0.208333, 0.208333])
    """
    forgetting = average_forgetting(a)
    chance = _positive(random_forgetting(class_counts(classes, len(forgetting))))
    smallest = np.nanmin(chance) if np.isfinite(chance).any() else np.nan
    return np.asarray(forgetting * (smallest / chance))


def _positive(values: Floats) -> Floats:
    return np.where(values > 0, values, np.nan)


def backward_transfer(a: ArrayLike, definition: str = "gem") -> Floats:
    """Average effect of later training on earlier tasks; negative values are forgetting.

    definition="gem": BWT_k = 1/k * sum over j < k of (a[k, j] - a[j, j]), the model after task k
    alone; the negative of ``average_forgetting(a, reference="first")``. Source: Lopez-Paz and
    Ranzato 2017 (GEM), equation 3; their number is the last entry.

    definition="capymoa": the mean of a[i, j] - a[j, j] over all pairs j < i <= k, so that models
    in between count, too. Source: the libraries CapyMOA and Continuum, after Diaz-Rodriguez et al.
    2018.

    NaN at k = 0, where Continuum returns 0.

    >>> backward_transfer([[0.5, np.nan], [0.25, 0.25]])
    array([  nan, -0.25])
    >>> a = [[0.9, 0.0, 0.0], [0.6, 0.8, 0.0], [0.6, 0.8, 0.9]]
    >>> backward_transfer(a).round(6), backward_transfer(a, "capymoa").round(6)
    (array([  nan, -0.3 , -0.15]), array([ nan, -0.3, -0.2]))
    """
    choice("definition", definition, ("gem", "capymoa"))
    forgetting = forgetting_matrix(a, "first")
    if definition == "gem":
        return -_mean_of_earlier(forgetting)
    return -_mean_of_pairs(forgetting, np.tril(np.ones(forgetting.shape, bool), -1))


def _mean_of_pairs(values: Floats, counted: Flags) -> Floats:
    """Per k, the mean of the values that count among the tasks up to k; NaN at k = 0."""
    total = np.cumsum(np.cumsum(np.where(counted, values, 0.0), axis=0), axis=1)
    result = np.full(len(values), np.nan)
    tasks = np.arange(1, len(values))
    result[1:] = np.diag(total)[1:] / (tasks * (tasks + 1) / 2)
    return result


def forward_transfer(
    a: ArrayLike, baseline: ArrayLike | None = None, definition: str = "gem"
) -> Floats:
    """Average effect of training on earlier tasks on the accuracy of a task not yet trained.

    definition="gem": FWT_k = 1/k * sum over 1 <= i <= k of (a[i-1, i] - baseline[i]);
    ``baseline[i]`` is the accuracy of the untrained model on task i. A missing baseline is not
    replaced by 0; pass zeros for that. Source: Lopez-Paz and Ranzato 2017 (GEM), equation 4.

    definition="continuum": the same without a baseline, so an accuracy and no difference. Source:
    the library Continuum.

    definition="capymoa": the mean of a[i, j] over all pairs i < j <= k, without a baseline. Source:
    the library CapyMOA, after Diaz-Rodriguez et al. 2018.

    NaN at k = 0. If the baseline or an accuracy on an unseen task is missing, the result is NaN and
    a warning (:class:`UndefinedMetric`) says which.

    >>> forward_transfer([[0.5, 0.3], [0.25, 0.75]], baseline=[0.1, 0.1])
    array([nan, 0.2])
    >>> a = [[0.5, 0.3, 0.0], [0.25, 0.75, 0.6], [0.0, 0.0, 0.9]]
    >>> forward_transfer(a, definition="continuum"), forward_transfer(a, definition="capymoa")
    (array([ nan, 0.3 , 0.45]), array([nan, 0.3, 0.3]))
    """
    choice("definition", definition, ("gem", "capymoa", "continuum"))
    a = square(a)
    transfer = np.full(len(a), np.nan)
    if definition == "capymoa":
        pairs = np.triu(np.ones(a.shape, bool), 1)
        transfer = _mean_of_pairs(a, pairs)
        missing = bool(np.isnan(a[pairs]).any())
        return _undefined(transfer, UNTRAINED) if missing else transfer
    if definition == "continuum":
        baseline = np.zeros(len(a))
    if baseline is None:
        return _undefined(transfer, "there is no baseline, the accuracy of the untrained model")
    baseline_accuracy = np.asarray(baseline, dtype=np.float64)
    if baseline_accuracy.shape != (len(a),):
        raise StreamgaugeError(
            f"baseline must hold the untrained model's accuracy on each of the {len(a)} tasks, but "
            f"its shape is {baseline_accuracy.shape}."
        )
    gain = np.diag(a, k=1) - baseline_accuracy[1:]
    transfer[1:] = np.cumsum(gain) / np.arange(1, len(a))
    if np.isnan(np.diag(a, k=1)).any():
        return _undefined(transfer, UNTRAINED)
    if np.isnan(baseline_accuracy[1:]).any():
        return _undefined(transfer, "the baseline of a task is missing")
    return transfer


def _undefined(values: Floats, reason: str) -> Floats:
    warnings.warn(f"forward transfer is NaN: {reason}.", UndefinedMetric, stacklevel=3)
    return values


def task_curves(
    a: ArrayLike, classes: ArrayLike | None = None, baseline: ArrayLike | None = None
) -> dict[str, Floats]:
    """Every metric above that `score` reports, by its name; rescaled ones only with ``classes``.

    >>> list(task_curves([[0.5, 0.1], [0.25, 0.25]], baseline=[0.1, 0.1]))[:2]
    ['average_accuracy', 'average_forgetting']
    """
    curves = {
        "average_accuracy": average_accuracy(a),
        "average_forgetting": average_forgetting(a),
        "average_forgetting_first": average_forgetting(a, "first", "all"),
        "average_accuracy_continuum": average_accuracy(a, "continuum"),
        "backward_transfer": backward_transfer(a),
        "backward_transfer_capymoa": backward_transfer(a, "capymoa"),
        "forward_transfer": forward_transfer(a, baseline),
        "forward_transfer_capymoa": forward_transfer(a, None, "capymoa"),
        "forward_transfer_continuum": forward_transfer(a, None, "continuum"),
    }
    if classes is not None:
        curves["rescaled_accuracy"] = rescaled_accuracy(a, classes)
        curves["rescaled_forgetting"] = rescaled_forgetting(a, classes)
    return curves


def cumulative_accuracy(scores: ArrayLike, labels: ArrayLike, class_task: ArrayLike) -> Floats:
    """Accuracy on the data, and among the classes, of the first k tasks.

    ``scores[t, n, c]`` is the score of class c for sample n after training task t, ``labels[n]``
    the true class and ``class_task[c]`` the task that added class c (-1: none). The result is

        b[t, k] = mean over samples n of tasks <= k of
                  [ argmax over classes c of tasks <= k of scores[t, n, c]  =  labels[n] ],

    NaN for t < k and where tasks up to k have no sample. Equal scores go to the smaller class. For
    fixed k the number of classes does not change with t, unlike in plain accuracy.

    Source: Soutif-Cormerais et al. 2023 (A Comprehensive Empirical Evaluation on OCL), equation 4.

    >>> after_first = [[0.9, 0.1, 0.0], [0.3, 0.7, 0.0]]
    >>> after_second = [[0.3, 0.1, 0.6], [0.2, 0.4, 0.4]]
    >>> cumulative_accuracy([after_first, after_second], labels=[0, 2], class_task=[0, 0, 1])
    array([[ 1., nan],
           [ 1.,  0.]])
    """
    values, label = np.asarray(scores), np.asarray(labels)
    task_of_class = np.asarray(class_task, dtype=np.int64)
    if (
        values.ndim != 3
        or label.shape != values.shape[1:2]
        or task_of_class.shape != values.shape[2:]
    ):
        raise StreamgaugeError(
            "cumulative accuracy needs scores [tasks, samples, classes], labels [samples] and "
            f"class_task [classes], but got {values.shape}, {label.shape} and "
            f"{task_of_class.shape}."
        )
    if label.size and (label.min() < 0 or label.max() >= len(task_of_class)):
        raise StreamgaugeError(
            f"a label is outside the {len(task_of_class)} classes of scores and class_task."
        )
    tasks = int(task_of_class.max(initial=-1)) + 1
    sample_task = task_of_class[label]
    result = np.full((len(values), tasks), np.nan)
    for t, task_scores in enumerate(values):
        # Classes are added task by task, so the best class so far is updated, not searched again.
        best = np.full(len(label), -1, dtype=np.int64)
        best_score = np.full(len(label), -np.inf)
        for k in range(min(t + 1, tasks)):
            added = np.flatnonzero(task_of_class == k)
            if added.size:
                added_scores = task_scores[:, added]
                candidate = added_scores.argmax(axis=1)
                score = added_scores[np.arange(len(label)), candidate]
                candidate = added[candidate]
                replace = (
                    (score > best_score) | ((score == best_score) & (candidate < best)) | (best < 0)
                )
                best, best_score = (
                    np.where(replace, candidate, best),
                    np.where(replace, score, best_score),
                )
            included = (sample_task >= 0) & (sample_task <= k)
            if included.any():
                result[t, k] = np.mean(best[included] == label[included])
    return result


def cumulative_forgetting(b: ArrayLike, reference: str = "max") -> Floats:
    """Forgetting measured at a fixed number of classes.

    F_t = 1/t * sum over k < t of (ref - b[t, k]), with b from :func:`cumulative_accuracy`.
    reference="max": ref = max over i in k..t of b[i, k], including t, so F >= 0 (the survey's
    formula). reference="first": ref = b[k, k], so F < 0 means backward transfer (plotted in the
    survey's Figure 3). NaN at t = 0.

    Source: Soutif-Cormerais et al. 2023, section 4.

    >>> cumulative_forgetting([[0.8, np.nan], [0.9, 0.5]])
    array([nan,  0.])
    >>> cumulative_forgetting([[0.8, np.nan], [0.9, 0.5]], reference="first").round(6)
    array([ nan, -0.1])
    """
    return _mean_of_earlier(_forgetting(square(b), reference, with_current=True))
