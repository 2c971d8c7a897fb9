"""Two passes over a log: scan its contents, then count hits of model and blind classifiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounter
from streamgauge.audit.log import Piece, PredictionLog
from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Logs of up to this many rows are kept in memory, for sorting and all results about users.
IN_MEMORY = 10_000_000
# Of a longer log only this many leading rows are kept, to find periods and bursts.
SAMPLE = 2_000_000


@dataclass
class Scan:
    """Contents of a log, from the first pass."""

    rows: int
    counts: Ints
    """Number of samples of the stream per class."""
    in_memory: Piece
    """All rows of the stream, or its first rows."""
    complete: bool
    """Whether all rows are in memory."""
    shifts: dict[int, int] = field(default_factory=dict)
    """Number of rows per shift in the log."""
    others: Piece | None = None
    """Rows at other shifts than the stream's, if all rows are in memory."""
    unpredicted: int = 0
    largest_step: int = 1

    @property
    def shift(self) -> int:
        """The shift of the stream itself: the smallest in the log."""
        return min(self.shifts, default=0)

    @property
    def length(self) -> int:
        """Samples in the stream."""
        return self.shifts[self.shift] if self.shifts else self.rows


def join(pieces: list[Piece]) -> Piece:
    """Concatenate pieces."""
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[str, Any] = {}
    for f in fields(Piece):
        values = [getattr(p, f.name) for p in pieces]
        joined[f.name] = None if values[0] is None else np.concatenate(values)
    return Piece(**joined)


def take(piece: Piece, rows: NDArray[Any] | slice) -> Piece:
    """Select rows of a piece."""
    columns: dict[str, Any] = {f.name: getattr(piece, f.name) for f in fields(Piece)}
    selected: dict[str, Any] = {n: None if v is None else v[rows] for n, v in columns.items()}
    return Piece(**selected)


def scan(log: PredictionLog, *, sort: bool = False, hold: int = IN_MEMORY) -> Scan:
    """Read the whole log once, check it, and keep up to ``hold`` rows in memory."""
    pieces: list[Piece] = []
    rows = kept = unpredicted = 0
    by_shift: dict[int, Any] = {}
    last_time: dict[int, int] = {}
    last_step: dict[int, int] = {}
    for piece in log.pieces():
        start = rows
        rows += piece.label.size
        shifts = np.zeros(1, np.int64) if piece.shift is None else np.unique(piece.shift)
        for shift in shifts.tolist():
            part = piece if piece.shift is None else take(piece, piece.shift == shift)
            counts, total = by_shift.get(shift, (np.zeros(0, np.int64), 0))
            new_counts = np.bincount(part.label, minlength=counts.size)
            new_counts[: counts.size] += counts
            by_shift[shift] = (new_counts, total + part.label.size)
            if part.time is not None and not sort:
                last_time[shift] = check_sorted(log, part.time, last_time.get(shift), start)
            if part.step is not None and not sort:
                check_steps(log, part.step, last_step.get(shift))
                last_step[shift] = int(part.step[-1])
        if piece.prediction is not None:
            unpredicted += int(np.sum(piece.prediction < 0))
        if rows <= hold:
            pieces.append(piece)
        elif kept < SAMPLE:
            if sort:
                raise StreamgaugeError(
                    f"{log.name} has more than {hold:,} rows, too many to sort here: sort it first"
                )
            pieces = [join([*pieces, piece])]
            pieces = [take(pieces[0], slice(0, SAMPLE))]
            kept = pieces[0].label.size
    in_memory = join(pieces)
    complete = rows <= hold
    if sort and in_memory.time is not None:
        in_memory = take(in_memory, np.argsort(in_memory.time, kind="stable"))
    result = finish_scan(log, rows, by_shift, in_memory, complete, unpredicted)
    if sort and result.in_memory.step is not None:
        check_steps(log, result.in_memory.step, None)
    return result


def finish_scan(
    log: PredictionLog,
    rows: int,
    by_shift: dict[int, Any],
    in_memory: Piece,
    complete: bool,
    unpredicted: int,
) -> Scan:
    """Build the scan from rows and class counts per shift, and the rows in memory."""
    rows_per_shift = (
        {s: total for s, (_, total) in by_shift.items()} if in_memory.shift is not None else {}
    )
    first = min(by_shift)
    counts = by_shift[first][0]
    if np.count_nonzero(counts) < 2:
        raise StreamgaugeError(
            f"all {by_shift[first][1]:,} labels in column '{log.roles['label']}' are the same "
            "class: there is nothing to predict, so check the label column"
        )
    others = None
    if in_memory.shift is not None:
        at_first_shift = in_memory.shift == first
        others = take(in_memory, ~at_first_shift) if complete and not at_first_shift.all() else None
        in_memory = take(in_memory, at_first_shift)
    largest_step = 1
    if in_memory.step is not None:
        largest_step = int(run_lengths(in_memory.step).max())
    return Scan(
        rows, counts, in_memory, complete, rows_per_shift, others, unpredicted, largest_step
    )


def run_lengths(steps: Ints) -> Ints:
    """The number of samples of each step, in order."""
    edges = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    return np.diff(np.concatenate([[0], edges, [steps.size]]))


def check_sorted(log: PredictionLog, times: Ints, previous: int | None, row: int) -> int:
    """The last time; an error if times decrease."""
    all_times = times if previous is None else np.concatenate([[previous], times])
    decreases = np.flatnonzero(all_times[1:] < all_times[:-1])
    if decreases.size:
        row_name = log.row_name(row + int(decreases[0]) + (previous is None))
        name = log.roles["time"]
        raise StreamgaugeError(
            f"times in column '{name}' go back at {row_name}: pass --sort to sort by time, or "
            "--time none to keep the order of the file"
        )
    return int(times[-1])


