"""A loop as a black box: the stream that it is given, and the answers that it returns."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.checks.base import CheckSamples, described
from streamgauge.errors import StreamgaugeError

KINDS = ("classes", "scores", "probabilities", "log-probabilities", "label-log-probabilities")
SUM_ERROR = 1e-3  # of probabilities over the classes


class LoopBatch(NamedTuple):
    """Samples that arrive together; `index` are their positions in the stream."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    index: NDArray[np.int64]  # type: ignore[assignment]


@dataclass(frozen=True)
class LoopStream:
    """What a loop is given. Iterate over its batches, or use the arrays."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    classes: int  # labels are 0 to classes - 1; some may never occur
    batch: int  # samples that arrive together; the last batch may be shorter

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.y) // self.batch)

    def __iter__(self) -> Iterator[LoopBatch]:
        for start in range(0, len(self.y), self.batch):
            part = slice(start, start + self.batch)
            yield LoopBatch(self.x[part], self.y[part], np.arange(len(self.y))[part])


LoopFunction = Callable[[LoopStream], Any]


def loop_stream(samples: CheckSamples, count: int, batch: int, seed: int = 0) -> LoopStream:
    """A stream of so many samples. Generated samples get a new class every now and then, and noise,
    so that answers change easily; a given stream keeps its order."""
    rng = np.random.default_rng(seed)
    if samples.name not in ("images", "vectors"):
        x, y = samples.spread(min(count, len(samples.label)))
        return _checked(LoopStream(x, y, samples.classes, batch))
    known = int(samples.label.max()) + 1
    highest = np.minimum(known, 2 + np.arange(count) * 2 * (known - 2) // count)
    y = rng.integers(0, highest)
    of_class = [np.flatnonzero(samples.label == label) for label in range(known)]
    x = samples.x[[rng.choice(of_class[label]) for label in y]]
    if x.dtype.kind == "f":
        x = x + rng.normal(size=x.shape).astype(x.dtype)
    return _checked(LoopStream(x, y, samples.classes, batch))


def _checked(stream: LoopStream) -> LoopStream:
    if len(stream) < 4:
        raise StreamgaugeError(
            f"The loop is checked on {len(stream.y)} samples in {len(stream)} batches; it needs 4 "
            "batches at least: take more samples or smaller batches."
        )
    if stream.classes < 2 or len(np.unique(stream.y)) < 2:
        raise StreamgaugeError("A loop is checked on a stream of two classes at least.")
    return stream


@contextmanager
def _quiet_and_seeded() -> Iterator[None]:
    """Global generators begin alike in every run and are put back; what a loop prints is not
    shown, since it would come a hundred times."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if torch:
        torch.default_generator.manual_seed(0)  # torch.manual_seed stores a traceback each time
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(0)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch:
            torch.set_rng_state(states[2])


def answers_of(function: LoopFunction, stream: LoopStream) -> NDArray[Any]:
    """Run a loop on copies of the arrays; one row per sample."""
    given = replace(stream, x=stream.x.copy(), y=stream.y.copy())
    try:
        with _quiet_and_seeded():
            returned = function(given)
            pieces = list(returned) if _in_pieces(returned) else [returned]
            pieces = [np.asarray(p.detach().cpu() if hasattr(p, "detach") else p) for p in pieces]
    except StreamgaugeError:
        raise
    except (Exception, SystemExit) as error:
        inputs = f"inputs of shape {stream.x.shape[1:]} and type {stream.x.dtype}"
        raise StreamgaugeError(
            f"The loop raised {described(error, function)}, on {inputs}; --stream gives it others."
        ) from error
    count = len(stream.y)
    if returned is None:
        raise StreamgaugeError(
            f"The loop returned None; return one answer for each of the {count} samples, in their"
            " order: a class, or a row of scores."
        )
    try:
        rows = pieces[0] if len(pieces) == 1 else np.concatenate([np.atleast_1d(p) for p in pieces])
        if len(pieces) == count and len(rows) != count:
            rows = np.stack(pieces)
    except ValueError as error:
        raise StreamgaugeError(f"The loop returned pieces of unequal shapes: {error}.") from error
    if rows.ndim not in (1, 2) or len(rows) != count or rows.dtype.kind not in "iufb":
        raise StreamgaugeError(
            f"The loop returned an array of shape {rows.shape} and type {rows.dtype} for {count} "
            "samples; return one class per sample [N], or one row of scores or log-probabilities "
            "per sample [N, classes]."
        )
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if rows.ndim == 2 and rows.shape[1] != stream.classes:
        raise StreamgaugeError(
            f"The loop returned {rows.shape[1]} columns for {stream.classes} classes; return one "
            "column for each of stream.classes, also for classes without a sample so far: a list "
            "of the classes in stream.y knows the future."
        )
    return rows


def _in_pieces(returned: Any) -> bool:
    """Whether a loop returned a list or generator, of batches or of single answers."""
    return not hasattr(returned, "dtype") and hasattr(returned, "__iter__")


def kind_of(rows: NDArray[Any], claimed: str = "auto") -> str:
    """What the answers are: as claimed, or by their shape and values."""
    if claimed != "auto":
        if claimed not in KINDS:
            raise StreamgaugeError(f"Answers are {', '.join(KINDS)} or auto, not '{claimed}'.")
        if (rows.ndim == 1) != (claimed in ("classes", "label-log-probabilities")):
            shape = "[N]" if rows.ndim == 1 else "[N, classes]"
            raise StreamgaugeError(f"The loop returned answers of shape {shape}: no {claimed}.")
        return claimed
    if rows.ndim == 1:
        whole = rows.dtype.kind in "iub" or bool(np.all(rows == np.round(rows)))
        return "classes" if whole else "label-log-probabilities"
    for kind in ("log-probabilities", "probabilities"):
        if np.mean(np.abs(sums(rows, kind) - 1) < SUM_ERROR) >= 0.5:
            return kind
    return "scores"


def sums(rows: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """Sums of probabilities over the classes; NaN where a probability is negative."""
    wide = rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(wide) if kind == "log-probabilities" else np.where(wide >= 0, wide, np.nan)
    return np.asarray(p.sum(1))
