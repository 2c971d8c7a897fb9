"""ER-ACE: new samples compete among the classes of their batch only, recalled ones among all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import ace_mask, present, restricted_cross_entropy
from streamgauge.learners.parts.replay_batch import NONE, Drawn, deal
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Config(er.Config):
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)
    alpha: float = 0.5  # as_published: weight of the new samples' term, 1 - alpha of the other


class ERACE(er.ER):
    """Caccia et al. 2022: loss = CE(new, softmax over the batch's classes and those never seen)
    + CE(recalled, softmax over all seen), each a mean, from separate forward passes.

    The survey's code weighs the terms with alpha, leaves unseen classes out of the first, stores a
    batch before it is learnt, and recalls no sample twice in the passes over one batch.
    """

    config: Config
    left = NONE  # what the passes over the batch at hand have not recalled yet
    stored: Batch | None = None  # the batch at hand, where it was stored first

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.left, self.stored = NONE, None
        if self.config.as_published:
            self.store(batch)
            self.stored = batch
        return super().learn(batch, predicted)

    def store(self, batch: Batch) -> None:
        if batch is not self.stored:
            super().store(batch)

    def draw(self, batch: Batch) -> Drawn:
        if not self.config.as_published:
            return super().draw(batch)
        memory = self.memory
        slots, self.left = deal(self.left, self.config.recall, memory.slots(), memory.rng)
        return Drawn((memory.index[slots],))

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        self.left = NONE
        if not self.config.as_published:
            return super().upcoming_reads(batch)
        self.memory.add(batch.index, batch.labels())
        drawn = [self.draw(batch) for _ in range(self.config.passes)]
        return [np.concatenate([one.parts[0] for one in drawn])]

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        head, published = self.model.head, self.config.as_published
        allowed = present(batch.y, len(head.seen)) if published else ace_mask(batch.y, head.seen)
        new = self._term(batch, allowed)
        if not len(recalled.y):
            return new
        old = self._term(recalled, head.seen)
        return self.config.alpha * new + (1 - self.config.alpha) * old if published else new + old

    def _term(self, batch: Batch, allowed: Tensor) -> Tensor:
        logits = self.model.head.scores(self.model.features(self.view(batch.x)))
        return restricted_cross_entropy(logits, batch.y, allowed)
