"""The audit of a log: how much of its accuracy is possible without looking at any input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.blind import ReferenceLevels
from streamgauge.audit.counting import check_windows
from streamgauge.audit.durations import all_durations, seconds
from streamgauge.audit.intervals import influence, interval, run_error
from streamgauge.audit.log import Piece, PredictionLog
from streamgauge.audit.parallel import ROWS, ParallelMap, fits_in_memory, scan_pieces, tally_pieces
from streamgauge.audit.periods import burst_length, find_periods
from streamgauge.audit.repeats import (
    UNKNOWN_LEVEL,
    Level,
    NeighbourLevels,
    albums_of,
    blind_without_album,
    blind_without_user,
    level_from_answers,
    level_from_blocks,
    neighbour_accuracy,
)
from streamgauge.audit.shift import (
    LEAST_LABELS,
    block_size,
    count_in_time,
    from_counter,
    shift_grid,
    typical_step,
    window_grid,
    with_duration,
)
from streamgauge.audit.tally import IN_MEMORY, BlockSums, Scan, Tally, scan, tally
from streamgauge.audit.verdict import (
    MARGIN,
    BlindCounts,
    PairedHits,
    ShiftChoice,
    ShiftRule,
    bootstrap_length,
    choose_shift,
    pair_hits,
    plain_number,
    select_shifts,
)
from streamgauge.errors import StreamgaugeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHOWN_WINDOWS = (1, 3, 5, 10, 100, 1000, 10000, 100000)
# Longer streams use a coarser grid of windows and shifts, to limit the time.
LONG_STREAM = 5_000_000
MAX_SHIFT = 1 << 22


class ShiftedAccuracy(NamedTuple):
    """Accuracy of the model at a shift, with the blind accuracies at that shift."""

    shift: int
    accuracy: Level
    blind: float
    unlimited: float


@dataclass(frozen=True)
class WithoutRepeats:
    """Accuracies without other samples of the same user or album."""

    blind_album: Level = UNKNOWN_LEVEL
    blind_user: Level = UNKNOWN_LEVEL
    online_first: Level = UNKNOWN_LEVEL
    """The model on the first sample of every album, as scored by CLOC."""
    albums: int = 0
    users: int = 0


@dataclass(frozen=True)
class Audit:
    """Result of an audit. ``values`` are the values that conditions may use; NaN is unknown."""

    name: str
    columns: dict[str, str]
    guessed: list[str]
    samples: int
    classes: int
    step: float
    """Samples per step, on average."""
    levels: ReferenceLevels
    windows: Floats
    shown_shifts: Ints
    table: Floats
    """Blind accuracy [windows, shown shifts] over all samples that each cell can predict."""
    blind: Level
    """The blind classifier at shift 0, with a window chosen on earlier samples."""
    window: float
    choice: ShiftChoice
    online: Level = UNKNOWN_LEVEL
    online_scored: float = math.nan
    share: Level = UNKNOWN_LEVEL
    """Blind accuracy divided by online accuracy, on the same part of the stream."""
    where_blind_fails: Level = UNKNOWN_LEVEL
    """Accuracy of the model on samples where the blind classifier is wrong."""
    futures: list[ShiftedAccuracy] = field(default_factory=list)
    by: str = ""
    """Whether ``futures`` are per ``shift`` or per ``age``."""
    near_future: Level = UNKNOWN_LEVEL
    near_future_shift: float = math.nan
    blind_shifted: float = math.nan
    without: WithoutRepeats = field(default_factory=WithoutRepeats)
    neighbours: dict[str, NeighbourLevels] = field(default_factory=dict)
    over_time: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, float]:
        """Values by name, for conditions of ``--fail-if``."""
        return {
            "online": self.online.value,
            "blind": self.blind.value,
            "near_future": self.near_future.value,
            "blind_shifted": self.blind_shifted,
            "share": self.share.value,
            "majority": self.levels.majority,
            "constant": self.levels.constant,
            "uniform": self.levels.uniform,
            "squared": self.levels.squared,
            "where_blind_fails": self.where_blind_fails.value,
            "online_first": self.without.online_first.value,
            "blind_other_user": self.without.blind_user.value,
            "blind_other_album": self.without.blind_album.value,
            "shift": math.nan if self.choice.shift is None else float(self.choice.shift),
            "samples": float(self.samples),
            "classes": float(self.classes),
        }

    @property
    def words(self) -> list[str]:
        """The results, one sentence each."""
        from streamgauge.audit.words import sentences

        return sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """The result as numbers, lists and strings, for JSON."""

        def level_dict(level: Level) -> dict[str, Any] | None:
            if level.samples == 0:
                return None
            return {n: plain_number(v) for n, v in level._asdict().items()}

        return {
            "log": self.name,
            "columns": self.columns,
            "guessed": self.guessed,
            "words": self.words,
            "notes": self.notes,
            "samples": self.samples,
            "classes": self.classes,
            "step": plain_number(self.step),
            "values": {n: plain_number(v) for n, v in self.values.items()},
            "levels": {n: plain_number(v) for n, v in self.levels._asdict().items()},
            "blind": {
                "accuracy": level_dict(self.blind),
                "window": plain_number(self.window),
                "windows": [window_name(w) for w in self.windows],
                "shifts": self.shown_shifts.tolist(),
                "table": [[plain_number(v) for v in row] for row in self.table],
            },
            "shift": self.choice.to_dict(),
            "online": level_dict(self.online),
            "online_scored": plain_number(self.online_scored),
            "share": level_dict(self.share),
            "where_blind_fails": level_dict(self.where_blind_fails),
            "near_future": {
                "by": self.by or None,
                "accuracy": level_dict(self.near_future),
                "shift": plain_number(self.near_future_shift),
                "curve": [
                    {
                        "shift": f.shift,
                        "accuracy": level_dict(f.accuracy),
                        "blind": plain_number(f.blind),
                        "unlimited": plain_number(f.unlimited),
                    }
                    for f in self.futures
                ],
            },
            "without": {
                "blind_other_album": level_dict(self.without.blind_album),
                "blind_other_user": level_dict(self.without.blind_user),
                "online_first": level_dict(self.without.online_first),
                "albums": self.without.albums,
                "users": self.without.users,
            },
            "neighbours": {
                name: [
                    {
                        "window": plain_number(w) if np.isfinite(w) else "all",
                        "accuracy": level_dict(level),
                    }
                    for w, level in zip(neighbours.windows, neighbours.levels, strict=True)
                ]
                for name, neighbours in self.neighbours.items()
            },
            "over_time": {
                n: [plain_number(v) for v in values] for n, values in self.over_time.items()
            },
        }


def audit(
    log: Any,
    *,
    label: str | None = None,
    prediction: str | None = None,
    time: str | None = None,
    user: str | None = None,
    album: str | None = None,
    shift: str | None = None,
    age: str | None = None,
    step: int | str | None = None,
    features: Sequence[str] = (),
    shifts: Sequence[int | str] | None = None,
    windows: Sequence[float] | None = None,
    every: str | float | None = None,
    ties: str = "recent",
    margin: float = MARGIN,
    sort: bool = False,
    hold: int = IN_MEMORY,
    spread: ParallelMap | None = None,
    rows: int = ROWS,
) -> Audit:
    """Audit a log: how much of its accuracy could be had without looking at any input?

    ``log`` is a file (CSV, ARFF, Parquet, Arrow, NPZ, JSON lines), a folder of Parquet files, a
    mapping of names to arrays, or a data frame (pandas, polars, Arrow). It needs labels;
    predictions, times, users, albums, and the shift or the age of the model per prediction are used
    if the log has them. Columns are guessed from their names unless given; ``"none"`` leaves one
    out. ``shift`` is the column with the number of samples by which the model was behind; ``age``
    the same for logs with one answer per sample, by models of different age. ``step`` is the number
    of samples whose labels arrive together, or the column of step numbers. ``every`` is the time
    between samples, if it is constant and the log has no times.

    Logs of up to ``hold`` rows are kept in memory; longer logs are read twice, in pieces, and
    results that need all rows (users, inputs, durations) are left out with a note. Pieces of
    ``rows`` rows may be counted in parallel: ``spread`` calls a function for each piece (see
    `streamgauge.running.executors.cluster.spreading`); the result is the same.
    """
    columns = {"label": label, "prediction": prediction, "time": time, "user": user}
    columns |= {"album": album, "shift": shift, "age": age}
    size: int | None = None
    if isinstance(step, int) or (isinstance(step, str) and step.isdigit()):
        size = int(step)
        columns["step"] = "none"
        if size < 1:
            raise StreamgaugeError(f"step {size} is invalid: a step has 1 sample or more")
    else:
        columns["step"] = step
    opened = PredictionLog(log, features=features, **columns)
    if sort and "time" not in opened.roles:
        raise StreamgaugeError("there is no time column to sort by: name it with --time")
    count: Callable[..., Tally] = tally
    if spread is None or fits_in_memory(opened, hold, sort):
        scanned = scan(opened, sort=sort, hold=hold)
    else:
        scanned, edges, histories = scan_pieces(opened, spread, rows)
        count = partial(
            tally_pieces, edges=edges, histories=histories, parallel_map=spread, rows=rows
        )
    if scanned.length < LEAST_LABELS:
        raise StreamgaugeError(
            f"{opened.name} has {scanned.length} labels, too few for an audit: "
            f"{LEAST_LABELS} or more are needed"
        )
    if size is None and "step" not in opened.roles:
        size = 1
    rule = ShiftRule(margin)
    return _Auditor(opened, scanned, count, size, windows, shifts, every, ties, rule).run()


class _Auditor:
    """The steps of one audit, in order."""

    def __init__(
        self,
        log: PredictionLog,
        scanned: Scan,
        count: Callable[..., Tally],
        size: int | None,
        windows: Sequence[float] | None,
        shifts: Sequence[int | str] | None,
        every: str | float | None,
        ties: str,
        rule: ShiftRule,
    ) -> None:
        self.log, self.scanned, self.count, self.ties = log, scanned, count, ties
        self.size = size
        # Step size, or the step number of every row in memory.
        self.row_steps: Any = size if size is not None else scanned.in_memory.step
        self.length = scanned.length
        self.every = None if every is None else seconds(every)
        self.notes: list[str] = []
        self.rule = replace(rule, parts=max(1, min(rule.parts, self.length // 5_000)))
        self.step = (
            float(size)
            if size is not None
            else float(typical_step(step_numbers(scanned.in_memory), scanned.in_memory.label.size))
        )
        window_lengths = window_grid(int(self.rule.prefix * self.length))
        if self.length > LONG_STREAM:
            window_lengths = window_lengths[
                np.isinf(window_lengths) | np.isin(window_lengths, 10.0 ** np.arange(9))
            ]
        if windows is not None:
            window_lengths = check_windows(windows)
            if not np.isinf(window_lengths).any():
                window_lengths = np.append(window_lengths, math.inf)
        self.windows = window_lengths
        self.requested_shifts = shifts
        if not scanned.complete:
            self.notes.append(
                "The log is too long for memory: it was read in pieces, periods were searched only "
                "in its first rows, and users and inputs were left out."
            )
        if scanned.unpredicted:
            self.notes.append(
                f"{scanned.unpredicted:,} rows have no prediction and are not scored."
            )

    def run(self) -> Audit:
        rows, log = self.scanned.in_memory, self.log
        times = rows.time if self.scanned.complete else None
        self.periods, curve = find_periods(rows.label, times, self.every, self.length // 20)
        self.burst = burst_length(curve)
        as_durations = self.requested_shifts is not None and all_durations(self.requested_shifts)
        grid = self._shift_grid(as_durations)
        logged_shifts = np.array([s for s in self.scanned.shifts if 0 < s < self.length], np.int64)
        shifts = np.unique(np.concatenate([grid, logged_shifts, [0]]))
        counted = self.count(
            log,
            self.scanned,
            windows=self.windows,
            shifts=shifts,
            step=self.size,
            ties=self.ties,
            block=block_size(self.length),
        )
        all_counts = from_counter(counted.blind)
        counts = select_shifts(all_counts, np.isin(all_counts.shifts, grid))
        if as_durations:
            choice = self._choose_duration()
        else:
            choice = choose_shift(
                counts,
                burst=self.burst,
                periods=self.periods,
                rule=self.rule,
                step=round(self.step),
            )
            choice = with_duration(choice, times, self.every)
        # As a reference level, the blind classifier may also use unlimited history.
        self.paired = pair_hits(all_counts, self.rule.prefix, unlimited=True)
        result = self._label_results(all_counts, choice)
        if "prediction" in log.roles:
            result = self._model_results(result, all_counts, counted)
        if self.scanned.complete:
            result = self._user_results(result)
            result = self._input_results(result)
        return result

    def _shift_grid(self, as_durations: bool) -> Ints:
        if self.requested_shifts is not None and not as_durations:
            longest = self.length // 20
            requested = np.unique([int(s) for s in self.requested_shifts]).astype(np.int64)
            grid = requested[(requested >= 0) & (requested <= longest)]
            if grid.size == 0:
                raise StreamgaugeError(
                    f"every shift is beyond a twentieth of the {self.length:,} labels: give "
                    "shorter shifts"
                )
            return grid
        if self.length <= LONG_STREAM:
            return shift_grid(self.length, self.periods, round(self.step))
        grid = shift_grid(self.length, self.periods, round(self.step), octave=2)
        return grid[grid <= MAX_SHIFT]

    def _choose_duration(self) -> ShiftChoice:
        rows = self.scanned.in_memory
        if rows.time is None or not self.scanned.complete:
            raise StreamgaugeError(
                "shifts are durations but "
                + ("the log is too long for memory" if rows.time is not None else "it has no times")
                + ": give the shifts as numbers of samples"
            )
        assert self.requested_shifts is not None
        counts = count_in_time(
            rows.label,
            len(self.log.classes.numbers),
            rows.time,
            self.requested_shifts,
            self.windows,
            self.row_steps,
            self.ties,
        )
        return choose_shift(
            counts, burst=self.burst, periods=self.periods, rule=self.rule, unit="seconds"
        )

    def _label_results(self, counts: BlindCounts, choice: ShiftChoice) -> Audit:
        """Results from the labels alone."""
        hits, tries = counts.hits.sum(axis=0), counts.tries.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            table = np.where(tries > 0, hits / tries, np.nan)
        history = int(np.flatnonzero(np.isinf(counts.windows))[0])
        # Sorted, so that the sum does not depend on the order of class numbers.
        frequencies = np.sort(self.scanned.counts[self.scanned.counts > 0]) / self.length
        at_zero = int(np.flatnonzero(counts.shifts == 0)[0])
        levels = ReferenceLevels(
            float(table[history, at_zero]),
            float(frequencies.max()),
            1 / frequencies.size,
            float(np.sum(frequencies**2)),
        )
        window_index = np.flatnonzero(np.isin(counts.windows, [*SHOWN_WINDOWS, math.inf]))
        shift_index = spaced_shifts(counts.shifts, 7)
        paired = self.paired
        run = bootstrap_length(counts, 0.0, paired.window_hits.shape[0], self.burst)
        blind = level_from_blocks(paired.window_hits[:, at_zero], paired.tries[:, at_zero], run)
        return Audit(
            name=self.log.name,
            columns=dict(self.log.roles),
            guessed=list(self.log.guessed),
            samples=self.length,
            classes=int(frequencies.size),
            step=self.step,
            levels=levels,
            windows=counts.windows[window_index],
            shown_shifts=counts.shifts[shift_index].astype(np.int64),
            table=table[np.ix_(window_index, shift_index)],
            blind=blind,
            window=float(paired.windows[at_zero]),
            choice=choice,
            over_time=time_course(counts, paired, at_zero, None),
            notes=self.notes,
        )

    def _model_results(self, result: Audit, counts: BlindCounts, counted: Tally) -> Audit:
        """Results from the model's answers, compared with the blind classifier."""
        blocks = counts.hits.shape[0]
        paired = self.paired
        at_zero = int(np.flatnonzero(counts.shifts == 0)[0])
        hits, tries = counted.model.at(counts.block, blocks)
        model_shift = self.scanned.shift
        if tries.sum() == 0:
            raise StreamgaugeError(
                f"column '{self.log.roles['prediction']}' contains no predictions: name another "
                "column, or leave it out with --prediction none"
            )
        run = bootstrap_length(counts, 0.0, blocks, self.burst)
        online = level_from_blocks(hits, tries, run)
        at_shift = dict(counted.at_shift)
        if model_shift > 0:
            # All answers are at a shift above 0: there is no online accuracy.
            at_shift[model_shift] = counted.model
            result = replace(result, notes=[*result.notes, "No answer in this log is at shift 0."])
        else:
            first = paired.first
            blind = paired.window_hits[:, at_zero], paired.tries[:, at_zero]
            model = hits[first:], tries[first:]
            result = replace(
                result,
                online=online,
                online_scored=level_from_blocks(*model, run).value,
                share=share_of(blind, model, run),
                where_blind_fails=self._where_blind_fails(result.window),
                over_time=time_course(counts, paired, at_zero, model),
            )
        if counted.at_age and not at_shift:
            return self._future_results(result, counts, counted.at_age, "age")
        return self._future_results(result, counts, at_shift, "shift") if at_shift else result

    def _where_blind_fails(self, window: float) -> Level:
        """Accuracy of the model on samples where the blind classifier is wrong."""
        rows = self.scanned.in_memory
        if not self.scanned.complete or rows.prediction is None:
            return UNKNOWN_LEVEL
        sample_number = np.arange(rows.label.size)
        blind = blind_without_album(rows.label, sample_number, window, self.row_steps)
        scored = (blind == 0) & (rows.prediction >= 0)
        scored[: int(self.rule.prefix * self.length)] = False
        return level_from_answers((rows.prediction == rows.label)[scored], self.burst)

    def _future_results(
        self, result: Audit, counts: BlindCounts, sums: Mapping[int, BlockSums], by: str
    ) -> Audit:
        blocks = counts.hits.shape[0]
        paired = self.paired
        futures = []
        for shift in sorted(sums):
            hits, tries = sums[shift].at(counts.block, blocks)
            run = bootstrap_length(counts, float(shift), blocks, self.burst)
            nearest = int(np.argmin(np.abs(counts.shifts - shift)))
            total = paired.tries[:, nearest].sum()
            blind = paired.window_hits[:, nearest].sum() / total
            unlimited = paired.history_hits[:, nearest].sum() / total
            futures.append(
                ShiftedAccuracy(
                    shift, level_from_blocks(hits, tries, run), float(blind), float(unlimited)
                )
            )
        choice = result.choice
        chosen_shift = choice.shift if choice.unit == "samples" else None
        far_enough = [f for f in futures if chosen_shift is not None and f.shift >= chosen_shift]
        if by == "age" and far_enough:
            total_hits, total_tries = np.zeros(blocks), np.zeros(blocks)
            for f in far_enough:
                hits, tries = sums[f.shift].at(counts.block, blocks)
                total_hits, total_tries = total_hits + hits, total_tries + tries
            run = bootstrap_length(counts, float(far_enough[0].shift), blocks, self.burst)
            reported = far_enough[0]._replace(
                accuracy=level_from_blocks(total_hits, total_tries, run)
            )
        else:
            reported = far_enough[0] if far_enough else futures[-1]
        return replace(
            result,
            futures=futures,
            by=by,
            near_future=reported.accuracy,
            near_future_shift=float(reported.shift),
            blind_shifted=reported.blind,
        )

    def _user_results(self, result: Audit) -> Audit:
        """Accuracies without other samples of the same user or album."""
        rows = self.scanned.in_memory
        if rows.user is None and rows.album is None:
            return result
        groups = rows.album if rows.album is not None else rows.user
        albums = albums_of(np.maximum(np.asarray(groups), -1) + 1)
        first = int(self.rule.prefix * self.length)
        scored = np.arange(self.length) >= first
        window = result.window
        album_outcomes = blind_without_album(rows.label, albums, window, self.row_steps)
        predicted = (album_outcomes >= 0) & scored
        without = WithoutRepeats(
            blind_album=level_from_answers(album_outcomes[predicted] == 1, self.burst),
            albums=int(albums[-1]) + 1,
        )
        if rows.user is not None:
            length = int(min(window, 1000))
            targets, outcomes = blind_without_user(
                rows.label, np.maximum(rows.user, -1) + 1, length, self.row_steps
            )
            usable = (outcomes >= 0) & (targets >= first)
            burst_targets = max(1, self.burst * targets.size // self.length)
            without = replace(
                without,
                blind_user=level_from_answers(outcomes[usable] == 1, burst_targets),
                users=int(np.unique(rows.user).size),
            )
        if rows.prediction is not None:
            is_first = np.concatenate([[True], albums[1:] != albums[:-1]])
            scored_first = is_first & (rows.prediction >= 0)
            correct = (rows.prediction == rows.label)[scored_first]
            without = replace(without, online_first=level_from_answers(correct, self.burst))
        return replace(result, without=without)

    def _input_results(self, result: Audit) -> Audit:
        """Nearest-neighbour accuracies, if the log has inputs."""
        rows = self.scanned.in_memory
        if rows.features is None:
            return result
        common: dict[str, Any] = {"step": self.row_steps, "burst": self.burst}
        neighbours = {"next sample": neighbour_accuracy(rows.features, rows.label, **common)}
        shift = result.choice.shift
        if shift and result.choice.unit == "samples":
            name = f"{int(shift):,} samples later"
            neighbours[name] = neighbour_accuracy(
                rows.features, rows.label, shift=int(shift), **common
            )
        if rows.user is not None:
            users = np.maximum(rows.user, -1) + 1
            neighbours["same user left out"] = neighbour_accuracy(
                rows.features, rows.label, users=users, **common
            )
        return replace(result, neighbours=neighbours)


def window_name(window: float) -> int | str:
    """A window for JSON."""
    return int(window) if math.isfinite(window) else "all"


def step_numbers(piece: Piece) -> Ints:
    """Step number per row; every row is a step if the log has no steps."""
    return np.arange(piece.label.size) if piece.step is None else piece.step


def spaced_shifts(shifts: Floats, count: int) -> Ints:
    """Indices of a few shifts for a table: 0, and others evenly spaced on a logarithmic scale."""
    targets = np.concatenate([[0], np.geomspace(1, max(1.0, shifts[-1]), count - 1)])
    return np.unique([int(np.argmin(np.abs(shifts - target))) for target in targets])


def share_of(blind: tuple[Floats, Floats], model: tuple[Floats, Floats], run: int) -> Level:
    """Blind accuracy divided by model accuracy, with a paired interval (delta method)."""
    if blind[1].sum() == 0 or model[0].sum() == 0:
        return UNKNOWN_LEVEL
    blind_accuracy, model_accuracy = (h.sum() / t.sum() for h, t in (blind, model))
    ratio = float(blind_accuracy / model_accuracy)
    influences = influence(*blind) / model_accuracy - influence(*model) * ratio / model_accuracy
    error, blocks = run_error(influences, run)
    low, high = interval(ratio, error, blocks)
    return Level(ratio, max(0.0, low), high, int(model[1].sum()))


def time_course(
    counts: BlindCounts, paired: PairedHits, at_zero: int, model: tuple[Floats, Floats] | None
) -> dict[str, list[float]]:
    """Accuracies in up to 100 consecutive parts of the scored stream."""
    rows = paired.window_hits.shape[0]
    edges = np.unique(np.linspace(0, rows, min(100, rows) + 1).astype(int))[:-1]

    def accuracy(hits: Floats, tries: Floats) -> list[float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracies = np.add.reduceat(hits, edges) / np.add.reduceat(tries, edges)
        return [float(v) for v in accuracies]

    curves = {
        "position": [float((paired.first + edge) * counts.block) for edge in edges],
        "blind": accuracy(paired.window_hits[:, at_zero], paired.tries[:, at_zero]),
        "majority": accuracy(paired.history_hits[:, at_zero], paired.tries[:, at_zero]),
    }
    if model is not None:
        curves["online"] = accuracy(*model)
    return curves
