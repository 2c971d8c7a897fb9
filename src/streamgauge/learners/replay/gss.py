"""GSS-greedy: ER whose memory keeps samples with gradients unlike those it already holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradient_memory import DeferredReplacement, Undecided
from streamgauge.learners.parts.gradients import gradient
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
        score = np.full(len(label), 0.1, np.float32)
        if len(memory):
            old = self.subsets()
            x, others, similarity = self.execute(self.survey, batch.x, batch.y, *old, room <= 0)
            if room > 0:
                score[:room] = self.compare(x[:room], batch.y[:room], others)
            else:
                self.scalars["similarity"] = similarity
                self.undecided = Undecided(batch.index, label, x, batch.y, others, similarity)
        else:
            self.look(batch.x)  # unused; keeps the random draws the same
        if room > 0:
            memory.add(batch.index[:room], label[:room], score=score[:room])

    def survey(
        self, x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, full: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The view of the batch that counts, the directions of the memory's subsets and, where the
        memory is full, the largest cosine of the batch's gradient with these."""
        self.model.eval()
        x = self.look(x)
        others = self.directions(old_x, old_y)
        if not full:
            return x, others, None
        return x, others, (others @ F.normalize(gradient(self.model, x, y), dim=0)).max()

    def directions(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of each part of the memory, of length 1: [subsets, weights]."""
        parts = zip(x, y, strict=True)
        return F.normalize(torch.stack([gradient(self.model, self.look(x), y) for x, y in parts]))

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
