"""The map of a report whose classes are S2 cells, with the accuracy of each learner per cell."""

from __future__ import annotations

from html import escape

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Figure
from streamgauge.places.map import cell_map, cell_text, cells_named
from streamgauge.report.leaderboard import Board


def class_map(board: Board) -> Figure | str | None:
    """The map; None if classes are no cells; a sentence if the cells cannot be drawn."""
    cells = cells_named(board.stream.get("class_names"))
    if cells is None:
        return None
    texts = [[f"class {number}"] for number in range(len(cells))]
    rows = [row for row in board.rows if row.runs]
    for row in rows:
        table = row.runs[0].predictions
        online = np.flatnonzero(table["shift"] == 0)
        label = table["label"][online]
        correct = table["prediction"][online] == label
        count = np.bincount(label, minlength=len(cells))
        hits = np.bincount(label, correct, len(cells))
        for number, text in enumerate(texts):
            if row is rows[0]:
                text.append(f"{count[number]:,} samples")
            if count[number]:
                text.append(f"{escape(row.learner)}: {hits[number] / count[number]:.1%} right")
    try:
        return cell_map(
            "Where the classes are",
            "Each outline is an S2 cell, one class. Point at its centre for the accuracy of the "
            "first seed of each learner in it.",
            cells,
            [cell_text(cell, *text) for cell, text in zip(cells, texts, strict=True)],
        )
    except StreamgaugeError as error:
        return f"The classes are S2 cells, but there is no map. {error}"
