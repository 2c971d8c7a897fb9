"""Make the missing runs of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.record import Run
from streamgauge.report.terminal import Watcher
from streamgauge.running.execution import Execution, ExecutionOptions, execution_of
from streamgauge.running.executors.dispatch import Watch, execute
from streamgauge.running.loop import Progress
from streamgauge.running.plan import PlannedRun
from streamgauge.settings import RUNS
from streamgauge.streams import Stream
from streamgauge.suites.finding import distinct, find, gather, parse_seeds, plan_rows
from streamgauge.suites.spec import Row, Suite


def run(
    suite: Suite,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    both: bool = False,
    out: str | Path = RUNS,
    runs: Sequence[str | Path] = (),
    weights: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionOptions],
) -> Iterator[Run]:
    """Run what is missing and yield every run that is there in the end.

    What is complete already, in `out` or in one of the folders `runs`, comes first and is not run
    again; what was interrupted in `out` goes on. `execution`, or keywords with the names of its
    fields, says how; with `on="ray"` the runs are made on `cluster`.
    """
    execution = execution_of(execution, options)
    rows = suite.choose(only, both)
    check_weights(rows, weights or {})
    planned = plan_rows(rows, seeds, weights)
    stored = find(planned, gather([out, *runs]))
    yield from (run for by_seed in stored.complete.values() for run in by_seed.values())
    numbers: dict[PlannedRun, int] = {
        planned_row: number for number, planned_row in enumerate(planned, 1)
    }
    log = execution.log

    def announce(planned_run: PlannedRun, stream: Stream) -> Progress | None:
        log(f"[{numbers[planned_run]}/{len(planned)}] {planned_run.title}")
        return None if watch is None else watch(planned_run, stream)

    missing = distinct(planned_row for planned_row in planned if not stored.has(planned_row))
    for _, finished in execute(missing, execution, out, announce):
        yield finished


def check_weights(rows: Sequence[Row], weights: Mapping[str, str]) -> None:
    """Refuse, before anything runs, a backbone that rows begin from and no file is given for."""
    named = {row.weights: row for row in reversed(rows) if row.weights and not row.generated}
    for name in weights:
        if named and name not in named:
            raise StreamgaugeError(f"No row here begins from '{name}'; {nearest(name, named)}")
    for name, row in named.items():
        if name not in weights:
            raise StreamgaugeError(
                f"The row '{row.title}' begins from the backbone '{name}': give its weights with "
                f"--weights {name}=FILE (docs/suites.md says which they are)."
            )
        if not Path(weights[name]).exists():
            raise StreamgaugeError(f"There is no file {weights[name]} (--weights {name}).")


def run_small(suite: Suite, seeds: int, out: Path, quiet: bool = False) -> list[Run]:
    """Every run of a suite with seeds 0 to `seeds` - 1, on one thread.

    These networks are too small for a second thread to help, and if another program keeps a core
    busy, two threads that wait for each other are fifty times slower than one.
    """
    with Watcher(quiet=quiet) as watcher:

        def log(text: str) -> None:
            # Of a suite without parts the watcher's line on each run is enough.
            if len(suite.parts) > 1 or not text.startswith("["):
                watcher.say(text)

        execution = Execution(device="cpu", threads=1, log=log)
        every_seed = parse_seeds(str(seeds))
        watch = watcher.watch
        return list(run(suite, seeds=every_seed, out=out, watch=watch, execution=execution))
