"""The steps of an audit: blind family, shift, model, users and inputs, each on the same samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.blind import levels_from_counts
from streamgauge.audit.counting import block_size, window_name
from streamgauge.audit.log import Piece, PredictionLog, take
from streamgauge.audit.repeats import (
    UNKNOWN_LEVEL,
    Level,
    albums_of,
    blind_without_album,
    blind_without_user,
    level_from_answers,
    level_from_blocks,
    neighbour_accuracy,
)
from streamgauge.audit.shift import LabelStream
from streamgauge.audit.tally import BlockSums, CountRequest, Scan, Tally, age_bin, read_again
from streamgauge.errors import StreamgaugeError
from streamgauge.history.bits import Explanation, StreamPart, explain, explain_parts
from streamgauge.history.family import FamilyHits, RightBits
from streamgauge.history.forecasters import groups_of
from streamgauge.history.intervals import influence, interval, run_error
from streamgauge.history.kappas import Kappas
from streamgauge.history.known import Floats, Ints, Regular

SHOWN_WINDOWS = (1, 3, 5, 10, 100, 1000, 10000, 100000)
MAX_SHIFT = 1 << 22
MOST_BIT_ROWS = 50_000_000  # of a log that is not in memory: about a minute
LAST = window_name(1)


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
class BlindAt:
    """The blind family at one shift, or at the age of each answer."""

    family: FamilyHits
    right: RightBits | None = None
    """None if the log is not in memory."""

    def on(self, scored: NDArray[np.bool_] | None) -> FamilyHits:
        """The family on some of the samples, chosen on all."""
        if self.right is None or scored is None or scored.all():
            return self.family
        return self.right.hits(scored, self.family.chosen)


@dataclass
class Pipeline:
    """The steps of one audit, in order; each adds to `result`."""

    log: PredictionLog
    scanned: Scan
    size: int | None
    """Samples per step; None: steps are read from the log."""
    every: float | None
    ties: str
    windows: Sequence[float] | None
    tolerance: float
    result: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scanned, rows = self.scanned, self.scanned.in_memory
        self.rows, self.length, self.complete = rows, scanned.length, scanned.complete
        no_clock = (
            "the log is too long for memory:" if rows.time is not None else "the log has no times:"
        )
        whole = self.complete
        order = self.log.classes.sorted_ranks()
        self.stream = LabelStream(
            rows.label if self.ties == "recent" else order[rows.label],
            len(self.log.classes.numbers),
            self.length,
            step=np.asarray(rows.step) if self.size is None else self.size,
            ties=self.ties,
            clock=rows.time if whole else None,
            label_times=rows.label_time if whole else None,
            delay=self.log.delay if whole else 0,
            every=self.every,
            users=None if rows.user is None or not whole else np.maximum(rows.user, -1) + 1,
            albums=None if rows.album is None or not whole else np.maximum(rows.album, -1) + 1,
            given_windows=self.windows,
            complete=whole,
            no_clock=no_clock,
        )
        self._refuse_labels_after_all_answers()
        self.notes: list[str] = [*self.log.notes, *row_notes(self.log, scanned)]
        irregular = self.size is None or rows.age is not None or rows.label_time is not None
        self.long_bits = not whole and not irregular
        if not whole:
            self._note_long(rows.label_time is not None or bool(self.log.delay))
        self.result = {
            "notes": self.notes,
            "unlabelled": scanned.unlabelled,
            "early_labels": scanned.early / max(1, scanned.length),
        }

    def _refuse_labels_after_all_answers(self) -> None:
        """An error if no label was known to any answer: nothing could have been learnt."""
        known = self.stream.known() if self.complete else Regular(0, self.size or 1)
        last = known.between(self.length - 1 if isinstance(known, Regular) else 0, self.length)
        if last.any():
            return
        if self.size is not None and self.size >= self.length:
            why = f"a step has {self.size:,} samples, so give the samples of one batch with --step"
        else:
            why = "the labels arrive after the last answer, so check steps, times and --label-delay"
        raise StreamgaugeError(
            f"no label of {self.log.name} is known before any of its {self.length:,} rows is "
            f"answered: {why}"
        )

    def _note_long(self, late: bool) -> None:
        left_out = ["accuracies by user", "inputs"]
        if late:
            left_out.append(f"the delay of labels{' (except in bits)' if self.long_bits else ''}")
        if not self.long_bits:
            left_out.append("bits")
        self.notes.append(
            "The log is too long for memory: it was read in pieces. Blind is only the most "
            "frequent of the last labels, periods were searched in the first rows, and "
            f"{', '.join(left_out[:-1])} and {left_out[-1]} were left out."
        )
        if self.long_bits and self.length > MOST_BIT_ROWS:
            self.notes.append(f"Bits are those of the first {MOST_BIT_ROWS:,} rows.")

    def run(
        self, count: Callable[..., Tally], requested: Sequence[int | str] | None
    ) -> dict[str, Any]:
        stream = self.stream
        grid = stream.shifts(requested if stream.durations(requested) is None else None)
        logged = [s for s in self.scanned.streams if s < self.length]
        swept = [*grid[grid <= MAX_SHIFT], *logged, 0] if stream.long else []
        request = CountRequest(
            windows=stream.windows,
            shifts=np.unique(np.asarray(swept, np.int64)),
            step=self.size,
            ties=stream.ties,
            block=block_size(self.length),
            length=self.length,
            classes=stream.classes,
            class_order=self.log.classes.sorted_ranks(),
            shift=self.scanned.shift,
        )
        self.tally = count(self.log, self.scanned, request)
        self.counts = self.tally.blind.counts if stream.long else None
        self.choice = stream.select(requested, self.tolerance, self.counts)
        self.own = self._own_blind()
        self._label_results(grid)
        if "prediction" in self.log.roles:
            self._model_results()
        if self.complete:
            self._bit_results()
            self._user_results()
            self._input_results()
        elif self.long_bits:
            self._long_bit_results()
        return self.result

    def _blind_at(self, shift: int) -> BlindAt:
        if self.complete:
            right = self.stream.right(self.stream.known(shift), shift)
            return BlindAt(right.hits(), right)
        assert self.counts is not None
        nearest = int(np.argmin(np.abs(self.counts.shifts - shift)))
        return BlindAt(self.counts.at(np.arange(self.counts.shifts.size) == nearest).families()[0])

    def _own_blind(self) -> BlindAt:
        """The blind family at the shift of the log, or at the age of the model at every answer."""
        if not self.tally.at_age:
            self.result["answer_shift"] = float(self.scanned.shift)
            return self._blind_at(self.scanned.shift)
        if self.complete:
            ages = np.maximum(np.asarray(self.rows.age), 0)
            self.result["answer_shift"] = float(ages.mean())
            right = self.stream.right(self.stream.known(ages))
            return BlindAt(right.hits(), right)
        ages = np.array(sorted(self.tally.at_age))
        answers = np.cumsum([self.tally.at_age[a].tries.sum() for a in ages.tolist()])
        typical = int(ages[np.searchsorted(answers, answers[-1] / 2)])
        self.notes.append(
            f"Answers are compared with the blind classifier at a shift of {typical}."
        )
        self.result["answer_shift"] = float(typical)
        return self._blind_at(typical)

    def _bootstrap_length(self, family: FamilyHits) -> int:
        """How many counting blocks a bootstrap block has: it is longer than the gap, than a burst,
        and than a hundredth of the stream."""
        longest = max(self.length / 100, family.gap + 1, self.stream.burst)
        return math.ceil(longest / family.block)

    def _answered(self) -> NDArray[np.bool_] | None:
        predictions = self.rows.prediction
        return None if predictions is None or not self.complete else predictions >= 0

    def _label_results(self, grid: Ints) -> None:
        """Results from the labels alone, on the samples that were answered."""
        scored = self.own.on(self._answered())
        picked, majority, tries = scored.scored
        total = float(tries.sum()) or math.nan
        level = level_from_blocks(picked, tries, self._bootstrap_length(scored))
        by_last = math.nan
        if LAST in scored.names:
            by_last = float(scored.hits[scored.first :, scored.names.index(LAST)].sum()) / total
        windows = self.stream.windows
        shown = grid[spaced_shifts(grid, 7)]
        if self.counts is not None:
            shown = np.asarray(self.counts.shifts[spaced_shifts(self.counts.shifts, 7)], np.int64)
        # Sorted, so that sums do not depend on the order of class numbers.
        classes = np.sort(self.tally.classes[0] if total > 1 else self.scanned.counts)
        self.result |= {
            "name": self.log.name,
            "columns": dict(self.log.roles),
            "guessed": list(self.log.guessed),
            "columns_not_used": self.log.columns_not_used(),
            "samples": self.length,
            "classes": int(np.count_nonzero(self.scanned.counts)),
            "step": float(self.stream.samples_per_step),
            "levels": levels_from_counts(float(majority.sum()) / total, classes),
            "windows": windows[np.isin(windows, [*SHOWN_WINDOWS, math.inf])],
            "shown_shifts": shown,
            "family": Family(level, scored.name),
            "last_label": by_last,
            "choice": self.choice,
            "over_time": self._time_course(
                {"blind": (picked, tries), "majority": (majority, tries)}
            ),
        }
        self._window_results()

    def _window_results(self) -> None:
        """The table of windows and shifts, and the window that is best on the past."""
        shown, windows = self.result["shown_shifts"], self.result["windows"]
        names = [window_name(w) for w in windows]
        if self.counts is None:
            families = self.stream.families(shown)
        else:
            families = self.counts.at(np.isin(self.counts.shifts, shown)).families()
        table = np.full((windows.size, shown.size), np.nan)
        for s, family in enumerate(families):
            tries = family.tries[family.first :].sum()
            hits = family.hits[family.first :].sum(axis=0)
            if tries:
                table[:, s] = hits[[family.names.index(n) for n in names]] / tries
        own = self.own.family
        lengths = {window_name(w): float(w) for w in self.stream.windows}
        among = [f for f, name in enumerate(own.names) if name in lengths]
        chosen = replace(own, names=[own.names[f] for f in among], hits=own.hits[:, among])
        self.result |= {"table": table, "window": lengths[chosen.name]}

    def _model_results(self) -> None:
        """Results from the model's answers, compared with the blind family."""
        model, scored = self.tally.model, self.own.on(self._answered())
        if model.tries.sum() == 0:
            raise StreamgaugeError(
                f"column '{self.log.roles['prediction']}' contains no predictions: name another "
                "column, or leave it out with --prediction none"
            )
        run, behind = self._bootstrap_length(scored), model.behind(scored.first)
        picked, majority, tries = scored.scored
        at_shift = dict(self.tally.at_shift)
        self.result |= {
            "predictions": int(model.tries.sum()),
            "online_scored": level_from_blocks(*behind, run).value,
            "share": share_of((picked, tries), behind, run),
            "over_time": self._time_course(
                {"blind": (picked, tries), "majority": (majority, tries), "online": behind}
            ),
        }
        if self.scanned.shift > 0:
            # All answers are at a shift above 0: there is no online accuracy.
            at_shift[self.scanned.shift] = model
            self.notes.append("No answer in this log is at shift 0.")
        else:
            self.result["online"] = level_from_blocks(model.hits, model.tries, run)
        self._kappas()
        if self.own.right is not None:
            self._where_blind_fails()
        if at_shift:
            self._future_results(at_shift, "shift")
        elif self.tally.at_age:
            self._future_results(self.tally.at_age, "age")

    def _kappas(self) -> None:
        labels, answers = (
            self.tally.classes / np.maximum(self.tally.classes.sum(axis=1), 1)[:, None]
        )
        kappas = Kappas(
            self.result["online_scored"],
            float(labels @ answers),
            self.result["last_label"],
            self.result["levels"].majority,
        )
        for name in ("kappa", "kappa_t", "kappa_m", "kappa_combined"):
            self.result[name] = getattr(kappas, name)

    def _where_blind_fails(self) -> None:
        """Accuracy of the model, and of the majority, on samples where the family is wrong."""
        assert self.own.right is not None
        assert self.rows.prediction is not None
        bits, family = self.own.right, self.own.family
        right, scored = bits.right(family)
        wrong = np.flatnonzero(scored & ~right & (self.rows.prediction >= 0))
        run = self._bootstrap_length(family)
        for name, hit in (
            ("where_blind_fails", self.rows.prediction[wrong] == self.rows.label[wrong]),
            ("where_blind_fails_constant", bits.bits[wrong] & np.uint64(1) == 1),
        ):
            sums = BlockSums(family.block, family.tries.size)
            sums.add(wrong - bits.offset, hit)
            self.result[name] = level_from_blocks(*sums.behind(family.first), run)

    def _future_results(self, sums: Mapping[int, BlockSums], by: str) -> None:
        """Accuracies by shift or age of the model, and the one to report."""
        choice = self.choice
        futures = [self._future(shift, [sums[shift]], by) for shift in sorted(sums)]
        chosen_shift = choice.shift if choice.unit == "samples" else None
        far_enough = [f for f in futures if chosen_shift is not None and f.shift >= chosen_shift]
        reported = far_enough[0] if far_enough else futures[-1]
        if by == "age" and far_enough:
            reported = self._future(reported.shift, [sums[f.shift] for f in far_enough], by, True)
        self.result |= {
            "futures": futures,
            "by": by,
            "near_future": reported.accuracy,
            "near_future_shift": float(reported.shift),
            "blind_shifted": reported.blind,
        }

    def _future(
        self, shift: int, sums: Sequence[BlockSums], by: str, older: bool = False
    ) -> ShiftedAccuracy:
        """The model at a shift or an age (``older``: or more), and blind on the same samples."""
        if by == "shift":
            blind = self._blind_at(shift)
            answers = self._at_shift(shift, "prediction", -1)
            family = blind.on(None if answers is None else answers >= 0)
        elif self.complete:
            ages = age_bin(np.asarray(self.rows.age))
            of_age = ages >= shift if older else ages == shift
            family = self.own.on(of_age & np.asarray(self._answered()))
        else:
            family = self._blind_at(shift).family
        picked, majority, tries = family.scored
        total = float(tries.sum())
        first = family.first
        hits, answered = (np.sum([s.behind(first)[i] for s in sums], axis=0) for i in range(2))
        return ShiftedAccuracy(
            shift,
            level_from_blocks(hits, answered, self._bootstrap_length(family)),
            float(picked.sum()) / total if total else math.nan,
            float(majority.sum()) / total if total else math.nan,
        )

    def _at_shift(self, shift: int, column: str, missing: float) -> Any:
        """A column of the rows at a logged shift, one entry per sample of the stream."""
        own, others = self.scanned.shift, self.scanned.others
        if shift == own or not self.complete:
            return getattr(self.rows, column) if self.complete else None
        assert others is not None
        values, first = getattr(others, column), self._first_at(shift)
        if values is None or first is None:
            return None
        given = values[others.shift == shift]
        result = np.full(self.length, missing, values.dtype)
        result[first : first + given.size] = given
        return result

    def _first_at(self, shift: int) -> int | None:
        """The sample of the first row at a logged shift, by the labels of its rows: ``shift``, up
        to a step more if steps are answered as a whole, or 0; None if no labels agree."""
        others = self.scanned.others
        assert others is not None
        labels = others.label[others.shift == shift]
        gap = shift - self.scanned.shift
        step = max(self.scanned.largest_step, self.size or 1)
        for first in (*range(gap, gap + step), 0):
            if np.array_equal(self.rows.label[first : first + labels.size], labels):
                return int(first)
        note = (
            f"The rows at shift {shift:,} are not consecutive samples of the stream, so bits are "
            "left out there, and blind accuracy is that of all samples."
        )
        self.notes += [] if note in self.notes else [note]
        return None

    def _known_columns(self) -> dict[str, Any]:
        """What says which labels, users and times the answers may know."""
        names = ("step", "label_times", "users", "albums", "delay")
        known = {name: getattr(self.stream, name) for name in names}
        return known | {"times": self.stream.clock}

    def _by_age(self) -> bool:
        """Whether the log has the age of the model at its answers."""
        rows = self.rows
        if rows.age is None or rows.prediction is None:
            return False
        return bool((rows.prediction >= 0).any())

    def _answer_shift(self) -> Any:
        """The shift of all answers, or the age of the model at each."""
        return np.maximum(np.asarray(self.rows.age), 0) if self._by_age() else self.scanned.shift

    def own_bits(self) -> Explanation:
        """Bits at the shift or age of the log, which is in memory. The report shows them, too."""
        rows = self.rows
        check_logp(self.log, rows)
        return explain(
            rows.label,
            rows.prediction,
            shift=self._answer_shift(),
            logp=rows.logp,
            confidence=rows.confidence,
            **self._known_columns(),
        )

    def _bit_results(self) -> None:
        """What history explains in bits, and what the answers add: at the shift or age of the log,
        and at every shift or age in it."""
        rows, stream, known = self.rows, self.stream, self._known_columns()
        own, by_age, shift = self.scanned.shift, self._by_age(), self._answer_shift()
        own_columns: dict[str, Any] = {"logp": rows.logp, "confidence": rows.confidence}
        result = self.own_bits()
        at = []
        for future in self.result.get("futures", []):
            if by_age:
                of_age = age_bin(np.asarray(rows.age)) == future.shift
                answers = np.where(of_age, np.asarray(rows.prediction), -1)
                explanation = explain(rows.label, answers, shift=shift, **own_columns, **known)
            elif future.shift == own:
                explanation = result
            else:
                columns = {n: self._at_shift(future.shift, n, math.nan) for n in own_columns}
                answers = self._at_shift(future.shift, "prediction", -1)
                if answers is None:
                    continue
                explanation = explain(rows.label, answers, shift=future.shift, **columns, **known)
            at.append((future.shift, explanation))
        self.result |= {"bits": result, "bits_at": at}
        if stream.label_times is not None or stream.delay:
            punctual = replace(stream, label_times=None, delay=0).known(shift)
            waiting = punctual.between(0, self.length) - stream.known(shift).between(0, self.length)
            self.result["late_labels"] = float(waiting.mean())
            if rows.user is not None or rows.album is not None:
                self.notes.append(
                    "Results without albums or users assume that labels arrive at once."
                )

    def _long_bit_results(self) -> None:
        """Bits at the shift of the log, from another pass over a log that is not in memory."""
        count = min(self.length, MOST_BIT_ROWS)
        seen = np.zeros(len(self.log.classes.numbers), bool)
        seen[: self.scanned.counts.size] = self.scanned.counts > 0
        known = Regular(self.scanned.shift, self.size or 1, self.log.delay)
        result = explain_parts(self._parts(count), count, seen, known)
        at = [(f.shift, result) for f in self.result.get("futures", []) if f.shift == known.shift]
        self.result |= {"bits": result, "bits_at": at}

    def _parts(self, count: int) -> Iterator[StreamPart]:
        """The first ``count`` rows of the stream."""
        for whole_piece, _ in read_again(self.log, self.scanned):
            piece = take(whole_piece, slice(0, count))
            count -= piece.label.size
            groups = groups_of(
                piece.label.size, times=piece.time, users=piece.user, albums=piece.album
            )
            own = (
                None if c is None else c.astype(np.float64) for c in (piece.logp, piece.confidence)
            )
            yield StreamPart(piece.label, piece.prediction, groups, *own)
            if count == 0:
                return

    def _user_results(self) -> None:
        """Accuracies without other samples of the same user or album."""
        rows, burst = self.rows, self.stream.burst
        if rows.user is None and rows.album is None:
            return
        groups = rows.album if rows.album is not None else rows.user
        albums = albums_of(np.maximum(np.asarray(groups), -1) + 1)
        first = self.own.family.first * self.own.family.block
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

    def _time_course(self, curves: Mapping[str, tuple[Floats, Floats]]) -> dict[str, list[float]]:
        """Accuracies in up to 100 consecutive parts of the scored stream."""
        family = self.own.family
        blocks = family.tries.size - family.first
        edges = np.unique(np.linspace(0, blocks, min(100, blocks) + 1).astype(int))[:-1]
        course = {"position": [float((family.first + e) * family.block) for e in edges]}
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
    notes += foreign_answers(log, scanned)
    if -1 in log.classes.numbers and 0 in log.classes.numbers:
        notes.append("-1 is counted as a class: drop its rows if it stands for an unknown label.")
    return notes


