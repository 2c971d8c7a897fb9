"""Choosing a learner's settings on the beginning of a stream, and saying what that cost.

`space` is what is searched, `trial` one attempt as a pure function of plain data, `study` the
search itself (Optuna), `chosen` the way of the choice into a run.
"""

from __future__ import annotations

from streamgauge.errors import packages_for

with packages_for("Tuning"):
    import torch  # noqa: F401

from streamgauge.tuning.chosen import load
from streamgauge.tuning.study import Ask, tune
from streamgauge.tuning.trial import Result, Task, attempt

__all__ = ["Ask", "Result", "Task", "attempt", "load", "tune"]
