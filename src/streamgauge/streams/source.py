"""A source: samples addressable by index, with labels and, where known, time, user and location.

A source has no order; a stream is an order over a source. Any object with the members of `Source`
is a source, without inheritance.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.columns import announce
from streamgauge.tables.roles import coded_line
from streamgauge.tables.times import are_days, scale_times, time_unit

PIECE = 1 << 16  # samples of a long stream that are processed at once

Array = NDArray[Any]
IntArray = NDArray[np.integer[Any]]

# Column names with a meaning; a source may have others, which are not used.
KNOWN_COLUMNS = ("time", "user", "domain", "latitude", "longitude")
_MEASURED = ("time", "latitude", "longitude")  # numbers; the others are identifiers
_COMPLETE = ("time", "user", "domain")  # no missing values: orders and steps depend on them


class Spec(NamedTuple):
    """The facts that a learner gets about the data: input shape and number of classes."""

    input_shape: tuple[int, ...]
    classes: int


class Source(Protocol):
    """Samples by address. `read` returns inputs as uint8 or float32; the first axis is samples."""

    @property
    def spec(self) -> Spec: ...
    @property
    def label(self) -> IntArray: ...
    @property
    def columns(self) -> Mapping[str, Array]: ...
    @property
    def class_names(self) -> Sequence[str] | None: ...
    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...
    def read(self, index: IntArray) -> Array: ...


def pieces(count: int, size: int = 0) -> Iterator[slice]:
    """0..count in slices of at most `size` (0: PIECE), so that temporary arrays stay small."""
    size = size or PIECE
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


class SourceView:
    """A source over another one; all members are as there unless a subclass overrides them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.spec, self.class_names = source.spec, source.class_names
        self.label, self.columns = source.label, source.columns

    def __len__(self) -> int:
        return len(self.label)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._source, name)

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    def read(self, index: IntArray) -> Array:
        return self._source.read(index)


RAW_SIZE = 10.0  # median size of a column above which inputs are called raw


class ArraySource:
    """A source over arrays in memory, or memory-mapped.

    >>> source = ArraySource(np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 1, 2]))
    >>> source.spec
    Spec(input_shape=(3, 8, 8), classes=3)
    >>> source.read(np.array([1, 3])).shape
    (2, 3, 8, 8)
    """

    in_memory = True  # reading costs nothing but a copy
    scaled = 0  # columns that are standardised online

    def __init__(
        self,
        x: Array,
        y: Array,
        *,
        classes: int | None = None,
        class_names: Sequence[str] | None = None,
        **columns: Array,
    ) -> None:
        x, y = _as_array(x, "Inputs"), _as_array(y, "Labels")
        if len(y) and len(x) != len(y):
            raise StreamgaugeError(f"There are {len(x)} inputs but {len(y)} labels.")
        self.label, self.class_names, classes = as_labels(y, classes, class_names)
        self._x = _as_inputs(x, self.scaled)
        # A verified checksum of the inputs may replace them in the fingerprint.
        self.x_hash: str | None = None
        self.spec = Spec(tuple(x.shape[1:]), classes)
        self.columns: dict[str, Array] = {
            name: as_named_column(name, column, len(self.label)) for name, column in columns.items()
        }

    def __len__(self) -> int:
        return len(self.label)

    def read(self, index: IntArray) -> Array:
        values: Array = self._x[index]
        return values

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the source. With an `x_hash` the inputs are not read for it."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.spec.classes, self.class_names)).encode())
        if self.scaled:
            digest.update(f"scaled {self.scaled}".encode())
        parts = {"x": self._x, "y": self.label} | dict(sorted(self.columns.items()))
        for name, part in parts.items():
            hash_array(digest, name, part, self.x_hash if name == "x" else None)
        return digest.hexdigest()


class VectorSource(ArraySource):
    """Vectors whose first `scaled` columns are standardised online when a learner reads them; a
    NaN in such a column is a missing value. `read` itself gives the values as they are."""

    def __init__(self, x: Array, y: Array, scaled: int, **options: Any) -> None:
        self.scaled = scaled
        super().__init__(x, y, **options)


def raw_scale_line(x: Array, how: str) -> str:
    """A sentence if vectors are far from standardised, from their first rows; else "". `how` says
    how to have them standardised."""
    if x.ndim != 2 or x.dtype == np.uint8 or not x.size:
        return ""
    size = np.median(np.abs(np.asarray(x[:1000], np.float64)), axis=0)
    column = int(size.argmax())
    if not size[column] > RAW_SIZE:
        return ""
    return (
        f"Inputs are taken as they are, and column {column} has values such as"
        f" {float(x[0, column]):.4g}: networks may learn nothing from such numbers; {how}"
        " standardises them."
    )


