"""Plans and tables of suites as text for the terminal, and the ledger page: every published number
with ours and the verdict."""

from __future__ import annotations

import itertools
import math
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.table import Column

from streamgauge.cost.turns import UNEVEN
from streamgauge.pages.units import bytes_text, duration, flop
from streamgauge.report.terminal import folding, right, text_table
from streamgauge.suites import comparing, published, spec
from streamgauge.suites.claims import ClaimResult, claims, evaluate, in_paper, judged
from streamgauge.suites.comparing import (
    VERDICTS,
    LedgerCell,
    TableStatement,
    cell_texts,
    fixed,
    p_text,
    statements,
)
from streamgauge.suites.criterion import MARGIN
from streamgauge.suites.measured import RESULTS, Measured, recorded
from streamgauge.suites.planning import Estimate
from streamgauge.suites.published import PublishedTable
from streamgauge.suites.spec import Suite, load, names
from streamgauge.suites.wording.reading import CLAIMS, reading
from streamgauge.suites.wording.summary import summary


def list_text(suites: Iterable[spec.Suite]) -> str:
    lines = []
    for suite in suites:
        rows = [row for row in suite.rows if not row.defined]
        lines.append(f"{suite.name}  ({len(rows)} rows, {sum(row.seeds for row in rows)} runs)")
        lines.append(f"    {suite.title}. {suite.what}")
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
    known = [e.to_run * e.flops for e in estimates if e.to_run and not math.isnan(e.flops)]
    seconds = math.fsum(e.to_run * e.seconds for e in estimates if e.to_run)
    shared = sum(estimate.shared for estimate in estimates)
    table = text_table(["row", *map(right, numbers)], rows, least_width=100, show_edge=True)
    lines = [f"{suite.title}. {suite.what}", "", table]
    if not missing:
        lines.append("All runs are complete: nothing to run.")
    elif math.isnan(seconds):
        lines.append(f"To run: {missing} runs. How long they take was not measured.")
    else:
        lines.append(
            f"To run: {missing} runs, about {flop(math.fsum(known))} and {duration(seconds)} "
            f"one after the other on {device}."
        )
    if shared:
        lines.append(f"{shared} more are the same as one of another row, and are not run twice.")
    bases = " and ".join(dict.fromkeys(estimate.work.basis for estimate in estimates))
    lines.append(
        f"An estimate. Steps: {bases}. FLOPs: counted on a few samples; ? where none were, as only "
        f"torch's can be. Time: measured here on {device} on a few samples and multiplied, as if "
        "nothing else ran, without reading data or the linear probe; a run on another device takes "
        "another time. Memory: data, samples stored and their indices, without the network's "
        "activations."
    )
    slowdown = max((e.price.slowdown for e in estimates if e.price is not None), default=1.0)
    if slowdown > UNEVEN:
        lines.append(
            f"The machine was busy while this was measured: work took up to {slowdown:.2g} times "
            "as long as when it was idle. Runs will too, while it is."
        )
    lines += [f"{e.row.title}: {e.why}" for e in estimates if e.why and e.why != "not measured"]
    return "\n".join([*lines, *suite.notes])


def table_text(suite: spec.Suite, cells: Sequence[LedgerCell], with_runs: bool = True) -> str:
    parts = [suite.title + (" (generated data: no paper's numbers)" if suite.generated else "")]
    run = {cell.title for cell in cells if cell.ours is not None}
    missing = dict.fromkeys(c.title for c in cells if c.defined and c.title not in run)
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part and cell.title not in missing]
        heads = [*([part] if part else []), *_sources(of_part)]
        parts += ["", *map(_filled, heads), _part_table(of_part)]
        whys = {f"{c.row}, {c.column}: {c.why}": None for c in of_part if c.verdict and c.why}
        parts += map(_filled, whys)
    sentences = [*_counts(cells), *map(statement_text, statements(cells))]
    if missing:
        arguments = f"{suite.name}{' --generated' if suite.generated else ''} --both"
        names = "; ".join(missing)
        sentences.append(f"Not run: {names}. `streamgauge suite run {arguments}` runs them.")
    parts += ["", *map(_filled, sentences)]
    if with_runs:
        parts += _commands(cells)
    return "\n".join([*parts, *map(_filled, suite.notes)])


