"""Accuracy over compute: the FLOPs of each learner's training, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamgauge.metrics import Spread, pareto_front, spread, training_flops
from streamgauge.pages.figures import Figure, Trace, figure, front, point
from streamgauge.record import Run
from streamgauge.report.leaderboard import Board, Row

FLOPS = "training_flops"
WIDE = 50  # points further apart than this many times are drawn on a logarithmic axis


@dataclass(frozen=True)
class Point:
    learner: str
    colour: int  # number of its row, as in the other figures
    flops: Spread
    accuracy: Spread
    relative: float  # to ER's FLOPs; NaN where there is no ER
    front: bool  # whether no other learner is as accurate for fewer FLOPs


@dataclass(frozen=True)
class Compute:
    """A board's learners by the FLOPs of their training, cheapest first."""

    points: tuple[Point, ...]
    accuracy: str  # title of the accuracy that is drawn over FLOPs
    missing: Mapping[str, float]  # learners of unknown FLOPs, and the seconds they learnt
    reference: str  # the ER that FLOPs are relative to, or ""
    tuning: tuple[str, ...] = ()  # sentences on the cost of tuning, which the points leave out

    @property
    def sentence(self) -> str:
        """Sentences on everything that the points leave out."""
        sentences = list(self.tuning)
        if self.missing:
            names = ", ".join(
                name if math.isnan(s) else f"{name} ({_short(s)} s)"
                for name, s in self.missing.items()
            )
            sentences.append(
                "FLOPs unknown, since they do not train with torch or their logs have none, and so "
                f"not shown (seconds of learning per run): {names}."
            )
        return " ".join(sentences)


def compute(board: Board) -> Compute | None:
    """None if the FLOPs of fewer than two learners are known."""
    order = next((c.score for c in board.columns if c.title == board.ordered_by), "")
    rows = [(i, row) for i, row in enumerate(r for r in board.rows if r.runs)]
    known = [(i, row) for i, row in rows if _known(row, FLOPS) and _known(row, order)]
    missing = {
        row.learner: learning_seconds(row.runs).mean for _, row in rows if not _known(row, FLOPS)
    }
    flops = [row.scores[FLOPS].mean for _, row in known]
    if len(known) < 2:
        return None
    front = pareto_front(flops, [row.scores[order].mean for _, row in known])
    er = next((row for _, row in known if _is_er(row)), None)
    unit = math.nan if er is None else er.scores[FLOPS].mean
    points = [
        Point(row.learner, i, row.scores[FLOPS], row.scores[order],
              row.scores[FLOPS].mean / unit, bool(on))
        for (i, row), on in zip(known, front, strict=True)
    ]  # fmt: skip
    points.sort(key=lambda point: (point.flops.mean, -point.accuracy.mean))
    tuning = tuple(charged(run for _, row in known for run in row.runs))
    reference = "" if er is None else er.learner
    return Compute(tuple(points), board.ordered_by, missing, reference, tuning)


def charged(runs: Iterable[Run]) -> list[str]:
    """A sentence for each tuned learner: the FLOPs of its tuning, which its runs do not include."""
    sentences = {}
    for run in runs:
        note = run.header["config"].get("tuned")
        if note is None or run.learner in sentences or not run.done:
            continue
        beginning = f"{run.learner} was tuned in {note['trials']} trials on {note['prefix']}"
        own, spent = training_flops(run), note["flops"]
        if spent is None or not own > 0:
            sentences[run.learner] = f"{beginning}; what that took in FLOPs is not known."
        else:
            sentences[run.learner] = (
                f"{beginning}, which took {scaled(spent)}FLOP of training, {_short(spent / own)} "
                f"times a run of it; with them, a run costs {scaled(own + spent)}FLOP."
            )
    return list(sentences.values())


def _known(row: Row, name: str) -> bool:
    return name in row.scores and not math.isnan(row.scores[name].mean)


def learning_seconds(runs: Iterable[Run]) -> Spread:
    """NaN where a log does not say, as a recording may."""
    return spread([run.result("learning_seconds", partial(_learning, run)) for run in runs])


def _learning(run: Run) -> float:
    seconds = run.timing["seconds"][run.timing["part"] == "learn"]
    return float(seconds.sum()) if len(seconds) else math.nan


def _is_er(row: Row) -> bool:
    return bool(row.runs[0].header["config"]["learner"]["where"] == "er")


def compute_figure(computed: Compute) -> Figure:
    """Accuracy over the FLOPs of training, a point for each learner. Where FLOPs differ by more
    than `WIDE` the axis is logarithmic."""
    shown = computed.points
    ratio = max(p.flops.mean for p in shown) / min(p.flops.mean for p in shown)
    best = [p for p in shown if p.front]
    traces: list[Trace] = []
    if len(best) > 1:
        flops, accuracy = [p.flops.mean for p in best], [p.accuracy.mean for p in best]
        traces.append(front("Pareto front", flops, accuracy))
    for p in shown:
        times = "" if math.isnan(p.relative) else f" ({_short(p.relative)} × ER)"
        traces.append(
            point(
                p.learner,
                p.flops.mean,
                100 * p.accuracy.mean,
                p.colour,
                errors=(p.flops.deviation, 100 * p.accuracy.deviation),
                hollow=not p.front,
                hover=f"%{{y:.1f}} % for %{{x:.3s}}FLOP{times}<extra></extra>",
            )
        )
    x: dict[str, Any] = {"exponentformat": "SI"}
    if ratio > WIDE:
        low, high = (f(math.log10(p.flops.mean) for p in shown) for f in (min, max))
        x |= {"type": "log", "dtick": "D1" if ratio < 100 else 1}
        x["range"] = [low - 0.15, high + 0.15]
    else:
        most = max(p.flops.mean for p in shown)
        x |= {"range": [-0.03 * most, 1.06 * most]}
    top = 1.15 * max(100 * p.accuracy.mean for p in shown)
    er = [scaled(p.flops.mean) for p in computed.points if p.learner == computed.reference]
    unit = f"; {computed.reference} takes {er[0]}" if er else ""
    return figure(
        "Accuracy over compute",
        _caption(computed),
        traces,
        f"FLOPs of training{unit}",
        f"{computed.accuracy}, %",
        x_axis=x,
        y_axis={"range": [0, max(top, 1)]},
        hovermode="closest",
    )


def _caption(computed: Compute) -> str:
    text = (
        f"{computed.accuracy.capitalize()}, over the FLOPs of all training: matrix products and "
        "convolutions, forward and backward; answers are not counted. Full markers, joined by a "
        "line, are the Pareto front: no other learner is as accurate for as few FLOPs."
    )
    return f"{text} {computed.sentence}".strip()


def scaled(flops: float) -> str:
    """
    >>> scaled(1.234e12), scaled(56), scaled(math.nan)
    ('1.23 T', '56', 'unknown')
    """
    if math.isnan(flops):
        return "unknown"
    for unit in ("", " k", " M", " G", " T", " P", " E"):
        if flops < 999.5:
            return f"{_short(flops)}{unit}"
        flops /= 1000
    return f"{flops:.3g} Z"


def _short(value: float) -> str:
    return f"{np.round(value, 2 if value < 10 else 1):.3g}"
