"""Streamgauge measures how well a model learns from a live stream, and whether to believe it.

>>> import numpy as np, streamgauge as sg
>>> stream = sg.stream(np.random.rand(200, 4), np.arange(200) % 3, batch=10)
>>> stream.spec
Spec(input_shape=(4,), classes=3)

Everything below is imported at its first use, so that `import streamgauge` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamgauge.versions import VERSION, install

__version__ = VERSION
install()

# Name here -> where it lives.
_LAZY = {
    "ArraySource": "streamgauge.streams",
    "Arrangement": "streamgauge.streams",
    "Batch": "streamgauge.learners.base",
    "Execution": "streamgauge.running.execution",
    "ImageSource": "streamgauge.streams",
    "Protocol": "streamgauge.running.protocol",
    "Run": "streamgauge.record",
    "StreamgaugeError": "streamgauge.errors",
    "arrange": "streamgauge.streams",
    "audit_log": "streamgauge.audit",
    "compare": "streamgauge.report",
    "find_runs": "streamgauge.record",
    "learner": "streamgauge.catalogue",
    "plot": "streamgauge.report",
    "resume": "streamgauge.running.runner",
    "run": "streamgauge.running.runner",
    "schedule": "streamgauge.cost.clock",
    "score": "streamgauge.report",
}

__all__ = [*_LAZY, "stream"]

if TYPE_CHECKING:
    from streamgauge.audit import audit_log as audit_log
    from streamgauge.catalogue import learner as learner
    from streamgauge.cost.clock import schedule as schedule
    from streamgauge.errors import StreamgaugeError as StreamgaugeError
    from streamgauge.learners.base import Batch as Batch
    from streamgauge.record import Run as Run
    from streamgauge.record import find_runs as find_runs
    from streamgauge.report import compare as compare
    from streamgauge.report import plot as plot
    from streamgauge.report import score as score
    from streamgauge.running.execution import Execution as Execution
    from streamgauge.running.protocol import Protocol as Protocol
    from streamgauge.running.runner import resume as resume
    from streamgauge.running.runner import run as run
    from streamgauge.streams import Arrangement as Arrangement
    from streamgauge.streams import ArraySource as ArraySource
    from streamgauge.streams import ImageSource as ImageSource
    from streamgauge.streams import Stream
    from streamgauge.streams import arrange as arrange


def stream(x: Any, y: Any = None, /, **settings: Any) -> Stream:
    """A stream from one's own arrays, or a built-in one by name.

    Settings are those of `Arrangement` (order, batch, held_out, ...) and, for arrays, the columns
    `time`, `user`, `domain`, `latitude`, `longitude`, and `classes`, `class_names`.
    Arrays may also be tensors.
    """
    if isinstance(x, str):
        return import_module("streamgauge.catalogue").stream(x, **settings)  # type: ignore[no-any-return]
    from streamgauge.errors import StreamgaugeError, nearest
    from streamgauge.settings import configure, setting_types
    from streamgauge.streams import Arrangement, ArraySource, arrange
    from streamgauge.streams.source import KNOWN_COLUMNS

    if y is None:
        raise StreamgaugeError("A stream from arrays needs labels: stream(x, y).")
    how = {name: settings.pop(name) for name in setting_types(Arrangement) if name in settings}
    for name in settings:
        if name not in (known := (*KNOWN_COLUMNS, "classes", "class_names")):
            hint = nearest(name, [*known, *setting_types(Arrangement)])
            raise StreamgaugeError(f"A stream has no setting '{name}'; {hint}")
    arrangement = configure(Arrangement, how, "stream")
    # Built-in streams have tasks by default, so there they may be left over from another order;
    # here somebody asked for them.
    if arrangement.tasks > 1 and arrangement.order not in ("classes", "blurry"):
        raise StreamgaugeError(
            f"The order '{arrangement.order}' does not divide classes into tasks; leave out tasks,"
            " or set order to 'classes' or 'blurry'."
        )
    if arrangement.held_out_by == "task" and arrangement.order in ("given", "time", "iid"):
        raise StreamgaugeError(
            f"The order '{arrangement.order}' has no tasks to hold samples out by; set held_out_by"
            " to 'time' or 'random'."
        )
    return arrange(ArraySource(x, y, **settings), arrangement)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'streamgauge' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
