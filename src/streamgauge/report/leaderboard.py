"""Leaderboards: the scores of learners on a stream, as data for text and HTML, and which learners
cannot be told apart from the best."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.metrics import Spread, score, spread
from streamgauge.metrics.compare import BLOCKS, compare
from streamgauge.metrics.compare import leaderboard as compare_all
from streamgauge.record import PATH_SETTINGS, Run
from streamgauge.record.run import save_results

Floats = NDArray[np.float64]
NEAR_FUTURE = "near_future_accuracy@"
LEVEL = 0.05
LARGE = 0.05  # of accuracy: a difference that is excluded where learners are called equal
INDEXED_STEPS = 2000  # of longer runs an index does not store the answers by step
NAMED = 3  # learners that a sentence names; more are counted


class Ties(NamedTuple):
    """Who cannot be told apart from the best, the reference: three marks."""

    names: frozenset[str] = frozenset()  # the best among them; empty where nothing is tied
    sentence: str = ""
    unknown: frozenset[str] = frozenset()  # too little to say
    best: str = ""

    def mark(self, learner: str) -> str:
        """`=` equal as far as can be told, `?` not known, none: the best, or different from it."""
        return "=" if learner in self.names else "?" if learner in self.unknown else ""

    def meaning(self, mark: str) -> str:
        if mark == "=":
            return f"cannot be told apart from {self.best}"
        return f"whether it differs from {self.best} is not known"


NO_TIES = Ties()


def ties(rows: Sequence[Row], order: str, title: str, compared: int | None = None) -> Ties:
    """Compare all pairs of rows by the score that orders them, on the seeds that all of them have
    and the samples that all of them answered (`metrics.compare`, corrected by Holm)."""
    scored = [row for row in rows if row.runs and not math.isnan(_mean(row, order))]
    if len(scored) < 2:
        return NO_TIES
    if compared is not None and len(scored) > compared:
        why = f"Here no more than {compared} learners are compared pair by pair; filter, or see"
        return Ties(sentence=f"{why} the report for all {len(scored)}.")
    by_pair = {
        row.learner: {pair_key(run): (run, of) for run, of in zip(row.runs, row.each, strict=True)}
        for row in scored
    }
    shared = sorted(set.intersection(*(set(of) for of in by_pair.values())))
    best = max(scored, key=lambda row: _mean(row, order)).learner
    others = frozenset(row.learner for row in scored if row.learner != best)

    def not_known(why: str) -> Ties:
        return Ties(frozenset(), f"? {why}", others, best)

    if not shared:
        return not_known("The learners share no seed, so they cannot be compared pair by pair.")
    each = {name: [of[pair] for pair in shared] for name, of in by_pair.items()}
    shift = shift_of(order)
    if shift is None and len(shared) == 1:
        return not_known(f"By {title} one seed cannot tell which learners differ.")
    results: dict[str, Any]
    if shift is None:
        results, blocks = {n: [of[order] for _, of in runs] for n, runs in each.items()}, 1
    else:
        runs_only = {n: [run for run, _ in runs] for n, runs in each.items()}
        results, blocks = stretches(runs_only, shift)
    if not results:
        why = "The learners answered no samples in common, so they are not compared."
        return not_known(why)
    board = compare_all(results, blocks, LEVEL)
    tied = next(line.tied_with for line in board if line.name == best)
    seeds = f"{len(shared)} seed{'s' if len(shared) > 1 else ''}"
    over = seeds if shift is None else f"{seeds} and {blocks} stretches of the stream"
    method = f"by {title}, paired over {over}, all pairs, Holm's correction, 5 %"
    if len(shared) == 1:
        method += "; other seeds may differ"
    if not tied:
        text = f"{best} differs from every other learner ({method})."
        return Ties(sentence=text, best=best)
    # Where two seeds differ more than stretches, the test has one degree of freedom: even 27 points
    # may not be significant then. Of many pairs, Holm's correction keeps even 16 points from being
    # significant that are so alone. A mark that reads as "equal" would mislead.
    unknown = {name for name in tied if _undecided(results[best], results[name], blocks)}
    marked = [name for name in tied if name not in unknown]
    sentences = []
    if marked:
        excluded = f"a difference above {100 * LARGE:g} points is excluded"
        sentences.append(f"= cannot be told apart from {best}, the best ({method}); {excluded}.")
    if unknown:
        names = [row.learner for row in scored if row.learner in unknown]
        named = names if len(names) <= NAMED else [f"{len(names)} of the {len(scored) - 1} others"]
        why = "two seeds are too few" if len(shared) == 2 else "this is too little"
        beginning = f"? Whether {best} differs from {', '.join(named)} is not known"
        sentences.append(
            f"{beginning}: {why}{'' if marked else f' ({method})'}; run "
            f"{'three or more' if len(shared) < 3 else 'more seeds'}."
        )
    if len(scored) - 1 > len(tied):
        sentences.append(f"Without a mark: differs from {best}.")
    tied_names = frozenset({best, *marked} if marked else ())
    return Ties(tied_names, " ".join(sentences), frozenset(unknown), best)


def _undecided(best: Any, other: Any, blocks: int) -> bool:
    """Whether a large difference is not excluded, or would count if this pair were the only one."""
    found = compare(best, other, blocks)
    wide = found.freedom < 2 or not max(abs(found.low), abs(found.high)) <= LARGE
    return (wide or found.p < LEVEL) and abs(found.difference) > 1e-13


def _mean(row: Row, order: str) -> float:
    return float(row.scores[order].mean) if order in row.scores else math.nan


def pair_key(run: Run) -> tuple[Any, ...]:
    return run.seed, run.stream["data_hash"], run.stream["order_hash"]


def shift_of(order: str) -> int | None:
    """Samples ahead, for scores that are a mean over samples of the stream."""
    if order == "online_accuracy":
        return 0
    return int(order.removeprefix(NEAR_FUTURE)) if order.startswith(NEAR_FUTURE) else None


def stretches(each: dict[str, list[Run]], shift: int) -> tuple[dict[str, list[Floats]], int]:
    """Accuracies on equal stretches of the stream, of steps that every learner answered."""
    hits = {name: [_stored_steps(run, shift) for run in runs] for name, runs in each.items()}
    seeds = range(len(next(iter(hits.values()))))
    common = []
    for seed in seeds:
        length = min(counts[seed][1].size for counts in hits.values())
        common.append(np.logical_and.reduce([h[seed][1][:length] > 0 for h in hits.values()]))
    blocks = min(BLOCKS, *(int(keep.sum()) for keep in common))
    if blocks == 0:
        return {}, 0
    shares: dict[str, list[Floats]] = {name: [] for name in hits}
    for name, of_seed in hits.items():
        for keep, (right, count) in zip(common, of_seed, strict=True):
            right, count = right[: len(keep)][keep], count[: len(keep)][keep]
            stretch = np.arange(len(count)) * blocks // len(count)
            shares[name].append(np.bincount(stretch, right) / np.bincount(stretch, count))
    return shares, blocks


def _stored_steps(run: Run, shift: int) -> tuple[Floats, Floats]:
    stored = run.result(
        f"steps@{shift}", lambda: [array.tolist() for array in _steps(Run(run.path), shift)],
        keep=run.step <= INDEXED_STEPS,
    )  # fmt: skip
    right, count = (np.asarray(values, np.float64) for values in stored)
    return right, count


def answered(run: Run, shift: int) -> int:
    """How many answers of a run are scored at this shift."""
    return int(_stored_steps(run, shift)[1].sum())


def _steps(run: Run, shift: int) -> tuple[Floats, Floats]:
    """How many samples of each step were answered right, and how many were answered."""
    table = run.predictions
    rows = np.flatnonzero(table["shift"] == shift)
    step = table["step"][rows]
    correct = (table["label"][rows] == table["prediction"][rows]).astype(np.float64)
    return np.bincount(step, correct).astype(np.float64), np.bincount(step).astype(np.float64)


# Settings of a stream in which the runs of one row may differ.
SEEDS = ("seed", "order_seed", "class_seed", "split_seed")
# Streams of users' data: told apart by the hash of their content, not by their path.
OWN_DATA = frozenset(
    {"arrays", "folder", "huggingface", "manifest", "packed", "tabular", "webdataset"}
)
# Default timing of training and labels.
TIMING = {
    "cost": "1", "costs": [], "predict_cost": "0", "busy": "drop", "preempt": False,
    "label_delay": 0,
}  # fmt: skip
# Of these, settings of a learner: methods with different costs share a board.
COSTS = ("cost", "costs")
# Built-in learners that ignore inputs, for runs whose header does not record it.
UNSEEING = ("blind", "history", "majority", "random")
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
    library: str = ""  # of a learner that is a model of another library, with its version

    @property
    def seeds(self) -> str:
        left_out = f" + {len(self.incomplete)} incomplete" if self.incomplete else ""
        return f"{len(self.runs)}{left_out}"


def stored(step: int, steps: int | None) -> str:
    """How far the log goes: a checkpoint is older than the heartbeat of a run that goes on."""
    if not step:
        return "nothing stored yet"
    return f"stored up to step {step:,}" + (f" of {steps:,}" if steps else "")


@dataclass(frozen=True)
class Board:
    """Learners that were measured on one stream with one protocol. `stream` is the description in
    the first run, `timing` a sentence if the timing is not the default."""

    title: str
    stream: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    ordered_by: str
    timing: str = ""
    ties: Ties = NO_TIES

    @property
    def left_out(self) -> list[str]:
        """A sentence for every run that is not in the means, or not with all its answers."""
        incomplete = [
            f"{row.learner}, seed {run.seed}, is incomplete "
            f"({stored(run.step, run.stream['steps'])}) and left out of the means."
            + (f" It failed: {run.failure}" if run.failure else "")
            for row in self.rows
            for run in row.incomplete
        ]
        reasons = {
            "unlabelled": "have no label",
            "repeated": "repeat an earlier one (same id and shift)",
        }
        unscored = [
            f"{row.learner}, seed {run.seed}, has nothing to score: {why_unscored(run)}"
            for row in self.rows
            for run, scores in zip(row.runs, row.each, strict=False)
            if not scores
        ]
        answers = [
            f"{row.learner}, seed {run.seed}: {count:,} answers {why} and are not scored."
            for name, why in reasons.items()
            for row in self.rows
            for run in row.runs
            if (count := getattr(run, name))
        ]
        return incomplete + unscored + answers

    def _repr_html_(self) -> str:
        from streamgauge.pages import notebook_table

        rows = [
            [
                f"{self.ties.mark(row.learner)} {row.learner}".strip(),
                *(percent(row.scores.get(column.score)) for column in self.columns),
                row.seeds,
            ]
            for row in self.rows
        ]
        head = ["learner", *(column.title for column in self.columns), "seeds"]
        order = f" Ordered by: {self.ordered_by}." if self.ordered_by else ""
        notes = [NOTE + order, self.ties.sentence, self.timing, *self.left_out]
        return notebook_table(self.title, head, rows, notes)


class Boards(list[Board]):
    """Leaderboards; a notebook shows them as tables."""

    def _repr_html_(self) -> str:
        return "".join(board._repr_html_() for board in self)


def leaderboard(runs: Iterable[Run], compared: int | None = None) -> Boards:
    """One board per stream (name, settings without seeds, protocol without costs), one row per
    learner (name, settings, code, device, engine, cost of its jobs). Of several copies of a run the
    most complete one counts. Boards of more learners than `compared` are not compared pair by
    pair."""
    # A run's id does not include the name: one learner may run under two names.
    in_order = sorted(runs, key=lambda run: (run.done, run.step))
    distinct = {(run.id, run.learner): run for run in in_order}.values()
    groups = _grouped(distinct, stream_key)
    titles = told_apart([(run.stream["name"], stream_key(run) | _paths(run)) for run, *_ in groups])
    boards = Boards(
        _board(title, group, compared) for title, group in zip(titles, groups, strict=True)
    )
    save_results(distinct)
    return boards


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


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


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


def stream_key(run: Run) -> dict[str, Any]:
    left_out = {*SEEDS, *_paths(run)}
    settings = {k: v for k, v in run.stream["settings"].items() if k not in left_out}
    protocol = run.header["config"]["protocol"]
    key = {"name": run.stream["name"], **settings}
    key |= {f"protocol.{name}": value for name, value in protocol.items() if name not in COSTS}
    if _is_own(run):
        key["data"] = run.stream["data_hash"][:6]
    return key


def _paths(run: Run) -> dict[str, Any]:
    """Paths of users' data: part of a title, but not of what tells boards apart."""
    settings = run.stream["settings"] if _is_own(run) else {}
    return {k: v for k, v in settings.items() if k in PATH_SETTINGS}


