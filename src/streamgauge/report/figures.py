"""The figures of a report: curves of each learner over seeds, and the blind level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge import metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.pages.figures import POINTS, Figure, Trace, band, figure, level, line, thin
from streamgauge.places.map import cell_map, cell_text, cells_named
from streamgauge.record import Run
from streamgauge.report.blind import HELD_OUT, BlindLevel, blind_level
from streamgauge.report.compute import compute, compute_figure
from streamgauge.report.leaderboard import NEAR_FUTURE, Board, Row

Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]
NO_CURVE: Curve = (np.empty(0), np.empty(0))
BANDS = (
    "Bands are one standard deviation over seeds. Click a name to hide its curve, twice to see it "
    "alone."
)


@dataclass(frozen=True)
class Figures:
    """Everything that is drawn for a board."""

    blind: BlindLevel | None
    accuracy: list[Figure]
    training: list[Figure]
    matrices: list[tuple[str, Floats]]  # learner; accuracy on each task (column) after each (row)
    class_map: Figure | str | None = None  # or the reason why there is none


@dataclass(frozen=True)
class _Curves:
    """What one run adds to the figures; small, whatever the length of its log."""

    running: Curve
    near: Floats
    retained: Curve
    matrix: Floats
    training: dict[str, Curve]


_Runs = Sequence[tuple[Row, list[_Curves]]]


def figures(board: Board) -> Figures:
    """All figures that the runs of a board have data for."""
    rows = [row for row in board.rows if row.runs]
    shifts = [int(c.score.removeprefix(NEAR_FUTURE)) for c in board.columns
              if c.score.startswith(NEAR_FUTURE)]  # fmt: skip
    shifts = [0, *shifts]
    blind = blind_level([run for row in rows for run in row.runs], shifts)
    runs = [(row, [_curves(Run(run.path), shifts) for run in row.runs]) for row in rows]
    computed = compute(board)
    accuracy = [
        _running(runs, blind),
        _near_future(runs, blind, shifts),
        _retained(runs, blind),
        _average(runs, blind),
        None if computed is None else compute_figure(computed),
    ]
    return Figures(
        blind=blind,
        accuracy=[drawn for drawn in accuracy if drawn is not None],
        training=_training(runs),
        matrices=[
            (row.learner, np.asarray(metrics.spread([c.matrix for c in curves]).mean))
            for row, curves in runs
            if curves[0].matrix.size and len({c.matrix.shape for c in curves}) == 1
        ],
        class_map=class_map(board),
    )


def _curves(run: Run, shifts: Sequence[int]) -> _Curves:
    running = online_curve(run)
    tasks = run.stream["tasks"] > 1 and len(run.evaluations["evaluation"]) > 0
    return _Curves(
        running=running,
        near=metrics.near_future_accuracy(run, shifts) if len(running[0]) else np.empty(0),
        retained=retained_curve(run),
        matrix=metrics.accuracy_matrix(run) if tasks else np.empty((0, 0)),
        training={n: scalar_curve(run, n) for n in np.unique(run.training["name"]).tolist()},
    )


def online_answers(run: Run) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels and predictions of the samples that were answered before they were learnt."""
    table = run.predictions
    rows = np.flatnonzero(table["shift"] == 0)
    rows = rows[np.argsort(table["step"][rows], kind="stable")]
    return table["label"][rows], table["prediction"][rows]


def online_curve(run: Run) -> Curve:
    """Online accuracy over the samples up to each position."""
    label, prediction = online_answers(run)
    if not len(label):
        return NO_CURVE
    return thin(np.arange(1.0, len(label) + 1), metrics.running_accuracy(label, prediction))


def retained_curve(run: Run) -> Curve:
    """Accuracy of the final model on held-out samples up to each position."""
    if not len(run.answers["evaluation"]):
        return NO_CURVE
    retention = metrics.retention_curve(run)
    return thin(retention.position, retention.accuracy)


def known_points(x: Floats, y: Floats) -> Curve:
    """A curve without its NaN."""
    known = ~(np.isnan(x) | np.isnan(y))
    return x[known], y[known]


def scalar_curve(run: Run, name: str) -> Curve:
    """Means over equal stretches of a scalar that training returned."""
    table = run.training
    rows = np.flatnonzero(table["name"] == name)
    edges = np.unique(np.linspace(0, len(rows), POINTS + 1).round().astype(np.int64))
    count = np.diff(edges)
    x, y = (np.add.reduceat(table[c][rows].astype(np.float64), edges[:-1]) / count
            for c in ("step", "value"))  # fmt: skip
    return x, y


def _running(runs: _Runs, blind: BlindLevel | None) -> Figure | None:
    traces = _lines(runs, lambda curves: curves.running)
    return curve_figure(
        "Online accuracy so far",
        "Share of the samples up to here that were answered right before their labels were known.",
        [*traces, *_constant(traces, blind, lambda b: (b.name, float(b.accuracy[0])))],
        "samples seen",
    )


def _near_future(runs: _Runs, blind: BlindLevel | None, shifts: list[int]) -> Figure | None:
    if len(shifts) < 2:
        return None
    traces = _lines(runs, lambda curves: (np.array(shifts, np.float64), curves.near), markers=True)
    levels = [] if blind is None else [level(blind.name, shifts, blind.accuracy)]
    return curve_figure(
        "Near-future accuracy",
        "Samples this far beyond the last one that the model had learnt from, where repetition "
        "from one sample to the next no longer helps. At shift 0 it is online accuracy.",
        [*traces, *levels],
        "shift, in samples",
    )


