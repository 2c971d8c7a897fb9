"""The audit of a log: is the reported number believable?"""

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
from streamgauge.audit.log import Log, Piece
from streamgauge.audit.periods import burst_length, find_periods
from streamgauge.audit.repeats import (
    NOTHING,
    Level,
    NeighbourLevels,
    albums_of,
    blind_without_album,
    blind_without_user,
    level,
    level_of,
    neighbour_accuracy,
)
from streamgauge.audit.shift import (
    LEAST,
    block_size,
    count_in_time,
    from_counter,
    shift_grid,
    typical_step,
    window_grid,
    with_duration,
)
from streamgauge.audit.spread import ROWS, Spread, scan_pieces, short, tally_pieces
from streamgauge.audit.tally import HELD, BlockSums, Scan, Tally, scan, tally
from streamgauge.audit.verdict import (
    MARGIN,
    Counts,
    Paired,
    Rule,
    ShiftChoice,
    decide,
    pair,
    plain_number,
    run_length,
    some_shifts,
)
from streamgauge.errors import StreamgaugeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHOWN_WINDOWS = (1, 3, 5, 10, 100, 1000, 10000, 100000)
# A stream longer than this is looked at with a coarser grid, so that time stays in proportion.
LONG = 5_000_000
FURTHEST = 1 << 22


class Future(NamedTuple):
    """Accuracy of a model that is some shift behind, beside the blind levels at that shift."""

    shift: int
    accuracy: Level
    blind: float
    unlimited: float


@dataclass(frozen=True)
class Without:
    """What is left without the same user, or the same album."""

    blind_album: Level = NOTHING
    blind_user: Level = NOTHING
    online_first: Level = NOTHING
    """The model on the first sample of every album only, as CLOC scores it."""
    albums: int = 0
    users: int = 0


