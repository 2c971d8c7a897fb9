"""Long runs: memory, open files and threads stay flat over millions of steps of the loop.

    python benchmarks/long_run.py --steps 10000000 --out build/long_run


The stream has labels alone and the learner does next to nothing, so what grows would be the loop's.
Memory is compared between the second tenth of the run and its last: the first tenth fills caches.
A label of the stream itself takes one byte per step, which is there from the start.

With --out the run is kept, and the same command goes on after an interruption; then only the steps
of the new process are compared. Without --out the run is removed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import streamgauge as sg
from provenance import provenance


class Constant:
    """Answers class 0 and learns nothing."""

    answers_cheaply = True
    sees_input = False

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.scores = torch.zeros(1, spec.classes)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(x), -1)

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Sample:
    """What a process has at a step."""

    step: int
    megabytes: float
    files: int
    threads: int

    @classmethod
    def now(cls, step: int) -> Sample:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return cls(step, megabytes, len(os.listdir("/proc/self/fd")), threading.active_count())


def measure(steps: int, out: Path, samples: int = 100, checkpoint: float = 30.0) -> list[Sample]:
    """Run that many steps, or what is left of them; what the process had at `samples` of them."""
    taken: list[Sample] = []
    every = max(1, steps // samples)

    def progress(loop: Any, *_: Any) -> None:
        if loop.step % every == 0:
            taken.append(Sample.now(loop.step))

    stream = sg.stream("markov", length=steps, batch=1)
    run = sg.run(stream, Constant, out=out, progress=progress, checkpoint=checkpoint)
    assert run.done
    assert run.step == steps
    assert run.predictions.rows == steps
    return taken


def growth(taken: list[Sample]) -> dict[str, float]:
    """The most of the last tenth minus the most of the second tenth."""
    tenth = max(1, len(taken) // 10)
    early, late = taken[tenth : 2 * tenth], taken[-tenth:]
    return {
        name: max(getattr(s, name) for s in late) - max(getattr(s, name) for s in early)
        for name in ("megabytes", "files", "threads")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--most", type=float, default=20.0, help="megabytes of growth allowed")
    parser.add_argument("--out", type=Path, help="keep the run here, and go on with it")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="long-run-") as folder:
        taken = measure(options.steps, options.out or Path(folder))
    seconds = time.monotonic() - began
    if len(taken) < 20:
        sys.exit("The run was complete already, or nearly so: there is nothing to compare.")
    grown = growth(taken)
    for sample in taken[:: max(1, len(taken) // 10)]:
        print(
            f"  step {sample.step:>12,}: {sample.megabytes:8.1f} MB, {sample.files} open files,"
            f" {sample.threads} threads"
        )
    first, last = taken[0], taken[-1]
    print(
        f"RESULT: {options.steps:,} steps, measured from step {first.step:,} to {last.step:,} in"
        f" {seconds:,.0f} s; at the end {last.megabytes:.0f} MB, {last.files} open files,"
        f" {last.threads} threads; most of the second tenth to most of the last tenth:"
        f" {grown['megabytes']:+.1f} MB, {grown['files']:+.0f} files, {grown['threads']:+.0f}"
        f" threads; {provenance()}"
    )
    flat = grown["megabytes"] <= options.most and grown["files"] <= 0 and grown["threads"] <= 0
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