def _retained(runs: _Runs, blind: BlindLevel | None) -> Figure | None:
    traces = _lines(runs, lambda curves: curves.retained)
    return curve_figure(
        "Retained accuracy",
        "The final model on held-out samples, from the beginning of the stream up to each "
        "position. The last point is the retained accuracy of the table.",
        [*traces, *_constant(traces, blind, lambda b: (HELD_OUT, b.retained))],
        "position in the stream, in samples",
    )


def _average(runs: _Runs, blind: BlindLevel | None) -> Figure | None:
    def after(curves: _Curves) -> Curve:
        tasks = np.arange(1, len(curves.matrix) + 1, dtype=np.float64)
        return tasks, metrics.average_accuracy(curves.matrix) if len(tasks) else np.empty(0)

    traces = _lines(runs, after, markers=True)
    levels = []
    if blind is not None and len(blind.average):
        levels = [level(HELD_OUT, np.arange(1, len(blind.average) + 1), blind.average)]
    return curve_figure(
        "Average accuracy after each task",
        "Held-out samples of the tasks so far, every task counting the same.",
        [*traces, *levels],
        "tasks learnt",
        whole=True,
    )


def _training(runs: _Runs) -> list[Figure]:
    names = sorted({name for _, several in runs for curves in several for name in curves.training})
    drawn = []
    for name in names:
        traces = _lines(runs, lambda curves: curves.training.get(name, NO_CURVE), scale=1.0)  # noqa: B023
        drawn.append(curve_figure(name, "", traces, "step", "", from_zero=False))
    return [each for each in drawn if each is not None]


def _lines(
    runs: _Runs, curve: Callable[[_Curves], Curve], markers: bool = False, scale: float = 100.0
) -> list[Trace]:
    named = [(row.learner, [curve(curves) for curves in several]) for row, several in runs]
    return mean_lines(named, markers, scale)


def mean_lines(
    named: Sequence[tuple[str, Sequence[Curve]]],
    markers: bool = False,
    scale: float = 100.0,
    colours: Sequence[int] | None = None,
) -> list[Trace]:
    """A line and a band for each name: mean and one standard deviation over seeds. Where the curves
    of seeds have points at different positions (as held-out samples do), the n-th point of each is
    averaged."""
    traces: list[Trace] = []
    for number, (name, curves) in enumerate(named):
        colour = number if colours is None else colours[number]
        seeds = [(x, y) for x, y in curves if len(x)]
        if not seeds:
            continue
        fewest = min(len(x) for x, _ in seeds)
        x = np.mean([_resampled(x, fewest) for x, _ in seeds], axis=0)
        y = metrics.spread([_resampled(y, fewest) for _, y in seeds])
        deviation = y.deviation if len(seeds) > 1 else None
        if deviation is not None:
            low, high = y.mean - deviation, y.mean + deviation
            traces.append(band(x, low, high, name, colour, scale=scale))
        traces.append(
            line(name, x, y.mean, colour, scale=scale, deviation=deviation, markers=markers)
        )
    return traces


def _resampled(values: Floats, count: int) -> Floats:
    return np.interp(np.linspace(0, len(values) - 1, count), np.arange(len(values)), values)


def _constant(
    traces: list[Trace], blind: BlindLevel | None, named: Callable[[BlindLevel], tuple[str, float]]
) -> list[Trace]:
    """The blind level, by name and value, over the whole width of the traces."""
    if blind is None or not traces or np.isnan(named(blind)[1]):
        return []
    name, value = named(blind)
    ends = [min(t["x"][0] for t in traces), max(t["x"][-1] for t in traces)]
    return [level(name, ends, np.full(2, value))]


def curve_figure(
    title: str, caption: str, traces: list[Trace], *axes: str, **more: Any
) -> Figure | None:
    """A figure; None where there is no curve next to a level to compare with."""
    if all(trace["meta"]["role"] == "level" for trace in traces):
        return None
    return figure(title, caption, traces, *axes, **more)


def class_map(board: Board) -> Figure | str | None:
    """The map; None if classes are no cells; a sentence if the cells cannot be drawn."""
    cells = cells_named(board.stream.get("class_names"))
    if cells is None:
        return None
    texts = [[f"class {number}"] for number in range(len(cells))]
    rows = [row for row in board.rows if row.runs]
    for row in rows:
        label, prediction = online_answers(row.runs[0])
        count = np.bincount(label, minlength=len(cells))
        hits = np.bincount(label, label == prediction, len(cells))
        for number, text in enumerate(texts):
            if row is rows[0]:
                text.append(f"{count[number]:,} samples")
            if count[number]:
                text.append(f"{escape(row.learner)}: {hits[number] / count[number]:.1%} right")
    try:
        return cell_map(
            "Where the classes are",
            "Each outline is an S2 cell, one class. Point at its centre for the accuracy of the "
            "first seed of each learner in it.",
            cells,
            [cell_text(cell, *text) for cell, text in zip(cells, texts, strict=True)],
        )
    except StreamgaugeError as error:
        return f"The classes are S2 cells, but there is no map. {error}"