def _is_own(run: Run) -> bool:
    # Features also depend on a network, which may differ between seeds.
    names = {run.stream["name"], run.header["config"].get("stream", {}).get("origin")}
    return bool(names & OWN_DATA) and "features" not in run.stream["settings"]


def learner_key(run: Run) -> dict[str, Any]:
    config = run.header["config"]
    learner, protocol = config["learner"], config["protocol"]
    engine = config.get("engine", {"name": "eager"})
    execution = {f"protocol.{name}": str(protocol.get(name, TIMING[name])) for name in COSTS}
    execution |= {"code": learner["code"][:6], "device": config["device"]}
    if "library" in learner:
        execution["library"] = learner["library"]
    execution["engine"] = " ".join(map(str, engine.values()))
    return {"name": learner["name"], **learner["settings"], **execution}


def _grouped(runs: Iterable[Run], key: Any) -> list[list[Run]]:
    def text(run: Run) -> str:
        return json.dumps(key(run), sort_keys=True, default=str)

    return [list(group) for _, group in groupby(sorted(runs, key=text), key=text)]


def _board(title: str, runs: Iterable[Run], compared: int | None = None) -> Board:
    groups = _grouped(runs, learner_key)
    names = told_apart([(run.learner, learner_key(run)) for run, *_ in groups])
    rows = [_row(name, group) for name, group in zip(names, groups, strict=True)]
    scores = {name for row in rows for name in row.scores}
    columns = columns_of(scores)
    order = main_score(scores)
    rows.sort(key=lambda row: -np.nan_to_num(_mean(row, order), nan=-np.inf))
    title_of_order = next((c.title for c in columns if c.score == order), "")
    timing = _timing([(row.learner, (*row.runs, *row.incomplete)[0]) for row in rows])
    tied = ties(rows, order, title_of_order, compared)
    return Board(title, groups[0][0].stream, columns, tuple(rows), title_of_order, timing, tied)


