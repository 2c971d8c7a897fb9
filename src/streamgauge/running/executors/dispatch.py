"""Which executor carries out a list of planned runs, and those of this machine: runs one after
another, or several at once on one GPU.

A step of a small network uses a small part of a large GPU. Nothing in a recorded step waits for the
device, so one process keeps several runs in flight, each on a CUDA stream of its own: other seeds,
other settings, other learners. The runs share no state, and each writes the log that it would
write alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import torch

from streamgauge.errors import Busy, Failures
from streamgauge.record import Run
from streamgauge.running.active_run import (
    BUSY_WAIT,
    ActiveRun,
    FolderStore,
    StepwiseRun,
    opened_in_turn,
)
from streamgauge.running.determinism import user_threads
from streamgauge.running.execution import Execution, Logger
from streamgauge.running.loop import Progress
from streamgauge.running.plan import PlannedRun, StreamCache
from streamgauge.settings import RUNS
from streamgauge.streams import Stream

TRIAL_STEPS = 8  # steps of the first run after which its memory is measured
FREE_SHARE = 0.85  # of the free memory that runs may take
MOST = 32  # queues that a GPU works through at the same time
END, FAILED = object(), object()  # of the steps of a run

# Called before each run; returns a callback for its steps, or None.
Watch = Callable[[PlannedRun, Stream], Progress | None]
Active = Iterable[tuple[PlannedRun, ActiveRun]]
AnyRun = TypeVar("AnyRun", bound=StepwiseRun)


def execute(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path = RUNS,
    watch: Watch | None = None,
    store: FolderStore | None = None,
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of the planned runs in the folder `out`; yields each run as it ends. On a
    cluster where the execution names one; under `torchrun` one after another over all ranks; on a
    GPU that replays recorded steps interleaved, as many as fit or as `side_by_side` says; elsewhere
    one after another."""
    from streamgauge.running.executors import on_ray, torchrun

    if execution.cluster is not None:
        return on_ray.execute(planned, execution, out)
    if torchrun.launched():
        execution = torchrun.over_ranks(planned, execution)
    active = activate(planned, execution, out, watch, store)
    interleaves = execution.interleaves(execution.torch_device)
    return (interleaved if interleaves else one_by_one)(active, execution)


def activate(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path,
    watch: Watch | None = None,
    store: FolderStore | None = None,
) -> Iterator[tuple[PlannedRun, ActiveRun]]:
    """Planned runs with their folders, none opened yet."""
    streams = StreamCache(planned)
    for planned_run in planned:
        stream = streams.stream_of(planned_run)
        progress = None if watch is None else watch(planned_run, stream)
        prepared = planned_run.prepared(Path(out))
        options = {"out": out, "progress": progress, "store": store}
        yield planned_run, ActiveRun.of(prepared, stream, execution, **options)


def one_by_one(active: Active, execution: Execution) -> Iterator[tuple[PlannedRun, Run]]:
    """Runs one after another in this process. A run that fails does not keep the others from
    running; its error is raised at the end."""
    with user_threads(execution.threads), Failures() as failures:
        ended: ActiveRun | None = None

        def finish(pair: tuple[PlannedRun, ActiveRun]) -> None:
            nonlocal ended
            run = pair[1]
            with closing(run), failures.of(run.path.name):
                run.open()
                for _ in run.steps():
                    pass
                ended = run

        for planned_run, run in opened_in_turn(active, finish, execution.log):
            if run is ended:
                yield planned_run, Run(run.path)


def interleaved(active: Active, execution: Execution) -> Iterator[tuple[PlannedRun, Run]]:
    """Several runs at once: each takes a step in turn. Complete runs come first."""
    waiting = {}
    with user_threads(execution.threads):
        for planned_run, run in active:
            if run.complete:
                yield planned_run, Run(run.path)
            else:
                waiting[run] = planned_run
        for run in run_interleaved(
            waiting, execution.torch_device, execution.side_by_side, execution.log
        ):
            yield waiting[run], Run(run.path)


def run_interleaved(
    runs: Iterable[AnyRun], device: torch.device, most: int | None = None, log: Logger = print
) -> Iterator[AnyRun]:
    """Open as many runs as fit into the device's memory, and the others as these end; yields each
    run as it ends. The first run goes ahead alone for a few steps, to measure how much memory a run
    needs."""
    waiting, active = deque(runs), list[tuple[AnyRun, Iterator[None]]]()
    if not waiting:
        return
    memory = DeviceMemory(device)
    before, slots, measured = memory.reserved(), 1, False
    trial = 0  # steps of the only open run in this process: a resumed run records them anew
    busy, next_try = 0, 0.0  # runs that other processes write, and when to look at them again
    with Failures() as failures, ExitStack() as stack:
        for run in waiting:
            stack.callback(run.close)
        while waiting or active:
            while waiting and len(active) < slots and time.monotonic() >= next_try:
                run = waiting.popleft()
                try:
                    with failures.of(getattr(run, "path", Path()).name):
                        run.open()
                        active.append((run, run.steps()))
                    busy, trial = 0, 0
                except Busy:
                    waiting.append(run)
                    busy += 1
                    if busy >= len(waiting):
                        busy, next_try = 0, time.monotonic() + BUSY_WAIT
            if waiting and not active:
                time.sleep(max(0.0, next_try - time.monotonic()))
            still_active = []
            for run, steps in active:
                step: object = FAILED
                with failures.of(getattr(run, "path", Path()).name):
                    step = next(steps, END)
                if step in (END, FAILED):
                    run.close()
                    if step is END:
                        yield run
                    continue
                still_active.append((run, steps))
                trial += 1
                recorded = run.loop is not None and min(trial, run.loop.step) >= TRIAL_STEPS
                if waiting and not measured and recorded:
                    measured, slots = True, _slots(run, memory, before, most or MOST)
                    log(f"{min(slots, 1 + len(waiting))} runs side by side on {device}.")
            active = still_active


def _slots(run: StepwiseRun, memory: DeviceMemory, before: int, most: int) -> int:
    """How many runs fit, if each needs as much memory as this one."""
    loop = run.loop
    assert loop is not None
    with loop.engine.scope():
        loop.evaluator.warm_up()
    memory.synchronize()
    per_run = max(memory.reserved() - before, 1 << 20)
    return max(1, min(most, 1 + int(FREE_SHARE * memory.free() / per_run)))


class DeviceMemory:
    """Memory of a GPU in bytes, as torch reports it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def reserved(self) -> int:
        return int(torch.cuda.memory_reserved(self._device))

    def free(self) -> int:
        return int(torch.cuda.mem_get_info(self._device)[0])

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)
