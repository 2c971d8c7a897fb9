"""Time and cost of training: event clock, FLOP counter, energy counters."""

from __future__ import annotations

from streamgauge.versions import renamed

# Until 0.1 this was the module that is now `running.job_cost`.
_OLD = ("MOST_CYCLE", "as_dict", "cost_text", "measure")
__getattr__ = renamed(
    __name__,
    {"Cost": "running.job_cost:JobCost"} | {name: f"running.job_cost:{name}" for name in _OLD},
)