def check_steps(log: PredictionLog, steps: Ints, previous: int | None) -> None:
    """An error if step numbers decrease."""
    if np.any(steps[1:] < steps[:-1]) or (previous is not None and steps[0] < previous):
        raise StreamgaugeError(
            f"step numbers in column '{log.roles['step']}' decrease: sort the log by step, or give "
            "the step size with --step"
        )


class BlockSums:
    """Hits and tries per block of the stream; blocks are merged in pairs if there are too many."""

    def __init__(self, block: int, blocks: int = 4096) -> None:
        self.block, self.blocks = block, blocks
        self.hits, self.tries = np.zeros(0), np.zeros(0)

    def add(self, position: Ints, hit: NDArray[np.bool_]) -> None:
        """Add answers at these positions of the stream, correct or not."""
        if position.size == 0:
            return
        while int(position.max()) >= self.block * self.blocks:
            self.merge()
        index = position // self.block
        size = max(self.hits.size, int(index.max()) + 1)
        self._grow(size)
        self.hits += np.bincount(index[hit], minlength=size)
        self.tries += np.bincount(index, minlength=size)

    def include(self, other: BlockSums) -> None:
        """Add sums over blocks of the same length."""
        self._grow(other.hits.size)
        self.hits[: other.hits.size] += other.hits
        self.tries[: other.tries.size] += other.tries

    def merge(self) -> None:
        """Merge blocks in pairs."""
        self._grow(self.hits.size + self.hits.size % 2)
        self.hits = self.hits[0::2] + self.hits[1::2]
        self.tries = self.tries[0::2] + self.tries[1::2]
        self.block *= 2

    def at(self, block: int, blocks: int) -> tuple[Floats, Floats]:
        """Hits and tries in blocks of the given length, this length times a power of two."""
        while self.block < block:
            self.merge()
        self._grow(blocks)
        if self.hits.size > blocks:  # positions after the end count in the last block
            self.hits[blocks - 1] = self.hits[blocks - 1 :].sum()
            self.tries[blocks - 1] = self.tries[blocks - 1 :].sum()
        return self.hits[:blocks], self.tries[:blocks]

    def _grow(self, size: int) -> None:
        more = max(0, size - self.hits.size)
        self.hits = np.concatenate([self.hits, np.zeros(more)])
        self.tries = np.concatenate([self.tries, np.zeros(more)])


@dataclass
class Tally:
    """Hits per block: of blind classifiers, of the model, and of the model per shift and age."""

    blind: BlindCounter
    model: BlockSums
    at_shift: dict[int, BlockSums]
    at_age: dict[int, BlockSums]


def read_again(log: PredictionLog, scanned: Scan) -> Iterator[tuple[Piece, Piece | None]]:
    """The pieces of the stream, each with the rows at other shifts read with it."""
    if scanned.complete:
        yield scanned.in_memory, scanned.others
        return
    for piece in log.pieces():
        if piece.shift is None:
            yield piece, None
        else:
            at_shift = piece.shift == scanned.shift
            yield take(piece, at_shift), take(piece, ~at_shift)


def age_bin(age: Ints) -> Ints:
    """Round ages down to octaves: 0, 1, 2, 4, 8, ...

    >>> age_bin(np.array([0, 1, 3, 4, 1000]))
    array([  0,   1,   2,   4, 512])
    """
    octave = np.floor(np.log2(np.maximum(age, 1))).astype(np.int64)
    return np.where(age <= 0, 0, np.int64(1) << octave)


def tally(
    log: PredictionLog,
    scanned: Scan,
    *,
    windows: Floats,
    shifts: Ints,
    step: int | None,
    ties: str,
    block: int,
) -> Tally:
    """Count hits over the whole log. With ``step`` None, steps are read from the log."""
    class_order = log.classes.sorted_places() if ties != "recent" else None
    counter = BlindCounter(
        windows, shifts, classes=len(log.classes.numbers), ties=ties, step=step or 1, block=block
    )
    counts = Tally(counter, BlockSums(block), {}, {})
    position = 0
    for piece, others in read_again(log, scanned):
        codes = piece.label if class_order is None else class_order[piece.label]
        counter.feed(codes, piece.step if step is None else None)
        count_answers(counts, piece, position)
        if others is not None and others.prediction is not None and others.label.size:
            count_shifted(counts, others, position)
        position += piece.label.size
    counter.finish()
    return counts


def count_answers(counts: Tally, piece: Piece, start: int) -> None:
    """Add the model's answers on the stream itself, and per age of the model if known."""
    if piece.prediction is None:
        return
    answered = np.flatnonzero(piece.prediction >= 0)
    hit = piece.prediction[answered] == piece.label[answered]
    counts.model.add(start + answered, hit)
    if piece.age is not None:
        ages = age_bin(piece.age[answered])
        for age in np.unique(ages).tolist():
            sums = counts.at_age.setdefault(age, BlockSums(counts.model.block))
            sums.add(start + answered[ages == age], hit[ages == age])


def count_shifted(counts: Tally, others: Piece, start: int) -> None:
    """Add the model's answers at other shifts."""
    assert others.shift is not None
    for shift in np.unique(others.shift).tolist():
        part = take(others, others.shift == shift)
        assert part.prediction is not None
        answered = part.prediction >= 0
        sums = counts.at_shift.setdefault(shift, BlockSums(counts.model.block))
        # Rows of a shift are in stream order; the first ``shift`` samples have no row.
        positions = start + shift + np.cumsum(answered) - 1
        sums.add(positions[answered], (part.prediction == part.label)[answered])
