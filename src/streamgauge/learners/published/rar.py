"""RAR in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.probe import ahead, push_and_cut, scored, slope
from streamgauge.learners.parts.replay_batch import NONE, ReplayBatch, ReplayDraw, next_shuffled
from streamgauge.learners.replay.rar import RAR


class PublishedRAR(RAR):
    """Pushes other samples than those recalled, drawn from an order of the memory that is renewed
    only when it is used up, away from the class farthest by logits, and cuts them to 0..1 although
    values are normalised."""

    checkpointed = "left"
    left = NONE  # addresses of that order not drawn yet, kept while the memory changes

    def draw(self, batch: Batch) -> ReplayDraw:
        recalled = super().draw(batch).parts[0]
        others, memory = NONE, self.memory
        if len(recalled):
            pool, n = memory.index[memory.slots()], self.config.recall
            others, self.left = next_shuffled(self.left, n, pool, memory.rng, whole=False)
        return ReplayDraw((recalled, others))

    def choose(self, batch: Batch, replay: ReplayBatch) -> Batch:
        recalled, self.others = replay.parts
        return recalled

    def pushed(
        self, x: Tensor, y: Tensor, features: Tensor, new: int, images: bool
    ) -> tuple[Tensor, Tensor]:
        config, others = self.config, self.others
        state = ahead(self.model, config.virtual_lr)
        start, here = scored(self.model, state, self.view(others.x))
        with torch.no_grad():
            there = functional_call(self.model, state, (x,))
            same = others.y[:, None] == y
            target = y[torch.cdist(here, there).masked_fill(same, -1).argmax(1)]
        uphill = slope(start, here, target.masked_fill(same.all(1), 0)).sign()
        return push_and_cut(start.detach(), uphill, config.epsilon, config.iterations), others.y

    def work(self) -> tuple[Any, ...]:
        most = self.config.recall * self.config.passes
        return (*super().work(), min(len(self.left), most), min(len(self.memory), most))
