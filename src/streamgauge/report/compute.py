"""Accuracy over compute: the FLOPs of each learner's training, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamgauge.metrics import Spread, pareto_front, spread, training_flops
from streamgauge.pages.figures import Figure, Trace, figure, front, point
from streamgauge.pages.units import flop, scaled, short
from streamgauge.record import Run
from streamgauge.report.leaderboard import Board, Row

FLOPS, SECONDS = "training_flops", "learning_seconds"
UNITS = {FLOPS: ("FLOPs of training", "FLOP"), SECONDS: ("seconds of learning", "s")}
WIDE = 50  # points further apart than this many times are drawn on a logarithmic axis


@dataclass(frozen=True)
class Point:
    learner: str
    flops: Spread  # or seconds
    accuracy: Spread
    relative: float  # to ER's FLOPs; NaN where there is no ER
    front: bool  # whether no other learner is as accurate for fewer FLOPs
    near: bool = False  # not on the front, but within noise of it


@dataclass(frozen=True)
class Compute:
    """A board's learners by the FLOPs of their training, or its seconds, cheapest first."""

    points: tuple[Point, ...]
    accuracy: str  # title of the accuracy that is drawn over FLOPs
    missing: Mapping[str, float]  # learners of unknown FLOPs, and the seconds they learnt
    reference: str  # the ER that FLOPs are relative to, or ""
    tuning: tuple[str, ...] = ()  # sentences on the cost of tuning, which the points leave out
    by: str = FLOPS

    @property
    def sentence(self) -> str:
        """Sentences on everything that the points leave out."""
        sentences = list(self.tuning)
        if self.missing and self.by == FLOPS:
            names = ", ".join(
                name if math.isnan(s) else f"{name} ({short(s)} s)"
                for name, s in self.missing.items()
            )
            sentences.append(
                "FLOPs unknown, since they do not train with torch or their logs have none, and so "
                f"not shown (seconds of learning per run): {names}."
            )
        return " ".join(sentences)


def compute(board: Board, by: str = FLOPS) -> Compute | None:
    """None if the cost of fewer than two learners is known; also by seconds of learning."""
    order = next((c.score for c in board.columns if c.title == board.ordered_by), "")
    rows = [row for row in board.rows if row.runs]
    seconds = {row.learner: learning_seconds(row.runs) for row in rows}
    costs = (
        seconds
        if by == SECONDS
        else {r.learner: r.scores[FLOPS] for r in rows if FLOPS in r.scores}
    )
    costs = {name: cost for name, cost in costs.items() if cost.mean > 0}
    known = [row for row in rows if row.learner in costs and _known(row, order)]
    missing = {r.learner: seconds[r.learner].mean for r in rows if r.learner not in costs}
    if len(known) < 2:
        return None
    means = [costs[row.learner].mean for row in known]
    front = pareto_front(means, [row.scores[order].mean for row in known])
    er = next((row for row in known if _is_er(row)), None)
    unit = math.nan if er is None else costs[er.learner].mean
    pairs = [(costs[row.learner], row.scores[order]) for row in known]
    best = [pair for pair, on in zip(pairs, front, strict=True) if on]
    points = []
    for row, (cost, accuracy), on in zip(known, pairs, front, strict=True):
        near = not on and any(_within_noise(cost, accuracy, *other) for other in best)
        points.append(Point(row.learner, cost, accuracy, cost.mean / unit, bool(on), near))
    points.sort(key=lambda point: (point.flops.mean, -point.accuracy.mean))
    tuning = tuple(charged(run for row in known for run in row.runs)) if by == FLOPS else ()
    reference = "" if er is None else er.learner
    return Compute(tuple(points), board.ordered_by, missing, reference, tuning, by)


def _within_noise(cost: Spread, accuracy: Spread, front_cost: Spread, front: Spread) -> bool:
    """Whether the accuracies of a point and of one on the front that dominates it are within twice
    the standard error of their difference; one seed says nothing about noise."""
    if front_cost.mean > cost.mean or front.mean < accuracy.mean:
        return False
    parts = [v.deviation**2 / v.seeds for v in (accuracy, front) if v.seeds > 1]
    return len(parts) == 2 and front.mean - accuracy.mean <= 2 * math.sqrt(sum(parts))


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
                f"{beginning}, which took {flop(spent)} of training, {short(spent / own)} "
                f"times a run of it; with them, a run costs {flop(own + spent)}."
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
    """Accuracy over the cost of training, a point for each learner. Where costs differ by more than
    `WIDE` the axis is logarithmic."""
    shown = computed.points
    title, unit = UNITS[computed.by]
    ratio = max(p.flops.mean for p in shown) / min(p.flops.mean for p in shown)
    best = [p for p in shown if p.front]
    traces: list[Trace] = []
    if len(best) > 1:
        flops, accuracy = [p.flops.mean for p in best], [p.accuracy.mean for p in best]
        traces.append(front("Pareto front", flops, accuracy))
    for p in shown:
        times = "" if math.isnan(p.relative) else f" ({short(p.relative)} × ER)"
        near = ", within noise of the front" if p.near else ""
        traces.append(
            point(
                p.learner,
                p.flops.mean,
                100 * p.accuracy.mean,
                # A bar to below 0 would leave a logarithmic axis.
                errors=(min(p.flops.deviation, 0.9 * p.flops.mean), 100 * p.accuracy.deviation),
                hollow=not p.front,
                near=p.near,
                hover=f"%{{y:.1f}} % for %{{x:.3s}}{unit}{times}{near}<extra></extra>",
            )
        )
    x: dict[str, Any] = {"exponentformat": "SI"}
    if ratio > WIDE:
        low, high = (f(math.log10(p.flops.mean) for p in shown) for f in (min, max))
        x |= {"type": "log", "dtick": "D2" if ratio < 1000 else 1}
        x["range"] = [low - 0.15, high + 0.15]
    else:
        most = max(p.flops.mean for p in shown)
        x |= {"range": [-0.03 * most, 1.06 * most]}
    top = 1.15 * max(100 * p.accuracy.mean for p in shown)
    er = [scaled(p.flops.mean) for p in computed.points if p.learner == computed.reference]
    reference = f"; {computed.reference} takes {er[0]}" if er else ""
    return figure(
        "Accuracy over compute" if computed.by == FLOPS else "Accuracy over time",
        _caption(computed),
        traces,
        f"{title}{reference}",
        f"{computed.accuracy}, %",
        x_axis=x,
        y_axis={"range": [0, max(top, 1)]},
        hovermode="closest",
    )


def _caption(computed: Compute) -> str:
    accuracy = computed.accuracy.capitalize()
    if computed.by == FLOPS:
        text = (
            f"{accuracy}, over the FLOPs of all training: matrix products and convolutions, "
            "forward and backward; answers are not counted."
        )
    else:
        text = f"{accuracy}, over the seconds of all training on the machines of these runs."
    text += (
        " Full markers, joined by a line, are the Pareto front: no other learner is as accurate "
        "for as little. Hollow ones marked ≈ are below it by no more than noise explains: two "
        "standard errors of the difference over seeds. Whiskers are one standard deviation."
    )
    return f"{text} {computed.sentence}".strip()
