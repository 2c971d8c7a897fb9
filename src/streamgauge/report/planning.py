"""How many seeds or samples would settle a comparison, as numbers and as sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError, for_caller, nearest, with_keywords
from streamgauge.metrics import score as score_log
from streamgauge.metrics.compare import estimate
from streamgauge.metrics.power import (
    FEWEST_SEEDS,
    Variances,
    check_power,
    given,
    given_blocks,
    longer_needed,
    measured,
    seeds_needed,
    smallest_difference,
    together_needed,
)
from streamgauge.record import Run, find_runs
from streamgauge.report.leaderboard import (
    learner_key,
    main_score,
    shift_of,
    stream_key,
    stretches,
)

SEEDS = (3, 5, 10, 20)  # of the table of smallest differences
LONGER = (1, 2, 5, 10)


@dataclass(frozen=True)
class Plan:
    """What a comparison needs to find a true difference with probability `power` (p < 0.05)."""

    difference: float | None
    power: float
    seeds: int | None  # needed, with streams as long as measured; None: no number, or not known
    samples: int | None  # needed per run, with the seeds there are; None: likewise
    smallest: tuple[tuple[int, int, float], ...]  # seeds, samples, smallest difference found
    sentence: str
    # Seeds and samples per run, where both have to grow because neither suffices alone.
    together: tuple[int, int] | None = None

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__


def plan(
    variances: Variances,
    difference: float | None,
    seeds: int,
    samples: int = 0,
    power: float = 0.8,
    show: Callable[[float], str] | None = None,
    table: Iterable[tuple[int, float]] = (),
    varying: Sequence[str] = (),
) -> Plan:
    """The plan for a design of so many seeds and samples; `table` are further designs (seeds, times
    as long) whose smallest difference is computed. `varying` are metrics with variance, to name
    where this one has none."""
    show = show or points
    if variances.error(seeds) == 0:
        same = "No variance was measured (all values are equal), so no plan can be made"
        same += f": compare by a metric that varies, --metric {varying[0]}." if varying else "."
        same = for_caller(same)
        return Plan(difference, power, None, None, (), same)
    designs = dict.fromkeys([(seeds, 1.0), *table])
    smallest = tuple(
        (s, round(samples * f), smallest_difference(variances, s, f, power)) for s, f in designs
    )
    finds = smallest[0][2]
    chance = f"{100 * power:g} %"
    sentences = []
    if not math.isnan(finds):
        size = _size(seeds, samples if variances.block_count else 0)
        verb = "find" if seeds > 1 else "finds"
        sentences.append(f"{size} {verb} a true difference of {show(finds)} in {chance} of cases.")
    if difference is None:
        return Plan(None, power, None, None, smallest, " ".join(sentences))
    if not difference:
        sentences.append("No difference was measured: give the smallest one that matters.")
        return Plan(difference, power, None, None, smallest, " ".join(sentences))
    wanted = seeds_needed(difference, variances, power)
    longer = longer_needed(difference, variances, seeds, power)
    needed = None if longer is None or not samples else math.ceil(longer * samples)
    together = None
    if wanted is None and needed is None and samples:
        both = together_needed(difference, variances, seeds, power)
        together = None if both is None else (both[0], math.ceil(both[1] * samples))
    takes = _takes(wanted, needed, variances, seeds, together)
    sentences.append(f"To find one of {show(abs(difference))} in {chance} of cases takes {takes}.")
    return Plan(difference, power, wanted, needed, smallest, " ".join(sentences), together)


def check_goal(difference: float | None, power: float, shares: bool = True) -> None:
    """Refuse a difference to find, or a power, that cannot be meant; `shares`: of accuracies."""
    check_power(power)
    if difference is None:
        return
    if isinstance(difference, str):
        raise StreamgaugeError(f"The difference must be a number, not {difference!r}.")
    if not difference:
        raise StreamgaugeError("The difference to find must not be 0.")
    if difference < 0:
        raise StreamgaugeError(
            f"The difference to find has no sign: give {-difference:g}, not {difference:g}."
        )
    if shares and difference >= 1:
        points_are = "one point is" if difference == 1 else f"{difference:g} points are"
        share = f": {points_are} {difference / 100:g}" if difference < 100 else ""
        raise StreamgaugeError(
            f"The difference of accuracies is a share below 1, not {difference:g}{share}."
        )
    if not difference < math.inf:
        raise StreamgaugeError(f"The difference must be a number, not {difference:g}.")


def _size(seeds: int, samples: int) -> str:
    text = f"{seeds} seed{'s' * (seeds > 1)}"
    return f"{text} of {_samples(samples)}" if samples else text


def _samples(samples: int) -> str:
    return f"{samples:,} sample{'s' * (samples != 1)}"


def _takes(
    seeds: int | None,
    samples: int | None,
    variances: Variances,
    now: int,
    together: tuple[int, int] | None = None,
) -> str:
    """What is needed, in words."""
    ways = []
    if seeds is not None:
        ways.append(f"{seeds} seeds")
    if samples is not None:
        ways.append(f"{_samples(samples)} per run with {_size(now, 0)}")
    if ways:
        unknown = "; how much seeds differ is not known from one" if now == 1 else ""
        return " or ".join(ways) + unknown
    if not variances.block_count:
        return "more than 10,000 seeds"
    larger = "seeds" if variances.seeds > variances.blocks else "stretches of the stream"
    if together is not None:
        return (
            f"more seeds and longer streams together, about {_size(*together)} each: seeds and"
            f" stretches of the stream both differ ({larger} more), and neither alone suffices"
        )
    return (
        "more than 10,000 seeds, also of longer streams: seeds and stretches of the stream both"
        f" differ too much ({larger} more), so plan for a larger difference"
    )


@with_keywords
def power(
    baseline: Any = None,
    *,
    difference: float | None = None,
    metric: str | None = None,
    deviation: float | None = None,
    block_deviation: float | None = None,
    samples: int = 0,
    power: float = 0.8,
    correlation: float = 0.0,
) -> Plan:
    """How many seeds or samples a comparison will need, before it is run.

    From runs of one learner (`baseline`): the other learner is taken to vary like it, and scores of
    both to have this `correlation` over seeds and stretches (0: no help from pairing, so that the
    plan is safe; `compare` of both learners on pilot runs is sharper). Or from given numbers: the
    `deviation` of the difference over seeds, or its `block_deviation` over ten equal parts of a
    stream of `samples` samples. Without `difference`, the smallest differences that several
    designs find. Accuracies and deviations are shares: 0.01 is one point.
    """
    return plan_power(
        baseline, difference, metric, deviation, block_deviation, samples, power, correlation
    )


def plan_power(
    baseline: Any,
    difference: float | None,
    metric: str | None,
    deviation: float | None,
    block_deviation: float | None,
    samples: int,
    power: float,
    correlation: float,
) -> Plan:
    """:func:`power`, for Python and for the command line."""
    sources = [deviation is not None, block_deviation is not None, baseline is not None]
    if sum(sources) != 1:
        raise StreamgaugeError(
            "Give one of these: runs of a baseline, the deviation over seeds, or the block"
            " deviation (over tenths of the stream)."
        )
    if not -1 <= correlation < 1:
        raise StreamgaugeError(f"A correlation is at least -1 and below 1, not {correlation:g}.")
    shares = {"deviation": deviation, "block deviation": block_deviation}
    for name, value in shares.items():
        if isinstance(value, str):
            raise StreamgaugeError(f"The {name} must be a number, not {value!r}.")
        if value is not None and abs(value) > 1:
            raise StreamgaugeError(
                f"A {name} of accuracies is a share, at most 1, not {value:g}: 0.02 is two points."
            )
    check_goal(difference, power, shares=baseline is None)
    if deviation is not None:
        return plan(given(deviation), difference, FEWEST_SEEDS, 0, power, points, _seeds())
    if block_deviation is not None:
        if samples < 1:
            raise StreamgaugeError(
                "A block deviation needs samples: the length of the stream that it belongs to."
            )
        variances = given_blocks(block_deviation)
        return plan(variances, difference, 1, samples, power, points, _lengths(1))
    variances, seeds, samples, metric, others = _of_baseline(baseline, metric)
    check_goal(difference, power, is_share(metric))
    both = 2 * (1 - correlation)  # Var(A - B) where A and B vary alike
    scaled = _times(variances, both)
    table = _seeds() if seeds > 1 else _lengths(1)
    result = plan(scaled, difference, seeds, samples, power, unit_of(metric), table, others)
    how = "without help from pairing" if not correlation else f"with correlation {correlation:g}"
    note = f"Scores are {metric}; the other learner is taken to vary like the baseline, {how}."
    return Plan(**{**vars(result), "sentence": f"{result.sentence} {note}"})


def _seeds() -> list[tuple[int, float]]:
    return [(seeds, 1.0) for seeds in SEEDS]


def _lengths(seeds: int) -> list[tuple[int, float]]:
    return [(seeds, float(longer)) for longer in LONGER]


def _times(variances: Variances, factor: float) -> Variances:
    seeds, blocks, both, count, possible = variances
    if possible is not None:
        of_seeds, of_blocks, of_both, weight = possible
        possible = (factor * of_seeds, factor * of_blocks, factor * of_both, weight)
    return Variances(factor * seeds, factor * blocks, factor * both, count, possible)


def _of_baseline(
    runs: Run | str | Path | Iterable[Any], metric: str | None
) -> tuple[Variances, int, int, str, list[str]]:
    """Variances, seeds, samples per run, the name of the metric, and metrics that vary."""
    done = [run for run in find_runs(runs) if run.done]
    if not done:
        raise StreamgaugeError("The baseline holds no complete run.")
    for run in done[1:]:
        if _key(run) != _key(done[0]):
            raise StreamgaugeError(
                "The baseline holds runs of several learners, settings or streams: give the runs"
                " of one learner on one stream, seeds apart."
            )
    scores = [score_log(Run(run.path)) for run in done]
    common = set.intersection(*map(set, scores))
    metric = metric or main_score(common)
    if metric not in common:
        raise StreamgaugeError(f"The runs do not all have '{metric}'; {nearest(metric, common)}")
    shift = shift_of(metric)
    if shift is None:
        if len(done) == 1:
            raise StreamgaugeError(
                f"{metric} is one number per seed, and one seed does not tell how seeds differ:"
                " run three or more."
            )
        values = [of[metric] for of in scores]
        variances = measured(estimate(values, [0.0] * len(values)))
        return variances, len(done), 0, metric, varying(scores)
    shares, blocks = stretches({"baseline": done}, shift)
    zeros = [np.zeros_like(of) for of in shares["baseline"]]
    samples = int((Run(done[0].path).predictions["shift"] == shift).sum())
    variances = measured(estimate(shares["baseline"], zeros, max(blocks, 1)))
    return variances, len(done), samples, metric, varying(scores)


def _key(run: Run) -> dict[str, Any]:
    """Own data may differ between seeds."""
    stream = {k: v for k, v in stream_key(run).items() if k != "data"}
    return {"learner": learner_key(run), "stream": stream}


def unit_of(metric: str) -> Callable[[float], str]:
    """How values of a metric are written."""
    return points if is_share(metric) else _number


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, shown in points."""
    from streamgauge.report.terminal import SHARES

    return any(part in metric for part in SHARES) and not metric.startswith("unnormalised")


def varying(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The shares among these scores, one mapping per seed, that vary; those along the stream
    first."""
    each = list(scores)
    names = [
        name
        for name in set.intersection(*map(set, each))
        if is_share(name) and len({of[name] for of in each}) > 1
    ]
    return sorted(names, key=lambda name: (shift_of(name) is None, shift_of(name) or 0, name))


def points(value: float) -> str:
    return f"{100 * value:.{1 if abs(value) >= 0.00095 or not value else 3}f} points"


def _number(value: float) -> str:
    return f"{value:.4g}"
