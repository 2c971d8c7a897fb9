"""How much does a classifier get that never looks at the input?

The blind classifier of window k answers with the most frequent of the last k labels it knows.
It is the level that a stream's label correlation gives away for free: an online accuracy below
it, or near it, says nothing about learning. Sources: Cai et al. 2021 (CLOC), section on the
blind baseline; Hammoud et al. 2023 (EvalOCL), its sweep over windows and shifts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.counting import BlindCounter, check_shifts, check_step, check_windows, encode


def blind_accuracy(
    labels: ArrayLike,
    windows: ArrayLike,
    shifts: ArrayLike,
    ties: str = "recent",
    step: ArrayLike = 1,
    common: bool = False,
) -> NDArray[np.float64]:
    """Accuracy of the mode of the last k labels, for every window k and shift S.

    With samples y[0..N) and one sample a step, the prediction made at t is the mode m_k[t] of
    y[t−k..t−1], and it is compared with the label S samples later (S = 0 is the next sample):

        A[k, S] = mean over t in [k, N − S) of 1{ m_k[t] = y[t + S] }

    ``step`` = B says that samples are revealed B at a time, and with them their labels: whoever
    predicts sample t knows labels only up to the start b(t) = B·floor(t / B) of its own step. So

        A[k, S] = mean over t with b(t) ≥ k and t < N − S of 1{ m_k[b(t)] = y[t + S] }

    At S = 0 this is the blind learner that answers each step before it sees the step's labels.
    In general the answer for sample j comes from the model that stood ready when sample j − S
    came: the gap between the last known label and j is S rounded up to whole steps, between S
    and S + B − 1 samples. Where steps differ in size, give ``step`` as the step number of every
    sample (never decreasing); b(t) is then the first sample of the step of t.

    Windows are always full; ``math.inf`` as a window is the whole history (the majority so far,
    from the first known label on). With ``common`` every cell is scored on the same target
    samples, those that the longest window can answer at the longest shift; without it each cell
    uses all it can.

    Ties in the count are broken by ``ties``: ``"recent"`` takes the class seen last, ``"smallest"``
    the smallest class, and ``"evalocl"`` follows the published loop, whose answer depends on the
    path: a label that enters becomes the answer if it already is, or if its count reaches that of
    the present answer; otherwise, if the label that left was the answer, the smallest class with
    the largest count becomes it; otherwise nothing changes.

    Returns an array [len(windows), len(shifts)]; NaN where there is nothing to score. Cost is
    linear in N.

    >>> blind_accuracy([0, 0, 0, 1, 1, 1], windows=[1, 3], shifts=[0, 1])
    array([[0.8       , 0.5       ],
           [0.33333333, 0.        ]])
    >>> blind_accuracy([0, 0, 0, 1, 1, 1], windows=[1], shifts=[0], step=2)
    array([[0.75]])
    """
    given_windows = check_windows(windows)
    given_shifts = check_shifts(shifts)
    codes, classes = encode(labels)
    steps, size = check_step(step, codes.size)
    stepped = np.ndim(step) > 0
    empty = np.full((given_windows.size, given_shifts.size), np.nan)
    usable = given_shifts < codes.size
    finite = given_windows[np.isfinite(given_windows)]
    if not usable.any() or given_windows.size == 0:
        return empty
    first_target = 0
    if common:
        longest = int(finite.max()) if finite.size else 1
        begin = _first_with_history(steps, size, codes.size, longest)
        first_target = begin + int(given_shifts.max())
    counter = BlindCounter(
        given_windows,
        given_shifts,
        classes=classes,
        ties=ties,
        step=size,
        block=max(65536, -(-codes.size // 64)),
        first_target=first_target,
    )
    counter.feed(codes, steps if stepped else None)
    counter.finish()
    hits, tries = counter.hits.sum(axis=0), counter.tries.sum(axis=0)
    scored = tries > 0
    empty[scored] = hits[scored] / tries[scored]
    return empty


def _first_with_history(steps: NDArray[np.int64], size: int, length: int, known: int) -> int:
    """First sample whose step begins with at least ``known`` labels known, or ``length``."""
    if steps.size == 0:
        return min(length, -(-known // size) * size)
    edges = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    at = int(np.searchsorted(edges, known))
    return int(edges[at]) if at < edges.size else length


class ReferenceLevels(NamedTuple):
    """What can be had without looking at the input and without recent labels."""

    majority: float
    """Most frequent label so far, known with the same steps and shift."""
    constant: float
    """The best single answer, chosen with hindsight: the largest class frequency."""
    uniform: float
    """Guessing among the C classes that occur: 1/C."""
    squared: float
    """Guessing in proportion to the frequencies: the sum of their squares."""


def reference_levels(labels: ArrayLike, step: ArrayLike = 1, shift: int = 0) -> ReferenceLevels:
    """Levels to read a blind accuracy against; never 1/C alone, which skewed labels make too low.

    ``majority`` is ``blind_accuracy`` with the whole history as its window, at the given step and
    shift; the other three use the frequencies p_c over the whole stream: max p_c, 1/C, sum p_c².

    >>> reference_levels([0, 0, 0, 1])
    ReferenceLevels(majority=0.666..., constant=0.75, uniform=0.5, squared=0.625)
    """
    codes, _ = encode(labels)
    if codes.size == 0:
        return ReferenceLevels(np.nan, np.nan, np.nan, np.nan)
    counts = np.bincount(codes)
    share = counts[counts > 0] / codes.size
    majority = blind_accuracy(codes, [np.inf], [shift], step=step)[0, 0]
    return ReferenceLevels(
        float(majority), float(share.max()), 1 / share.size, float(np.sum(share**2))
    )
