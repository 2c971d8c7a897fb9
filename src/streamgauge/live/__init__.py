"""Real time, for real: a stream by the wall clock, with training and answers at the same time."""

from __future__ import annotations

from streamgauge.live.outside import serve
from streamgauge.live.rate import RateFound, Trial, find_rate
from streamgauge.live.stored import live
from streamgauge.live.summary import Summary, rates_text, summary, summary_text

__all__ = [
    "RateFound",
    "Summary",
    "Trial",
    "find_rate",
    "live",
    "rates_text",
    "serve",
    "summary",
    "summary_text",
]
