"""The ledger as a page: every published number, ours beside it, and what to make of the two."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from streamgauge.suites import published
from streamgauge.suites.comparing import Cell, difference_text, ours_text, table
from streamgauge.suites.measured import RESULTS, Measured, recorded
from streamgauge.suites.published import Plotted, Table
from streamgauge.suites.spec import Suite, load, names

HEAD = """# The ledger

Every number that the five papers give for what our suites reproduce, with ours beside it. This page
is generated: `streamgauge suite ledger --to docs/ledger.md`, from the published numbers in
`suites/ledger/` and what was measured so far in `suites/results/`. `streamgauge suite table NAME`
shows the same with the runs that lie on your machine.

- **verified**: 3 seeds or more, and our mean within 2 published deviations. Where a paper has one
  run and no deviation: that run could have been one of ours (within 2 of our deviations, for one
  run against the mean of n, and half a unit of its last digit).
- **not verified**: it misses, there are too few seeds, or it was not run.
- **cannot be verified**: only drawn, or not a result.

Numbers are in %, mean ± sample deviation over seeds. "dev." are published deviations. A row "as
defined" is the method as its paper defines it, where the published code, and with it the published
number, did something else; it is shown beside and not judged.
"""


def ledger_page(results: Path = RESULTS) -> str:
    """The whole page, from data alone: no run folder is read."""
    suites = [load(name) for name in names()]
    found = {suite.name: recorded(suite.name, results) for suite in suites}
    cells = {suite.name: table(suite, found[suite.name]) for suite in suites}
    parts = [HEAD, _summary(suites, cells)]
    for suite in suites:
        # What nobody ran as defined is no line of its own here; `suite table` names it.
        shown = [
            cell
            for cell in cells[suite.name]
            if cell.published is not None and (cell.ours is not None or not cell.defined)
        ]
        if shown:
            parts.append(_suite(suite, shown, found[suite.name]))
    given = [one for one in published.tables().values() if one.given or one.closed_form]
    parts += [_given(given), _plotted()]
    return "\n".join(parts).rstrip() + "\n"


def _summary(suites: list[Suite], cells: dict[str, list[Cell]]) -> str:
    lines = [
        "| suite | published numbers | verified | not verified |",
        "|---|---|---|---|",
    ]
    for suite in suites:
        known = [c for c in cells[suite.name] if c.published is not None and not c.defined]
        good = sum(cell.verdict == "verified" for cell in known)
        if known:
            lines.append(f"| {suite.name} | {len(known)} | {good} | {len(known) - good} |")
    return "\n".join([*lines, ""])


def _suite(suite: Suite, cells: list[Cell], found: Iterable[Measured]) -> str:
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    for part in dict.fromkeys(cell.part for cell in cells):
        mine = [cell for cell in cells if cell.part == part]
        sources = dict.fromkeys(
            f"{c.published.paper}, {c.published.table}" for c in mine if c.published
        )
        seeds = {c.published.seeds for c in mine if c.published}
        runs = ", ".join("one run" if n == 1 else f"{n} seeds" for n in sorted(filter(None, seeds)))
        heading = f"{part}: " if part else ""
        lines += ["", f"### {heading}{'; '.join(sources)} ({runs})", ""]
        lines += ["| row | column | published | ours | seeds | difference | verdict |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
        lines += [_line(cell) for cell in mine]
    lines += ["", *_how(suite, found)]
    return "\n".join(lines)


def _line(cell: Cell) -> str:
    number = cell.published.text if cell.published else "–"
    seeds = str(cell.ours.seeds) if cell.ours else ""
    verdict = ": ".join(t for t in (cell.verdict, cell.why) if t)
    shown = [cell.row, cell.column, number, ours_text(cell), seeds, difference_text(cell), verdict]
    return "| " + " | ".join(shown) + " |"


def _how(suite: Suite, found: Iterable[Measured]) -> list[str]:
    lines = []
    for one in found:
        title = f"{one.part}: {one.row}" if one.part else one.row
        facts = [one.device, one.versions, f"runs {' '.join(one.runs)}" if one.runs else ""]
        said = "; ".join(fact for fact in (one.earlier, *facts, *one.remarks) if fact)
        command = f"`{one.command}`" if one.command else ""
        lines.append(
            "- " + ": ".join(t for t in (title, " – ".join(filter(None, (command, said)))) if t)
        )
    if not lines:
        return [f"Not run yet. All of it: `streamgauge suite run {suite.name}`.", ""]
    return ["How ours were made:", "", *lines, ""]


def _given(tables: Iterable[Table]) -> str:
    lines = ["## Numbers that are no results of a run", ""]
    for one in tables:
        lines += [f"### {one.paper}, {one.table}", "", f"{one.about}.", ""]
        columns = list(dict.fromkeys(column for _, column in one.numbers))
        lines += ["| | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
        for row in dict.fromkeys(row for row, _ in one.numbers):
            numbers = (one.numbers.get((row, column)) for column in columns)
            lines.append(f"| {row} | " + " | ".join(n.text if n else "" for n in numbers) + " |")
        verdict = (
            f"**verified**: {one.closed_form}."
            if one.closed_form
            else f"**cannot be verified**: {one.given}."
        )
        lines += ["", verdict, ""]
    return "\n".join(lines)


def _plotted() -> str:
    lines = [
        "## Only drawn",
        "",
        "What a paper shows as a curve without numbers **cannot be verified**: there is nothing to",
        "compare with but the picture. Ours is drawn by `streamgauge suite figures NAME`.",
        "",
        "| paper | where | what | ours |",
        "|---|---|---|---|",
    ]
    every: list[Plotted] = [p for one in published.tables().values() for p in one.plotted]
    lines += [f"| {p.paper} | {p.where} | {p.what} | {p.suite}, {p.figure} |" for p in every]
    return "\n".join([*lines, ""])
