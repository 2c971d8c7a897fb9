"""The papers' numbers, each with its source: one TOML file per table in `ledger/`.

paper, table, about     where the numbers are printed, and what they are about
columns, rows           row = [[value, deviation], [value], [], ...], one entry per column
seeds, deviation        runs behind a number; what the deviation is
samples                 test samples behind a number, or a table of these by column
shared_seed = true      all runs of the table have one seed
[misprints]             "ROW, COLUMN" = why the printed deviation cannot be right
given = "..."           numbers that the suites take as they are (costs), and why
closed_form = "..."     numbers that follow from a formula, and which test proves them
[[plotted]]             curves without printed numbers, which cannot be verified; `not_drawn` says
                        why no suite draws them
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from streamgauge.errors import StreamgaugeError, nearest

LEDGER = Path(__file__).parent / "ledger"


@dataclass(frozen=True)
class Published:
    """One number of a paper, in the table's unit."""

    paper: str
    table: str
    row: str
    column: str
    value: float
    deviation: float | None
    seeds: int | None
    digits: int  # after the point, as printed: it was rounded to these
    samples: int | None = None  # of the test set
    shared_seed: bool = False  # with all numbers of its table
    misprint: str = ""  # why the printed deviation cannot be right

    @property
    def unit(self) -> float:
        """Of the last printed digit."""
        return 10.0**-self.digits

    @property
    def source(self) -> str:
        return f"{self.paper}, {self.table}, row {self.row}, column {self.column}"

    @property
    def text(self) -> str:
        value = f"{self.value:.{self.digits}f}"
        if self.deviation is None:
            return value
        mark = " (misprint)" if self.misprint else ""
        return f"{value} ± {self.deviation:.{self.digits}f}{mark}"


@dataclass(frozen=True)
class Plotted:
    """A curve of a paper without printed numbers."""

    paper: str
    where: str
    what: str
    suite: str = ""
    figure: str = ""  # of that suite, to compare by eye
    not_drawn: str = ""  # why there is none


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper."""

    paper: str
    table: str
    about: str
    numbers: Mapping[tuple[str, str], Published]  # by row and column
    columns: tuple[str, ...] = ()  # in the order of the paper
    given: str = ""
    closed_form: str = ""
    plotted: tuple[Plotted, ...] = ()


@cache
def tables() -> Mapping[str, PublishedTable]:
    """All tables of published numbers by the name of their file."""
    return {file.stem: _read(file) for file in sorted(LEDGER.glob("*.toml"))}


def table(name: str) -> PublishedTable:
    if name not in tables():
        raise StreamgaugeError(
            f"There is no table of published numbers '{name}'; {nearest(name, tables())}"
        )
    return tables()[name]


def number(name: str, row: str, column: str) -> Published | None:
    """A published number, or None where the table has none there.

    >>> number("survey-table2-cifar100", "ER", "Acc").text
    '28.2 ± 1.2'
    """
    return table(name).numbers.get((row, column))


def _read(file: Path) -> PublishedTable:
    given = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=_Printed)
    samples, misprints = given.get("samples"), given.get("misprints", {})
    numbers = {}
    for row, cells in given.get("rows", {}).items():
        if len(cells) != len(given["columns"]):
            raise StreamgaugeError(f"{file.name}, row {row}: there must be one entry per column.")
        for column, cell in zip(given["columns"], cells, strict=True):
            if cell:
                numbers[row, column] = Published(
                    paper=given["paper"],
                    table=given["table"],
                    row=row,
                    column=column,
                    value=float(cell[0]),
                    deviation=float(cell[1]) if len(cell) > 1 else None,
                    seeds=given.get("seeds"),
                    digits=getattr(cell[0], "digits", 0),
                    samples=samples.get(column) if isinstance(samples, dict) else samples,
                    shared_seed=given.get("shared_seed", False),
                    misprint=misprints.pop(f"{row}, {column}", ""),
                )
    if misprints:
        raise StreamgaugeError(f"{file.name} has no number {', '.join(misprints)}.")
    plotted = tuple(Plotted(given["paper"], **curve) for curve in given.get("plotted", ()))
    texts = ("paper", "table", "about", "given", "closed_form")
    known = {name: given[name] for name in texts if name in given}
    columns = tuple(given.get("columns", ()))
    return PublishedTable(numbers=numbers, columns=columns, plotted=plotted, **known)


class _Printed(float):
    """A number that knows how many digits it was written with."""

    digits: int

    def __new__(cls, text: str) -> _Printed:
        number = super().__new__(cls, text)
        number.digits = len(text.partition(".")[2])
        return number
