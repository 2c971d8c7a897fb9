"""Experience replay: every step trains on the new samples and as many recalled from a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.network import Network
from streamgauge.learners.parts.replay_batch import NONE, Drawn, Hand, Sizes, deal_out
from streamgauge.learners.parts.sgd import forget_gradients, step
from streamgauge.learners.parts.small_networks import small_passes
from streamgauge.models.augment import Augmentation

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Config:
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    passes: int = 1  # gradient steps a batch, each with a fresh recall and fresh augmentation
    memory: int = 2000  # samples; a class each where the policy is `ring`
    policy: Literal["reservoir", "class_balanced", "fifo", "ring", "everything", "mixed"] = (
        "reservoir"
    )
    recall: int = 10  # samples recalled a gradient step
    wait: bool = False  # recall nothing until that many are stored (the survey's loaders)
    augment: Augmentation = "none"
    padding: int = 4  # pixels of zeros on each side before `crop_flip` cuts
    model: str = "cnn4"
    weights: str = ""  # first weights: a file, or a folder of `pretrain`'s; without, random
    head: Literal["linear", "cosine"] = "linear"
    mean: tuple[float, ...] = (0.5,)  # of pixels in 0..1, one for all channels or one each
    std: tuple[float, ...] = (0.25,)
    precision: Literal["fp32", "bf16"] = "fp32"  # of the network's products


class ER(Network):
    """Chaudhry et al. 2019: cross-entropy on new and recalled samples together, one SGD step a
    pass; the batch enters the memory after training, so it is never recalled beside itself.

    Other methods change `draw`, `choose`, `loss`, `update` or `store`; what they want logged goes
    into `self.scalars`. What the memory decides is decided first, on the host; `train` is the part
    of a step that an engine may record once and replay.
    """

    met: Tensor | None = None  # labels of the batch that was trained on last

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        drawn = [self.draw(batch) for _ in range(self.config.passes)]
        said = self.execute(self.train, batch.x, batch.y, *self.bring(drawn), *self.variant())
        self.met = batch.y
        self.scalars = {}  # from here on, what `store` has to say
        self.store(batch)
        self.progress.count(len(batch.index))
        return {**said, "memory": len(self.memory), **self.scalars}

    def train(
        self, x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, slots: Tensor, sizes: Sizes,
        *_variant: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """All passes over one batch: a function of tensors, of one shape for one `sizes`."""
        self.scalars = {}
        done = small_passes(self, ER, x, y, old_x, old_y, sizes)
        if done is not None:
            return done
        if not self.model.training:  # a walk through all modules, which small networks feel
            self.model.train()
        self.model.head.see(y)
        new = Batch(x, y, NONE)
        for hand in deal_out(old_x, old_y, slots, sizes):
            recalled = self.choose(new, hand)
            loss = self.loss(new, recalled)
            self.update(loss)
        return {"loss": loss.detach(), "recalled": len(recalled.y), **self.scalars}

    def draw(self, batch: Batch) -> Drawn:
        """What one pass takes from the memory."""
        few = self.config.wait and len(self.memory) < self.config.recall
        slots = self.memory.recall(0 if few else self.config.recall)
        return Drawn((self.memory.index[slots],))

    def choose(self, batch: Batch, hand: Hand) -> Batch:
        """What is replayed beside the new batch, of what was drawn."""
        return hand.parts[0]

    def recall(self, batch: Batch) -> Batch:
        """Draw and choose at once."""
        return self.choose(batch, next(deal_out(*self.bring([self.draw(batch)]))))

    def variant(self) -> tuple[Any, ...]:
        """What, beside shapes, decides which operations a step takes."""
        return ()

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        """Asked of a double with a memory of its own, so that images can be read ahead: play what
        learning this batch does to the memory, and give the addresses of each read. Who changes
        `learn`, `recall` or `store` says this anew, or is not foreseen."""
        drawn = [self.draw(batch) for _ in range(self.config.passes)]
        self.memory.add(batch.index, batch.labels())
        return [np.concatenate([part for one in drawn for part in one.parts])]

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """One forward pass over both, so that batch norm sees them together."""
        scores = self.scores(self.view(torch.cat([batch.x, recalled.x])))
        return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))

    def update(self, loss: Tensor) -> None:
        forget_gradients(self.optimizer)
        loss.backward()  # type: ignore[no-untyped-call]
        step(self.optimizer)

    def store(self, batch: Batch) -> None:
        self.meet(batch)
        self.memory.add(batch.index, batch.labels())

    def meet(self, batch: Batch) -> None:
        """The head may name the classes of what is stored, though it is never trained on."""
        if batch.y is not self.met:
            self.model.head.see(batch.y)
