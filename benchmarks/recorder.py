"""Rows per second and memory of `sg.Recorder`.

    python benchmarks/recorder.py [--rows 2000000] [--calls 500000] [--ids numbers]

Two loops: batches of 1,000 rows, and one row per call; each answers and labels every row, so a row
below is a row of `predictions` or of `labels`. Labels of every tenth answer never come. Memory is
that of the process (resident) after each tenth of the loop, and the largest so far. CPU rates are
those of a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import streamgauge as sg

CLASSES = 10


def resident() -> float:
    """MB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def loop(rec: sg.Recorder, rows: int, batch: int, ids: str) -> Iterator[int]:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(CLASSES), batch)
    labels = rng.integers(0, CLASSES, batch)
    for start in range(0, rows, batch):
        if batch == 1:
            name = start if ids == "numbers" else f"request-{start}"
            rec.predict(name, scores[0], time=float(start))
            if start % 10:
                rec.label(name, 3, time=float(start))
        else:
            names = np.arange(start, start + batch)
            if ids == "text":
                names = np.char.add("request-", names.astype(str))
            rec.predict(names, scores, time=start + np.arange(float(batch)))
            rec.label(names[batch // 10 :], labels[batch // 10 :], time=float(start + batch))
        yield start + batch


def measure(answers: int, batch: int, ids: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rec = sg.Recorder(Path(folder) / "mine", stream="s", learner="l", classes=CLASSES)
        memory, tenth = list[float](), max(answers // 10, 1)
        start, cpu = time.perf_counter(), time.process_time()
        for done in loop(rec, answers, batch, ids):
            if done // tenth > len(memory):
                memory.append(resident())
        rec.flush()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        rec.close()
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    rows, calls = 1.9 * answers, answers * (2 / batch if batch > 1 else 1.9)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(
        f"batch {batch:5d}, ids {ids:7s}: {rows:,.0f} rows in {calls:,.0f} calls,"
        f" {rows / seconds:,.0f} rows/s ({rows / cpu:,.0f} by CPU time), {calls / seconds:,.0f}"
        f" calls/s ({calls / cpu:,.0f}), {size / answers:.0f} bytes per answer on disk\n"
        f"    MB after each tenth: {' '.join(f'{m:.0f}' for m in memory)}; largest {largest:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in batches; 0: none")
    parser.add_argument("--calls", type=int, default=500_000, help="one by one; 0: none")
    parser.add_argument("--ids", choices=("numbers", "text"), help="default: both, in turn")
    given = parser.parse_args()
    for batch, answers in ((1000, int(given.rows / 1.9)), (1, int(given.calls / 1.9))):
        for ids in (given.ids,) if given.ids else ("numbers", "text"):
            if answers:
                measure(answers // batch * batch, batch, ids)
