"""One HTML template, one palette and one set of plot functions for every page.

The names are imported at their first use: every command needs `pages.screen`, few draw a page.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgauge.pages.figures import Figure as Figure
    from streamgauge.pages.notebook import notebook_table as notebook_table
    from streamgauge.pages.notebook import notebook_text as notebook_text
    from streamgauge.pages.page import Block as Block
    from streamgauge.pages.page import Cell as Cell
    from streamgauge.pages.page import Page as Page
    from streamgauge.pages.page import PageTable as PageTable
    from streamgauge.pages.page import Section as Section
    from streamgauge.pages.page import Text as Text
    from streamgauge.pages.page import shaded_table as shaded_table

_MODULES = {
    "figures": ("Figure",),
    "notebook": ("notebook_table", "notebook_text"),
    "page": ("Block", "Cell", "Page", "PageTable", "Section", "Text", "shaded_table"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
