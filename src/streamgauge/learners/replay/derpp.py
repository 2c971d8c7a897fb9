"""DER++: replay that also holds the model to the logits it gave when a sample was stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.replay_batch import ReplayBatch, ReplayDraw
from streamgauge.learners.replay import er
from streamgauge.streams import Spec
from streamgauge.streams.gate import to_device


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 0.1  # weight of the distance to the stored logits
    beta: float = 0.5  # weight of the cross-entropy of recalled samples
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class DERpp(er.ER):
    """Buzzega et al. 2020: loss = CE(new) + alpha MSE(logits, stored logits) on one recalled batch
    + beta CE on another, all in one forward pass. The stored logits are those of the (last)
    training pass over a sample. All outputs are trained and stored from the start, also those of
    classes that have not come yet; these are masked in predictions only."""

    config: Config
    checkpointed = "kept=stored_logits"
    published = "survey.PublishedDERpp"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        # One row per slot, and a last row for samples that got no slot (slot -1).
        self.stored_logits = torch.zeros(self.config.memory + 1, spec.classes, device=self.device)
        # By size of the batch: an engine replays writes into the same tensor.
        self.trained_logits: dict[int, Tensor] = {}

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        size, classes = len(batch.y), self.stored_logits.shape[1]
        if size not in self.trained_logits:
            self.trained_logits[size] = torch.zeros(size, classes, device=self.device)
        return super().learn(batch, predicted)

    upcoming_reads = er.ER.upcoming_reads  # `learn` above recalls nothing of its own

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

    def logits(self, x: Tensor) -> Tensor:
        return self.model.head.scores(self.model.features(x))

    def keep_logits(self, new: Tensor) -> None:
        """The logits of a training pass, for the memory."""
        if len(new) in self.trained_logits:
            self.trained_logits[len(new)].copy_(new)

    def after_store(self, batch: Batch, slots: Any) -> None:
        if batch.y is self.trained_labels:
            self.stored_logits[to_device(slots, self.device)] = self.trained_logits[len(batch.y)]
        else:
            self.execute(self.store_logits, batch.x, batch.y, to_device(slots, self.device))

    def store_logits(self, x: Tensor, y: Tensor, slots: Tensor) -> None:
        """Of samples that were not trained on: of the image as it is, in evaluation mode."""
        self.model.head.see(y)
        self.model.eval()
        with torch.no_grad():
            self.stored_logits[slots] = self.logits(self.normalise(x))

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.stored_logits.nbytes
