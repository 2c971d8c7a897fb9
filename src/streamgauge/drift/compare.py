"""Drift test: one model per period, tested in all periods.

Source: Cai et al. 2021 (CLOC), Figure 2: a model of the year 2010 and a model of all years, trained
on equally many samples, are tested over time; the accuracy of the first is lower outside 2010. Here
every period has a model, which gives a statistical test instead of one curve:

    advantage = mean over test blocks of [ accuracy of the model of the block's own period
                                           - mean accuracy of the models of the other periods ]

Without drift, the period of a test block does not matter, and assigning blocks to periods at random
gives the distribution of the advantage under the null hypothesis (a permutation test: its false
alarm rate is ``chance`` if test blocks are independent, which the gaps around them ensure).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.audit.log import ROLES, PredictionLog
from streamgauge.drift.layout import Layout, correlation_length, lay_out
from streamgauge.drift.models import InputReader, scores_blind, scores_with_inputs
from streamgauge.errors import StreamgaugeError
from streamgauge.history.intervals import interval
from streamgauge.streams import Stream
from streamgauge.streams.gate import scaled_columns
from streamgauge.streams.scaling import location_and_spread
from streamgauge.versions import warn_deprecated

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Accuracy of one model over time, with 95 % intervals from the variance over test blocks."""

    accuracy: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Drift:
    """Result of a drift test. Accuracies are shares; positions are samples of the stream."""

    name: str
    samples: int
    classes: int
    inputs: bool  # whether models use inputs; otherwise they guess by class frequencies
    advantage: float  # accuracy of the own period's model minus that of other periods' models
    limits: tuple[float, float]  # 95 % interval of the advantage
    p_value: float
    chance: float  # accepted rate of false alarms
    own: float  # accuracy of a period's model in its own period
    other: float  # accuracy of a period's model in other periods
    whole: float  # accuracy of the model of the whole range
    periods: int
    trained_on: int
    tested_on: int
    gap: int
    shown: int  # the period whose model is plotted
    position: Floats
    local: Curve
    full: Curve
    spans: list[tuple[int, int]]  # first and last position of each period
    matrix: Floats  # [model of period, tested in period]
    time: Ints | None = None  # per position
    span_times: list[tuple[int, int]] | None = None
    notes: tuple[str, ...] = ()

    @property
    def drift(self) -> bool:
        return self.p_value <= self.chance

    @property
    def shift(self) -> bool:
        """The old name of `drift`."""
        warn_deprecated("Drift.shift is now Drift.drift; the old name", 2)
        return self.drift

    @property
    def interval(self) -> list[float]:
        return list(self.limits)

    @property
    def words(self) -> str:
        """The result in one sentence."""
        low, high = (100 * limit for limit in self.limits)
        guessing = "" if self.inputs else ", guessing by class frequencies,"
        numbers = (
            f"models of one of {self.periods} periods{guessing} have an accuracy of "
            f"{100 * self.own:.1f} % in their own period and {100 * self.other:.1f} % in others "
            f"({100 * self.advantage:+.1f} points [{low:.1f}, {high:.1f}], "
            f"p = {self.p_value:.2g}); a model of the whole range, trained on as many samples, has "
            f"{100 * self.whole:.1f} %"
        )
        if self.drift:
            return f"There is drift: {numbers}."
        if low > 0:
            return f"Drift is not certain at a false alarm rate of {self.chance:.3g}: {numbers}."
        return (
            f"No drift was detected: {numbers}; an advantage of more than "
            f"{max(high, 0.0):.1f} points is unlikely."
        )

    def to_dict(self) -> dict[str, Any]:
        """The result as numbers, lists and strings, for JSON."""
        names = (
            "drift words advantage interval p_value chance own other whole samples classes inputs "
            "periods trained_on tested_on gap shown"
        )
        curves = {"period": self.local, "whole": self.full}
        return {
            **{name: getattr(self, name) for name in names.split()},
            "shift": self.drift,  # the old name
            "curves": {
                "position": self.position.tolist(),
                "time": None if self.time is None else self.time.tolist(),
                **{
                    name: {part: values.tolist() for part, values in vars(curve).items()}
                    for name, curve in curves.items()
                },
            },
            "matrix": self.matrix.tolist(),
            "notes": list(self.notes),
        }


