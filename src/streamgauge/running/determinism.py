"""What makes a repeated run give the same sums: deterministic algorithms, and a number of threads
that does not depend on how busy the machine is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Learner
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import fetch

_SWITCHED = [False]  # whether this process has switched torch to deterministic algorithms


def make_deterministic(device: str, strict: bool = False) -> None:
    """On a GPU, choose algorithms that give the same sums every time: a run that is repeated or
    resumed there must have the same log. Where torch has none it warns, or, if `strict`, refuses;
    on a processor only then. It holds until the next run says otherwise."""
    if strict or device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(True, warn_only=not strict)
        _SWITCHED[0] = True
    elif _SWITCHED[0]:
        torch.use_deterministic_algorithms(False)
        _SWITCHED[0] = False


@contextmanager
def explain_refusals() -> Iterator[None]:
    """Turn torch's refusal of a nondeterministic operation into a sentence for the user."""
    try:
        yield
    except RuntimeError as error:
        marker = " does not have a deterministic implementation"
        operation, refused, _ = str(error).partition(marker)
        if not refused:
            raise
        raise StreamgaugeError(
            f"{operation} has no algorithm in torch that gives the same result every time, and"
            " --deterministic refuses it; without, it is taken."
        ) from error


SET_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Below this many forward FLOPs per batch, threads wait for each other longer than they compute.
WORTH_SHARING = 1e8


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Run with so many threads: sums in another order are other sums."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def user_threads(number: int | None) -> Iterator[None]:
    """Run with the number of threads that the user chose, if any, here and in child processes."""
    if number is None:
        yield
        return
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(number)
    try:
        with threads(number):
            yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def suitable_threads(build: Callable[[Gate], Learner], stream: Stream, device: torch.device) -> int:
    """One for a network so small that threads would only wait for each other; for all others, on a
    GPU, and where the user chose, the number that is set. By the FLOPs of the network and not by
    the clock: the same command has to take the same number on a busy and on an idle machine, since
    another number of threads gives other last digits."""
    number = torch.get_num_threads()
    if device.type != "cpu" or number == 1 or _user_chose(number) or not len(stream):
        return number
    from torch.utils.flop_counter import FlopCounterMode

    learner = build(Gate(stream.source, stream.preparation, device))  # a second one, thrown away
    if not LearnerAdapter(learner).sees_input:
        return number
    x = fetch(stream.source, stream.index(0), device)
    with FlopCounterMode(display=False) as counter:
        learner.predict(x)
    return 1 if 0 < counter.get_total_flops() < WORTH_SHARING else number


@contextmanager
def same_randomness() -> Iterator[None]:
    """A block after which the global generators of Python, NumPy and torch are as before."""
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        with torch.random.fork_rng(range(torch.cuda.device_count()) if used else ()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002


def _user_chose(number: int) -> bool:
    """By a variable (`--threads` sets one), or by `torch.set_num_threads` in Python: then the
    number is neither that of the logical nor that of the physical cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return any(name in os.environ for name in SET_BY_USER) or number not in (
        cores,
        (cores or 1) // 2,
    )
