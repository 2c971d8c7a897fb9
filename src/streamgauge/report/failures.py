"""Where learners fail: accuracy per class over the stream, confusions, and reliability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.pages.figures import Figure, figure, heat, level, line
from streamgauge.record import Run
from streamgauge.report.leaderboard import Row

LEARNERS = 8  # with figures of their own: as many as there are colours
CLASSES = 20  # rows of the figure: the classes with the most samples
STRETCHES = 40  # of the stream
CONFUSED = 10  # pairs of classes in the table
LEVELS = 10  # of confidence
FEWEST = 30  # answers that a point of the reliability is made of


@dataclass(frozen=True)
class ByClass:
    """Where one learner fails."""

    learner: str
    classes: Figure
    confusions: list[list[str]]  # label, answer, times, share


@dataclass(frozen=True)
class FailureFigures:
    """Of learners that look at inputs, the best first: accuracy per class and confusions; of all
    learners: the reliability."""

    learners: list[ByClass] = field(default_factory=list)
    left_out: int = 0  # learners that are not shown
    reliability: Figure | None = None


def online_answers(run: Run) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels and predictions of the samples that were answered before they were learnt."""
    table = run.predictions
    rows = online_rows(run)
    return table["label"][rows], table["prediction"][rows]


def online_rows(run: Run) -> NDArray[Any]:
    table = run.predictions
    rows = np.flatnonzero(table["shift"] == 0)
    return np.asarray(rows[np.argsort(table["step"][rows], kind="stable")])


def failures(rows: Sequence[Row]) -> FailureFigures:
    """Accuracy by class, confusions and reliability, from the online answers of these rows."""
    seeing = [row for row in rows if row.sees_input] or list(rows[:1])
    by_class = [_by_class(row) for row in seeing[:LEARNERS]]
    return FailureFigures(
        [each for each in by_class if each is not None],
        max(0, len(seeing) - LEARNERS),
        _reliability(rows),
    )


def _by_class(row: Row) -> ByClass | None:
    answers = [online_answers(Run(run.path)) for run in row.runs]
    answers = [(label, answer) for label, answer in answers if len(label)]
    if not answers:
        return None
    classes = int(max(max(label.max(), answer.max()) for label, answer in answers)) + 1
    given = row.runs[0].stream.get("class_names") or []
    names = [str(given[n]) if n < len(given) else str(n) for n in range(classes)]
    drawn = _per_class(row.learner, answers, names)
    return ByClass(row.learner, drawn, _confusions(answers, names))


def _per_class(learner: str, answers: Sequence[Any], names: Sequence[str]) -> Figure:
    classes = len(names)
    stretches = min(STRETCHES, *(len(label) for label, _ in answers))
    right, count = np.zeros((2, classes, stretches))
    for label, answer in answers:
        at = np.arange(len(label)) * stretches // len(label)
        cell = label.astype(np.int64) * stretches + at
        count += np.bincount(cell, minlength=count.size)[: count.size].reshape(count.shape)
        hits = np.bincount(cell, label == answer, count.size)[: count.size]
        right += hits.reshape(count.shape)
    shown = np.argsort(-count.sum(axis=1), kind="stable")[:CLASSES]
    shown = shown[count[shown].sum(axis=1) > 0]
    with np.errstate(invalid="ignore"):
        share = np.round(right[shown] / count[shown], 2)  # whole per cents: eight learners have one
    samples = len(answers[0][0])
    x = (np.arange(stretches) + 0.5) * samples / stretches
    of = f"the {len(shown)} most frequent classes" if classes > len(shown) else "all classes"
    texts = [f"{names[c][:16]} " for c in shown]  # a space: names that are numbers stay texts
    return figure(
        f"Accuracy of {learner} per class over the stream",
        f"Online answers, {of}, the most frequent on top; the stronger the colour, the "
        "more are right (0 to 100 %). Empty where a class did not come.",
        [heat("accuracy", x, [escape(text) for text in texts], 100 * share, most=100)],
        "samples seen",
        "class",
        from_zero=False,
        y_axis={"type": "category", "autorange": "reversed", "showgrid": False},
        hovermode="closest",
        showlegend=False,
    )


def _confusions(answers: Sequence[Any], names: Sequence[str]) -> list[list[str]]:
    """The pairs of label and wrong answer that are most frequent, over all seeds."""
    classes = len(names)
    label, answer = (np.concatenate(each).astype(np.int64) for each in zip(*answers, strict=True))
    wrong = (label != answer) & (answer >= 0)
    pair, times = np.unique(label[wrong] * classes + answer[wrong], return_counts=True)
    total = np.bincount(label, minlength=classes)
    rows = []
    for at in np.argsort(-times, kind="stable")[:CONFUSED]:
        true, answered = divmod(int(pair[at]), classes)
        share = times[at] / total[true]
        rows.append([names[true], names[answered], f"{times[at]:,}", f"{100 * share:.1f}"])
    return rows


def _reliability(rows: Sequence[Row]) -> Figure | None:
    """Accuracy over confidence, all seeds together, for learners whose confidences vary."""
    traces = []
    for row in rows:
        sums = np.zeros((3, LEVELS))  # answers, right answers, confidence
        for run in row.runs:
            log = Run(run.path)
            at, table = online_rows(log), log.predictions
            confidence = table["confidence"][at].astype(np.float64)
            right = table["label"][at] == table["prediction"][at]
            known = np.isfinite(confidence) & (confidence >= 0) & (confidence <= 1)
            bins = np.minimum((confidence[known] * LEVELS).astype(np.int64), LEVELS - 1)
            for n, weights in enumerate((None, right[known], confidence[known])):
                sums[n] += np.bincount(bins, weights, LEVELS)
        filled = sums[0] >= FEWEST
        if filled.sum() > 1:
            x, y = 100 * sums[2, filled] / sums[0, filled], sums[1, filled] / sums[0, filled]
            traces.append(line(row.learner, x, y, markers=True))
    if not traces:
        return None
    return figure(
        "Reliability",
        "How often answers of a confidence are right; on the dashed diagonal they are right as "
        f"often as they say. Online answers in {LEVELS} levels of confidence, with {FEWEST} "
        "answers or more each.",
        [*traces, level("accuracy = confidence", [0, 100], [0, 1])],
        "confidence, %",
        x_axis={"range": [0, 101]},
        y_axis={"range": [0, 101]},
        hovermode="closest",
    )
