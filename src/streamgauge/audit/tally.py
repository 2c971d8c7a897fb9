"""Two passes over a log: what is in it, then hits of model and blind classifiers by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounter
from streamgauge.audit.log import Log, Piece
from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Up to so many rows a log is held in memory, which allows sorting and everything about users.
HELD = 10_000_000
# Of a longer one only so many leading rows are held, to look for periods and bursts.
SAMPLE = 2_000_000


@dataclass
class Scan:
    """What one pass over the log has found."""

    rows: int
    counts: Ints
    """How often every class occurs as a label of the stream."""
    held: Piece
    """All rows of the stream, or its beginning."""
    whole: bool
    """Whether all rows are held."""
    shifts: dict[int, int] = field(default_factory=dict)
    """How many rows there are of every shift the log knows."""
    others: Piece | None = None
    """Rows at other shifts than that of the stream, where all rows are held."""
    unpredicted: int = 0
    largest_step: int = 1

    @property
    def shift(self) -> int:
        """The shift of the stream itself: the smallest."""
        return min(self.shifts, default=0)

    @property
    def length(self) -> int:
        """Samples in the stream."""
        return self.shifts[self.shift] if self.shifts else self.rows


def join(pieces: list[Piece]) -> Piece:
    """Pieces one after another."""
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[str, Any] = {}
    for f in fields(Piece):
        values = [getattr(p, f.name) for p in pieces]
        joined[f.name] = None if values[0] is None else np.concatenate(values)
    return Piece(**joined)


def take(piece: Piece, keep: NDArray[Any] | slice) -> Piece:
    """Some rows of a piece."""
    chosen: dict[str, Any] = {f.name: getattr(piece, f.name) for f in fields(Piece)}
    kept: dict[str, Any] = {n: None if v is None else v[keep] for n, v in chosen.items()}
    return Piece(**kept)


def scan(log: Log, *, sort: bool = False, hold: int = HELD) -> Scan:
    """Read the whole log once, check it, and hold as much of it as may be held."""
    pieces: list[Piece] = []
    rows = held = unpredicted = 0
    by_shift: dict[int, Any] = {}
    last_time: dict[int, int] = {}
    last_step: dict[int, int] = {}
    for piece in log.pieces():
        start = rows
        rows += piece.label.size
        shifts = np.zeros(1, np.int64) if piece.shift is None else np.unique(piece.shift)
        for value in shifts.tolist():
            part = piece if piece.shift is None else take(piece, piece.shift == value)
            counts, total = by_shift.get(value, (np.zeros(0, np.int64), 0))
            more = np.bincount(part.label, minlength=counts.size)
            more[: counts.size] += counts
            by_shift[value] = (more, total + part.label.size)
            if part.time is not None and not sort:
                last_time[value] = check_sorted(log, part.time, last_time.get(value), start)
            if part.step is not None and not sort:
                check_steps(log, part.step, last_step.get(value))
                last_step[value] = int(part.step[-1])
        if piece.prediction is not None:
            unpredicted += int(np.sum(piece.prediction < 0))
        if rows <= hold:
            pieces.append(piece)
        elif held < SAMPLE:
            if sort:
                raise StreamgaugeError(
                    f"{log.name} has more than {hold:,} rows, too many to sort here: sort it first"
                )
            pieces = [join([*pieces, piece])]
            pieces = [take(pieces[0], slice(0, SAMPLE))]
            held = pieces[0].label.size
    everything = join(pieces)
    whole = rows <= hold
    if sort and everything.time is not None:
        everything = take(everything, np.argsort(everything.time, kind="stable"))
    found = conclude(log, rows, by_shift, everything, whole, unpredicted)
    if sort and found.held.step is not None:
        check_steps(log, found.held.step, None)
    return found


def conclude(
    log: Log,
    rows: int,
    by_shift: dict[int, Any],
    everything: Piece,
    whole: bool,
    unpredicted: int,
) -> Scan:
    """Sum up what was read: rows and class counts of every shift, and the rows that are held."""
    known = {s: total for s, (_, total) in by_shift.items()} if everything.shift is not None else {}
    first = min(by_shift)
    counts = by_shift[first][0]
    if np.count_nonzero(counts) < 2:
        raise StreamgaugeError(
            f"all {by_shift[first][1]:,} labels in column '{log.roles['label']}' are the same "
            "class: there is nothing to predict, so check the label column"
        )
    others = None
    if everything.shift is not None:
        here = everything.shift == first
        others = take(everything, ~here) if whole and not here.all() else None
        everything = take(everything, here)
    largest = 1
    if everything.step is not None:
        largest = int(run_lengths(everything.step).max())
    return Scan(rows, counts, everything, whole, known, others, unpredicted, largest)


def run_lengths(steps: Ints) -> Ints:
    """How many samples each step has, one after the other."""
    edges = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    return np.diff(np.concatenate([[0], edges, [steps.size]]))


def check_sorted(log: Log, times: Ints, before: int | None, row: int) -> int:
    """Refuse times that go back; the file is sorted only on request."""
    joined = times if before is None else np.concatenate([[before], times])
    back = np.flatnonzero(joined[1:] < joined[:-1])
    if back.size:
        at = log.row_name(row + int(back[0]) + (before is None))
        name = log.roles["time"]
        raise StreamgaugeError(
            f"times in column '{name}' go back at {at}: pass --sort to sort by time, or "
            "--time none to keep the order of the file"
        )
    return int(times[-1])


def check_steps(log: Log, steps: Ints, before: int | None) -> None:
    """Refuse step numbers that decrease."""
    if np.any(steps[1:] < steps[:-1]) or (before is not None and steps[0] < before):
        raise StreamgaugeError(
            f"step numbers in column '{log.roles['step']}' decrease: sort the log by step, or give "
            "the step size with --step"
        )


class BlockSums:
    """Hits and tries per block of stream time, merged in pairs as the stream outgrows them."""

    def __init__(self, block: int, blocks: int = 4096) -> None:
        self.block, self.blocks = block, blocks
        self.hits, self.tries = np.zeros(0), np.zeros(0)

    def add(self, position: Ints, hit: NDArray[np.bool_]) -> None:
        """Answers at these positions of the stream, right or wrong."""
        if position.size == 0:
            return
        while int(position.max()) >= self.block * self.blocks:
            self.merge()
        at = position // self.block
        size = max(self.hits.size, int(at.max()) + 1)
        self._grow(size)
        self.hits += np.bincount(at[hit], minlength=size)
        self.tries += np.bincount(at, minlength=size)

    def include(self, other: BlockSums) -> None:
        """Add what another counted in blocks of the same length."""
        self._grow(other.hits.size)
        self.hits[: other.hits.size] += other.hits
        self.tries[: other.tries.size] += other.tries

    def merge(self) -> None:
        """Blocks twice as long."""
        self._grow(self.hits.size + self.hits.size % 2)
        self.hits = self.hits[0::2] + self.hits[1::2]
        self.tries = self.tries[0::2] + self.tries[1::2]
        self.block *= 2

    def at(self, block: int, blocks: int) -> tuple[Floats, Floats]:
        """Hits and tries in the given blocks, which are a power of two longer or the same."""
        while self.block < block:
            self.merge()
        self._grow(blocks)
        if self.hits.size > blocks:  # a position past the end belongs to the last block
            self.hits[blocks - 1] = self.hits[blocks - 1 :].sum()
            self.tries[blocks - 1] = self.tries[blocks - 1 :].sum()
        return self.hits[:blocks], self.tries[:blocks]

    def _grow(self, size: int) -> None:
        more = max(0, size - self.hits.size)
        self.hits = np.concatenate([self.hits, np.zeros(more)])
        self.tries = np.concatenate([self.tries, np.zeros(more)])


@dataclass
class Tally:
    """Hits by block: of blind classifiers, of the model, and of the model at shifts and ages."""

    blind: BlindCounter
    model: BlockSums
    at_shift: dict[int, BlockSums]
    at_age: dict[int, BlockSums]


def again(log: Log, found: Scan) -> Iterator[tuple[Piece, Piece | None]]:
    """The stream once more, in pieces, each with the rows at other shifts that came with it."""
    if found.whole:
        yield found.held, found.others
        return
    for piece in log.pieces():
        if piece.shift is None:
            yield piece, None
        else:
            here = piece.shift == found.shift
            yield take(piece, here), take(piece, ~here)


def age_bin(age: Ints) -> Ints:
    """Ages in octaves: 0, 1, 2, 4, 8, ...

    >>> age_bin(np.array([0, 1, 3, 4, 1000]))
    array([  0,   1,   2,   4, 512])
    """
    octave = np.floor(np.log2(np.maximum(age, 1))).astype(np.int64)
    return np.where(age <= 0, 0, np.int64(1) << octave)


def tally(
    log: Log,
    found: Scan,
    *,
    windows: Floats,
    shifts: Ints,
    step: int | None,
    ties: str,
    block: int,
) -> Tally:
    """Count over the whole log. ``step`` None takes the steps from the log."""
    places = log.classes.sorted_places() if ties != "recent" else None
    counter = BlindCounter(
        windows, shifts, classes=len(log.classes.numbers), ties=ties, step=step or 1, block=block
    )
    result = Tally(counter, BlockSums(block), {}, {})
    position = 0
    for piece, others in again(log, found):
        codes = piece.label if places is None else places[piece.label]
        counter.feed(codes, piece.step if step is None else None)
        count_answers(result, piece, position)
        if others is not None and others.prediction is not None and others.label.size:
            count_shifted(result, others, position)
        position += piece.label.size
    counter.finish()
    return result


def count_answers(result: Tally, piece: Piece, start: int) -> None:
    """Add the model's answers on the stream itself, and by model age where it is known."""
    if piece.prediction is None:
        return
    answered = np.flatnonzero(piece.prediction >= 0)
    hit = piece.prediction[answered] == piece.label[answered]
    result.model.add(start + answered, hit)
    if piece.age is not None:
        ages = age_bin(piece.age[answered])
        for age in np.unique(ages).tolist():
            sums = result.at_age.setdefault(age, BlockSums(result.model.block))
            sums.add(start + answered[ages == age], hit[ages == age])


def count_shifted(result: Tally, others: Piece, start: int) -> None:
    """Add the model's answers at other shifts."""
    assert others.shift is not None
    for shift in np.unique(others.shift).tolist():
        part = take(others, others.shift == shift)
        assert part.prediction is not None
        answered = part.prediction >= 0
        sums = result.at_shift.setdefault(shift, BlockSums(result.model.block))
        # The order within the shift is the order of the stream; the first were not answered.
        places = start + shift + np.cumsum(answered) - 1
        sums.add(places[answered], (part.prediction == part.label)[answered])
