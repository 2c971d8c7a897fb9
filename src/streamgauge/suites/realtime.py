"""The page of the suite `realtime`: methods on a fast and on a slow stream, each compared with the
ER that may spend as much (Ghunaim et al. 2023).

The paper claims that accuracy falls with cost if the stream does not wait, and that ER++ wins if it
does. The page states whether that holds, with every exception.
"""

from __future__ import annotations

import itertools
import math
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.catalogue import own_data
from streamgauge.errors import StreamgaugeError
from streamgauge.metrics import Comparison, Spread, compare, spread
from streamgauge.pages import Block, Figure, Page, PageTable, Section, Text
from streamgauge.pages.figures import figure, markers, point, share_axes, ticks
from streamgauge.record import Run
from streamgauge.report.figures import online_answers
from streamgauge.report.leaderboard import percent
from streamgauge.report.page import stream_text
from streamgauge.running.plan import PlannedRun
from streamgauge.suites import spec
from streamgauge.suites.running import find, plan_rows, run_small
from streamgauge.suites.spec import Suite

FEWEST = 3  # methods of a rank correlation
TITLES = {"fast": "Fast stream", "slow": "Slow stream", "faster": "Stream twice as fast"}
NOTE = (
    "Average online accuracy in %, mean ± sample deviation over seeds; error bars in the figures "
    "are one deviation. Cost: of one training job, with one gradient step of ER as 1. ER++ takes "
    "as many gradient steps per batch as the method's job costs, without delay; ER−− takes them on "
    "the batches that the method trains on, and answers with its versions. Where a method is not "
    "delayed the two are the same, and where it costs 1 both are ER."
)
Made = Sequence[tuple[PlannedRun, Run]]


@dataclass(frozen=True)
class SpeedRow:
    """A method at one speed of the stream, and the ER that spends as much."""

    method: str
    cost: Fraction  # of a job, with a gradient step of ER as 1
    job: str  # stream steps that it lasts
    accuracy: Spread  # average online accuracy over seeds
    plus: Spread | None  # of ER++; None for ER itself
    minus: Spread | None
    ahead_of_plus: Comparison | None  # method - ER++, paired over seeds and stream time
    ahead_of_minus: Comparison | None
    ahead_of_er: Comparison | None

    def texts(self) -> list[str]:
        """Method, cost, steps per job, and the accuracies of the method, ER-- and ER++."""
        accuracies = map(percent, (self.accuracy, self.minus, self.plus))
        return [self.method, str(self.cost), self.job, *accuracies]


@dataclass(frozen=True)
class Picture:
    """One speed of the stream."""

    speed: str
    lines: tuple[SpeedRow, ...]  # by cost
    correlation: float  # Spearman's, of accuracy and cost
    sentences: tuple[str, ...]
    figure: Figure

    @property
    def title(self) -> str:
        return TITLES.get(self.speed, f"Stream {self.speed} times as fast as ER trains")

    def as_plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        lines = [
            {
                name: value._asdict() if isinstance(value, (Spread, Comparison)) else value
                for name, value in (vars(line) | {"cost": str(line.cost)}).items()
            }
            for line in self.lines
        ]
        return {
            "speed": self.speed,
            "lines": lines,
            "rank_correlation": self.correlation,
            "sentences": list(self.sentences),
        }


