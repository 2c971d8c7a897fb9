"""Live runs: a stream in real time, with training and answers at the same time.

Everything is imported at its first use, since a trainer's process imports this package too and
should start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Public name -> module.
_LAZY = {
    "RateFound": "rate",
    "Summary": "summary",
    "Trial": "rate",
    "find_rate": "rate",
    "live": "stored_stream",
    "rates_text": "summary",
    "serve": "serving",
    "summarise": "summary",
    "summary_text": "summary",
}

__all__ = [*_LAZY]

if TYPE_CHECKING:
    from streamgauge.live.rate import RateFound as RateFound
    from streamgauge.live.rate import Trial as Trial
    from streamgauge.live.rate import find_rate as find_rate
    from streamgauge.live.serving import serve as serve
    from streamgauge.live.stored_stream import live as live
    from streamgauge.live.summary import Summary as Summary
    from streamgauge.live.summary import rates_text as rates_text
    from streamgauge.live.summary import summarise as summarise
    from streamgauge.live.summary import summary_text as summary_text


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'streamgauge.live' has no attribute '{name}'")
    return getattr(import_module(f"streamgauge.live.{_LAZY[name]}"), name)
