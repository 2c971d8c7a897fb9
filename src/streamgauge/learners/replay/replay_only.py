"""Replay only: trains on samples recalled from everything seen, the newest batch among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge import models
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import present, restricted_cross_entropy
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    lr: float = 0.005
    momentum: float = 0.9
    weight_decay: float = 1e-4
    policy: Literal["everything"] = "everything"  # no limit on storage, only on updates (`passes`)
    sampler: Literal["uniform", "fifo", "mixed"] = "uniform"  # mixed: half newest, half uniform
    loss: Literal["ce", "ace"] = "ce"  # cross-entropy, or that of ER-ACE
    train: Literal["all", "head"] = "all"  # head: the network below it is frozen
    as_published: bool = False  # a frozen network's batch norm goes on training


class ReplayOnly(er.ER):
    """ER (Replay Only) of the near-future paper (Hammoud et al. 2023): ER that stores a batch
    before it trains, and trains on what it recalls alone."""

    config: Config
    published = "near_future.PublishedReplayOnly"
    left = 1  # updates on this batch that are still to come, this one included

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        if self.config.train == "head":
            model.requires_grad_(False)
            model.head.requires_grad_(True)
        return model

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.store(batch)
        self.model.train(self.trains_batch_norm())
        for left in range(self.config.passes, 0, -1):
            self.left = left
            recalled = self.recall(batch)
            loss = self.loss(batch, recalled)
            self.update(loss)
        return {"loss": loss.detach(), "recalled": len(recalled.y), "memory": len(self.memory)}

    def trains_batch_norm(self) -> bool:
        return self.config.train == "all"

    def recall(self, batch: Batch) -> Batch:
        return self.read(self.addresses(self.left))

    def addresses(self, left: int) -> Any:
        """What an update recalls. Of several updates on a batch, FIFO gives the last one the newest
        samples, and each update before it the samples before those."""
        memory: Any = self.memory
        count = self.config.recall
        newest = {"uniform": 0, "mixed": count // 2, "fifo": count}[self.config.sampler]
        recent = memory.newest(newest * left)[:newest]
        return memory.index[np.concatenate([recent, memory.recall(count - newest)])]

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        self.memory.add(batch.index, batch.labels())
        return [self.addresses(left) for left in range(self.config.passes, 0, -1)]

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """ACE: a recalled sample of the newest batch competes with the classes of the recalled
        samples only, which are the training batch."""
        scores = self.scores(self.view(recalled.x))
        if self.config.loss == "ace":
            old = torch.from_numpy(np.isin(recalled.index, batch.index, invert=True))
            allowed = old.to(self.device)[:, None] | present(recalled.y, scores.shape[1])
            return restricted_cross_entropy(scores, recalled.y, allowed)
        return F.cross_entropy(scores, recalled.y)
