"""Compare published numbers with measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from streamgauge.metrics import Spread, spread
from streamgauge.suites import published
from streamgauge.suites.measured import Measured, command
from streamgauge.suites.published import Published
from streamgauge.suites.spec import Difference, Row, Suite

ENOUGH = 3  # seeds that a verdict needs
LIMIT = 2.0  # deviations
EARLIER = "earlier, runs not kept"
Verdict = Literal["verified", "not verified", "cannot be verified", ""]


@dataclass(frozen=True)
class Cell:
    """One number of a table. Numbers are in the unit of the table, %."""

    part: str
    row: str
    column: str
    defined: bool  # as the paper defines the method, where its code did something else
    published: Published | None
    ours: Spread | None
    difference: float  # ours - published
    deviations: float  # the same, in published deviations; NaN where none is published
    verdict: Verdict
    why: str
    command: str
    runs: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.part}: {self.row}" if self.part else self.row


def table(suite: Suite, rows: Iterable[Measured]) -> list[Cell]:
    """Every cell of the tables of a suite, with its verdict."""
    by_row = {row.key: row for row in rows}
    cells = []
    for row in suite.rows:
        measured = [by_row[row.key]] if row.key in by_row else []
        for column in row.columns:
            number = published.number(row.table, row.published, column) if row.table else None
            values = [v for m in measured for v in m.values.get(column, ())]
            if number is None and not any(v == v for v in values):
                continue
            made_by = measured[0].command if measured else command(suite, [row])
            cells.append(_cell(row, column, number, values, measured, made_by))
    return cells + _differences(suite, by_row)


def _cell(
    of: Row | Difference,
    column: str,
    number: Published | None,
    values: Sequence[float],
    measured: Sequence[Measured],
    command: str,
) -> Cell:
    """A cell of a row or of a difference of rows; `measured` are the rows of its values."""
    verdict, why, difference, deviations = judge(number, values)
    defined = isinstance(of, Row) and of.defined
    if number is not None and defined:
        # The published number is of the code, so only the row that does as the code did is checked.
        verdict, why = "", "as defined" if values else "as defined, not run"
    elif number is not None and values and any(row.earlier for row in measured):
        verdict, why = "not verified", "; ".join(t for t in (why, EARLIER) if t)
    return Cell(
        part=of.part,
        row=of.name,
        column=column,
        defined=defined,
        published=number,
        ours=spread(values) if values else None,
        difference=difference,
        deviations=deviations,
        verdict=verdict,
        why=why,
        command=command,
        runs=tuple(run for row in measured for run in row.runs),
        remarks=tuple(dict.fromkeys(remark for row in measured for remark in row.remarks)),
    )


def judge(number: Published | None, values: Iterable[float]) -> tuple[Verdict, str, float, float]:
    """Verdict, reason, ours - published, and the same in published deviations.

    Verified: at least 3 seeds, and our mean within 2 published deviations of the published one.
    Where a paper has one run and no deviation, the question is whether that run could have been
    one of ours: |difference| <= 2 s sqrt(1 + 1/n) + half a unit of its last digit, where s is the
    deviation of our n seeds.

    >>> number = published.number("survey-table2-cifar100", "ER", "Acc")
    >>> judge(number, [29.0, 30.0, 28.0])[0]
    'verified'
    """
    seeds = list(values)
    nan = float("nan")
    if number is None:
        return "", "" if seeds else "not run", nan, nan
    if not seeds:
        return "not verified", "not run", nan, nan
    ours = spread(seeds)
    difference = ours.mean - number.value
    deviations = difference / number.deviation if number.deviation else nan
    if math.isnan(ours.mean):
        return "not verified", "our runs do not have this number", nan, nan
    if ours.seeds < ENOUGH:
        return "not verified", f"{ours.seeds} of {ENOUGH} seeds", difference, deviations
    if number.deviation:
        close = abs(deviations) <= LIMIT
        why = "" if close else f"{abs(deviations):.1f} published deviations away"
    else:
        reach = LIMIT * ours.deviation * math.sqrt(1 + 1 / ours.seeds)
        close = abs(difference) <= reach + 0.5 * 10**-number.digits
        why = "one published run" if close else f"one published run, more than {reach:.2g} away"
    return ("verified" if close else "not verified"), why, difference, deviations


def _differences(suite: Suite, by_row: Mapping[tuple[str, str], Measured]) -> list[Cell]:
    cells = []
    rows = {row.key: row for row in suite.rows}
    for pairing in suite.differences:
        number = None
        if not suite.generated:
            number = published.number(pairing.table, pairing.name, pairing.column)
        keys = [(pairing.part, pairing.of), (pairing.part, pairing.minus)]
        measured = [by_row[key] for key in keys if key in by_row]
        values: list[float] = []
        if len(measured) == 2:
            first, second = (
                dict(zip(m.seeds, m.values.get(pairing.column, ()), strict=False)) for m in measured
            )
            values = [first[seed] - second[seed] for seed in first if seed in second]
        elif number is None:
            continue
        made_by = command(suite, [rows[key] for key in keys])
        cell = _cell(pairing, pairing.column, number, values, measured, made_by)
        cells.append(cell if values else replace(cell, runs=()))
    return cells


def as_dict(cell: Cell) -> dict[str, object]:
    number, ours = cell.published, cell.ours
    return {
        "part": cell.part,
        "row": cell.row,
        "column": cell.column,
        "as_defined": cell.defined,
        "published": None if number is None else number.value,
        "published_deviation": None if number is None else number.deviation,
        "published_seeds": None if number is None else number.seeds,
        "source": None if number is None else number.source,
        "mean": None if ours is None else ours.mean,
        "deviation": None if ours is None else ours.deviation,
        "seeds": 0 if ours is None else ours.seeds,
        "difference": cell.difference,
        "difference_in_published_deviations": cell.deviations,
        "verdict": cell.verdict,
        "why": cell.why,
        "command": cell.command,
        "runs": list(cell.runs),
        "remarks": list(cell.remarks),
    }


def cell_texts(cell: Cell) -> dict[str, str]:
    """The cell as one row of a table with a verdict for each number."""
    ours, difference = "–", ""
    if cell.ours is not None and not math.isnan(cell.ours.mean):
        deviation = cell.ours.deviation
        ours = f"{cell.ours.mean:.2f}" + ("" if deviation != deviation else f" ± {deviation:.2f}")
    if not math.isnan(cell.difference):
        alone = math.isnan(cell.deviations)
        unit = " points" if alone else f" = {cell.deviations:+.1f} dev."
        difference = f"{cell.difference:+.2f}{unit}"
    return {
        "row": cell.row,
        "column": cell.column,
        "published": cell.published.text if cell.published else "–",
        "ours": ours,
        "seeds": str(cell.ours.seeds) if cell.ours else "",
        "difference": difference,
        "verdict": ": ".join(text for text in (cell.verdict, cell.why) if text),
    }
