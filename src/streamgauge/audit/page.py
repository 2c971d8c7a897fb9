"""The page of an audit: its sentences, levels and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamgauge.audit.auditor import Audit
from streamgauge.audit.terminal import (
    ADVANTAGE,
    BITS,
    BITS_BY_SHIFT,
    EXPERTS,
    FUTURES,
    LEVELS,
    WINDOWS,
    Table,
    columns_line,
    tables,
)
from streamgauge.audit.words import forecaster_weights, paragraphs
from streamgauge.history.bits import Explanation
from streamgauge.pages import Block, Figure, Page, PageTable, Section, Text
from streamgauge.pages.figures import (
    band,
    figure,
    horizontal,
    layer,
    line,
    markers,
    part_of_bar,
    shift_axis,
    vertical,
)

SHOWN_EXPERTS = 6
ADVANTAGE_LINE = "advantage of past labels"
FIRST = ("the model", "best blind classifier", "added by the answers", "left by past labels",
         ADVANTAGE_LINE)  # fmt: skip
# Levels that stand for no model.
GREY = ("best constant so far", "majority so far", "class frequencies", "added by the placebo")
PARTS = "Parts are too short for intervals of their own; the intervals above are for the whole log."


def audit_page(audit: Audit, gates: Sequence[tuple[str, bool]] = ()) -> Page:
    """The page, ready to be written; `gates` are conditions and whether each holds."""
    text, shown = paragraphs(audit), {table.title: _table(table) for table in tables(audit)}
    blocks: list[Block] = [Text(columns_line(audit))]
    for condition, failed in gates:
        result = "it holds, so the gate fails" if failed else "it does not hold"
        sentence = f"Condition “{condition}”: {result}."
        blocks.append(Text(sentence, "failure") if failed else sentence)
    blocks.append(text["answer"])
    blocks += [Text(f"Note: {note}") for note in audit.notes]
    sections: dict[str, list[Block | None]] = {
        "What past labels predict, and what the answers add": [
            text.get("history"), *_bits_figures(audit),
            shown.get(BITS), shown.get(EXPERTS), shown.get(BITS_BY_SHIFT)],
        "Accuracy": [
            text["accuracy"], text.get("repeats"), text.get("inputs"), _over_time(audit),
            shown.get(LEVELS)],
        "How far ahead past labels help": [
            text["shift"], _excess(audit), shown.get(ADVANTAGE), text.get("future"),
            _by_shift(audit), shown.get(FUTURES), shown.get(WINDOWS)],
    }  # fmt: skip
    for title, content in sections.items():
        blocks.append(Section(title, [block for block in content if block is not None]))
    return Page("Streamgauge audit", f"Audit of {audit.name}", blocks, grey=GREY, first=FIRST)


def _table(table: Table) -> PageTable:
    columns = [table.text] if table.text else ()
    return PageTable(table.head, table.rows, table.title, text_columns=columns, sortable=True)


def _bits_figures(audit: Audit) -> list[Block]:
    bits = audit.bits
    if bits is None:
        return []
    figures: list[Block] = [_bits(bits, audit.permuted)]
    if len(bits.over_time["position"]) > 1:
        figures += [_weights(audit, bits), _bits_over_time(bits)]
    return figures


def _bits(bits: Explanation, permuted: Explanation | None) -> Figure:
    """Rows of one bar chart; the first is stacked: base = history + remaining."""
    base = f"the labels ({bits.base.value:.2f} bits)"
    rows = [
        ("predicted by past labels", base, bits.history),
        ("not predicted by past labels", base, bits.remaining),
        ("added by the answers", "the answers add", bits.added),
        ("added by the placebo", "the placebo adds", bits.placebo),
        (
            "added with permuted inputs",
            "permuted inputs add",
            None if permuted is None else permuted.added,
        ),
    ]
    traces = [
        part_of_bar(name, row, f.value, f.low, f.high, "bits")
        for name, row, f in rows
        if f is not None and f.value == f.value
    ]
    return figure(
        "Bits per sample",
        "The first bar is what class frequencies leave open; its parts are what past labels "
        "predict of it, and what remains. Whiskers are 95 % intervals.",
        traces,
        "bits per sample",
        "",
        barmode="relative",
        hovermode="closest",
        y_axis={"range": [len({t["y"][0] for t in traces}) - 0.5, -0.5]},  # the first row on top
        from_zero=False,
    )


def _bits_over_time(bits: Explanation) -> Figure:
    curves = bits.over_time
    names = {"base": "class frequencies", "remaining": "left by past labels",
             "added": "added by the answers", "placebo": "added by the placebo"}  # fmt: skip
    return figure(
        "Bits over the stream",
        f"Bits per sample in consecutive parts. {PARTS}",
        [
            line(name, curves["position"], curves[key], scale=1)
            for key, name in names.items()
            if key in curves and np.isfinite(curves[key]).any()
        ],
        "samples",
        "bits per sample",
    )


def _weights(audit: Audit, bits: Explanation) -> Figure:
    position, experts = bits.over_time["position"], forecaster_weights(audit)
    shown, rest = experts[:SHOWN_EXPERTS], experts[SHOWN_EXPERTS:]
    traces = [layer(e.name, position, e.weights) for e in shown]
    if rest:
        others = sum(e.weights for e in rest)
        traces.append(layer(f"{len(rest)} others", position, others))
    return figure(
        "Which label history predicts",
        "Weights of the forecasters in the mixture: which of them predicted best so far. Weights "
        "are computed from all labels known by then, so they have no interval.",
        traces,
        "samples",
        "weight, %",
        y_axis={"range": [0, 100]},
    )


def log_shifts(shifts: Iterable[float]) -> Any:
    """Positions on the axis of shifts, which is logarithmic with a true 0, the next sample."""
    return shift_axis(shifts)[0]


def _axis(audit: Audit) -> str:
    return f"shift, in {'seconds' if audit.choice.unit == 'seconds' else 'samples'}"


def _excess(audit: Audit) -> Figure | None:
    choice = audit.choice
    if not len(choice.shifts):
        return None
    x, axis = shift_axis(choice.shifts)
    traces = [
        band(x, np.minimum(choice.excess, choice.upper), choice.upper, "95 % upper bound",
             key=ADVANTAGE_LINE, legend=True),
        line(ADVANTAGE_LINE, x, choice.excess, markers=True, width=3),
    ]  # fmt: skip
    caption = (
        "How much more often the best blind classifier is right than the best constant. The "
        f"dotted level is the tolerance of {100 * choice.tolerance:g} points; the correlation is "
        "gone from the shift from which on the whole band, up to the 95 % upper bound, is below it"
    )
    gone = "at no shift that was examined" if choice.shift is None else "dotted line"
    return figure(
        "Advantage of past labels by shift",
        f"{caption} ({gone}).",
        traces,
        _axis(audit),
        "points",
        x_axis=axis,
        meta={"shifts": True},
        shapes=[
            horizontal(100 * choice.tolerance),
            *([vertical(float(log_shifts([choice.shift])[0]))] if choice.shift else []),
        ],
    )


def _by_shift(audit: Audit) -> Figure | None:
    choice = audit.choice
    asked = [future.shift for future in audit.futures] if choice.unit == "samples" else []
    if not len(choice.shifts) and not asked:
        return None
    x, axis = log_shifts(choice.shifts), shift_axis([0, *asked, *choice.shifts])[1]
    traces = [
        line("best constant so far", x, choice.constant, markers=True),
        line("best blind classifier", x, choice.accuracy, markers=True, width=3),
    ]
    if audit.futures and choice.unit == "samples":
        levels = [(float(f.shift), f.accuracy) for f in audit.futures]
        if audit.online.samples and levels[0][0] > 0:
            levels.insert(0, (0.0, audit.online))
        halves = [100 * (level.high - level.value) for _, level in levels]
        values = [100 * level.value for _, level in levels]
        traces.append(markers("the model", log_shifts(s for s, _ in levels), values, halves))
    return figure(
        "Accuracy by shift",
        "Whiskers of the model are 95 % intervals; that of the advantage of the blind classifier "
        "is in the figure above.",
        traces,
        _axis(audit),
        x_axis=axis,
        meta={"shifts": True},
        shapes=[vertical(float(log_shifts([choice.shift])[0]))] if choice.shift else [],
    )


def _over_time(audit: Audit) -> Figure | None:
    curves = audit.over_time
    if len(curves.get("position", ())) < 2:
        return None
    names = {"blind": "best blind classifier", "majority": "majority so far",
             "online": "the model"}  # fmt: skip
    return figure(
        "Accuracy over the stream",
        f"Each point is one hundredth of the scored part. {PARTS}",
        [
            line(name, curves["position"], curves[key])
            for key, name in names.items()
            if key in curves
        ],
        "samples",
    )
