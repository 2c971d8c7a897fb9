"""Two passes over a log: scan its contents, then count hits of model and blind classifiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.counting import BlindCounter
from streamgauge.audit.log import Piece, PredictionLog, take
from streamgauge.errors import StreamgaugeError
from streamgauge.history.family import first_scored
from streamgauge.history.known import Floats, Ints
from streamgauge.tables.values import Codes

# Logs of up to this many rows are kept in memory, for sorting and all results about users.
IN_MEMORY = 10_000_000
# Of a longer log only this many leading rows are kept, to find periods and bursts.
SAMPLE = 2_000_000


class ClassHistory(NamedTuple):
    """Per class: the number of labels so far, and the last position (-1: none)."""

    counts: Ints
    last: Ints

    def after(self, labels: Codes, start: int) -> ClassHistory:
        """The history after these labels, the first of which is at position `start`."""
        counts = np.bincount(labels, minlength=self.counts.size)
        last = np.full(counts.size, -1, np.int64)
        last[labels] = start + np.arange(labels.size)  # of equal labels, the last position is kept
        return self.plus(ClassHistory(counts, last))

    def plus(self, later: ClassHistory) -> ClassHistory:
        """The history after another one that follows, with as many classes or more."""
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
class StreamScan:
    """The rows of a log at one shift: their classes, order and steps."""

    rows: int = 0
    history: ClassHistory = NO_HISTORY
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    """First and last time and step, where the log has them."""
    runs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Samples of the first, of the largest and of the last step."""

    def add(self, log: PredictionLog, piece: Piece, row: int, ordered: bool) -> None:
        """Add the next rows; `row` is the first of them, and `ordered` checks their order."""
        self.rows += piece.label.size
        self.history = self.history.after(piece.label, row)
        if piece.time is not None and ordered:
            self.follow(log, "time", piece.time, row)
        if piece.step is not None and ordered:
            self.follow(log, "step", piece.step, row, run_lengths(piece.step))

    def follow(
        self, log: PredictionLog, role: str, values: Ints, row: int, runs: Ints | None = None
    ) -> None:
        """Add the next times or steps (with the samples of each step); they must not decrease."""
        first, last = self.ends.get(role, (int(values[0]), None))
        check_order(log, role, values, last, row)
        self.ends[role] = first, int(values[-1])
        if runs is not None:
            shared = last == int(values[0])
            runs = join_runs(self.runs, runs) if shared else np.concatenate([self.runs, runs])
            self.runs = runs if runs.size < 3 else runs[[0, int(runs.argmax()), -1]]


@dataclass
class Scan:
    """Contents of a log, from the first pass."""

    streams: dict[int, StreamScan] = field(default_factory=dict)
    """The rows of each shift in the log; one stream at shift 0 if the log has no shifts."""
    in_memory: Piece = field(default_factory=lambda: Piece(np.zeros(0, np.int32)))
    """All rows of the stream, or its first rows."""
    complete: bool = False
    """Whether all rows are in memory."""
    others: Piece | None = None
    """Rows at other shifts than the stream's, if all rows are in memory."""
    unpredicted: int = 0
    unlabelled: int = 0
    """Rows without a label; they are left out everywhere else."""
    newest: int = 0
    """How many of them are the last rows of the log."""
    early: int = 0
    """Rows whose label was known before the answer."""
    predicted: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    """Which classes were ever predicted."""
    histories: list[tuple[int, ClassHistory]] = field(default_factory=list)
    """Of a scan in parts: the first row of each part, and the class history before it."""

    def add(self, log: PredictionLog, piece: Piece, row: int, ordered: bool = True) -> None:
        """Add the next rows of the log; `row` is the first of them."""
        shifts = [0] if piece.shift is None else np.unique(piece.shift).tolist()
        for shift in shifts:
            part = piece if piece.shift is None else take(piece, piece.shift == shift)
            self.streams.setdefault(shift, StreamScan()).add(log, part, row, ordered)
        if piece.prediction is not None:
            answered = piece.prediction[piece.prediction >= 0]
            self.unpredicted += piece.prediction.size - answered.size
            self.include_predicted(np.bincount(answered) > 0)
        if piece.label_time is not None and piece.time is not None:
            self.early += int(np.sum(piece.label_time < piece.time))

    def include_predicted(self, predicted: NDArray[np.bool_]) -> None:
        """Add classes that were predicted."""
        size = max(predicted.size, self.predicted.size)
        both = np.zeros(size, bool)
        both[: self.predicted.size] = self.predicted
        both[: predicted.size] |= predicted
        self.predicted = both

    def finish(self, log: PredictionLog, rows: Piece, complete: bool) -> Scan:
        """Separate the rows in memory by shift; an error if all labels are the same class."""
        self.in_memory, self.complete = rows, complete
        if np.count_nonzero(self.counts) < 2:
            raise StreamgaugeError(
                f"all {self.length:,} labels in column '{log.roles['label']}' are the same "
                "class: there is nothing to predict, so check the label column"
            )
        check_classes_meet(log, self.counts > 0, self.predicted)
        if rows.shift is not None:
            in_stream = rows.shift == self.shift
            self.in_memory = take(rows, in_stream)
            self.others = take(rows, ~in_stream) if complete and not in_stream.all() else None
        return self

    @property
    def shift(self) -> int:
        """The shift of the stream itself: the smallest in the log."""
        return min(self.streams)

    @property
    def length(self) -> int:
        """Samples in the stream."""
        return self.streams[self.shift].rows

    @property
    def counts(self) -> Ints:
        """Number of samples of the stream per class."""
        return self.streams[self.shift].history.counts

    @property
    def largest_step(self) -> int:
        """Samples of the largest step of the stream."""
        return int(self.streams[self.shift].runs.max(initial=1))


