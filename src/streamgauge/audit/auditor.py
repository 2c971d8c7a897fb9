"""The audit of a log: how much of its accuracy is possible without looking at any input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamgauge.audit.blind import ReferenceLevels, levels_from_counts
from streamgauge.audit.counting import block_size
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.parallel import ROWS, ParallelMap, fits_in_memory, scan_pieces, tally_pieces
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
from streamgauge.audit.shift import LEAST_LABELS, LabelStream
from streamgauge.audit.tally import IN_MEMORY, BlockSums, CountRequest, Scan, Tally, scan, tally
from streamgauge.audit.verdict import (
    MARGIN,
    ShiftChoice,
    ShiftRule,
    bootstrap_length,
    pair_hits,
    plain_number,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import seconds
from streamgauge.history.intervals import influence, interval, run_error
from streamgauge.history.known import Floats, Ints

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


class Family(NamedTuple):
    """The blind family at the shift (or age) of the log, on the samples where it is scored."""

    level: Level = UNKNOWN_LEVEL
    name: str = ""
    """The forecaster chosen last, for sentences: "the last label", "the label 24 back"."""


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
    family: Family = field(default_factory=Family)
    last_label: float = math.nan
    """Accuracy of the last known label, on the samples where the family is scored."""
    kappa: float = math.nan
    """Agreement beyond chance (Cohen)."""
    kappa_t: float = math.nan
    """Agreement beyond that of the last known label (Bifet et al. 2015)."""
    kappa_m: float = math.nan
    """Agreement beyond that of the majority so far (Bifet et al. 2015)."""
    kappa_combined: float = math.nan
    """Geometric mean of ``kappa`` and ``kappa_t``, each at least 0 (Žliobaitė et al. 2015)."""
    bits: Any = None
    """What history explains and the answers add (`Explanation`), at the log's own shift or age."""
    bits_at: list[tuple[int, Any]] = field(default_factory=list)
    """The same at every logged shift or age."""
    unlabelled: int = 0
    """Rows whose label has not arrived."""
    tolerance_bits: float = 0.02
    answer: str = ""
    """Do the answers add to history: "yes", "no", "cannot tell", or "" without predictions."""

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
            "last_label": self.last_label,
            "kappa": self.kappa,
            "kappa_t": self.kappa_t,
            "kappa_m": self.kappa_m,
            "kappa_combined": self.kappa_combined,
            "shift_low": getattr(self.choice, "low", math.nan),
            "shift_high": getattr(self.choice, "high", math.nan),
            "unlabelled": float(self.unlabelled),
            "base_bits": self._bits("base", "value"),
            "history_bits": self._bits("history", "value"),
            "remaining_bits": self._bits("remaining", "value"),
            "added_bits": self._bits("added", "value"),
            "added_bits_low": self._bits("added", "low"),
            "added_bits_high": self._bits("added", "high"),
            "placebo_bits": self._bits("placebo", "value"),
            "placebo_bits_high": self._bits("placebo", "high"),
        }

    def _bits(self, figure: str, part: str) -> float:
        found = getattr(self.bits, figure, None)
        return math.nan if found is None else float(getattr(found, part))

    @property
    def words(self) -> list[str]:
        """The results, one sentence each."""
        from streamgauge.audit.words import sentences

        return sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """The result as numbers, lists and strings, for JSON."""
        content = {
            "log": self.name,
            "columns": self.columns,
            "guessed": self.guessed,
            "words": self.words,
            "notes": self.notes,
            "samples": self.samples,
            "classes": self.classes,
            "step": self.step,
            "values": self.values,
            "levels": self.levels,
            "blind": {
                "accuracy": self.blind,
                "window": self.window,
                "windows": [window_name(w) for w in self.windows],
                "shifts": self.shown_shifts,
                "table": self.table,
            },
            "shift": None,
            "online": self.online,
            "online_scored": self.online_scored,
            "share": self.share,
            "where_blind_fails": self.where_blind_fails,
            "near_future": {
                "by": self.by or None,
                "accuracy": self.near_future,
                "shift": self.near_future_shift,
                "curve": self.futures,
            },
            "without": {
                "blind_other_album": self.without.blind_album,
                "blind_other_user": self.without.blind_user,
                "online_first": self.without.online_first,
                "albums": self.without.albums,
                "users": self.without.users,
            },
            "neighbours": {
                name: [
                    {"window": window_name(w), "accuracy": level}
                    for w, level in zip(neighbours.windows, neighbours.levels, strict=True)
                ]
                for name, neighbours in self.neighbours.items()
            },
            "over_time": self.over_time,
        }
        result: dict[str, Any] = _for_json(content)
        return result | {"shift": self.choice.to_dict()}


