"""The tab of suites: tables of papers with the runs here, and the public ledger of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from streamgauge.errors import packages_for
from streamgauge.pages import Block, Page, PageTable, Section, Text
from streamgauge.view.follow import Followed

KIND = "Streamgauge view"
TEXT = ("row", "column", "verdict")


def suites_page(runs: Sequence[Followed]) -> Page:
    """A section per suite that has complete runs here."""
    with packages_for("The tab of suites"):
        import torch  # noqa: F401  # the rows of suites are runs
    from streamgauge.suites import load, names
    from streamgauge.suites.comparing import table
    from streamgauge.suites.dumbbells import published_section
    from streamgauge.suites.measured import from_runs

    done = [run for run in runs if run.done and run.header and not run.problem and not run.study]
    streams = {run.header["config"]["stream"]["name"] for run in done}
    blocks: list[Block] = []
    for name in names():
        suite = load(name)
        if not streams & {row.stream for row in suite.rows}:
            continue
        measured = from_runs(suite, [run.run() for run in done])
        if measured:
            section = published_section(table(suite, measured))
            rows = f"{len(measured)} of {len(suite.rows)} rows have complete runs here."
            blocks.append(
                Section(name, [f"{suite.title}. {rows}", *([section] if section else [])])
            )
    nothing = (
        "There are no complete runs of a suite here. `streamgauge suite run NAME` makes them;"
        " `streamgauge view --ledger` shows what was measured so far."
    )
    return Page(KIND, "Suites", blocks or [nothing])


def ledger_page() -> Page:
    """Every published number and ours, the verdicts and the claims, from the stored results."""
    with packages_for("The ledger"):
        import torch  # noqa: F401
    from streamgauge.suites import text
    from streamgauge.suites.comparing import VERDICTS, cell_texts
    from streamgauge.suites.criterion import MARGIN
    from streamgauge.suites.dumbbells import published_section
    from streamgauge.suites.wording.summary import plain

    numbers = text.ledger_numbers()
    counts = text.verdict_counts(numbers)
    claims = text.claim_rows({each.suite.name: each.measured for each in numbers})
    blocks: list[Block] = [
        *(Text(plain(sentence)) for sentence in text.first_screen(numbers)),
        PageTable(
            [*text.COUNTED, *VERDICTS],
            [[str(name), *map(str, numbers)] for name, *numbers in counts],
            sortable=True,
        ),
        Text(
            f"Equivalent: the 95 % interval of ours − published lies within ± {MARGIN:g} point."
            " Consistent: it does not differ, and the interval is ± 2 points or less. Differs: p by"
            " Holm over the table is 5 % or less. Uninformative: the interval is wider, or there is"
            " none. docs/suites.md has the formulas."
        ),
    ]  # fmt: skip
    for each in sorted(numbers, key=lambda each: not each.measured):  # what was run comes first
        shown = each.shown
        if not shown:
            continue
        texts = [cell_texts(cell) for cell in shown]
        head = list(texts[0])
        rows = [
            [f"{cell.part}: {of['row']}" if cell.part else of["row"], *list(of.values())[1:]]
            for cell, of in zip(shown, texts, strict=True)
        ]
        columns = [n for n, name in enumerate(head) if name in TEXT]
        section = published_section(shown)
        drawn = [b for b in section.blocks if not isinstance(b, PageTable)] if section else []
        blocks.append(Section(each.suite.name, [
            f"{each.suite.title}. {each.suite.what}",
            *map(Text, each.suite.notes),
            *drawn,
            Section(f"All {len(rows)} numbers with verdicts",
                    [PageTable(head, rows, text_columns=columns, sortable=True)], folded=True),
        ]))  # fmt: skip
    blocks.append(
        Section("Claims of the papers", [
            Text("What the papers are cited for, tested on our runs, seed by seed."),
            PageTable(text.CLAIM_HEAD, claims, text_columns=range(1, len(text.CLAIM_HEAD))),
        ])
    )  # fmt: skip
    return Page(KIND, "The ledger: published numbers and ours", blocks)