def join(pieces: list[Piece]) -> Piece:
    """Concatenate pieces."""
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[str, Any] = {}
    for f in fields(Piece):
        values = [getattr(p, f.name) for p in pieces]
        joined[f.name] = None if values[0] is None else np.concatenate(values)
    return Piece(**joined)


def scan(log: PredictionLog, *, sort: bool = False, hold: int = IN_MEMORY) -> Scan:
    """Read the whole log once, check it, and keep up to ``hold`` rows in memory."""
    result, pieces, rows = Scan(), [], 0
    for piece in log.pieces():
        result.add(log, piece, rows, ordered=not sort)
        kept = rows
        rows += piece.label.size
        if rows <= hold:
            pieces.append(piece)
        elif sort:
            raise StreamgaugeError(
                f"{log.name} has more than {hold:,} rows, too many to sort here: sort it first"
            )
        elif kept <= max(hold, SAMPLE):
            pieces = [take(join([*pieces, piece]), slice(0, SAMPLE))]
    result.unlabelled, result.newest = log.unlabelled, log.newest
    in_memory = join(pieces)
    if sort and in_memory.time is not None:
        in_memory = take(in_memory, np.argsort(in_memory.time, kind="stable"))
    result.finish(log, in_memory, rows <= hold)
    if sort and result.in_memory.step is not None:
        check_order(log, "step", result.in_memory.step, None, 0)
    return result


def scan_first(log: PredictionLog, most: int) -> Scan:
    """The first answers at shift 0, up to ``most``, as a whole log in memory."""
    result, pieces, rows = Scan(), list[Piece](), 0
    for whole in log.pieces():
        piece = whole if whole.shift is None else take(whole, whole.shift == 0)
        piece = take(piece, slice(0, most - rows))
        if piece.label.size:
            result.add(log, piece, rows)
            pieces.append(piece)
            rows += piece.label.size
        if rows == most:
            break
    return result.finish(log, join(pieces), True)


def run_lengths(steps: Ints) -> Ints:
    """The number of samples of each step, in order."""
    edges = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    return np.diff(np.concatenate([[0], edges, [steps.size]]))


def join_runs(left: Ints, right: Ints) -> Ints:
    """Run lengths of two pieces that share a step."""
    return np.concatenate([left[:-1], [left[-1] + right[0]], right[1:]])


def check_classes_meet(
    log: PredictionLog, labels: NDArray[np.bool_], predicted: NDArray[np.bool_]
) -> None:
    """An error if no predicted class is ever a label: the two columns name classes differently."""
    shared = min(labels.size, predicted.size)
    if not predicted.any() or (labels[:shared] & predicted[:shared]).any():
        return
    names = list(log.classes.texts.values())
    of_labels, of_predictions = (
        ", ".join(f"'{names[code]}'" for code in np.flatnonzero(used)[:4].tolist())
        for used in (labels, predicted)
    )
    raise StreamgaugeError(
        f"no prediction is a class that occurs among the labels: column '{log.roles['label']}' has "
        f"{of_labels}, column '{log.roles['prediction']}' has {of_predictions}: write both the "
        "same way (upper and lower case differ), or name other columns with --label and "
        "--prediction"
    )


def check_order(
    log: PredictionLog, role: str, values: Ints, previous: int | None, row: int
) -> None:
    """An error if times or steps decrease, within `values` or from the `previous` one."""
    all_values = values if previous is None else np.concatenate([[previous], values])
    decreases = np.flatnonzero(all_values[1:] < all_values[:-1])
    if decreases.size == 0:
        return
    name = log.roles[role]
    if role == "step":
        raise StreamgaugeError(
            f"step numbers in column '{name}' decrease: sort the log by step, or give the step "
            "size with --step"
        )
    row_name = log.labelled_row_name(row + int(decreases[0]) + (previous is None))
    raise StreamgaugeError(
        f"times in column '{name}' go back at {row_name}: pass --sort to sort by time, or "
        "--time none to keep the order of the file"
    )


