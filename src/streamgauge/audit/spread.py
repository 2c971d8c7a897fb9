"""The audit of a log in pieces that are counted side by side, on other machines if need be.

Two rounds, as in one piece. The first looks at every piece by itself: classes, order, and how often
and where last each class occurred. Summed from the left, that is what the unlimited window knows at
the start of each piece. The second counts the predictions made within a piece; for that it also
reads so many rows before the piece as the longest window and the longest step hold, and so many
behind it as the longest shift looks ahead. Every count is that of one piece, to the last digit.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounter
from streamgauge.audit.log import Log, Piece
from streamgauge.audit.tally import (
    SAMPLE,
    BlockSums,
    Scan,
    Tally,
    check_sorted,
    check_steps,
    conclude,
    count_answers,
    join,
    run_lengths,
    take,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.tables.values import Codes, Vocabulary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# Calls a function for every tuple of arguments, wherever; the answers in the order of the tuples.
Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]

ROWS = 1 << 24  # of a piece


def one_after_the_other(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The spread that stays in this process."""
    return [work(*task) for task in tasks]


def short(log: Log, hold: int, sort: bool) -> bool:
    """Whether a log is held whole anyway; a longer one is refused where it cannot be cut."""
    known = log.source.rows
    if known is not None and known <= hold:
        return True
    if sort:
        raise StreamgaugeError(f"{log.name} cannot be sorted in pieces: sort it first")
    if known is None:
        raise StreamgaugeError(
            f"{log.name} can be read from its beginning only: for an audit in pieces write it as "
            "Parquet, or audit it without --on ray"
        )
    return False


class Standing(NamedTuple):
    """Of each class: how often it occurred so far, and where last (-1: never)."""

    counts: Ints
    last: Ints

    def after(self, labels: Codes, start: int) -> Standing:
        """With these labels, the first of which is number `start` of the stream."""
        more = np.bincount(labels, minlength=self.counts.size)
        count, last = grown(self.counts, more.size, 0) + more, grown(self.last, more.size, -1)
        last[labels] = start + np.arange(labels.size)  # of equal labels, the last one stays
        return Standing(count, last)

    def plus(self, later: Standing) -> Standing:
        size = later.counts.size
        return Standing(
            grown(self.counts, size, 0) + later.counts,
            np.maximum(grown(self.last, size, -1), later.last),
        )

    def numbered(self, places: NDArray[Any], size: int) -> Standing:
        """The same under other class numbers."""
        count, last = np.zeros(size, np.int64), np.full(size, -1, np.int64)
        count[places], last[places] = self.counts, self.last
        return Standing(count, last)

    def mode(self, smallest: bool) -> int:
        """The most frequent class; among equals the smallest, or the one that occurred last."""
        if not self.counts.any():
            return -1
        best = np.flatnonzero(self.counts == self.counts.max())
        return int(best[0] if smallest else best[np.argmax(self.last[best])])


NEVER = Standing(np.zeros(0, np.int64), np.zeros(0, np.int64))


def grown(values: Ints, size: int, fill: int) -> Ints:
    return np.concatenate([values, np.full(max(0, size - values.size), fill, np.int64)])


@dataclass
class Look:
    """What the first round finds in a piece; classes by numbers of its own."""

    names: dict[Any, int]
    rows: int = 0
    standing: Standing = NEVER
    unpredicted: int = 0
    shifts: set[int] = field(default_factory=set)
    times: tuple[int, int] | None = None  # first and last
    steps: tuple[int, int] | None = None
    runs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # samples of each step
    held: Piece | None = None


