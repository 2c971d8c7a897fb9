"""Durations as text: ``1h`` to seconds, seconds to ``1 hour``, and names of periods."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamgauge.errors import StreamgaugeError

NAMED = {
    "year": 31557600.0,
    "month": 2629800.0,
    "week": 604800.0,
    "day": 86400.0,
    "hour": 3600.0,
    "minute": 60.0,
    "second": 1.0,
}
SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute"}
SHORT |= {"h": "hour", "d": "day", "w": "week", "y": "year"}
UNITS = NAMED | {short: NAMED[name] for short, name in SHORT.items()} | {"ms": 0.001}
del UNITS["month"]  # months differ in length


def seconds(text: str | float) -> float:
    """A duration in seconds; a plain number is already in seconds.

    >>> seconds("90min"), seconds("1d"), seconds("2 weeks"), seconds(5)
    (5400.0, 86400.0, 1209600.0, 5.0)
    """
    if not isinstance(text, str) or text.strip() == "0":
        return float(text)
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", text.lower())
    unit = match.group(2) if match else ""
    factor = UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))
    if not match or factor is None:
        raise StreamgaugeError(
            f"'{text}' is not a duration: write a number and a unit, such as 30s, 10min, 1h, 1d or "
            "2w"
        )
    return float(match.group(1)) * factor


def is_duration(value: object) -> bool:
    """Whether a shift is a duration, not a number of samples.

    >>> is_duration("1h"), is_duration("64"), is_duration(64)
    (True, False, False)
    """
    return isinstance(value, str) and not value.strip().isdigit()


def all_durations(shifts: Iterable[object]) -> bool:
    """Whether shifts are durations; an error if they are mixed with numbers of samples.

    >>> all_durations(["0", "1h"]), all_durations([0, "64"])
    (True, False)
    """
    given = [s.item() if hasattr(s, "item") else s for s in shifts]
    if not any(is_duration(s) for s in given):
        return False
    for s in given:
        if is_duration(s):
            seconds(str(s))  # refuses what is none
        elif float(str(s)) != 0:
            raise StreamgaugeError(
                f"the shift {s} is a number of samples, but other shifts are durations: give all "
                "in the same unit"
            )
    return True


def in_words(duration: float) -> str:
    """A duration as text, in the largest unit that fits.

    >>> in_words(86400), in_words(5400), in_words(0.5), in_words(1209600)
    ('1 day', '1.5 hours', '0.5 seconds', '2 weeks')
    """
    units = [(name, size) for name, size in NAMED.items() if name != "month"]
    name, size = next((unit for unit in units if duration >= unit[1] * 0.999), units[-1])
    amount = float(f"{duration / size:.3g}")
    return f"{amount:g} {name}{'' if amount == 1 else 's'}"


def period_name(duration: float) -> str:
    """The name of a period: a day, a week, or its length.

    >>> period_name(86000), period_name(604800), period_name(7200)
    ('day', 'week', '2 hours')
    """
    for name, size in NAMED.items():
        if name != "second" and abs(duration / size - 1) < 0.03:
            return name
    return in_words(duration)
