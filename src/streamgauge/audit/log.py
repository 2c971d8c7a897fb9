"""What the columns of a log mean, and its rows as plain arrays, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.sources import Source, open_source
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.tables.lines import place

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]

# What people call these columns, the likeliest first; compared without case, spaces, _ and -.
GUESSES = {
    "label": ("label", "labels", "y", "ytrue", "target", "targets", "truth", "groundtruth",
              "truelabel", "actual", "class"),
    "prediction": ("prediction", "predictions", "pred", "preds", "predicted", "ypred", "yhat",
                   "predictedlabel", "predlabel", "guess", "output"),
    "time": ("time", "timestamp", "ts", "datetime", "date", "unixtime"),
    "user": ("user", "userid", "uid", "username", "author", "owner"),
    "album": ("album", "albumid"),
    "step": ("step", "batch", "stepid", "batchid"),
    "shift": ("shift",),
    "age": ("age", "modelage", "staleness"),
}  # fmt: skip
TEXT = ("label", "prediction", "user", "album")
NOT_WANTED = "none"
WHOLE = r"-?(0|[1-9]\d{0,17})"


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


class Names:
    """Class names to numbers, in the order they are met; the same in every pass over the log."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def encode(self, column: Any) -> Codes:
        """Numbers of an Arrow column without missing values, or -1 where missing."""
        import pyarrow as pa

        chunks = []
        for chunk in column.chunks:
            if not pa.types.is_dictionary(chunk.type):
                chunk = chunk.dictionary_encode()
            known = [self.number(value) for value in chunk.dictionary.to_pylist()]
            table = np.array([*known, -1], np.int32)
            places = chunk.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
            chunks.append(table[places])
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int32)

    def number(self, value: Any) -> int:
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, bytes):
            value = value.decode("utf-8", errors="replace")
        # Whole numbers are one class however they were written: 3, "3", or 3.0 as a prediction.
        written = isinstance(value, str) and re.fullmatch(WHOLE, value.strip())
        if written or (isinstance(value, float) and value == int(value)):
            value = int(value)
        return self.numbers.setdefault(value, len(self.numbers))

    def sorted_places(self) -> Codes:
        """Where each number stands when the classes are sorted, for the rule "smallest"."""
        names = list(self.numbers)
        whole = all(isinstance(n, int) for n in names)
        order = sorted(range(len(names)), key=(lambda i: names[i]) if whole else (
            lambda i: (0, f"{names[i]:020d}") if isinstance(names[i], int) else (1, names[i])
        ))  # fmt: skip
        places = np.empty(len(names), np.int32)
        places[order] = np.arange(len(names), dtype=np.int32)
        return places


