"""Live runs: a stream in real time, with training and answers at the same time.

Everything is imported at its first use, since a trainer's process imports this package too and
should start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamgauge.errors import packages_for

if TYPE_CHECKING:
    from streamgauge.live.rate import RateFound, Trial, find_rate
    from streamgauge.live.serving import serve
    from streamgauge.live.stored_stream import live
    from streamgauge.live.summary import Summary, rates_text, summarise, summary_text

_MODULES = {
    "rate": ("RateFound", "Trial", "find_rate"),
    "serving": ("serve",),
    "stored_stream": ("live",),
    "summary": ("Summary", "rates_text", "summarise", "summary_text"),
}
__all__ = [
    "RateFound", "Summary", "Trial", "find_rate", "live", "rates_text", "serve", "summarise",
    "summary_text",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            with packages_for(f"streamgauge.live.{name}"):
                return getattr(import_module(f"streamgauge.live.{module}"), name)
    raise AttributeError(f"module 'streamgauge.live' has no attribute '{name}'")
