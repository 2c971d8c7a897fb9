"""Scores of stored runs and the comparison of two learners: `sg.score` and `sg.compare`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError, in_python, nearest, with_keywords
from streamgauge.metrics import score as score_log
from streamgauge.metrics.compare import compare as compare_values
from streamgauge.metrics.compare import estimate
from streamgauge.metrics.power import measured
from streamgauge.record import Run, find_runs
from streamgauge.report.leaderboard import (
    LEVEL,
    NEAR_FUTURE,
    answered,
    learner_key,
    main_score,
    pair_key,
    scores_of,
    shift_of,
    stream_key,
    stretches,
    why_unscored,
)
from streamgauge.report.planning import Plan, check_goal, is_share, plan, unit_of, varying
from streamgauge.settings import RUNS


class Scores(dict[str, Any]):
    """Scores by name; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        return ScoreTable([self])._repr_html_()


class ScoreTable(list[Scores]):
    """Scores of several runs; a notebook shows one column per run."""

    def _repr_html_(self) -> str:
        from streamgauge.pages import notebook_table
        from streamgauge.report.terminal import UNITS, score_cell

        facts = [name for name in _FACTS if any(name in scores for scores in self)]
        names = dict.fromkeys(name for scores in self for name in scores if name not in _FACTS)
        head, *rest = facts or [""]
        rows = [[name, *(scores.get(name, "") for scores in self)] for name in rest]
        rows += [[name, *(score_cell(name, of.get(name)) for of in self)] for name in names]
        titles = [str(scores.get(head, "score")) for scores in self]
        return notebook_table("", [head, *titles], rows, [f"Accuracies in %. {UNITS}"])


Runs = Run | str | Path | Iterable[Run | str | Path]
# Parts of the names of scores of which less is better.
_LESS_IS_BETTER = ("forgetting", "error", "loss", "flops", "depth", "recovery")
_FACTS = ("path", "stream", "learner", "seed", "done")
_TABLES = ("predictions", "evaluations", "answers")


def score(runs: Any, **options: Any) -> Any:
    """All scores of a run as a dictionary; of a folder of runs or a list, one dictionary per run.

    The dictionaries of several runs also hold `path`, `stream`, `learner`, `seed` and `done`, so
    that `pandas.DataFrame(sg.score("runs"))` is a table. A log is also anything with the tables of
    :func:`streamgauge.metrics.score`, whose options are accepted for a single run.
    """
    if isinstance(runs, str | Path):
        runs = Run(runs) if (Path(runs) / "run.json").exists() else find_runs(runs)
    if any(hasattr(runs, table) for table in _TABLES):
        scores = Scores(score_log(runs, **options))
        if not scores and isinstance(runs, Run):
            raise StreamgaugeError(f"{runs.path} has nothing to score: {why_unscored(runs)}")
        return scores
    if hasattr(runs, "columns") or isinstance(runs, dict) or not isinstance(runs, Iterable):
        raise StreamgaugeError(
            f"A {type(runs).__name__} has no scores: give a run, a folder of runs, or a list of"
            " them. Columns with labels and predictions: sg.audit_log(columns)."
        )
    return ScoreTable(
        Scores(
            path=str(run.path),
            stream=run.stream["name"],
            learner=run.learner,
            seed=run.seed,
            done=run.done,
            **score_log(Run(run.path), **options),  # read anew: one log in memory at a time
        )
        for run in find_runs(runs)
    )


@dataclass(frozen=True)
class RunComparison:
    """Which of two learners is better, by how much, and how sure that is; printed, a sentence."""

    a: str
    b: str
    metric: str
    mean_a: float
    mean_b: float
    difference: float  # a - b
    low: float  # 95 % confidence interval of the difference
    high: float
    p: float  # two-sided p-value of no difference
    seeds: int
    blocks: int  # stretches of the stream; 0 where only seeds are paired
    better: str | None  # None: not known
    sentence: str
    plan: Plan | None = None  # how many seeds or samples would settle it; None with one number
    each: tuple[tuple[int, float, float], ...] = ()  # seed, score of a, score of b

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__


@with_keywords
def compare(
    a: Runs,
    b: Runs,
    metric: str | None = None,
    *,
    difference: float | None = None,
    power: float = 0.8,
) -> RunComparison:
    """Compare the runs of two learners on the same streams, paired over seeds.

    `a` and `b` are a run or the runs of several seeds, their folders, or the name of a learner
    with runs in the folder `runs`. Each run of `a` is paired
    with the run of `b` that has the same seed and saw the same samples in the same order. Online
    and near-future accuracies are also paired over stretches of the stream, so that one seed gives
    an interval; :func:`streamgauge.metrics.compare` has the formula. `metric` is a name that
    `sg.score` gives; by default the near-future accuracy furthest ahead, or else the average over
    tasks, the retained or the online accuracy.

    `plan` says how many seeds or samples would settle the comparison with probability `power`, if
    the true difference is `difference` (default: the one measured, where it is not settled yet).
    """
    return compare_runs(a, b, metric, difference, power)


