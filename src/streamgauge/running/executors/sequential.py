"""Runs one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from streamgauge.errors import Failures
from streamgauge.record import Run
from streamgauge.running.active_run import (
    ActiveRun,
    FolderStore,
    Progress,
    is_done,
)
from streamgauge.running.execution import Execution
from streamgauge.running.plan import PlannedRun, StreamCache
from streamgauge.running.threads import user_threads
from streamgauge.streams import Stream

# Called before each run; returns a callback for its steps, or None.
Watch = Callable[[PlannedRun, Stream], Progress | None]


def execute(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path,
    watch: Watch | None = None,
    store: FolderStore | None = None,
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of the planned runs in the folder `out`; yields each run as it ends. A run
    that fails on the way does not keep the others from running; its error is raised at the end."""
    with user_threads(execution.threads), Failures() as failures:
        for planned_run, run in activate(planned, execution, out, watch, store):
            with closing(run):
                run.open()
                with failures.of(run.path.name if len(planned) > 1 else ""):
                    for _ in run.steps():
                        pass
            if is_done(run.path):
                yield planned_run, Run(run.path)


def activate(
    planned: Sequence[PlannedRun],
    execution: Execution,
    out: str | Path,
    watch: Watch | None,
    store: FolderStore | None,
) -> Iterator[tuple[PlannedRun, ActiveRun]]:
    """Planned runs with their folders, none opened yet."""
    streams = StreamCache(planned)
    for planned_run in planned:
        stream = streams.stream_of(planned_run)
        progress = None if watch is None else watch(planned_run, stream)
        prepared = planned_run.prepared(Path(out))
        options = {"out": out, "progress": progress, "store": store}
        yield planned_run, ActiveRun.of(prepared, stream, execution, **options)
