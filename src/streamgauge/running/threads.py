"""How many threads of the processor a run takes, where its user does not say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.streams import Gate
from streamgauge.streams.gate import fetch

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.streams import Stream

SET_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Below this many forward FLOPs per batch, threads wait for each other longer than they compute.
WORTH_SHARING = 1e8


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Run with so many threads: sums in another order are other sums."""
    import torch

    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def user_threads(number: int | None) -> Iterator[None]:
    """Run with the number of threads that the user chose, here and in child processes; None: no
    choice was made."""
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
    GPU, and where the user chose, the number that is set.

    By the FLOPs of the network and not by the clock: the same command has to take the same number
    on a busy and on an idle machine, since another number of threads gives other last digits.
    """
    import torch

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


def _user_chose(number: int) -> bool:
    """By a variable (`--threads` sets one), or by `torch.set_num_threads` in Python: then the
    number is neither that of the logical nor that of the physical cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return any(name in os.environ for name in SET_BY_USER) or number not in (
        cores,
        (cores or 1) // 2,
    )