def _timing(learners: Sequence[tuple[str, Run]]) -> str:
    """Timing settings that are not the default: shared ones, then ones that differ by learner."""
    shared, differing = [], []
    for name, default in TIMING.items():
        values = [run.header["config"]["protocol"].get(name, default) for _, run in learners]
        shown = [",".join(value) if isinstance(value, list) else str(value) for value in values]
        if len(set(shown)) > 1:
            pairs = zip(learners, shown, strict=True)
            parts = ", ".join(f"{learner} {value or '–'}" for (learner, _), value in pairs)
            differing.append(f"protocol.{name} by learner: {parts}")
        elif str(values[0]) != str(default):
            shared.append(f"protocol.{name}={shown[0]}")
    sentences = [f"Timing is not the default: {', '.join(shared)}."] if shared else []
    return " ".join([*sentences, *(f"{text}." for text in differing)])


def scores_of(run: Run) -> dict[str, float]:
    """Through a new reader, so that only one log is in memory at a time."""
    scores: dict[str, float] = run.result("score", lambda: score(Run(run.path)))
    return scores


def why_unscored(run: Run) -> str:
    """Why a run has no scores, and what to do."""
    if waiting := run.unlabelled:
        return f"{waiting:,} answers are stored, but none of their labels."
    stored = "no answer and no evaluation is stored"
    if run.done:
        return f"{stored}."
    return f"{stored} at step {run.step} of {run.stream['steps']}. Finish it with sg.resume."


