"""Rows per second and memory of `sg.Recorder`: `python benchmarks/recorder.py [--rows 1000000]`.

Two loops: batches of 1,000 rows, and one row per call; each answers and labels every row, so a row
below is a row of `predictions` or of `labels`. Memory is that of the process, when a quarter of
the loop is done and at its end: labels of every tenth answer never come. CPU rates are those of a
machine that does nothing else.
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


def measure(rows: int, batch: int, ids: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        rec = sg.Recorder(Path(folder) / "mine", stream="s", learner="l", classes=CLASSES)
        early = 0.0
        start, cpu = time.perf_counter(), time.process_time()
        for done in loop(rec, rows, batch, ids):
            early = early or (resident() if done >= rows // 4 else 0.0)
        rec.flush()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        late = resident()
        rec.close()
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    calls = rows // batch * 2 if batch > 1 else int(rows * 1.9)
    return (
        f"batch {batch:5d}, ids {ids:7s}: {1.9 * rows / seconds:9,.0f} rows/s "
        f"({1.9 * rows / cpu:9,.0f} by CPU time), {calls / seconds:7,.0f} calls/s "
        f"({calls / cpu:7,.0f}), {early:4.0f} and {late:4.0f} MB, "
        f"{size / rows:3.0f} bytes per answer on disk"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    for batch, count in ((1000, rows), (1, rows // 4)):
        for ids in ("numbers", "text"):
            print(measure(count, batch, ids), flush=True)
