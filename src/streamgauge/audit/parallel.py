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
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamgauge.audit.log import Piece, PredictionLog, take
from streamgauge.audit.tally import (
    SAMPLE,
    BlockSums,
    ClassHistory,
    CountRequest,
    Scan,
    StreamScan,
    Tally,
    join,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.history.known import Ints
from streamgauge.tables.values import Vocabulary

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
    part.source, part.first_row, part.is_part = log.source.part(start, stop), start, True
    part.roles = {role: name for role, name in log.roles.items() if role not in ("user", "album")}
    part.features = ()
    part.classes = Vocabulary()
    part.classes.numbers = dict(classes or {})
    return part


def scan_piece(log: PredictionLog) -> tuple[Scan, list[Any]]:
    """First pass over one part of a log, and the names of its classes in the order of its own."""
    result, leading, row = Scan(), [], log.first_row
    for piece in log.pieces():
        result.add(log, piece, row)
        leading.append(take(piece, slice(0, max(0, SAMPLE - row))))
        row += piece.label.size
    result.unlabelled, result.newest = log.unlabelled, log.newest
    if leading:
        result.in_memory = join(leading)
    return result, list(log.classes.numbers)


def scan_pieces(log: PredictionLog, parallel_map: ParallelMap, rows: int = ROWS) -> Scan:
    """The result of `tally.scan`, with the class history before every piece."""
    total = log.source.rows
    assert total is not None
    next(log.pieces(), None)  # decides for all pieces what units times have and what is missing
    edges = piece_edges(total, 1, 1, rows)
    scans: list[tuple[Scan, list[Any]]] = parallel_map(
        scan_piece, [(log_part(log, a, b),) for a, b in itertools.pairwise(edges)]
    )
    shifts = {shift for piece, _ in scans for shift in piece.streams}
    if len(shifts) > 1:
        raise StreamgaugeError(
            f"{log.name} contains answers at {len(shifts)} shifts, which cannot be counted in "
            "pieces: audit it without --on ray"
        )
    stream, leading = StreamScan(), []
    result = Scan({min(shifts): stream})
    for start, (piece, names) in zip(edges, scans, strict=False):
        # In the order of the log, so that class numbers equal those of a serial audit.
        numbers = np.array([log.classes.number(name) for name in names], np.int64)
        result.histories.append((start, stream.history))
        result.unlabelled += piece.unlabelled
        if not piece.streams:  # no row has a label
            result.newest += piece.newest
            continue
        result.newest = piece.newest
        (part,) = piece.streams.values()
        own_numbers = numbers[: part.history.counts.size]
        stream.rows += part.rows
        stream.history = stream.history.plus(
            part.history.numbered(own_numbers, len(log.classes.numbers))
        )
        for role, ends in part.ends.items():
            runs = part.runs if role == "step" else None
            stream.follow(log, role, np.array(ends), start, runs)
        leading.append(renumber(piece.in_memory, numbers))
        result.unpredicted += piece.unpredicted
        result.early += piece.early
        predicted = np.zeros(len(log.classes.numbers), bool)
        predicted[numbers[: piece.predicted.size][piece.predicted]] = True
        result.include_predicted(predicted)
    if result.unlabelled > result.newest:
        raise StreamgaugeError(
            f"{log.name} has rows without a label between others, which cannot be counted in "
            "pieces: audit it without --on ray"
        )
    return result.finish(log, join(leading), complete=False)


def renumber(piece: Piece, numbers: Ints) -> Piece:
    columns: dict[str, Any] = {"label": numbers[piece.label].astype(np.int32)}
    if piece.prediction is not None:
        with_missing = np.append(numbers, -1)  # -1 (no prediction) stays -1
        columns["prediction"] = with_missing[piece.prediction].astype(np.int32)
    return replace(piece, **columns)


class PieceCounts(NamedTuple):
    """Result of the second pass over a piece."""

    hits: Ints
    begin: dict[int, int]
    model: BlockSums
    classes: Ints
    at_age: dict[int, BlockSums]


def count_piece(
    log: PredictionLog,
    start: int,
    a: int,
    b: int,
    history: ClassHistory,
    rows_before: int,
    request: CountRequest,
) -> PieceCounts:
    """Second pass: count predictions made at a <= t < b. `log` begins at row `start`, with this
    class history before it, and ends after the longest shift; `rows_before` are the rows before a
    piece that its predictions use."""
    rows = join(list(log.pieces()))
    block = request.block
    first = max(start, (a - rows_before) // block * block, 0)
    labels = request.codes(rows.label)
    order = request.codes(np.arange(history.counts.size, dtype=np.int32))
    history = history.numbered(order, request.classes).after(labels[: first - start], start)
    steps = rows.step
    if request.step is not None:
        positions = np.arange(start, start + labels.size, dtype=np.int64)
        steps = positions // request.step if request.step > 1 else None
    result = Tally(request)
    counter = result.blind
    counter.begin_with(history.counts, history.mode(request.ties == "smallest"))
    counter.feed(labels[first - start :], None if steps is None else steps[first - start :])
    counter.finish(None if b == request.length else b - first)
    result.add_answers(take(rows, slice(a - start, b - start)), a)
    skip = (a - first) // block
    hits = counter.hits[skip : skip + -(-(b - a) // block)]
    return PieceCounts(hits, counter.begin, result.model, result.classes, result.at_age)


def tally_pieces(
    log: PredictionLog,
    scanned: Scan,
    request: CountRequest,
    parallel_map: ParallelMap,
    rows: int = ROWS,
) -> Tally:
    """The result of `tally.tally`, counted in pieces."""
    if request.ties == "evalocl":
        raise StreamgaugeError(
            "the tie rule evalocl depends on the whole stream, so it cannot be counted in pieces: "
            "audit without --on ray, or use --ties recent"
        )
    length, block = request.length, request.block
    longest = int(request.windows[np.isfinite(request.windows)].max(initial=1))
    rows_before = longest + max(scanned.largest_step, request.step or 1) + 2
    furthest = int(request.shifts.max(initial=0))
    tasks = []
    for a, b in itertools.pairwise(piece_edges(length, block, rows_before, rows)):
        # The last part that begins before the rows needed; the class history is known there.
        needed = max(0, (a - rows_before) // block * block)
        start, history = [h for h in scanned.histories if h[0] <= needed][-1]
        part = log_part(log, start, min(length, b + furthest), log.classes.numbers)
        tasks.append((part, start, a, b, history, rows_before, request))
    counted: list[PieceCounts] = parallel_map(count_piece, tasks)
    result = Tally(request)
    hits = np.concatenate([piece.hits for piece in counted])
    result.blind.finish_with(hits, length, counted[0].begin)
    for piece in counted:
        result.model.include(piece.model)
        result.classes += piece.classes
        for age, sums in piece.at_age.items():
            result.at_age.setdefault(age, request.sums()).include(sums)
    return result
