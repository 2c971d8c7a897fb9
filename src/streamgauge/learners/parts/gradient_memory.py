"""A memory whose learner decides which stored sample a new one replaces, after the device answered
whether it should (GSS)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import gradient, likeness
from streamgauge.learners.replay import er
from streamgauge.memory import Memory

Array = NDArray[Any]


class Slots(Memory):
    """Filled in order of arrival; after that the learner decides which slots are replaced."""

    model_free: ClassVar[bool] = False

    def _place(self, index: Array, label: Array) -> Array:
        slots = self._size + np.arange(len(index))
        self._index[slots], self._label[slots] = index, label
        self._size += len(index)
        return slots

    def replace(self, slots: Array, index: Array, label: Array, score: Array) -> None:
        self._index[slots], self._label[slots], self.side["score"][slots] = index, label, score


@dataclass(frozen=True)
class ComparedBatch:
    """A batch, directions of the memory to compare its samples with, and where the memory is full
    the device's answer whether the batch is unlike them."""

    index: Array
    label: Array
    x: Tensor  # the view whose gradient counts
    y: Tensor
    others: Tensor
    similarity: Tensor | None  # None where the memory is not full

    def to(self, device: torch.device) -> ComparedBatch:
        names = ("x", "y", "others", "similarity")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class DeferredReplacement(er.ER):
    """Whether the batch stored last replaces anything is decided when the memory is next needed,
    so that no other run on the device has to wait. The network is what it was then."""

    config: Any  # has `subset` and `subsets`
    memory: Slots
    undecided: ComparedBatch | None = None
    replaced = 0  # samples since it was last logged

    def build_memory(self, seed: int) -> Memory:
        return Slots(self.config.memory, seed, replacement=False)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.decide()
        scalars = {**super().learn(batch, predicted), "replaced": self.replaced}
        self.replaced = 0
        return scalars

    def decide(self) -> None:
        late, self.undecided = self.unlike(), None
        if late is not None:
            score = self.compare(late.x, late.y, late.others)
            self.exchange(late.index, late.label, score)

    def compare(self, x: Tensor, y: Tensor, others: Tensor) -> Array:
        """The score of each sample: its largest cosine with the directions."""
        cosines: Tensor = self.execute_extra(self.cosines, x, y, others)
        return cosines.cpu().numpy()

    def cosines(self, x: Tensor, y: Tensor, others: Tensor) -> Tensor:
        self.model.eval()
        return likeness(self.model, x, y, others)

    def compare_batch(self, batch: Batch) -> ComparedBatch | None:
        """None where the memory is empty."""
        if not len(self.memory):
            self.look(batch.x)  # unused; keeps the random draws the same
            return None
        full = len(self.memory) >= self.config.memory
        x, others, similarity = self.execute(self.survey, batch.x, batch.y, *self.subsets(), full)
        if full:
            self.scalars["similarity"] = similarity
        return ComparedBatch(batch.index, batch.labels(), x, batch.y, others, similarity)

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

    def subsets(self) -> tuple[Tensor, Tensor]:
        """Random parts of the memory, read at once: inputs [subsets, size, ...] and labels."""
        stored, size = len(self.memory), min(self.config.subset, len(self.memory))
        count = min(self.config.subsets, stored // size)
        drawn = self.memory.rng.choice(stored, (count, size), replace=False)
        read = self.read(self.memory.index[drawn.ravel()])
        return read.x.view(*drawn.shape, *read.x.shape[1:]), read.y.view(drawn.shape)

    def largest_draw(self) -> int:
        return int(max(self.config.subset * self.config.subsets, self.config.recall))

    def look(self, x: Tensor) -> Tensor:
        """The view of a sample whose gradient counts."""
        raise NotImplementedError

    def exchange(self, index: Array, label: Array, new: Array) -> None:
        """Replace some stored samples by these, according to their scores."""
        raise NotImplementedError

    def unlike(self) -> ComparedBatch | None:
        """The batch stored last, if it will replace something; most often it will not."""
        late = self.undecided
        unlike = late is not None and late.similarity is not None and late.similarity < 0
        return late if unlike else None

    def stored_addresses(self) -> Array:
        """The memory's, and those that may come into it."""
        late = self.unlike()
        return np.concatenate([self.memory.index, *([] if late is None else [late.index])])

    def work(self) -> tuple[Any, ...]:
        return (*super().work(), int(len(self.memory) == self.config.memory))

    def state_dict(self) -> dict[str, Any]:
        late = self.unlike()
        stored = None if late is None else vars(late)
        return super().state_dict() | {"undecided": stored, "replaced": self.replaced}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        # Older checkpoints have neither: there a batch was decided on when it was stored.
        self.replaced, stored = state.get("replaced", 0), state.get("undecided")
        self.undecided = None if stored is None else ComparedBatch(**stored).to(self.device)
