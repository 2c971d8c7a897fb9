"""What the columns of a log mean, and its rows as plain arrays, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.read import RoleTable
from streamgauge.tables.times import TimeParser
from streamgauge.tables.values import Codes, Ints, Vocabulary
from streamgauge.tables.values import numbers as as_numbers

ROLES = ("label", "prediction", "time", "user", "album", "step", "shift", "age")
TEXT = ("label", "prediction", "user", "album")


@dataclass(frozen=True)
class Piece:
    """Rows of the log as arrays; what the log does not have is None."""

    label: Codes
    prediction: Codes | None = None
    """-1 where there is none."""
    time: Ints | None = None
    user: Codes | None = None
    album: Codes | None = None
    step: Ints | None = None
    shift: Ints | None = None
    age: Ints | None = None
    features: NDArray[np.float32] | None = None


class PredictionLog(RoleTable):
    """The log of a system, read in pieces; its roles are label, prediction, time, user, album,
    step, shift and age. ``features`` names columns, or one array with a row per sample."""

    def __init__(self, log: Any, *, features: Sequence[str] = (), **columns: str | None) -> None:
        super().__init__(log, "", ROLES, columns, ["label"], features, "feature")
        self.first_row = 0  # of the source, in the log
        self.features = tuple(features)
        self.classes = Vocabulary()
        self.named: set[str] = set()  # roles whose column has names for classes
        self.groups = {"user": Vocabulary(), "album": Vocabulary()}
        self.times = TimeParser(self.roles.get("time", ""))

    def row_name(self, row: int) -> str:
        """A row within a sentence: its line, where the file has lines."""
        name = super().row_name(row)
        return name[0].lower() + name[1:]

    def pieces(self) -> Iterator[Piece]:
        """The rows, a bounded number at a time, in the order of the file."""
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
        for table in self.source.pieces(wanted, text):
            if table.num_rows:
                yield self._piece(table, row, flat, matrix)
                row += table.num_rows
        if row == self.first_row:
            raise StreamgaugeError(f"{self.name} has no rows: a log needs a label for every sample")
        if matrix is not None and len(matrix) != row:
            raise StreamgaugeError(f"there are {len(matrix)} rows of features for {row} labels")

    def _piece(self, table: Any, row: int, flat: list[str], matrix: NDArray[Any] | None) -> Piece:
        read: dict[str, Any] = {"label": self._labels(table[self.roles["label"]], row)}
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
        for role in ("step", "shift", "age"):
            if role in self.roles:
                read[role] = self._whole(role, table, row)
        if flat:
            columns = [self._number_column(name, table[name]) for name in flat]
            read["features"] = np.stack(columns, axis=1)
        elif matrix is not None:
            read["features"] = matrix[row : row + table.num_rows].astype(np.float32)
        return Piece(**read)

    def _labels(self, column: Any, row: int) -> Codes:
        name = self.roles["label"]
        if pa.types.is_nested(column.type):
            raise StreamgaugeError(
                f"column '{name}' holds lists: a label is one class, so name another column"
            )
        labels = self.classes.encode(column)
        self._refuse_fractions("label", labels, "write classes as whole numbers or names")
        why = f"has no label in column '{name}': drop the rows without a label."
        self.rows(row, len(labels)).refuse(labels < 0, "missing label", why)
        for key, code in self.classes.numbers.items():
            if isinstance(key, int) and key < 0 and (labels == code).any():
                raise StreamgaugeError(
                    f"label {key} in column '{name}' is negative: drop or relabel the samples whose"
                    " class is unknown"
                )
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

    def _number_column(self, name: str, column: Any) -> NDArray[np.float32]:
        numbers = as_numbers(column)
        if numbers is None:
            raise StreamgaugeError(f"feature column '{name}' holds no numbers: leave it out")
        return numbers.astype(np.float32)
