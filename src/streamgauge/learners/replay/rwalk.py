"""RWalk without boundaries: ER with a penalty on moving the weights that mattered on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import evaluation_gradient, flat, scaled_to_one
from streamgauge.learners.parts.weight_paths import WeightPaths
from streamgauge.learners.replay import er

EPSILON = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Config(er.Config):
    strength: float = 0.1  # lambda, weight of the penalty
    alpha: float = 0.9  # weight of the newest squared gradient in the Fisher information
    path_steps: int = 10  # gradient steps per path over which a score is taken (delta t)
    warmup: int = 1000  # samples learnt before anything is remembered: plain ER until then
    refresh: int = 1000  # trained batches from one consolidation to the next
    as_published: bool = False  # as the real-time paper's code (Ghunaim et al. 2023)
    stride: int = 1  # as published: batches of the stream per trained batch


class RWalk(WeightPaths):
    """Riemannian walk (Chaudhry et al. 2018), as the real-time paper runs it without tasks. All
    that it remembers is one number per weight, each kind in one flat vector:

    fisher: F <- alpha g^2 + (1 - alpha) F, with g from a second pass in evaluation mode
    score:  s += path / (F (theta - start)^2 / 2 + eps) every `path_steps`, where path is how far
            this weight's moves let the loss fall, the sum of -g (theta_new - theta_old)
    loss:   + strength sum (F / max F + relu(s) / max s) (theta - anchor)^2, all as they were at
            the last consolidation, where s is averaged with what it was at the one before
    """

    config: Config
    published = "realtime.PublishedRWalk"

    def renew(self) -> None:
        """Consolidate; in place, as all that follows, for recorded steps."""
        walk = self.walk
        walk["kept_score"].add_(walk["score"]).div_(2)
        walk["score"].zero_()
        importance = scaled_to_one(walk["fisher"]) + scaled_to_one(walk["kept_score"].relu())
        walk["penalty"].copy_(importance)
        walk["anchor"].copy_(flat(self.weights))

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        self.begin_pass(batch, recalled)
        moved = torch.cat([w.flatten() for w in self.weights]) - self.walk["anchor"]
        penalty = self.config.strength * self.walk["penalty"].dot(moved.square())
        self.scalars["penalty"] = penalty.detach()
        return F.cross_entropy(self.scores(self.now[0]), self.now[1]) + penalty

    def gradient(self) -> Tensor:
        """Of the samples of this pass."""
        return evaluation_gradient(self.model, *self.now)

    def update(self, loss: Tensor) -> None:
        if self.path_step is None:
            super().update(loss)
            return
        walk, before = self.walk, flat(self.weights)
        if self.path_step.begins:
            walk["path"].zero_()
            walk["start"].copy_(before)
        slope = self.gradient()
        super().update(loss)
        after = flat(self.weights)
        walk["fisher"].lerp_(slope.square(), 1.0 if self.path_step.first else self.config.alpha)
        walk["path"].sub_(slope * (after - before))
        if self.path_step.ends:
            distance = 0.5 * walk["fisher"] * (after - walk["start"]).square()
            walk["score"].add_(walk["path"] / (distance + EPSILON))
