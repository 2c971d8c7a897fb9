"""GSS-greedy: ER whose memory keeps samples with gradients unlike those it already holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradient_memory import DeferredReplacement
from streamgauge.learners.replay import er

Array = NDArray[Any]


@dataclass(frozen=True)
class Config(er.Config):
    policy: Literal["greedy"] = "greedy"  # type: ignore[assignment]
    subsets: int = 10  # random parts of the memory whose gradients a sample's is compared with
    subset: int = 10  # samples per part
    as_published: bool = False  # candidates by scores from 0 to 1; gradients of augmented images


class GSS(DeferredReplacement):
    """Gradient-based sample selection (Aljundi et al. 2019). The score of a sample is the largest
    cosine of its gradient with those of some random memory subsets. With the memory full, and the
    gradient of the batch below 0 with all of them: for each new sample a candidate is drawn in
    proportion to score + 1, and replaced with probability old / (old + new), both plus 1."""

    config: Config
    published = "realtime.PublishedGSS"

    def store(self, batch: Batch) -> None:
        """After training, in evaluation mode. What does not fit in the last free slots is lost."""
        self.decide()
        self.after_store(batch, None)
        memory, label = self.memory, batch.labels()
        room = self.config.memory - len(memory)
        compared = self.compare_batch(batch)
        if room <= 0:
            self.undecided = compared
            return
        score = np.full(len(label), 0.1, np.float32)  # of the first batch
        if compared is not None:
            score[:room] = self.compare(compared.x[:room], batch.y[:room], compared.others)
        memory.add(batch.index[:room], label[:room], score=score[:room])

    def exchange(self, index: Array, label: Array, new: Array) -> None:
        rng, stored = self.memory.rng, self.memory.side["score"].astype(np.float64)
        weight = self.above_lowest(stored).clip(1e-9)  # above 0, so that enough can be drawn
        n = min(len(new), len(stored))
        slots = rng.choice(len(stored), n, replace=False, p=weight / weight.sum())
        old, young = stored[slots] + 1, new[:n] + 1
        pairs = np.flatnonzero(rng.random(n) * (old + young) < old)
        self.memory.replace(slots[pairs], index[pairs], label[pairs], new[pairs])
        self.replaced += len(pairs)

    def above_lowest(self, score: Array) -> Array:
        """Scores, which are cosines, from 0 on."""
        return score + 1

    def look(self, x: Tensor) -> Tensor:
        """The view of a sample whose gradient counts."""
        return self.normalise(x)
