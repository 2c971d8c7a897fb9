"""The ledger page: every published number with ours and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from streamgauge.suites import comparing, published
from streamgauge.suites.comparing import Cell, cell_texts
from streamgauge.suites.measured import RESULTS, Measured, recorded
from streamgauge.suites.published import PublishedTable
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
    """The whole page in Markdown, from stored results: no run folder is read."""
    suites = [load(name) for name in names()]
    measured = {suite.name: recorded(suite.name, results) for suite in suites}
    cells = {suite.name: comparing.table(suite, measured[suite.name]) for suite in suites}
    parts = [HEAD, _summary(suites, cells)]
    for suite in suites:
        # A row "as defined" that was not run is left out; `suite table` names it.
        shown = [
            cell
            for cell in cells[suite.name]
            if cell.published is not None and (cell.ours is not None or not cell.defined)
        ]
        if shown:
            parts.append(_suite(suite, shown, measured[suite.name]))
    given = [table for table in published.tables().values() if table.given or table.closed_form]
    parts += [_given(given), _plotted()]
    return "\n".join(parts).rstrip() + "\n"


def _summary(suites: list[Suite], cells: dict[str, list[Cell]]) -> str:
    rows = []
    for suite in suites:
        judged = [c for c in cells[suite.name] if c.published is not None and not c.defined]
        verified = sum(cell.verdict == "verified" for cell in judged)
        if judged:
            rows.append([suite.name, len(judged), verified, len(judged) - verified])
    return "\n".join(
        [*_table(["suite", "published numbers", "verified", "not verified"], rows), ""]
    )


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table in Markdown."""
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    return [first.replace("|  |", "| |"), "|---" * len(list(head)) + "|", *others]


def _suite(suite: Suite, cells: list[Cell], measured: Iterable[Measured]) -> str:
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part]
        sources = dict.fromkeys(
            f"{c.published.paper}, {c.published.table}" for c in of_part if c.published
        )
        seeds = {c.published.seeds for c in of_part if c.published}
        runs = ", ".join("one run" if n == 1 else f"{n} seeds" for n in sorted(filter(None, seeds)))
        heading = f"{part}: " if part else ""
        lines += ["", f"### {heading}{'; '.join(sources)} ({runs})", ""]
        texts = [cell_texts(cell) for cell in of_part]
        lines += _table(texts[0], [row.values() for row in texts])
    lines += ["", *_origins(suite, measured)]
    return "\n".join(lines)


def _origins(suite: Suite, measured: Iterable[Measured]) -> list[str]:
    lines = []
    for row in measured:
        title = f"{row.part}: {row.row}" if row.part else row.row
        facts = [row.device, row.versions, f"runs {' '.join(row.runs)}" if row.runs else ""]
        details = "; ".join(fact for fact in (row.earlier, *facts, *row.remarks) if fact)
        command = f"`{row.command}`" if row.command else ""
        lines.append(
            "- " + ": ".join(t for t in (title, " – ".join(filter(None, (command, details)))) if t)
        )
    if not lines:
        return [f"Not run yet. All of it: `streamgauge suite run {suite.name}`.", ""]
    return ["How ours were made:", "", *lines, ""]


def _given(tables: Iterable[PublishedTable]) -> str:
    lines = ["## Numbers that are no results of a run", ""]
    for table in tables:
        lines += [f"### {table.paper}, {table.table}", "", f"{table.about}.", ""]
        columns = list(dict.fromkeys(column for _, column in table.numbers))
        rows = []
        for row in dict.fromkeys(row for row, _ in table.numbers):
            numbers = (table.numbers.get((row, column)) for column in columns)
            rows.append([row, *(number.text if number else "" for number in numbers)])
        lines += _table(["", *columns], rows)
        verdict = (
            f"**verified**: {table.closed_form}."
            if table.closed_form
            else f"**cannot be verified**: {table.given}."
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
    ]
    curves = [p for table in published.tables().values() for p in table.plotted]
    rows = [[p.paper, p.where, p.what, f"{p.suite}, {p.figure}"] for p in curves]
    return "\n".join([*lines, *_table(["paper", "where", "what", "ours"], rows), ""])