def _for_json(value: Any) -> Any:
    """Numbers as JSON has them, arrays as lists, and a level without samples as None."""
    if isinstance(value, Level) and value.samples == 0:
        return None
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _for_json(v) for name, v in value.items()}
    if isinstance(value, list | np.ndarray):
        return [_for_json(v) for v in value]
    return plain_number(float(value)) if isinstance(value, int | float | np.number) else value


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
    label_time: str | None = None,
    label_delay: int | str | None = None,
    logp: str | None = None,
    confidence: str | None = None,
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
    between samples, if it is constant and the log has no times. ``label_time`` is the column with
    the time at which each label became known; ``label_delay`` says the same for all rows, as a
    number of samples or a duration (``"3d"``). ``logp`` is the column with the natural log of the
    probability of the true label, ``confidence`` that with the probability of the answer. Rows
    without a label are left out and counted.

    Logs of up to ``hold`` rows are kept in memory; longer logs are read twice, in pieces, and
    results that need all rows (users, inputs, durations) are left out with a note. Pieces of
    ``rows`` rows may be counted in parallel: ``spread`` calls a function for each piece (see
    `streamgauge.running.executors.cluster.spreading`); the result is the same.
    """
    columns = {"label": label, "prediction": prediction, "time": time, "user": user}
    columns |= {"album": album, "shift": shift, "age": age}
    columns |= {"label_time": label_time, "logp": logp, "confidence": confidence}
    size: int | None = None
    if isinstance(step, int) or (isinstance(step, str) and step.isdigit()):
        size = int(step)
        columns["step"] = "none"
        if size < 1:
            raise StreamgaugeError(f"step {size} is invalid: a step has 1 sample or more")
    else:
        columns["step"] = step
    opened = PredictionLog(log, features=features, **columns)
    if label_delay is not None:
        opened.delay_labels(label_delay, None if every is None else seconds(every))
    if sort and "time" not in opened.roles:
        raise StreamgaugeError("there is no time column to sort by: name it with --time")
    count: Callable[..., Tally] = tally
    if spread is None or fits_in_memory(opened, hold, sort):
        scanned = scan(opened, sort=sort, hold=hold)
    else:
        scanned = scan_pieces(opened, spread, rows)
        count = partial(tally_pieces, parallel_map=spread, rows=rows)
    if scanned.length < LEAST_LABELS:
        raise StreamgaugeError(
            f"{opened.name} has {scanned.length} labels, too few for an audit: "
            f"{LEAST_LABELS} or more are needed"
        )
    if size is None and "step" not in opened.roles:
        size = 1
    # Parts of the stream for which a shift is chosen have 5,000 samples or more.
    rule = ShiftRule(margin, parts=max(1, min(ShiftRule.parts, scanned.length // 5_000)))
    auditor = _Auditor(opened, scanned, size, None if every is None else seconds(every), ties, rule)
    return auditor.run(count, windows, shifts)


class _Auditor:
    """The steps of one audit, in order; each adds to `result`."""

    def __init__(
        self,
        log: PredictionLog,
        scanned: Scan,
        size: int | None,
        every: float | None,
        ties: str,
        rule: ShiftRule,
    ) -> None:
        self.log, self.scanned, self.size, self.rule = log, scanned, size, rule
        self.rows, self.length = scanned.in_memory, scanned.length
        no_clock = (
            "the log is too long for memory:" if self.rows.time is not None else "it has no times:"
        )
        self.stream = LabelStream(
            self.rows.label,
            len(log.classes.numbers),
            self.length,
            np.asarray(self.rows.step) if size is None else size,
            ties,
            self.rows.time if scanned.complete else None,
            every,
            no_clock,
        )
        self.notes: list[str] = [*log.notes, *row_notes(log, scanned)]
        if not scanned.complete:
            self.notes.append(
                "The log is too long for memory: it was read in pieces, periods were searched only "
                "in its first rows, and users and inputs were left out."
            )
        self.result: dict[str, Any] = {"notes": self.notes, "unlabelled": scanned.unlabelled}

    def run(
        self,
        count: Callable[..., Tally],
        windows: Sequence[float] | None,
        requested: Sequence[int | str] | None,
    ) -> Audit:
        log, stream, long = self.log, self.stream, self.length > LONG_STREAM
        window_lengths = stream.windows(windows, self.rule.prefix, coarse=long)
        durations = stream.durations(requested)
        if durations is None and requested is not None:
            grid = stream.shifts(requested)
        else:
            grid = stream.shifts(None, octave=2 if long else 4)
            grid = grid[grid <= MAX_SHIFT] if long else grid
        logged_shifts = [s for s in self.scanned.streams if 0 < s < self.length]
        request = CountRequest(
            windows=window_lengths,
            shifts=np.unique([*grid, *logged_shifts, 0]),
            step=self.size,
            ties=stream.ties,
            block=block_size(self.length),
            length=self.length,
            classes=stream.classes,
            class_order=log.classes.sorted_places(),
        )
        counted = count(log, self.scanned, request)
        self.counts = counted.blind.counts
        if durations is None:
            counts = self.counts.at(np.isin(self.counts.shifts, grid))
        else:
            counts = stream.count_in_time(durations, window_lengths)
        self.choice = stream.choose(counts, self.rule)
        # As a reference level, the blind classifier may also use unlimited history.
        self.paired = pair_hits(self.counts, self.rule.prefix, unlimited=True)
        self.at_zero = int(np.flatnonzero(self.counts.shifts == 0)[0])
        self.blind = self.paired.window_hits[:, self.at_zero], self.paired.tries[:, self.at_zero]
        self._label_results()
        if "prediction" in log.roles:
            self._model_results(counted)
        if self.scanned.complete:
            self._user_results()
            self._input_results()
        return Audit(**self.result)

    def _bootstrap_length(self, shift: int = 0, blocks: int | None = None) -> int:
        blocks = self.counts.hits.shape[0] if blocks is None else blocks
        return bootstrap_length(self.counts, float(shift), blocks, self.stream.burst)

    def _label_results(self) -> None:
        """Results from the labels alone."""
        counts, at_zero = self.counts, self.at_zero
        hits, tries = counts.hits.sum(axis=0), counts.tries.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            table = np.where(tries > 0, hits / tries, np.nan)
        history = int(np.flatnonzero(np.isinf(counts.windows))[0])
        window_index = np.flatnonzero(np.isin(counts.windows, [*SHOWN_WINDOWS, math.inf]))
        shift_index = spaced_shifts(counts.shifts, 7)
        # Sorted, so that sums do not depend on the order of class numbers.
        class_counts = np.sort(self.scanned.counts)
        self.result |= {
            "name": self.log.name,
            "columns": dict(self.log.roles),
            "guessed": list(self.log.guessed),
            "samples": self.length,
            "classes": int(np.count_nonzero(class_counts)),
            "step": float(self.stream.samples_per_step),
            "levels": levels_from_counts(float(table[history, at_zero]), class_counts),
            "windows": counts.windows[window_index],
            "shown_shifts": counts.shifts[shift_index].astype(np.int64),
            "table": table[np.ix_(window_index, shift_index)],
            "blind": level_from_blocks(
                *self.blind, self._bootstrap_length(blocks=self.blind[0].size)
            ),
            "window": float(self.paired.windows[at_zero]),
            "choice": self.choice,
            "over_time": self._time_course(),
        }

    def _model_results(self, counted: Tally) -> None:
        """Results from the model's answers, compared with the blind classifier."""
        hits, tries = counted.model.hits, counted.model.tries
        if tries.sum() == 0:
            raise StreamgaugeError(
                f"column '{self.log.roles['prediction']}' contains no predictions: name another "
                "column, or leave it out with --prediction none"
            )
        at_shift = dict(counted.at_shift)
        if self.scanned.shift > 0:
            # All answers are at a shift above 0: there is no online accuracy.
            at_shift[self.scanned.shift] = counted.model
            self.notes.append("No answer in this log is at shift 0.")
        else:
            run, first = self._bootstrap_length(), self.paired.first
            model = hits[first:], tries[first:]
            self.result |= {
                "online": level_from_blocks(hits, tries, run),
                "online_scored": level_from_blocks(*model, run).value,
                "share": share_of(self.blind, model, run),
                "where_blind_fails": self._where_blind_fails(),
                "over_time": self._time_course(model),
            }
        if at_shift or counted.at_age:
            self._future_results(at_shift or counted.at_age, "shift" if at_shift else "age")

    def _where_blind_fails(self) -> Level:
        """Accuracy of the model on samples where the blind classifier is wrong."""
        rows = self.rows
        if not self.scanned.complete or rows.prediction is None:
            return UNKNOWN_LEVEL
        sample_number = np.arange(rows.label.size)
        window = self.result["window"]
        blind = blind_without_album(rows.label, sample_number, window, self.stream.step)
        scored = (blind == 0) & (rows.prediction >= 0)
        scored[: int(self.rule.prefix * self.length)] = False
        return level_from_answers((rows.prediction == rows.label)[scored], self.stream.burst)

    def _future_results(self, sums: Mapping[int, BlockSums], by: str) -> None:
        """Accuracies by shift or age of the model, and the one to report."""
        paired, choice = self.paired, self.choice
        futures = []
        for shift in sorted(sums):
            nearest = int(np.argmin(np.abs(self.counts.shifts - shift)))
            total = paired.tries[:, nearest].sum()
            futures.append(
                ShiftedAccuracy(
                    shift,
                    self._accuracy_at(shift, [sums[shift]]),
                    float(paired.window_hits[:, nearest].sum() / total),
                    float(paired.history_hits[:, nearest].sum() / total),
                )
            )
        chosen_shift = choice.shift if choice.unit == "samples" else None
        far_enough = [f for f in futures if chosen_shift is not None and f.shift >= chosen_shift]
        reported = far_enough[0] if far_enough else futures[-1]
        if by == "age" and far_enough:
            older = [sums[f.shift] for f in far_enough]
            reported = reported._replace(accuracy=self._accuracy_at(reported.shift, older))
        self.result |= {
            "futures": futures,
            "by": by,
            "near_future": reported.accuracy,
            "near_future_shift": float(reported.shift),
            "blind_shifted": reported.blind,
        }

    def _accuracy_at(self, shift: int, sums: Sequence[BlockSums]) -> Level:
        hits, tries = (
            np.sum([s.hits for s in sums], axis=0),
            np.sum([s.tries for s in sums], axis=0),
        )
        return level_from_blocks(hits, tries, self._bootstrap_length(shift))

    def _user_results(self) -> None:
        """Accuracies without other samples of the same user or album."""
        rows, burst = self.rows, self.stream.burst
        if rows.user is None and rows.album is None:
            return
        groups = rows.album if rows.album is not None else rows.user
        albums = albums_of(np.maximum(np.asarray(groups), -1) + 1)
        first = int(self.rule.prefix * self.length)
        window = self.result["window"]
        outcomes = blind_without_album(rows.label, albums, window, self.stream.step)[first:]
        without = WithoutRepeats(
            blind_album=level_from_answers(outcomes[outcomes >= 0] == 1, burst),
            albums=int(albums[-1]) + 1,
        )
        if rows.user is not None:
            targets, outcomes = blind_without_user(
                rows.label, np.maximum(rows.user, -1) + 1, int(min(window, 1000)), self.stream.step
            )
            usable = (outcomes >= 0) & (targets >= first)
            burst_targets = max(1, burst * targets.size // self.length)
            without = replace(
                without,
                blind_user=level_from_answers(outcomes[usable] == 1, burst_targets),
                users=int(np.unique(rows.user).size),
            )
        if rows.prediction is not None:
            is_first = np.concatenate([[True], albums[1:] != albums[:-1]])
            correct = (rows.prediction == rows.label)[is_first & (rows.prediction >= 0)]
            without = replace(without, online_first=level_from_answers(correct, burst))
        self.result["without"] = without

    def _input_results(self) -> None:
        """Nearest-neighbour accuracies, if the log has inputs."""
        rows = self.rows
        if rows.features is None:
            return
        options: dict[str, dict[str, Any]] = {"next sample": {}}
        shift = self.choice.shift
        if shift and self.choice.unit == "samples":
            options[f"{int(shift):,} samples later"] = {"shift": int(shift)}
        if rows.user is not None:
            options["same user left out"] = {"users": np.maximum(rows.user, -1) + 1}
        common: dict[str, Any] = {"step": self.stream.step, "burst": self.stream.burst}
        self.result["neighbours"] = {
            name: neighbour_accuracy(rows.features, rows.label, **common, **option)
            for name, option in options.items()
        }

    def _time_course(self, model: tuple[Floats, Floats] | None = None) -> dict[str, list[float]]:
        """Accuracies in up to 100 consecutive parts of the scored stream."""
        paired, tries = self.paired, self.blind[1]
        edges = np.unique(np.linspace(0, tries.size, min(100, tries.size) + 1).astype(int))[:-1]
        history = paired.history_hits[:, self.at_zero]
        curves = {"blind": self.blind, "majority": (history, tries)}
        if model is not None:
            curves["online"] = model
        course = {"position": [float((paired.first + e) * self.counts.block) for e in edges]}
        for name, (hits, scored) in curves.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                accuracy = np.add.reduceat(hits, edges) / np.add.reduceat(scored, edges)
            course[name] = accuracy.tolist()
        return course


def row_notes(log: PredictionLog, scanned: Scan) -> list[str]:
    """What the reader of an audit should know about its rows."""
    notes = []
    if scanned.unlabelled:
        last = f", {scanned.newest:,} of them at the end of the log" if scanned.newest else ""
        notes.append(f"{scanned.unlabelled:,} rows have no label{last}: they are left out.")
    if scanned.unpredicted:
        notes.append(f"{scanned.unpredicted:,} rows have no prediction and are not scored.")
    if scanned.early:
        notes.append(
            f"{scanned.early:,} labels were known before their answer was given, by the times in "
            f"column '{log.roles['label_time']}'."
        )
    if -1 in log.classes.numbers and 0 in log.classes.numbers:
        notes.append("-1 is counted as a class: drop its rows if it stands for an unknown label.")
    return notes


def window_name(window: float) -> int | str:
    """A window for JSON."""
    return int(window) if math.isfinite(window) else "all"


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
