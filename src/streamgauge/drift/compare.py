"""Is there a shift at all? Models of one period each, tested in all periods.

Source: Cai et al. 2021 (CLOC), Figure 2: a model of the year 2010 and one of all years, from
equally many samples, are tested over time; the first falls off outside its year. Here every period
has its model, so that the answer is a test and not a look at one curve:

    advantage = mean over stretches of [ model of the stretch's own period - mean of the others ]

If nothing changes, it does not matter which period a stretch is in, and reassigning stretches to
periods at random gives the distribution of the advantage by chance (a permutation test: its false
alarm rate is the chance asked for, where stretches are independent; gaps see to that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.intervals import interval
from streamgauge.audit.log import Log
from streamgauge.drift.layout import Layout, correlation_length, lay_out
from streamgauge.drift.models import Read, scores_blind, scores_seeing
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Accuracy over time of one model, with 95 % intervals from the spread of its stretches."""

    accuracy: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Drift:
    """What was found. Accuracies are shares; positions are samples of the stream."""

    name: str
    samples: int
    classes: int
    inputs: bool  # whether models saw inputs; otherwise they guess by class frequencies
    advantage: float  # own period's model over other periods' models
    limits: tuple[float, float]  # its 95 % interval
    p_value: float
    chance: float  # false alarms accepted
    own: float  # a period's model in its own period
    other: float  # in other periods
    whole: float  # the model of the whole range
    periods: int
    trained_on: int
    tested_on: int
    gap: int
    shown: int  # the period whose model is drawn
    position: Floats
    time: Ints | None  # of the positions
    local: Curve
    full: Curve
    spans: list[tuple[int, int]]  # first and last position of each period
    span_times: list[tuple[int, int]] | None
    matrix: Floats  # [model of period, tested in period]
    notes: tuple[str, ...] = ()

    @property
    def shift(self) -> bool:
        return self.p_value <= self.chance

    @property
    def words(self) -> str:
        """The answer in one sentence."""
        low, high = (100 * one for one in self.limits)
        measure = "right" if self.inputs else "right, guessing by class frequencies,"
        compared = (
            f"a model of one of {self.periods} periods is {measure} {100 * self.own:.1f} % of the "
            f"time in its own period and {100 * self.other:.1f} % in the others "
            f"({100 * self.advantage:+.1f} points [{low:.1f}, {high:.1f}], "
            f"p = {self.p_value:.2g}), a model of the whole range from as many samples "
            f"{100 * self.whole:.1f} %"
        )
        if self.shift:
            return f"There is a shift: {compared}."
        if low > 0:
            return (
                f"It is not certain that there is a shift, at the {self.chance:.3g} false alarms "
                f"asked for: {compared}."
            )
        return (
            f"No shift can be seen: {compared}; an advantage of more than "
            f"{max(high, 0.0):.1f} points is unlikely."
        )

    def to_dict(self) -> dict[str, Any]:
        """For a program to read."""
        return {
            "shift": self.shift,
            "words": self.words,
            "advantage": self.advantage,
            "interval": list(self.limits),
            "p_value": self.p_value,
            "chance": self.chance,
            "own": self.own,
            "other": self.other,
            "whole": self.whole,
            "samples": self.samples,
            "classes": self.classes,
            "inputs": self.inputs,
            "periods": self.periods,
            "trained_on": self.trained_on,
            "tested_on": self.tested_on,
            "gap": self.gap,
            "shown": self.shown,
            "curves": {
                "position": self.position.tolist(),
                "time": None if self.time is None else self.time.tolist(),
                **{
                    name: {
                        "accuracy": curve.accuracy.tolist(),
                        "low": curve.low.tolist(),
                        "high": curve.high.tolist(),
                    }
                    for name, curve in (("period", self.local), ("whole", self.full))
                },
            },
            "matrix": self.matrix.tolist(),
            "notes": list(self.notes),
        }


