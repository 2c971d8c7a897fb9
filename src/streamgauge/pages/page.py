"""A page: sentences, tables and figures in one HTML file that opens without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from streamgauge.files import write_result
from streamgauge.pages.figures import Figure
from streamgauge.pages.screen import visible_on_page
from streamgauge.versions import VERSION

# `colours` are those of curves, bars and maps, by number; the others are CSS variables.
THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "paper": "#ffffff", "ink": "#1d2328", "soft": "#5b6670", "line": "#dfe3e7",
        "tint": "#f4f6f8", "accent": "#0b6aa8", "warn": "#8a4b00", "fail": "#b3303c",
        "colours": ["#0b6aa8", "#c8510a", "#0a8460", "#a8488a",
                    "#9a7400", "#5b5bd6", "#b3303c", "#4f6f1c"],
    },
    "dark": {
        "paper": "#14181c", "ink": "#e4e8eb", "soft": "#9aa6b0", "line": "#2e363d",
        "tint": "#1c2227", "accent": "#6bbcf2", "warn": "#f0b267", "fail": "#ff8a92",
        "colours": ["#5cb5ee", "#ff9557", "#3fcb9c", "#e796c9",
                    "#e3bf4f", "#a5a5ff", "#ff8a92", "#b2d27a"],
    },
}  # fmt: skip
COLOURS = len(THEMES["light"]["colours"])  # higher numbers are the same colours again, dotted


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

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class PageTable:
    """A table. The first column names the rows; the others are numbers but for `text_columns`. A
    table with a title is folded where it is long."""

    block = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    kind: Literal["board", "matrix", "facts"] = "board"
    text_columns: Sequence[int] = ()

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


Block = str | Text | PageTable | Figure | Section


def shaded_table(
    title: str, head: Sequence[str], names: Sequence[str], values: Sequence[Sequence[float]]
) -> PageTable:
    """Accuracies in percent, the cells shaded by their values; NaN is an empty cell."""
    rows = [
        [name, *(Cell(f"{100 * v:.1f}", share=v) if v == v else "" for v in row)]
        for name, row in zip(names, values, strict=True)
    ]
    return PageTable(head, rows, title, "matrix")


@dataclass(frozen=True)
class Page:
    """A page of Streamgauge; `kind` is the line above its title, `origin` what it was made from."""

    kind: str
    title: str
    blocks: Sequence[Block]
    origin: str = ""

    def render(self) -> str:
        """The HTML. Everything is escaped: names from a file may hold anything."""
        from plotly.offline import get_plotlyjs

        environment = Environment(
            loader=PackageLoader("streamgauge", "pages"),
            autoescape=True,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        folder = resources.files("streamgauge.pages")
        figures: list[dict[str, Any]] = []

        def number(figure: Figure) -> int:
            figures.append(visible_on_page({"data": figure.data, "layout": figure.layout}))
            return len(figures) - 1

        return environment.get_template("page.html").render(
            page=self,
            version=VERSION,
            number=number,
            figures=figures,
            for_script=_for_script,
            themes=THEMES,
            style=Markup((folder / "style.css").read_text(encoding="utf-8")),
            plotly=Markup(get_plotlyjs()),
            draw=Markup((folder / "draw.js").read_text(encoding="utf-8")),
        )

    def write(self, path: str | Path) -> Path:
        return write_result(path, self.render())


def _finalize(value: Any) -> Any:
    """What a template prints: texts of others without marks that act on the page."""
    return value if isinstance(value, (Markup, int, float)) else visible_on_page(str(value))


def _for_script(value: Any) -> Markup:
    """JSON for a script element, in which nothing may look like its end."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))
