"""Compare published numbers with measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from streamgauge.metrics import Spread, spread
from streamgauge.suites import published
from streamgauge.suites.measured import Measured, command
from streamgauge.suites.published import Published
from streamgauge.suites.spec import Row, Suite

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
    cells = [
        _cell(suite, row, column, by_row.get(row.key))
        for row in suite.rows
        for column in row.columns
        if _shown(row, column, by_row)
    ]
    return cells + _differences(suite, by_row)


def _shown(row: Row, column: str, by_row: Mapping[tuple[str, str], Measured]) -> bool:
    """Whether a column is published or measured for a row."""
    if _number(row, column) is not None:
        return True
    measured = by_row.get(row.key)
    return measured is not None and any(v == v for v in measured.values.get(column, ()))


def _number(row: Row, column: str) -> Published | None:
    return published.number(row.table, row.published, column) if row.table else None


def _cell(suite: Suite, row: Row, column: str, measured: Measured | None) -> Cell:
    number = _number(row, column)
    values = () if measured is None else measured.values.get(column, ())
    verdict, why, difference, deviations = judge(number, values)
    if number is not None and row.defined:
        # The published number is of the code, so only the row that does as the code did is checked.
        verdict, why = "", "as defined" if values else "as defined, not run"
    elif number is not None and measured is not None and measured.earlier and len(values):
        verdict, why = "not verified", "; ".join(t for t in (why, EARLIER) if t)
    return Cell(
        part=row.part,
        row=row.name,
        column=column,
        defined=row.defined,
        published=number,
        ours=spread(values) if len(values) else None,
        difference=difference,
        deviations=deviations,
        verdict=verdict,
        why=why,
        command=command(suite, [row]) if measured is None else measured.command,
        runs=() if measured is None else measured.runs,
        remarks=() if measured is None else measured.remarks,
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
        number = (
            None
            if suite.generated
            else published.number(pairing.table, pairing.name, pairing.column)
        )
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
        verdict, why, difference, deviations = judge(number, values)
        if number is not None and values and any(m.earlier for m in measured):
            verdict, why = "not verified", "; ".join(t for t in (why, EARLIER) if t)
        cells.append(
            Cell(
                part=pairing.part,
                row=pairing.name,
                column=pairing.column,
                defined=False,
                published=number,
                ours=spread(values) if values else None,
                difference=difference,
                deviations=deviations,
                verdict=verdict,
                why=why,
                command=command(suite, [rows[key] for key in keys]),
                runs=tuple(name for m in measured for name in m.runs) if values else (),
                remarks=tuple(dict.fromkeys(r for m in measured for r in m.remarks)),
            )
        )
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


def ours_text(cell: Cell) -> str:
    if cell.ours is None or math.isnan(cell.ours.mean):
        return "–"
    mean = f"{cell.ours.mean:.2f}"
    return mean if math.isnan(cell.ours.deviation) else f"{mean} ± {cell.ours.deviation:.2f}"


def difference_text(cell: Cell) -> str:
    if math.isnan(cell.difference):
        return ""
    if math.isnan(cell.deviations):
        return f"{cell.difference:+.2f} points"
    return f"{cell.difference:+.2f} = {cell.deviations:+.1f} dev."
