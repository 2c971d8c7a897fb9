"""Terminal output: tables as plain text. The progress of runs: `watching.py`."""

from __future__ import annotations

import io
import math
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from streamgauge.metrics import Spread
from streamgauge.pages.units import scaled
from streamgauge.record import Run
from streamgauge.record.run import save_results
from streamgauge.report.compute import FLOPS, Compute, compute, learning_seconds
from streamgauge.report.leaderboard import NOTE, Board, leaderboard, percent, scores_of

# Scores whose names contain one of these are fractions, shown in percent.
SHARES = ("accuracy", "forgetting", "transfer", "near_future", "worst_window", "calibration",
          "smoothed", "depth", "recovered", "kappa", "macro_f1")  # fmt: skip
UNITS = "Kappas and F1 are in % too, other scores in their own units: see docs/metrics.md."


def leaderboard_text(runs: Iterable[Run]) -> str:
    """A table for each stream, with the columns that its runs have."""
    return "\n\n".join(board_text(board) for board in leaderboard(runs))


def board_text(board: Board) -> str:
    tied = board.ties.names or board.ties.unknown
    needs = any(row.needs for row in board.rows)
    library = any(row.library for row in board.rows)
    columns: list[str | Column] = [
        folding("learner"),
        *([""] if tied else []),
        *(right(column.title, min_width=12) for column in board.columns),
        right("seeds"),
        *(["needs"] if needs else []),
        *(["library"] if library else []),
    ]
    rows = [
        [
            row.learner,
            *([board.ties.mark(row.learner)] if tied else []),
            *(percent(row.scores.get(column.score)) for column in board.columns),
            row.seeds,
            *([", ".join(row.needs)] if needs else []),
            *([row.library] if library else []),
        ]
        for row in board.rows
    ]
    order = f" Ordered by: {board.ordered_by}." if board.ordered_by else ""
    tie = [board.ties.sentence] if board.ties.sentence else []
    return "\n".join(
        [board.title, text_table(columns, rows), NOTE + order, *tie, *_warnings(board)]
    )


def _warnings(board: Board) -> list[str]:
    return [*([board.timing] if board.timing else []), *board.left_out]


def compute_text(boards: Iterable[Board]) -> str:
    """Accuracy over the FLOPs of training for each stream; "" if the logs hold no FLOPs."""
    computed = ((board.title, compute(board)) for board in boards)
    return "\n\n".join(
        _compute_text(title, points) for title, points in computed if points is not None
    )


def _compute_text(title: str, computed: Compute) -> str:
    reference = [right(f"x {computed.reference}")] if computed.reference else []
    columns = [folding("learner"), right("FLOPs"), *reference, right(computed.accuracy), Column()]
    most = max(point.accuracy.mean for point in computed.points) or 1.0
    rows = []
    for point in computed.points:
        times = [f"{point.relative:.3g}"] if reference else []
        bar = ("#" if point.front else "-") * round(30 * point.accuracy.mean / most)
        cells = [scaled(point.flops.mean), *times, percent(point.accuracy), bar]
        rows.append([point.learner, *cells])
    note = (
        "FLOPs of training over the whole stream, mean over seeds; answers are not counted.\n"
        "# the Pareto front: no other learner is as accurate for as few FLOPs; - the others."
    )
    parts = [f"{title}: accuracy over compute", text_table(columns, rows), note]
    return "\n".join([*parts, *([computed.sentence] if computed.sentence else [])])