def _filled(sentence: str, indent: str = "") -> str:
    """In lines that fit the terminal. Words such as paths are not broken."""
    width = min(100, shutil.get_terminal_size().columns)
    return textwrap.fill(
        sentence,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _part_table(cells: Sequence[LedgerCell]) -> str:
    """The cells of a part, within 80 columns: a row with several numbers has a line of its own."""
    columns = ["ours", "n"]
    if any(cell.published for cell in cells):
        columns = ["published", "ours", "n", "difference", "p", "verdict"]
    alone = len({cell.column for cell in cells}) == 1
    lines: list[list[str]] = []
    for row, of_row in itertools.groupby(cells, lambda cell: cell.row):
        lines += [] if alone else [[row, *("" for _ in columns)]]
        for cell in of_row:
            texts = cell_texts(cell)
            verdict = cell.verdict or cell.why
            texts |= {"n": texts["seeds"] or "0", "verdict": verdict, "p": texts["p, Holm"]}
            texts["published"] = texts["published"].replace(" (misprint)", "?")
            name = row if alone else f"  {cell.column}"
            lines.append([name, *(texts[column].replace(" ± ", "±") for column in columns)])
    # Only names go on in a second line.
    head = [
        folding(""),
        *(Column(c, no_wrap=True) if c == "verdict" else right(c, no_wrap=True) for c in columns),
    ]
    return text_table(head, lines, show_edge=True)


def _sources(cells: Iterable[LedgerCell]) -> Iterable[str]:
    """The papers' tables of these cells."""
    return dict.fromkeys(f"{c.published.paper}, {c.published.table}" for c in cells if c.published)


def _counts(cells: Sequence[LedgerCell]) -> list[str]:
    units = "In %, mean ± sample deviation over seeds"
    judged = [cell for cell in cells if cell.published and not cell.defined]
    if not judged:
        return [f"{units}."]
    count = Counter(cell.verdict for cell in judged)
    counts = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict])
    return [
        f"{len(judged)} published numbers: {counts}. {units}; difference ± half its 95 % interval; "
        f"p is by Holm over a table; equivalent: within {MARGIN:g} point (docs/suites.md)."
    ]


def _p_equals(p: float) -> str:
    """p with its sign.

    >>> _p_equals(0.04321), _p_equals(0.00001)
    ('p = 0.043', 'p < 0.001')
    """
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def statement_text(statement: TableStatement) -> str:
    """The joint statement on a table as one sentence or two."""
    joint = statement.joint
    text = f"{statement.source}: {joint.cells} of {statement.published} cells"
    if math.isnan(joint.p):
        text += ". No χ²: its rows do not have two seeds in common"
    else:
        text += (
            f" by {joint.seeds} seeds, χ² = {fixed(joint.chi2, 1)} where chance gives "
            f"{joint.cells} ({_p_equals(joint.p)}). Mean difference "
            f"{fixed(joint.offset, sign='+')} ± {fixed(joint.offset_half)} "
            f"({_p_equals(joint.offset_p)})"
        )
        text += "; all published runs share one seed" if statement.shared_seed else ""
    ratio = ""
    if not math.isnan(statement.ratio):
        ratio = (
            f" Our deviations are {fixed(statement.ratio)} × the published ones (geometric mean)."
        )
    return (
        f"{text}. {statement.unadjusted} of {joint.cells} have p ≤ 5 % before Holm "
        f"({0.05 * joint.cells:.1f} or less expected by chance). A true difference of "
        f"{fixed(fmean(statement.detectable), 1)} points is called different with probability "
        f"80 %, on average over the cells ({fixed(min(statement.detectable), 1)} to "
        f"{fixed(max(statement.detectable), 1)}).{ratio}"
    )


def _commands(cells: Iterable[LedgerCell]) -> list[str]:
    lines = []
    first = {(cell.title, cell.command): cell for cell in reversed(list(cells))}
    for (title, command), cell in reversed(first.items()):
        if cell.runs:
            # The command is one line, to be copied; the terminal wraps it.
            lines += [f"{title}: {command}", _filled(f"runs {' '.join(cell.runs)}", "    ")]
            lines += [_filled(remark, "    ") for remark in cell.remarks]
    return lines


HEAD = """# The ledger

Every number that the five papers give for what our suites reproduce, next to ours. This page is
generated: `streamgauge suite ledger --to docs/ledger.md`, from the published numbers in
`suites/ledger/` and what was measured so far in `suites/results/`. `streamgauge suite table NAME`
shows the same with the runs on your machine.
"""