class Log:
    """The log of some system: its columns, what they mean, and its rows in pieces.

    Every role (label, prediction, time, user, album, step, shift, age) may be given the name of its
    column, or ``"none"`` to leave it out; otherwise it is guessed from the usual names, and
    ``guessed`` says which were. ``features`` names columns, or one array with a row a sample.
    """

    def __init__(
        self,
        log: str | Path | Mapping[str, Any],
        *,
        features: Sequence[str] = (),
        **columns: str | None,
    ) -> None:
        self.source: Source = open_source(log)
        self.first_row = 0  # of the source, in the log
        self.name = str(log) if isinstance(log, str | Path) else "the arrays given"
        self.file = Path(log) if isinstance(log, str | Path) else None
        self.roles: dict[str, str] = {}
        self.guessed: list[str] = []
        for role in GUESSES:
            self._find(role, columns.get(role))
        if "label" not in self.roles:
            raise StreamgaugeError(
                f"no column of {self.name} looks like the labels: name it with --label; the "
                f"columns are {', '.join(self.source.names)}"
            )
        for name in features:
            self._require("feature", name)
        self.features = tuple(features)
        self.classes = Names()
        self.users = Names()
        self.albums = Names()

    def _find(self, role: str, given: str | None) -> None:
        if given is not None:
            if given.lower() != NOT_WANTED or given in self.source.names:
                self._require(role, given)
                self.roles[role] = given
            return
        plain = {re.sub(r"[\s_\-.]", "", n).lower(): n for n in reversed(self.source.names)}
        for guess in GUESSES[role]:
            if guess in plain and plain[guess] not in self.roles.values():
                self.roles[role] = plain[guess]
                self.guessed.append(role)
                return

    def _require(self, role: str, name: str) -> None:
        names = self.source.names
        if name not in names:
            hint = nearest(name, names)
            there = "" if hint.startswith("there is") else f"; the columns are {', '.join(names)}"
            raise StreamgaugeError(
                f"{self.name} has no column '{name}' for --{role}: {hint.rstrip('.')}{there}"
            )

    def pieces(self) -> Iterator[Piece]:
        """The rows, a bounded number at a time, in the order of the file."""
        flat, matrix = [], None
        for name in self.features:
            found = self.source.matrix(name)
            if found is None:
                flat.append(name)
            else:
                matrix = found.reshape(len(found), -1)
        text = [self.roles[r] for r in TEXT if r in self.roles]
        wanted = [*self.roles.values(), *flat]
        row = self.first_row
        for table in self.source.tables(wanted, text):
            if table.num_rows:
                yield self._piece(table, row, flat, matrix)
                row += table.num_rows
        if row == self.first_row:
            raise StreamgaugeError(f"{self.name} has no rows: a log needs a label for every sample")
        if matrix is not None and len(matrix) != row:
            raise StreamgaugeError(f"there are {len(matrix)} rows of features for {row} labels")

    def _piece(self, table: Any, row: int, flat: list[str], matrix: NDArray[Any] | None) -> Piece:
        labels = as_classes(table[self.roles["label"]])
        self._check_labels(labels, row)
        read: dict[str, Any] = {"label": self.classes.encode(labels)}
        if "prediction" in self.roles:
            predictions = as_classes(table[self.roles["prediction"]])
            self._check_whole("prediction", predictions, "give the class that was predicted")
            read["prediction"] = self.classes.encode(predictions)
        if "user" in self.roles:
            read["user"] = self.users.encode(table[self.roles["user"]])
        if "album" in self.roles:
            read["album"] = self.albums.encode(table[self.roles["album"]])
        if "time" in self.roles:
            read["time"] = to_seconds(table[self.roles["time"]], self.roles["time"], row, self.file)
        for role in ("step", "shift", "age"):
            if role in self.roles:
                read[role] = self._whole(role, table[self.roles[role]], row)
        if flat:
            columns = [self._number_column(name, table[name]) for name in flat]
            read["features"] = np.stack(columns, axis=1)
        elif matrix is not None:
            read["features"] = matrix[row : row + table.num_rows].astype(np.float32)
        return Piece(**read)

    def _check_labels(self, column: Any, row: int) -> None:
        import pyarrow as pa

        name = self.roles["label"]
        if column.null_count:
            missing = int(np.argmax(column.is_null().to_numpy()))
            raise StreamgaugeError(
                f"{called(self.file, row + missing)} of {self.name} has no label in column "
                f"'{name}': drop the rows without a label"
            )
        if pa.types.is_nested(column.type):
            raise StreamgaugeError(
                f"column '{name}' holds lists: a label is one class, so name another column"
            )
        self._check_whole("label", column, "write classes as whole numbers or names")
        low = least_number(column)
        if low is not None and low < 0:
            raise StreamgaugeError(
                f"label {low} in column '{name}' is negative: drop or relabel the samples whose "
                "class is unknown"
            )

    def _check_whole(self, role: str, column: Any, mend: str) -> None:
        """Refuse fractions: 0.73 is no class. For labels even 3.0, which often hides a gap."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self.roles[role]
        fraction = None
        if pa.types.is_floating(column.type):
            if role == "label":
                fraction = column[0].as_py()
            else:
                off = pc.or_(pc.not_equal(pc.floor(column), column), pc.is_inf(column))
                off = off.fill_null(False)
                if pc.any(off).as_py():
                    fraction = pc.filter(column, off)[0].as_py()
        elif pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                for value in chunk.dictionary.to_pylist():
                    if re.fullmatch(r"[+-]?\d*\.\d*(e[+-]?\d+)?", str(value).strip(), re.I):
                        fraction = None if role != "label" and float(value) % 1 == 0 else value
                    if fraction is not None:
                        break
        if fraction is not None:
            raise StreamgaugeError(
                f"column '{name}' holds floating-point numbers such as {fraction}, not classes: "
                f"{mend}"
            )

    def _whole(self, role: str, column: Any, row: int) -> Ints:
        name = self.roles[role]
        try:
            numbers: NDArray[Any] = column.to_numpy()
            if numbers.dtype.kind == "i":  # beyond 2^53 neighbours would become one as floats
                return numbers.astype(np.int64)
            numbers = np.asarray(numbers, dtype=np.float64)
        except (ValueError, TypeError):
            raise StreamgaugeError(
                f"column '{name}' is taken as the {role} but holds no numbers: name another column "
                f"with --{role}, or leave it out with --{role} none"
            ) from None
        if not np.all(np.isfinite(numbers)):
            missing = int(np.argmax(~np.isfinite(numbers)))
            raise StreamgaugeError(
                f"{called(self.file, row + missing)} has no {role} in column '{name}': "
                f"fill it in, or leave the column out with --{role} none"
            )
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
        try:
            return np.asarray(column.to_numpy(), dtype=np.float32)
        except (ValueError, TypeError):
            raise StreamgaugeError(
                f"feature column '{name}' holds no numbers: leave it out"
            ) from None


def as_classes(column: Any) -> Any:
    """Text by its distinct values, of which there are few; anything else as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):  # NaN is missing, whoever wrote the file
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.dictionary_encode() if is_text else column


