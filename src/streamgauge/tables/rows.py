"""Which rows of a table are usable, and what messages call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

Flags = NDArray[np.bool_]
FILL = ", or fill to fill in missing inputs and leave out rows without a label"


def row_number(row: int) -> str:
    """What messages call a row (counted from 0) of a table without lines."""
    return f"Row {row + 1:,} (the first is 1)"


def _is_filled(kind: str) -> bool:
    """Whether `on_bad` fill takes a table with such rows."""
    return kind == "missing label" or kind.startswith(("text in ", "without "))


class Rows:
    """The usable rows of a table. A bad row is an error, or with `on_bad` skip left out and
    counted; with `on_bad` fill only rows without a label are left out. Any other `on_bad` (fatal,
    refuse) is an error that names the option to skip, "" an error that names none."""

    def __init__(
        self,
        count: int,
        table: str,
        row_name: Callable[[int], str] = row_number,
        on_bad: str = "",
    ) -> None:
        self.table, self.row_name, self.on_bad = table, row_name, on_bad
        self.good: Flags = np.ones(count, bool)
        self.left_out: dict[str, int] = {}

    def refuse(self, bad: Flags, kind: str, why: str | Callable[[int], str]) -> None:
        """`kind` is counted. `why` completes a sentence that begins with the row, such as "has no
        label."; or it gives the whole sentence for the first bad row."""
        bad = bad & self.good
        count = int(bad.sum())
        if count == 0:
            return
        if self.on_bad != "skip" and (self.on_bad != "fill" or kind != "missing label"):
            row = int(bad.argmax())
            sentence = self.at(row, why) if isinstance(why, str) else why(row)
            sentence += f" {count:,} rows in all are like this one." if count > 1 else ""
            if self.on_bad:
                sentence += " Repair it, or set --stream.on_bad skip to leave out bad rows"
                sentence += f"{FILL}." if self.on_bad == "refuse" and _is_filled(kind) else "."
            raise StreamgaugeError(sentence)
        self.left_out[kind] = self.left_out.get(kind, 0) + count
        self.good &= ~bad

    def at(self, row: int, what: str) -> str:
        """A sentence about a row."""
        return f"{self.row_name(row)} of {self.table} {what}"

    def kept(self) -> NDArray[np.int64]:
        """The numbers of the usable rows; an error where there is none."""
        if not self.good.any():
            raise StreamgaugeError(
                f"Nothing in {self.table} can be used: {counted(self.left_out) or 'it is empty'}."
            )
        return np.flatnonzero(self.good)


def counted(left_out: Mapping[str, int]) -> str:
    """
    >>> counted({"missing label": 2, "damaged": 1})
    '2 missing label, 1 damaged'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in left_out.items())
