"""Several runs at once on one GPU: each takes a step in turn, and their work overlaps there.

A step of a small network uses a small part of a large GPU. Nothing in a recorded step waits for the
device, so one process keeps several runs in flight, each on a CUDA stream of its own: other seeds,
other settings, other learners. The runs share no state, and each writes the log that it would
write alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from streamgauge.errors import Failures
from streamgauge.record import Run
from streamgauge.running.active_run import FolderStore, StepwiseRun
from streamgauge.running.execution import Execution, Logger
from streamgauge.running.executors.sequential import Watch, activate
from streamgauge.running.plan import PlannedRun
from streamgauge.running.threads import user_threads

if TYPE_CHECKING:
    import torch


TRIAL_STEPS = 8  # steps of the first run after which its memory is measured
FREE_SHARE = 0.85  # of the free memory that runs may take
MOST = 32  # queues that a GPU works through at the same time

AnyRun = TypeVar("AnyRun", bound=StepwiseRun)


def execute(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path,
    watch: Watch | None = None,
    store: FolderStore | None = None,
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of the planned runs in the folder `out`; yields each run as it ends.
    Complete runs come first."""
    waiting = {}
    with user_threads(execution.threads):
        for planned_run, run in activate(planned, execution, out, watch, store):
            if run.complete:
                yield planned_run, Run(run.path)
            else:
                waiting[run] = planned_run
        for run in run_interleaved(
            waiting, execution.torch_device, execution.side_by_side, execution.log
        ):
            yield waiting[run], Run(run.path)


def run_interleaved(
    runs: Iterable[AnyRun],
    device: torch.device,
    most: int | None = None,
    log: Logger = print,
) -> Iterator[AnyRun]:
    """Open as many runs as fit into the device's memory, and the others as these end; yields each
    run as it ends.

    The first run goes ahead alone for a few steps, to measure how much memory a run needs.
    """
    waiting, active = deque(runs), list[tuple[AnyRun, Iterator[None]]]()
    if not waiting:
        return
    memory = DeviceMemory(device)
    before, slots, measured = memory.reserved(), 1, False
    with ExitStack() as stack:
        failures = stack.enter_context(Failures())
        while waiting or active:
            while waiting and len(active) < slots:
                run = waiting.popleft()
                stack.callback(run.close)
                run.open()
                active.append((run, run.steps()))
            still_active = []
            for run, steps in active:
                failed = True
                with failures.of(getattr(run, "path", Path()).name):
                    ended, failed = next(steps, END) is END, False
                if failed or ended:
                    run.close()
                    if not failed:
                        yield run
                    continue
                still_active.append((run, steps))
                if waiting and not measured and _tried(run):
                    measured, slots = True, _slots(run, memory, before, most or MOST)
                    log(f"{min(slots, 1 + len(waiting))} runs side by side on {device}.")
            active = still_active


END = object()  # of the steps of a run


def _tried(run: StepwiseRun) -> bool:
    return run.loop is not None and run.loop.step >= TRIAL_STEPS


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
        import torch

        return int(torch.cuda.memory_reserved(self._device))

    def free(self) -> int:
        import torch

        free, _ = torch.cuda.mem_get_info(self._device)
        return int(free)

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self._device)