def foreign_answers(log: PredictionLog, scanned: Scan) -> list[str]:
    """A note on predicted classes that are no label: often the same class, written otherwise."""
    labels = np.flatnonzero(scanned.counts).tolist()
    foreign = np.setdiff1d(np.flatnonzero(scanned.predicted), labels).tolist()
    if not foreign:
        return []
    names = list(log.classes.texts.values())
    alike = {names[code].casefold() for code in labels}
    case = [code for code in foreign if names[code].casefold() in alike]
    some = ", ".join(f"'{names[code]}'" for code in (case or foreign)[:4])
    why = ", and differ from a label only in upper and lower case" if case else ""
    return [
        f"{len(case or foreign):,} predicted classes are no label of the log{why} ({some}): these "
        "answers count as wrong."
    ]


def check_logp(log: PredictionLog, rows: Piece) -> None:
    """An error if the log-probabilities are those of the answers instead of the labels: a label of
    more than 1/2 would have been the answer."""
    if rows.logp is None or rows.prediction is None:
        return
    wrong = (rows.prediction >= 0) & (rows.prediction != rows.label) & np.isfinite(rows.logp)
    above = int(np.count_nonzero(rows.logp[wrong] > math.log(0.5) + 1e-6))
    if above >= 20 and above > 0.1 * np.count_nonzero(wrong):
        raise StreamgaugeError(
            f"column '{log.roles['logp']}' gives the label more than 1/2 in {above:,} of "
            f"{np.count_nonzero(wrong):,} wrong answers: it needs the log-probability of the true "
            "label, not of the answer, so name another column, or leave it out with --logp none"
        )


def spaced_shifts(shifts: NDArray[Any], count: int) -> Ints:
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
    if math.isnan(error):
        return Level(ratio, math.nan, math.nan, int(model[1].sum()))
    return Level(ratio, max(0.0, low), high, int(model[1].sum()))
