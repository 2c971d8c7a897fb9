"""Streamgauge measures how well a model learns from a live stream, and whether to believe it.

>>> import numpy as np, streamgauge as sg
>>> stream = sg.stream(np.random.rand(200, 4), np.arange(200) % 3, batch=10)
>>> stream.spec
Spec(input_shape=(4,), classes=3)

Everything below is imported at its first use, so that `import streamgauge` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from streamgauge.errors import nearest, packages_for, with_keywords
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
    "LiveLog": "streamgauge.exchange",
    "Protocol": "streamgauge.running.protocol",
    "Recorder": "streamgauge.record.recorder",
    "Run": "streamgauge.record",
    "StreamgaugeError": "streamgauge.errors",
    "arrange": "streamgauge.streams",
    "audit_log": "streamgauge.audit",
    "check_loop": "streamgauge.checks",
    "compare": "streamgauge.report",
    "export": "streamgauge.exchange",
    "find_runs": "streamgauge.record",
    "learner": "streamgauge.catalogue",
    "plot": "streamgauge.report",
    "power": "streamgauge.report",
    "resume": "streamgauge.running.runner",
    "run": "streamgauge.running.runner",
    "schedule": "streamgauge.cost.clock",
    "score": "streamgauge.report",
    "score_matrix": "streamgauge.exchange",
}

__all__ = [*_LAZY, "stream"]

if TYPE_CHECKING:
    from streamgauge import bridges as bridges
    from streamgauge.audit import audit_log as audit_log
    from streamgauge.catalogue import learner as learner
    from streamgauge.checks import check_loop as check_loop
    from streamgauge.cost.clock import schedule as schedule
    from streamgauge.errors import StreamgaugeError as StreamgaugeError
    from streamgauge.exchange import LiveLog as LiveLog
    from streamgauge.exchange import export as export
    from streamgauge.exchange import score_matrix as score_matrix
    from streamgauge.learners.base import Batch as Batch
    from streamgauge.record import Run as Run
    from streamgauge.record import find_runs as find_runs
    from streamgauge.record.recorder import Recorder as Recorder
    from streamgauge.report import compare as compare
    from streamgauge.report import plot as plot
    from streamgauge.report import power as power
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


@with_keywords
def stream(data: Any, y: Any = None, /, **settings: Any) -> Stream:
    """A stream of one's own data, or a built-in one by name.

    - `sg.stream(x, y)`: arrays or tensors, with labels
    - `sg.stream(frame, label="y", time="t", user="u")`: a data frame (pandas, polars, Arrow) or a
      dictionary of columns; the other columns are the inputs, and numbers are standardised online
    - `sg.stream(data)`: a scikit-learn `Bunch`, a Hugging Face `Dataset`, a torch `TensorDataset`,
      any data set with `__len__` and `__getitem__` that gives (input, label), or an iterator of
      such pairs, whose first 100,000 are used (`limit=N`)
    - `sg.stream("albums")`: a built-in stream, or the path of a file

    Settings are those of `Arrangement` (order, batch, held_out, ...) and, for arrays and data sets,
    the columns `time`, `user`, `domain`, `latitude`, `longitude`, and `classes`, `class_names` and
    `scale` ("online" standardises vectors by what was trained); for data frames those of
    `streamgauge list tabular`.
    """
    if isinstance(data, str | PathLike):
        with packages_for(f"The stream '{data}'"):
            return import_module("streamgauge.catalogue").stream(str(data), **settings)  # type: ignore[no-any-return]
    return import_module("streamgauge.streams.own.objects").stream_of(data, y, settings)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name == "bridges":
        return import_module("streamgauge.bridges")
    if name not in _LAZY:
        hint = "" if name.startswith("_") else f"; {nearest(name, __all__)}"
        raise AttributeError(f"module 'streamgauge' has no attribute '{name}'{hint}")
    with packages_for(f"streamgauge.{name}"):
        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
