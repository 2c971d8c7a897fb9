"""GSS-greedy: ER whose memory keeps samples with gradients unlike those it already holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.flops import part
from streamgauge.learners import er
from streamgauge.learners._gradients import gradient, likeness
from streamgauge.learners.base import Batch
from streamgauge.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Array = NDArray[Any]


@dataclass(frozen=True)
class Config(er.Config):
    policy: Literal["greedy"] = "greedy"  # type: ignore[assignment]
    subsets: int = 10  # random parts of the memory whose gradients a sample's is compared with
    subset: int = 10  # samples in each
    as_published: bool = False  # candidates by scores from 0 to 1; gradients of augmented images


class Slots(Memory):
    """Filled in order of arrival; after that the learner says what takes whose place."""

    model_free: ClassVar[bool] = False

    def _place(self, index: Array, label: Array) -> Array:
        slots = self._size + np.arange(len(index))
        self._index[slots], self._label[slots] = index, label
        self._size += len(index)
        return slots

    def replace(self, slots: Array, index: Array, label: Array, score: Array) -> None:
        self._index[slots], self._label[slots], self.side["score"][slots] = index, label, score


class GSS(er.ER):
    """Gradient-based sample selection (Aljundi et al. 2019). The score of a sample is the largest
    cosine of its gradient with those of some random memory subsets. With the memory full, and the
    gradient of the batch below 0 with all of them: for each new sample a candidate is drawn in
    proportion to score + 1, and replaced with probability old / (old + new), both plus 1."""

    config: Config
    memory: Slots

    def build_memory(self, seed: int) -> Memory:
        return Slots(self.config.memory, seed, replacement=False)

    def store(self, batch: Batch) -> None:
        """After training, in evaluation mode. What does not fit in the last free slots is lost."""
        memory, label = self.memory, batch.labels()
        room = self.config.memory - len(memory)
        score = np.full(len(label), 0.1, np.float32)
        self.scalars["replaced"] = 0
        if len(memory):
            old = self.subsets()
            x, others, similarity = self.execute(self.survey, batch.x, batch.y, *old, room <= 0)
            if room > 0:
                score[:room] = self.compare(x[:room], batch.y[:room], others)
            else:
                self.scalars["similarity"] = similarity
                if similarity < 0:  # with a full memory, the one place that waits for the device
                    self.exchange(batch.index, label, self.compare(x, batch.y, others))
        else:
            self.look(batch.x)  # at a view nobody compares, as random draws are part of a log
        if room > 0:
            memory.add(batch.index[:room], label[:room], score=score[:room])

    def survey(
        self, x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, full: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What is seen of the batch, the directions of the memory's parts and, where the memory is
        full, the largest cosine of the batch's gradient with these."""
        self.model.eval()
        x = self.look(x)
        others = self.directions(old_x, old_y)
        if not full:
            return x, others, None
        return x, others, (others @ F.normalize(gradient(self.model, x, y), dim=0)).max()

    def compare(self, x: Tensor, y: Tensor, others: Tensor) -> Array:
        with part("compared", len(others), len(x)):
            cosines: Tensor = self.execute(self.cosines, x, y, others)
        return cosines.cpu().numpy()

    def cosines(self, x: Tensor, y: Tensor, others: Tensor) -> Tensor:
        self.model.eval()
        return likeness(self.model, x, y, others)

    def exchange(self, index: Array, label: Array, new: Array) -> None:
        rng, held = self.memory.rng, self.memory.side["score"].astype(np.float64)
        lowest = held.min() if self.config.as_published else -1
        weight = (held - lowest).clip(1e-9)  # above 0, so that there are always enough to draw
        n = min(len(new), len(held))
        slots = rng.choice(len(held), n, replace=False, p=weight / weight.sum())
        old, young = held[slots] + 1, new[:n] + 1
        pairs = np.flatnonzero(rng.random(n) * (old + young) < old)
        self.memory.replace(slots[pairs], index[pairs], label[pairs], new[pairs])
        self.scalars["replaced"] = len(pairs)

    def work(self) -> tuple[int, ...]:
        held, config = len(self.memory), self.config
        most = max(config.subset * config.subsets, config.recall)
        return (min(held, most), int(held == config.memory))

    def look(self, x: Tensor) -> Tensor:
        return self.view(x) if self.config.as_published else self.normalise(x)

    def subsets(self) -> tuple[Tensor, Tensor]:
        """Random parts of the memory, read at once: inputs [subsets, size, ...] and labels."""
        held, size = len(self.memory), min(self.config.subset, len(self.memory))
        count = min(self.config.subsets, held // size)
        drawn = self.memory.rng.choice(held, (count, size), replace=False)
        read = self.read(self.memory.index[drawn.ravel()])
        return read.x.view(*drawn.shape, *read.x.shape[1:]), read.y.view(drawn.shape)

    def directions(self, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of each part, of length 1: [subsets, weights]."""
        parts = zip(x, y, strict=True)
        return F.normalize(torch.stack([gradient(self.model, self.look(x), y) for x, y in parts]))