def cut(length: int, block: int, least: int, rows: int = ROWS) -> list[int]:
    """Where pieces begin, and the end: whole blocks, none shorter than `least` but the last."""
    size = -(-max(rows, least, 1) // block) * block
    edges = list(range(0, length, size))
    if len(edges) > 1 and length - edges[-1] < least:
        edges.pop()
    return [*edges, length]


def part_of(log: Log, start: int, stop: int, names: Mapping[Any, int] | None = None) -> Log:
    """The log, but only some of its rows; users and albums are not looked at in pieces."""
    part = copy.copy(log)
    part.source, part.first_row = log.source.part(start, stop), start
    part.roles = {role: name for role, name in log.roles.items() if role not in ("user", "album")}
    part.features = ()
    part.classes, part.users, part.albums = Vocabulary(), Vocabulary(), Vocabulary()
    part.classes.numbers = dict(names or {})
    return part


def look(log: Log) -> Look:
    """First round, in one piece."""
    found = Look(log.classes.numbers)
    held: list[Piece] = []
    last_time = last_step = None
    runs: list[Ints] = []
    start = log.first_row
    for piece in log.pieces():
        at = start + found.rows
        found.standing = found.standing.after(piece.label, at)
        found.rows += piece.label.size
        if piece.prediction is not None:
            found.unpredicted += int(np.sum(piece.prediction < 0))
        if piece.shift is not None:
            found.shifts |= set(np.unique(piece.shift).tolist())
        if piece.time is not None:
            last_time = check_sorted(log, piece.time, last_time, at)
            found.times = (found.times or (int(piece.time[0]), 0))[0], last_time
        if piece.step is not None:
            check_steps(log, piece.step, last_step)
            runs.append(run_lengths(piece.step))
            if last_step == int(piece.step[0]):
                runs[-2:] = [joined_runs(runs[-2], runs[-1])]
            last_step = int(piece.step[-1])
            found.steps = (found.steps or (int(piece.step[0]), 0))[0], last_step
        if at < SAMPLE:
            held.append(take(piece, slice(0, SAMPLE - at)))
    if runs:
        every = np.concatenate(runs)
        # Only the ends may grow when pieces are joined; of the others the longest is enough.
        found.runs = np.array([every[0], every.max(), every[-1]]) if every.size > 1 else every
    found.held = join(held) if held else None
    return found


def joined_runs(left: Ints, right: Ints) -> Ints:
    """Of two pieces that part in the middle of a step."""
    return np.concatenate([left[:-1], [left[-1] + right[0]], right[1:]])


def scan_pieces(log: Log, spread: Spread, rows: int = ROWS) -> tuple[Scan, list[int], list[Any]]:
    """What `tally.scan` finds; where pieces began; and how classes stood there."""
    total = log.source.rows
    assert total is not None
    next(log.pieces(), None)  # decides for all pieces what units times have and what is missing
    edges = cut(total, 1, 1, rows)
    looks: list[Look] = spread(look, [(part_of(log, a, b),) for a, b in pairs(edges)])
    standings, so_far = [], NEVER
    held: list[Piece] = []
    largest, open_run = 1, 0
    before: Look | None = None
    for start, one in zip(edges, looks, strict=False):
        # In the order of the log, so that classes get the numbers that one piece would give them.
        numbers = np.array([log.classes.number(name) for name in one.names], np.int64)
        size = len(log.classes.numbers)
        standings.append(so_far)
        so_far = so_far.plus(one.standing.numbered(numbers[: one.standing.counts.size], size))
        if before is not None and one.times is not None and before.times is not None:
            check_sorted(log, np.array([one.times[0]]), before.times[1], start)
        if one.steps is not None:
            if before is not None and before.steps is not None:
                check_steps(log, np.array([one.steps[0]]), before.steps[1])
                if before.steps[1] == one.steps[0]:
                    one.runs = joined_runs(np.array([open_run]), one.runs)
            largest, open_run = max(largest, int(one.runs.max())), int(one.runs[-1])
        if one.held is not None:
            held.append(renumbered(one.held, numbers))
        before = one
    shifts = set().union(*(one.shifts for one in looks))
    if len(shifts) > 1:
        raise StreamgaugeError(
            f"{log.name} holds answers at {len(shifts)} shifts, which are counted in one piece "
            "only: audit it without --on ray."
        )
    by_shift = {min(shifts, default=0): (so_far.counts, total)}
    unpredicted = sum(one.unpredicted for one in looks)
    found = conclude(log, total, by_shift, join(held), False, unpredicted)
    found.largest_step = largest
    return found, edges, standings


def renumbered(piece: Piece, numbers: Ints) -> Piece:
    new: dict[str, Any] = {"label": numbers[piece.label].astype(np.int32)}
    if piece.prediction is not None:
        known = np.append(numbers, -1)  # -1, no prediction, stays
        new["prediction"] = known[piece.prediction].astype(np.int32)
    return replace(piece, **new)


def pairs(edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(edges)


class Wanted(NamedTuple):
    """What the second round counts."""

    windows: Floats
    shifts: Ints
    step: int | None
    ties: str
    block: int
    length: int
    before: int  # rows that a prediction may look back
    classes: int
    places: Codes | None


class Counted(NamedTuple):
    """What it counted in a piece."""

    hits: Ints
    begin: dict[int, int]
    model: BlockSums
    at_age: dict[int, BlockSums]


def count_piece(
    log: Log, start: int, a: int, b: int, standing: Standing, wanted: Wanted
) -> Counted:
    """Second round: predictions made at a <= t < b. `log` begins at row `start`, before which the
    classes stood as given, and ends where the longest shift does not reach further."""
    whole = join(list(log.pieces()))
    block, length = wanted.block, wanted.length
    first = max(start, (a - wanted.before) // block * block, 0)
    labels = whole.label if wanted.places is None else wanted.places[whole.label]
    if wanted.places is not None:
        standing = standing.numbered(wanted.places[: standing.counts.size], wanted.classes)
    standing = standing.after(labels[: first - start], start)
    steps = whole.step
    if wanted.step is not None:
        count = np.arange(start, start + labels.size, dtype=np.int64)
        steps = count // wanted.step if wanted.step > 1 else None
    counter = BlindCounter(
        wanted.windows, wanted.shifts, classes=wanted.classes, ties=wanted.ties,
        step=wanted.step or 1, block=block,
    )  # fmt: skip
    counter.begin_with(grown(standing.counts, wanted.classes, 0), standing.mode(
        wanted.ties == "smallest"))  # fmt: skip
    counter.feed(labels[first - start :], None if steps is None else steps[first - start :])
    counter.finish(None if b == length else b - first)
    skip = (a - first) // block
    result = Tally(counter, BlockSums(block), {}, {})
    count_answers(result, take(whole, slice(a - start, b - start)), a)
    hits = counter.hits[skip : skip + -(-(b - a) // block)]
    return Counted(hits, counter.begin, result.model, result.at_age)


def tally_pieces(
    log: Log,
    found: Scan,
    edges: list[int],
    standings: list[Standing],
    spread: Spread,
    *,
    windows: Floats,
    shifts: Ints,
    step: int | None,
    ties: str,
    block: int,
    rows: int = ROWS,
) -> Tally:
    """What `tally.tally` counts."""
    if ties == "evalocl":
        raise StreamgaugeError(
            "the tie rule evalocl depends on the whole path of the stream, so it cannot be counted "
            "in pieces: audit without --on ray, or take --ties recent"
        )
    length, classes = found.length, len(log.classes.numbers)
    longest = int(windows[np.isfinite(windows)].max(initial=1))
    before = longest + max(found.largest_step, step or 1) + 2
    furthest = int(shifts.max(initial=0))
    places = log.classes.sorted_places() if ties == "smallest" else None
    wanted = Wanted(windows, shifts, step, ties, block, length, before, classes, places)
    tasks = []
    for a, b in pairs(cut(length, block, before, rows)):
        # The last place before the piece and what it looks back to, where the standing is known.
        at = int(np.searchsorted(edges, max(0, (a - before) // block * block), side="right")) - 1
        stop = min(length, b + furthest)
        part = part_of(log, edges[at], stop, log.classes.numbers)
        tasks.append((part, edges[at], a, b, standings[at], wanted))
    counted: list[Counted] = spread(count_piece, tasks)
    counter = BlindCounter(windows, shifts, classes=classes, ties=ties, step=step or 1, block=block)
    counter.conclude(np.concatenate([one.hits for one in counted]), length, counted[0].begin)
    result = Tally(counter, BlockSums(block), {}, {})
    for one in counted:
        result.model.include(one.model)
        for age, sums in one.at_age.items():
            result.at_age.setdefault(age, BlockSums(block)).include(sums)
    return result
