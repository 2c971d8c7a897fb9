"""Who did how well on which stream: plain data, from which text and HTML are made alike."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from streamgauge.metrics import Spread, score, spread
from streamgauge.record import PLACES, Run
from streamgauge.report.ties import NEAR_FUTURE as NEAR_FUTURE
from streamgauge.report.ties import NO_TIES, Ties, ties

# Settings of a stream in which the runs of one row may differ.
SEEDS = ("seed", "order_seed", "class_seed", "split_seed")
# Streams whose name says nothing of their data: the content tells them apart, wherever it lies.
OWN_DATA = frozenset(
    {"arrays", "folder", "huggingface", "manifest", "packed", "tabular", "webdataset"}
)
# How the protocol times learning and labels unless it is told otherwise.
TIMING = {
    "cost": "1",
    "costs": [],
    "predict_cost": "0",
    "busy": "drop",
    "preempt": False,
    "label_delay": 0,
}
# Of these, what belongs to a learner: methods that cost differently meet on one board.
COSTS = ("cost", "costs")
# Built-in learners that never look at an input, for runs that do not say it themselves.
UNSEEING = ("blind", "majority", "random")
NOTE = "Accuracies in %, mean ± sample deviation over seeds."


@dataclass(frozen=True)
class Column:
    score: str  # its name among the scores
    title: str


@dataclass(frozen=True)
class Row:
    """A learner with its settings. Only complete runs are in the scores."""

    learner: str
    needs: tuple[str, ...]
    sees_input: bool
    runs: tuple[Run, ...]
    incomplete: tuple[Run, ...]
    scores: Mapping[str, Spread]
    each: tuple[Mapping[str, float], ...] = ()  # the scores of each of `runs`

    @property
    def seeds(self) -> str:
        left_out = f" + {len(self.incomplete)} incomplete" if self.incomplete else ""
        return f"{len(self.runs)}{left_out}"


@dataclass(frozen=True)
class Board:
    """Learners that were measured on one stream in one way. `stream` is what the first run knows
    of it, `timing` a sentence where the protocol's is not the ordinary one."""

    title: str
    stream: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    ordered_by: str
    timing: str = ""
    ties: Ties = NO_TIES

    @property
    def left_out(self) -> list[str]:
        """A sentence for every run that is not in the means."""
        return [
            f"{row.learner}, seed {run.seed}, is incomplete (step {run.step} of "
            f"{run.stream['steps']}) and left out of the means."
            for row in self.rows
            for run in row.incomplete
        ]


def leaderboard(runs: Iterable[Run]) -> list[Board]:
    """One board a stream (name, settings but for seeds, protocol but for costs), one row a learner
    (name, settings, code, device, engine, cost of its jobs). A run that is given twice counts once,
    the copy that is furthest."""
    # The name is no part of the id: one learner may run under two.
    in_order = sorted(runs, key=lambda run: (run.done, run.step))
    distinct = {(run.id, run.learner): run for run in in_order}.values()
    groups = _grouped(distinct, _stream_key)
    titles = told_apart(
        [(run.stream["name"], _stream_key(run) | _places(run)) for run, *_ in groups]
    )
    return [_board(title, group) for title, group in zip(titles, groups, strict=True)]


def percent(value: Spread | None) -> str:
    """
    >>> percent(Spread(0.5764, 0.0031, 3)), percent(Spread(0.5764, math.nan, 1)), percent(None)
    ('57.6 ± 0.3', '57.6', '–')
    """
    if value is None or math.isnan(value.mean):
        return "–"
    mean = round(100 * value.mean, 1) + 0.0  # so that -0.0 is written 0.0
    return f"{mean:.1f}" + (
        "" if math.isnan(value.deviation) else f" ± {100 * value.deviation:.1f}"
    )