def compare_runs(
    a: Runs, b: Runs, metric: str | None, difference: float | None, power: float
) -> RunComparison:
    """:func:`compare`, for Python and for the command line."""
    if metric is not None and not isinstance(metric, str):
        raise StreamgaugeError(
            "compare takes two learners and the name of a metric; for more learners:"
            " streamgauge.report.leaderboard(runs)."
        )
    runs_a, runs_b = _of_one_learner(a, "first"), _of_one_learner(b, "second")
    pairs = _paired(runs_a, runs_b)
    scores = [(scores_of(x), scores_of(y)) for x, y in pairs]
    common = set.intersection(*(set(x) & set(y) for x, y in scores))
    metric = metric or main_score(common)
    if metric not in common:
        raise StreamgaugeError(_no_metric(metric, common))
    check_goal(difference, power, is_share(metric))
    values_a, values_b = [x[metric] for x, _ in scores], [y[metric] for _, y in scores]
    per_seed: tuple[Any, Any] = (values_a, values_b)
    blocks, shift, samples = 1, shift_of(metric), 0
    if shift is not None:
        samples = answered(pairs[0][0], shift)
        shares, blocks = stretches({"a": [x for x, _ in pairs], "b": [y for _, y in pairs]}, shift)
        per_seed = (shares["a"], shares["b"]) if blocks else per_seed
    outcome = compare_values(*per_seed, blocks=max(blocks, 1))
    known = outcome.p < LEVEL and outcome.freedom >= 2
    settle = None
    if not math.isnan(outcome.p):
        variances = measured(estimate(*per_seed, blocks=max(blocks, 1)))
        goal = (None if known else outcome.difference) if difference is None else difference
        settle = plan(
            variances, goal, outcome.seeds, samples, power, unit_of(metric),
            varying=varying({name: x[name] - y[name] for name in common} for x, y in scores),
        )  # fmt: skip
    name_a, name_b = _names(runs_a[0], runs_b[0])
    a_is_better = (outcome.difference < 0) == any(part in metric for part in _LESS_IS_BETTER)
    result = RunComparison(
        a=name_a,
        b=name_b,
        metric=metric,
        mean_a=sum(values_a) / len(values_a),
        mean_b=sum(values_b) / len(values_b),
        difference=outcome.difference,
        low=outcome.low,
        high=outcome.high,
        p=outcome.p,
        seeds=outcome.seeds,
        blocks=outcome.blocks,
        better=None if not known else name_a if a_is_better else name_b,
        sentence="",
        plan=settle,
        each=tuple(
            (x.seed, of_a, of_b)
            for (x, _), of_a, of_b in zip(pairs, values_a, values_b, strict=True)
        ),
    )
    unpaired = len(runs_a) + len(runs_b) - 2 * len(pairs)
    notes = _notes(pairs, unpaired)
    return RunComparison(**{**vars(result), "sentence": " ".join([_sentence(result), *notes])})


def _of_one_learner(runs: Runs, which: str) -> list[Run]:
    by_name = isinstance(runs, str) and not Path(runs).exists()
    all_runs = runs_of_learner(str(runs), Path(RUNS)) if by_name else find_runs(runs)
    if not all_runs:
        raise StreamgaugeError(f"The {which} argument of compare holds no run.")
    done = [run for run in all_runs if run.done]
    if not done:
        resume = "sg.resume" if in_python() else f"`streamgauge resume {all_runs[0].path}`"
        raise StreamgaugeError(
            f"{all_runs[0].path} is not complete: finish it with {resume}, then compare."
        )
    for run in done[1:]:
        if learner_key(run) != learner_key(done[0]):
            what = f"The {which} argument of compare holds runs of"
            if run.learner == done[0].learner:  # other settings, or code that was changed since
                raise StreamgaugeError(
                    f"{what} {run.learner} with different settings or code,"
                    f" {' and '.join(_names(done[0], run))}: {_choose(done[0], 'setting')}."
                )
            choose = (
                f"choose the runs of one: [run for run in sg.find_runs(FOLDER) if run.learner =="
                f" {done[0].learner!r}]"
                if in_python()
                else f"give a learner's name instead of a folder, such as {done[0].learner}"
                " --runs FOLDER"
            )
            raise StreamgaugeError(f"{what} {done[0].learner} and {run.learner}; {choose}.")
        # Own data may differ between seeds; `_paired` checks that pairs saw the same.
        if differing := set(_differing(stream_key(run), stream_key(done[0]))) - {"data"}:
            raise StreamgaugeError(
                f"The {which} argument of compare holds runs of {run.learner} that differ in the"
                f" stream or the protocol ({', '.join(sorted(differing))}):"
                f" {_choose(done[0], 'stream and protocol')}."
            )
    return done


