"""The audit of a log: how much of its accuracy is possible without looking at any input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.audit.blind import ReferenceLevels
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.parallel import ROWS, ParallelMap, fits_in_memory, scan_pieces, tally_pieces
from streamgauge.audit.pipeline import Family, Pipeline, ShiftedAccuracy, WithoutRepeats
from streamgauge.audit.repeats import UNKNOWN_LEVEL, Level, NeighbourLevels
from streamgauge.audit.shift import LEAST_LABELS
from streamgauge.audit.tally import IN_MEMORY, Tally, scan, scan_first, tally
from streamgauge.audit.values import values_of
from streamgauge.audit.verdict import TOLERANCE, ShiftChoice, plain_number
from streamgauge.audit.words import findings, paragraphs
from streamgauge.errors import Damaged, StreamgaugeError
from streamgauge.history.bits import Explanation
from streamgauge.history.durations import seconds
from streamgauge.history.known import Floats, Ints
from streamgauge.versions import renamed_parameter


@dataclass(frozen=True)
class Audit:
    """Result of an audit. ``values`` are the values that conditions may use; NaN is unknown."""

    name: str
    columns: dict[str, str]
    guessed: list[str]
    columns_not_used: list[str]
    """Columns of the log without a role."""
    samples: int
    classes: int
    step: float
    """Samples per step, on average."""
    levels: ReferenceLevels
    windows: Floats
    shown_shifts: Ints
    table: Floats
    """Accuracy of the most frequent of the last labels [windows, shown shifts]."""
    window: float
    """The window that is best on the past, at the shift of the log."""
    choice: ShiftChoice
    online: Level = UNKNOWN_LEVEL
    online_scored: float = math.nan
    share: Level = UNKNOWN_LEVEL
    """Blind accuracy divided by online accuracy, on the same part of the stream."""
    where_blind_fails: Level = UNKNOWN_LEVEL
    """Accuracy of the model on samples where the blind family is wrong."""
    where_blind_fails_constant: Level = UNKNOWN_LEVEL
    """Accuracy of the most frequent label so far on the same samples."""
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
    bits: Explanation | None = None
    """What history explains and the answers add, at the log's own shift or age."""
    bits_at: list[tuple[int, Explanation]] = field(default_factory=list)
    """The same at every logged shift or age."""
    predictions: int = 0
    """Samples with a prediction."""
    answer_shift: float = 0.0
    """Mean shift or age of the answers, at which blind is compared with them."""
    late_labels: float = 0.0
    """Mean number of earlier samples whose label was late when a sample was answered."""
    early_labels: float = 0.0
    """Share of labels that were known before their own answer, by the times in the log."""
    unlabelled: int = 0
    """Rows whose label has not arrived."""
    permuted: Explanation | None = None
    """Bits of the same learner with inputs permuted against labels."""
    tolerance_bits: float = 0.02

    @property
    def blind(self) -> Level:
        """Accuracy of the blind family at the shift (or age) of the log."""
        return self.family.level

    @property
    def values(self) -> dict[str, float]:
        """Values by name, for conditions of ``--fail-if``."""
        return values_of(self)

    @property
    def answer(self) -> str:
        """Do the answers add to history: "yes", "no", "cannot tell", or "" without predictions."""
        return findings(self).answer

    @property
    def words(self) -> list[str]:
        """The results in paragraphs; the first answers the question of the audit."""
        return list(paragraphs(self).values())

    def _sentences(self) -> list[str]:
        from streamgauge.audit.terminal import columns_line

        return [columns_line(self), *self.words, *(f"Note: {note}" for note in self.notes)]

    def __str__(self) -> str:
        return "\n\n".join([f"Audit of {self.name}", *self._sentences()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from streamgauge.audit.terminal import tables
        from streamgauge.pages import notebook_table, notebook_text

        return "".join(
            [
                notebook_text(f"Audit of {self.name}", self._sentences()),
                *(notebook_table(table.title, table.head, table.rows) for table in tables(self)),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The result as numbers, lists and strings, for JSON."""
        content = {
            "log": self.name,
            "columns": self.columns,
            "guessed": self.guessed,
            "columns_not_used": self.columns_not_used,
            "answer": self.answer,
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
                "windows": [window_number(w) for w in self.windows],
                "shifts": self.shown_shifts,
                "table": self.table,
            },
            "shift": None,
            "family": {"accuracy": self.family.level, "forecaster": self.family.name},
            "online": self.online,
            "online_scored": self.online_scored,
            "share": self.share,
            "where_blind_fails": self.where_blind_fails,
            "where_blind_fails_constant": self.where_blind_fails_constant,
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
                    {"window": window_number(w), "accuracy": level}
                    for w, level in zip(neighbours.windows, neighbours.levels, strict=True)
                ]
                for name, neighbours in self.neighbours.items()
            },
            "over_time": self.over_time,
        }
        result: dict[str, Any] = _for_json(content)
        return result | {
            "shift": self.choice.to_dict(),
            "bits": None if self.bits is None else self.bits.to_dict(),
            "permuted": None if self.permuted is None else self.permuted.to_dict(),
            "bits_at": [
                {"shift": shift} | explanation.to_dict() for shift, explanation in self.bits_at
            ],
        }


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


@renamed_parameter("margin", "tolerance")
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
    tolerance: float = TOLERANCE,
    tolerance_bits: float = 0.02,
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
    if not 0 <= tolerance < 1:
        share = f": {tolerance:g} points are {tolerance / 100:g}" if 1 <= tolerance < 100 else ""
        raise StreamgaugeError(
            f"The tolerance is a share from 0 to below 1, not {tolerance:g}{share}."
        )
    every = None if every is None else seconds(every)
    steps = Pipeline(opened, scanned, size, every, ties, windows, tolerance)
    return Audit(**steps.run(count, shifts), tolerance_bits=tolerance_bits)


def bits_of_run(folder: Path, most: int, delay: int = 0) -> Explanation | None:
    """The bits of :func:`audit` for the first online answers of a run folder; None where the log
    cannot be audited. ``delay``: labels come that many samples late."""
    log = PredictionLog(folder)
    log.delay = delay
    try:
        return Pipeline(
            log, scan_first(log, most), None, None, "recent", None, TOLERANCE
        ).own_bits()
    except Damaged:
        raise
    except StreamgaugeError:
        return None


def window_number(window: float) -> int | str:
    """A window for JSON."""
    return int(window) if math.isfinite(window) else "all"
