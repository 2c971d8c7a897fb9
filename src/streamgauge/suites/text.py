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

from rich.table import Column

from streamgauge.cost.turns import UNEVEN
from streamgauge.report.compute import scaled
from streamgauge.report.terminal import folding, right, text_table
from streamgauge.running.job_cost import bytes_text
from streamgauge.suites import comparing, published, spec
from streamgauge.suites.claims import claims, evaluate, in_paper
from streamgauge.suites.comparing import (
    VERDICTS,
    Cell,
    TableStatement,
    cell_texts,
    p_text,
    statements,
)
from streamgauge.suites.criterion import MARGIN
from streamgauge.suites.measured import RESULTS, Measured, recorded
from streamgauge.suites.planning import Estimate
from streamgauge.suites.published import PublishedTable
from streamgauge.suites.spec import Suite, load, names


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
        "another time. Memory: data, samples held and their indices, without the network's "
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


def table_text(suite: spec.Suite, cells: Sequence[Cell], with_runs: bool = True) -> str:
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


def _part_table(cells: Sequence[Cell]) -> str:
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


def _sources(cells: Iterable[Cell]) -> Iterable[str]:
    """The papers' tables of these cells."""
    return dict.fromkeys(f"{c.published.paper}, {c.published.table}" for c in cells if c.published)


def _counts(cells: Sequence[Cell]) -> list[str]:
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


def statement_text(statement: TableStatement) -> str:
    """The joint statement on a table as one sentence or two."""
    joint = statement.joint
    text = f"{statement.source}: {joint.cells} cells, χ² = {joint.chi2:.1f}"
    if math.isnan(joint.offset):
        text += f" (p = {p_text(joint.p)})"
    else:
        text += (
            f" about a common offset (p = {p_text(joint.p)}). All published runs share one seed: "
            f"the mean difference is {joint.offset:+.2f}, and one seed moves the mean of ours by ± "
            f"{joint.offset_half:.2f} (95 %, p = {p_text(joint.offset_p)})"
        )
    return (
        f"{text}. {statement.unadjusted} of {joint.cells} have p ≤ 5 % before Holm "
        f"({0.05 * joint.cells:.1f} expected by chance). A true difference of "
        f"{statement.detectable:.1f} points is called different with probability 80 % in a cell."
    )


def _commands(cells: Iterable[Cell]) -> list[str]:
    lines = []
    first = {(cell.title, cell.command): cell for cell in reversed(list(cells))}
    for (title, command), cell in reversed(first.items()):
        if cell.runs:
            # The command is one line, to be copied; the terminal wraps it.
            lines += [f"{title}: {command}", _filled(f"runs {' '.join(cell.runs)}", "    ")]
            lines += [_filled(remark, "    ") for remark in cell.remarks]
    return lines


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(5000), duration(200000), duration(0.4)
    ('75 s', '83 min', '55.6 h', '0.4 s')
    """
    if math.isnan(seconds):
        return "?"
    units = (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72), ("days", 86400, math.inf))
    unit, value = next((unit, seconds / of) for unit, of, most in units if seconds / of < most)
    return f"{value:.0f} {unit}" if value >= 75 else f"{value:.3g} {unit}"


def flop(count: float) -> str:
    """
    >>> flop(787e12), flop(1.15e10), flop(5e16)
    ('787 TFLOP', '11.5 GFLOP', '50 PFLOP')
    """
    return "?" if math.isnan(count) else f"{scaled(count)}FLOP"


HEAD = """# The ledger

Every number that the five papers give for what our suites reproduce, next to ours. This page is
generated: `streamgauge suite ledger --to docs/ledger.md`, from the published numbers in
`suites/ledger/` and what was measured so far in `suites/results/`. `streamgauge suite table NAME`
shows the same with the runs on your machine.

The difference is ours − published, with its 95 % interval by Student's t: Welch's where a mean over
seeds and its deviation are published, a prediction interval where one run is published (that run
could be one of ours). Deviations of few seeds are uncertain: a variance below the typical one of
its column is raised half way to it, and none is below the binomial variance of the test samples. p
is given as it is and corrected by Holm over all cells of the table. [suites.md](suites.md) has the
formulas; `tests/suites/test_criterion.py` measures the error rates.

- **differs**: p by Holm is 5 % or less. The rate of one or more false "differs" in a table is at
  most 5 %.
- **equivalent**: it does not differ, and the 95 % interval lies within ± 1 point (the margin), by
  two one-sided tests at 2.5 % each.
- **consistent**: it does not differ, and the interval is within ± 2 points of the difference.
- **uninformative**: the interval is wider than that, or there is none. A true difference of 2
  points would be missed more often than not.
- **not counted**: the code that ran the row behaves differently from today's, or its runs were not
  kept.
- **not run**.

