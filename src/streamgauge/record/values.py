"""Values that a recorder is given, as numbers of the log: ids, classes, scores, times."""

from __future__ import annotations

import math
import os
import secrets
import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.history.known import as_seconds

Kind = Literal["probabilities", "log-probabilities", "logits"]
KINDS: tuple[Kind, ...] = ("probabilities", "log-probabilities", "logits")
TEXT = 1 << 62  # samples with text ids have numbers from here on; whole numbers keep theirs
SUM_TOLERANCE = 0.01  # of probabilities; half precision rounds
_LENGTH = struct.Struct("<i")


def as_array(value: Any) -> NDArray[Any]:
    """Any array, tensor, series or list; half precision becomes float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        half = value.is_floating_point() and value.element_size() < 4
        value = value.float() if half else value
    return np.asarray(value)


def is_one(value: Any) -> bool:
    """Whether this is one id or class, not a sequence of them."""
    return isinstance(value, (str, int, float, UUID, np.generic)) or value is None


def unpacked(value: Any) -> Any:
    """The number in an array or a tensor without axes; any other value as it is."""
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):
        return value.item()
    return value


class Ids:
    """Ids as text and as numbers of samples. An id that is a whole number is its own number; others
    have a hash. With a key, ids and users are only stored as keyed hashes."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def of(self, ids: Any) -> tuple[Any, bytes, bytes, int]:
        """Number or numbers of samples; lengths and bytes of their texts; how many there are."""
        if is_one(ids):
            sample, text = self._one(ids)
            data = text.encode()
            return sample, _LENGTH.pack(len(data)), data, 1
        values = as_array(ids)
        if values.ndim != 1:
            raise StreamgaugeError(f"ids are one id or a list of ids, not an array {values.shape}.")
        if not len(values):
            return values.astype(np.int64), b"", b"", 0
        if values.dtype.kind in "iu" and not self._key and 0 <= values.min() <= values.max() < TEXT:
            samples, texts = values.astype(np.int64), pa.array(values).cast(pa.string())
        else:
            pairs = [self._one(value) for value in values.tolist()]
            samples = np.array([sample for sample, _ in pairs], np.int64)
            texts = pa.array([text for _, text in pairs], pa.string())
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32, len(values) + 1)
        joined = b"" if data is None else data.to_pybytes()[: ends[-1]]
        return samples, np.diff(ends).astype("<i4").tobytes(), joined, len(values)

    def users(self, users: Any) -> Any:
        """Numbers of users; -1 for None."""
        if users is None:
            return -1
        if is_one(users):
            return self._user(users)
        values = as_array(users)
        if values.dtype.kind in "iu" and not self._key:
            return values.astype(np.int64)
        return np.array([self._user(value) for value in values.tolist()], np.int64)

    def check(self) -> str | None:
        """A hash by which another key is noticed."""
        return self._hash("streamgauge", b"check").hex() if self._key else None

    def _one(self, value: Any) -> tuple[int, str]:
        if type(value) is not str:
            if isinstance(value, bool | np.bool_) or not isinstance(
                value, (int, np.integer, str, UUID)
            ):
                raise StreamgaugeError(f"An id is a whole number or text, not {value!r}.")
            value = str(value)
        if self._key:
            digest = self._hash(value, b"id")
            return int.from_bytes(digest[:8], "little") >> 1, digest.hex()
        if value.isdecimal() and value.isascii() and len(value) < 19 and str(int(value)) == value:
            return int(value), value
        return TEXT | int.from_bytes(self._hash(value)[:8], "little") >> 2, value

    def _user(self, value: Any) -> int:
        if not self._key and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return int(value)
        if not isinstance(value, (int, np.integer, str, UUID)):
            raise StreamgaugeError(f"A user is a whole number or text, not {value!r}.")
        return int.from_bytes(self._hash(str(value), b"user")[:8], "little") >> 1

    def _hash(self, text: str, purpose: bytes = b"") -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._key, person=purpose).digest()


