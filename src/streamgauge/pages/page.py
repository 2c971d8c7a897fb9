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

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_text
from streamgauge.pages.figures import Figure
from streamgauge.pages.palette import THEMES
from streamgauge.versions import VERSION


@dataclass(frozen=True)
class Text:
    """A paragraph that is less, or more, important than the sentences of a page."""

    block = "text"
    text: str
    kind: Literal["note", "warning", "failure"] = "note"


@dataclass(frozen=True)
class Cell:
    """A table cell with more than text: a mark with its explanation, or a share from 0 to 1, which
    shades it."""

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
            trim_blocks=True,
            lstrip_blocks=True,
        )
        folder = resources.files("streamgauge.pages")
        figures: list[dict[str, Any]] = []

        def number(figure: Figure) -> int:
            figures.append({"data": figure.data, "layout": figure.layout})
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
        """Write the page to a file, in one step."""
        target, text = Path(path), self.render()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, text)
        except OSError as error:
            raise StreamgaugeError(f"Cannot write {target}: {error.strerror or error}.") from None
        return target


def _for_script(value: Any) -> Markup:
    """JSON for a script element, in which nothing may look like its end."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))