def realtime(
    out: Path,
    *,
    stream: str = "albums",
    seeds: int = 2,
    speeds: Sequence[str] = ("fast", "slow"),
    methods: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> tuple[list[Picture], Path]:
    """Run what is missing of the suite, and write the page with a figure for each speed."""
    suite = realtime_suite(stream, speeds, methods, settings)
    made = runs_by_part(suite, run_small(suite, seeds, out, quiet), range(seeds))
    pictures = [picture(speed, of_part) for speed, of_part in made.items()]
    return pictures, write(pictures, made, out / "realtime.html")


def realtime_suite(
    stream: str = "albums",
    speeds: Sequence[str] = ("fast", "slow"),
    methods: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Suite:
    """The suite `realtime` with another stream, speeds, methods or settings."""
    if not speeds:
        raise StreamgaugeError("Name at least one speed: --speeds fast,slow.")
    given = spec.read("realtime")
    name, path = own_data(stream)
    given["stream"] = {"name": name, **path}
    given["part"] = [{"name": speed, "speed": speed} for speed in dict.fromkeys(speeds)]
    if methods is not None:
        rows = {row["method"]: row for row in given["row"]}
        given["row"] = [rows.get(name, {"name": name, "method": name}) for name in methods]
    return spec.build("realtime", given, settings=settings)


def runs_by_part(
    suite: Suite, runs: Iterable[Run], seeds: Sequence[int] | None = None
) -> dict[str, list[tuple[PlannedRun, Run]]]:
    """The complete runs of each part, with their plans."""
    planned = plan_rows(suite.rows, seeds)
    stored = find(planned, runs)
    return {
        part: [
            (run, stored.complete[run.row.key][run.seed]) for run in planned if run.row.part == part
        ]
        for part in suite.parts
    }


def picture(speed: str, made: Made) -> Picture:
    """The result at one speed: lines of methods, rank correlation, sentences and the figure."""
    runs: dict[str, list[Run]] = {}
    plans: dict[str, PlannedRun] = {}
    # Runs may end in any order; they are compared seed by seed.
    for planned, run in sorted(made, key=lambda pair: (pair[0].stream_seed, pair[0].learner_seed)):
        if not run.done:
            raise StreamgaugeError(f"{run.path} is incomplete; resume it first.")
        runs.setdefault(planned.recipe.name, []).append(run)
        plans[planned.recipe.name] = planned
    correct = {
        name: [np.equal(*online_answers(Run(run.path))) for run in seeds]
        for name, seeds in runs.items()
    }
    level = {
        name: spread([float(seed.mean()) for seed in seeds]) for name, seeds in correct.items()
    }
    er = next((n for n, p in plans.items() if p.recipe.where == "er"), None)

    def baseline(method: str, where: str) -> str | None:
        """Name of the learner that is the baseline of a method."""
        names = {p.recipe.where: n for n, p in plans.items() if method in p.baseline_of}
        undelayed = Fraction(plans[method].protocol.cost) <= 1
        if undelayed and where not in names and "er_plus" in names:
            return names["er_plus"]  # ER++ and ER-- are the same run
        # A missing baseline is ER itself.
        return names.get(where) or (None if method == er else er)

    lines = []
    for name, planned in plans.items():
        if planned.baseline_of:
            continue
        if planned.relative is None:
            raise StreamgaugeError(f"The cost of {name} is not known; plan it with baselines.")
        plus, minus = baseline(name, "er_plus"), baseline(name, "er_minus")

        def ahead(other: str | None, name: str = name) -> Comparison | None:
            return None if other is None else compare(correct[name], correct[other])

        lines.append(
            SpeedRow(
                name,
                planned.relative.cost,
                planned.protocol.cost,
                level[name],
                None if plus is None else level[plus],
                None if minus is None else level[minus],
                ahead(plus),
                ahead(minus),
                ahead(None if name == er else er),
            )
        )
    lines.sort(key=lambda line: line.cost)
    correlation = rank_correlation(
        [float(line.cost) for line in lines], [line.accuracy.mean for line in lines]
    )
    delayed = any(Fraction(line.job) > 1 for line in lines)
    sentences = tuple(_sentences(lines, correlation, delayed))
    return Picture(speed, tuple(lines), correlation, sentences, _figure(lines, delayed))


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rho: the correlation of ranks, equal values sharing their mean rank. NaN where
    either does not vary.

    >>> rank_correlation([1, 1, 2, 3], [0.9, 0.8, 0.7, 0.1])
    -0.9486...
    """

    def ranks(values: ArrayLike) -> NDArray[np.float64]:
        _, position, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        return np.asarray((np.cumsum(count) - (count - 1) / 2)[position])

    a, b = ranks(x), ranks(y)
    if len(a) < 2 or not a.std() or not b.std():
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def by_chance(x: Sequence[float], y: Sequence[float]) -> float:
    """Share of random orders with a rank correlation at least as strong: of all orders if there are
    few, else of 5,000 drawn ones.

    >>> by_chance([1, 2, 3, 4], [4, 3, 2, 1])  # 2 of 24 orders
    0.0833...
    """
    observed = abs(rank_correlation(x, y)) - 1e-9
    if len(y) <= 7:
        orders: Iterable[ArrayLike] = itertools.permutations(y)
    else:
        rng = np.random.default_rng(0)
        orders = (rng.permutation(y) for _ in range(5000))
    return float(np.mean([abs(rank_correlation(x, order)) >= observed for order in orders]))


def _sentences(lines: Sequence[SpeedRow], correlation: float, delayed: bool) -> list[str]:
    if len(lines) < FEWEST and correlation == correlation:
        first = f"Fewer than {FEWEST} methods have no rank correlation of accuracy and cost."
    elif correlation == correlation:
        chance = by_chance(
            [float(line.cost) for line in lines], [line.accuracy.mean for line in lines]
        )
        meaning = f"accuracy {'falls' if correlation < 0 else 'rises'} with cost"
        if chance > 0.05:
            meaning = "no more than chance may give"
        first = (
            f"Spearman's rank correlation of accuracy and cost over {len(lines)} methods is "
            f"{correlation:+.2f} (p = {chance:.2g}): {meaning}."
        )
    else:
        first = "The rank correlation of accuracy and cost is undefined: one of them is constant."
    sentences = [first]
    compared = {"ER++": [(line.method, line.ahead_of_plus) for line in lines]}
    if delayed:
        compared = {
            "ER": [(line.method, line.ahead_of_er) for line in lines],
            "ER--": [(line.method, line.ahead_of_minus) for line in lines],
            **compared,
        }
    for baseline, each in compared.items():
        gaps = [(name, gap) for name, gap in each if gap is not None]
        exceptions = [(name, gap) for name, gap in gaps if gap.difference >= 0]
        if not gaps:
            continue
        sure = sum(gap.high < 0 for _, gap in gaps)
        if len(gaps) == 1 and exceptions:
            text = f"{baseline} does not win against the one method compared with it."
        elif len(gaps) == 1:
            text = f"{baseline} wins against the one method compared with it, "
            if math.isnan(gaps[0][1].high):
                text += "without an interval: whether by chance is not known."
            else:
                much = "more than chance explains" if sure else "no more than chance may give"
                text += f"by {much} (95 % interval)."
        else:
            won = "all" if not exceptions else f"{len(gaps) - len(exceptions)} of the"
            text = (
                f"{baseline} wins against {won} {len(gaps)} methods compared with it, against "
                f"{sure} of them by more than chance explains (95 % intervals)."
            )
        names = "; ".join(_gap(name, gap) for name, gap in exceptions)
        sentences.append(f"{text} Exceptions: {names}." if names else text)
    return sentences


def _gap(name: str, gap: Comparison) -> str:
    if gap.difference == 0:
        return f"{name} is level with it"
    text = f"{name} is ahead by {100 * gap.difference:.1f} points"
    if gap.low != gap.low:
        return text
    sure = ", which chance may explain" if gap.low <= 0 else ""
    return f"{text} (95 % interval {100 * gap.low:.1f} to {100 * gap.high:.1f}{sure})"


def _figure(lines: Sequence[SpeedRow], delayed: bool) -> Figure:
    """Accuracies with error bars of one deviation over the cost of each method, with baselines."""
    costs = sorted({float(line.cost) for line in lines})
    kinds: list[tuple[str, list[Spread | None]]] = [("ER++", [line.plus for line in lines])]
    if delayed:
        kinds.insert(0, ("ER−−", [line.minus for line in lines]))
    data = []
    for name, values in kinds:
        shown = [(line.cost, v) for line, v in zip(lines, values, strict=True) if v is not None]
        x, y = [float(cost) for cost, _ in shown], [100 * value.mean for _, value in shown]
        errors = [100 * value.deviation if value.seeds > 1 else 0 for _, value in shown]
        data.append(markers(name, x, y, errors))
    for each in lines:
        errors_of = (math.nan, 100 * each.accuracy.deviation)
        hover = f"%{{y:.1f}} % at cost {each.cost}<extra></extra>"
        at = float(each.cost), 100 * each.accuracy.mean
        data.append(point(each.method, *at, errors=errors_of, hollow=False, hover=hover))
    caption = (
        "A learner that trains misses the batches that come meanwhile. ER−− spends what the stream "
        "allows, as the method does; ER++ misses nothing and so spends as many times more as the "
        "method costs."
        if delayed
        else "Every batch is trained on; ER++ spends as much as the method it is compared with."
    )
    return figure(
        "Average online accuracy over the cost of a method",
        caption,
        data,
        "relative cost, with a gradient step of ER as 1",
        "online accuracy, %",
        from_zero=False,
        x_axis={
            **ticks(costs, [f"{cost:.3g}" for cost in costs]),
            "type": "log",
            "range": [math.log10(min(costs)) - 0.08, math.log10(max(costs)) + 0.12],
        },
        hovermode="closest",
    )


def text(pictures: Sequence[Picture]) -> str:
    """A table and sentences for each speed."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    parts = []
    for picture in pictures:
        table = [["method", "cost", "job", "online", "ER--", "ER++"]]
        table += [line.texts() for line in picture.lines]
        layout = "{:<10}{:>6}{:>7}{:>14}{:>14}{:>14}"
        rows = [layout.format(*texts) for texts in table]
        sentences = [textwrap.fill(sentence, width) for sentence in picture.sentences]
        parts.append("\n".join([picture.title, *rows, *sentences]))
    note = (
        "Average online accuracy in %, mean ± sample deviation over seeds. cost: of a training "
        "job, with a gradient step of ER as 1; job: the stream steps that it lasts."
    )
    return "\n\n".join([*parts, textwrap.fill(note, width)])


def write(pictures: Sequence[Picture], made: Mapping[str, Made], path: Path) -> Path:
    """Write the page with a figure and a table for each speed."""
    distinct = {run.id: run for runs in made.values() for _, run in runs}
    first = next(iter(distinct.values())).stream
    seeds = len({run.seed for run in distinct.values()})
    size = f"{stream_text(first)}, {seeds} seed{'s' if seeds > 1 else ''}."
    head = ["method", "relative cost", "steps per job", "online", "ER−−", "ER++", "seeds"]
    blocks: list[Block] = [f"{len(pictures[0].lines)} methods on {size}"]
    share_axes(picture.figure for picture in pictures)
    for picture in pictures:
        rows = [[*line.texts(), str(line.accuracy.seeds)] for line in picture.lines]
        sentences = " ".join(picture.sentences)
        table = PageTable(head, rows, sortable=True)
        blocks.append(Section(picture.title, [sentences, picture.figure, table]))
    blocks.append(Text(NOTE))
    return Page(
        "Streamgauge: real-time comparison",
        f"Methods in real time on {first['name']}",
        blocks,
        f"the logs of {len(distinct)} runs",
        learners=list(dict.fromkeys(line.method for p in pictures for line in p.lines)),
        grey={"ER++", "ER−−"},
    ).write(path)
