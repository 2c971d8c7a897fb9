"""How fast the audit is: ``python benchmarks/audit.py [NAME...]``, names as printed.

Every case runs in a process of its own, so that its peak memory is its own; numba's machine code
is compiled, or loaded from its cache, before the clock starts. Labels are made on the spot: 713
classes with Zipf frequencies that repeat with probability 0.15, about as a photo stream does.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit import audit, blind_accuracy, explain, select_shift
from streamgauge.audit.shift import LabelStream

CLOC = 39_000_000
LARGE = 200_000_000
SIX = [0, 16, 256, 1024, 4096, 16384]
WINDOWS = [1, 2, 5, 10, 20, 30, 40, 60, 75, 100, 250, 500, 1000, 5000, 25000, 75000]
SHIFTS = [0, *[2**i for i in range(1, 14)], 12288, 16384, 32768, 65536, 131072]


def labels_of(n: int, classes: int = 713, rho: float = 0.15, seed: int = 0) -> NDArray[np.int32]:
    """A sticky stream of skewed labels, made in pieces to keep its memory small."""
    rng = np.random.default_rng(seed)
    edges = np.cumsum(1 / np.arange(1, classes + 1))
    labels = np.empty(n, np.int32)
    for start in range(0, n, 1 << 22):
        size = min(1 << 22, n - start)
        drawn = np.searchsorted(edges, rng.random(size, np.float32) * edges[-1]).clip(
            0, classes - 1
        )
        redraw = rng.random(size) >= rho
        redraw[0] = True
        kept = np.maximum.accumulate(np.where(redraw, np.arange(size), 0))
        labels[start : start + size] = drawn[kept]
    return labels


def warm() -> None:
    """Compile everything that will be timed."""
    few = labels_of(5_000)
    blind_accuracy(few, [1, 2, 3, 1000], [0, 5])
    select_shift(few)
    explain(few, few)


def timed(work: Callable[[], object]) -> str:
    start, used = time.perf_counter(), time.process_time()
    work()
    used = time.process_time() - used
    return f"{time.perf_counter() - start:8.1f} s ({used:.1f} s CPU)"


def small_windows() -> str:
    labels = labels_of(CLOC)
    return timed(lambda: blind_accuracy(labels, np.arange(1, 101), SIX))


def paper_grid() -> str:
    labels = labels_of(CLOC)
    return timed(lambda: blind_accuracy(labels, WINDOWS, SHIFTS))


def growth() -> str:
    """Seconds for 1, 2, 4 and 8 million labels on the grid of the paper."""
    times = []
    for n in (1, 2, 4, 8):
        labels = labels_of(n * 1_000_000)
        times.append(timed(lambda labels=labels: blind_accuracy(labels, WINDOWS, SHIFTS)).strip())
    return " ".join(times)


def one_selection() -> str:
    labels = labels_of(200_000)
    return timed(lambda: select_shift(labels))


def long_selection() -> str:
    labels = labels_of(CLOC)
    return timed(lambda: print(select_shift(labels).reason, file=sys.stderr))


def long_sweep() -> str:
    """The windows alone, at the shifts of `select_shift`: what it does first with a long stream."""
    stream = LabelStream(labels_of(CLOC), 713, CLOC)
    shifts = stream.shifts(None)
    return timed(lambda: stream.sweep(shifts))


def bits(n: int) -> str:
    """Bits of labels and of answers that are right 30 % of the time."""
    labels = labels_of(n)
    answers = np.zeros(n, np.int32)
    for start in range(0, n, 1 << 22):
        part = slice(start, start + (1 << 22))
        right = np.random.default_rng(start).random(labels[part].size, np.float32) < 0.3
        answers[part][right] = labels[part][right]
    return timed(lambda: explain(labels, answers))


def large_file() -> str:
    """A 200,000,000-row Parquet file with labels and predictions, read in pieces."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        # Made by a process of its own, so that its memory does not count here.
        subprocess.run([sys.executable, __file__, "--make", str(path)], check=True)
        return timed(lambda: print(*audit(path).words, sep="\n", file=sys.stderr))


def make_large_file(path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("label", pa.int16()), ("prediction", pa.int16())])
    with pq.ParquetWriter(path, schema) as writer:
        for seed in range(LARGE // 10_000_000):
            label = labels_of(10_000_000, seed=seed).astype(np.int16)
            guess = np.where(np.random.default_rng(seed).random(label.size) < 0.3, label, 0)
            columns = [pa.array(label), pa.array(guess.astype(np.int16))]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=1 << 20)


CASES: dict[str, tuple[str, Callable[[], str]]] = {
    "small": ("39 M labels, windows 1..100, six shifts up to 16,384", small_windows),
    "paper": ("39 M labels, 16 windows up to 75,000, 19 shifts up to 131,072", paper_grid),
    "growth": ("the same grid on 1, 2, 4, 8 M labels", growth),
    "select": ("select_shift of 200,000 labels", one_selection),
    "sweep-long": ("39 M labels, the windows and shifts of select_shift", long_sweep),
    "select-long": ("select_shift of 39 M labels, the family at three shifts", long_selection),
    "bits": ("explain of 2 M labels and answers", lambda: bits(2_000_000)),
    "bits-long": ("explain of 39 M labels and answers", lambda: bits(CLOC)),
    "large": ("audit of a Parquet file of 200,000,000 rows", large_file),
}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        warm()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        took = CASES[sys.argv[2]][1]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{took}   peak {peak / 2**20:5.2f} GB (start {before / 2**20:.2f})")
        return
    if sys.argv[1:2] == ["--make"]:
        make_large_file(sys.argv[2])
        return
    unknown = [n for n in sys.argv[1:] if n not in CASES]
    if unknown:
        sys.exit(f"there is no case {unknown[0]}: choose from {', '.join(CASES)}")
    for name in sys.argv[1:] or CASES:
        print(f"{name:12s} {CASES[name][0]:66s}", end="", flush=True)
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout.strip())


if __name__ == "__main__":
    main()
