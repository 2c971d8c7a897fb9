"""Accuracy of blind classifiers, which ignore the input.

The blind classifier of window k predicts the most frequent of the last k known labels. Its accuracy
comes from label correlation alone: an online accuracy near or below it is no evidence of learning.
Sources: Cai et al. 2021 (CLOC), section on the blind baseline; Hammoud et al. 2023 (EvalOCL), its
sweep over windows and shifts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import (
    check_windows,
    count_labels,
)
from streamgauge.history.known import check_shifts, check_step, encode, step_starts


def blind_accuracy(
    labels: ArrayLike,
    windows: ArrayLike,
    shifts: ArrayLike,
    ties: str = "recent",
    step: ArrayLike = 1,
    common: bool = False,
) -> NDArray[np.float64]:
    """Accuracy of the mode of the last k labels, for every window k and shift S.

    With samples y[0..N) and one sample per step, the prediction made at t is the mode m_k[t] of
    y[t−k..t−1], and it is compared with the label S samples later (S = 0 is the next sample):

        A[k, S] = mean over t in [k, N − S) of 1{ m_k[t] = y[t + S] }

    ``step`` = B means that samples and their labels are revealed B at a time: the prediction of
    sample t uses labels only up to the start b(t) = B·floor(t / B) of its own step. So

        A[k, S] = mean over t with b(t) ≥ k and t < N − S of 1{ m_k[b(t)] = y[t + S] }

    At S = 0 this is the blind learner that predicts each step before it sees the step's labels.
    In general sample j is predicted by the model available when sample j − S arrived: between the
    last known label and j are S to S + B − 1 samples. If steps differ in size, give ``step`` as the
    step number of every sample (never decreasing); b(t) is then the first sample of the step of t.

    Windows are always full; the window ``math.inf`` is the whole history (the majority so far,
    from the first known label on). With ``common`` every cell is scored on the same target
    samples, those that the longest window can predict at the longest shift; otherwise each cell is
    scored on all samples it can predict.

    Ties in the count are broken by ``ties``: ``"recent"`` takes the class seen last, ``"smallest"``
    the smallest class, and ``"evalocl"`` follows the published loop, whose prediction depends on
    its history: a label that enters the window becomes the prediction if its count reaches that of
    the current prediction; otherwise, if the label that left was the prediction, the smallest class
    with the largest count becomes it; otherwise the prediction stays.

    Returns an array [len(windows), len(shifts)]; NaN where no sample can be scored. Cost
    is linear in N.

    >>> blind_accuracy([0, 0, 0, 1, 1, 1], windows=[1, 3], shifts=[0, 1])
    array([[0.8       , 0.5       ],
           [0.33333333, 0.        ]])
    >>> blind_accuracy([0, 0, 0, 1, 1, 1], windows=[1], shifts=[0], step=2)
    array([[0.75]])
    """
    window_lengths = check_windows(windows)
    shift_lengths = check_shifts(shifts)
    codes, classes = encode(labels)
    accuracy = np.full((window_lengths.size, shift_lengths.size), np.nan)
    if window_lengths.size == 0 or not (shift_lengths < codes.size).any():
        check_step(step, codes.size)
        return accuracy
    first_target = 0
    if common:
        longest = int(window_lengths[np.isfinite(window_lengths)].max(initial=1))
        # The first sample whose step begins with the longest window known.
        first_prediction = int(np.searchsorted(step_starts(step, codes.size), longest))
        first_target = first_prediction + int(shift_lengths.max())
    counts = count_labels(
        codes,
        classes,
        window_lengths,
        shift_lengths,
        step,
        ties,
        block=max(65536, -(-codes.size // 64)),
        first_target=first_target,
    )
    hits, tries = counts.hits.sum(axis=0), counts.tries.sum(axis=0)
    scored = tries > 0
    accuracy[scored] = hits[scored] / tries[scored]
    return accuracy


class ReferenceLevels(NamedTuple):
    """Accuracies of predictors that use neither the input nor recent labels."""

    majority: float
    """Most frequent label so far, with the same steps and shift."""
    constant: float
    """The best constant prediction, chosen in hindsight: the largest class frequency."""
    uniform: float
    """Uniform guessing among the C classes that occur: 1/C."""
    squared: float
    """Guessing in proportion to the class frequencies: the sum of their squares."""


def reference_levels(labels: ArrayLike, step: ArrayLike = 1, shift: int = 0) -> ReferenceLevels:
    """Reference levels for a blind accuracy; 1/C alone is too low for skewed labels.

    ``majority`` is ``blind_accuracy`` with the whole history as its window, at the given step and
    shift; the other three use the frequencies p_c over the whole stream: max p_c, 1/C, sum p_c².

    >>> reference_levels([0, 0, 0, 1])
    ReferenceLevels(majority=0.666..., constant=0.75, uniform=0.5, squared=0.625)
    """
    codes, _ = encode(labels)
    if codes.size == 0:
        return ReferenceLevels(np.nan, np.nan, np.nan, np.nan)
    majority = blind_accuracy(codes, [np.inf], [shift], step=step)[0, 0]
    return levels_from_counts(float(majority), np.bincount(codes))


def levels_from_counts(majority: float, counts: NDArray[np.int64]) -> ReferenceLevels:
    """Reference levels from the number of samples per class."""
    share = counts[counts > 0] / counts.sum()
    return ReferenceLevels(majority, float(share.max()), 1 / share.size, float(np.sum(share**2)))
