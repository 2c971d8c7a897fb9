"""The audit in a terminal: sentences, then tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from streamgauge.audit.auditor import Audit
from streamgauge.audit.repeats import Level
from streamgauge.audit.words import percent

LEVEL_HEAD = ("level", "value", "95 % interval")


def render(audit: Audit) -> Any:
    """What rich prints."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(f"Audit of {audit.name}", style="bold"), Text(columns_line(audit))]
    for sentence in audit.words:
        parts.append(Padding(Text(sentence), (1, 0, 0, 0)))
    for note in audit.notes:
        parts.append(Padding(Text(f"Note: {note}", style="dim"), (1, 0, 0, 0)))
    head, *rows = blind_rows(audit)
    parts += [Text(""), _table("Levels", LEVEL_HEAD, level_rows(audit), "left")]
    parts += [Text(""), _table("Blind accuracy in %, by window and shift", head, rows)]
    if audit.futures:
        head, *rows = _future_rows(audit)
        parts += [Text(""), _table(f"Accuracy by {audit.by} of the model", head, rows)]
    return Group(*parts)


def columns_line(audit: Audit) -> str:
    """Which column of the file has which role."""
    roles = []
    for role, name in audit.columns.items():
        roles.append(f"{role} = '{name}'{' (guessed)' if role in audit.guessed else ''}")
    return "Columns: " + ", ".join(roles)


def level_rows(audit: Audit) -> list[tuple[str, str, str]]:
    """Name, value and interval of every level that is known."""
    without = audit.without
    levels: list[tuple[str, float | Level]] = [
        ("online accuracy of the model", audit.online),
        ("the same where the blind one is scored", audit.online_scored),
        (f"near-future accuracy, shift {audit.near_future_shift:,.0f}", audit.near_future),
        ("blind classifier, next sample", audit.blind),
        ("blind classifier at that shift", audit.blind_shifted),
        ("share of online accuracy that the blind one reaches", audit.share),
        ("model where the blind one is wrong", audit.where_blind_fails),
        ("blind, same album left out", without.blind_album),
        ("blind, same user left out", without.blind_user),
        ("model, first sample of every album", without.online_first),
        ("majority so far", audit.levels.majority),
        ("best constant (in hindsight)", audit.levels.constant),
        ("sum of squared frequencies", audit.levels.squared),
        ("1 / number of classes", audit.levels.uniform),
    ]
    for name, neighbours in audit.neighbours.items():
        for window, level in zip(neighbours.windows, neighbours.levels, strict=True):
            among = "all" if math.isinf(window) else f"the last {window:,.0f}"
            levels.append((f"nearest neighbour among {among}, {name}", level))
    rows = []
    for name, value in levels:
        if isinstance(value, Level):
            if value.samples:
                limits = f"{100 * value.low:.1f} to {100 * value.high:.1f}"
                rows.append((name, percent(value.value), "" if math.isnan(value.low) else limits))
        elif not math.isnan(value):
            rows.append((name, percent(value), ""))
    return rows


def blind_rows(audit: Audit) -> list[list[str]]:
    """Accuracies of the blind classifier by window (rows) and shift; the head first."""
    rows = [["last labels", *(f"{int(shift):,}" for shift in audit.shown_shifts)]]
    for window, values in zip(audit.windows, audit.table, strict=True):
        name = "all" if math.isinf(window) else f"{window:,.0f}"
        rows.append([name, *("–" if math.isnan(v) else f"{100 * v:.1f}" for v in values)])
    return rows


def _future_rows(audit: Audit) -> list[list[str]]:
    rows = [[audit.by, "model", "blind", "majority so far", "samples"]]
    for future in audit.futures:
        accuracies = (future.accuracy.value, future.blind, future.unlimited)
        samples = f"{future.accuracy.samples:,}"
        rows.append([f"{future.shift:,}", *map(percent, accuracies), samples])
    return rows


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], first: Any = "right"
) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in head:
        table.add_column(name, justify="right" if name != head[0] else first)
    for row in rows:
        table.add_row(*row)
    return table
