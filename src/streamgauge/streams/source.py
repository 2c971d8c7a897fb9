"""A source: samples addressable by index, with a label each and, where known, time, user, place.

A source never knows an order; a stream is an order over a source. Anything with these members is
a source; nothing needs to be inherited.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.times import are_days, scale_times, time_unit

Array = NDArray[Any]
IntArray = NDArray[np.integer[Any]]

# Column names with a meaning; a source may carry others, which are left alone.
KNOWN_COLUMNS = ("time", "user", "domain", "latitude", "longitude")
_MEASURED = ("time", "latitude", "longitude")  # numbers, where the others only name
_COMPLETE = ("time", "user", "domain")  # an order or a step depends on them


class Spec(NamedTuple):
    """All that a learner is told of the data: the shape of one input and how many classes fit."""

    input_shape: tuple[int, ...]
    classes: int


class Source(Protocol):
    """Samples by address. `read` gives inputs as bytes (uint8) or float32, first axis = samples."""

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


class ArraySource:
    """A source over arrays in memory (or memory-mapped): one's own data in one line.

    >>> source = ArraySource(np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 1, 2]))
    >>> source.spec
    Spec(input_shape=(3, 8, 8), classes=3)
    >>> source.read(np.array([1, 3])).shape
    (2, 3, 8, 8)
    """

    in_memory = True  # reading costs nothing but a copy

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
        self._x = _as_inputs(x)
        # A checksum of the inputs that was verified before may stand for them in the fingerprint.
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
        """A hash of everything in the source, so that a run knows which data it saw. Where there
        is an `x_hash`, the inputs themselves are not read for it."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.spec.classes, self.class_names)).encode())
        parts = {"x": self._x, "y": self.label} | dict(sorted(self.columns.items()))
        for name, part in parts.items():
            digest.update(f"{name}{part.dtype}{part.shape}".encode())
            if name == "x" and self.x_hash is not None:
                digest.update(self.x_hash.encode())
            else:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def as_labels(
    y: Array, classes: int | None, class_names: Sequence[str] | None
) -> tuple[IntArray, Sequence[str] | None, int]:
    """Labels as numbers, the names of classes, and how many classes fit; or a sentence."""
    y = _as_array(y, "Labels")
    if len(y) == 0:
        raise StreamgaugeError("The stream is empty: there is no label in it.")
    if y.ndim != 1:
        raise StreamgaugeError(f"Labels must be one number a sample, not of shape {y.shape}.")
    if class_names is not None:
        class_names = [str(name) for name in class_names]
    label, names = _numbers_and_names(y, class_names)
    highest = int(label.max())
    if classes is None:
        classes = max(highest + 1, len(names or ()))
    classes = _as_count(classes)
    if label.min() < 0 or highest >= classes:
        bad = int(np.flatnonzero((label < 0) | (label >= classes))[0])
        raise StreamgaugeError(
            f"Label {label[bad]} of sample {bad} lies outside the class range 0..{classes - 1}."
        )
    return label, names, classes


def _as_array(values: Array, what: str) -> Array:
    if hasattr(values, "detach"):  # a tensor, which may require a gradient or lie on a device
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError as error:  # NumPy's word for lists of unequal length
        raise StreamgaugeError(f"{what} must have one shape for all samples.") from error
    except TypeError as error:  # a tensor of a type that NumPy lacks, or a sparse one
        raise StreamgaugeError(
            f"{what} must be a NumPy array, or a dense tensor of a type that NumPy has:"
            " convert them first, for instance with .float()."
        ) from error
    if array.ndim == 0:
        raise StreamgaugeError(f"{what} must be an array with one entry a sample, not one value.")
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
    y: Array, class_names: Sequence[str] | None
) -> tuple[IntArray, Sequence[str] | None]:
    """Integers stay as they are; text is numbered as the class names are, or, where none are given,
    in alphabetical order, and the names are kept."""
    if y.dtype.kind == "U" or (y.dtype == object and all(isinstance(v, str) for v in y)):
        there, numbered = np.unique(y.astype(str), return_inverse=True)
        names = [str(n) for n in there]
        if class_names is None:
            return numbered.astype(np.int64), names
        place = {name: number for number, name in enumerate(class_names)}
        for name in names:
            if name not in place:
                raise StreamgaugeError(f"The label '{name}' is not among the class names given.")
        return np.array([place[name] for name in names])[numbered], class_names
    if y.dtype.kind == "f":
        raise StreamgaugeError(
            "The targets are floats: regression is not there yet; give whole-number class labels."
        )
    if y.dtype.kind not in "iub":
        raise StreamgaugeError(f"Labels must be whole numbers or text, not {y.dtype}.")
    return y.astype(np.int8) if y.dtype.kind == "b" else y, class_names


def _as_inputs(x: Array) -> Array:
    if x.dtype.kind not in "fiub":
        raise StreamgaugeError(
            f"Inputs must be numbers of one shape for all samples, not of type {x.dtype}."
        )
    if x.ndim == 1:
        raise StreamgaugeError(
            f"Inputs of shape {x.shape} have no axis of features: where each sample is one"
            " number, give x.reshape(-1, 1)."
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "f":
        for start in range(0, len(x), 65536):
            with np.errstate(over="ignore"):  # what is too large becomes an infinity, and is said
                block = x[start : start + 65536].astype(np.float32, copy=False)
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
    if column.dtype.kind == "m":  # seconds, for a date since 1970; what is no date becomes NaN
        column = column / np.timedelta64(1, "s")
    elif name == "time" and column.dtype.kind in "iuf":
        unit = time_unit(column[:65536])  # of tens of millions of samples not all are read here
        if unit > 1.0 or (unit == 0.0 and are_days(column)):
            column = scale_times(column, unit)
    if name in _MEASURED and column.dtype.kind not in "iuf":
        raise StreamgaugeError(
            f"The column '{name}' must hold numbers{' or datetime64' * (name == 'time')},"
            f" not {column.dtype}: convert it first."
        )
    if name in _COMPLETE:
        _refuse_missing(name, column)
    if column.dtype.kind in "USO":  # users and domains by name: only equality matters
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
    """Users as the log can hold them, in 64 bits with a sign: as they are, or else numbered."""
    if user.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # what is too large comes out different, and is seen
            whole = user.astype(np.int64)
        return whole if bool((whole == user).all()) else _numbered(user)
    if user.dtype.kind in "ib" or (user.dtype.kind == "u" and user.max() <= np.iinfo(np.int64).max):
        return user
    return _numbered(user)


def _numbered(names: Array) -> Array:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