def _choose(run: Run, what: str) -> str:
    """How to give the runs of one setting only: in Python a list, in a shell a folder."""
    if in_python():
        return f"give a list of the runs of one {what}, such as those that sg.run returned"
    return (
        f"move the run folders of one {what}, such as {run.path}, into a folder of their own,"
        f" and give that folder (new runs: --learner NAME={run.learner} names a setting)"
    )


def runs_of_learner(name: str, folder: Path) -> list[Run]:
    """The runs of the learner of this name in a folder."""
    if not folder.is_dir():
        raise StreamgaugeError(
            f"There is no folder {name}, and no folder {folder} in which to look for the learner"
            f" {name}: name it with --runs FOLDER."
            if not in_python()
            else f"There is no folder {name}, and no folder {folder} with runs of a learner {name}:"
            " give runs or the folder of the runs."
        )
    runs = find_runs(folder)
    chosen = [run for run in runs if run.learner == name]
    if not chosen:
        names = {run.learner for run in runs}
        raise StreamgaugeError(f"{folder} has no run of '{name}'; {nearest(name, names)}")
    return chosen


def _no_metric(metric: str, common: set[str]) -> str:
    """What to do about a metric that not all runs have."""
    shift = metric.removeprefix(NEAR_FUTURE)
    if shift == metric or not shift.isdigit():
        return f"The runs do not all have '{metric}'; {nearest(metric, common)}"
    ahead = sorted(
        (name for name in common if name.startswith(NEAR_FUTURE)),
        key=lambda name: shift_of(name) or 0,
    )
    return (
        f"The runs have no answers {shift} samples ahead: run both learners with"
        f" --protocol.shifts {shift}, or compare by {' or '.join(ahead) or main_score(common)}."
    )


def _paired(runs_a: list[Run], runs_b: list[Run]) -> list[tuple[Run, Run]]:
    by_pair = {pair_key(run): run for run in runs_b}
    pairs = [(run, by_pair[pair_key(run)]) for run in runs_a if pair_key(run) in by_pair]
    if pairs:
        return pairs
    if not {run.seed for run in runs_a} & {run.seed for run in runs_b}:
        raise StreamgaugeError(
            f"Runs are paired by seed, but {runs_a[0].learner} has the seeds"
            f" {sorted(run.seed for run in runs_a)} and {runs_b[0].learner} has"
            f" {sorted(run.seed for run in runs_b)}: run both with the same seeds."
        )
    raise StreamgaugeError(
        f"The runs are not on the same stream ({runs_a[0].stream['name']} and"
        f" {runs_b[0].stream['name']}: other data or another order), so they cannot be compared."
    )


def _names(a: Run, b: Run) -> tuple[str, str]:
    """The names of the learners, with the settings in which two of the same name differ."""
    if a.learner != b.learner:
        return a.learner, b.learner
    keys = learner_key(a), learner_key(b)
    differing = [name for name in keys[0] | keys[1] if keys[0].get(name) != keys[1].get(name)]
    if not differing:
        return f"{a.learner} (first)", f"{b.learner} (second)"
    first, second = (", ".join(f"{name}={key.get(name)}" for name in differing) for key in keys)
    return f"{a.learner} ({first})", f"{b.learner} ({second})"


def _differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return sorted(name for name in a | b if a.get(name) != b.get(name))


def _notes(pairs: list[tuple[Run, Run]], unpaired: int) -> list[str]:
    """What a reader should know before believing the comparison."""
    differing = _differing(*(stream_key(run) for run in pairs[0]))
    notes = [f"The runs also differ in {', '.join(differing)}."] if differing else []
    if all(x.path.resolve() == y.path.resolve() for x, y in pairs):
        notes.append("Both are the same runs: compare them with those of another learner.")
    if unpaired:
        notes.append(f"{unpaired} run{'s' * (unpaired > 1)} without a partner left out.")
    return notes


def _sentence(result: RunComparison) -> str:
    seeds = f"{result.seeds} seed{'s' * (result.seeds > 1)}"
    over = f"{seeds} and {result.blocks} stretches of the stream" if result.blocks else seeds
    how = f"paired over {over}"
    name = result.metric.replace("_", " ")
    show = unit_of(result.metric)
    if math.isnan(result.p):
        return (
            f"{result.a} has {show(result.mean_a)} and {result.b} {show(result.mean_b)} in {name};"
            " one seed cannot tell whether they differ: run three or more."
        )
    interval = f"95 % interval {show(result.low)} to {show(result.high)}, p = {result.p:.2g}"
    if result.seeds == 1:
        how += "; other seeds may differ"
    if result.better is None:
        too_few = ": two seeds are too few, run three or more" if result.seeds == 2 else ""
        return (
            f"{result.a} and {result.b} cannot be told apart by {name}{too_few}: difference"
            f" {show(result.difference)} ({interval}; {how})."
        )
    other = result.b if result.better == result.a else result.a
    return (
        f"{result.better} is better than {other} by {show(abs(result.difference))} in {name}"
        f" ({result.a} − {result.b}: {interval}; {how})."
    )
