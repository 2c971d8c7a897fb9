"""Compare published numbers with measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from streamgauge.metrics import Spread, spread
from streamgauge.suites import criterion, published
from streamgauge.suites.criterion import MARGIN, Agreement, Joint, Side
from streamgauge.suites.measured import NOT_CURRENT, Measured, command
from streamgauge.suites.published import Published
from streamgauge.suites.spec import Difference, Row, Suite

EARLIER = "runs not kept"
NOT_COUNTED, NOT_RUN = "not counted", "not run"
VERDICTS = ("equivalent", "consistent", "differs", "uninformative", NOT_COUNTED, NOT_RUN)


@dataclass(frozen=True)
class LedgerCell:
    """One number of a table. Numbers are in the unit of the table, %."""

    part: str
    row: str
    column: str
    defined: bool  # as the paper defines the method, where its code did something else
    published: Published | None
    values: Mapping[int, float]  # ours by seed
    test: Agreement | None  # None where there is none; that of a row "as defined" decides nothing
    verdict: str  # one of VERDICTS, or empty where there is nothing to judge
    why: str
    command: str
    runs: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.part}: {self.row}" if self.part else self.row

    @property
    def ours(self) -> Spread | None:
        return spread(list(self.values.values())) if self.values else None

    @property
    def difference(self) -> float:
        """Ours - published."""
        if self.published is None or self.ours is None:
            return math.nan
        return float(self.ours.mean - self.published.value)


@dataclass(frozen=True)
class TableStatement:
    """All judged cells of one published table, taken together."""

    source: str
    joint: Joint
    shared_seed: bool  # of all published runs
    detectable: Sequence[float]  # points by cell, with probability 80 %
    unadjusted: int  # cells with p <= 5 % before Holm
    published: int  # cells of this table that the suite has, judged or not
    ratio: float  # of our deviations to the published ones, geometric mean; NaN where none are


def table(suite: Suite, rows: Iterable[Measured]) -> list[LedgerCell]:
    """Every cell of the tables of a suite, with its verdict."""
    by_row = {row.key: row for row in rows}
    cells = []
    for row in suite.rows:
        measured = [by_row[row.key]] if row.key in by_row else []
        for column in row.columns:
            number = published.number(row.table, row.published, column) if row.table else None
            values = _by_seed(measured[0], column) if measured else {}
            if number is None and not values:
                continue
            made_by = measured[0].command if measured else command(suite, [row])
            cells.append(_cell(row, column, number, values, measured, made_by))
    cells += _differences(suite, by_row)
    judged = {id(old): new for family in families(cells) for old, new in _judged(family)}
    tested = judged | _tests_as_defined(cells, judged)
    return [tested.get(id(cell), cell) for cell in cells]


def _by_seed(measured: Measured, column: str) -> dict[int, float]:
    """The values that runs have."""
    pairs = zip(measured.seeds, measured.values.get(column, ()), strict=False)
    return {seed: value for seed, value in pairs if not math.isnan(value)}


def _cell(
    of: Row | Difference,
    column: str,
    number: Published | None,
    values: Mapping[int, float],
    measured: Sequence[Measured],
    command: str,
) -> LedgerCell:
    """A cell of a row or of a difference of rows, not judged yet; `measured` are the rows of its
    values."""
    defined = isinstance(of, Row) and of.defined
    remarks = tuple(dict.fromkeys(remark for row in measured for remark in row.remarks))
    verdict, why = "", ""
    if number is not None and defined:
        # The published number is of the code, so only the row that does as the code did is judged.
        why = "as defined" if values else f"as defined, {NOT_RUN}"
    elif number is not None and not values:
        verdict, why = NOT_RUN, "our runs do not have this number" if measured else ""
    elif number is not None and any(row.earlier for row in measured):
        verdict, why = NOT_COUNTED, EARLIER
    elif number is not None and any(remark in NOT_CURRENT for remark in remarks):
        verdict, why = NOT_COUNTED, next(remark for remark in remarks if remark in NOT_CURRENT)
    elif number is None and not values:
        why = NOT_RUN
    runs = tuple(run for row in measured for run in row.runs)
    return LedgerCell(
        of.part,
        of.name,
        column,
        defined,
        number,
        values,
        None,
        verdict,
        why,
        command,
        runs,
        remarks,
    )


def families(cells: Iterable[LedgerCell]) -> list[list[LedgerCell]]:
    """The cells to judge, by published table: those with a published number and values that
    count."""
    by_table: dict[tuple[str, str], list[LedgerCell]] = {}
    for cell in cells:
        number = cell.published
        if number is not None and cell.values and not cell.defined and cell.verdict != NOT_COUNTED:
            by_table.setdefault((number.paper, number.table), []).append(cell)
    return list(by_table.values())


def _judged(family: Sequence[LedgerCell]) -> list[tuple[LedgerCell, LedgerCell]]:
    """Each cell of a table with its judged version."""
    tested: list[tuple[LedgerCell, Agreement]] = []
    for column in dict.fromkeys(cell.column for cell in family):
        cells = [cell for cell in family if cell.column == column]
        tested += zip(cells, _tests(cells), strict=True)
    tests = criterion.judged([test for _, test in tested])
    return [
        (cell, replace(cell, test=test, verdict=test.verdict, why=_why(cell, test)))
        for (cell, _), test in zip(tested, tests, strict=True)
    ]


def _tests_as_defined(
    cells: Sequence[LedgerCell], judged: Mapping[int, LedgerCell]
) -> dict[int, LedgerCell]:
    """The cells of rows "as defined", each with its test, by `id`: its
    deviation is raised by its column as theirs are, and its p by Holm is as if it were judged with
    its table. Nothing of it is in the tests of the judged cells."""
    tables: dict[tuple[str, str], list[LedgerCell]] = {}
    for cell in cells:
        if (
            cell.defined
            and cell.values
            and cell.published
            and not set(cell.remarks) & set(NOT_CURRENT)
        ):
            tables.setdefault((cell.published.paper, cell.published.table), []).append(cell)
    tested = {}
    for source, defined in tables.items():
        family = [
            c
            for c in cells
            if id(c) in judged and c.published and (c.published.paper, c.published.table) == source
        ]
        own = [test for c in family if (test := judged[id(c)].test) is not None]
        tests = [_tests([*(c for c in family if c.column == d.column), d])[-1] for d in defined]
        for cell, test in zip(defined, criterion.judged([*own, *tests])[len(own) :], strict=True):
            if not math.isnan(test.error):
                tested[id(cell)] = replace(cell, test=test)
    return tested


def _tests(cells: Sequence[LedgerCell]) -> list[Agreement]:
    """Of one column of a table."""
    numbers = [cell.published for cell in cells if cell.published is not None]
    ours = [cell.ours for cell in cells if cell.ours is not None]
    mine = [
        Side(own.mean, own.deviation, own.seeds, floor)
        for own, floor in zip(ours, _floors(cells), strict=True)
    ]
    return criterion.compare_column(
        [_side(number) for number in numbers], mine, [number.unit for number in numbers]
    )


def _floors(cells: Sequence[LedgerCell]) -> list[float]:
    """The least deviation that our runs of each cell can have."""
    return [
        criterion.binomial_floor(cell.ours.mean, cell.published.samples)
        for cell in cells
        if cell.ours is not None and cell.published is not None
    ]


def _side(number: Published) -> Side:
    return Side(
        number.value,
        math.nan if number.deviation is None or number.misprint else number.deviation,
        number.seeds or 1,
        criterion.binomial_floor(number.value, number.samples),
    )


def _why(cell: LedgerCell, test: Agreement) -> str:
    if math.isnan(test.error):
        return "one run on each side: no deviation"
    whys = []
    if test.verdict == "differs":
        whys += [f"by less than {MARGIN:g}"] if test.equivalent else []
    elif test.p <= criterion.LEVEL:
        whys.append("p ≤ 5 % before Holm")
    if cell.published and cell.published.misprint:
        whys.append("misprinted deviation not used")
    return ", ".join(whys)


def statements(cells: Iterable[LedgerCell]) -> list[TableStatement]:
    """One for each published table of these cells that has two judged cells or more."""
    cells, statements = list(cells), []
    for family in families(cells):
        family = [cell for cell in family if len(cell.values) > 1]
        tests = [cell.test for cell in family if cell.test is not None and cell.test.error > 0]
        numbers = [cell.published for cell in family if cell.published is not None]
        if len(tests) < 2:
            continue
        statements.append(
            TableStatement(
                f"{numbers[0].paper}, {numbers[0].table}",
                criterion.joint(
                    [_side(number) for number in numbers],
                    [cell.values for cell in family],
                    [number.unit for number in numbers],
                    _floors(family),
                ),
                numbers[0].shared_seed,
                criterion.detectable(tests),
                sum(test.p <= criterion.LEVEL for test in tests),
                sum(
                    cell.published is not None
                    and not cell.defined
                    and (cell.published.paper, cell.published.table)
                    == (numbers[0].paper, numbers[0].table)
                    for cell in cells
                ),
                _ratio(family),
            )
        )
    return statements


def _ratio(cells: Iterable[LedgerCell]) -> float:
    """Of our deviations to the published ones, geometric mean over cells that have both."""
    logs = [
        math.log(cell.ours.deviation / cell.published.deviation)
        for cell in cells
        if cell.ours is not None
        and cell.ours.deviation > 0
        and cell.published is not None
        and cell.published.deviation
        and not cell.published.misprint
    ]
    return math.exp(fmean(logs)) if logs else math.nan


def _differences(suite: Suite, by_row: Mapping[tuple[str, str], Measured]) -> list[LedgerCell]:
    cells = []
    rows = {row.key: row for row in suite.rows}
    for pairing in suite.differences:
        number = None
        if not suite.generated:
            number = published.number(pairing.table, pairing.name, pairing.column)
        keys = [(pairing.part, pairing.of), (pairing.part, pairing.minus)]
        measured = [by_row[key] for key in keys if key in by_row]
        values: dict[int, float] = {}
        if len(measured) == 2:
            first, second = (_by_seed(row, pairing.column) for row in measured)
            values = {seed: first[seed] - second[seed] for seed in first if seed in second}
        elif number is None:
            continue
        made_by = command(suite, [rows[key] for key in keys])
        cell = _cell(pairing, pairing.column, number, values, measured, made_by)
        cells.append(cell if values else replace(cell, runs=()))
    return cells


def as_dict(cell: LedgerCell) -> dict[str, object]:
    number, ours, test = cell.published, cell.ours, cell.test
    return {
        "part": cell.part,
        "row": cell.row,
        "column": cell.column,
        "as_defined": cell.defined,
        "published": None if number is None else number.value,
        "published_deviation": None if number is None else number.deviation,
        "published_seeds": None if number is None else number.seeds,
        "misprint": None if number is None else number.misprint,
        "source": None if number is None else number.source,
        "mean": None if ours is None else ours.mean,
        "deviation": None if ours is None else ours.deviation,
        "seeds": 0 if ours is None else ours.seeds,
        "difference": cell.difference,
        "interval": None
        if test is None
        else [test.difference - test.half, test.difference + test.half],
        "freedom": None if test is None else test.freedom,
        "p": None if test is None else test.p,
        "p_holm": None if test is None else test.adjusted,
        "margin": None if test is None else MARGIN,
        "verdict": cell.verdict,
        "why": cell.why,
        "command": cell.command,
        "runs": list(cell.runs),
        "remarks": list(cell.remarks),
    }


def cell_texts(cell: LedgerCell) -> dict[str, str]:
    """The cell as one row of a table with a verdict for each number."""
    ours, difference, test = "–", "", cell.test
    if cell.ours is not None:
        deviation = cell.ours.deviation
        ours = fixed(cell.ours.mean)
        ours += "" if deviation != deviation else f" ± {fixed(deviation)}"
    if not math.isnan(cell.difference):
        difference = fixed(cell.difference, sign="+")
        if test is not None and math.isfinite(test.half):
            difference += f" ± {fixed(test.half)}"
    known = test is not None and not math.isnan(test.p)
    return {
        "row": cell.row,
        "column": cell.column,
        "published": cell.published.text if cell.published else "–",
        "ours": ours,
        "seeds": str(cell.ours.seeds) if cell.ours else "",
        "difference": difference,
        "df": fixed(test.freedom, 1) if known and test else "",
        "p": p_text(test.p) if known and test else "",
        "p, Holm": p_text(test.adjusted) if known and test else "",
        "margin": f"{MARGIN:g}" if known else "",
        "verdict": ": ".join(text for text in (cell.verdict, cell.why) if text),
    }


def fixed(value: float, digits: int = 2, sign: str = "") -> str:
    """
    With so many decimals. Machines may differ in the last bits of a mean, also of one that lies
    half way between two decimals; the text is the same.

    >>> fixed(0.125), fixed(0.125 - 1e-15), fixed(1.5, 1, sign="+")
    ('0.12', '0.12', '+1.5')
    >>> fixed(0.375), fixed(0.375 - 1e-15)
    ('0.38', '0.38')
    """
    return f"{round(value, 9):{sign}.{digits}f}"


def p_text(p: float) -> str:
    """
    Two digits, or three where two would hide on which side of 5 % it is.

    >>> p_text(0.04321), p_text(0.00001), p_text(1.0), p_text(0.0497), p_text(0.0504)
    ('0.043', '< 0.001', '1', '0.0497', '0.0504')
    """
    if p < 0.001:
        return "< 0.001"
    text = f"{p:.2g}"
    return f"{p:.3g}" if float(text) == criterion.LEVEL else text
