"""The log of a live run: rows are buffered in memory and written by a background thread.

There are two sets of buffers: one is filled while the other is written, so that a slow disk delays
no answer. Filling waits only when both are full.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from streamgauge.record import TABLES, RunWriter
from streamgauge.record.tables import RowBuffer, columns_of

MAX_ROWS = 1 << 16  # of one table in one set of buffers


class Journal:
    """Rows for a recorder; without a recorder they are discarded instead of written."""

    def __init__(self, recorder: RunWriter | None, absent: frozenset[str], every: float) -> None:
        self._recorder, self._absent, self._every = recorder, absent, every
        self._writer = ThreadPoolExecutor(1, "streamgauge-log")
        self._writing: Future[int] | None = None
        self._seconds: dict[str, float] = {}
        self._last = time.monotonic()
        self.rows = self._fresh()
        self._committed = 0

    def _fresh(self) -> dict[str, RowBuffer]:
        return {name: RowBuffer(columns_of(name, self._absent)) for name in TABLES}

    @property
    def full(self) -> bool:
        """Whether a commit cannot be delayed any more, even if it has to wait for the last one."""
        return any(rows.count >= MAX_ROWS for rows in self.rows.values())

    @property
    def due(self) -> bool:
        """Whether it is time to commit."""
        if self.full:
            return True
        return not self.busy and time.monotonic() - self._last >= self._every

    @property
    def busy(self) -> bool:
        """Whether a commit is being written; raises the error of one that failed."""
        if self._writing is None:
            return False
        if not self._writing.done():
            return True
        self.wait_until_written()
        return False

    @property
    def committed(self) -> int:
        """The mark of the last commit that is on disk."""
        _ = self.busy  # takes note of a commit that has just ended
        return self._committed

    @committed.setter
    def committed(self, mark: int) -> None:
        self._committed = mark

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.add_seconds(part, time.perf_counter() - start)

    def add_seconds(self, part: str, seconds: float) -> None:
        self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def commit(
        self,
        step: int,
        state: dict[str, Any],
        done: bool = False,
        mark: int = 0,
        wait: bool = False,
    ) -> None:
        """Write the buffered rows. `state` must not be changed afterwards; `mark` is what
        `committed` becomes once all rows are on disk."""
        self.wait_until_written()
        for part, seconds in self._seconds.items():
            self.rows["timing"].append(1, step=step, part=part, seconds=seconds)
        self._seconds.clear()
        rows, self.rows = self.rows, self._fresh()
        self._last = time.monotonic()
        self._writing = self._writer.submit(self._write, rows, step, state, done, mark)
        if wait:
            self.wait_until_written()

    def wait_until_written(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            self._committed, self._writing = self._writing.result(), None

    def _write(
        self, rows: dict[str, RowBuffer], step: int, state: dict[str, Any], done: bool, mark: int
    ) -> int:
        if self._recorder is not None:
            self._recorder.rows = rows
            self._recorder.checkpoint(step, state, done)
        return mark

    def close(self) -> None:
        self._writer.shutdown(wait=True)
