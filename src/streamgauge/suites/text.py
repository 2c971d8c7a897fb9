"""Plans and tables of suites as text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.table import Column

from streamgauge.report.terminal import folding, right, text_table
from streamgauge.running.job_cost import bytes_text
from streamgauge.suites import spec
from streamgauge.suites.comparing import Cell, cell_texts
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
    numbers = (
        "seeds",
        "done",
        "steps",
        "jobs",
        "answers",
        "FLOP per run",
        "time per run",
        "memory",
    )
    rows = [
        [
            estimate.row.title,
            str(estimate.complete + estimate.missing),
            str(estimate.complete) + (f" + {estimate.begun} begun" if estimate.begun else ""),
            f"{estimate.work.steps:,}",
            f"{estimate.work.jobs:,.0f}",
            f"{estimate.work.answered + estimate.work.evaluated:,}",
            flop(estimate.flops),
            duration(estimate.seconds),
            bytes_text(estimate.memory),
        ]
        for estimate in estimates
    ]
    missing = sum(estimate.to_run for estimate in estimates)
    flops = math.fsum(e.to_run * e.flops for e in estimates if e.to_run)
    seconds = math.fsum(e.to_run * e.seconds for e in estimates if e.to_run)
    shared = sum(estimate.shared for estimate in estimates)
    lines = [f"{suite.title}. {suite.what}", "", _table(["row", *map(right, numbers)], rows)]
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
        columns = {
            "row": folding,
            "column": folding,
            "published": right,
            "ours": right,
            "seeds": right,
            "difference": right,
            "verdict": folding,
        }
        if not compared:
            columns = {n: c for n, c in columns.items() if n in ("row", "column", "ours", "seeds")}
        rows, last = [], ""
        for cell in of_part:
            texts = cell_texts(cell) | {"seeds": str(cell.ours.seeds if cell.ours else 0)}
            texts["row"] = cell.row if cell.row != last else ""
            last = cell.row
            rows.append([texts[name] for name in columns])
        table = _table([column(name) for name, column in columns.items()], rows)
        sources = dict.fromkeys(
            f"{c.published.paper}, {c.published.table}" for c in of_part if c.published
        )
        parts += ["", *([part] if part else []), *sources, table]
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
    first = {(cell.title, cell.command): cell for cell in reversed(list(cells))}
    for (title, command), cell in reversed(first.items()):
        if cell.runs:
            lines += [f"{title}: {command}", f"    runs {' '.join(cell.runs)}"]
            lines += [f"    {remark}" for remark in cell.remarks]
    return lines


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


def _short(value: float) -> str:
    if math.isnan(value):
        return "?"
    return f"{value:.0f}" if value >= 75 else f"{value:.3g}"


def _table(columns: Iterable[str | Column], rows: Iterable[Iterable[str]]) -> str:
    return text_table(columns, rows, least_width=100, show_edge=True)
