"""Which executor carries out a list of planned runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.record import Run
from streamgauge.running.active_run import FolderStore
from streamgauge.running.execution import Execution
from streamgauge.running.executors import interleaved, sequential
from streamgauge.running.executors.sequential import Watch
from streamgauge.running.plan import PlannedRun
from streamgauge.settings import RUNS


def execute(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path = RUNS,
    watch: Watch | None = None,
    store: FolderStore | None = None,
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of the planned runs in the folder `out`; yields each run as it ends.

    On a cluster where the execution names one; under `torchrun` one after another over all ranks;
    on a GPU that replays recorded steps interleaved, as many as fit or as `side_by_side` says;
    elsewhere one after another.
    """
    from streamgauge.running.executors import torchrun

    if execution.cluster is not None:
        from streamgauge.running.executors import on_ray

        return on_ray.execute(planned, execution, out)
    if torchrun.launched():
        return torchrun.execute(planned, execution, out, watch)
    interleaves = execution.interleaves(execution.torch_device)
    executor = interleaved.execute if interleaves else sequential.execute
    return executor(planned, execution, out, watch, store)
