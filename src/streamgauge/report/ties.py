"""Learners of a board that cannot be told apart from its best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamgauge.metrics import leaderboard
from streamgauge.metrics.compare import BLOCKS, compare
from streamgauge.record import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamgauge.report.leaderboard import Row

NEAR_FUTURE = "near_future_accuracy@"
LEVEL = 0.05
NAMED = 3  # learners that a sentence names; more are counted


class Ties(NamedTuple):
    names: frozenset[str] = frozenset()  # the best among them; empty where nothing is tied
    sentence: str = ""


NO_TIES = Ties()


def ties(rows: Sequence[Row], order: str, title: str) -> Ties:
    """Compare all pairs of rows by the score that orders them, on the seeds that all of them have
    and the samples that all of them answered (`metrics.compare`, corrected by Holm)."""
    scored = [row for row in rows if row.runs and not math.isnan(_mean(row, order))]
    if len(scored) < 2:
        return NO_TIES
    by_pair = {
        row.learner: {_pair(run): (run, of) for run, of in zip(row.runs, row.each, strict=True)}
        for row in scored
    }
    shared = sorted(set.intersection(*(set(of) for of in by_pair.values())))
    if not shared:
        return Ties(sentence="The learners share no seed, so they cannot be compared pair by pair.")
    each = {name: [of[pair] for pair in shared] for name, of in by_pair.items()}
    shift = _shift(order)
    if shift is None and len(shared) == 1:
        return Ties(sentence=f"By {title} one seed cannot tell which learners differ.")
    results: dict[str, Any]
    if shift is None:
        results, blocks = {n: [of[order] for _, of in runs] for n, runs in each.items()}, 1
    else:
        results, blocks = _stretches(
            {n: [run for run, _ in runs] for n, runs in each.items()}, shift
        )
    if not results:
        return Ties(
            sentence="The learners answered no samples in common, so they are not compared."
        )
    board = leaderboard(results, blocks, LEVEL)
    best = max(scored, key=lambda row: _mean(row, order)).learner
    tied = next(line.tied_with for line in board if line.name == best)
    seeds = f"{len(shared)} seed{'s' if len(shared) > 1 else ''}"
    over = seeds if shift is None else f"{seeds} and {blocks} stretches of the stream"
    method = f"by {title}, paired over {over}, all pairs, Holm's correction, 5 %"
    if len(shared) == 1:
        method += "; other seeds may differ"
    if not tied:
        return Ties(sentence=f"{best} differs from every other learner ({method}).")
    # Where two seeds differ more than stretches, the test has one degree of freedom: even 27 points
    # may not be significant then, and a mark that reads as "equal" would mislead.
    unknown = {name for name in tied if _undecided(results[best], results[name], blocks)}
    marked = [name for name in tied if name not in unknown]
    sentences = [f"= cannot be told apart from the best ({method})."] if marked else []
    if unknown:
        names = [row.learner for row in scored if row.learner in unknown]
        others = names if len(names) <= NAMED else [f"{len(names)} of the {len(scored) - 1} others"]
        why = "two seeds are too few" if len(shared) == 2 else "this is too little"
        beginning = f"Whether {best} differs from {', '.join(others)} is not known"
        sentences.append(
            f"{beginning}: {why}{'' if marked else f' ({method})'}; run three or more."
        )
    return Ties(frozenset({best, *marked} if marked else ()), " ".join(sentences))


def _undecided(best: Any, other: Any, blocks: int) -> bool:
    """Whether a difference is tested with fewer than two degrees of freedom."""
    comparison = compare(best, other, blocks)
    return comparison.freedom < 2 and abs(comparison.difference) > 1e-13


def _mean(row: Row, order: str) -> float:
    return float(row.scores[order].mean) if order in row.scores else math.nan


def _pair(run: Run) -> tuple[Any, ...]:
    return run.seed, run.stream["data_hash"], run.stream["order_hash"]


def _shift(order: str) -> int | None:
    """Samples ahead, for scores that are a mean over samples of the stream."""
    if order == "online_accuracy":
        return 0
    return int(order.removeprefix(NEAR_FUTURE)) if order.startswith(NEAR_FUTURE) else None


def _stretches(
    each: dict[str, list[Run]], shift: int
) -> tuple[dict[str, list[NDArray[np.float64]]], int]:
    """Accuracies on equal stretches of the stream, of steps that every learner answered."""
    hits = {name: [_steps(Run(run.path), shift) for run in runs] for name, runs in each.items()}
    seeds = range(len(next(iter(hits.values()))))
    common = []
    for seed in seeds:
        length = min(counts[seed][1].size for counts in hits.values())
        common.append(np.logical_and.reduce([h[seed][1][:length] > 0 for h in hits.values()]))
    blocks = min(BLOCKS, *(int(keep.sum()) for keep in common))
    if blocks == 0:
        return {}, 0
    shares: dict[str, list[NDArray[np.float64]]] = {}
    for name, of_seed in hits.items():
        shares[name] = []
        for keep, (right, count) in zip(common, of_seed, strict=True):
            right, count = right[: len(keep)][keep], count[: len(keep)][keep]
            stretch = np.arange(len(count)) * blocks // len(count)
            share = np.bincount(stretch, right) / np.bincount(stretch, count)
            shares[name].append(share)
    return shares, blocks


def _steps(run: Run, shift: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many samples of each step were answered right, and how many were answered."""
    table = run.predictions
    rows = np.flatnonzero(table["shift"] == shift)
    step = table["step"][rows]
    correct = (table["label"][rows] == table["prediction"][rows]).astype(np.float64)
    return np.bincount(step, correct).astype(np.float64), np.bincount(step).astype(np.float64)