def ledger_page(results: Path = RESULTS) -> str:
    """The whole page in Markdown, from stored results: no run folder is read."""
    numbers = ledger_numbers(results)
    measured = {each.suite.name: each.measured for each in numbers}
    cells = {each.suite.name: each.cells for each in numbers}
    first, *rest = first_screen(numbers)
    counts = verdict_counts(numbers)
    columns = [map(str, column) for column in zip(*counts, strict=True)][1:]
    total = ["all", *(sum(map(int, column)) for column in columns)]
    parts = [
        "\n".join([HEAD, first, "", *(f"- {text}" for text in rest), ""]),
        "\n".join([*_markdown_table([*COUNTED, *VERDICTS], [*counts, total]), ""]),
        reading(sum(len(statements(each)) for each in cells.values())),
        _claims(measured),
    ]
    for each in numbers:
        if shown := each.shown:
            parts.append(_suite(each.suite, shown, each.measured))
        elif each.measured:
            parts.append(_own_numbers(each.suite, each.cells, each.measured))
    given = [table for table in published.tables().values() if table.given or table.closed_form]
    parts += [_given(given), _plotted()]
    return "\n".join(parts).rstrip() + "\n"


def first_screen(numbers: Iterable[SuiteNumbers]) -> list[str]:
    """What was reproduced, what differs and what is not known, in sentences."""
    numbers = list(numbers)
    measured = {each.suite.name: each.measured for each in numbers}
    return summary({each.suite.name: each.cells for each in numbers}, claim_results(measured))


class SuiteNumbers(NamedTuple):
    """A suite, what was measured of it, and every cell of its tables."""

    suite: Suite
    measured: Sequence[Measured]
    cells: Sequence[LedgerCell]

    @property
    def shown(self) -> list[LedgerCell]:
        """Cells with a published number. A row "as defined" that was not run is left out;
        `suite table` names it."""
        return [
            cell
            for cell in self.cells
            if cell.published is not None and (cell.ours is not None or not cell.defined)
        ]


def ledger_numbers(results: Path = RESULTS) -> list[SuiteNumbers]:
    """All suites, from stored results; each published number counts once."""
    suites = [load(name) for name in names()]
    measured = {suite.name: recorded(suite.name, results) for suite in suites}
    cells = _without_repeats({s.name: comparing.table(s, measured[s.name]) for s in suites})
    return [SuiteNumbers(s, measured[s.name], cells[s.name]) for s in suites]


def _without_repeats(cells: Mapping[str, list[LedgerCell]]) -> dict[str, list[LedgerCell]]:
    """Each published number once: where it was run, or in the first suite that has it."""
    taken = {
        cell.published.source
        for each in cells.values()
        for cell in each
        if cell.published and cell.values and not cell.defined
    }
    kept = {}
    for name, each in cells.items():
        kept[name] = [
            c for c in each if c.values or not c.published or c.published.source not in taken
        ]
        taken |= {c.published.source for c in kept[name] if c.published and not c.defined}
    return kept


COUNTED = ("suite", "published numbers")


def verdict_counts(numbers: Iterable[SuiteNumbers]) -> list[list[object]]:
    """Rows of a table: suite, published numbers, and how many have each verdict."""
    rows: list[list[object]] = []
    for each in numbers:
        judged = [c for c in each.cells if c.published is not None and not c.defined]
        count = Counter(cell.verdict for cell in judged)
        if judged:
            rows.append([each.suite.name, len(judged), *(count[v] for v in VERDICTS)])
    return rows


def _claims(measured: Mapping[str, Sequence[Measured]]) -> str:
    return "\n".join([CLAIMS, *_markdown_table(CLAIM_HEAD, claim_rows(measured)), ""])


CLAIM_HEAD = (
    "claim", "source", "ours", "in the paper", "seeds", "p for", "p against", "verdict",
    "not shown, or missing",
)  # fmt: skip


def claim_rows(measured: Mapping[str, Sequence[Measured]]) -> list[list[str]]:
    """Rows of a table with every claim of the papers, tested on our runs."""
    rows = []
    for result in claim_results(measured):
        claim = result.claim
        details = [
            f"{' − '.join(map(_in_difference, test.pair))}: "
            f"{fixed(test.difference, sign='+')} ± {fixed(test.half)}"
            for test in result.exceptions
        ]
        details += (
            [f"not counted or not run: {', '.join(result.missing)}"] if result.missing else []
        )
        seeds = {test.seeds for test in result.tested}
        untested = bool(result.missing or claim.built)
        p_for = "" if untested else _two_p(result.p_for, result.adjusted_for)
        against = _two_p(result.p_against, result.adjusted_against)
        details += [claim.built] if claim.built else []
        rows.append(
            [
                claim.text,
                f"{claim.paper}, {claim.where}",
                f"{claim.suite}, {claim.column}",
                in_paper(claim),
                f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else "".join(map(str, seeds)),
                p_for,
                against if result.tested and not claim.built else "",
                result.verdict,
                "; ".join(details),
            ]
        )
    return rows


