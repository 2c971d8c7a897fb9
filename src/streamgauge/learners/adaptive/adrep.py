"""ADRep: ER whose FIFO memory doubles or halves until replay is as hard as the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er
from streamgauge.memory import Fifo
from streamgauge.memory.policies import Window
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    policy: Literal["fifo"] = "fifo"
    size_interval: int = 40_000  # samples from one decision to the next
    tolerance: float = 0.005  # difference of accuracies that changes nothing
    largest: int | None = None  # limit of the memory's size; none = it may grow with the stream
    as_published: bool = False  # as CLOC's code (Cai et al. 2021)


class ADRep(er.ER):
    """Adaptive replay memory (Cai et al. 2021, Algorithm 2): where the mean accuracy on new samples
    exceeds that on recalled ones, both before they are learnt, halve the memory; where it falls
    short of it, double it. Both come from the training pass."""

    config: Config
    memory: Fifo | Window
    checkpointed = "size sums compared"
    published = "cloc.PublishedADRep"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.unbounded = self.config.largest is None
        self.size = self.config.memory
        self.sums = torch.zeros(2, device=self.device)  # of accuracies: stream, replay
        self.compared = 0

    def build_memory(self, seed: int) -> Fifo | Window:
        return Fifo(self.config.memory, seed)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        scalars = super().learn(batch, predicted)
        self.compared += "replay_accuracy" in scalars
        if self.progress.passed(self.config.size_interval, len(batch.y)) and self.compared:
            self.decide()
            self.resize()
        return {**scalars, "memory_size": self.size}

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        scores = self.scores(self.view(torch.cat([batch.x, recalled.x])))
        y = torch.cat([batch.y, recalled.y])
        if "replay_accuracy" not in self.scalars:  # the first pass over the batch
            self.watch((scores.detach().argmax(1) == y).float(), len(batch.y))
        return F.cross_entropy(scores, y)

    def watch(self, right: Tensor, new: int) -> None:
        """`right`: 1 for each sample, new or recalled, that it got right before learning it."""
        if len(right) > new:  # there is something to compare with
            stream, replay = self.stream_accuracy(right[:new]), right[new:].mean()
            self.sums += torch.stack([stream, replay])
            self.scalars |= {"stream_accuracy": stream, "replay_accuracy": replay}

    def stream_accuracy(self, right: Tensor) -> Tensor:
        return right.mean()

    def decide(self) -> None:
        stream, replay = (self.sums / self.compared).tolist()
        if stream > replay + self.config.tolerance:
            self.size = max(1, self.size // 2)
        elif stream < replay - self.config.tolerance:
            self.size = min(2 * self.size, self.config.largest or 2 * self.size)
        self.sums.zero_()
        self.compared = 0

    def resize(self) -> None:
        self.memory.resize(self.size)
