"""Settings by name: converts text or TOML values to the fields of a frozen dataclass."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from streamgauge.errors import StreamgaugeError, nearest

T = TypeVar("T")

# Defaults of every command.
RUNS = "runs"  # folder of run folders
CHECKPOINT = 30.0  # seconds between checkpoints
MAX_SEEDS = 100_000  # of one experiment, at most


def configure(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make a configuration; `where` is the dotted prefix that errors show.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     lr: float = 0.1
    >>> configure(Config, {"lr": "0.5"}, "er")
    Config(lr=0.5)
    >>> configure(Config, {"rl": 1}, "er")
    Traceback (most recent call last):
    streamgauge.errors.StreamgaugeError: There is no setting 'er.rl'; did you mean 'er.lr'?
    """
    known = setting_types(kind)
    clean = {}
    for name, value in values.items():
        if name not in known:
            hint = nearest(f"{where}.{name}", [f"{where}.{k}" for k in known])
            raise StreamgaugeError(f"There is no setting '{where}.{name}'; {hint}")
        clean[name] = coerce(value, known[name], f"{where}.{name}")
    return kind(**clean)


def setting_types(kind: type) -> dict[str, Any]:
    """The settings of a dataclass by name, with their types."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}


def check_choices(config: Any) -> None:
    """Refuse a configuration whose value for a setting is not among the setting's choices."""
    for name, kind in setting_types(type(config)).items():
        if get_origin(kind) is Literal:
            coerce(getattr(config, name), kind, name)


def coerce(value: Any, kind: Any, name: str) -> Any:
    """Convert text (from a command line) or a TOML value to the type of a setting."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _first_match(value, kind, name)
    if origin is Literal:
        choices = get_args(kind)
        if value in choices:
            return value
        known = [str(choice) for choice in choices]
        hint = nearest(str(value), known)
        if not hint.startswith("did"):
            hint = f"it can be {', '.join(known[:-1])} or {known[-1]}."
        raise StreamgaugeError(f"{name} cannot be {value!r}; {hint}")
    if origin is tuple:
        parts = value
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(parts, (list, tuple)):
            parts = parts.tolist() if hasattr(parts, "tolist") else parts
            parts = parts if isinstance(parts, list) else [parts]
        return tuple(coerce(part, get_args(kind)[0], name) for part in parts)
    try:
        return _plain(value, kind)
    except (ValueError, TypeError, OverflowError) as error:
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(
            kind, getattr(kind, "__name__", str(kind))
        )
        raise StreamgaugeError(f"{name} must be {wanted}, not {value!r}.") from error


def _plain(value: Any, kind: Any) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a NumPy number
        value = value.item()
    if kind is int:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError(value)
        return int(value)
    if kind is float:
        if isinstance(value, bool):
            raise ValueError(value)
        number = float(value)
        if math.isnan(number):
            raise ValueError(value)
        return number
    if kind is str:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, Fraction)):
            raise ValueError(value)
        return str(value)
    if kind is type(None):
        if value is None or str(value).lower() == "none":
            return None
        raise ValueError(value)
    return value


def _first_match(value: Any, kind: Any, name: str) -> Any:
    """Try None and numbers before text, so that '3' becomes 3 where both are allowed."""
    rank = {type(None): 0, bool: 1, int: 2, float: 3}
    members = sorted(get_args(kind), key=lambda k: rank.get(k, 9))
    failures = []
    for member in members:
        try:
            return coerce(value, member, name)
        except StreamgaugeError as error:
            failures.append(str(error))
    raise StreamgaugeError(failures[-1])


def as_plain(config: Any) -> dict[str, Any]:
    """A configuration as values that JSON can store."""
    if config is None:
        return {}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
    }
