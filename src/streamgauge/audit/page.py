"""The page of an audit: its sentences, levels and figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamgauge.audit.auditor import Audit
from streamgauge.audit.terminal import LEVEL_HEAD, blind_rows, columns_line, level_rows
from streamgauge.pages import Block, Figure, Page, PageTable, Text
from streamgauge.pages.figures import band, figure, line, vertical


def audit_page(audit: Audit, gates: Sequence[tuple[str, bool]] = ()) -> Page:
    """The page, ready to be written; `gates` are conditions and whether each holds."""
    blocks: list[Block] = [Text(columns_line(audit))]
    for condition, failed in gates:
        result = "it holds, so the gate fails" if failed else "it does not hold"
        sentence = f"Condition “{condition}”: {result}."
        blocks.append(Text(sentence, "failure") if failed else sentence)
    blocks += audit.words
    blocks += [Text(f"Note: {note}") for note in audit.notes]
    blocks.append(PageTable(LEVEL_HEAD, level_rows(audit), "Levels"))
    blocks.append(_by_shift(audit))
    if len(audit.over_time.get("position", [])) > 1:
        blocks.append(_over_time(audit))
    head, *rows = blind_rows(audit)
    blocks.append(PageTable(head, rows, "Blind accuracy in %, by window and shift"))
    return Page("Streamgauge audit", f"Audit of {audit.name}", blocks)


def _by_shift(audit: Audit) -> Figure:
    choice = audit.choice
    seconds = choice.unit == "seconds"
    # A logarithmic axis has no 0: the next sample is drawn at 0.5, left of shift 1.
    x = [float(s) if s > 0 else 0.5 for s in choice.shifts]
    unlimited = np.asarray(choice.constant, np.float64)
    traces = [
        band(x, unlimited, unlimited + choice.tolerance, "tolerance", None,
             legend=True),
        line("all labels so far", x, unlimited, 1, dash="dash"),
        line("best blind classifier", x, choice.accuracy, 0, width=3),
    ]  # fmt: skip
    if audit.futures and not seconds:
        shifts = [float(f.shift) if f.shift > 0 else 0.5 for f in audit.futures]
        values = [f.accuracy.value for f in audit.futures]
        if audit.online.samples and shifts[0] > 0.5:
            shifts, values = [0.5, *shifts], [audit.online_scored, *values]
        traces.append(line("the model", shifts, values, 2, markers=True))
    unit = "seconds" if seconds else "samples; 0.5 stands for 0, the next sample"
    return figure(
        "Accuracy by shift",
        "Recent labels help as long as the thick line is above the grey band over the dashed one.",
        traces,
        f"shift ({unit})",
        x_axis={"type": "log"},
        shapes=[vertical(choice.shift)] if choice.shift else [],
    )


def _over_time(audit: Audit) -> Figure:
    curves = audit.over_time
    names = {"blind": "best blind classifier", "majority": "all labels so far",
             "online": "the model"}  # fmt: skip
    return figure(
        "Accuracy over the stream",
        "Each point is one hundredth of the scored part, for the next sample.",
        [
            line(name, curves["position"], curves[key], colour)
            for colour, (key, name) in enumerate(names.items())
            if key in curves
        ],
        "samples",
    )
