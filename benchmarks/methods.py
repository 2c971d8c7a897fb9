"""What each method costs compared with the bare passes it makes, on this machine.

    OMP_NUM_THREADS=2 python benchmarks/methods.py            # all of the survey and real-time ones
    OMP_NUM_THREADS=2 python benchmarks/methods.py er mir     # some

Slim ResNet18, batch 10 + 10, 3 passes. The bare pass is one forward, backward and SGD step on 20
images, timed in turn with the method; a method's passes are its FLOPs in units of the bare pass.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from streamgauge import catalogue, models
from streamgauge.learners.base import Batch
from streamgauge.streams import Arrangement, ArraySource, Gate, arrange

NAMES = ("er", "er_ace", "er_lwf", "mir", "derpp", "rar", "ace", "lwf", "rwalk", "polrs", "gss")
ROUNDS = 5


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (600, 3, 32, 32), dtype=np.uint8)
    stream = arrange(ArraySource(x, rng.integers(0, 100, 600), classes=100), Arrangement(batch=10))
    model = models.build("slim_resnet18", (3, 32, 32), 100, seed=0, masked=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(20, 3, 32, 32), torch.randint(0, 100, (20,))

    def bare() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    with FlopCounterMode(display=False) as counter:
        bare()
    one = counter.get_total_flops()
    print(f"{'method':<10}{'passes':>9}{'ms a batch':>13}{'over bare passes':>19}")
    for name in sys.argv[1:] or NAMES:
        asked = {"model": "slim_resnet18", "memory": 100, "passes": 3, "warmup": 0}
        known = catalogue.learner(name).config
        recipe = catalogue.learner(name, **{k: v for k, v in asked.items() if hasattr(known, k)})
        gate = Gate(stream.source, np.arange(600), torch.device("cpu"))
        learner = recipe.build(stream.spec, gate, 0, torch.device("cpu"))
        if "boundaries" in recipe.needs:
            learner.tell(boundary=0, classes=np.arange(50))
        batches = [Batch(gate.read(i), gate.label(i), i)
                   for i in (stream.index(t).astype(np.int64) for t in range(60))]  # fmt: skip
        for batch in batches[:10]:
            learner.store(batch)
        if "boundaries" in recipe.needs:
            learner.tell(boundary=1, classes=np.arange(50, 100))
        learner.learn(batches[10], learner.predict(batches[10].x))
        predicted = learner.predict(batches[11].x)
        with FlopCounterMode(display=False) as counter:
            learner.learn(batches[11], predicted)
        passes = counter.get_total_flops() / one
        ratios, times = [], []
        for batch in batches[12 : 12 + ROUNDS]:
            predicted = learner.predict(batch.x)
            start = time.perf_counter()
            learner.learn(batch, predicted)
            middle = time.perf_counter()
            for _ in range(3):
                bare()
            each = (time.perf_counter() - middle) / 3
            times.append(middle - start)
            ratios.append((middle - start) / (passes * each))
        middle_ratio = statistics.median(ratios)
        print(f"{name:<10}{passes:>9.2f}{1e3 * statistics.median(times):>13.1f}"
              f"{middle_ratio:>18.2f}x", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
