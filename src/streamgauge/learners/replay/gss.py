"""GSS-greedy: ER whose memory keeps samples with gradients unlike those it already holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.cost.flops import part
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import gradient, likeness
from streamgauge.learners.replay import er
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


@dataclass(frozen=True)
class Undecided:
    """A batch that came when the memory was full, and the device's answer whether it is unlike."""

    index: Array
    label: Array
    x: Tensor  # as it was looked at
    y: Tensor
    others: Tensor  # directions to compare it with
    similarity: Tensor

    def to(self, device: torch.device) -> Undecided:
        names = ("x", "y", "others", "similarity")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class GSS(er.ER):
    """Gradient-based sample selection (Aljundi et al. 2019). The score of a sample is the largest
    cosine of its gradient with those of some random memory subsets. With the memory full, and the
    gradient of the batch below 0 with all of them: for each new sample a candidate is drawn in
    proportion to score + 1, and replaced with probability old / (old + new), both plus 1."""

    config: Config
    memory: Slots
    undecided: Undecided | None = None
    replaced = 0  # since a step last said so

    def build_memory(self, seed: int) -> Memory:
        return Slots(self.config.memory, seed, replacement=False)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.decide()
        said = {**super().learn(batch, predicted), "replaced": self.replaced}
        self.replaced = 0
        return said

    def store(self, batch: Batch) -> None:
        """After training, in evaluation mode. What does not fit in the last free slots is lost."""
        self.decide()
        self.meet(batch)
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
            self.look(batch.x)  # at a view nobody compares, as random draws are part of a log
        if room > 0:
            memory.add(batch.index[:room], label[:room], score=score[:room])

    def decide(self) -> None:
        """Whether the batch stored last replaces anything: this waits for the device, so it is done
        when the memory is next needed, and no other run beside it has to wait. The network is
        what it was then."""
        late, self.undecided = self.unlike(), None
        if late is not None:
            self.exchange(late.index, late.label, self.compare(late.x, late.y, late.others))

    def unlike(self) -> Undecided | None:
        """The batch stored last, if it will replace something; most often it will not."""
        late = self.undecided
        return late if late is not None and late.similarity < 0 else None

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
        self.replaced += len(pairs)

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

    def stored_addresses(self) -> Array:
        """Addresses that may be read again: the memory's, and those that may come to it."""
        late = self.unlike()
        return np.concatenate([self.memory.index, *([] if late is None else [late.index])])

    def state_dict(self) -> dict[str, Any]:
        late = self.unlike()
        kept = None if late is None else vars(late)
        return super().state_dict() | {"undecided": kept, "replaced": self.replaced}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        # Older checkpoints have neither: there a batch was decided on when it was stored.
        self.replaced, kept = state.get("replaced", 0), state.get("undecided")
        self.undecided = None if kept is None else Undecided(**kept).to(self.device)
