"""The audit as the command line calls it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamgauge.audit.auditor import Audit, audit
from streamgauge.audit.gate import holds


def audit_log(log: Any, **options: Any) -> Audit:
    """Audit a log from Python, as `streamgauge audit` does: the result has `values` and `words`.

    `log` is a file, a run folder, columns by name, or a data frame; `options` are those of
    :func:`audit`.
    """
    if isinstance(log, str | Path) and (own := Path(log) / "log" / "predictions").is_dir():
        log = own
    return audit(log, **options)


def run_audit(
    path: Any,
    *,
    fail_if: Sequence[str] | str = (),
    report: str | Path | None = None,
    as_json: bool = False,
    console: Any = None,
    **options: Any,
) -> int:
    """Audit a log and print what was found; 0 is fine, 1 means that a condition holds.

    Every condition of ``fail_if`` is read and judged before anything is written, so a condition
    that cannot be read or judged, like any bad input, raises ``StreamgaugeError`` and leaves no
    report behind. ``report`` is where the HTML page goes; ``as_json`` prints JSON instead of
    words. ``options`` are those of :func:`audit`.
    """
    conditions = [fail_if] if isinstance(fail_if, str) else list(fail_if)
    found = audit_log(path, **options)
    gates = [(condition, holds(condition, found.values)) for condition in conditions]
    written = None
    if report is not None:
        from streamgauge.audit.page import audit_page

        written = audit_page(found, gates).write(report)
    if as_json:
        answer = found.to_dict()
        answer["gates"] = [{"fail_if": c, "fails": failed} for c, failed in gates]
        answer["report"] = None if written is None else str(written)
        print(json.dumps(answer, indent=2, allow_nan=False))
    else:
        _print(found, gates, written, console)
    return 1 if any(failed for _, failed in gates) else 0


def _print(
    found: Audit, gates: Sequence[tuple[str, bool]], written: Path | None, console: Any
) -> None:
    from rich.console import Console
    from rich.text import Text

    from streamgauge.audit.terminal import render

    screen = console or Console()
    screen.print(render(found))
    for condition, failed in gates:
        said = "holds: the gate fails" if failed else "does not hold"
        screen.print(Text(f"Condition '{condition}' {said}.", style="bold red" if failed else ""))
    if written is not None:
        screen.print(Text(f"Report: {written}"))
