"""One HTML template, one palette and one set of plot functions for every page."""

from __future__ import annotations

from streamgauge.pages.figures import Figure
from streamgauge.pages.notebook import notebook_table, notebook_text
from streamgauge.pages.page import Block, Cell, Page, PageTable, Section, Text, shaded_table

__all__ = [
    "Block",
    "Cell",
    "Figure",
    "Page",
    "PageTable",
    "Section",
    "Text",
    "notebook_table",
    "notebook_text",
    "shaded_table",
]
