"""Numbers with their unit, as short text: durations, bytes, FLOPs."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """
    >>> duration(0.4), duration(75), duration(200), duration(5000), duration(9000), duration(2e5)
    ('0.4 s', '75 s', '3.3 min', '83 min', '2.5 h', '56 h')
    """
    if math.isnan(seconds):
        return "?"
    if math.isinf(seconds):
        return "a long time"
    units = (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72), ("days", 86400, math.inf))
    unit, value = next((unit, seconds / of) for unit, of, most in units if seconds / of < most)
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def bytes_text(count: float) -> str:
    """
    >>> bytes_text(5300), bytes_text(1.5e12), bytes_text(float("nan"))
    ('5.3 kB', '1.5 TB', '-')
    """
    return "-" if math.isnan(count) else _with_unit(count, "B")


def flop(count: float) -> str:
    """
    >>> flop(787e12), flop(1.15e10), flop(5e16), flop(12)
    ('787 TFLOP', '11.5 GFLOP', '50 PFLOP', '12 FLOP')
    """
    return "?" if math.isnan(count) else _with_unit(count, "FLOP")


def _with_unit(count: float, unit: str) -> str:
    number, _, prefix = scaled(count).partition(" ")
    return f"{number} {prefix}{unit}"


def scaled(count: float) -> str:
    """
    >>> scaled(1.234e12), scaled(56), scaled(math.nan)
    ('1.23 T', '56', 'unknown')
    """
    if math.isnan(count):
        return "unknown"
    for unit in ("", " k", " M", " G", " T", " P", " E"):
        if count < 999.5:
            return f"{short(count)}{unit}"
        count /= 1000
    return f"{count:.3g} Z"


def short(value: float) -> str:
    """Three digits, of numbers below 10 at most two decimals."""
    return f"{round(value, 2 if value < 10 else 1):.3g}"
