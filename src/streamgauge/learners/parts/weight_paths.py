"""Paths of gradient steps through the space of weights, over which RWalk scores the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import flat
from streamgauge.learners.parts.teacher import WarmUp
from streamgauge.streams import Spec


class PathStep(NamedTuple):
    """What a gradient step is to the path it is part of."""

    begins: bool
    ends: bool
    first: bool = False  # no Fisher information is known yet (as published)


class WeightPaths(WarmUp):
    """After the warm-up a path begins every `config.path_steps` gradient steps. `walk` has one
    number per weight, each kind in one flat vector; all are changed in place, for recorded steps.
    """

    checkpointed = "walk steps"
    path: Iterator[PathStep]  # of the gradient steps on this batch
    path_step: PathStep | None  # of this gradient step; None in the warm-up
    now: tuple[Tensor, Tensor]  # the samples of this gradient step: views and labels

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        names = ("fisher", "path", "start", "score", "kept_score", "penalty", "anchor")
        self.walk = {name: torch.zeros_like(flat(self.weights)) for name in names}
        self.steps = 0  # gradient steps since the warm-up

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        scalars = super().learn(batch, predicted)
        if self.progress.begun:
            self.steps += self.config.passes
        return scalars

    def variant(self) -> tuple[Any, ...]:
        """What each pass over this batch is to its path; nothing in the warm-up."""
        if not self.progress.begun:
            return ((),)
        every = self.config.path_steps
        steps = range(self.steps, self.steps + self.config.passes)
        return (tuple(PathStep(s % every == 0, (s + 1) % every == 0) for s in steps),)

    def train(self, *inputs: Any) -> dict[str, Any]:
        self.path = iter(inputs[-1])
        return super().train(*inputs)

    def begin_pass(self, batch: Batch, recalled: Batch) -> None:
        self.now = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        self.path_step = next(self.path, None)
