"""What the columns of a log mean, and its rows as plain arrays, piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import is_duration, seconds
from streamgauge.tables.columns import plain_name
from streamgauge.tables.read import RoleTable
from streamgauge.tables.times import TimeParser
from streamgauge.tables.values import Codes, Ints, Vocabulary
from streamgauge.tables.values import numbers as as_numbers

ROLES = ("label", "prediction", "time", "user", "album", "step", "shift", "age", "label_time",
         "logp", "confidence")  # fmt: skip
TEXT = ("label", "prediction", "user", "album")


@dataclass(frozen=True)
class Piece:
    """Rows of the log as arrays; columns that the log does not have are None."""

    label: Codes
    """-1 where there is none yet; `PredictionLog.pieces` leaves such rows out."""
    prediction: Codes | None = None
    """-1 where there is none."""
    time: Ints | None = None
    user: Codes | None = None
    album: Codes | None = None
    step: Ints | None = None
    shift: Ints | None = None
    age: Ints | None = None
    label_time: Ints | None = None
    """When the label became known, in seconds rounded down."""
    logp: NDArray[np.float32] | None = None
    """Natural log of the probability of the true label; NaN where there is none."""
    confidence: NDArray[np.float32] | None = None
    """Probability of the predicted class; NaN where there is none."""
    features: NDArray[np.float32] | None = None


def take(piece: Piece, rows: NDArray[Any] | slice) -> Piece:
    """Select rows of a piece."""
    columns: dict[str, Any] = {f.name: getattr(piece, f.name) for f in fields(Piece)}
    selected: dict[str, Any] = {n: None if v is None else v[rows] for n, v in columns.items()}
    return Piece(**selected)


class PredictionLog(RoleTable):
    """The log of a system, read in pieces; its roles are those in ``ROLES``. ``features`` names
    columns, or one array with a row per sample.

    Rows without a label are left out and counted: `unlabelled` in the last pass over the log, of
    which the `newest` ended it.
    """

    def __init__(self, log: Any, *, features: Sequence[str] = (), **columns: str | None) -> None:
        super().__init__(log, "", ROLES, columns, ["label"], features, "feature")
        self.notes: list[str] = []
        self._refuse_shared_columns()
        self._leave_out_other_ages()
        if "label_time" in self.roles and "time" not in self.roles:
            name = self.roles.pop("label_time")
            if "label_time" not in self.guessed:
                raise StreamgaugeError(
                    f"the times of labels in column '{name}' need the times of the answers: name"
                    " their column with --time"
                )
            self.guessed.remove("label_time")
            self.notes.append(f"Column '{name}' is not used: the log has no times of answers.")
        self.delay = 0  # samples by which labels are late
        self.late: float | None = None  # the same in seconds
        self.unlabelled = self.newest = 0
        self.is_part, self.first_row = False, 0  # of the source, in the log
        self.features = tuple(features)
        self.classes = Vocabulary()
        self.named: set[str] = set()  # roles whose column has names for classes
        self.groups = {"user": Vocabulary(), "album": Vocabulary()}
        self.times = TimeParser(self.roles.get("time", ""))
        self.label_times = TimeParser(self.roles.get("label_time", ""), "--label-time")

    def _refuse_shared_columns(self) -> None:
        """An error if one column has two roles."""
        role_of: dict[str, str] = {}
        for role, name in self.roles.items():
            if name in role_of:
                one, other = (r.replace("_", "-") for r in (role_of[name], role))
                raise StreamgaugeError(
                    f"column '{name}' cannot be both the {one} and the {other}: name another "
                    f"column with --{one} or --{other}, or leave one of them out with none"
                )
            role_of[name] = role

    def _leave_out_other_ages(self) -> None:
        """A column `age` that cannot be the model's, such as the age of persons, has no role.

        An age of a model is at most the number of earlier labels, and between two updates it grows
        with every row. A log that begins in the middle of a stream breaks the first rule, models of
        different ages break the second; numbers that break both are refused as a guess.
        """
        name = self.roles.get("age", "")
        if "age" not in self.guessed or plain_name(name) != "age" or self.source.is_run:
            return
        first = next(self.source.pieces([name]), None)
        ages = None if first is None else as_numbers(first[name])
        if ages is None or not np.any(ages > np.arange(len(ages))):
            return
        steps = np.diff(ages[~np.isnan(ages)])
        if min(np.mean(steps > 1), np.mean(steps < 0)) > 0.25:
            self.roles.pop("age")
            self.guessed.remove("age")
            self.notes.append(
                f"Column '{name}' is not used: its numbers jump up and down from the first row on,"
                " so it is hardly the age of the model (how many of the newest earlier labels the"
                f" model had not learnt). If it is, name it: --age {name}."
            )

    def delay_labels(self, delay: int | str, every: float | None = None) -> None:
        """Labels become known this late: a number of samples, or a duration such as 3d.

        A duration needs times, or the seconds between two samples (`every`).
        """
        if "label_time" in self.roles:
            raise StreamgaugeError(
                f"--label-delay and the times of labels in column '{self.roles['label_time']}'"
                " contradict each other: leave the column out with --label-time none"
            )
        late = seconds(delay) if is_duration(delay) else int(delay)
        if late < 0:
            raise StreamgaugeError(f"--label-delay {delay} is below 0: labels come after answers")
        if not is_duration(delay):
            self.delay = int(late)
        elif "time" in self.roles:
            self.late = late
        elif every:
            self.delay = math.ceil(late / every)
        else:
            raise StreamgaugeError(
                f"--label-delay {delay} needs times, which this log has not: name their column with"
                " --time, or give the delay as a number of samples"
            )

    def columns_not_used(self) -> list[str]:
        """Columns of the table without a role; of a run folder, whose columns are ours, none."""
        used = {*self.roles.values(), *self.features}
        return [] if self.source.is_run else [n for n in self.source.names if n not in used]

    def row_name(self, row: int) -> str:
        """A row within a sentence: its line, where the file has lines."""
        name = super().row_name(row)
        return name[0].lower() + name[1:]

    def labelled_row_name(self, row: int) -> str:
        """The same for a row of `pieces`, which are those with a label."""
        if not self.unlabelled:
            return self.row_name(row)
        text = [self.roles["label"]]
        before = self.first_row  # rows of the file before the piece
        for table in self.source.pieces(text, text):
            with_label = np.flatnonzero(self.classes.encode(table[text[0]]) >= 0)
            if row < with_label.size:
                return self.row_name(before + int(with_label[row]))
            row, before = row - with_label.size, before + table.num_rows
        return "a row"

    def pieces(self) -> Iterator[Piece]:
        """The rows with a label, a bounded number at a time, in the order of the file."""
        flat, matrix = [], None
        for name in self.features:
            array = self.source.matrix(name)
            if array is None:
                flat.append(name)
            else:
                matrix = array.reshape(len(array), -1)
        text = [self.roles[r] for r in TEXT if r in self.roles]
        wanted = [*self.roles.values(), *flat]
        row = self.first_row
        self.unlabelled = self.newest = 0
        for table in self.source.pieces(wanted, text):
            if table.num_rows:
                piece = self._labelled(self._piece(table, row, flat, matrix))
                row += table.num_rows
                if piece.label.size:
                    yield piece
        if row == self.first_row:
            raise StreamgaugeError(f"{self.name} has no rows: a log needs labels")
        if row == self.unlabelled and not self.is_part:
            raise StreamgaugeError(
                f"column '{self.roles['label']}' of {self.name} has no label in any row: name"
                " another column with --label"
            )
        if matrix is not None and len(matrix) != row:
            raise StreamgaugeError(f"there are {len(matrix)} rows of features for {row} labels")

    def _labelled(self, piece: Piece) -> Piece:
        """The rows with a label; the others are counted."""
        known = piece.label >= 0
        if known.all():
            self.newest = 0
            return piece
        rows = np.flatnonzero(known)
        self.unlabelled += known.size - rows.size
        self.newest = known.size - 1 - int(rows[-1]) if rows.size else self.newest + known.size
        return take(piece, known)

    def _piece(self, table: Any, row: int, flat: list[str], matrix: NDArray[Any] | None) -> Piece:
        read: dict[str, Any] = {"label": self._labels(table[self.roles["label"]])}
        if "prediction" in self.roles:
            read["prediction"] = self.classes.encode(table[self.roles["prediction"]])
            remedy = "give the class that was predicted"
            self._refuse_fractions("prediction", read["prediction"], remedy)
        for role, groups in self.groups.items():
            if role in self.roles:
                read[role] = groups.encode(table[self.roles[role]])
        if "time" in self.roles:
            rows = self.rows(row, table.num_rows)
            read["time"] = self.times.whole_seconds(table[self.roles["time"]], rows)
            if self.late is not None:
                read["label_time"] = read["time"] + math.floor(self.late)
        if "label_time" in self.roles:
            read["label_time"] = self._label_times(table, row, read["label"])
        for role in ("step", "shift", "age"):
            if role in self.roles:
                read[role] = self._whole(role, table, row)
        for role in ("logp", "confidence"):
            if role in self.roles:
                read[role] = self._probabilities(role, table, row)
        if flat:
            columns = [self._number_column(name, table[name]) for name in flat]
            read["features"] = np.stack(columns, axis=1)
        elif matrix is not None:
            read["features"] = matrix[row : row + table.num_rows].astype(np.float32)
        return Piece(**read)

    def _labels(self, column: Any) -> Codes:
        name = self.roles["label"]
        if pa.types.is_nested(column.type):
            raise StreamgaugeError(
                f"column '{name}' holds lists: a label is one class, so name another column"
            )
        labels = self.classes.encode(column)
        self._refuse_fractions("label", labels, "write classes as whole numbers or names")
        return labels

    def _refuse_fractions(self, role: str, codes: Codes, remedy: str) -> None:
        """Fractions, unless a row before or in this piece has a name in the same column."""
        if role in self.named:
            return
        if self.classes.has_names(codes):
            self.named = {*self.named, role}
        elif (fraction := self.classes.fraction(codes)) is not None:
            raise StreamgaugeError(
                f"column '{self.roles[role]}' holds floating-point numbers such as "
                f"{fraction}, not classes: {remedy}"
            )

    def _whole(self, role: str, table: Any, row: int) -> Ints:
        name = self.roles[role]
        column = table[name]
        if pa.types.is_integer(column.type) and not column.null_count:
            return np.asarray(column).astype(np.int64)  # floats have no neighbours beyond 2^53
        numbers = self.numbers(table, role, f", or leave it out with --{role} none")
        why = f"has no {role} in column '{name}': fill it in, or set --{role} none."
        self.rows(row, len(numbers)).refuse(~np.isfinite(numbers), f"missing {role}", why)
        broken = np.flatnonzero(numbers != np.floor(numbers))
        if broken.size and role != "age":
            raise StreamgaugeError(
                f"column '{name}' is taken as the {role} but holds fractions such as "
                f"{numbers[broken[0]]:g}: name another column with --{role}, or leave it out with "
                f"--{role} none"
            )
        whole: Ints = np.floor(numbers).astype(np.int64)
        return whole

    def _label_times(self, table: Any, row: int, labels: Codes) -> Ints:
        """Seconds rounded down; a row with a label needs one."""
        name = self.roles["label_time"]
        known = self.label_times.seconds(table[name])
        missing = ~np.isfinite(known)
        why = f"has a label but no time in column '{name}': fill it in, or set --label-time none."
        self.rows(row, len(known)).refuse(missing & (labels >= 0), "missing label_time", why)
        return np.floor(np.where(missing, 0, known)).astype(np.int64)

    def _probabilities(self, role: str, table: Any, row: int) -> NDArray[np.float32]:
        """Confidences in [0, 1], or log-probabilities of at most 0; NaN where missing."""
        values = self.numbers(table, role, f", or leave it out with --{role} none")
        low, high, rule = (
            (0.0, 1.0, "a confidence is a probability between 0 and 1")
            if role == "confidence"
            else (-np.inf, 0.0, "the log of a probability is at most 0")
        )
        bad = (values < low) | (values > high + 1e-6)  # rounding of 32-bit floats
        if bad.any():
            first = int(bad.argmax())
            raise StreamgaugeError(
                f"{self.row_name(row + first)} of {self.name} has {values[first]:g} in column"
                f" '{self.roles[role]}', but {rule}: name another column with --{role}, or leave it"
                f" out with --{role} none"
            )
        return np.minimum(values, high).astype(np.float32)

    def _number_column(self, name: str, column: Any) -> NDArray[np.float32]:
        numbers = as_numbers(column)
        if numbers is None:
            raise StreamgaugeError(f"feature column '{name}' holds no numbers: leave it out")
        return numbers.astype(np.float32)