class BlockSums:
    """Hits and tries per block of the stream; positions after its end count in the last block."""

    def __init__(self, block: int, blocks: int) -> None:
        self.block = block
        self.hits, self.tries = np.zeros(blocks), np.zeros(blocks)

    def add(self, position: Ints, hit: NDArray[np.bool_]) -> None:
        """Add answers at these positions of the stream, correct or not."""
        blocks = self.hits.size
        index = np.minimum(position // self.block, blocks - 1)
        self.hits += np.bincount(index[hit], minlength=blocks)
        self.tries += np.bincount(index, minlength=blocks)

    def behind(self, first: int) -> tuple[Floats, Floats]:
        """Hits and tries of the scored blocks, from ``first`` on."""
        return self.hits[first:], self.tries[first:]

    def include(self, other: BlockSums) -> None:
        """Add the sums of other answers."""
        self.hits += other.hits
        self.tries += other.tries


@dataclass(frozen=True)
class CountRequest:
    """What the second pass counts."""

    windows: Floats
    shifts: Ints
    step: int | None
    """Samples per step; None: steps are read from the log."""
    ties: str
    block: int
    length: int
    classes: int
    class_order: Codes
    """The rank of each class, by which some tie rules go."""
    shift: int = 0
    """Of the stream itself. Sample j of a shift counts in the block of j minus the shift."""

    def counter(self) -> BlindCounter:
        return BlindCounter(
            self.windows,
            self.shifts,
            classes=self.classes,
            ties=self.ties,
            step=self.step or 1,
            block=self.block,
        )

    def codes(self, labels: Codes) -> Codes:
        """Class numbers in the order by which ties are broken."""
        return labels if self.ties == "recent" else self.class_order[labels]

    def sums(self) -> BlockSums:
        return BlockSums(self.block, -(-self.length // self.block))


class Tally:
    """Hits per block: of blind classifiers, of the model, and of the model per shift and age."""

    def __init__(self, request: CountRequest) -> None:
        self.request = request
        self.blind = request.counter()
        self.model = request.sums()
        self.classes = np.zeros((2, request.classes), np.int64)
        """Labels and answers per class, in the scored part."""
        self.at_shift: dict[int, BlockSums] = {}
        self.at_age: dict[int, BlockSums] = {}
        self.first = first_scored(self.model.hits.size) * request.block

    def add_answers(self, piece: Piece, start: int) -> None:
        """Add the labels and answers of the stream itself, and per age of the model if known."""
        position = np.arange(start, start + piece.label.size) - self.request.shift
        label, answer, age = piece.label, piece.prediction, piece.age
        keep = position >= 0 if answer is None else (position >= 0) & (answer >= 0)
        position, label = position[keep], label[keep]
        scored = position >= self.first
        size = self.request.classes
        self.classes[0] += np.bincount(label[scored], minlength=size)
        if answer is None:
            return
        answer = answer[keep]
        self.classes[1] += np.bincount(answer[scored], minlength=size)
        hit = answer == label
        self.model.add(position, hit)
        if age is not None:
            ages = age_bin(age[keep])
            for bin_ in np.unique(ages).tolist():
                sums = self.at_age.setdefault(bin_, self.request.sums())
                sums.add(position[ages == bin_], hit[ages == bin_])

    def add_shifted(self, others: Piece, start: int) -> None:
        """Add the model's answers at other shifts."""
        assert others.shift is not None
        assert others.prediction is not None
        for shift in np.unique(others.shift).tolist():
            at_shift = others.shift == shift
            prediction, label = others.prediction[at_shift], others.label[at_shift]
            # Rows of a shift are in stream order; the first ``shift`` samples have no row.
            position = start + np.arange(label.size) - self.request.shift
            keep = (prediction >= 0) & (position >= 0)
            sums = self.at_shift.setdefault(shift, self.request.sums())
            sums.add(position[keep], (prediction == label)[keep])


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


def tally(log: PredictionLog, scanned: Scan, request: CountRequest) -> Tally:
    """Count hits over the whole log."""
    counts = Tally(request)
    position = 0
    for piece, others in read_again(log, scanned):
        if request.shifts.size:
            counts.blind.feed(request.codes(piece.label), None if request.step else piece.step)
        counts.add_answers(piece, position)
        if others is not None and others.prediction is not None and others.label.size:
            counts.add_shifted(others, position)
        position += piece.label.size
    if request.shifts.size:
        counts.blind.finish()
    return counts