def find_drift(
    label: ArrayLike,
    x: NDArray[Any] | Read | None = None,
    *,
    time: ArrayLike | None = None,
    periods: int | None = None,
    shown: int | None = None,
    gap: int | None = None,
    samples: int = 20_000,
    tests: int = 20_000,
    chance: float = 0.01,
    permutations: int = 1999,
    seed: int = 0,
    name: str = "the stream",
    notes: Sequence[str] = (),
) -> Drift:
    """Compare models of periods over a stream whose labels (and inputs) come in order of time.

    `x` are inputs, an array or a function from positions to inputs; without it, models know only
    how frequent each class was. `gap` is the distance in samples between what is learnt and what is
    tested; by default the correlation length of the labels. `periods` are of equally many samples,
    ten where the stream is long enough; `shown` (from 1) is the one that is drawn, by default the
    middle one. `chance` is the rate of false alarms.

    >>> rng = np.random.default_rng(0)
    >>> still = rng.integers(0, 5, 4000)
    >>> find_drift(still).shift, find_drift(np.sort(still)).shift
    (False, True)
    """
    labels = np.asarray(label)
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise StreamgaugeError("Labels must be one whole number a sample.")
    if not 0 < chance < 1:
        raise StreamgaugeError(f"--chance is a share between 0 and 1; it is {chance}.")
    if permutations + 1 < 1 / chance:
        raise StreamgaugeError(
            f"--chance is {1 / (permutations + 1):g} at the least, as it is found from "
            f"{permutations:,} permutations; it is {chance:g}."
        )
    if seed < 0:
        raise StreamgaugeError(f"--seed is a whole number from 0 on; it is {seed}.")
    if samples < 2 or tests < 2:
        raise StreamgaugeError("--samples is at least 2, to learn from and to test on.")
    told = list(notes)
    _, codes = np.unique(labels, return_inverse=True)
    classes = int(codes.max(initial=-1)) + 1
    if classes < 2:
        raise StreamgaugeError("There is one class only, so there is nothing to tell apart.")
    far = correlation_length(codes) if gap is None else gap
    if gap is None and far >= len(codes) // 40 > 0:
        told.append(
            f"The labels are still correlated {far:,} samples apart, so part of what is called a "
            "shift may be slow correlation: read it with the picture."
        )
    if far < 0:
        raise StreamgaugeError(f"--gap is a number of samples from 0 on; it is {far}.")
    plan = lay_out(len(codes), far, periods, samples, tests, seed)
    if shown is not None and not 1 <= shown <= plan.periods:
        raise StreamgaugeError(f"--period is a number from 1 to {plan.periods}; it is {shown}.")
    read = _reader(x, len(codes))
    train = [*plan.train, plan.whole]
    if read is None:
        right = scores_blind(codes, train, plan.test, classes)
    else:
        right = scores_seeing(codes, train, plan.test, read, seed)
    return _judge(
        plan,
        right,
        drawn=plan.periods // 2 if shown is None else shown - 1,
        chance=chance,
        permutations=permutations,
        seed=seed,
        time=None if time is None else np.asarray(time),
        facts={
            "name": name,
            "samples": len(codes),
            "classes": classes,
            "inputs": read is not None,
            "notes": tuple(told),
        },
    )


def _reader(x: NDArray[Any] | Read | None, count: int) -> Read | None:
    if x is None or callable(x):
        return x
    array = np.asarray(x)
    if len(array) != count:
        raise StreamgaugeError(f"There are {len(array)} inputs for {count} labels.")
    if array.size == 0:
        return None
    return lambda index: array[index]


