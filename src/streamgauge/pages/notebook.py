"""Tables as notebooks show them (`_repr_html_`): plain HTML without a script or a style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def notebook_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    notes: Iterable[str] = (),
) -> str:
    """A title, a table and notes below it. Everything is escaped: names may hold anything.

    >>> notebook_table("a < b", ["x"], [["<script>"]])
    '<p><b>a &lt; b</b></p>...<td style="text-align:left">&lt;script&gt;</td>...'
    """
    header = "".join(_cell("th", at, text) for at, text in enumerate(head))
    body = "".join(
        "<tr>" + "".join(_cell("td", at, value) for at, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
    return notebook_text(title) + table + notebook_text("", notes)


def notebook_text(title: str, sentences: Iterable[str] = ()) -> str:
    """A title in bold, and a paragraph per sentence."""
    heading = f"<p><b>{escape(title)}</b></p>" if title else ""
    return heading + "".join(f"<p>{escape(text)}</p>" for text in sentences if text)


def _cell(tag: str, column: int, value: object) -> str:
    """The first column names the rows; the others are numbers, to the right."""
    side = "left" if column == 0 else "right"
    return f'<{tag} style="text-align:{side}">{escape(str(value))}</{tag}>'