def told_apart(named: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Names, followed by the details in which those of the same name differ.

    >>> told_apart([("er", {"lr": 0.1, "memory": 9}), ("er", {"lr": 0.2, "memory": 9}), ("x", {})])
    ['er (lr=0.1)', 'er (lr=0.2)', 'x']
    """
    labels = []
    for name, details in named:
        others = [other for same, other in named if same == name]
        differing = [
            f"{key}={value}"
            for key, value in details.items()
            if any(other.get(key) != value for other in others)
        ]
        labels.append(f"{name} ({', '.join(differing)})" if differing else name)
    return labels


def _stream_key(run: Run) -> dict[str, Any]:
    left_out = {*SEEDS, *_places(run)}
    settings = {k: v for k, v in run.stream["settings"].items() if k not in left_out}
    protocol = run.header["config"]["protocol"]
    key = {"name": run.stream["name"], **settings}
    key |= {f"protocol.{name}": value for name, value in protocol.items() if name not in COSTS}
    if _is_own(run):
        key["data"] = run.stream["data_hash"][:6]
    return key


def _places(run: Run) -> dict[str, Any]:
    """Where one's own data lie: said in a title, but no reason for a board."""
    settings = run.stream["settings"] if _is_own(run) else {}
    return {k: v for k, v in settings.items() if k in PLACES}


def _is_own(run: Run) -> bool:
    # Features are of a network, too, which may be another for each seed.
    known = {run.stream["name"], run.header["config"].get("stream", {}).get("origin")}
    return bool(known & OWN_DATA) and "features" not in run.stream["settings"]


def _learner_key(run: Run) -> dict[str, Any]:
    config = run.header["config"]
    learner, protocol = config["learner"], config["protocol"]
    engine = config.get("engine", {"name": "eager"})
    rest = {f"protocol.{name}": str(protocol.get(name, TIMING[name])) for name in COSTS}
    rest |= {"code": learner["code"][:6], "device": config["device"]}
    rest["engine"] = " ".join(map(str, engine.values()))
    return {"name": learner["name"], **learner["settings"], **rest}


def _grouped(runs: Iterable[Run], key: Any) -> list[list[Run]]:
    def text(run: Run) -> str:
        return json.dumps(key(run), sort_keys=True, default=str)

    return [list(group) for _, group in groupby(sorted(runs, key=text), key=text)]


def _board(title: str, runs: Iterable[Run]) -> Board:
    groups = _grouped(runs, _learner_key)
    names = told_apart([(run.learner, _learner_key(run)) for run, *_ in groups])
    rows = [_row(name, group) for name, group in zip(names, groups, strict=True)]
    found = {name for row in rows for name in row.scores}
    columns = _columns(found)
    # The number that is hardest to get by repeating recent labels decides the order.
    shifts = [c.score for c in columns if c.score.startswith(NEAR_FUTURE)]
    candidates = [*shifts[-1:], "average_accuracy", "retained_accuracy", "online_accuracy"]
    order = next((name for name in candidates if name in found), "")

    def height(row: Row) -> float:
        mean = row.scores[order].mean if order in row.scores else math.nan
        return math.inf if math.isnan(mean) else -mean

    rows.sort(key=height)
    by = next((c.title for c in columns if c.score == order), "")
    timing = _timing([(row.learner, (*row.runs, *row.incomplete)[0]) for row in rows])
    tied = ties(rows, order, by)
    return Board(title, groups[0][0].stream, columns, tuple(rows), by, timing, tied)


def _timing(learners: Sequence[tuple[str, Run]]) -> str:
    """What is not the ordinary timing: of all learners, and of each where they differ."""
    told, differing = [], []
    for name, ordinary in TIMING.items():
        values = [run.header["config"]["protocol"].get(name, ordinary) for _, run in learners]
        shown = [",".join(value) if isinstance(value, list) else str(value) for value in values]
        if len(set(shown)) > 1:
            each = (
                f"{who} {value or '–'}" for (who, _), value in zip(learners, shown, strict=True)
            )
            differing.append(f"protocol.{name} by learner: {', '.join(each)}")
        elif str(values[0]) != str(ordinary):
            told.append(f"protocol.{name}={shown[0]}")
    sentences = [f"Timing is not the ordinary one: {', '.join(told)}."] if told else []
    return " ".join([*sentences, *(f"{text}." for text in differing)])


def _row(name: str, runs: list[Run]) -> Row:
    done = sorted((run for run in runs if run.done), key=lambda run: run.seed)
    # Scored through a reader of its own, so that no more than one log is in memory.
    scores = [score(Run(run.path)) for run in done]
    names = dict.fromkeys(key for one in scores for key in one)
    learner = runs[0].header["config"]["learner"]
    return Row(
        learner=name,
        needs=tuple(learner["needs"]),
        sees_input=bool(learner.get("sees_input", learner["where"] not in UNSEEING)),
        runs=tuple(done),
        incomplete=tuple(run for run in runs if not run.done),
        scores={key: spread([one.get(key, math.nan) for one in scores]) for key in names},
        each=tuple(scores),
    )


def _columns(found: set[str]) -> tuple[Column, ...]:
    shifts = sorted(int(name.removeprefix(NEAR_FUTURE)) for name in found if NEAR_FUTURE in name)
    wanted = [
        Column("online_accuracy", "online"),
        *(Column(f"{NEAR_FUTURE}{s}", f"near future, {s} ahead") for s in shifts),
        Column("retained_accuracy", "retained"),
        Column("average_accuracy", "average over tasks"),
        Column("average_forgetting", "forgetting"),
    ]
    return tuple(column for column in wanted if column.score in found)
