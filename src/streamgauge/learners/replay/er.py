"""Experience replay: every step trains on the new samples and as many recalled from a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.network import Network
from streamgauge.learners.parts.replay_batch import (
    NONE,
    ReplayBatch,
    ReplayDraw,
    Sizes,
    split_passes,
)
from streamgauge.learners.parts.sgd import forget_gradients, small_passes, step
from streamgauge.models.augment import Augmentation


@dataclass(frozen=True)
class Config:
    lr: float = 0.05  # learning rate of SGD
    momentum: float = 0.0  # of SGD
    weight_decay: float = 0.0  # L2 penalty of SGD
    passes: int = 1  # gradient steps per batch, each with a new recall and new random views
    memory: int = 2000  # samples stored; per class where the policy is `ring`
    policy: Literal["reservoir", "class_balanced", "fifo", "ring", "everything", "mixed"] = (
        "reservoir"  # which samples stay in memory
    )
    recall: int = 10  # samples recalled per gradient step
    wait: bool = False  # recall nothing until so many are stored (the survey's loaders)
    augment: Augmentation = "none"  # random views of new and recalled images
    padding: int = 4  # pixels of zeros on each side before `crop_flip` crops
    model: str = "auto"  # mlp for vectors, cnn4 for images
    weights: str = ""  # initial weights: a file, or a folder made by `pretrain`; empty: random
    head: Literal["linear", "cosine"] = "linear"  # the last layer
    mean: tuple[float, ...] = (0.5,)  # of pixels in 0..1: one for all channels, or one per channel
    std: tuple[float, ...] = (0.25,)  # of pixels in 0..1, as `mean`
    precision: Literal["fp32", "bf16"] = "fp32"  # of the network's matrix products


class ER(Network):
    """Chaudhry et al. 2019: cross-entropy on new and recalled samples together, one SGD step per
    pass. The batch enters the memory after training, so it is never recalled together with itself.
    Other methods override `draw`, `choose`, `loss`, `update` or `store`; what they want to log goes
    into `self.scalars`. What the memory decides is decided first, on the host; `train` is the part
    of a step that an engine may record once and replay."""

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.stores_first:
            self.store(batch)
        inputs = self.read_draws(self.draw_passes(batch))
        scalars = self.execute(self.train, batch.x, batch.y, *inputs, *self.variant())
        self.trained_labels = batch.y
        self.scalars = {}  # from here on, what `store` logs
        if not self.stores_first:
            self.store(batch)
        self.progress.count(len(batch.index))
        return {**scalars, "memory": len(self.memory), **self.scalars}

    def train(
        self, x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, slots: Tensor, sizes: Sizes,
        *_variant: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """All passes over one batch: a function of tensors whose shapes follow from `sizes`."""
        self.scalars = {}
        scalars = small_passes(self, ER, x, y, old_x, old_y, sizes)
        if scalars is not None:
            return scalars
        if not self.model.training:  # visits all modules, which takes time in small networks
            self.model.train()
        self.model.head.see(y)
        new = Batch(x, y, NONE)
        for replay in split_passes(old_x, old_y, slots, sizes):
            recalled = self.choose(new, replay)
            loss = self.loss(new, recalled)
            self.update(loss)
        return {"loss": loss.detach(), "recalled": len(recalled.y), **self.scalars}

    def draw(self, batch: Batch) -> ReplayDraw:
        """What one pass takes from the memory."""
        few = self.config.wait and len(self.memory) < self.config.recall
        slots = self.memory.recall(0 if few else self.config.recall)
        return ReplayDraw((self.memory.index[slots],))

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        """What all passes over a batch take from the memory."""
        return [self.draw(batch) for _ in range(self.passes_of_batch())]

    def choose(self, batch: Batch, replay: ReplayBatch) -> Batch:
        """Which of the drawn samples are replayed together with the new batch."""
        return replay.parts[0]

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """One forward pass over both, so that batch norm sees them together."""
        scores = self.scores(self.view(torch.cat([batch.x, recalled.x])))
        return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))

    def update(self, loss: Tensor) -> None:
        forget_gradients(self.optimizer)
        loss.backward()  # type: ignore[no-untyped-call]
        step(self.optimizer)

    def store(self, batch: Batch) -> None:
        """Override `after_store`, if only something is to be added."""
        self.after_store(batch, self.memory.add(batch.index, batch.labels()))

    def after_store(self, batch: Batch, slots: Any) -> None:
        """Classes that are stored may be predicted, though they were not trained on."""
        if batch.y is not self.trained_labels:
            self.model.head.see(batch.y)

    def recall(self, batch: Batch) -> Batch:
        """Draw and choose at once."""
        return self.choose(batch, next(split_passes(*self.read_draws([self.draw(batch)]))))

    upcoming_reads = Network.upcoming_reads  # of the `learn`, `recall` and `store` above
