"""The figures of a report as plain data: what plotly.js draws, without colours, which follow the
reader's light or dark theme and are put in by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.metrics import (
    accuracy_matrix,
    average_accuracy,
    near_future_accuracy,
    retention_curve,
    running_accuracy,
    spread,
)
from streamgauge.record import Run
from streamgauge.report.blind import BlindLevel, blind_level
from streamgauge.report.compute import caption, compute, traces
from streamgauge.report.leaderboard import Board, Row
from streamgauge.report.places import cells_on_map
from streamgauge.report.ties import NEAR_FUTURE

POINTS = 250  # of a curve
Floats = NDArray[np.float64]
Trace = dict[str, Any]
NOTHING: tuple[Floats, Floats] = (np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]


@dataclass(frozen=True)
class Matrix:
    """Accuracy on each task (column) after each task (row), in %, for one learner."""

    learner: str
    cells: list[list[float]]


@dataclass(frozen=True)
class Figures:
    blind: BlindLevel | None
    accuracy: list[Figure]
    training: list[Figure]
    matrices: list[Matrix]
    place: Figure | str | None = None  # a map, or why there is none


@dataclass(frozen=True)
class _Curves:
    """What one run adds to the figures; small, whatever the length of its log."""

    running: tuple[Floats, Floats]
    near: Floats
    retained: tuple[Floats, Floats]
    matrix: Floats
    training: dict[str, tuple[Floats, Floats]]


def figures(board: Board) -> Figures:
    """All figures that the runs of a board have data for."""
    rows = [row for row in board.rows if row.runs]
    shifts = [int(c.score.removeprefix(NEAR_FUTURE)) for c in board.columns
              if c.score.startswith(NEAR_FUTURE)]  # fmt: skip
    shifts = [0, *shifts]
    blind = blind_level([run for row in rows for run in row.runs], shifts)
    found = [(row, [_curves(Run(run.path), shifts) for run in row.runs]) for row in rows]
    accuracy = [
        _running(found, blind),
        _near_future(found, blind, shifts),
        _retained(found, blind),
        _average(found, blind),
        _over_compute(board),
    ]
    return Figures(
        blind=blind,
        accuracy=[figure for figure in accuracy if figure is not None],
        training=_training(found),
        matrices=[
            Matrix(row.learner, (100 * _mean([one.matrix for one in curves])).tolist())
            for row, curves in found
            if curves[0].matrix.size and len({one.matrix.shape for one in curves}) == 1
        ],
        place=_map(board),
    )


def _map(board: Board) -> Figure | str | None:
    found = cells_on_map(board)
    if found is None or isinstance(found, str):
        return found
    return Figure(
        "Where the classes are",
        "Each outline is an S2 cell, a class; rest the pointer on its centre for how often it was "
        "answered right (the first seed of each learner).",
        *found,
    )


_Found = Sequence[tuple[Row, list[_Curves]]]


def _curves(run: Run, shifts: Sequence[int]) -> _Curves:
    table = run.predictions
    live = np.flatnonzero(table["shift"] == 0)
    label, prediction = table["label"][live], table["prediction"][live]
    seen = np.arange(1, len(live) + 1, dtype=np.float64)
    answered = len(run.answers["evaluation"]) > 0
    kept = retention_curve(run) if answered else None
    tasks = run.stream["tasks"] > 1 and len(run.evaluations["evaluation"]) > 0
    return _Curves(
        running=thin(seen, running_accuracy(label, prediction)),
        near=near_future_accuracy(run, shifts) if len(live) else np.empty(0),
        retained=(np.empty(0), np.empty(0)) if kept is None else thin(kept.position, kept.accuracy),
        matrix=accuracy_matrix(run) if tasks else np.empty((0, 0)),
        training={name: _scalar(run, name) for name in np.unique(run.training["name"]).tolist()},
    )


def thin(x: NDArray[Any], y: Floats) -> tuple[Floats, Floats]:
    """A few hundred of the points, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(np.int64))
    return x[chosen].astype(np.float64), y[chosen]


def _scalar(run: Run, name: str) -> tuple[Floats, Floats]:
    """Means over equal stretches of a scalar that training returned."""
    table = run.training
    mine = np.flatnonzero(table["name"] == name)
    edges = np.unique(np.linspace(0, len(mine), POINTS + 1).round().astype(np.int64))
    count = np.diff(edges)
    x, y = (np.add.reduceat(table[c][mine].astype(np.float64), edges[:-1]) / count
            for c in ("step", "value"))  # fmt: skip
    return x, y


def _running(found: _Found, blind: BlindLevel | None) -> Figure | None:
    traces = _lines(found, lambda one: one.running)
    return make_figure(
        "Online accuracy so far",
        "Share of the samples up to here that were answered right before their labels were known.",
        [*traces, *_level(traces, blind, lambda b: float(b.accuracy[0]))],
        "samples seen",
    )


def _near_future(found: _Found, blind: BlindLevel | None, shifts: list[int]) -> Figure | None:
    if len(shifts) < 2:
        return None
    traces = _lines(found, lambda one: (np.array(shifts, np.float64), one.near), markers=True)
    level = []
    if blind is not None:
        level = [_dashed(blind, shifts, blind.accuracy)]
    return make_figure(
        "Near-future accuracy",
        "Samples this far beyond what the model had learnt from: what repeats from one sample to "
        "the next no longer helps. At 0 it is online accuracy.",
        [*traces, *level],
        "shift, in samples",
    )


