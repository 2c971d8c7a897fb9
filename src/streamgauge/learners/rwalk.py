"""RWalk without boundaries: ER with a penalty on moving the weights that mattered on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from streamgauge.learners import er
from streamgauge.learners._gradients import flat, gradient
from streamgauge.learners.base import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Gate, Spec

EPSILON = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Config(er.Config):
    strength: float = 0.1  # lambda, weight of the penalty
    alpha: float = 0.9  # weight of the newest squared gradient in the Fisher information
    path_steps: int = 10  # gradient steps over which a score is taken (delta t)
    warmup: int = 1000  # samples learnt before anything is remembered: plain ER until then
    refresh: int = 1000  # trained batches from one consolidation to the next


class RWalk(er.ER):
    """Riemannian walk (Chaudhry et al. 2018), as the real-time paper runs it without tasks. All
    that it remembers is one number a weight, so each is one flat vector:

    fisher: F <- alpha g^2 + (1 - alpha) F, with g from a second pass in evaluation mode
    score:  s += path / (F (theta - start)^2 / 2 + eps) every `path_steps`, where path is how far
            this weight's moves let the loss fall, the sum of -g (theta_new - theta_old)
    loss:   + strength sum (F / max F + relu(s) / max s) (theta - anchor)^2, all as they were at
            the last consolidation, where s is averaged with what it was at the one before
    """

    config: Config
    eager = "what it takes down on its path depends on how far it has come"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        names = ("fisher", "path", "start", "score", "kept_score", "penalty", "anchor")
        self.walk = {name: torch.zeros_like(flat(self.weights)) for name in names}
        self.steps = 0  # gradient steps since the warm-up

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if self.progress.due(self.config.warmup, self.config.refresh):
            walk = self.walk
            walk["kept_score"] = (walk["kept_score"] + walk["score"]) / 2
            walk["score"] = torch.zeros_like(walk["score"])
            walk["penalty"] = _to_one(walk["fisher"]) + _to_one(walk["kept_score"].relu())
            walk["anchor"] = flat(self.weights)
        return super().learn(batch, predicted)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        self.now = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        moved = torch.cat([w.flatten() for w in self.weights]) - self.walk["anchor"]
        penalty = self.config.strength * self.walk["penalty"].dot(moved.square())
        self.scalars["penalty"] = penalty.detach()
        return F.cross_entropy(self.scores(self.now[0]), self.now[1]) + penalty

    def update(self, loss: Tensor) -> None:
        if not self.progress.begun:
            super().update(loss)
            return
        walk, before, (x, y) = self.walk, flat(self.weights), self.now
        if self.steps % self.config.path_steps == 0:
            walk["path"], walk["start"] = torch.zeros_like(before), before
        self.model.eval()
        slope = gradient(self.model, x, y)
        self.model.train()
        super().update(loss)
        after = flat(self.weights)
        walk["fisher"] = walk["fisher"].lerp(slope.square(), self.config.alpha)
        walk["path"] = walk["path"] - slope * (after - before)
        self.steps += 1
        if self.steps % self.config.path_steps == 0:
            distance = 0.5 * walk["fisher"] * (after - walk["start"]).square()
            walk["score"] = walk["score"] + walk["path"] / (distance + EPSILON)

    def job_kind(self) -> str:
        begun = self.progress.begun or self.progress.samples >= max(self.config.warmup, 1)
        return super().job_kind() if begun else "warmup"

    def work(self) -> tuple[int, ...]:
        begun = self.progress.begun or self.progress.samples >= max(self.config.warmup, 1)
        return (*super().work(), int(begun))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "walk": dict(self.walk), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.walk = {name: vector.to(self.device) for name, vector in state["walk"].items()}
        self.steps = state["steps"]


def _to_one(x: Tensor) -> Tensor:
    """Scaled so that the largest is 1; zeros stay zeros."""
    return x / x.max().clamp(min=torch.finfo(x.dtype).tiny)
