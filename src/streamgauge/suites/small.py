"""Run a suite of small networks on a CPU, as the commands `demo` and `realtime` do."""

from __future__ import annotations

from pathlib import Path

from streamgauge.record import Run
from streamgauge.report.terminal import Watcher
from streamgauge.running.execution import Execution
from streamgauge.suites.finding import parse_seeds
from streamgauge.suites.running import run
from streamgauge.suites.spec import Suite


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
