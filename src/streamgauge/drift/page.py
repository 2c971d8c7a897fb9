"""The page of a drift test: its result, accuracy over time, and each model in each period."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from streamgauge.drift.compare import Drift
from streamgauge.pages import Figure, Page, Text, shaded_table
from streamgauge.pages.figures import band, figure, horizontal, line, shaded

# Smaller numbers are counters of samples, larger ones seconds since 1970.
_FIRST_DATE = 100_000_000


def drift_page(drift: Drift) -> Page:
    """The page, ready to be written."""
    periods = range(1, drift.periods + 1)
    return Page(
        "Streamgauge: drift",
        f"Does {drift.name} drift?",
        [
            drift.words,
            Text(method_text(drift)),
            *(Text(note) for note in drift.notes),
            _by_distance(drift),
            _over_time(drift),
            shaded_table(
                "Accuracy in %, of every period's model in every period, shaded from the lowest to "
                "the highest",
                ["learnt in period", *(f"in {n}" for n in periods)],
                _period_names(drift),
                drift.matrix.tolist(),
            ),
        ],
    )


def method_text(drift: Drift) -> str:
    """How the numbers were computed, in sentences."""
    models = (
        "linear models of the inputs and of random Fourier features of them"
        if drift.inputs
        else "class frequencies, as no inputs were given; an accuracy is the chance that a guess "
        "drawn from them is right"
    )
    return (
        f"{drift.samples:,} samples of {drift.classes:,} classes in {drift.periods} periods of "
        f"equally many samples; models are {models}. Each learnt from {drift.trained_on:,} "
        f"samples; {drift.tested_on:,} others were tested, at least {drift.gap:,} samples away "
        f"from any that were learnt. False alarms: {drift.chance:.3g} of streams without drift."
    )


def _by_distance(drift: Drift) -> Figure:
    """What the result is about: how much better a model is near its period than far from it."""
    periods = drift.periods
    advantage = (drift.matrix - drift.matrix.mean(axis=0)) * periods / (periods - 1)
    apart = np.abs(np.subtract.outer(np.arange(periods), np.arange(periods)))
    means = [float(advantage[apart == distance].mean()) for distance in range(periods)]
    return figure(
        "Advantage of a model by distance from its period",
        "How much more accurate a model of one period is than the models of the others, mean over "
        "all models: at 0 in its own period, as in the result above; at 1 in the periods next to "
        "it. Without drift, the line stays near 0.",
        [line("advantage", range(periods), means, markers=True)],
        "distance, in periods",
        "points",
        from_zero=False,
        shapes=[horizontal(0)],
    )


def _over_time(drift: Drift) -> Figure:
    x: list[Any] = drift.position.round().astype(int).tolist()
    first, last = drift.spans[drift.shown - 1]
    ends: tuple[Any, Any] = (first, last)
    dated = drift.time is not None and int(drift.time[0]) > _FIRST_DATE
    if drift.time is not None and drift.span_times is not None and dated:
        x = [_date(t) for t in drift.time.tolist()]
        first, last = drift.span_times[drift.shown - 1]
        ends = (_date(first), _date(last))
    traces = []
    for name, curve in (
        (f"model of period {drift.shown}", drift.local),
        ("model of the whole range", drift.full),
    ):
        traces.append(band(x, curve.low, curve.high, name))
        traces.append(line(name, x, curve.accuracy, markers=True))
    return figure(
        "Accuracy over time",
        f"One example: shaded is the period that one of the models learnt from ({drift.shown} of "
        f"{drift.periods}); the other learnt from as many samples of all periods. Bands are 95 % "
        "intervals. One period may look different from what holds on average: the result above is "
        "over all periods.",
        traces,
        "time" if dated else "position in the stream, samples",
        shapes=[shaded(*ends)],
    )


def _period_names(drift: Drift) -> list[str]:
    names = [str(n + 1) for n in range(drift.periods)]
    if drift.span_times is None or drift.span_times[0][0] <= _FIRST_DATE:
        return names
    return [
        f"{n}: {_date(first)[:10]} – {_date(last)[:10]}"
        for n, (first, last) in zip(names, drift.span_times, strict=True)
    ]


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