def least_number(column: Any) -> int | None:
    """The smallest whole number among the labels, as numbers or as text; None without any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        found = pc.min(column).as_py()
        return None if found is None else int(found)
    if pa.types.is_dictionary(column.type):
        values = [v for chunk in column.chunks for v in chunk.dictionary.to_pylist()]
        whole = [int(v) for v in values if re.fullmatch(WHOLE, str(v).strip())]
        return min(whole, default=None)
    return None


def called(file: Path | None, row: int) -> str:
    """A row within a sentence: its line, where the file has lines."""
    text = place(file, row)
    return text[0].lower() + text[1:]


def read_times(text: Any) -> Any:
    """ISO text as times: whole seconds, parts of seconds, or with their distance from UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for kind in (pa.timestamp("s"), pa.timestamp("ns")):
        with suppress(pa.ArrowInvalid):
            return pc.cast(text, kind)
    return pc.cast(text, pa.timestamp("ns", "UTC"))


def to_seconds(column: Any, name: str, row: int, file: Path | None = None) -> Ints:
    """Times as whole seconds: numbers (seconds, or finer when huge), dates, or ISO text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        missing = int(np.argmax(column.is_null().to_numpy()))
        raise StreamgaugeError(
            f"{called(file, row + missing)} has no time in column '{name}': fill it "
            "in, or leave the times out with --time none"
        )
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = np.asarray(column.to_numpy(), dtype=np.float64)
        size = float(np.max(np.abs(numbers), initial=0))
        # A date of this century is about 1e9 seconds; anything much larger counts finer units.
        scale = next((s for s in (1e9, 1e6, 1e3) if size / s > 1e8), 1.0)
        whole: Ints = np.floor(numbers / scale).astype(np.int64)
        return whole
    try:
        if (
            pa.types.is_dictionary(kind)
            or pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
        ):
            text = pc.replace_substring_regex(
                column.cast(pa.string()), r"\s*(UTC|Z|GMT|[+]00:?00)$", ""
            )
            column = read_times(pc.utf8_trim_whitespace(text))
        stamps = column.cast(pa.timestamp("ns")).cast(pa.int64())
        seconds: Ints = np.asarray(stamps.to_numpy(), dtype=np.int64) // 1_000_000_000
        return seconds
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise StreamgaugeError(
            f"column '{name}' holds no times that can be read: write seconds or ISO dates "
            "(2026-01-31 12:00:00), or leave the times out with --time none"
        ) from None
