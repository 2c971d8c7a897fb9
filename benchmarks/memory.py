"""What a memory costs as it grows: ``python benchmarks/memory.py``.

Microseconds to recall 20 samples and to store 10, for memories of 4,000 to 4,000,000 samples, in
turns; and the bytes that 4,000,000 take. The last column is the largest against the smallest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from streamgauge import memory

SIZES = (4_000, 40_000, 400_000, 4_000_000)
POLICIES = ("reservoir", "fifo", "everything", "mixed", "ring", "class_balanced")
CLASSES, ROUNDS = 100, 400


def filled(policy: str, size: int) -> memory.Memory:
    made = memory.make(policy, size // CLASSES if policy == "ring" else size, 0)  # type: ignore[arg-type]
    for start in range(0, size, 1_000_000):
        index = np.arange(start, min(start + 1_000_000, size))
        made.add(index, index % CLASSES)
    return made


def best(works: list[Callable[[], object]]) -> list[float]:
    """The fastest of many rounds of each, in microseconds, in turns."""
    times = [np.inf] * len(works)
    for _ in range(ROUNDS):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[number] = min(times[number], time.perf_counter() - start)
    return [1e6 * each for each in times]


def main() -> None:
    print(f"{'':16s} {'':8s}" + "".join(f"{size:>11,}" for size in SIZES) + "    ratio   MB")
    rng = np.random.default_rng(0)
    batch = rng.integers(0, CLASSES, 10)
    for policy in POLICIES:
        made = [filled(policy, size) for size in SIZES]
        recall = best([lambda m=m: m.index[m.recall(20)] for m in made])  # type: ignore[misc]
        store = best([lambda m=m: m.add(np.arange(10), batch) for m in made])  # type: ignore[misc]
        megabytes = (
            sum(v.nbytes for v in vars(made[-1]).values() if isinstance(v, np.ndarray)) / 1e6
        )
        for what, times in (("recall 20", recall), ("store 10", store)):
            line = "".join(f"{each:11.1f}" for each in times)
            print(f"{policy:16s} {what:9s}{line} {times[-1] / times[0]:8.2f} {megabytes:5.0f}")


if __name__ == "__main__":
    main()
