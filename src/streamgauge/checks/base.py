"""What all checks share: samples, results, and errors of a user's code in one sentence."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Stream

CLASSES, NEVER = 4, 2  # of generated samples; NEVER further classes are declared and never arrive
LEAST_SAMPLES, MOST_SAMPLES = 96, 7000
MOST_BYTES = 2**26  # of the samples that are taken from a stream


class CheckResult(NamedTuple):
    """`passed` is None where a check could not be made. `why` says what is wrong and what to
    change, what is missing, or on which samples a check passed."""

    name: str
    passed: bool | None
    why: str = ""

    def __str__(self) -> str:
        mark = {True: "pass", False: "FAIL", None: "skip"}[self.passed]
        return f"{mark}  {self.name}" + (f": {self.why}" if self.why else "")


class Broken(StreamgaugeError):
    """A check failed."""


class CheckSamples(NamedTuple):
    """What a learner or a loop is checked on."""

    name: str
    x: NDArray[Any]
    label: NDArray[np.int64]
    classes: int

    def spread(self, count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """So many of them, in their order, from first to last."""
        chosen = np.linspace(0, len(self.label) - 1, count).astype(np.int64)
        return self.x[chosen], self.label[chosen].copy()


def images() -> CheckSamples:
    rng = np.random.default_rng(3)
    label = rng.integers(0, CLASSES, MOST_SAMPLES)
    prototype = rng.integers(60, 196, (CLASSES, 3, 8, 8))
    x = prototype[label] + rng.integers(-40, 41, (len(label), 3, 8, 8))
    return CheckSamples("images", x.astype(np.uint8), label, CLASSES + NEVER)


def vectors() -> CheckSamples:
    rng = np.random.default_rng(3)
    label = rng.integers(0, CLASSES, MOST_SAMPLES)
    x = rng.normal(size=(CLASSES, 8))[label] + 0.5 * rng.normal(size=(len(label), 8))
    return CheckSamples("vectors", x.astype(np.float32), label, CLASSES + NEVER)


def samples_of(stream: Stream, never: int = NEVER) -> CheckSamples:
    """Samples from the beginning to the end of a stream; `never` further classes are declared."""
    first = np.asarray(stream.source.read(stream.order[:1]))
    count = min(stream.samples, MOST_SAMPLES, max(LEAST_SAMPLES, MOST_BYTES // first.nbytes))
    index = stream.order[np.linspace(0, stream.samples - 1, count).astype(np.int64)]
    x, label = np.asarray(stream.source.read(index)), stream.source.label[index].astype(np.int64)
    return CheckSamples(stream.name, x, label, stream.spec.classes + never)


def described(error: BaseException, code: Any = None) -> str:
    """Class and first line of an error, and the line of the file of `code` that it came from."""
    text = str(error).strip().splitlines()
    try:
        file = inspect.getsourcefile(code) if code is not None else None
    except TypeError:  # of a notebook, or no function
        file = None
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f", at line {frames[-1].lineno} of {Path(file).name}" if file and frames else ""
    return type(error).__name__ + (f": {text[0]}" if text else "") + where
