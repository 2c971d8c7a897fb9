"""RWalk without boundaries: ER with a penalty on moving the weights that mattered on the way."""

from __future__ import annotations

from collections.abc import Iterator
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
    marks: Iterator[tuple[bool, bool]]  # of the gradient steps at hand: a path begins, one ends

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
            self.consolidate()
        said = super().learn(batch, predicted)
        if self.progress.begun:
            self.steps += self.config.passes
        return said

    def consolidate(self) -> None:
        """In place, as all that follows: a recorded step finds the vectors where they were."""
        walk = self.walk
        walk["kept_score"].add_(walk["score"]).div_(2)
        walk["score"].zero_()
        walk["penalty"].copy_(_to_one(walk["fisher"]) + _to_one(walk["kept_score"].relu()))
        walk["anchor"].copy_(flat(self.weights))

    def variant(self) -> tuple[Any, ...]:
        """Where paths begin and end among the passes over this batch; nothing in the warm-up."""
        if not self.progress.begun:
            return ((),)
        every, first = self.config.path_steps, self.steps
        steps = range(first, first + self.config.passes)
        return (tuple((step % every == 0, (step + 1) % every == 0) for step in steps),)

    def train(self, *inputs: Any) -> dict[str, Any]:
        self.marks = iter(inputs[-1])
        return super().train(*inputs)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        self.now = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        moved = torch.cat([w.flatten() for w in self.weights]) - self.walk["anchor"]
        penalty = self.config.strength * self.walk["penalty"].dot(moved.square())
        self.scalars["penalty"] = penalty.detach()
        return F.cross_entropy(self.scores(self.now[0]), self.now[1]) + penalty

    def update(self, loss: Tensor) -> None:
        mark = next(self.marks, None)
        if mark is None:
            super().update(loss)
            return
        begins, ends = mark
        walk, before, (x, y) = self.walk, flat(self.weights), self.now
        if begins:
            walk["path"].zero_()
            walk["start"].copy_(before)
        self.model.eval()
        slope = gradient(self.model, x, y)
        self.model.train()
        super().update(loss)
        after = flat(self.weights)
        walk["fisher"].lerp_(slope.square(), self.config.alpha)
        walk["path"].sub_(slope * (after - before))
        if ends:
            distance = 0.5 * walk["fisher"] * (after - walk["start"]).square()
            walk["score"].add_(walk["path"] / (distance + EPSILON))

    def job_kind(self) -> str:
        return super().job_kind() if self.progress.warm(self.config.warmup) else "warmup"

    def work(self) -> tuple[int, ...]:
        return (*super().work(), int(self.progress.warm(self.config.warmup)))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "walk": dict(self.walk), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name, vector in state["walk"].items():
            self.walk[name].copy_(vector)
        self.steps = state["steps"]


def _to_one(x: Tensor) -> Tensor:
    """Scaled so that the largest is 1; zeros stay zeros."""
    return x / x.max().clamp(min=torch.finfo(x.dtype).tiny)