def id_key(key: str | bytes | None) -> bytes:
    """The key for hashing ids: the given one, or that of the user's configuration folder, which is
    made at its first use. It is never in the log."""
    if key is not None:
        given = key.encode() if isinstance(key, str) else bytes(key)
        if len(given) < 16:
            raise StreamgaugeError(
                "key needs at least 16 bytes: secrets.token_bytes(32) makes one."
            )
        return blake2b(given, digest_size=32).digest()
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    file = home / "streamgauge" / "id.key"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as new:
            new.write(secrets.token_hex(32) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {file}: {error.strerror}; give key=.") from None
    return id_key(file.read_text().strip())


class Classes:
    """Classes as numbers: positions among the given names, or else by first appearance. A class is
    its text: 7, 7.0 and "7" are one class."""

    def __init__(self, names: Sequence[str] | None, count: int | None) -> None:
        self.names = list(names or ())
        self.count = count  # None: new classes are added
        self._number = {name: number for number, name in enumerate(self.names)}
        self._positions = not any(name.lstrip("-").isdecimal() for name in self.names)
        self._cache: dict[Any, int] = {}
        self.unsaved: list[str] = []  # new classes that are in no record yet

    def trial(self, width: int | None) -> Classes:
        """Classes that refuse what these do once there are answers of `width` scores; encoding
        with them adds no class to these."""
        return self if self.count is not None else Classes((), width)

    def encode(self, values: Any, what: str) -> Any:
        """A number or an array of them. None is no answer, and refused as a label."""
        try:
            if is_one(values):
                return self._encode([values], what)[0]
            array = as_array(values)
            if array.ndim == 1:
                return np.array(self._encode(array.tolist(), what), np.int32)
        except TypeError:
            pass
        raise StreamgaugeError(f"A {what} is one class, a name or a number, for each id.")

    def _encode(self, values: Iterable[Any], what: str) -> list[int]:
        cache = self._cache
        return [cache[v] if v in cache else self._find(v, what) for v in values]

    def _find(self, value: Any, what: str) -> int:
        if value is None and what == "prediction":
            return -1
        if isinstance(value, np.generic):
            value = value.item()
        number = self._number_of(value)
        if number is None:
            if value is None or value != value or isinstance(value, float | UUID):
                raise StreamgaugeError(
                    f"A {what} is the name or the number of a class, not {value}."
                )
            known = self.names or map(str, range(self.count or 0))
            raise StreamgaugeError(
                f"The {what} {value!r} is none of the {self.count} classes of this recording: "
                + nearest(str(value), known)
            )
        self._cache[value] = number
        return number

    def _number_of(self, value: Any) -> int | None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (str, int)):
            return None
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if text in self._number:
            return self._number[text]
        if self.count is None:
            self.names.append(text)
            self.unsaved.append(text)
            return self._number.setdefault(text, len(self.names) - 1)
        is_position = text.isdecimal() and int(text) < self.count
        return int(text) if is_position and (self._positions or not self.names) else None

    def check_width(self, width: int) -> None:
        """Refuse scores that are not one per class."""
        if self.count is None and self.names:
            raise StreamgaugeError(
                "Scores need to know which column is which class, and classes were recorded by"
                " name before: give the recorder classes=, the names in the order of the columns."
            )
        if self.count not in (None, width):
            raise StreamgaugeError(f"There are {width} scores per id for {self.count} classes.")


def log_probabilities(values: Any, kind: Kind | None) -> NDArray[np.float32]:
    """Normalised log-probabilities, one row per id."""
    if kind not in (None, *KINDS):
        raise StreamgaugeError(f"kind is {', '.join(map(repr, KINDS))} or None, not {kind!r}.")
    scores = as_array(values)
    if scores.dtype.kind not in "fiub" or scores.ndim != 2 or not scores.shape[1]:
        raise StreamgaugeError("Scores are numbers, one row per id and one column per class.")
    scores = scores.astype(np.float64)
    if kind in (None, "probabilities"):
        total = scores.sum(axis=1, keepdims=True)
        if _are_one(total) and scores.min(initial=0.0) >= 0.0:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(scores) - np.log(total), "<f4")
    highest = scores.max(axis=1, keepdims=True)
    if not np.isfinite(highest).all() or np.isnan(scores).any():
        raise StreamgaugeError(
            "Scores hold NaN or an infinite value; only -inf, the log of 0, can be one of them."
        )
    total = np.log(np.exp(scores - highest).sum(axis=1, keepdims=True)) + highest
    if kind == "probabilities" or (kind != "logits" and not _are_one(np.exp(total))):
        raise StreamgaugeError(
            f"Scores are not {kind or 'probabilities or log-probabilities'}: a row does not sum to"
            " one. Name the scores of a network before its softmax with kind='logits'."
        )
    return np.asarray(scores - total, "<f4")


def _are_one(sums: NDArray[np.float64]) -> bool:
    return bool((np.abs(sums - 1.0) <= SUM_TOLERANCE).all())


def whole(value: Any, name: str) -> Any:
    """Numbers from 0 that an int32 can hold; -1 for None."""
    if value is None:
        return -1
    if type(value) is int and 0 <= value < 1 << 31:
        return value
    numbers = as_array(value)
    if numbers.dtype.kind not in "iu" or numbers.min(initial=0) < 0 or numbers.max(initial=0) >> 31:
        raise StreamgaugeError(f"{name} is a whole number from 0 to 2,147,483,647, not {value!r}.")
    return numbers if numbers.ndim else int(numbers)


def one_whole(value: Any, name: str) -> int:
    """One such number."""
    number = whole(value, name)
    if value is None or not is_one(number):
        raise StreamgaugeError(f"{name} is one number, not {value!r}.")
    return int(number)


def real(value: Any, name: str) -> float:
    """One number of any kind, also in a tensor; NaN for None."""
    if value is None:
        return math.nan
    number = as_array(value)
    if number.size != 1 or number.dtype.kind not in "iufb":
        raise StreamgaugeError(f"{name} is one number, not {value!r}.")
    return float(number.item())


def seconds(value: Any, name: str = "time") -> Any:
    """Times as seconds: numbers, or dates and times, which are UTC unless they say otherwise; NaN
    for None."""
    if value is None:
        return math.nan
    if isinstance(value, datetime) and value != value:  # NaT of pandas
        value = math.nan
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if type(value) is float and math.isfinite(value):
        return value
    numbers = as_array(value)
    if numbers.dtype.kind == "M":
        numbers = as_seconds(numbers)
    elif numbers.dtype.kind == "O" and all(isinstance(v, datetime) for v in numbers.flat):
        numbers = np.array([seconds(v, name) for v in numbers.flat]).reshape(numbers.shape)
    if numbers.dtype.kind not in "iuf":
        raise StreamgaugeError(f"{name} is in seconds, or a date and time, not {value!r}.")
    if not np.isfinite(numbers).all():
        raise StreamgaugeError(f"{name} holds NaN or an infinite value: give a time for each id.")
    return numbers.astype(np.float64) if numbers.ndim else float(numbers)
