"""A page: sentences, tables and figures in one HTML file that opens without a network."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_result
from streamgauge.pages.figures import Figure
from streamgauge.pages.screen import visible_on_page
from streamgauge.versions import VERSION

# `colours` are those of names, in the order in which a page gives them; the others are CSS
# variables. They differ in luminance and hue, so that they can be told apart with colour-blind eyes
# and in grey.
THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "paper": "#ffffff", "ink": "#1d2328", "soft": "#5b6670", "line": "#dfe3e7",
        "tint": "#f4f6f8", "accent": "#0b6aa8", "warn": "#8a4b00", "fail": "#b3303c",
        "colours": ["#1068e7", "#ef5800", "#501078", "#10af87",
                    "#800848", "#2087a7", "#2800ff", "#9f4028"],
    },
    "dark": {
        "paper": "#14181c", "ink": "#e4e8eb", "soft": "#9aa6b0", "line": "#2e363d",
        "tint": "#1c2227", "accent": "#6bbcf2", "warn": "#f0b267", "fail": "#ff8a92",
        "colours": ["#60a7ff", "#cf7018", "#ffdf8f", "#20efcf",
                    "#5870ff", "#efbf00", "#809f78", "#28c7df"],
    },
}  # fmt: skip
SCRIPTS = ("view.js", "numbers.js", "draw.js")
UNCOLOURED = ("level", "front", "heat", "outlines", "dots")  # roles whose names have no colour


@dataclass(frozen=True)
class Text:
    """A paragraph that is less, or more, important than the sentences of a page."""

    block = "text"
    text: str
    kind: Literal["note", "warning", "failure"] = "note"


@dataclass(frozen=True)
class Cell:
    """A table cell with a mark and its explanation, or shaded by a share from 0 to 1."""

    text: str
    mark: str = ""
    explanation: str = ""
    share: float | None = None
    note: str = ""  # a second, smaller line
    value: float | None = None  # what the column is sorted by
    key: str = ""  # the name whose colour stands before the text
    hollow: bool = False  # that colour as a ring: of a run that goes on
    interval: tuple[float, float, float, float] | None = None  # low, value, high, level: shares
    spark: Sequence[float] = ()  # a small curve of shares

    @property
    def points(self) -> str:
        """The small curve in a box of 100 by 20."""
        last = max(1, len(self.spark) - 1)
        points = ((100 * n / last, 20 - 20 * y) for n, y in enumerate(self.spark) if y == y)
        return " ".join(f"{x:.0f},{y:.1f}" for x, y in points)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class PageTable:
    """A table. The first column names the rows; the others are numbers but for `text_columns`. A
    table with a title is folded where it is long. The rows of a `sortable` one are ordered by a
    click on a column's name, and it can be copied."""

    block = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    kind: Literal["board", "matrix", "facts"] = "board"
    text_columns: Sequence[int] = ()
    sortable: bool = False

    @property
    def folded(self) -> bool:
        return len(self.rows) > 30


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; or behind it, where it is folded, until a reader opens it."""

    block = "section"
    title: str
    blocks: Sequence[Block]
    folded: bool = False
    code: str = ""  # behind the title
    board: bool = False  # can be chosen in the bar
    tiled: bool = False  # blocks side by side, where there is room


Block = str | Text | PageTable | Figure | Section


def shaded_table(
    title: str,
    head: Sequence[str],
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    limits: tuple[float, float] | None = None,
) -> PageTable:
    """Accuracies in percent, the cells shaded from the lowest to the highest of them, or between
    `limits` where tables are to be compared; NaN is an empty cell."""
    known = [v for row in values for v in row if v == v]
    low, high = limits or (min(known, default=0.0), max(known, default=1.0))

    def cell(value: float) -> str | Cell:
        if value != value:
            return ""
        share = (value - low) / (high - low) if high > low else 0.5
        return Cell(f"{100 * value:.1f}", share=min(1.0, max(0.0, share)))

    rows = [[name, *map(cell, row)] for name, row in zip(names, values, strict=True)]
    return PageTable(head, rows, title, "matrix")


def html_path(path: str | Path) -> Path:
    """The path of a page; an error if its ending is that of another format."""
    if Path(path).suffix.lower() not in ("", ".html", ".htm"):
        raise StreamgaugeError(
            f"{path} is not written: a report is an HTML file, so let its name end in .html; its "
            "buttons save figures as SVG or PNG and copy tables as LaTeX, Markdown or CSV "
            "(docs/report.md)."
        )
    return Path(path)


@dataclass(frozen=True)
class Page:
    """A page of Streamgauge; `kind` is the line above its title, `origin` what it was made from.
    `learners` can be ticked in the bar of the page; they, or `first`, get the first colours; `grey`
    names are baselines, in grey."""

    kind: str
    title: str
    blocks: Sequence[Block]
    origin: str = ""
    learners: Sequence[str] = ()
    grey: Collection[str] = ()
    first: Sequence[str] = ()

    def render(self) -> str:
        """The HTML. Everything is escaped: names from a file may hold anything."""
        folder = resources.files("streamgauge.pages")
        content = self._content()
        return (
            _environment()
            .get_template("page.html")
            .render(
                content,
                version=VERSION,
                for_script=_for_script,
                themes=THEMES,
                style=Markup((folder / "style.css").read_text(encoding="utf-8")),
                plotly=Markup(_plotly()) if content["figures"] else "",
                script=Markup(
                    "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
                ),
            )
        )

    def fragment(self) -> dict[str, Any]:
        """The bar and the blocks as HTML, the figures and the names, for a page that replaces its
        content (`streamgauge view`)."""
        content = self._content()
        html = _environment().get_template("page.html").render(content, fragment=True)
        return {"html": html, "figures": content["figures"], "names": content["names"]}

    def _content(self) -> dict[str, Any]:
        shown = list(_figures(self.blocks))
        numbers = {id(figure): number for number, figure in enumerate(shown)}
        keys = list(map(escape, [*self.learners, *self.first]))
        for figure in shown:
            series = (figure.moving or {}).get("series", ())
            keys += [run["key"] for run in series if not run["level"]]
            metas = [trace["meta"] for trace in figure.data]
            keys += [meta["key"] for meta in metas if meta["role"] not in UNCOLOURED]
        grey = set(map(escape, self.grey))
        return {
            "page": self,
            "number": lambda figure: numbers[id(figure)],
            "figures": visible_on_page(
                [
                    {"title": f.title, "data": f.data, "layout": f.layout, "moving": f.moving}
                    for f in shown
                ]
            ),
            "names": visible_on_page(
                {
                    "learners": list(map(escape, self.learners)),
                    "coloured": [key for key in dict.fromkeys(keys) if key not in grey],
                    "grey": [key for key in dict.fromkeys(keys) if key in grey],
                }
            ),
            "moving": any(figure.moving for figure in shown),
            "differences": any((figure.moving or {}).get("difference") for figure in shown),
            "escape": escape,
        }

    def write(self, path: str | Path) -> Path:
        return write_result(html_path(path), self.render())


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("streamgauge", "pages"),
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: Any) -> Any:
    """What a template prints: texts of others without marks that act on the page."""
    return value if isinstance(value, (Markup, int, float)) else visible_on_page(str(value))


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Section):
            yield from _figures(block.blocks)


@cache
def _plotly() -> str:
    """The plotting library, compressed, which browsers undo, in the 85 signs of RFC 1924, which
    draw.js undoes: a sixteenth shorter than base 64. A comma stands for <, which may end a
    script."""
    from plotly.offline import get_plotlyjs

    packed = gzip.compress(_eager(get_plotlyjs()).encode(), 9, mtime=0)
    return base64.b85encode(packed).decode().replace("<", ",")


def _eager(script: str) -> str:
    """The library with its outer function in brackets. Browsers parse a function that is called at
    once twice unless it is in brackets; this one is 5 MB."""
    opened, replaced = re.subn(
        r"(: this, )(\(\) => |function ?\(\) ?)\{", r"\1(\2{", script, count=1
    )
    end = "}));"
    if not replaced or not opened.rstrip().endswith(end):
        return script
    return opened.rstrip().removesuffix(end) + "})));"


def _for_script(value: Any) -> Markup:
    """JSON for a script element, in which nothing may look like its end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
