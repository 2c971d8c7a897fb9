"""Progress of a run in Python: one line that is updated, in terminals and notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from streamgauge.running.loop import Loop

EVERY = 0.5  # seconds between updates of the line
LINES = 10  # lines per run where lines cannot be updated, as in a log file


def progress_line(
    name: str, show: bool | None = None, out: TextIO | None = None
) -> Callable[[Loop], None] | None:
    """A callback for every step that updates a line on standard error. `show` None: only in a
    terminal or a notebook; True: also in a file, as a few lines; False: never."""
    out = sys.stderr if out is None else out
    updates = out.isatty() or in_notebook()
    if show is False or (show is None and not updates):
        return None
    began = shown = time.monotonic()
    first = width = 0
    tenth = -1

    def progress(loop: Loop) -> None:
        nonlocal shown, first, width, tenth
        now, step, steps = time.monotonic(), loop.step, len(loop.stream)
        first = first or step
        last = step == steps
        if not last and (now - shown < EVERY if updates else step * LINES // steps == tenth):
            return
        shown, tenth = now, step * LINES // steps
        online = f", online {100 * loop.right / loop.asked:.1f} %" if loop.asked else ""
        if last:
            text = f"{name}: {step:,} steps in {now - began:.1f} s{online}"
        else:
            left = (now - began) / (step - first + 1) * (steps - step)
            text = f"{name}: step {step:,} of {steps:,}{online}, {left:.0f} s left"
        width = max(width, len(text))
        start, end = ("\r", "\n" * last) if updates else ("", "\n")
        from streamgauge.pages.screen import raw_stream, visible

        line = start + visible(text).ljust(width if updates else 0)
        print(line, end=end, file=raw_stream(out), flush=True)

    progress.sparse = True  # type: ignore[attr-defined]
    return progress


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