def _row(name: str, runs: list[Run]) -> Row:
    done = sorted((run for run in runs if run.done), key=lambda run: run.seed)
    scores = [scores_of(run) for run in done]
    names = dict.fromkeys(key for values in scores for key in values)
    learner = runs[0].header["config"]["learner"]
    return Row(
        learner=name,
        needs=tuple(learner["needs"]),
        sees_input=bool(learner.get("sees_input", learner["where"] not in UNSEEING)),
        runs=tuple(done),
        incomplete=tuple(run for run in runs if not run.done),
        scores={key: spread([values.get(key, math.nan) for values in scores]) for key in names},
        each=tuple(scores),
        library=learner.get("library", ""),
    )


def main_score(scores: set[str]) -> str:
    """The score that recent labels help least with; "" where there is none."""
    shifts = [name for name in scores if name.startswith(NEAR_FUTURE)]
    furthest = sorted(shifts, key=shift_of)[-1:]  # type: ignore[arg-type]
    candidates = [*furthest, "average_accuracy", "retained_accuracy", "online_accuracy"]
    return next((name for name in candidates if name in scores), "")


def columns_of(scores: set[str]) -> tuple[Column, ...]:
    """The columns of a board whose runs have these scores."""
    shifts = sorted(int(name.removeprefix(NEAR_FUTURE)) for name in scores if NEAR_FUTURE in name)
    wanted = [
        Column("online_accuracy", "online"),
        *(Column(f"{NEAR_FUTURE}{s}", f"near future, {s} ahead") for s in shifts),
        Column("retained_accuracy", "retained"),
        Column("average_accuracy", "average over tasks"),
        Column("average_forgetting", "forgetting"),
    ]
    return tuple(column for column in wanted if column.score in scores)
