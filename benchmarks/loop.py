"""What the loop itself costs a step, and what a long stream costs in memory.

python benchmarks/loop.py            # microseconds a step outside learn and predict
python benchmarks/loop.py --long     # 1,000,000 steps of a label-only stream, log included
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch

import streamgauge as sg
from streamgauge.streams import Spec


class Idle:
    """A learner that costs nothing."""

    def __init__(self, spec: Spec, source: Any, seed: int, device: torch.device) -> None:
        self.scores = torch.zeros(1, spec.classes)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(x), -1)

    def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, float]:
        return {"loss": 0.0}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def overhead(steps: int = 20_000, batch: int = 10) -> float:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (steps * batch, 3, 32, 32), dtype=np.uint8)
    stream = sg.stream(x, rng.integers(0, 100, steps * batch), batch=batch)
    stream.describe()  # hashing the data is paid once, before the loop
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        sg.run(stream, Idle, out=out, protocol=sg.Protocol(evaluate="never"))
        return (time.perf_counter() - start) / steps


def long_run(steps: int = 1_000_000) -> tuple[float, float]:
    stream = sg.stream("markov", length=steps * 10, batch=10)
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        sg.run(stream, "blind", out=out, protocol=sg.Protocol(evaluate="never"))
        seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--long" in sys.argv:
        seconds, megabytes = long_run()
        print(f"1,000,000 steps of 10 labels: {seconds:.0f} s, peak memory {megabytes:.0f} MB")
    else:
        best = min(overhead() for _ in range(3))
        print(f"loop, log and checkpoint, batch of 10 in memory: {best * 1e6:.1f} us a step")
