"""The audit of a log in pieces that are counted in parallel, also on several machines.

Two passes, as in a serial audit. The first scans every piece: classes, order, and the count and the
last position of each class. Their cumulative sums give the unlimited window at the start of each
piece. The second counts the predictions made within a piece; it also reads rows before the piece
(the longest window plus the longest step) and after it (the longest shift). All counts are equal to
those of a serial audit.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounter
from streamgauge.audit.log import Piece, PredictionLog
from streamgauge.audit.tally import (
    SAMPLE,
    BlockSums,
    Scan,
    Tally,
    check_sorted,
    check_steps,
    count_answers,
    finish_scan,
    join,
    run_lengths,
    take,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.tables.values import Codes, Vocabulary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# Calls a function for every tuple of arguments; returns the results in the order of the tuples.
ParallelMap = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]

ROWS = 1 << 24  # per piece


def fits_in_memory(log: PredictionLog, hold: int, sort: bool) -> bool:
    """Whether a log has at most ``hold`` rows; an error for a longer log that cannot be cut."""
    rows = log.source.rows
    if rows is not None and rows <= hold:
        return True
    if sort:
        raise StreamgaugeError(f"{log.name} cannot be sorted in pieces: sort the file first")
    if rows is None:
        raise StreamgaugeError(
            f"{log.name} can only be read from its start: for an audit in pieces, write it as "
            "Parquet, or audit it without --on ray"
        )
    return False


class ClassHistory(NamedTuple):
    """Per class: the number of labels so far, and the last position (-1: none)."""

    counts: Ints
    last: Ints

    def after(self, labels: Codes, start: int) -> ClassHistory:
        """The history after these labels, the first of which is at position `start`."""
        new_counts = np.bincount(labels, minlength=self.counts.size)
        counts, last = (
            padded(self.counts, new_counts.size, 0) + new_counts,
            padded(self.last, new_counts.size, -1),
        )
        last[labels] = start + np.arange(labels.size)  # of equal labels, the last position is kept
        return ClassHistory(counts, last)

    def plus(self, later: ClassHistory) -> ClassHistory:
        """The history after another one that follows."""
        size = later.counts.size
        return ClassHistory(
            padded(self.counts, size, 0) + later.counts,
            np.maximum(padded(self.last, size, -1), later.last),
        )

    def numbered(self, numbers: NDArray[Any], size: int) -> ClassHistory:
        """The same history with other class numbers."""
        counts, last = np.zeros(size, np.int64), np.full(size, -1, np.int64)
        counts[numbers], last[numbers] = self.counts, self.last
        return ClassHistory(counts, last)

    def mode(self, smallest: bool) -> int:
        """The most frequent class; ties go to the smallest class, or to the most recent."""
        if not self.counts.any():
            return -1
        best = np.flatnonzero(self.counts == self.counts.max())
        return int(best[0] if smallest else best[np.argmax(self.last[best])])


NO_HISTORY = ClassHistory(np.zeros(0, np.int64), np.zeros(0, np.int64))


def padded(values: Ints, size: int, fill: int) -> Ints:
    return np.concatenate([values, np.full(max(0, size - values.size), fill, np.int64)])


@dataclass
class PieceScan:
    """Result of the first pass over a piece; classes are numbered per piece."""

    names: dict[Any, int]
    rows: int = 0
    history: ClassHistory = NO_HISTORY
    unpredicted: int = 0
    shifts: set[int] = field(default_factory=set)
    times: tuple[int, int] | None = None  # first and last
    steps: tuple[int, int] | None = None
    runs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # samples of each step
    in_memory: Piece | None = None


def piece_edges(length: int, block: int, least: int, rows: int = ROWS) -> list[int]:
    """Edges of pieces of whole blocks, each of at least `least` rows, unless there is only one."""
    size = -(-max(rows, least, 1) // block) * block
    edges = list(range(0, length, size))
    if len(edges) > 1 and length - edges[-1] < least:
        edges.pop()
    return [*edges, length]


def log_part(
    log: PredictionLog, start: int, stop: int, classes: Mapping[Any, int] | None = None
) -> PredictionLog:
    """The log with only some of its rows, without users, albums and features."""
    part = copy.copy(log)
    part.source, part.first_row = log.source.part(start, stop), start
    part.roles = {role: name for role, name in log.roles.items() if role not in ("user", "album")}
    part.features = ()
    part.classes, part.users, part.albums = Vocabulary(), Vocabulary(), Vocabulary()
    part.classes.numbers = dict(classes or {})
    return part


def scan_piece(log: PredictionLog) -> PieceScan:
    """First pass over one piece."""
    result = PieceScan(log.classes.numbers)
    leading: list[Piece] = []
    last_time = last_step = None
    runs: list[Ints] = []
    start = log.first_row
    for piece in log.pieces():
        position = start + result.rows
        result.history = result.history.after(piece.label, position)
        result.rows += piece.label.size
        if piece.prediction is not None:
            result.unpredicted += int(np.sum(piece.prediction < 0))
        if piece.shift is not None:
            result.shifts |= set(np.unique(piece.shift).tolist())
        if piece.time is not None:
            last_time = check_sorted(log, piece.time, last_time, position)
            result.times = (result.times or (int(piece.time[0]), 0))[0], last_time
        if piece.step is not None:
            check_steps(log, piece.step, last_step)
            runs.append(run_lengths(piece.step))
            if last_step == int(piece.step[0]):
                runs[-2:] = [join_runs(runs[-2], runs[-1])]
            last_step = int(piece.step[-1])
            result.steps = (result.steps or (int(piece.step[0]), 0))[0], last_step
        if position < SAMPLE:
            leading.append(take(piece, slice(0, SAMPLE - position)))
    if runs:
        all_runs = np.concatenate(runs)
        # Only the first and the last run may grow when pieces are joined.
        result.runs = (
            np.array([all_runs[0], all_runs.max(), all_runs[-1]]) if all_runs.size > 1 else all_runs
        )
    result.in_memory = join(leading) if leading else None
    return result


def join_runs(left: Ints, right: Ints) -> Ints:
    """Run lengths of two pieces that share a step."""
    return np.concatenate([left[:-1], [left[-1] + right[0]], right[1:]])


def scan_pieces(
    log: PredictionLog, parallel_map: ParallelMap, rows: int = ROWS
) -> tuple[Scan, list[int], list[Any]]:
    """The result of `tally.scan`, the edges of the pieces, and the class history at each edge."""
    total = log.source.rows
    assert total is not None
    next(log.pieces(), None)  # decides for all pieces what units times have and what is missing
    edges = piece_edges(total, 1, 1, rows)
    scans: list[PieceScan] = parallel_map(
        scan_piece, [(log_part(log, a, b),) for a, b in itertools.pairwise(edges)]
    )
    histories, history = [], NO_HISTORY
    leading: list[Piece] = []
    largest_step, open_run = 1, 0
    previous: PieceScan | None = None
    for start, piece in zip(edges, scans, strict=False):
        # In the order of the log, so that class numbers equal those of a serial audit.
        numbers = np.array([log.classes.number(name) for name in piece.names], np.int64)
        size = len(log.classes.numbers)
        histories.append(history)
        history = history.plus(piece.history.numbered(numbers[: piece.history.counts.size], size))
        if previous is not None and piece.times is not None and previous.times is not None:
            check_sorted(log, np.array([piece.times[0]]), previous.times[1], start)
        if piece.steps is not None:
            if previous is not None and previous.steps is not None:
                check_steps(log, np.array([piece.steps[0]]), previous.steps[1])
                if previous.steps[1] == piece.steps[0]:
                    piece.runs = join_runs(np.array([open_run]), piece.runs)
            largest_step, open_run = max(largest_step, int(piece.runs.max())), int(piece.runs[-1])
        if piece.in_memory is not None:
            leading.append(renumber(piece.in_memory, numbers))
        previous = piece
    shifts = set().union(*(piece.shifts for piece in scans))
    if len(shifts) > 1:
        raise StreamgaugeError(
            f"{log.name} contains answers at {len(shifts)} shifts, which cannot be counted in "
            "pieces: audit it without --on ray"
        )
    by_shift = {min(shifts, default=0): (history.counts, total)}
    unpredicted = sum(piece.unpredicted for piece in scans)
    result = finish_scan(log, total, by_shift, join(leading), False, unpredicted)
    result.largest_step = largest_step
    return result, edges, histories


def renumber(piece: Piece, numbers: Ints) -> Piece:
    columns: dict[str, Any] = {"label": numbers[piece.label].astype(np.int32)}
    if piece.prediction is not None:
        with_missing = np.append(numbers, -1)  # -1 (no prediction) stays -1
        columns["prediction"] = with_missing[piece.prediction].astype(np.int32)
    return replace(piece, **columns)


class CountRequest(NamedTuple):
    """Arguments of the second pass."""

    windows: Floats
    shifts: Ints
    step: int | None
    ties: str
    block: int
    length: int
    rows_before: int  # rows before a piece that its predictions use
    classes: int
    class_order: Codes | None


class PieceCounts(NamedTuple):
    """Result of the second pass over a piece."""

    hits: Ints
    begin: dict[int, int]
    model: BlockSums
    at_age: dict[int, BlockSums]


def count_piece(
    log: PredictionLog, start: int, a: int, b: int, history: ClassHistory, request: CountRequest
) -> PieceCounts:
    """Second pass: count predictions made at a <= t < b. `log` begins at row `start`, with this
    class history before it, and ends after the longest shift."""
    rows = join(list(log.pieces()))
    block, length = request.block, request.length
    first = max(start, (a - request.rows_before) // block * block, 0)
    labels = rows.label if request.class_order is None else request.class_order[rows.label]
    if request.class_order is not None:
        history = history.numbered(request.class_order[: history.counts.size], request.classes)
    history = history.after(labels[: first - start], start)
    steps = rows.step
    if request.step is not None:
        positions = np.arange(start, start + labels.size, dtype=np.int64)
        steps = positions // request.step if request.step > 1 else None
    counter = BlindCounter(
        request.windows, request.shifts, classes=request.classes, ties=request.ties,
        step=request.step or 1, block=block,
    )  # fmt: skip
    counts = padded(history.counts, request.classes, 0)
    counter.begin_with(counts, history.mode(request.ties == "smallest"))
    counter.feed(labels[first - start :], None if steps is None else steps[first - start :])
    counter.finish(None if b == length else b - first)
    skip = (a - first) // block
    result = Tally(counter, BlockSums(block), {}, {})
    count_answers(result, take(rows, slice(a - start, b - start)), a)
    hits = counter.hits[skip : skip + -(-(b - a) // block)]
    return PieceCounts(hits, counter.begin, result.model, result.at_age)


def tally_pieces(
    log: PredictionLog,
    scanned: Scan,
    edges: list[int],
    histories: list[ClassHistory],
    parallel_map: ParallelMap,
    *,
    windows: Floats,
    shifts: Ints,
    step: int | None,
    ties: str,
    block: int,
    rows: int = ROWS,
) -> Tally:
    """The result of `tally.tally`, counted in pieces."""
    if ties == "evalocl":
        raise StreamgaugeError(
            "the tie rule evalocl depends on the whole stream, so it cannot be counted in pieces: "
            "audit without --on ray, or use --ties recent"
        )
    length, classes = scanned.length, len(log.classes.numbers)
    longest = int(windows[np.isfinite(windows)].max(initial=1))
    rows_before = longest + max(scanned.largest_step, step or 1) + 2
    furthest = int(shifts.max(initial=0))
    class_order = log.classes.sorted_places() if ties == "smallest" else None
    request = CountRequest(
        windows, shifts, step, ties, block, length, rows_before, classes, class_order
    )
    tasks = []
    for a, b in itertools.pairwise(piece_edges(length, block, rows_before, rows)):
        # The last edge before the rows that the piece needs; the class history is known there.
        needed = max(0, (a - rows_before) // block * block)
        edge = int(np.searchsorted(edges, needed, side="right")) - 1
        stop = min(length, b + furthest)
        part = log_part(log, edges[edge], stop, log.classes.numbers)
        tasks.append((part, edges[edge], a, b, histories[edge], request))
    counted: list[PieceCounts] = parallel_map(count_piece, tasks)
    counter = BlindCounter(windows, shifts, classes=classes, ties=ties, step=step or 1, block=block)
    counter.finish_with(np.concatenate([piece.hits for piece in counted]), length, counted[0].begin)
    result = Tally(counter, BlockSums(block), {}, {})
    for piece in counted:
        result.model.include(piece.model)
        for age, sums in piece.at_age.items():
            result.at_age.setdefault(age, BlockSums(block)).include(sums)
    return result
