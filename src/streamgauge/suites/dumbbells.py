"""Published numbers and ours on one scale: a figure per part and column, and a table of all."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from streamgauge.pages import Block, Cell, Figure, PageTable, Section, Text
from streamgauge.pages.figures import figure, line, rounded, ticks
from streamgauge.suites.comparing import LedgerCell, cell_texts
from streamgauge.suites.spec import DEFINED

PUBLISHED, OURS = "published", "ours"
MARGIN = 0.05  # of the range of values, on both sides


def published_section(cells: Sequence[LedgerCell]) -> Section | None:
    """None where no number is both published and measured."""
    known = [cell for cell in cells if cell.published is not None and cell.ours is not None]
    if not known:
        return None
    groups: dict[tuple[str, str], list[LedgerCell]] = {}
    for cell in known:
        groups.setdefault((cell.part, cell.column), []).append(cell)
    blocks: list[Block] = [
        Text(
            "Each row joins a published number and ours; whiskers are one standard deviation over "
            "seeds, where it is known. Whether they agree is tested in the table."
        ),
        *(_dumbbells(part, column, of) for (part, column), of in groups.items()),
        _table(known),
    ]
    return Section("Published and ours", blocks)


def _dumbbells(part: str, column: str, cells: Sequence[LedgerCell]) -> Figure:
    shapes = []
    values: list[float] = []
    sides: dict[str, tuple[list[float], list[float]]] = {PUBLISHED: ([], []), OURS: ([], [])}
    for at, cell in enumerate(cells):
        assert cell.published is not None
        assert cell.ours is not None
        pair = cell.published.value, cell.ours.mean
        shapes.append({"type": "line", "x0": pair[0], "x1": pair[1], "y0": at, "y1": at})
        deviation = cell.ours.deviation if cell.ours.seeds > 1 else 0.0
        for side, value, error in zip(
            (PUBLISHED, OURS), pair, (cell.published.deviation or 0.0, deviation), strict=True
        ):
            values += (value - error, value + error)
            sides[side][0].append(value)
            sides[side][1].append(error)
    traces = []
    for side, (x, errors) in sides.items():
        trace = line(side, x, range(len(cells)), scale=1, second=side == PUBLISHED)
        trace |= {"mode": "markers", "hovertemplate": "%{x:.2f}"}
        traces.append(trace | {"error_x": {"array": rounded(errors), "thickness": 1.5}})
    room = MARGIN * (max(values) - min(values) or 1.0)
    names = [
        escape(f"{cell.row} ({DEFINED})" if cell.defined and DEFINED not in cell.row else cell.row)
        for cell in cells
    ]
    source = next(cell.published for cell in cells if cell.published is not None)
    return figure(
        f"{part}: {column}" if part else column,
        f"{source.paper}, {source.table}.",
        traces,
        f"{column}, %",
        "",
        from_zero=False,
        x_axis={"range": [min(values) - room, max(values) + room]},
        y_axis={**ticks(range(len(names)), names), "range": [len(names) - 0.5, -0.5],
                "showgrid": False, "zeroline": False},
        hovermode="closest",
        showlegend=True,
        shapes=shapes,
    )  # fmt: skip


def _table(cells: Sequence[LedgerCell]) -> PageTable:
    rows: list[list[str | Cell]] = []
    for cell in cells:
        texts = cell_texts(cell)
        assert cell.ours is not None
        rows.append(
            [
                cell.title,
                cell.column,
                texts["published"],
                Cell(texts["ours"], value=cell.ours.mean),
                Cell(texts["difference"], value=cell.difference),
                cell.verdict or cell.why,
            ]
        )
    head = ["row", "number", "published", "ours", "difference", "verdict"]
    return PageTable(head, rows, "All numbers", text_columns=[1, 5], sortable=True)
