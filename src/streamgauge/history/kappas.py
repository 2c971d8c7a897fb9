"""The kappa statistics: how far an accuracy is above that of a reference that sees no input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.history.known import Known

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Kappas:
    """The accuracy of the predictions and of three references on the same samples. Each kappa is
    (accuracy - reference) / (1 - reference), NaN where the reference is always right."""

    accuracy: float
    chance: float  # expected agreement of independent answers with the same frequencies
    last: float  # of the last label that was known
    majority: float  # of the most frequent label that was known

    @property
    def kappa(self) -> float:
        return _above(self.accuracy, self.chance)

    @property
    def kappa_t(self) -> float:
        return _above(self.accuracy, self.last)

    @property
    def kappa_m(self) -> float:
        return _above(self.accuracy, self.majority)

    @property
    def kappa_combined(self) -> float:
        product = np.maximum(self.kappa, 0.0) * np.maximum(self.kappa_t, 0.0)
        return math.sqrt(product)  # np.maximum keeps NaN


def kappas(labels: NDArray[Any], predictions: NDArray[Any], known: Known | None = None) -> Kappas:
    """Labels and predictions are equally long arrays of class codes from 0, in stream order; a
    prediction of -1 is no answer. `known` says which labels were known at each answer (default:
    all earlier ones). A reference that knows no label yet counts as wrong.

    >>> scores = kappas(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    >>> scores.kappa, scores.kappa_t, round(scores.kappa_m, 3)
    (0.5, 0.5, 0.667)
    """
    count = len(labels)
    if not count:
        return Kappas(*[math.nan] * 4)
    number = int(max(labels.max(), predictions.max())) + 1
    answered = np.bincount(predictions[predictions >= 0], minlength=number)
    pairs = int(np.bincount(labels, minlength=number) @ answered)  # that agree, of all count²
    arrived = labels if known is None or known.order is None else labels[known.order]
    newest = (np.arange(count) if known is None else np.asarray(known.known)) - 1
    some = newest >= 0
    newest, wanted = newest[some], labels[some]
    hits = (labels == predictions, arrived[newest] == wanted, majorities(arrived)[newest] == wanted)
    right, last, majority = (float(np.count_nonzero(hit)) / count for hit in hits)
    return Kappas(right, pairs / count**2, last, majority)


def majorities(labels: NDArray[Any]) -> NDArray[Any]:
    """The most frequent label among the first 1, 2, ... labels; among equals the one that reached
    this count last.

    >>> majorities(np.array([3, 1, 1, 3, 2]))
    array([3, 1, 1, 3, 3])
    """
    # NumPy sorts 16-bit integers in linear time.
    codes = labels if labels.max(initial=0) >= 1 << 16 else labels.astype(np.uint16)
    order = np.argsort(codes, kind="stable")
    in_order = labels[order]
    first = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
    size = np.diff(first, append=len(labels))
    counts = np.empty(len(labels), np.int64)  # of each label's class, up to it
    counts[order] = np.arange(len(labels)) - np.repeat(first, size)
    leads = counts == np.maximum.accumulate(counts)
    return np.asarray(labels[np.maximum.accumulate(np.where(leads, np.arange(len(labels)), 0))])


def _above(accuracy: float, reference: float) -> float:
    return math.nan if reference >= 1 else (accuracy - reference) / (1 - reference)
