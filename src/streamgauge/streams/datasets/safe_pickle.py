"""Reads a pickle of plain values and NumPy arrays without executing any code of it.

A pickle may name any function for the reader to call. This reader knows the few names that
pickled arrays have, and gives each an inert stand-in of its own; an array is then put together
from its shape, type and bytes. Any other name is refused, so nothing of a pickle's choosing runs.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array


class _Type:
    """Replaces `numpy.dtype`: keeps the name of a plain number type only."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else str(code)
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        self.order = order.decode("ascii") if isinstance(order, bytes) else str(order)

    def plain(self) -> np.dtype[Any]:
        kind = np.dtype(self.order.replace("|", "=") + self.code)
        if kind.kind not in "iufb" or kind.hasobject:
            raise pickle.UnpicklingError(f"an array of type {kind}")
        return kind


class _Pickled:
    """Replaces `numpy.ndarray` while unpickling: shape, type and bytes."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def plain(self) -> Array:
        _, shape, kind, by_columns, data = self.state
        if not isinstance(kind, _Type) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array that is not made of plain bytes")
        made = np.frombuffer(data, kind.plain())
        if made.size != math.prod(shape):
            raise pickle.UnpicklingError("an array whose bytes do not fit its shape")
        return made.reshape(shape, order="F" if by_columns else "C")


def _bytes(text: Any, encoding: Any = "latin1") -> bytes:
    """Replaces `_codecs.encode`, which Python 3 uses to write bytes for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", b"latin1"):
        raise pickle.UnpicklingError("text in an unknown encoding")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    """Replaces `bytes`, which Python 3 uses to write empty bytes for Python 2."""
    return b""


class _Reader(pickle._Unpickler):
    """The reader in Python: that in C takes as much memory as a damaged pickle claims to need."""

    dispatch = {  # noqa: RUF012
        code: act
        for code, act in pickle._Unpickler.dispatch.items()
        if code != pickle.BYTEARRAY8[0]  # memory of any size before a byte is read
    }

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                return lambda *_: _Pickled()
            case "numpy", "ndarray":
                return _Pickled
            case "numpy", "dtype":
                return _Type
            case "_codecs", "encode":
                return _bytes
            case "__builtin__" | "builtins", "bytes":
                return _no_bytes
        raise pickle.UnpicklingError(f"the name {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("a reference to something outside")


def read_pickle(data: bytes, what: str) -> Any:
    """The value in a pickle; text of Python 2 is returned as bytes. `what` names it in errors.

    >>> read_pickle(pickle.dumps({"a": np.arange(3)}), "this")["a"].tolist()
    [0, 1, 2]
    """
    try:
        return _plain(_Reader(io.BytesIO(data), encoding="bytes").load())
    except Exception as error:  # broken bytes may raise anything
        raise StreamgaugeError(
            f"{what} is refused: as a pickle it holds {str(error) or type(error).__name__},"
            " and only plain values and arrays are read."
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, _Pickled):
        return value.plain()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (_Pickled, dict, list, tuple)) for item in value):
            return [_plain(item) for item in value]
        return value
    if isinstance(value, _Type):
        raise pickle.UnpicklingError("a type where a value should be")
    return value