def _judge(
    plan: Layout,
    right: NDArray[np.float32],
    *,
    drawn: int,
    chance: float,
    permutations: int,
    seed: int,
    time: NDArray[Any] | None,
    facts: Mapping[str, Any],
) -> Drift:
    blocks = len(plan.period)
    count = np.bincount(plan.block, minlength=blocks).astype(np.float64)
    mean = np.stack([np.bincount(plan.block, row, blocks) for row in right]) / count
    local, whole = mean[:-1], mean[-1]
    column = np.arange(blocks)
    lead = (local - local.mean(axis=0)) * plan.periods / (plan.periods - 1)  # over the other models
    each = lead[plan.period, column]
    advantage = float(each.mean())
    rng = np.random.default_rng([seed, 13])
    by_chance = np.array(
        [lead[rng.permutation(plan.period), column].mean() for _ in range(permutations)]
    )
    # Equal up to rounding counts as reached.
    reached = int(np.sum(by_chance >= advantage - 1e-12))
    own = float(local[plan.period, column].mean())
    error = float(each.std(ddof=1) / np.sqrt(blocks))
    parts = np.array_split(column, max(2, min(40, blocks // 5)))
    middle = np.array([plan.test[np.isin(plan.block, part)].mean() for part in parts])
    bounds = [(int(a), int(b) - 1) for a, b in zip(plan.starts[:-1], plan.starts[1:], strict=True)]
    return Drift(
        **facts,
        advantage=advantage,
        limits=interval(advantage, error, blocks),
        p_value=(1 + reached) / (1 + permutations),
        chance=chance,
        own=own,
        other=own - advantage,
        whole=float(whole.mean()),
        periods=plan.periods,
        trained_on=len(plan.whole),
        tested_on=len(plan.test),
        gap=plan.gap,
        shown=drawn + 1,
        position=middle,
        time=None if time is None else time[middle.round().astype(np.int64)],
        local=_curve(local[drawn], parts),
        full=_curve(whole, parts),
        spans=bounds,
        span_times=None if time is None else [(int(time[a]), int(time[b])) for a, b in bounds],
        matrix=np.stack([local[:, plan.period == p].mean(axis=1) for p in range(plan.periods)], 1),
    )


def _curve(values: Floats, parts: Sequence[Ints]) -> Curve:
    accuracy, low, high = [], [], []
    for part in parts:
        here = values[part]
        value = float(here.mean())
        a, b = interval(value, float(here.std(ddof=1) / np.sqrt(len(here))), len(here))
        accuracy.append(value)
        low.append(max(0.0, a))
        high.append(min(1.0, b))
    return Curve(np.array(accuracy), np.array(low), np.array(high))


def stream_drift(stream: Stream, **options: Any) -> Drift:
    """The same for a stream as it is arranged: its order is what is taken for time."""
    source, order = stream.source, stream.order
    blind = int(np.prod(stream.spec.input_shape)) == 0
    clock = source.columns.get("time")
    when = None if clock is None else clock[order]
    if when is not None and bool(np.any(when[1:] < when[:-1])):
        when = None  # the order is not that of the times
    return find_drift(
        source.label[order],
        None if blind else lambda position: source.read(order[position]),
        time=when,
        name=stream.name,
        **options,
    )


def table_drift(
    table: Any,
    *,
    features: Sequence[str] = (),
    label: str | None = None,
    time: str | None = None,
    **options: Any,
) -> Drift:
    """The same for a table with a label per row, in any format that `audit` reads, sorted by time
    where there is a column of times. `features` are columns of numbers; without any, the models
    know only how frequent each class was."""
    log = Log(table, features=features, label=label, time=time, prediction="none", user="none",
              album="none", step="none", shift="none", age="none")  # fmt: skip
    pieces = list(log.pieces())
    labels = np.concatenate([piece.label for piece in pieces])
    x = np.concatenate([p.features for p in pieces if p.features is not None]) if features else None
    notes = []
    if x is not None:
        whole = np.isfinite(x).all(axis=1)
        if not whole.all():
            notes.append(f"{int((~whole).sum()):,} rows lack a feature and are left out.")
    else:
        whole = np.ones(len(labels), bool)
    clock = None
    if "time" in log.roles:
        clock = np.concatenate([p.time for p in pieces if p.time is not None])
        order = np.argsort(clock, kind="stable")
        order = order[whole[order]]
        clock = clock[order]
    else:
        order = np.flatnonzero(whole)
        notes.append(
            "There is no column of times: the order of the file is taken for that of time."
        )
    return find_drift(
        labels[order],
        None if x is None else x[order],
        time=clock,
        name=log.name,
        notes=notes,
        **options,
    )