Consistent is not the same as equal: see the interval, and below each table the difference that
would have been detected. The survey's seeds 0 to 4 have the same orders of classes as ours, and
published values of single seeds to pair with are not available; an unpaired interval is then too
wide rather than too narrow. Published deviations are taken as sample deviations (n − 1); had n been
meant, intervals would be wider by 12 % at most. Numbers are in %, mean ± sample deviation over
seeds. A row "as defined" is the method as its paper defines it, where the published code, and with
it the published number, did something else; it is shown and not judged.
"""


def ledger_page(results: Path = RESULTS) -> str:
    """The whole page in Markdown, from stored results: no run folder is read."""
    suites = [load(name) for name in names()]
    measured = {suite.name: recorded(suite.name, results) for suite in suites}
    cells = {suite.name: comparing.table(suite, measured[suite.name]) for suite in suites}
    parts = [HEAD, _summary(suites, cells), _claims(measured)]
    for suite in suites:
        # A row "as defined" that was not run is left out; `suite table` names it.
        shown = [
            cell
            for cell in cells[suite.name]
            if cell.published is not None and (cell.ours is not None or not cell.defined)
        ]
        if shown:
            parts.append(_suite(suite, shown, measured[suite.name]))
        elif measured[suite.name]:
            parts.append(_own_numbers(suite, cells[suite.name], measured[suite.name]))
    given = [table for table in published.tables().values() if table.given or table.closed_form]
    parts += [_given(given), _plotted()]
    return "\n".join(parts).rstrip() + "\n"


def _summary(suites: list[Suite], cells: dict[str, list[Cell]]) -> str:
    rows: list[list[object]] = []
    for suite in suites:
        judged = [c for c in cells[suite.name] if c.published is not None and not c.defined]
        count = Counter(cell.verdict for cell in judged)
        if judged:
            rows.append([suite.name, len(judged), *(count[verdict] for verdict in VERDICTS)])
    return "\n".join([*_markdown_table(["suite", "published numbers", *VERDICTS], rows), ""])


CLAIMS = """## Claims

What the papers are cited for, as statements over pairs of rows, tested on our runs seed by seed
(the same seed is the same stream), with the deviations of a claim's pairs raised as above. Where
all seeds have the same stream (near-future-natural), the variance has a second part, that of the
difference between ten consecutive parts of the stream: seeds alone would not say what another
stretch of the stream gives.

- **holds**: every pair is as claimed, each by its own one-sided test at 5 %; p is the largest.
- **does not hold**: a pair is the other way at 5 %, by Holm over the pairs; p is that one's.
- **cannot tell**: neither, or rows are missing or not counted.

"B does not beat A" holds if A − B > −1 point is shown, and does not hold if A − B < 0 is shown. "In
the paper" is how many pairs of its own numbers are as claimed, without regard to uncertainty; "on
CGLM" and the like: the paper says so of other data than ours. Claims are tested one by one, without
a correction for their number: of 20 that are false by a hair, one is expected to be called true.
"""


def _claims(measured: Mapping[str, Sequence[Measured]]) -> str:
    rows = []
    for claim in claims():
        result = evaluate(claim, measured.get(claim.suite, ()))
        details = [
            f"{' − '.join(name or '0' for name in test.pair)}: {test.difference:+.2f} ± "
            f"{test.half:.2f}"
            for test in result.exceptions
        ]
        details += (
            [f"not counted or not run: {', '.join(result.missing)}"] if result.missing else []
        )
        p = "" if math.isnan(result.p) else p_text(result.p)
        source = f"{claim.paper}, {claim.where}"
        seeds = {test.seeds for test in result.tested}
        shown = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else "".join(map(str, seeds))
        where = f"{claim.suite}, {claim.column}"
        exceptions = "; ".join(details)
        rows.append(
            [claim.text, source, where, in_paper(claim), shown, p, result.verdict, exceptions]
        )
    head = ["claim", "source", "ours", "in the paper", "seeds", "p", "verdict", "not as claimed"]
    return "\n".join([CLAIMS, *_markdown_table(head, rows), ""])


def _markdown_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a table in Markdown."""
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    return [first.replace("|  |", "| |"), "|---" * len(list(head)) + "|", *others]


def _suite(suite: Suite, cells: list[Cell], measured: Iterable[Measured]) -> str:
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    for part in dict.fromkeys(cell.part for cell in cells):
        of_part = [cell for cell in cells if cell.part == part]
        seeds = {c.published.seeds for c in of_part if c.published}
        runs = ", ".join("one run" if n == 1 else f"{n} seeds" for n in sorted(filter(None, seeds)))
        heading = f"{part}: " if part else ""
        lines += ["", f"### {heading}{'; '.join(_sources(of_part))} ({runs})", ""]
        texts = [cell_texts(cell) for cell in of_part]
        lines += _markdown_table(texts[0], [row.values() for row in texts])
    joint = [statement_text(statement) for statement in statements(cells)]
    lines += ["", "Each table as a whole:", "", *(f"- {text}" for text in joint)] if joint else []
    misprints = {c.published.source: c.published.misprint for c in cells if c.published}
    lines += [f"- Misprint in {source}: {why}." for source, why in misprints.items() if why]
    lines += ["", *_origins(suite, measured)]
    return "\n".join(lines)


def _own_numbers(suite: Suite, cells: Sequence[Cell], measured: Sequence[Measured]) -> str:
    """A suite whose paper prints no number: ours alone, rows by columns."""
    lines = [f"## {suite.name}", "", f"{suite.title}. {suite.what}", ""]
    lines += [f"- {note}" for note in suite.notes]
    lines += ["", "No number is published to compare with; the claims above rest on these."]
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
        "compare with but the picture. Ours is drawn by `streamgauge suite figures NAME`.",
        "",
    ]
    curves = [p for table in published.tables().values() for p in table.plotted]
    rows = [[p.paper, p.where, p.what, f"{p.suite}, {p.figure}"] for p in curves]
    return "\n".join([*lines, *_markdown_table(["paper", "where", "what", "ours"], rows), ""])
