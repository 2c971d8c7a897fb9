"""The figures of a report: curves of each learner over seeds, and the blind level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge import metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.history.student import quantile
from streamgauge.pages.figures import (
    FEWEST,
    Counted,
    Figure,
    Trace,
    band,
    counted,
    figure,
    level,
    line,
    moving_figure,
    rounded,
    shift_axis,
    ticks,
)
from streamgauge.places.map import cell_map, cell_text, cells_named
from streamgauge.record import Run
from streamgauge.report.bits import Added, added_bits
from streamgauge.report.blind import LEVEL, BlindLevel, between, blind_level, pair_of
from streamgauge.report.compute import SECONDS, compute, compute_figure
from streamgauge.report.failures import FailureFigures, failures
from streamgauge.report.failures import online_answers as online_answers
from streamgauge.report.leaderboard import NEAR_FUTURE, Board, Row
from streamgauge.report.marks import Mark, Marks, find_marks

Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]
NO_CURVE: Curve = (np.empty(0), np.empty(0))
BANDS = "Bands are one standard deviation over seeds."
CLASSES = 8  # rows of the ribbon of labels; the other classes are one more
RIBBON = 128  # stretches of it
MEANS = 128  # points of a curve of training


@dataclass(frozen=True)
class Figures:
    """Everything that is drawn for a board."""

    blind: BlindLevel | None
    verdict: Figure | None
    stream: Figure | None
    ahead: Figure | None
    stays: list[Figure]
    matrices: list[tuple[str, Floats]]  # learner; accuracy on each task (column) after each (row)
    cost: list[Figure]
    fails: FailureFigures
    training: list[Figure]
    class_map: Figure | str | None = None  # or the reason why there is none
    marks: Sequence[Mark] = ()
    bits: Mapping[str, Added] = field(default_factory=dict)  # that answers add, by learner
    sparks: Mapping[str, Sequence[float]] = field(default_factory=dict)  # learner; small curve

    @property
    def accuracy(self) -> list[Figure]:
        every = [self.stream, self.ahead, *self.stays, *self.cost]
        return [figure for figure in every if figure is not None]


@dataclass(frozen=True)
class _Curves:
    """What one run adds to the figures; small, whatever the length of its log."""

    online: Counted | None
    near: Floats
    retained: Counted | None
    matrix: Floats
    training: dict[str, Curve]


_Runs = Sequence[tuple[Row, list[_Curves]]]


def figures(board: Board) -> Figures:
    """All figures that the runs of a board have data for."""
    rows = [row for row in board.rows if row.runs]
    shifts = [int(c.score.removeprefix(NEAR_FUTURE)) for c in board.columns
              if c.score.startswith(NEAR_FUTURE)]  # fmt: skip
    shifts = [0, *shifts]
    known = between(shifts, board.stream["samples"])
    blind = blind_level([run for row in rows for run in row.runs], known)
    runs = [
        (row, [_curves(Run(run.path), row.learner, shifts) for run in row.runs]) for row in rows
    ]
    first = next((Run(run.path) for row in rows for run in row.runs), None)
    marked = marks_of(first, runs) if first else Marks([], "")
    computed = [compute(board), compute(board, SECONDS)]
    stays = [_retained(runs), _average(runs, blind), _forgotten(runs)]
    return Figures(
        blind=blind,
        verdict=verdict_figure(board, blind),
        stream=_stream(runs, blind, first, marked) if first else None,
        marks=marked.marks,
        bits=added_bits(rows),
        ahead=_near_future(runs, blind, shifts),
        stays=[drawn for drawn in stays if drawn is not None],
        training=_training(runs),
        matrices=[
            (row.learner, np.asarray(metrics.spread([c.matrix for c in curves]).mean))
            for row, curves in runs
            if curves[0].matrix.size and len({c.matrix.shape for c in curves}) == 1
        ],
        cost=[compute_figure(each) for each in computed if each is not None],
        fails=failures(rows),
        class_map=class_map(board),
        sparks={row.learner: _spark([c.online for c in of if c.online]) for row, of in runs},
    )


def _curves(run: Run, name: str, shifts: Sequence[int]) -> _Curves:
    online = counted_online(run, name)
    tasks = run.stream["tasks"] > 1 and len(run.evaluations["evaluation"]) > 0
    return _Curves(
        online=online,
        near=metrics.near_future_accuracy(run, shifts) if online else np.empty(0),
        retained=counted_retained(run, name),
        matrix=metrics.accuracy_matrix(run) if tasks else np.empty((0, 0)),
        training={n: scalar_curve(run, n) for n in np.unique(run.training["name"]).tolist()},
    )


def counted_online(run: Run, name: str) -> Counted | None:
    """Right answers along the stream."""
    label, prediction = online_answers(run)
    if not len(label):
        return None
    return counted(name, pair_of(run), label == prediction)


def counted_retained(run: Run, name: str) -> Counted | None:
    """Right answers of the final model on held-out samples, oldest first."""
    if not len(run.answers["evaluation"]):
        return None
    curve = metrics.retention_curve(run)
    so_far = curve.accuracy * np.arange(1, len(curve.accuracy) + 1)
    hits = np.diff(so_far, prepend=0).round()
    return counted(name, pair_of(run), hits, np.asarray(curve.position) + 1, bins=HELD_OUT_BINS)


def _spark(runs: Sequence[Counted]) -> list[float]:
    """Mean accuracy in forty stretches."""
    shares = []
    for run in runs:
        size = -(-len(run.hits) // 40)
        begin = np.arange(0, len(run.hits), size)
        shares.append(np.add.reduceat(run.hits, begin) / np.add.reduceat(run.counts, begin))
    return mean_curve(shares)


def mean_curve(curves: Sequence[Any]) -> list[float]:
    """The mean of small curves; none where their lengths differ."""
    if not curves or len({len(curve) for curve in curves}) > 1:
        return []
    return [round(float(value), 3) for value in np.mean(curves, axis=0)]


def known_points(x: Floats, y: Floats) -> Curve:
    """A curve without its NaN."""
    known = ~(np.isnan(x) | np.isnan(y))
    return x[known], y[known]


def scalar_curve(run: Run, name: str) -> Curve:
    """Means over equal stretches of a scalar that training returned."""
    table = run.training
    rows = np.flatnonzero(table["name"] == name)
    edges = np.unique(np.linspace(0, len(rows), MEANS + 1).round().astype(np.int64))
    count = np.diff(edges)
    x, y = (np.add.reduceat(table[c][rows].astype(np.float64), edges[:-1]) / count
            for c in ("step", "value"))  # fmt: skip
    return x, y


def verdict_figure(
    board: Board,
    blind: BlindLevel | None,
    running: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
) -> Figure | None:
    """Every column that is an accuracy as one row, all on one scale, with the blind level of it.
    Scores of `running` seeds, by learner, are hollow markers."""
    columns = [c for c in board.columns if c.score in SCALED or c.score.startswith(NEAR_FUTURE)]
    going_on = running or {}
    rows = [row for row in board.rows if row.runs or row.learner in going_on]
    if not columns or not rows:
        return None
    texts = [column.title for column in columns]
    names = {row.learner: n for n, row in enumerate(rows)}
    traces = []
    for row in rows:
        # A little below each other, so that equal ones are both seen.
        offset = 0.5 * ((names[row.learner] + 0.5) / len(rows) - 0.5)
        shown = [(n, row.scores[c.score]) for n, c in enumerate(columns) if c.score in row.scores]
        trace = line(
            row.learner,
            [100 * value.mean for _, value in shown],
            [n + offset for n, _ in shown],
            scale=1,
        )
        half = [half_interval(value) for _, value in shown]
        trace |= {"mode": "markers", "hovertemplate": "%{x:.1f}"}
        if any(width == width for width in half):
            pairs = [(h, value.mean) for h, (_, value) in zip(half, shown, strict=True)]
            # Cut at 0 and 100, as in the table.
            above = rounded([100 * min(h, 1 - mean) for h, mean in pairs])
            below = rounded([100 * min(h, mean) for h, mean in pairs])
            trace["error_x"] = {"array": above, "arrayminus": below, "symmetric": False,
                                "thickness": 1.5}  # fmt: skip
        if row.runs:
            traces.append(trace)
        for number, scores in enumerate(going_on.get(row.learner, ())):
            known = [(n, scores[c.score]) for n, c in enumerate(columns) if c.score in scores]
            x, y = [100 * value for _, value in known], [n + offset for n, _ in known]
            hollow = line(row.learner, x, y, scale=1, second=True)
            hovering = {"mode": "markers", "hovertemplate": "%{x:.1f} so far"}
            named = not row.runs and number == 0
            traces.append(hollow | hovering | {"showlegend": named})
    shapes = []
    for n, column in enumerate(columns):
        value = blind_of(blind, column.score)
        if value == value:
            at = 100 * value
            shapes.append({"type": "line", "x0": at, "x1": at, "y0": n - 0.42, "y1": n + 0.42})
    return figure(
        "Online, ahead and retained on one scale",
        "One marker per learner, with its 95 % interval over seeds where there are several. Dotted "
        "in each row: the blind level, which past labels alone reach without a look at any input.",
        traces,
        "accuracy, %",
        "",
        from_zero=False,
        x_axis={"range": [-1, 102]},
        y_axis={**ticks(range(len(texts)), texts), "range": [len(texts) - 0.5, -0.5],
                "showgrid": False, "zeroline": False},
        hovermode="closest",
        showlegend=True,
        shapes=shapes,
    )  # fmt: skip


SCALED = ("online_accuracy", "retained_accuracy", "average_accuracy")
HELD_OUT_BINS = 64


def half_interval(value: metrics.Spread) -> float:
    """Half the width of the 95 % confidence interval of a mean over seeds (Student's t); NaN for
    one seed."""
    if value.seeds < 2 or math.isnan(value.deviation):
        return math.nan
    return float(quantile(0.95, value.seeds - 1) * value.deviation / math.sqrt(value.seeds))


def blind_of(blind: BlindLevel | None, score: str) -> float:
    """The blind level of a score; NaN where it has none."""
    if blind is None:
        return math.nan
    if score == "online_accuracy":
        return blind.at(0)
    if score.startswith(NEAR_FUTURE):
        return blind.at(int(score.removeprefix(NEAR_FUTURE)))
    if score == "retained_accuracy":
        return blind.retained
    if score == "average_accuracy" and len(blind.average):
        return float(blind.average[-1])
    return math.nan


def _stream(runs: _Runs, blind: BlindLevel | None, first: Run, marked: Marks) -> Figure | None:
    series = [curves.online for _, of in runs for curves in of if curves.online]
    if not series:
        return None
    classes, several = _ribbon(first), any(len(of) > 1 for _, of in runs)
    parts = [
        "Share of the newest samples that were answered right before their labels were known; the "
        "width of this window is chosen above.",
        "Below it: each learner minus the baseline, paired over seeds, with a band of 95 % "
        "intervals at each position where there are three seeds or more."
        if len(runs) > 1
        else "",
        "At the bottom: how often the most frequent labels came." if classes else "",
        marked.sentence,
        BANDS if several else "",
    ]
    return moving_figure(
        "Accuracy along the stream",
        " ".join(part for part in parts if part),
        [*series, *(blind.along if blind else ())],
        "samples seen",
        marks=[(m.position, m.text, m.kind, m.key) for m in marked.marks],
        classes=classes,
        difference=len(runs) > 1,
    )


def marks_of(first: Run, runs: _Runs) -> Marks:
    """The marks of the first run's stream, from all runs on it."""
    pair, on_it, curves = pair_of(first), [], []
    for row, several in runs:
        for run, of in zip(row.runs, several, strict=True):
            if pair_of(run) == pair:
                on_it.append((row.learner, Run(run.path)))
                curves += [of.online] if row.sees_input and of.online else []
    return find_marks(first, on_it, curves)


def _ribbon(run: Run) -> dict[str, Any] | None:
    """Shares of the most frequent classes in stretches of the stream."""
    label, _ = online_answers(run)
    count = np.bincount(label)
    if not len(label) or len(count) < 2:
        return None
    chosen = np.argsort(-count, kind="stable")[:CLASSES]
    stretches = min(RIBBON, len(label))
    of = np.arange(len(label)) * stretches // len(label)
    size = np.bincount(of, minlength=stretches)
    shares = [np.bincount(of[label == c], minlength=stretches) / size for c in chosen]
    named = run.stream.get("class_names") or [str(c) for c in range(len(count))]
    texts = [escape(str(named[c])[:16]) for c in chosen]
    if np.count_nonzero(count) > CLASSES:
        shares.append(1 - np.sum(shares, axis=0))
        texts.append("others")
    ends = np.cumsum(size)
    return {
        "x": (ends - size / 2).tolist(),
        "names": texts,
        "shares": [[round(float(v), 3) for v in row] for row in shares],
    }


def _near_future(runs: _Runs, blind: BlindLevel | None, shifts: list[int]) -> Figure | None:
    if len(shifts) < 2:
        return None
    known = blind.shifts if blind is not None else tuple(shifts)
    ticks, axis = shift_axis(known, shifts)
    where = dict(zip(known, ticks.tolist(), strict=True))
    x = np.array([where[shift] for shift in shifts])
    traces = _lines(runs, lambda curves: (x, curves.near), markers=True)
    levels = [] if blind is None else [level(LEVEL, ticks, blind.accuracy)]
    return curve_figure(
        "Near-future accuracy",
        "Samples this far beyond the last one that the model had learnt from, where repetition "
        "from one sample to the next no longer helps. At shift 0 it is online accuracy. The axis "
        "is logarithmic with a true 0; learners are joined by lines where they were asked at three "
        "shifts or more. The blind level needs labels alone and is drawn between them, too. "
        f"{BANDS}",
        [*traces, *levels],
        "shift, in samples",
        x_axis={**axis, "range": [-0.15, float(ticks.max()) * 1.02]},
        meta={"shifts": True},
    )


def _retained(runs: _Runs) -> Figure | None:
    series = [curves.retained for _, of in runs for curves in of if curves.retained]
    if not series:
        return None
    return moving_figure(
        "Retained accuracy by age of the sample",
        "The final model on held-out samples, from the beginning of the stream (oldest, left) to "
        f"its end (newest, right), in the window chosen above. {BANDS}",
        series,
        "position in the stream, in samples",
    )


def _forgotten(runs: _Runs) -> Figure | None:
    """How much of the best accuracy on each task is lost at the end."""

    def lost(curves: _Curves) -> Curve:
        if len(curves.matrix) < 2:
            return NO_CURVE
        with np.errstate(invalid="ignore"):
            best = np.nanmax(np.where(np.isnan(curves.matrix), -1, curves.matrix)[:-1], axis=0)
        tasks = np.arange(1.0, len(curves.matrix))
        return tasks, (best - curves.matrix[-1])[:-1]

    return curve_figure(
        "Forgetting of each task",
        "The best accuracy that a task had before the last one was learnt, minus its accuracy at "
        f"the end; below 0, it rose. {BANDS}",
        _lines(runs, lost, markers=True),
        "task",
        "points lost",
        whole=True,
    )


def _average(runs: _Runs, blind: BlindLevel | None) -> Figure | None:
    def after(curves: _Curves) -> Curve:
        tasks = np.arange(1, len(curves.matrix) + 1, dtype=np.float64)
        return tasks, metrics.average_accuracy(curves.matrix) if len(tasks) else np.empty(0)

    traces = _lines(runs, after, markers=True)
    levels = []
    if blind is not None and len(blind.average):
        levels = [level(LEVEL, np.arange(1, len(blind.average) + 1), blind.average)]
    return curve_figure(
        "Average accuracy after each task",
        "Held-out samples of the tasks so far, every task counting the same. The blind level is "
        f"the most frequent label so far. {BANDS}",
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
    second: bool = False,
) -> list[Trace]:
    """A line and a band for each name: mean and one standard deviation over seeds. Where the curves
    of seeds have points at different positions (as held-out samples do), the n-th point of each is
    averaged. A `second` line of a name is dotted."""
    traces: list[Trace] = []
    for name, curves in named:
        seeds = [(x, y) for x, y in curves if len(x)]
        if not seeds:
            continue
        fewest = min(len(x) for x, _ in seeds)
        x = np.mean([_resampled(x, fewest) for x, _ in seeds], axis=0)
        y = metrics.spread([_resampled(y, fewest) for _, y in seeds])
        deviation = y.deviation if len(seeds) > 1 else None
        if deviation is not None and fewest >= FEWEST:
            low, high = y.mean - deviation, y.mean + deviation
            traces.append(band(x, low, high, name, scale=scale))
        traces.append(
            line(name, x, y.mean, scale=scale, deviation=deviation, markers=markers, second=second)
        )
    return traces


def _resampled(values: Floats, count: int) -> Floats:
    return np.interp(np.linspace(0, len(values) - 1, count), np.arange(len(values)), values)


def curve_figure(
    title: str, caption: str, traces: list[Trace], *axes: str, **more: Any
) -> Figure | None:
    """A figure; None where there is no curve next to a level to compare with."""
    if all(trace["meta"]["role"] == "level" for trace in traces):
        return None
    return figure(title, caption, traces, *axes, **more)


FIFTHS = ("0 to 20 %", "20 to 40 %", "40 to 60 %", "60 to 80 %", "80 to 100 %")


def class_map(board: Board) -> Figure | str | None:
    """The map; None if classes are no cells; a sentence if the cells cannot be drawn."""
    cells = cells_named(board.stream.get("class_names"))
    if cells is None:
        return None
    texts = [[f"class {number}"] for number in range(len(cells))]
    shown = next((row for row in board.rows if row.runs and row.sees_input), None)
    level = [-1] * len(cells)
    rows = [row for row in board.rows if row.runs]
    for row in rows:
        label, prediction = online_answers(row.runs[0])
        count = np.bincount(label, minlength=len(cells))
        hits = np.bincount(label, label == prediction, len(cells))
        if row is shown:
            share = np.divide(hits, count, out=np.full(len(cells), np.nan), where=count > 0)
            level = [-1 if v != v else min(4, int(len(FIFTHS) * v)) for v in share.tolist()]
        for number, text in enumerate(texts):
            if row is rows[0]:
                text.append(f"{count[number]:,} samples")
            if count[number]:
                text.append(f"{escape(row.learner)}: {hits[number] / count[number]:.1%} right")
    try:
        return cell_map(
            "Where the classes are" if shown is None else f"Where {shown.learner} is right",
            "Each outline is an S2 cell, one class; the stronger the colour, the more online "
            "answers to it are right (first seed). Point at its centre for the accuracy of each "
            "learner. There are no coasts and borders: the plotting library has none that work "
            "without a network.",
            cells,
            [cell_text(cell, *text) for cell, text in zip(cells, texts, strict=True)],
            level,
            FIFTHS,
        )
    except StreamgaugeError as error:
        return f"The classes are S2 cells, but there is no map. {error}"
