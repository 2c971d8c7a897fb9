"""Rows for class labels, given out in order of first appearance."""

from __future__ import annotations

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.memory.base import Ints


class Classes:
    """Which row of a table a class has; labels may be any whole numbers of 0 or more.

    >>> classes = Classes()
    >>> classes.rows(np.array([7, 3, 7]))
    array([0, 1, 0])
    >>> classes.labels
    array([7, 3])
    """

    def __init__(self, labels: Ints | None = None) -> None:
        self.labels: Ints = np.empty(0, dtype=np.int64)
        self._row: Ints = np.full(64, -1, dtype=np.int64)  # by label; -1 if not seen
        if labels is not None and len(labels):
            self.rows(np.asarray(labels, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, label: Ints) -> Ints:
        """The row of each label; labels not seen before get the next rows in order."""
        # Seen as unsigned, a negative label is larger than all others: one test finds both.
        highest = int(np.maximum.reduce(label.view(np.uint64), initial=0))
        if highest >= len(self._row):
            if highest >= 2**63:
                raise StreamgaugeError(
                    f"a memory cannot store label {int(label.min())}: labels start at 0."
                )
            longer = np.full(max(highest + 1, 2 * len(self._row)), -1, dtype=np.int64)
            longer[: len(self._row)] = self._row
            self._row = longer
        row = self._row[label]
        if np.minimum.reduce(row, initial=0) < 0:
            missing = label[row < 0]
            first = np.sort(np.unique(missing, return_index=True)[1])
            self._row[missing[first]] = len(self.labels) + np.arange(len(first))
            self.labels = np.concatenate((self.labels, missing[first]))
            row = self._row[label]
        return row
