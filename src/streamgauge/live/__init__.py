"""Real time, for real: a stream by the wall clock, with training and answers at the same time.

Everything is imported at its first use: a trainer's process lies in this room too, and should be
there quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Name here -> where it is.
_LAZY = {
    "RateFound": "rate",
    "Summary": "summary",
    "Trial": "rate",
    "find_rate": "rate",
    "live": "stored",
    "rates_text": "summary",
    "serve": "outside",
    "summarise": "summary",
    "summary_text": "summary",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from streamgauge.live.outside import serve as serve
    from streamgauge.live.rate import RateFound as RateFound
    from streamgauge.live.rate import Trial as Trial
    from streamgauge.live.rate import find_rate as find_rate
    from streamgauge.live.stored import live as live
    from streamgauge.live.summary import Summary as Summary
    from streamgauge.live.summary import rates_text as rates_text
    from streamgauge.live.summary import summarise as summarise
    from streamgauge.live.summary import summary_text as summary_text


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'streamgauge.live' has no attribute '{name}'")
    return getattr(import_module(f"streamgauge.live.{_LAZY[name]}"), name)
