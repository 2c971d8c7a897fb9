"""The map of a report, where classes are S2 cells: each with how often it was answered right."""

from __future__ import annotations

from html import escape

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.places.map import cell_text, cell_traces, cells_named, map_layout
from streamgauge.report.leaderboard import Board


def cells_on_map(board: Board) -> tuple[list[dict[str, object]], dict[str, object]] | str | None:
    """Traces and layout; None where classes are no cells; a sentence where they cannot be drawn."""
    cells = cells_named(board.stream.get("class_names"))
    if cells is None:
        return None
    texts = [[f"class {number}"] for number in range(len(cells))]
    counted = False
    for row in board.rows:
        if not row.runs:
            continue
        table = row.runs[0].predictions
        live = np.flatnonzero(table["shift"] == 0)
        label, right = table["label"][live], table["prediction"][live] == table["label"][live]
        count = np.bincount(label, minlength=len(cells))
        hits = np.bincount(label, right, len(cells))
        for number, text in enumerate(texts):
            if not counted:
                text.append(f"{count[number]:,} samples")
            if count[number]:
                text.append(f"{escape(row.learner)}: {hits[number] / count[number]:.1%} right")
        counted = True
    try:
        traces = cell_traces(
            cells, [cell_text(cell, *text) for cell, text in zip(cells, texts, strict=True)]
        )
    except StreamgaugeError as error:
        return f"The classes are places, but there is no map. {error}"
    return traces, map_layout(traces)
