"""DER++: replay that also holds the model to the logits it gave when a sample was stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.replay_batch import ReplayBatch, ReplayDraw
from streamgauge.learners.parts.stored_logits import StoredLogits
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 0.1  # weight of the distance to the stored logits
    beta: float = 0.5  # weight of the cross-entropy of recalled samples
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class DERpp(StoredLogits):
    """Buzzega et al. 2020: loss = CE(new) + alpha MSE(logits, stored logits) on one recalled batch
    + beta CE on another, all in one forward pass. The stored logits are those of the (last)
    training pass over a sample. All outputs are trained and stored from the start, also those of
    classes that have not come yet; these are masked in predictions only."""

    config: Config
    published = "survey.PublishedDERpp"

    def draw(self, batch: Batch) -> ReplayDraw:
        """The first batch, of which the logits count, and the second, of which the labels count."""
        first, second = (self.memory.recall(self.config.recall) for _ in range(2))
        return ReplayDraw((self.memory.index[np.concatenate([first, second])],), first)

    def choose(self, batch: Batch, replay: ReplayBatch) -> Batch:
        self.slots = replay.slots
        return replay.parts[0]

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        logits = self.logits(self.view(torch.cat([batch.x, recalled.x])))
        new, old = logits.tensor_split([len(batch.y)])
        self.keep_logits(new.detach())
        loss = F.cross_entropy(new, batch.y)
        if not len(self.slots):
            return loss
        first, second = self.split_recalled(len(self.slots))
        distance = F.mse_loss(old[first], self.stored_logits[self.slots])
        replayed = F.cross_entropy(old[second], recalled.y[second])
        self.scalars |= {"distance": distance.detach(), "replayed": replayed.detach()}
        return loss + self.config.alpha * distance + self.config.beta * replayed

    def split_recalled(self, first: int) -> tuple[slice, slice]:
        """The recalled samples whose logits count, and those whose labels count."""
        return slice(first), slice(first, None)