def find_drift(
    label: ArrayLike,
    x: NDArray[Any] | InputReader | None = None,
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
    """Compare models of periods over a stream whose labels (and inputs) are in order of time.

    `x` are inputs, an array or a function from positions to inputs; without inputs, models use only
    class frequencies. `gap` is the least distance in samples between training and test samples, by
    default the correlation length of the labels. The stream is cut into `periods` periods of
    equally many samples, by default ten if it is long enough. `shown` (from 1) is the period whose
    model is plotted, by default the one whose advantage is nearest to the mean of all. `chance` is
    the rate of false alarms.

    >>> rng = np.random.default_rng(0)
    >>> still = rng.integers(0, 5, 4000)
    >>> find_drift(still).drift, find_drift(np.sort(still)).drift
    (False, True)
    """
    labels = np.asarray(label)
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise StreamgaugeError("Labels must be one whole number per sample.")
    if not 0 < chance < 1:
        raise StreamgaugeError(f"--chance must be between 0 and 1, not {chance}.")
    if permutations + 1 < 1 / chance:
        raise StreamgaugeError(
            f"--chance must be at least {1 / (permutations + 1):g}, the smallest p-value of "
            f"{permutations:,} permutations, not {chance:g}."
        )
    if seed < 0:
        raise StreamgaugeError(f"--seed must be a whole number from 0, not {seed}.")
    if samples < 2 or tests < 2:
        raise StreamgaugeError("--samples must be at least 2, for training and for testing.")
    messages = list(notes)
    _, codes = np.unique(labels, return_inverse=True)
    classes = int(codes.max(initial=-1)) + 1
    if classes < 2:
        raise StreamgaugeError("There is one class only: a drift test needs two or more.")
    distance = correlation_length(codes) if gap is None else gap
    if gap is None and distance >= len(codes) // 40 > 0:
        messages.append(
            f"Labels {distance:,} samples apart are still correlated, so part of the drift may be "
            "slow correlation: check the plot over time."
        )
    if distance < 0:
        raise StreamgaugeError(f"--gap must be a number of samples from 0, not {distance}.")
    plan = lay_out(len(codes), distance, periods, samples, tests, seed)
    if shown is not None and not 1 <= shown <= plan.periods:
        raise StreamgaugeError(f"--period must be a number from 1 to {plan.periods}, not {shown}.")
    reader = _reader(x, len(codes))
    training_sets = [*plan.train, plan.whole]
    if reader is None:
        scores = scores_blind(codes, training_sets, plan.test, classes)
    else:
        scores = scores_with_inputs(codes, training_sets, plan.test, reader, seed)
    plotted = None if shown is None else shown - 1
    results = _from_scores(plan, scores, plotted, permutations, seed)
    if time is not None:
        times = np.asarray(time)
        results["time"] = times[results["position"].round().astype(np.int64)]
        results["span_times"] = [(int(times[a]), int(times[b])) for a, b in results["spans"]]
    return Drift(
        **results,
        name=name,
        samples=len(codes),
        classes=classes,
        inputs=reader is not None,
        chance=chance,
        notes=tuple(messages),
    )


def _reader(x: NDArray[Any] | InputReader | None, count: int) -> InputReader | None:
    if x is None or callable(x):
        return x
    array = np.asarray(x)
    if len(array) != count:
        raise StreamgaugeError(
            f"There are {len(array)} inputs for {count} labels: give one input per label."
        )
    if array.size == 0:
        return None
    return lambda index: array[index]


def _from_scores(
    plan: Layout, scores: NDArray[np.float32], plotted: int | None, permutations: int, seed: int
) -> dict[str, Any]:
    """The fields of a `Drift` that follow from the scores `[models, tests]`."""
    blocks = len(plan.period)
    count = np.bincount(plan.block, minlength=blocks).astype(np.float64)
    mean = np.stack([np.bincount(plan.block, row, blocks) for row in scores]) / count
    local, whole = mean[:-1], mean[-1]
    block_index = np.arange(blocks)
    # Accuracy of each model minus the mean of the other models, [models, blocks].
    advantages = (local - local.mean(axis=0)) * plan.periods / (plan.periods - 1)
    block_advantages = advantages[plan.period, block_index]
    advantage, limits = _mean_with_interval(block_advantages)
    rng = np.random.default_rng([seed, 13])
    permuted = np.array(
        [advantages[rng.permutation(plan.period), block_index].mean() for _ in range(permutations)]
    )
    # The tolerance counts permutations that are equal up to rounding.
    reached = int(np.sum(permuted >= advantage - 1e-12))
    own = float(local[plan.period, block_index].mean())
    if plotted is None:  # the period that shows best what holds on average
        each = np.bincount(plan.period, block_advantages) / np.bincount(plan.period)
        plotted = int(np.argmin(np.abs(each - advantage)))
    bins = np.array_split(block_index, max(2, min(40, blocks // 5)))
    positions = np.array([plan.test[np.isin(plan.block, bin_blocks)].mean() for bin_blocks in bins])
    spans = [(int(a), int(b) - 1) for a, b in zip(plan.starts[:-1], plan.starts[1:], strict=True)]
    return {
        "advantage": advantage,
        "limits": limits,
        "p_value": (1 + reached) / (1 + permutations),
        "own": own,
        "other": own - advantage,
        "whole": float(whole.mean()),
        "periods": plan.periods,
        "trained_on": len(plan.whole),
        "tested_on": len(plan.test),
        "gap": plan.gap,
        "shown": plotted + 1,
        "position": positions,
        "local": _curve(local[plotted], bins),
        "full": _curve(whole, bins),
        "spans": spans,
        "matrix": np.stack(
            [local[:, plan.period == p].mean(axis=1) for p in range(plan.periods)], 1
        ),
    }


def _curve(values: Floats, bins: Sequence[Ints]) -> Curve:
    means = [_mean_with_interval(values[blocks]) for blocks in bins]
    accuracy, low, high = np.array([(mean, *limits) for mean, limits in means]).T
    return Curve(accuracy, low.clip(min=0), high.clip(max=1))


def _mean_with_interval(values: Floats) -> tuple[float, tuple[float, float]]:
    """The mean over test blocks, with its 95 % interval."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    return mean, interval(mean, error, len(values))


def stream_drift(stream: Stream, **options: Any) -> Drift:
    """The drift test of a stream; its order is taken as the order of time."""
    source, order = stream.source, stream.order
    no_inputs = int(np.prod(stream.spec.input_shape)) == 0
    times = source.columns.get("time")
    ordered_times = None if times is None else times[order]
    if ordered_times is not None and bool(np.any(ordered_times[1:] < ordered_times[:-1])):
        ordered_times = None  # the stream is not in order of time
    # In columns that are standardised online, NaN is a missing value.
    fill = location_and_spread(source.read(order))[0] if scaled_columns(source) else None

    def read(position: Ints) -> Any:
        x = source.read(order[position])
        return x if fill is None else np.where(np.isfinite(x), x, fill)

    x = None if no_inputs else read
    return find_drift(source.label[order], x, time=ordered_times, name=stream.name, **options)


def table_drift(
    table: Any,
    *,
    features: Sequence[str] = (),
    label: str | None = None,
    time: str | None = None,
    **options: Any,
) -> Drift:
    """The drift test of a table with one label per row, in any format that `audit` reads, sorted by
    time if it has a time column. `features` are numeric columns used as inputs; without them,
    models use only class frequencies."""
    unused = dict.fromkeys(set(ROLES) - {"label", "time"}, "none")
    log = PredictionLog(table, features=features, label=label, time=time, **unused)
    pieces = list(log.pieces())
    labels = np.concatenate([piece.label for piece in pieces])
    x = np.concatenate([p.features for p in pieces if p.features is not None]) if features else None
    notes = []
    if log.unlabelled:
        notes.append(f"{log.unlabelled:,} rows without a label are left out.")
    if x is not None:
        complete = np.isfinite(x).all(axis=1)
        if not complete.all():
            notes.append(f"{int((~complete).sum()):,} rows with a missing feature are left out.")
    else:
        complete = np.ones(len(labels), bool)
    times = None
    if "time" in log.roles:
        times = np.concatenate([p.time for p in pieces if p.time is not None])
        order = np.argsort(times, kind="stable")
        order = order[complete[order]]
        times = times[order]
    else:
        order = np.flatnonzero(complete)
        notes.append(
            "There is no time column: the order of the file is taken as the order of time."
        )
    x = None if x is None else x[order]
    return find_drift(labels[order], x, time=times, name=log.name, notes=notes, **options)
