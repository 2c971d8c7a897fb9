"""What was found as one page: the sentence, CLOC's picture, and every model in every period."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from streamgauge.drift.compare import Curve, Drift
from streamgauge.pages.sheet import Drawing, Sheet, Table

# Numbers below are no dates but counters of their own.
_FIRST_DATE = 100_000_000


def sheet(found: Drift) -> Sheet:
    """The page, ready to be written."""
    return Sheet(
        title=f"Is there a shift in {found.name}?",
        words=[found.words],
        notes=[how(found), *found.notes],
        figures=[_over_time(found)],
        tables=[_matrix(found)],
    )


def how(found: Drift) -> str:
    """How the figures came about, in sentences."""
    seen = (
        "linear models of the inputs and of random waves over them"
        if found.inputs
        else "class frequencies, as no inputs were given; an accuracy is the chance that a guess "
        "drawn from them is right"
    )
    return (
        f"{found.samples:,} samples of {found.classes:,} classes in {found.periods} periods of "
        f"equally many samples; models are {seen}. Each learnt from {found.trained_on:,} samples; "
        f"{found.tested_on:,} others were tested, at least {found.gap:,} samples away from any "
        f"that were learnt. False alarms: {found.chance:.3g} of streams without a shift."
    )


def _over_time(found: Drift) -> Drawing:
    dated = found.time is not None and int(found.time[0]) > _FIRST_DATE
    x: list[Any] = found.position.round().astype(int).tolist()
    first, last = found.spans[found.shown - 1]
    ends: tuple[Any, Any] = (first, last)
    if found.time is not None and found.span_times is not None and dated:
        x = [_date(t) for t in found.time.tolist()]
        ends = (_date(found.span_times[found.shown - 1][0]),
                _date(found.span_times[found.shown - 1][1]))  # fmt: skip
    traces = [
        *_band(x, found.local, f"model of period {found.shown}", 1),
        *_band(x, found.full, "model of the whole range", 0),
    ]
    shade = {
        "type": "rect", "x0": ends[0], "x1": ends[1], "y0": 0, "y1": 1, "yref": "paper",
        "fillcolor": "rgba(128,128,128,.16)", "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
    return Drawing(
        "Accuracy over time",
        f"Shaded is the period that one of the models learnt from (the {_nth(found.shown)} of "
        f"{found.periods}); the other learnt from as many samples of all periods. Bands are 95 % "
        "intervals. Where there is a shift, the first falls off outside its period.",
        traces,
        {
            "xaxis": {"title": {"text": "time" if dated else "position in the stream, samples"}},
            "yaxis": {"title": {"text": "accuracy"}, "tickformat": ".0%" if _coarse(found) else
                      ".1%", "rangemode": "tozero"},
            "shapes": [shade],
        },
    )  # fmt: skip


def _coarse(found: Drift) -> bool:
    return float(max(found.local.high.max(), found.full.high.max())) > 0.08


def _band(x: list[Any], curve: Curve, name: str, colour: int) -> list[dict[str, Any]]:
    meta = {"colour": colour}
    return [
        {
            "type": "scatter", "mode": "lines", "x": [*x, *reversed(x)],
            "y": [*curve.high.tolist(), *reversed(curve.low.tolist())], "fill": "toself",
            "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "meta": meta,
        },
        {
            "type": "scatter", "mode": "lines+markers", "x": x, "y": curve.accuracy.tolist(),
            "name": name, "hovertemplate": "%{y:.1%}", "line": {"width": 2},
            "marker": {"size": 5}, "meta": meta,
        },
    ]  # fmt: skip


def _matrix(found: Drift) -> Table:
    names = [str(n + 1) for n in range(found.periods)]
    if found.span_times is not None and found.span_times[0][0] > _FIRST_DATE:
        names = [
            f"{n}: {_date(first)[:10]} – {_date(last)[:10]}"
            for n, (first, last) in zip(names, found.span_times, strict=True)
        ]
    head = ["learnt in period", *(f"in {n + 1}" for n in range(found.periods))]
    rows = [
        [name, *(f"{100 * value:.1f}" for value in row)]
        for name, row in zip(names, found.matrix, strict=True)
    ]
    return Table("Accuracy in %, of every period's model in every period", head, rows)


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number if number < 20 else number % 10, "th")
    return f"{number}{ending}"
