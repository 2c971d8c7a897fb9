"""The papers' figures from stored runs. A suite lists its figures by name; each is a function here.

A figure shows the rows that have complete runs; the page names the missing ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge import catalogue, metrics
from streamgauge.audit import blind_accuracy
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.metrics.log import classes_seen
from streamgauge.pages import Block, Figure, Page, Section, Text
from streamgauge.pages.figures import (
    Counted,
    moving_figure,
    share_axes,
    shift_axis,
    thin,
    ticks,
)
from streamgauge.record import Run
from streamgauge.report.blind import pair_text
from streamgauge.report.failures import online_answers
from streamgauge.report.figures import (
    BANDS,
    NO_CURVE,
    Curve,
    counted_online,
    counted_retained,
    curve_figure,
    known_points,
    mean_lines,
    scalar_curve,
)
from streamgauge.report.leaderboard import UNSEEING
from streamgauge.report.marks import Marks, find_marks
from streamgauge.report.page import stream_text
from streamgauge.suites.comparing import table
from streamgauge.suites.dumbbells import published_section
from streamgauge.suites.measured import first_score, from_runs, run_scores
from streamgauge.suites.running import find, plan_rows
from streamgauge.suites.spec import GENERATED, Row, Suite

Floats = NDArray[np.float64]
Figures = Iterator[Figure | None]
NEAR = 60  # evaluations on each side of a task change, in a close-up
WINDOWS = (1, 2, 5, 10, 20, 50, 100, 250, 1000)


@dataclass(frozen=True)
class PartRuns:
    """A part of a suite: its rows with complete runs, and these runs."""

    name: str
    rows: Sequence[tuple[Row, Sequence[Run]]]

    @property
    def runs(self) -> list[Run]:
        return [run for _, runs in self.rows for run in runs]

    def curves(self, curve: Callable[[Run], Curve]) -> list[tuple[str, list[Curve]]]:
        return [(row.name, [curve(Run(run.path)) for run in runs]) for row, runs in self.rows]

    def moving(
        self, title: str, caption: str, count: Callable[[Run, str], Counted | None], x_title: str
    ) -> Figure | None:
        """Accuracy in a moving window, one line per row."""
        counts = [count(Run(run.path), row.name) for row, runs in self.rows for run in runs]
        known = [each for each in counts if each is not None]
        if not known:
            return None
        marked = self.marks() if count is counted_online else Marks([], "")
        return moving_figure(
            title,
            f"{caption} {marked.sentence}".strip(),
            known,
            x_title,
            marks=[(m.position, m.text, m.kind, m.key) for m in marked.marks],
        )

    def marks(self) -> Marks:
        """Tasks, changes of labels, falls of accuracy and reported drift on the first run's
        stream."""
        first, on_it, curves = self.runs[0], [], []
        for row, runs in self.rows:
            for run in runs:
                if pair_text(run) == pair_text(first):
                    on_it.append((row.name, Run(run.path)))
                    seen = None if row.method in UNSEEING else counted_online(run, row.name)
                    curves += [seen] if seen else []
        return find_marks(Run(first.path), on_it, curves)

    def figure(
        self,
        title: str,
        caption: str,
        curve: Callable[[Run], Curve],
        *axes: str,
        dotted: Callable[[Run], Curve] | None = None,
        dotted_name: str = "",
        markers: bool = False,
        scale: float = 100.0,
        **more: Any,
    ) -> Figure | None:
        """One line per row: the mean over seeds of a curve of each run. A second, dotted one has
        the same colour, and one entry in the legend for both."""
        traces = mean_lines(self.curves(curve), markers, scale)
        names = {trace["name"] for trace in traces if "name" in trace}
        second = mean_lines(self.curves(dotted), scale=scale, second=True) if dotted else []
        for trace in second:
            if trace["legendgroup"] in names:
                trace["showlegend"] = False
            if "name" in trace:
                trace["name"] = f"{trace['name']}, {dotted_name}"
        return curve_figure(title, caption, [*traces, *second], *axes, **more)


def write_figures(suite: Suite, runs: Iterable[Run], path: str | Path) -> Path:
    """Write all figures of a suite that these runs have data for to one HTML file."""
    runs = list(runs)
    seeds = sorted({run.seed for run in runs})
    stored = find(plan_rows(suite.rows, seeds or [0]), runs)
    # The papers' figures are of their code; a second curve for every method would hide them.
    rows = [row for row in suite.rows if not row.defined]
    complete = {row.key: stored.of(row) for row in rows}
    parts = [
        PartRuns(name, [(r, complete[r.key]) for r in rows if r.part == name and complete[r.key]])
        for name in suite.parts
    ]
    parts = [part for part in parts if part.rows]
    if not parts:
        raise StreamgaugeError(
            f"There are no complete runs of the suite {suite.name} here: run it first, with "
            f"`streamgauge suite run {suite.name}{' --generated' if suite.generated else ''}`."
        )
    for name in suite.figures:
        if name not in FIGURES:
            raise StreamgaugeError(f"There is no figure '{name}'; {nearest(name, FIGURES)}")
    within = [WITHIN[name] for name in suite.figures if name in WITHIN]
    across = [ACROSS[name] for name in suite.figures if name in ACROSS]
    sections = [
        *((part.name, [figure for draw in within for figure in draw(part)]) for part in parts),
        ("Over all parts" if len(parts) > 1 else "", [f for draw in across for f in draw(parts)]),
    ]
    blocks: list[Block] = [suite.what, *map(Text, suite.notes)]
    if suite.generated:
        streams = {json.dumps(run.stream["settings"], default=str): run.stream
                   for part in parts for run in part.runs[:1]}  # fmt: skip
        texts = [f"On generated data: {stream_text(stream)}." for stream in streams.values()]
        blocks += [Text(text) for text in texts[:STREAMS]]
    missing = [row.title for row in rows if not complete[row.key]]
    if missing:
        blocks.append(Text(f"Without complete runs, and so not drawn: {'; '.join(missing)}."))
    blocks.append(Text(BANDS))
    shown = [(name, [f for f in figures if f is not None]) for name, figures in sections]
    share_axes([figure for _, figures in shown for figure in figures])
    # A part may be named by the data that generated ones stand for.
    instead = ", on generated data" if suite.what == GENERATED else ""
    blocks += [Section(name and f"{name}{instead}", figures) for name, figures in shown if figures]
    if not suite.generated:
        section = published_section(table(suite, from_runs(suite, runs)))
        blocks += [section] if section else []
    title = suite.title + (" (generated data)" if suite.generated else "")
    names = list(dict.fromkeys(row.name for part in parts for row, _ in part.rows))
    grey = {row.name for part in parts for row, _ in part.rows if row.method in UNSEEING}
    return Page("Streamgauge suite", title, blocks, learners=names, grey=grey).write(path)


STREAMS = 3  # that a page describes
ROLLING = 10  # evaluations, in the survey's Figure 2


def continual(part: PartRuns) -> Figures:
    """Figure 2 of the survey as drawn there, and accuracy over the tasks so far."""

    def curve(run: Run) -> Curve:
        acc, _, step = _continual(run)
        if not len(acc):
            return _overall(run)
        with np.errstate(invalid="ignore"):
            return thin(step, np.nanmean(acc, axis=1))

    def as_drawn(run: Run) -> Curve:
        acc, task, step = _continual(run)
        if not len(acc):
            return NO_CURVE
        with np.errstate(invalid="ignore"):
            scaled = np.nanmean(acc, axis=1) * (task + 1) / run.stream["tasks"]
        smooth = np.convolve(scaled, np.full(ROLLING, 1 / ROLLING), "valid")
        return thin(step[ROLLING - 1 :], smooth)

    yield part.figure(
        "Continual accuracy, as the survey's Figure 2",
        "Accuracy on the tasks so far times their share of all tasks, mean of the last ten "
        "evaluations: what a learner knows of everything that will come.",
        as_drawn,
        "steps",
    )
    yield part.figure(
        "Continual accuracy",
        "Held-out samples of the tasks so far, every task counting the same, along the stream.",
        curve,
        "steps",
    )


def _continual(run: Run) -> tuple[Floats, NDArray[Any], NDArray[Any]]:
    table = run.evaluations
    if "task" not in table or not len(table["task"]) or np.max(table["task"]) < 0:
        return np.empty((0, 0)), np.empty(0), np.empty(0)
    acc, task, step = metrics.continual_accuracy(run)
    known = ~np.isnan(acc).all(axis=1)
    return acc[known], task[known], step[known]


def _overall(run: Run) -> Curve:
    """A stream without tasks: accuracy on all held-out samples at each evaluation."""
    table = run.evaluations
    names, counts = np.unique(table["split"], return_counts=True)
    splits = [(count, name) for name, count in zip(names, counts, strict=True) if name != "probe"]
    if not splits:
        return NO_CURVE
    rows = np.flatnonzero(table["split"] == max(splits)[1])
    if "within" in table:
        rows = rows[table["within"][rows] < 0]
    step, position = np.unique(table["step"][rows], return_inverse=True)
    correct = np.bincount(position, weights=table["correct"][rows])
    return step.astype(np.float64), correct / np.bincount(position, weights=table["count"][rows])


def forgetting(part: PartRuns) -> Figures:
    """Figure 3, left: forgetting (full) and cumulative forgetting (dotted), after each task."""
    yield part.figure(
        "Forgetting",
        "Full: accuracy lost on each earlier task since it was learnt. Dotted: cumulative "
        "forgetting, which leaves out the effect of more classes to choose from; below 0, "
        "accuracy on earlier tasks rose.",
        lambda run: _by_task(run, lambda a, _: metrics.average_forgetting(a, "first", "all")),
        "tasks learnt",
        "forgetting, %",
        dotted=lambda run: _by_task(run, lambda _, b: metrics.cumulative_forgetting(b, "first")),
        dotted_name="cumulative",
        scale=1.0,
        whole=True,
    )


def _by_task(run: Run, value: Callable[[Floats, Floats], Floats], scale: float = 100.0) -> Curve:
    if run.stream["tasks"] < 2 or not len(run.evaluations["evaluation"]):
        return NO_CURVE
    a = metrics.accuracy_matrix(run)
    if np.isnan(np.diag(a)).any():  # not evaluated after each task
        return NO_CURVE
    values = scale * value(a, metrics.cumulative_matrix(run))
    return known_points(np.arange(1.0, len(values) + 1), values)


def zoom(part: PartRuns) -> Figures:
    """Figure 3, middle: tasks 1 to 4 (dotted) and task 5, around the beginning of task 5."""

    def around(run: Run, old: bool) -> Curve:
        acc, task, step = _continual(run)
        change = np.flatnonzero(task == 4)
        if not change.size:
            return NO_CURVE
        start = int(change[0])
        chosen = slice(max(0, start - NEAR), start + NEAR)
        with np.errstate(invalid="ignore"):
            value = acc[chosen, :4].mean(axis=1) if old else acc[chosen, 4]
        return known_points(step[chosen].astype(np.float64) - float(step[start - 1]), value)

    chosen = [(row, runs) for row, runs in part.rows if row.name in ("ER", "SCR")] or part.rows
    yield PartRuns(part.name, chosen).figure(
        "From task 4 to task 5",
        "Dotted: held-out samples of the four tasks before. Full: those of the new task.",
        lambda run: around(run, False),
        "steps since the new task began",
        dotted=lambda run: around(run, True),
        dotted_name="tasks 1 to 4",
    )


def online(part: PartRuns) -> Figures:
    """Online accuracy along the stream."""
    caption = (
        "Share of the newest samples that were answered right before they were learnt, in the "
        "window chosen above."
    )
    yield part.moving("Online accuracy", caption, counted_online, "samples")


def transfer(part: PartRuns) -> Figures:
    """Backward transfer at H, and forward transfer at H/3 and 2H/3 (CLOC, equations 2 and 3)."""

    def at(share: float, of: Callable[..., Any]) -> Callable[[Run], Curve]:
        def curve(run: Run) -> Curve:
            if not len(run.answers["evaluation"]):
                return NO_CURVE
            (points,) = of(run, at=[share])
            # The first points are means of one or two answers.
            return thin(points.lag[9:], points.accuracy[9:]) if len(points.lag) > 9 else NO_CURVE

        return curve

    for position, share in (("the end", 1.0), ("2H/3", 2 / 3), ("H/3", 1 / 3)):
        title, text = f"transfer at {position}", "Held-out samples up to this many samples"
        curve = at(share, metrics.backward_transfer_curve)
        yield part.figure(f"Backward {title}", f"{text} before it.", curve, "samples back")
        if share < 1:
            curve = at(share, metrics.forward_transfer_curve)
            yield part.figure(f"Forward {title}", f"{text} after it.", curve, "samples on")


def shift(part: PartRuns) -> Figures:
    """Near-future accuracy over the shift."""

    def curve(run: Run) -> Curve:
        shifts = np.unique(run.predictions["shift"]).astype(np.int64)
        if len(shifts) < 2:
            return NO_CURVE
        asked.update(shifts.tolist())
        return np.log2(1.0 + shifts), metrics.near_future_accuracy(run, [int(s) for s in shifts])

    asked: set[int] = set()
    drawn = part.figure(
        "Near-future accuracy",
        "At shift 0 online accuracy; at larger shifts the same samples, asked that much earlier. "
        "Fewer than three shifts are not joined by lines.",
        curve,
        "shift, in samples",
        markers=True,
    )
    if drawn is not None:
        drawn.layout["xaxis"] |= shift_axis(sorted(asked))[1]
    yield drawn


def retention(part: PartRuns) -> Figures:
    """Accuracy of the final model along the stream, and over online and near-future accuracy."""
    caption = (
        "The final model on held-out samples by their age: from the beginning of the stream "
        "(oldest, left) to its end, in the window chosen above."
    )
    yield part.moving("Retention by age of the sample", caption, counted_retained, "samples")
    for title, name in (("online", "online_accuracy"), ("near-future", "near_future_accuracy@")):
        yield _against(part, title, name)


def _against(part: PartRuns, title: str, score: str) -> Figure | None:
    def point(run: Run) -> Curve:
        scores = run_scores(run)
        x = next((v for k, v in scores.items() if k == score or k.startswith(score)), np.nan)
        y = scores.get("retained_accuracy", np.nan)
        return known_points(np.array([100 * x]), np.array([y]))

    traces = mean_lines(part.curves(point), markers=True)
    return curve_figure(
        f"Retention against {title} accuracy",
        "One point per method: further right adapts better, higher retains more.",
        [
            {**trace, "mode": "markers", "meta": trace["meta"] | {"role": "point"}}
            for trace in traces
            if trace["meta"]["role"] != "band"
        ],
        f"{title} accuracy, %",
        "retention, %",
    )


def training(part: PartRuns) -> Figures:
    """Scalars that learners report: learning rate, size of memory, loss."""
    for name in sorted({str(n) for run in part.runs for n in np.unique(run.training["name"])}):
        curve = partial(scalar_curve, name=name)
        caption, axes = "As the learners report it, in means over stretches.", ("step", name)
        yield part.figure(f"Training: {name}", caption, curve, *axes, scale=1.0, from_zero=False)


def sensitivity(part: PartRuns) -> Figures:
    """Accuracy over the one setting in which the rows of a part differ."""
    for setting in ("lr", "weight_decay"):
        values: list[Any] = [getattr(_config(row), setting, None) for row, _ in part.rows]
        methods = {row.method for row, _ in part.rows}
        if len(methods) == 1 and len(set(values)) == len(values) > 1:
            ordered = sorted(
                zip(map(float, values), part.rows, strict=True), key=lambda pair: pair[0]
            )
            named = []
            for column in part.rows[0][0].columns:
                each = [
                    [first_score(run, row.columns.get(column, ())) for run in runs]
                    for _, (row, runs) in ordered
                ]
                named.append((column, _by_seed(np.arange(len(each)), each)))
            texts = [f"{value:g}" for value, _ in ordered]
            yield _over_settings(f"Sensitivity to {setting}", "", named, setting, texts)
            return


def _over_settings(
    title: str, caption: str, named: Any, setting: str, values: Sequence[str]
) -> Figure | None:
    axis = ticks(range(len(values)), values)
    return curve_figure(title, caption, mean_lines(named, markers=True), setting, x_axis=axis)


def _config(row: Row) -> Any:
    settings = {
        k.removeprefix("learner."): v for k, v in row.settings.items() if k.startswith("learner.")
    }
    return catalogue.learner(row.method, **settings).config


def _by_seed(x: NDArray[Any], each: Sequence[Sequence[float]]) -> list[Curve]:
    """Curves over rows from the values of each row: one per seed if all rows have equally many
    seeds, else one curve of means, so that no seed is left out."""
    if len({len(values) for values in each}) > 1:
        each = [[float(np.mean(values))] for values in each]
    return [(x.astype(np.float64), np.array(values)) for values in zip(*each, strict=True)]


def places(part: PartRuns) -> Figures:
    """Figure 8, right, of CLOC: distance between a photo and the predicted location."""
    grid = np.concatenate([[0.1], np.logspace(0, np.log10(20_037), 120)])

    def curve(run: Run) -> Curve:
        config = run.header["config"]["stream"]
        settings = json.dumps(config["settings"], sort_keys=True)
        locations = _locations(config["origin"], settings)
        if locations is None:
            return NO_CURVE
        location, centre = locations
        table = run.predictions
        rows = np.flatnonzero(table["shift"] == 0)
        sample, predicted = location[table["sample"][rows]], centre[table["prediction"][rows]]
        return np.log10(grid), metrics.geolocation_error(sample, predicted, grid.tolist()).within

    marks = [1, 25, 200, 750, 2500, 20_000]
    yield part.figure(
        "Error of the predicted location",
        "Share of the photos whose predicted location, the centre of the class, is at most "
        "this far away.",
        curve,
        "distance, km",
        x_axis=ticks(np.log10(marks), [str(mark) for mark in marks]),
    )


@lru_cache(maxsize=4)
def _locations(stream: str, settings: str) -> tuple[Floats, Floats] | None:
    """Location of each sample and mean location of each class, from the stream itself."""
    try:
        source = catalogue.stream(stream, **json.loads(settings)).source
    except StreamgaugeError:
        return None
    if "latitude" not in source.columns:
        return None
    location = np.stack([source.columns["latitude"], source.columns["longitude"]], axis=1)
    centre = np.zeros((source.spec.classes, 2))
    for c in np.unique(source.label):
        centre[c] = location[source.label == c].mean(axis=0)
    return location.astype(np.float64), centre


def blind(parts: Sequence[PartRuns]) -> Figures:
    """Figure 2 of the near-future paper: labels alone, over windows and shifts."""
    streams: dict[str, dict[str, Run]] = {}  # name of a stream -> its order -> a run
    for run in (run for part in parts for run in part.runs):
        streams.setdefault(run.stream["name"], {}).setdefault(run.stream["order_hash"], run)
    for name, runs in streams.items():
        labels = [online_answers(run)[0] for run in runs.values()]
        labels = [label for label in labels if len(label) > 2 * WINDOWS[0]]
        if not labels:
            continue
        shortest = min(map(len, labels))
        windows = [w for w in WINDOWS if w <= shortest // 10] or [1]
        shifts = [0, *(2**n for n in range(1, 18) if 2**n <= shortest // 4)]
        each = [blind_accuracy(label, windows, shifts) for label in labels]
        x = np.arange(len(shifts), dtype=np.float64)
        yield _over_settings(
            f"The blind classifier on {name}",
            "The most frequent of the last labels, with every earlier label known: how far "
            "ahead recent labels help.",
            [(f"window {w}", [(x, level[n]) for level in each]) for n, w in enumerate(windows)],
            "shift, in samples",
            [str(s) for s in shifts],
        )


def memory(parts: Sequence[PartRuns]) -> Figures:
    """Figure 3, right, of the survey: final accuracy over the size of memory."""
    sizes = [float(getattr(_config(part.rows[0][0]), "memory", np.nan)) for part in parts]
    order = sorted(range(len(parts)), key=lambda n: sizes[n])
    named = []
    for name in ("ER", "i.i.d.", "GDumb"):
        rows = [{row.name: runs for row, runs in parts[n].rows}.get(name, ()) for n in order]
        present = [position for position, runs in enumerate(rows) if runs]
        score = ("retained_accuracy",)
        each = [[first_score(run, score) for run in rows[position]] for position in present]
        named.append((name, _by_seed(np.array(present), each)))
    title, caption = "Accuracy over the size of memory", "After the last task, on the test set."
    texts = [f"{sizes[n]:.0f}" for n in order]
    yield _over_settings(title, caption, named, "samples in memory", texts)


def rescaled(part: PartRuns) -> Figures:
    """Figures 3 and 4 of the metrics paper: plain (full) and rescaled (dotted)."""
    # Accuracies are scaled where they are drawn, which keeps their bands within 0 and 100 %.
    for name, plain, by_chance, scale in (
        ("accuracy", metrics.average_accuracy, metrics.rescaled_accuracy, 1.0),
        ("forgetting", metrics.average_forgetting, metrics.rescaled_forgetting, 100.0),
    ):

        def full(run: Run, plain: Any = plain, scale: float = scale) -> Curve:
            return _by_task(run, lambda a, _: plain(a), scale)

        def dotted(run: Run, by_chance: Any = by_chance, scale: float = scale) -> Curve:
            return _by_task(run, lambda a, _: by_chance(a, np.asarray(classes_seen(run))), scale)

        yield part.figure(
            f"Average and rescaled {name}",
            "Dotted: rescaled by what a random guess over the classes so far would get.",
            full,
            "tasks learnt",
            f"{name}, %",
            dotted=dotted,
            dotted_name="rescaled",
            scale=100.0 / scale,
            whole=True,
        )


def coefficients(part: PartRuns) -> Figures:
    """Figure 2 of the metrics paper: the factors of accuracy and forgetting."""
    classes = classes_seen(Run(part.runs[0].path))
    if classes is None or len(classes) < 2:
        return
    task = np.arange(1.0, len(classes) + 1)
    chance = metrics.random_forgetting(classes)
    named = [
        ("accuracy", [(task, classes / classes[-1])]),
        ("forgetting", [known_points(task, np.nanmin(chance) / chance)]),
    ]
    yield curve_figure(
        "Coefficients of the rescaled metrics",
        "After each task; both end at 1 where tasks have equally many classes.",
        mean_lines(named, scale=1.0, markers=True),
        "tasks learnt",
        "",
        from_zero=False,
        whole=True,
    )


_WITHIN = (
    continual, forgetting, zoom, online, transfer, shift, retention, training, sensitivity, places,
    rescaled, coefficients,
)  # fmt: skip
# Figures by name: of every part, and over all parts.
WITHIN: dict[str, Callable[[PartRuns], Figures]] = {draw.__name__: draw for draw in _WITHIN}
ACROSS: dict[str, Callable[[Sequence[PartRuns]], Figures]] = {"blind": blind, "memory": memory}
FIGURES = (*WITHIN, *ACROSS)