@dataclass(frozen=True)
class Audit:
    """All an audit found. ``values`` are the names that conditions may use; NaN is unknown."""

    name: str
    columns: dict[str, str]
    guessed: list[str]
    samples: int
    classes: int
    step: float
    """Samples revealed at once, on average."""
    levels: ReferenceLevels
    windows: Floats
    shown_shifts: Ints
    table: Floats
    """Blind accuracy [windows, shown shifts] over everything each cell can use."""
    blind: Level
    """The blind classifier at shift 0 with its window chosen on the past."""
    window: float
    choice: ShiftChoice
    online: Level = NOTHING
    online_scored: float = math.nan
    share: Level = NOTHING
    """Blind accuracy over online accuracy, on the same part of the stream."""
    where_blind_fails: Level = NOTHING
    """The model where the blind classifier is wrong."""
    futures: list[Future] = field(default_factory=list)
    by: str = ""
    """Whether the futures are by ``shift`` or by ``age``."""
    near_future: Level = NOTHING
    near_future_shift: float = math.nan
    blind_shifted: float = math.nan
    without: Without = field(default_factory=Without)
    neighbours: dict[str, NeighbourLevels] = field(default_factory=dict)
    over_time: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, float]:
        """Numbers by name, as the conditions of ``--fail-if`` know them."""
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
        """The answers, a sentence each."""
        from streamgauge.audit.words import sentences

        return sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, lists and strings, for JSON."""

        def plain(found: Level) -> dict[str, Any] | None:
            if found.samples == 0:
                return None
            return {n: plain_number(v) for n, v in found._asdict().items()}

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
                "accuracy": plain(self.blind),
                "window": plain_number(self.window),
                "windows": [window_name(w) for w in self.windows],
                "shifts": self.shown_shifts.tolist(),
                "table": [[plain_number(v) for v in row] for row in self.table],
            },
            "shift": self.choice.to_dict(),
            "online": plain(self.online),
            "online_scored": plain_number(self.online_scored),
            "share": plain(self.share),
            "where_blind_fails": plain(self.where_blind_fails),
            "near_future": {
                "by": self.by or None,
                "accuracy": plain(self.near_future),
                "shift": plain_number(self.near_future_shift),
                "curve": [
                    {
                        "shift": f.shift,
                        "accuracy": plain(f.accuracy),
                        "blind": plain_number(f.blind),
                        "unlimited": plain_number(f.unlimited),
                    }
                    for f in self.futures
                ],
            },
            "without": {
                "blind_other_album": plain(self.without.blind_album),
                "blind_other_user": plain(self.without.blind_user),
                "online_first": plain(self.without.online_first),
                "albums": self.without.albums,
                "users": self.without.users,
            },
            "neighbours": {
                name: [
                    {
                        "window": plain_number(w) if np.isfinite(w) else "all",
                        "accuracy": plain(found),
                    }
                    for w, found in zip(some.windows, some.levels, strict=True)
                ]
                for name, some in self.neighbours.items()
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
    hold: int = HELD,
    spread: Spread | None = None,
    rows: int = ROWS,
) -> Audit:
    """Audit a log: how much of its accuracy could be had without looking at any input?

    ``log`` is a file (CSV, ARFF, Parquet, Arrow, NPZ, JSON lines), a folder of Parquet files, a
    mapping of names to arrays, or a data frame (pandas, polars, Arrow). It needs labels;
    predictions, times, users, albums, and the shift or the age of the model behind every prediction
    are used where there are any. Columns are guessed from their names unless given; ``"none"``
    leaves one out. ``shift`` is the column that says how many
    samples the model that answered was behind; ``age`` the same for logs that hold one answer a
    sample, by models of different age. ``step`` is the number of samples whose labels arrive at
    once, or the column of step numbers. ``every`` is the time between samples, where it is
    constant and the log has no times.

    Logs of up to ``hold`` rows are held in memory; longer ones are read twice, in pieces, and what
    needs all rows at once (users, inputs, durations) is left out with a note. Such a log may be
    counted in pieces of ``rows`` rows side by side: ``spread`` calls a function for each of them
    (see `streamgauge.running.executors.cluster.spreading`); the answer is the same.
    """
    columns = {"label": label, "prediction": prediction, "time": time, "user": user}
    columns |= {"album": album, "shift": shift, "age": age}
    size: int | None = None
    if isinstance(step, int) or (isinstance(step, str) and step.isdigit()):
        size = int(step)
        columns["step"] = "none"
        if size < 1:
            raise StreamgaugeError(f"step {size} is impossible: a step has 1 sample or more")
    else:
        columns["step"] = step
    opened = Log(log, features=features, **columns)
    if sort and "time" not in opened.roles:
        raise StreamgaugeError("there is no time column to sort by: name it with --time")
    pieces: tuple[list[int], list[Any]] | None = None
    if spread is None or short(opened, hold, sort):
        spread, found = None, scan(opened, sort=sort, hold=hold)
    else:
        found, edges, standings = scan_pieces(opened, spread, rows)
        pieces = edges, standings
    if found.length < LEAST:
        raise StreamgaugeError(
            f"{opened.name} has {found.length} labels, too few to say anything: {LEAST} or more "
            "are needed"
        )
    if size is None and "step" not in opened.roles:
        size = 1
    auditor = _Auditor(opened, found, size, windows, shifts, every, ties, Rule(margin))
    if spread is not None and pieces is not None:
        auditor.tally = partial(tally_pieces, edges=pieces[0], standings=pieces[1], spread=spread,
                                rows=rows)  # fmt: skip
    return auditor.run()


class _Auditor:
    """One audit, in the order in which it is done."""

    tally: Callable[..., Tally] = staticmethod(tally)

    def __init__(
        self,
        log: Log,
        found: Scan,
        size: int | None,
        windows: Sequence[float] | None,
        shifts: Sequence[int | str] | None,
        every: str | float | None,
        ties: str,
        rule: Rule,
    ) -> None:
        self.log, self.found, self.size, self.ties = log, found, size, ties
        self.length = found.length
        self.every = None if every is None else seconds(every)
        self.notes: list[str] = []
        self.rule = replace(rule, parts=max(1, min(rule.parts, self.length // 5_000)))
        self.step = (
            float(size)
            if size is not None
            else float(typical_step(held_steps(found.held), found.held.label.size))
        )
        chosen = window_grid(int(self.rule.prefix * self.length))
        if self.length > LONG:
            chosen = chosen[np.isinf(chosen) | np.isin(chosen, 10.0 ** np.arange(9))]
        if windows is not None:
            chosen = check_windows(windows)
            if not np.isinf(chosen).any():
                chosen = np.append(chosen, math.inf)
        self.windows = chosen
        self.given = shifts
        if not found.whole:
            self.notes.append(
                "The log is too long to be held: it was read in pieces, periods were looked for in "
                "its beginning only, and users and inputs were left out."
            )
        if found.unpredicted:
            self.notes.append(f"{found.unpredicted:,} rows have no prediction and are not scored.")

    def run(self) -> Audit:
        held, log = self.found.held, self.log
        clock = held.time if self.found.whole else None
        self.periods, curve = find_periods(held.label, clock, self.every, self.length // 20)
        self.burst = burst_length(curve)
        by_clock = self.given is not None and all_durations(self.given)
        grid = self._grid(by_clock)
        logged = np.array([s for s in self.found.shifts if 0 < s < self.length], np.int64)
        shifts = np.unique(np.concatenate([grid, logged, [0]]))
        counted = self.tally(
            log,
            self.found,
            windows=self.windows,
            shifts=shifts,
            step=self.size,
            ties=self.ties,
            block=block_size(self.length),
        )
        everything = from_counter(counted.blind)
        counts = some_shifts(everything, np.isin(everything.shifts, grid))
        if by_clock:
            choice = self._by_clock()
        else:
            choice = decide(
                counts,
                burst=self.burst,
                periods=self.periods,
                rule=self.rule,
                step=round(self.step),
            )
            choice = with_duration(choice, clock, self.every)
        # As a level to beat, the blind classifier may also use everything so far.
        self.pairs = pair(everything, self.rule.prefix, unlimited=True)
        result = self._labels(everything, choice)
        if "prediction" in log.roles:
            result = self._model(result, everything, counted)
        if self.found.whole:
            result = self._people(result)
            result = self._inputs(result)
        return result

    def _grid(self, by_clock: bool) -> Ints:
        if self.given is not None and not by_clock:
            most = self.length // 20
            given = np.unique([int(s) for s in self.given]).astype(np.int64)
            grid = given[(given >= 0) & (given <= most)]
            if grid.size == 0:
                raise StreamgaugeError(
                    f"every shift is beyond a twentieth of the {self.length:,} labels: give "
                    "shorter shifts"
                )
            return grid
        if self.length <= LONG:
            return shift_grid(self.length, self.periods, round(self.step))
        grid = shift_grid(self.length, self.periods, round(self.step), octave=2)
        return grid[grid <= FURTHEST]

    def _by_clock(self) -> ShiftChoice:
        held = self.found.held
        if held.time is None or not self.found.whole:
            raise StreamgaugeError(
                "shifts are durations but "
                + ("the log is too long to hold" if held.time is not None else "it has no times")
                + ": give the shifts as numbers of samples"
            )
        step: Any = self.size if self.size is not None else held.step
        assert self.given is not None
        counts = count_in_time(
            held.label,
            len(self.log.classes.numbers),
            held.time,
            self.given,
            self.windows,
            step,
            self.ties,
        )
        return decide(
            counts, burst=self.burst, periods=self.periods, rule=self.rule, unit="seconds"
        )

    def _labels(self, counts: Counts, choice: ShiftChoice) -> Audit:
        """What the label stream says by itself."""
        hits, tries = counts.hits.sum(axis=0), counts.tries.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            table = np.where(tries > 0, hits / tries, np.nan)
        endless = int(np.flatnonzero(np.isinf(counts.windows))[0])
        # Sorted, so that the sum does not depend on the order in which classes were met.
        share = np.sort(self.found.counts[self.found.counts > 0]) / self.length
        zero = int(np.flatnonzero(counts.shifts == 0)[0])
        levels = ReferenceLevels(
            float(table[endless, zero]),
            float(share.max()),
            1 / share.size,
            float(np.sum(share**2)),
        )
        shown = np.flatnonzero(np.isin(counts.windows, [*SHOWN_WINDOWS, math.inf]))
        columns = spread_out(counts.shifts, 7)
        pairs = self.pairs
        run = run_length(counts, 0.0, pairs.own.shape[0], self.burst)
        blind = level(pairs.own[:, zero], pairs.tried[:, zero], run)
        return Audit(
            name=self.log.name,
            columns=dict(self.log.roles),
            guessed=list(self.log.guessed),
            samples=self.length,
            classes=int(share.size),
            step=self.step,
            levels=levels,
            windows=counts.windows[shown],
            shown_shifts=counts.shifts[columns].astype(np.int64),
            table=table[np.ix_(shown, columns)],
            blind=blind,
            window=float(pairs.windows[zero]),
            choice=choice,
            over_time=time_course(counts, pairs, zero, None),
            notes=self.notes,
        )

    def _model(self, result: Audit, counts: Counts, counted: Tally) -> Audit:
        """What the model's answers say beside the blind ones."""
        blocks = counts.hits.shape[0]
        pairs = self.pairs
        zero = int(np.flatnonzero(counts.shifts == 0)[0])
        hits, tries = counted.model.at(counts.block, blocks)
        behind = self.found.shift
        if tries.sum() == 0:
            raise StreamgaugeError(
                f"column '{self.log.roles['prediction']}' holds no prediction at all: name another "
                "column, or leave it out with --prediction none"
            )
        run = run_length(counts, 0.0, blocks, self.burst)
        online = level(hits, tries, run)
        at_shift = dict(counted.at_shift)
        if behind > 0:
            # All answers come from a model that is behind: there is no online accuracy here.
            at_shift[behind] = counted.model
            result = replace(result, notes=[*result.notes, "No answer in this log is at shift 0."])
        else:
            cut = pairs.first
            own = pairs.own[:, zero], pairs.tried[:, zero]
            model = hits[cut:], tries[cut:]
            result = replace(
                result,
                online=online,
                online_scored=level(*model, run).value,
                share=share_of(own, model, run),
                where_blind_fails=self._where_blind_fails(result.window),
                over_time=time_course(counts, pairs, zero, model),
            )
        if counted.at_age and not at_shift:
            return self._futures(result, counts, counted.at_age, "age")
        return self._futures(result, counts, at_shift, "shift") if at_shift else result

    def _where_blind_fails(self, window: float) -> Level:
        """The model on the samples that repeating labels gets wrong."""
        held = self.found.held
        if not self.found.whole or held.prediction is None:
            return NOTHING
        step: Any = self.size if self.size is not None else held.step
        nobody = np.arange(held.label.size)
        blind = blind_without_album(held.label, nobody, window, step)
        asked = (blind == 0) & (held.prediction >= 0)
        asked[: int(self.rule.prefix * self.length)] = False
        return level_of((held.prediction == held.label)[asked], self.burst)

    def _futures(
        self, result: Audit, counts: Counts, sums: Mapping[int, BlockSums], by: str
    ) -> Audit:
        blocks = counts.hits.shape[0]
        pairs = self.pairs
        futures = []
        for shift in sorted(sums):
            hits, tries = sums[shift].at(counts.block, blocks)
            run = run_length(counts, float(shift), blocks, self.burst)
            nearest = int(np.argmin(np.abs(counts.shifts - shift)))
            total = pairs.tried[:, nearest].sum()
            own, every = pairs.own[:, nearest].sum() / total, pairs.every[:, nearest].sum() / total
            futures.append(Future(shift, level(hits, tries, run), float(own), float(every)))
        choice = result.choice
        wanted = choice.shift if choice.unit == "samples" else None
        far = [f for f in futures if wanted is not None and f.shift >= wanted]
        if by == "age" and far:
            every_hit, every_try = np.zeros(blocks), np.zeros(blocks)
            for f in far:
                hits, tries = sums[f.shift].at(counts.block, blocks)
                every_hit, every_try = every_hit + hits, every_try + tries
            run = run_length(counts, float(far[0].shift), blocks, self.burst)
            near = far[0]._replace(accuracy=level(every_hit, every_try, run))
        else:
            near = far[0] if far else futures[-1]
        return replace(
            result,
            futures=futures,
            by=by,
            near_future=near.accuracy,
            near_future_shift=float(near.shift),
            blind_shifted=near.blind,
        )

    def _people(self, result: Audit) -> Audit:
        """The same without the user's, or the album's, own other samples."""
        held = self.found.held
        if held.user is None and held.album is None:
            return result
        step: Any = self.size if self.size is not None else held.step
        source = held.album if held.album is not None else held.user
        albums = albums_of(np.maximum(np.asarray(source), -1) + 1)
        first = int(self.rule.prefix * self.length)
        scored = np.arange(self.length) >= first
        window = result.window
        by_album = blind_without_album(held.label, albums, window, step)
        known = (by_album >= 0) & scored
        without = Without(
            blind_album=level_of(by_album[known] == 1, self.burst), albums=int(albums[-1]) + 1
        )
        if held.user is not None:
            width = int(min(window, 1000))
            asked, answers = blind_without_user(
                held.label, np.maximum(held.user, -1) + 1, width, step
            )
            good = (answers >= 0) & (asked >= first)
            thin = max(1, self.burst * asked.size // self.length)
            without = replace(
                without,
                blind_user=level_of(answers[good] == 1, thin),
                users=int(np.unique(held.user).size),
            )
        if held.prediction is not None:
            begins = np.concatenate([[True], albums[1:] != albums[:-1]])
            asked_first = begins & (held.prediction >= 0)
            right = (held.prediction == held.label)[asked_first]
            without = replace(without, online_first=level_of(right, self.burst))
        return replace(result, without=without)

    def _inputs(self, result: Audit) -> Audit:
        """The covariate counterpart, where the log has inputs."""
        held = self.found.held
        if held.features is None:
            return result
        step: Any = self.size if self.size is not None else held.step
        common: dict[str, Any] = {"step": step, "burst": self.burst}
        found = {"next sample": neighbour_accuracy(held.features, held.label, **common)}
        shift = result.choice.shift
        if shift and result.choice.unit == "samples":
            name = f"{int(shift):,} samples later"
            found[name] = neighbour_accuracy(held.features, held.label, shift=int(shift), **common)
        if held.user is not None:
            users = np.maximum(held.user, -1) + 1
            found["same user left out"] = neighbour_accuracy(
                held.features, held.label, users=users, **common
            )
        return replace(result, neighbours=found)


def window_name(window: float) -> int | str:
    """A window as JSON may hold it."""
    return int(window) if math.isfinite(window) else "all"


def held_steps(piece: Piece) -> Ints:
    """Step numbers of held rows; every sample its own where there are none."""
    return np.arange(piece.label.size) if piece.step is None else piece.step


def spread_out(shifts: Floats, count: int) -> Ints:
    """Places of a few shifts for a table: 0, and others evenly apart on a logarithmic scale."""
    wanted = np.concatenate([[0], np.geomspace(1, max(1.0, shifts[-1]), count - 1)])
    return np.unique([int(np.argmin(np.abs(shifts - w))) for w in wanted])


def share_of(blind: tuple[Floats, Floats], model: tuple[Floats, Floats], run: int) -> Level:
    """Blind accuracy over model accuracy, with a paired interval (delta method on the ratio)."""
    if blind[1].sum() == 0 or model[0].sum() == 0:
        return NOTHING
    top, bottom = (h.sum() / t.sum() for h, t in (blind, model))
    ratio = float(top / bottom)
    parts = influence(*blind) / bottom - influence(*model) * ratio / bottom
    error, blocks = run_error(parts, run)
    low, high = interval(ratio, error, blocks)
    return Level(ratio, max(0.0, low), high, int(model[1].sum()))


def time_course(
    counts: Counts, pairs: Paired, zero: int, model: tuple[Floats, Floats] | None
) -> dict[str, list[float]]:
    """Accuracies in up to 100 consecutive parts of the scored stream."""
    rows = pairs.own.shape[0]
    edges = np.unique(np.linspace(0, rows, min(100, rows) + 1).astype(int))[:-1]

    def rate(hits: Floats, tries: Floats) -> list[float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.add.reduceat(hits, edges) / np.add.reduceat(tries, edges)
        return [float(v) for v in found]

    course = {
        "position": [float((pairs.first + e) * counts.block) for e in edges],
        "blind": rate(pairs.own[:, zero], pairs.tried[:, zero]),
        "majority": rate(pairs.every[:, zero], pairs.tried[:, zero]),
    }
    if model is not None:
        course["online"] = rate(*model)
    return course