def _in_difference(name: str) -> str:
    return f"({name})" if " + " in name else name or "0"


def claim_results(measured: Mapping[str, Sequence[Measured]]) -> list[ClaimResult]:
    """Every claim of the papers, with p by Holm."""
    return judged([evaluate(claim, measured.get(claim.suite, ())) for claim in claims()])


def _two_p(p: float, adjusted: float) -> str:
    return f"{p_text(p)} ({p_text(adjusted)})"


def _markdown_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table in Markdown."""
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    return [first.replace("|  |", "| |"), "|---" * len(list(head)) + "|", *others]


def _suite(suite: Suite, cells: list[LedgerCell], measured: Iterable[Measured]) -> str:
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part]
        seeds = {c.published.seeds for c in of_part if c.published}
        runs = ", ".join("one run" if n == 1 else f"{n} seeds" for n in sorted(filter(None, seeds)))
        heading = f"{part}: " if part else ""
        lines += ["", f"### {heading}{'; '.join(_sources(of_part))} ({runs})", ""]
        lines += [line for caption in _captions(of_part) for line in (caption, "")]
        texts = [cell_texts(cell) for cell in of_part]
        lines += _markdown_table(texts[0], [row.values() for row in texts])
    joint = [statement_text(statement) for statement in statements(cells)]
    lines += ["", "Each table as a whole:", "", *(f"- {text}" for text in joint)] if joint else []
    misprints = {c.published.source: c.published.misprint for c in cells if c.published}
    lines += [f"- Misprint in {source}: {why}." for source, why in misprints.items() if why]
    lines += ["", *_origins(suite, measured)]
    return "\n".join(lines)


def _captions(cells: Iterable[LedgerCell]) -> Iterable[str]:
    """What the papers' tables of these cells show, and over how many runs."""
    about = {(table.paper, table.table): table.about for table in published.tables().values()}
    given = dict.fromkeys((c.published.paper, c.published.table) for c in cells if c.published)
    return [f"{about[key]}." for key in given]


OWN_NUMBERS = (
    "No number is published to compare with; the claims above rest on these: mean ± sample "
    "deviation over seeds, %."
)


def _own_numbers(suite: Suite, cells: Sequence[LedgerCell], measured: Sequence[Measured]) -> str:
    """A suite whose paper prints no number: ours alone, rows by columns."""
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    lines += ["", OWN_NUMBERS]
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part]
        columns = list(dict.fromkeys(cell.column for cell in of_part))
        lines += ["", f"### {part}" if part else "", ""]
        rows = []
        for row, of_row in itertools.groupby(of_part, lambda cell: cell.row):
            texts = {cell.column: cell_texts(cell) for cell in of_row}
            seeds = dict.fromkeys(text["seeds"] for text in texts.values())
            values = (texts[column]["ours"] if column in texts else "" for column in columns)
            rows.append([row, ", ".join(seeds), *values])
        lines += _markdown_table(["row", "seeds", *columns], rows)
    run = {row.key for row in measured}
    rest = [row.title for row in suite.rows if row.key not in run and not row.defined]
    lines += ["", f"Not run: {'; '.join(rest)}."] if rest else []
    return "\n".join([*lines, "", *_origins(suite, measured)])


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
        columns = table.columns
        rows = []
        for row in dict.fromkeys(row for row, _ in table.numbers):
            numbers = (table.numbers.get((row, column)) for column in columns)
            rows.append([row, *(number.text if number else "" for number in numbers)])
        lines += _markdown_table(["", *columns], rows)
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
        "compare with but the picture. `streamgauge suite figures NAME` draws ours.",
        "",
    ]
    curves = [p for table in published.tables().values() for p in table.plotted]
    rows = [
        [p.paper, p.where, p.what, f"{p.suite}, {p.figure}" if p.suite else f"none: {p.not_drawn}"]
        for p in curves
    ]
    return "\n".join([*lines, *_markdown_table(["paper", "where", "what", "ours"], rows), ""])