def scores_text(runs: Iterable[Run]) -> str:
    """Every score of every learner, mean ± deviation over seeds, and those of incomplete runs."""
    parts, runs = [], list(runs)
    for board in leaderboard(runs):
        columns = _score_columns(board)
        names = list(dict.fromkeys(name for *_, scores in columns for name in scores))
        cells = [[score_cell(name, scores.get(name)) for name in names] for *_, scores in columns]
        texts = [title for title, *_ in columns] + [cell for column in cells for cell in column]
        widest = max([12, *map(len, texts)])
        fitting = max(1, (_width() - max(map(len, names), default=0)) // (widest + 3))
        parts.append(board.title)
        for first in range(0, len(columns), fitting):
            group = columns[first : first + fitting]
            rows = [["seeds", *(seeds for _, seeds, _ in group)]]
            shown = cells[first : first + fitting]
            rows += [[name, *row] for name, *row in zip(names, *shown, strict=True)]
            parts += [text_table(["", *(right(title) for title, *_ in group)], rows), ""]
        parts += [f"{NOTE} {UNITS}", *_warnings(board), ""]
    save_results(runs)
    return "\n".join(parts).rstrip()


def _score_columns(board: Board) -> list[tuple[str, str, Mapping[str, Spread]]]:
    """Title, seeds and scores: of the means first, then of each incomplete run so far. Where the
    FLOPs of one are unknown, all have their seconds."""
    columns: list[tuple[str, str, Mapping[str, Spread], Iterable[Run]]] = [
        (row.learner, row.seeds, row.scores, row.runs) for row in board.rows if row.runs
    ]
    columns += [
        (
            f"{row.learner}, incomplete",
            f"seed {run.seed}, step {run.step}",
            {name: Spread(value, math.nan, 1) for name, value in scores_of(run).items()},
            [run],
        )
        for row in board.rows
        for run in row.incomplete
    ]
    unknown = {FLOPS: Spread(math.nan, math.nan, 0)}
    if all(FLOPS in scores for _, _, scores, _ in columns):
        return [(title, seeds, scores) for title, seeds, scores, _ in columns]
    return [
        (title, seeds, {**unknown, **scores, "learning_seconds": learning_seconds(runs)})
        for title, seeds, scores, runs in columns
    ]


def score_cell(name: str, value: Spread | float | None) -> str:
    """A score as tables show it: shares in percent, other scores in their own units."""
    value = Spread(value, math.nan, 1) if isinstance(value, float | int) else value
    share = any(word in name for word in SHARES) and not name.startswith("unnormalised")
    if value is None or share:
        return percent(value)
    if name == FLOPS or math.isnan(value.mean):
        return scaled(value.mean)
    spread = "" if value.deviation != value.deviation else f" ± {value.deviation:.3g}"
    unit = " nats" if name == "log_loss" else ""
    return f"{value.mean:.4g}{spread}{unit}"


def differences_text(differences: Mapping[str, Any]) -> str:
    """The result of `record.diff.differences` as text."""
    parts = []
    for kind in ("configuration", "environment", "data"):
        if not differences[kind]:
            parts.append(f"{kind}: the same")
            continue
        columns = [folding(title) for title in (kind, "first", "second")]
        rows = [[name, *map(str, values)] for name, values in differences[kind].items()]
        parts.append(text_table(columns, rows))
    for table_name, only in differences["columns"].items():
        for which, names in zip(("first", "second"), only, strict=True):
            if names:
                parts.append(f"only the {which} log has {table_name}: {', '.join(names)}")
    if differences["same"]:
        shared = " in the columns that both have" if differences["columns"] else ""
        return "\n".join([*parts, f"The logs are identical{shared}, times apart."])
    if not differences["logs"]:
        return "\n".join([*parts, "The logs differ only in the columns that they have."])
    parts.append(f"The logs differ first at step {differences['first_step']}:")
    for table_name, first in differences["logs"].items():
        if "rows" in first:
            rows = sorted(first["rows"])
            reason = f"one ends after {rows[0]} rows, the other after {rows[1]}"
        else:
            reason = f"row {first['row']} differs in {', '.join(first['columns'])}"
        parts.append(f"  {table_name}, step {first['step']}: {reason}")
    return "\n".join(parts)


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def right(title: str, **style: Any) -> Column:
    """A column of numbers."""
    return Column(Text(title), justify="right", **style)


def folding(title: str) -> Column:
    """A column whose long texts go on in the next line."""
    return Column(Text(title), overflow="fold")


class _TableText(io.StringIO):
    """With the encoding of the terminal, so that lines are drawn with what it has."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(sys.stdout, "encoding", None) or "utf-8"


def text_table(
    columns: Iterable[str | Column],
    rows: Iterable[Iterable[str]],
    least_width: int = 0,
    show_edge: bool = False,
) -> str:
    """A table as wide as the terminal allows. Nothing in it is read as markup."""
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=show_edge)
    for row in rows:
        table.add_row(*map(Text, row))
    stream, width = _TableText(), max(least_width, _width())
    Console(file=stream, width=width, color_system=None, force_terminal=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
