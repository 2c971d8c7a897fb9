"""Plans and tables of suites as text for the terminal."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamgauge.suites import spec
from streamgauge.suites.comparing import Cell, difference_text, ours_text
from streamgauge.suites.planning import Estimate


def list_text(suites: Iterable[spec.Suite]) -> str:
    lines = []
    for suite in suites:
        rows = [row for row in suite.rows if not row.defined]
        runs = sum(row.seeds for row in rows)
        lines += [
            f"{suite.name}  ({len(rows)} rows, {runs} runs)",
            f"    {suite.title}. {suite.what}",
        ]
    return "\n".join([*lines, "", "Each runs on generated data with --generated, in minutes."])


def plan_text(suite: spec.Suite, estimates: Sequence[Estimate], device: str) -> str:
    table = _table()
    for title in ("row", "seeds", "done"):
        table.add_column(title, justify="left" if title == "row" else "right")
    for title in ("steps", "jobs", "answers", "FLOP per run", "time per run", "memory"):
        table.add_column(title, justify="right")
    for estimate in estimates:
        work = estimate.work
        table.add_row(
            *map(
                Text,
                [
                    estimate.row.title,
                    str(estimate.complete + estimate.missing),
                    str(estimate.complete)
                    + (f" + {estimate.begun} begun" if estimate.begun else ""),
                    f"{work.steps:,}",
                    f"{work.jobs:,.0f}",
                    f"{work.answered + work.evaluated:,}",
                    flop(estimate.flops),
                    duration(estimate.seconds),
                    size(estimate.memory),
                ],
            )
        )
    missing = sum(estimate.to_run for estimate in estimates)
    flops = math.fsum(e.to_run * e.flops for e in estimates if e.to_run)
    seconds = math.fsum(e.to_run * e.seconds for e in estimates if e.to_run)
    shared = sum(estimate.shared for estimate in estimates)
    lines = [f"{suite.title}. {suite.what}", "", _as_text(table)]
    if not missing:
        lines.append("All runs are complete: nothing to run.")
    elif math.isnan(flops):
        lines.append(f"To run: {missing} runs. How long they take was not measured.")
    else:
        lines.append(
            f"To run: {missing} runs, about {flop(flops)} and {duration(seconds)} "
            f"one after the other on {device}."
        )
    if shared:
        lines.append(f"{shared} more are the same as one of another row, and are not run twice.")
    bases = " and ".join(dict.fromkeys(estimate.work.basis for estimate in estimates))
    lines.append(
        f"An estimate. Steps: {bases}. FLOPs: counted on a few samples. Time: measured here on "
        f"{device} on a few samples and multiplied, without reading data or the linear probe;"
        f" a run on another device takes another time. Memory: data, "
        f"samples held and their indices, without the network's activations."
    )
    lines += [f"{e.row.title}: {e.why}" for e in estimates if e.why and e.why != "not measured"]
    return "\n".join([*lines, *suite.notes])


def table_text(suite: spec.Suite, cells: Sequence[Cell], with_runs: bool = True) -> str:
    parts = [suite.title + (" (generated data: no paper's numbers)" if suite.generated else "")]
    run = {cell.title for cell in cells if cell.ours is not None}
    missing = dict.fromkeys(c.title for c in cells if c.defined and c.title not in run)
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part and cell.title not in missing]
        compared = any(cell.published for cell in of_part)
        table = _table()
        table.add_column("row", overflow="fold")
        table.add_column("column", overflow="fold")
        if compared:
            table.add_column("published", justify="right")
        table.add_column("ours", justify="right")
        table.add_column("seeds", justify="right")
        if compared:
            table.add_column("difference", justify="right")
            table.add_column("verdict", overflow="fold")
        last = ""
        for cell in of_part:
            texts = [cell.row if cell.row != last else "", cell.column]
            last = cell.row
            if compared:
                texts.append(cell.published.text if cell.published else "–")
            texts += [ours_text(cell), str(cell.ours.seeds if cell.ours else 0)]
            if compared:
                texts += [
                    difference_text(cell),
                    ": ".join(t for t in (cell.verdict, cell.why) if t),
                ]
            table.add_row(*map(Text, texts))
        sources = dict.fromkeys(
            f"{c.published.paper}, {c.published.table}" for c in of_part if c.published
        )
        parts += ["", *([part] if part else []), *sources, _as_text(table)]
    parts += ["", *_counts(cells)]
    if missing:
        arguments = f"{suite.name}{' --generated' if suite.generated else ''} --both"
        names = "; ".join(missing)
        parts.append(f"Not run: {names}. `streamgauge suite run {arguments}` runs them.")
    if with_runs:
        parts += _commands(cells)
    return "\n".join([*parts, *suite.notes])


def _counts(cells: Sequence[Cell]) -> list[str]:
    judged = [cell for cell in cells if cell.published and not cell.defined]
    if not judged:
        return ["In %, mean ± sample deviation over seeds."]
    count = {v: sum(cell.verdict == v for cell in judged) for v in ("verified", "not verified")}
    return [
        f"{count['verified']} of {len(judged)} published numbers verified, "
        f"{count['not verified']} not. In %, mean ± sample deviation over seeds. Verified: 3 seeds "
        f"or more, and within 2 published deviations; where one run is published, within 2 of ours."
    ]


def _commands(cells: Iterable[Cell]) -> list[str]:
    lines = []
    for (title, command), group in _grouped(cells).items():
        first = group[0]
        if first.runs:
            lines.append(f"{title}: {command}")
            lines.append(f"    runs {' '.join(first.runs)}")
            lines += [f"    {remark}" for remark in first.remarks]
    return lines


def _grouped(cells: Iterable[Cell]) -> dict[tuple[str, str], list[Cell]]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.title, cell.command), []).append(cell)
    return groups


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(5000), duration(200000), duration(0.4)
    ('75 s', '83 min', '55.6 h', '0.4 s')
    """
    if math.isnan(seconds):
        return "?"
    for unit, length, limit in (("s", 1.0, 100), ("min", 60.0, 100), ("h", 3600.0, 72)):
        if seconds / length < limit:
            return f"{_short(seconds / length)} {unit}"
    return f"{_short(seconds / 86400)} days"


def flop(count: float) -> str:
    """
    >>> flop(787e12), flop(1.15e10), flop(5e16)
    ('787 TFLOP', '11.5 GFLOP', '50 PFLOP')
    """
    if math.isnan(count):
        return "?"
    for unit, factor in (("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12)):
        if count < 1000 * factor:
            return f"{_short(count / factor)} {unit}"
    return f"{_short(count / 1e15)} PFLOP"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{_short(count)} TB"


def _short(value: float) -> str:
    if math.isnan(value):
        return "?"
    return f"{value:.0f}" if value >= 75 else f"{value:.3g}"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _as_text(table: Table) -> str:
    stream = io.StringIO()
    width = max(100, shutil.get_terminal_size((120, 24)).columns)
    Console(file=stream, width=width, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
