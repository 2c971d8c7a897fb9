"""A rich console for tables and progress bars. Apart from `screen`, which every command imports, as
rich takes time to load."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from streamgauge.pages.screen import raw_stream, visible


class SafeConsole(Console):
    """A rich console in which texts cannot act; its own colours and movements stay."""

    def __init__(self, **options: Any) -> None:
        if "file" not in options:
            options["file"] = raw_stream(sys.stderr if options.get("stderr") else sys.stdout)
        super().__init__(**options)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            part if part.control else Segment(visible(part.text), part.style) for part in buffer
        )
