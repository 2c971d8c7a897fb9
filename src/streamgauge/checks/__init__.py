"""Checks of a user's code: a loop that may answer with what it cannot know yet (`leaks.py`), a
learner that may break the contract (`conformance.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge.checks.base import CheckResult, images, samples_of, vectors
from streamgauge.checks.leaks import Prover
from streamgauge.checks.loops import LoopStream, loop_stream
from streamgauge.errors import StreamgaugeError, nearest, with_keywords
from streamgauge.streams import Stream
from streamgauge.versions import renamed

__all__ = ["CheckResult", "LoopReport", "LoopStream", "check_loop", "named_loop", "prover"]
__getattr__ = renamed(__name__, {"Result": "CheckResult"})


class LoopReport(list[CheckResult]):
    """The results of `check_loop`; `print` shows one line per check."""

    @property
    def passed(self) -> bool:
        return all(result.passed is not False for result in self)

    def __repr__(self) -> str:
        return "\n".join(map(str, self))

    __str__ = __repr__


@with_keywords
def check_loop(
    loop: Callable[[LoopStream], Any] | Any, stream: Stream | str | None = None, **options: Any
) -> LoopReport:
    """Run a loop on pairs of streams that differ after some sample: does an answer differ before?

    `loop` is a function from a stream (`x`, `y`, `classes`, `batch`; iterable by batches) to one
    class, or one row of scores or log-probabilities, per sample; or a learner, or FILE.py:FUNCTION.
    `stream` gives the samples: "vectors" (generated, the default), "images", or a stream. Options:
    samples=300, batch (that of the stream, or 10), seed=0, seconds=20 for all checks,
    answers="auto", tolerance=0.0, length_known=False, pretrained=False; of a learner device="cpu".
    """
    return LoopReport(prover(loop, stream, **options).results())


def prover(
    loop: Any,
    stream: Stream | str | None = None,
    *,
    samples: int = 300,
    batch: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    **options: Any,
) -> Prover:
    """What `check_loop` runs; its `results` come one by one."""
    parameters = [p for f in (prover, Prover) for p in inspect.signature(f).parameters.values()]
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise StreamgaugeError(f"check_loop has no option '{name}'; {nearest(name, known)}")
    if isinstance(stream, str) and stream not in ("images", "vectors"):
        stream = catalogue.stream(stream)
    if isinstance(stream, Stream):
        taken, size = samples_of(stream, never=0), stream.size
    else:
        taken, size = images() if stream == "images" else vectors(), 10
    if isinstance(loop, str):
        loop = named_loop(loop)
    if isinstance(loop, type | catalogue.Recipe):
        from streamgauge.checks.conformance import learner_loop  # imports torch

        loop, needs = learner_loop(loop, device)
        options = {"answers": "scores", "length_known": "horizon" in needs, **options}
    if not callable(loop):
        raise StreamgaugeError(
            f"A {type(loop).__name__} is no loop: give a function of a stream, a learner, or"
            " 'FILE.py:FUNCTION' (docs/check.md)."
        )
    given = loop_stream(taken, samples, batch or size, seed)
    return Prover(loop, given, seed=seed, **options)


def named_loop(where: str) -> Any:
    """The function that FILE.py:FUNCTION names, or else the recipe of a learner."""
    file, _, name = where.rpartition(":")
    if where.endswith(".py"):
        raise StreamgaugeError(f"Name the function of {where} as {where}:FUNCTION.")
    if not file.endswith(".py"):
        return catalogue.learner(where)
    module = catalogue.load_file(Path(file))
    if not hasattr(module, name):
        own = inspect.getmembers(module, inspect.isfunction)
        known = [n for n, function in own if function.__module__ == module.__name__]
        raise StreamgaugeError(f"There is no function '{name}' in {file}; {nearest(name, known)}")
    loop = getattr(module, name)
    return catalogue.learner(where) if isinstance(loop, type) else loop
