"""PoLRS: three ER models at three learning rates; the best answers, and is copied now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.population import Population
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    rate_interval: int = 2_000_000  # samples from one adjustment of the rates to the next
    # What a model is judged by: its hits on new samples in the training pass, which cost nothing,
    # or its answers to them in evaluation mode, which take one more forward pass per model.
    judge: Literal["training", "answers"] = "training"  # what learning rates are judged by
    as_published: bool = False  # as the real-time paper's code (Ghunaim et al. 2023)


class PoLRS(er.ER):
    """Population learning rate search (Cai et al. 2021, Algorithm 1) at rates 2l, l and l/2.
    `model` is a copy of the one with most hits since the last adjustment, counted before a batch is
    learnt; ties keep the middle one. An adjustment makes all three copies of the best, with rates
    around its rate and no momentum."""

    config: Config
    checkpointed = "pool"
    published = "realtime.PublishedPoLRS"
    prefer_middle = True  # where hits are equal

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.pool = Population(self.model, self.config, self.prefer_middle)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.config.judge == "answers":
            self.execute(self.examine, batch.x, batch.y)
        scalars = super().learn(batch, predicted)
        if self.progress.passed(self.config.rate_interval, len(batch.y)):
            self.pool.recentre()
        return scalars

    def examine(self, x: Tensor, y: Tensor) -> None:
        """Count each model's right answers."""
        with torch.no_grad():
            answers = self.pool.scores(self.normalise(x), train=False).argmax(2)
        self.pool.hits += (answers == y).sum(1)

    def skipped(self, batch: Batch) -> None:
        """Dropped batches are not looked at."""

    def train(self, x: Tensor, y: Tensor, *others: Any) -> dict[str, Any]:
        self.pool.see(y)
        scalars = super().train(x, y, *others)
        scalars["loss"] = self.pool.of_best(scalars["loss"])
        self.pool.choose()
        self.pool.copy_best(self.model)
        return scalars

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """Of each model, on the same view of the same samples."""
        x, y = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        scores = self.pool.scores(x, train=True)
        if "lr" not in self.scalars:  # the first pass over the batch
            self.watch(scores.detach().argmax(2) == y, len(batch.y))
        self.scalars["lr"] = self.pool.of_best(self.pool.rates)
        self.scalars["chosen"] = self.pool.best[0].clone()  # the best is chosen anew, in place
        return F.cross_entropy(scores.mT, y.expand(3, -1), reduction="none").mean(1)

    def watch(self, right: Tensor, new: int) -> None:
        """Which of the new and the recalled samples each model got right before learning them."""
        if self.config.judge == "training":
            self.pool.hits += right[:, :new].sum(1)

    def update(self, loss: Tensor) -> None:
        self.pool.step(loss)