def hash_array(digest: Any, name: str, array: Array, known: str | None = None) -> None:
    """Add an array to a hash: its name, type, shape and bytes, or a `known` hash of its bytes."""
    digest.update(f"{name}{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data if known is None else known.encode())


def as_labels(
    y: Array, classes: int | None, class_names: Sequence[str] | None
) -> tuple[IntArray, Sequence[str] | None, int]:
    """Checked labels as numbers, the class names, and the number of classes."""
    y = _as_array(y, "Labels")
    if len(y) == 0:
        raise StreamgaugeError("The stream is empty: there is no label in it.")
    if y.ndim != 1:
        one_hot = y.ndim == 2 and y.dtype.kind in "iufb" and (np.sort(y, axis=1)[:, :-1] == 0).all()
        hint = " For one-hot labels: y.argmax(axis=1)." if one_hot and y.shape[1] > 1 else ""
        raise StreamgaugeError(
            f"Labels must be one number per sample, not of shape {y.shape}.{hint}"
        )
    if class_names is not None:
        class_names = [str(name) for name in class_names]
    label, names = _numbers_and_names(y, class_names, classes is None)
    if classes is None:
        classes = max(int(label.max()) + 1, len(names or ()))
    classes = _as_count(classes)
    if label.min() < 0 or label.max() >= classes:
        bad = int(np.flatnonzero((label < 0) | (label >= classes))[0])
        raise StreamgaugeError(
            f"Label {label[bad]} of sample {bad} lies outside the class range 0..{classes - 1}:"
            " without `classes`, labels of any values are coded."
        )
    return label, names, classes


def _as_array(values: Array, what: str) -> Array:
    if hasattr(values, "detach"):  # a tensor, which may require a gradient or be on a device
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of unequal length
        raise StreamgaugeError(f"{what} must have one shape for all samples.") from error
    except TypeError as error:  # a tensor of a type that NumPy lacks, or a sparse one
        raise StreamgaugeError(
            f"{what} must be a NumPy array, or a dense tensor of a type that NumPy has:"
            " convert them first, for instance with .float()."
        ) from error
    if array.ndim == 0 and hasattr(values, "toarray"):
        raise StreamgaugeError(f"{what} must be a dense array: give the sparse one's .toarray().")
    if array.ndim == 0:
        raise StreamgaugeError(f"{what} must be an array with one entry per sample, not one value.")
    return array


def _as_count(classes: Any) -> int:
    try:
        count = -1 if isinstance(classes, bool) else operator.index(classes)
    except TypeError:
        count = -1
    if count < 1:
        raise StreamgaugeError(f"classes must be a whole number from 1 on, not {classes!r}.")
    return count


def _numbers_and_names(
    y: Array, class_names: Sequence[str] | None, may_code: bool
) -> tuple[IntArray, Sequence[str] | None]:
    """Labels as numbers, and class names. Text becomes its number among the class names. Without
    class names, text and numbers that are not 0..C-1 are coded in order of first appearance."""
    text = y.dtype.kind == "U" or (y.dtype == object and all(isinstance(v, str) for v in y))
    if len(missing := _missing(y)):
        raise StreamgaugeError(
            f"{len(missing):,} of {len(y):,} labels are missing, the first of sample {missing[0]}:"
            " leave such samples out, or give a data frame, sg.stream(frame, label=COLUMN), which"
            " leaves them out."
        )
    if y.dtype.kind == "f":
        whole = bool((y == np.floor(y)).all())
        raise StreamgaugeError(
            "The targets are floats: "
            + (
                "classes are whole numbers, y.astype(int)."
                if whole
                else "regression is not supported; give whole-number class labels."
            )
        )
    if not text and y.dtype.kind not in "iub":
        raise StreamgaugeError(f"Labels must be whole numbers or text, not {y.dtype}.")
    if y.dtype.kind == "b":
        return y.astype(np.int8), class_names
    if not text and (not may_code or _is_range(y, class_names)):
        return y, class_names
    values, first, inverse = np.unique(
        y.astype(str) if text else y, return_index=True, return_inverse=True
    )
    names = [str(value) for value in values]
    if class_names is None:
        order = np.argsort(first)
        class_names = [names[at] for at in order]
        if line := coded_line(class_names):
            announce(line.strip())
        return np.argsort(order)[inverse].astype(np.int64), class_names
    number_of = {name: number for number, name in enumerate(class_names)}
    for name in names:
        if name not in number_of:
            raise StreamgaugeError(f"The label '{name}' is not among the class names given.")
    return np.array([number_of[name] for name in names])[inverse], class_names


def _missing(y: Array) -> IntArray:
    """The samples without a label."""
    if y.dtype.kind == "f":
        return np.flatnonzero(np.isnan(y))
    if y.dtype != object:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.array([_is_missing(value) for value in y], bool))


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas is neither
        return True
    except ValueError:  # an array
        return False


