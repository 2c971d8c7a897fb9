"""The audit in a terminal: sentences, then tables. The page has the same tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamgauge.audit.auditor import Audit
from streamgauge.audit.repeats import Level
from streamgauge.audit.words import bit_number, findings, forecaster_weights, percent, plain_name

# Titles of the tables.
BITS = "Bits per sample"
EXPERTS = "Which label history predicts: forecasters"
BITS_BY_SHIFT = "Bits per sample, by shift or age of the model"
LEVELS = "Levels"
ADVANTAGE = "Advantage of past labels in points with its 95 % upper bound, by shift"
FUTURES = "Accuracy, by shift or age of the model"
WINDOWS = "The most frequent of the last labels: right, in %, by shift"
SHOWN_EXPERTS = 8
SHOWN_SHIFTS = 10
SHOWN_COLUMNS = 10
# Why a level has no interval.
REFERENCE = "none: reference level"
NO_ENDS = "none: few or equal blocks"


class Table(NamedTuple):
    """A title, the head and the rows; the first column names the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 0
    """A further column of words."""


def render(audit: Audit) -> Any:
    """What rich prints."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(f"Audit of {audit.name}", style="bold"), Text(columns_line(audit))]
    for number, sentence in enumerate(audit.words):
        parts.append(Padding(Text(sentence, style="" if number else "bold"), (1, 0, 0, 0)))
    for note in audit.notes:
        parts.append(Padding(Text(f"Note: {note}", style="dim"), (1, 0, 0, 0)))
    for table in tables(audit):
        parts += [Text(""), _rich(table)]
    return Group(*parts)


def columns_line(audit: Audit) -> str:
    """Which column of the file has which role, and which have none."""
    roles = []
    for role, name in audit.columns.items():
        roles.append(f"{role} = '{name}'{' (guessed)' if role in audit.guessed else ''}")
    unused = [f"'{name}'" for name in audit.columns_not_used]
    more = f" and {len(unused) - SHOWN_COLUMNS} more" if len(unused) > SHOWN_COLUMNS else ""
    rest = f"; not used: {', '.join(unused[:SHOWN_COLUMNS])}{more}" if unused else ""
    return "Columns: " + ", ".join(roles) + rest


def tables(audit: Audit) -> Iterator[Table]:
    """The tables of an audit that have rows."""
    every = (
        Table(BITS, ("", "bits", "95 % interval"), list(_bits_rows(audit))),
        Table(EXPERTS, ("forecaster", "mean weight"), _experts(audit)),
        _bits_by_shift(audit),
        Table(LEVELS, ("level", "value", "95 % interval"), list(_level_rows(audit))),
        _advantage(audit),
        _futures(audit),
        _blind(audit),
    )
    return (table for table in every if table.rows)


def _bits_rows(audit: Audit) -> Iterator[tuple[str, str, str]]:
    names = {
        "base": "the labels, by class frequencies (base)",
        "history": "of these, predicted by past labels (history)",
        "remaining": "not predicted by past labels (remaining)",
        "added": "saved beyond that by the answers (added)",
        "placebo": "the same for answers from past labels alone (placebo)",
    }
    for name, words in names.items():
        yield from _bits_row(words, getattr(audit.bits, name, None))
    yield from _bits_row("the same with permuted inputs", getattr(audit.permuted, "added", None))


def _bits_row(words: str, figure: Any) -> Iterator[tuple[str, str, str]]:
    if figure is not None and not math.isnan(figure.value):
        known = not math.isnan(figure.low)
        ends = f"{bit_number(figure.low)} to {bit_number(figure.high)}" if known else NO_ENDS
        yield words, bit_number(figure.value), ends


def _experts(audit: Audit) -> list[tuple[str, str]]:
    shown = forecaster_weights(audit)[:SHOWN_EXPERTS]
    return [(c.name, percent(c.weight)) for c in shown if c.weight >= 0.005]


def _bits_by_shift(audit: Audit) -> Table:
    head = (audit.by or "shift", "base", "history", "added", "95 % interval", "placebo")
    rows = []
    for shift, bits in audit.bits_at:
        ends = f"{bit_number(bits.added.low)} to {bit_number(bits.added.high)}"
        numbers = (bits.base, bits.history, bits.added)
        first = [f"{shift:,}", *(bit_number(figure.value) for figure in numbers)]
        placebo = bit_number(bits.placebo.value)
        rows.append([*first, NO_ENDS if "nan" in ends else ends, placebo])
    return Table(BITS_BY_SHIFT, head, rows)


def _level_rows(audit: Audit) -> Iterator[tuple[str, str, str]]:
    without, family = audit.without, findings(audit).words["family"]
    levels: list[tuple[str, float | Level, str]] = [
        ("online accuracy of the model", audit.online, ""),
        ("the same where blind classifiers are scored", audit.online_scored, "see the line above"),
        (f"near-future accuracy, shift {audit.near_future_shift:,.0f}", audit.near_future, ""),
        (f"blind classifiers (at the end: {family})", audit.blind, ""),
        ("blind classifiers at that shift", audit.blind_shifted, REFERENCE),
        ("last label", audit.last_label, REFERENCE),
        ("model where blind classifiers are wrong", audit.where_blind_fails, ""),
        ("most frequent label so far, there", audit.where_blind_fails_constant, ""),
        ("blind, same album left out", without.blind_album, ""),
        ("blind, same user left out", without.blind_user, ""),
        ("model, first sample of every album", without.online_first, ""),
        ("majority so far", audit.levels.majority, REFERENCE),
        ("best constant (in hindsight)", audit.levels.constant, REFERENCE),
        ("sum of squared frequencies", audit.levels.squared, REFERENCE),
        ("1 / number of classes", audit.levels.uniform, REFERENCE),
    ]
    for name, neighbours in audit.neighbours.items():
        for window, level in zip(neighbours.windows, neighbours.levels, strict=True):
            among = "all" if math.isinf(window) else f"the last {window:,.0f}"
            levels.append((f"nearest neighbour among {among}, {name}", level, ""))
    for name, value, why in levels:
        if isinstance(value, Level):
            if value.samples:
                known = not math.isnan(value.low)
                ends = f"{100 * value.low:.1f} to {100 * value.high:.1f}" if known else NO_ENDS
                yield name, percent(value.value), ends
        elif not math.isnan(value):
            yield name, percent(value), why
    if audit.share.samples:
        ends = f"{audit.share.low:.2f} to {audit.share.high:.2f}"
        ends = NO_ENDS if "nan" in ends else ends
        yield "blind accuracy / accuracy of the model", f"{audit.share.value:.2f}", ends
    for name in ("kappa", "kappa_t", "kappa_m", "kappa_combined"):
        if not math.isnan(value := getattr(audit, name)):
            yield name, f"{value:.3f}", "none: see the accuracies"


def _advantage(audit: Audit) -> Table:
    choice = audit.choice
    chosen = np.unique(np.linspace(0, len(choice.shifts) - 1, SHOWN_SHIFTS).round().astype(int))
    rows = [
        [
            f"{choice.shifts[s]:,.0f}",
            *(f"{100 * v[s]:.1f}" for v in (choice.accuracy, choice.constant)),
            *(f"{100 * v[s]:.1f}" for v in (choice.excess, choice.upper)),
            plain_name(choice.forecasters[s], choice.periods),
        ]
        for s in (chosen if len(choice.shifts) else ())
    ]
    head = (choice.unit, "blind, %", "constant, %", "advantage", "upper bound", "best blind")
    return Table(ADVANTAGE, head, rows, text=5)


def _futures(audit: Audit) -> Table:
    rows = []
    for future in audit.futures:
        ends = f"{100 * future.accuracy.low:.1f} to {100 * future.accuracy.high:.1f}"
        accuracies = map(percent, (future.accuracy.value, future.blind, future.unlimited))
        model, *blind = accuracies
        ends = NO_ENDS if "nan" in ends else ends
        rows.append([f"{future.shift:,}", model, ends, *blind, f"{future.accuracy.samples:,}"])
    head = (audit.by, "model", "95 % interval", "blind", "majority so far", "samples")
    return Table(FUTURES, head, rows)


def _blind(audit: Audit) -> Table:
    """Accuracies of the most frequent of the last labels."""
    head = ["last labels", *(f"{int(shift):,}" for shift in audit.shown_shifts)]
    rows = []
    for window, values in zip(audit.windows, audit.table, strict=True):
        name = "all" if math.isinf(window) else f"{window:,.0f}"
        rows.append([name, *("–" if math.isnan(v) else f"{100 * v:.1f}" for v in values)])
    return Table(WINDOWS, head, rows)


def _rich(given: Table) -> Any:
    from rich.table import Table as RichTable

    table = RichTable(title=given.title, title_justify="left")
    for number, name in enumerate(given.head):
        table.add_column(name, justify="left" if number in (0, given.text) else "right")
    for row in given.rows:
        table.add_row(*row)
    return table