def _retained(found: _Found, blind: BlindLevel | None) -> Figure | None:
    traces = _lines(found, lambda one: one.retained)
    return make_figure(
        "Retained accuracy",
        "The final model on held-out samples, from the beginning of the stream up to each place. "
        "The last point is the retained accuracy of the table.",
        [*traces, *_level(traces, blind, lambda b: b.retained)],
        "place in the stream, in samples",
    )


def _average(found: _Found, blind: BlindLevel | None) -> Figure | None:
    def after(one: _Curves) -> tuple[Floats, Floats]:
        tasks = np.arange(1, len(one.matrix) + 1, dtype=np.float64)
        return tasks, average_accuracy(one.matrix) if len(tasks) else np.empty(0)

    traces = _lines(found, after, markers=True)
    level = []
    if blind is not None and len(blind.average):
        level = [_dashed(blind, list(range(1, len(blind.average) + 1)), blind.average)]
    return make_figure(
        "Average accuracy after each task",
        "Held-out samples of the tasks so far, every task counting the same.",
        [*traces, *level],
        "tasks learnt",
        whole=True,
    )


def _over_compute(board: Board) -> Figure | None:
    found = compute(board)
    if found is None:
        return None
    data, layout = traces(found)
    return Figure("Accuracy over compute", caption(found), data, layout)


def _training(found: _Found) -> list[Figure]:
    names = sorted({name for _, curves in found for one in curves for name in one.training})
    out = []
    for name in names:

        def curve(one: _Curves, name: str = name) -> tuple[Floats, Floats]:
            return one.training.get(name, NOTHING)

        out.append(make_figure(name, "", _lines(found, curve, scale=1.0), "step", percent=False))
    return [figure for figure in out if figure is not None]


def _lines(
    found: _Found,
    curve: Callable[[_Curves], tuple[Floats, Floats]],
    markers: bool = False,
    scale: float = 100.0,
) -> list[Trace]:
    return lines(
        [(row.learner, [curve(run) for run in runs]) for row, runs in found], markers, scale
    )


def lines(
    found: Sequence[tuple[str, Sequence[tuple[Floats, Floats]]]],
    markers: bool = False,
    scale: float = 100.0,
    colours: Sequence[int] | None = None,
) -> list[Trace]:
    """A line and a band a name: mean and one deviation over seeds. Where seeds have their points
    at places of their own (held-out samples do), first is averaged with first, last with last."""
    traces: list[Trace] = []
    for number, (title, curves) in enumerate(found):
        colour = number if colours is None else colours[number]
        each = [(x, y) for x, y in curves if len(x)]
        if not each:
            continue
        fewest = min(len(x) for x, _ in each)
        x = np.mean([_resampled(x, fewest) for x, _ in each], axis=0)
        values = spread([scale * _resampled(y, fewest) for _, y in each])
        name = escape(title)
        line: Trace = {
            "name": name,
            "legendgroup": name,
            "meta": {"colour": colour},
            "mode": "lines+markers" if markers or fewest == 1 else "lines",  # a point is no line
            "x": _rounded(x),
            "y": _rounded(values.mean),
            "hovertemplate": "%{y:.1f}" if scale == 100 else "%{y:.4g}",
        }
        if len(each) > 1:
            low, high = values.mean - values.deviation, values.mean + values.deviation
            if scale == 100:  # an accuracy cannot lie beyond these, whatever the deviation
                low, high = np.maximum(low, 0), np.minimum(high, 100)
            line["customdata"] = _rounded(values.deviation)
            line["hovertemplate"] += " ± %{customdata:.2g}"
            traces.append(
                {
                    "legendgroup": name,
                    "meta": {"colour": colour, "band": True},
                    "x": _rounded(np.concatenate([x, x[::-1]])),
                    "y": _rounded(np.concatenate([high, low[::-1]])),
                }
            )
        traces.append(line)
    return traces


def _resampled(values: Floats, count: int) -> Floats:
    return np.interp(np.linspace(0, len(values) - 1, count), np.arange(len(values)), values)


def _level(
    traces: list[Trace], blind: BlindLevel | None, value: Callable[[BlindLevel], float]
) -> list[Trace]:
    if blind is None or not traces or np.isnan(value(blind)):
        return []
    ends = [min(t["x"][0] for t in traces), max(t["x"][-1] for t in traces)]
    return [_dashed(blind, ends, np.full(2, value(blind)))]


def _dashed(blind: BlindLevel, x: Sequence[float], y: Floats) -> Trace:
    return {
        "name": blind.name,
        "meta": {"blind": True},
        "mode": "lines+text",
        "x": list(x),
        "y": _rounded(100 * y),
        "text": [*[""] * (len(x) - 1), f"\u00a0{blind.name}"],
        "hovertemplate": "%{y:.1f}",
    }


def make_figure(
    title: str,
    caption: str,
    data: list[Trace],
    x_title: str,
    percent: bool = True,
    whole: bool = False,
) -> Figure | None:
    if all("blind" in trace["meta"] for trace in data):
        return None
    y: dict[str, Any] = {"title": {"text": "accuracy, %"}, "rangemode": "tozero"} if percent else {}
    low, high = min(min(t["x"]) for t in data), max(max(t["x"]) for t in data)
    room = (high - low or 1) / 100  # for markers; by itself plotly leaves more beside a label
    x: dict[str, Any] = {"title": {"text": x_title}, "range": [low - room, high + room]}
    if whole:
        x |= {"tick0": 1, "dtick": max(1, round(high / 10))}
    return Figure(title, caption, data, {"xaxis": x, "yaxis": y})


def _mean(matrices: Iterable[Floats]) -> Floats:
    return np.asarray(spread(list(matrices)).mean)


def _rounded(values: Floats) -> list[float | None]:
    """Short numbers for the page; JSON has neither NaN nor infinity."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]
