"""Right answers of one run along its stream, added up one committed segment at a time.

A segment is written once, so it is read once: its bytes are checked, its rows are counted in a few
thousand bins of steps, and they are dropped. What stays of a log of any length is a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import Damaged
from streamgauge.files import checksum, read_bytes
from streamgauge.pages.figures import BINS, Counted
from streamgauge.tables.commit import REMEDY, segment_name

MOST = 2048  # bins; a run of so many steps, or fewer, has one per step
ROWS = 1 << 20  # of a segment in memory at a time
COLUMNS = ["step", "label", "prediction", "shift"]
Ints = NDArray[np.int64]


class StepCounts(NamedTuple):
    """Right answers and answers, by bins of steps."""

    right: Ints
    asked: Ints


class _ShiftCounts(NamedTuple):
    width: int
    counts: Mapping[int, NDArray[np.int32]]  # by shift: right and all, by bin


def _added(before: NDArray[np.int32] | None, bins: Ints, hit: Any) -> NDArray[np.int32]:
    size = max(int(bins.max()) + 1, 0 if before is None else before.shape[1])
    both = np.stack([np.bincount(bins[hit], minlength=size), np.bincount(bins, minlength=size)])
    if before is not None:
        both[:, : before.shape[1]] += before
    return both.astype(np.int32)


def _halved(counts: NDArray[np.int32]) -> NDArray[np.int32]:
    """Bins of twice as many steps, where a stream turns out longer."""
    even = np.pad(counts, ((0, 0), (0, counts.shape[1] % 2)))
    return np.asarray(even[:, ::2] + even[:, 1::2])


class RunTally:
    """The counts of a run. `steps` is the length of its stream, 0 where that is unknown; answers
    count for the largest of `shifts` that theirs reaches (in a live run it is an age) where
    `ages` is set."""

    def __init__(self, steps: int, shifts: Sequence[int] = (), ages: bool = False) -> None:
        self._steps = steps
        self.segments = 0  # that are counted
        self.rows = 0
        self._limits = np.array(sorted({0, *shifts}), np.int64) if ages else None
        # Replaced as a whole, so that another thread can read at any time.
        self._state = _ShiftCounts(max(1, -(-steps // MOST)), {})

    @property
    def shifts(self) -> list[int]:
        return sorted(self._state.counts)

    @property
    def width(self) -> int:
        """Steps of a bin."""
        return self._state.width

    def read(self, folder: Path, progress: Mapping[str, Any], segments: int) -> bool:
        """Count the next committed segment; whether there was one."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.segments >= segments:
            return False
        name = segment_name("predictions", self.segments)
        data = _checked(folder / name, progress.get("files", {}).get(name))
        try:
            opened = pq.ParquetFile(pa.BufferReader(data))
            for batch in opened.iter_batches(batch_size=ROWS, columns=COLUMNS):
                self.add(*(batch.column(c).to_numpy(zero_copy_only=False) for c in COLUMNS))
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:
            raise Damaged(f"The log segment {folder / name} is damaged ({error}).") from None
        self.segments += 1
        return True

    def add(self, step: Any, label: Any, prediction: Any, shift: Any) -> None:
        """Count rows of the table of predictions."""
        if not len(step):
            return
        if int(step.min()) < 0:
            raise ValueError("a step is below 0")
        width, counts = self._state.width, dict(self._state.counts)
        while int(step.max()) >= width * MOST:
            width, counts = 2 * width, {s: _halved(of) for s, of in counts.items()}
        bins = step.astype(np.int64) // width
        hit = label == prediction
        if self._limits is not None:
            shift = self._limits[np.searchsorted(self._limits, shift, side="right") - 1]
        values = [int(shift[0])] if (shift == shift[0]).all() else np.unique(shift).tolist()
        for value in values:
            rows = slice(None) if len(values) == 1 else shift == value
            counts[value] = _added(counts.get(value), bins[rows], hit[rows])
        self._state = _ShiftCounts(width, counts)
        self.rows += len(step)

    def steps(self, shift: int) -> StepCounts:
        """By bins of steps; empty where nothing was asked at this shift."""
        counts = self._state.counts.get(shift, np.zeros((2, 0), np.int32)).astype(np.int64)
        return StepCounts(counts[0], counts[1])

    def accuracy(self, shift: int) -> float:
        """
        >>> tally = RunTally(10)
        >>> tally.add(*map(np.array, ([0, 1], [7, 7], [7, 8], [0, 0])))
        >>> tally.accuracy(0)
        0.5
        """
        right, count = (int(each.sum()) for each in self.steps(shift))
        return right / count if count else float("nan")

    def asked(self, shift: int = 0) -> int:
        return int(self.steps(shift).asked.sum())

    def counted(self, name: str, pair: str, bins: int = BINS) -> Counted | None:
        """Right answers along the stream in at most so many bins, of which a run that goes on has
        the first; None before the first answer."""
        right, count = self.steps(0)
        total = max(len(right), -(-self._steps // self.width))
        size = max(1, -(-total // bins))
        begin = np.arange(0, len(right), size)
        hits, tries = (np.add.reduceat(each, begin) for each in (right, count)) if len(right) else (
            right, count)  # fmt: skip
        known = tries > 0
        end = np.cumsum(tries)[known].tolist()
        if not end:
            return None
        whole = -(-total // size)
        return Counted(name, pair, end, hits[known].tolist(), tries[known].tolist(), whole=whole)


def _checked(file: Path, expected: Sequence[Any] | None) -> bytes:
    """The bytes of a committed segment, as they were written; older versions stored no checksum."""
    try:
        data = read_bytes(file)
    except OSError as error:
        raise Damaged(f"{file} cannot be read: {error.strerror or error}.") from None
    if expected is not None and [len(data), checksum(data)] != list(expected):
        raise Damaged(f"{file} is damaged (it is not as it was written); {REMEDY}.")
    return data