def _is_range(y: IntArray, class_names: Sequence[str] | None) -> bool:
    """Whether labels are 0..C-1, all of them there unless class names say how many there are."""
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= len(y if class_names is None else class_names):
        return False
    return class_names is not None or bool(np.bincount(y.astype(np.int64)).all())


def _as_inputs(x: Array, scaled: int = 0) -> Array:
    if x.dtype.kind not in "fiub":
        raise StreamgaugeError(
            f"Inputs must be numbers of one shape for all samples, not of type {x.dtype}."
        )
    if x.ndim == 1:
        raise StreamgaugeError(
            f"Inputs of shape {x.shape} have no axis of features: where each sample is one"
            " number, give x.reshape(-1, 1)."
        )
    if scaled and x.ndim != 2:
        raise StreamgaugeError(
            f"Inputs of shape {x.shape[1:]} are no vectors, and only vectors are standardised"
            " online: set scale to none."
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "f":
        for start in range(0, len(x), 65536):
            with np.errstate(over="ignore"):  # too large values become infinite and are reported
                block = x[start : start + 65536].astype(np.float32, copy=False)
            block = block[:, scaled:] if scaled else block  # NaN is a missing value in the others
            if not np.isfinite(block).all():
                flat = np.isfinite(block.reshape(len(block), -1)).all(axis=1)
                bad = start + int(np.flatnonzero(~flat)[0])
                raise StreamgaugeError(
                    f"Input {bad} holds a NaN, an infinity, or a value too large for 32 bits."
                )
    return x.astype(np.float32, copy=False)


def as_named_column(name: str, column: Array, length: int) -> Array:
    column = _as_array(column, f"The entries of the column '{name}'")
    if column.shape != (length,):
        raise StreamgaugeError(
            f"The column '{name}' has shape {column.shape}, where ({length},) is needed."
        )
    if column.dtype.kind == "M":
        column = column - np.datetime64(0, "s")
    if column.dtype.kind == "m":  # seconds, for dates since 1970; NaT becomes NaN
        column = column / np.timedelta64(1, "s")
    elif name == "time" and column.dtype.kind in "iuf":
        unit = time_unit(column[:65536])  # not all of tens of millions of samples are read
        if unit > 1.0 or (unit == 0.0 and are_days(column)):
            column = scale_times(column, unit)
    if name in _MEASURED and column.dtype.kind not in "iuf":
        raise StreamgaugeError(
            f"The column '{name}' must hold numbers{' or datetime64' * (name == 'time')},"
            f" not {column.dtype}: convert it first."
        )
    if name in _COMPLETE:
        _refuse_missing(name, column)
    if column.dtype.kind in "USO":  # users and domains as text: only equality matters
        return _numbered(column.astype(str))
    return _as_users(column) if name == "user" else column


def _refuse_missing(name: str, column: Array) -> None:
    if column.dtype.kind == "f":
        missing = ~np.isfinite(column)
    elif column.dtype == object:
        missing = np.array([v is None or (isinstance(v, float) and v != v) for v in column])
    else:
        return
    if missing.any():
        bad = int(missing.argmax())
        raise StreamgaugeError(
            f"The column '{name}' is {column[bad]} at sample {bad}: fill it in, or leave out such"
            " samples."
        )


def _as_users(user: Array) -> Array:
    """Users as int64, the type of the log: unchanged if possible, else numbered."""
    if user.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # too large values change, which is refused below
            whole = user.astype(np.int64)
        return whole if bool((whole == user).all()) else _numbered(user)
    if user.dtype.kind in "ib" or (user.dtype.kind == "u" and user.max() <= np.iinfo(np.int64).max):
        return user
    return _numbered(user)


def _numbered(names: Array) -> Array:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
