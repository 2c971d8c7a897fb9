"""The audit in a terminal: the answers, then the figures as tables."""

from __future__ import annotations

import math
from typing import Any

from streamgauge.audit.auditor import Audit
from streamgauge.audit.repeats import Level
from streamgauge.audit.words import percent


def render(found: Audit) -> Any:
    """Something that rich can print."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(f"Audit of {found.name}", style="bold"), Text(columns_line(found))]
    for sentence in found.words:
        parts.append(Padding(Text(sentence), (1, 0, 0, 0)))
    for note in found.notes:
        parts.append(Padding(Text(f"Note: {note}", style="dim"), (1, 0, 0, 0)))
    parts += [Text(""), _levels(found), Text(""), _blind(found)]
    if found.futures:
        parts += [Text(""), _futures(found)]
    return Group(*parts)


def columns_line(found: Audit) -> str:
    """Which columns were taken for what."""
    known = []
    for role, name in found.columns.items():
        known.append(f"{role} = '{name}'{' (guessed)' if role in found.guessed else ''}")
    return "Columns: " + ", ".join(known)


def level_rows(found: Audit) -> list[tuple[str, str, str]]:
    """Name, value and interval of every level, for tables."""
    without = found.without
    rows: list[tuple[str, float | Level]] = [
        ("online accuracy of the model", found.online),
        ("the same where the blind one is scored", found.online_scored),
        (f"near-future accuracy, shift {found.near_future_shift:,.0f}", found.near_future),
        ("blind classifier, next sample", found.blind),
        ("blind classifier at that shift", found.blind_shifted),
        ("share of online accuracy that the blind one reaches", found.share),
        ("model where the blind one is wrong", found.where_blind_fails),
        ("blind, same album left out", without.blind_album),
        ("blind, same user left out", without.blind_user),
        ("model, first sample of every album", without.online_first),
        ("majority so far", found.levels.majority),
        ("best constant (in hindsight)", found.levels.constant),
        ("sum of squared frequencies", found.levels.squared),
        ("1 / number of classes", found.levels.uniform),
    ]
    for name, levels in found.neighbours.items():
        for window, known in zip(levels.windows, levels.levels, strict=True):
            among = "all" if math.isinf(window) else f"the last {window:,.0f}"
            rows.append((f"nearest neighbour among {among}, {name}", known))
    shown = []
    for name, value in rows:
        if isinstance(value, Level):
            if value.samples:
                limits = f"{100 * value.low:.1f} to {100 * value.high:.1f}"
                shown.append((name, percent(value.value), "" if math.isnan(value.low) else limits))
        elif not math.isnan(value):
            shown.append((name, percent(value), ""))
    return shown


def _levels(found: Audit) -> Any:
    from rich.table import Table

    table = Table(title="Levels", title_justify="left")
    table.add_column("level")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    for row in level_rows(found):
        table.add_row(*row)
    return table


def _blind(found: Audit) -> Any:
    from rich.table import Table

    table = Table(title="Blind accuracy in %, by window and shift", title_justify="left")
    table.add_column("last labels", justify="right")
    for shift in found.shown_shifts:
        table.add_column(f"{int(shift):,}", justify="right")
    for window, row in zip(found.windows, found.table, strict=True):
        name = "all" if math.isinf(window) else f"{window:,.0f}"
        table.add_row(name, *["–" if math.isnan(v) else f"{100 * v:.1f}" for v in row])
    return table


def _futures(found: Audit) -> Any:
    from rich.table import Table

    table = Table(title=f"Accuracy by {found.by} of the model", title_justify="left")
    for name in (found.by, "model", "blind", "majority so far", "samples"):
        table.add_column(name, justify="right")
    for future in found.futures:
        table.add_row(
            f"{future.shift:,}",
            percent(future.accuracy.value),
            percent(future.blind),
            percent(future.unlimited),
            f"{future.accuracy.samples:,}",
        )
    return table
