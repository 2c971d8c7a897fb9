"""The command `audit`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.audit.auditor import Audit, audit
from streamgauge.audit.gate import holds
from streamgauge.errors import StreamgaugeError, nearest, with_keywords


@with_keywords
def audit_log(
    log: Any, predictions: Any = None, *, placebo: str | Path | None = None, **options: Any
) -> Audit:
    """Audit a log from Python, as `streamgauge audit` does: the result has `values` and `words`.

    `log` is a run, a file, a run folder, columns by name, or a data frame (pandas, polars, Arrow);
    or an array of labels, with `predictions` an array, too. `options` are those of
    `streamgauge audit --help` as keywords: `label="truth"`, `time="when"`, `step=32`,
    `label_delay="3d"`, ... (:func:`streamgauge.audit.audit` has all). `placebo` is the folder of
    the same run with permuted inputs (`streamgauge.running.runner.placebo`).
    """
    if predictions is not None:
        if np.ndim(log) != 1:
            raise StreamgaugeError(
                "predictions are given together with an array of labels; of another log, name the"
                " column: prediction='NAME'"
            )
        log = {"label": log, "prediction": predictions}
    known = [*inspect.signature(audit).parameters, "margin"]  # the old name of tolerance
    for name in options:
        if name not in known:
            raise StreamgaugeError(f"audit_log has no option '{name}'; {nearest(name, known)}")
    return _audited(log, placebo, options)


def _audited(log: Any, placebo: str | Path | None, options: Mapping[str, Any]) -> Audit:
    if hasattr(log, "header") and hasattr(log, "path"):  # a run
        log = log.path
    result = audit(log, **options)
    if placebo is None:
        return result
    permuted = audit(placebo, **options)
    note = f"The run with permuted inputs is {placebo}."
    return replace(result, permuted=permuted.bits, notes=[*result.notes, note])


def run_audit(
    path: Any,
    *,
    fail_if: Sequence[str] | str = (),
    report: str | Path | None = None,
    as_json: bool = False,
    console: Any = None,
    **options: Any,
) -> int:
    """Audit a log and print the results; returns 1 if a condition of ``fail_if`` is true, else 0.

    Every condition is evaluated before anything is written: an invalid condition, like any invalid
    input, raises ``StreamgaugeError`` and no report is written. ``report`` is the path of the HTML
    page; ``as_json`` prints JSON instead of sentences. ``options`` are those of :func:`audit_log`.
    """
    if report is not None:
        from streamgauge.pages.page import html_path

        html_path(report)  # before the work
    conditions = [fail_if] if isinstance(fail_if, str) else list(fail_if)
    result = _audited(path, options.pop("placebo", None), options)
    gates = [(condition, holds(condition, result.values)) for condition in conditions]
    page = None
    if report is not None:
        from streamgauge.audit.page import audit_page

        page = audit_page(result, gates).write(report)
    if as_json:
        content = result.to_dict()
        content["gates"] = [{"fail_if": c, "fails": failed} for c, failed in gates]
        content["report"] = None if page is None else str(page)
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _print(result, gates, page, console)
    return 1 if any(failed for _, failed in gates) else 0


def _print(
    result: Audit, gates: Sequence[tuple[str, bool]], page: Path | None, console: Any
) -> None:
    from rich.text import Text

    from streamgauge.audit.terminal import render
    from streamgauge.pages.console import SafeConsole

    screen = console or SafeConsole()
    screen.print(render(result))
    for condition, failed in gates:
        outcome = "holds: the gate fails" if failed else "does not hold"
        screen.print(
            Text(f"Condition '{condition}' {outcome}.", style="bold red" if failed else "")
        )
    if page is not None:
        screen.print(Text(f"Report: {page}"))
