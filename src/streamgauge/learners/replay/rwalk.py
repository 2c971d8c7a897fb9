"""RWalk without boundaries: ER with a penalty on moving the weights that mattered on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import flat, gradient
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Gate, Spec

EPSILON = torch.finfo(torch.float32).eps


class Mark(NamedTuple):
    """What a gradient step is to the path it is part of."""

    first: bool  # nothing is known of the Fisher information yet (as published)
    begins: bool
    ends: bool


@dataclass(frozen=True)
class Config(er.Config):
    strength: float = 0.1  # lambda, weight of the penalty
    alpha: float = 0.9  # weight of the newest squared gradient in the Fisher information
    path_steps: int = 10  # gradient steps over which a score is taken (delta t)
    warmup: int = 1000  # samples learnt before anything is remembered: plain ER until then
    refresh: int = 1000  # trained batches from one consolidation to the next
    # As the real-time paper's code: consolidated after a step, the first one after the warm-up too,
    # and from then on by a counter of steps that each time is set to the batch of the stream.
    as_published: bool = False
    stride: int = 1  # as published: batches of the stream from one trained batch to the next


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
    marks: Iterator[Mark]  # of the gradient steps at hand
    ended = False  # as published: whether the step before was the last of a path

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        names = ("fisher", "path", "start", "score", "kept_score", "penalty", "anchor")
        self.walk = {name: torch.zeros_like(flat(self.weights)) for name in names}
        self.steps = 0  # gradient steps since the warm-up; as published, the counter
        if config.as_published:
            if config.passes != 1:
                raise StreamgaugeError(
                    "RWalk as published counts batches: take one pass over each, not "
                    f"{config.passes}."
                )
            self.walk["start"].copy_(flat(self.weights))  # the first path is the whole warm-up

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        config, due = self.config, self.progress.due(self.config.warmup, self.config.refresh)
        if due and not config.as_published:
            self.consolidate()
        said = super().learn(batch, predicted)
        if self.progress.begun and config.as_published:
            self.ended = self._ends(self.steps)
            if self.steps == 0 or (self.steps + 1) % config.refresh == 0:
                self.consolidate(first=self.steps == 0)
                self.steps = (self.progress.batches - 1) * config.stride
            self.steps += 1
        elif self.progress.begun:
            self.steps += config.passes
        return said

    def consolidate(self, first: bool = False) -> None:
        """In place, as all that follows: a recorded step finds the vectors where they were."""
        walk = self.walk
        if first:
            walk["kept_score"].copy_(walk["score"])
        walk["kept_score"].add_(walk["score"]).div_(2)
        walk["score"].zero_()
        walk["penalty"].copy_(_to_one(walk["fisher"]) + _to_one(walk["kept_score"].relu()))
        walk["anchor"].copy_(flat(self.weights))

    def variant(self) -> tuple[Any, ...]:
        """What each pass over this batch is to its path; nothing in the warm-up."""
        if not self.progress.begun:
            return ((),)
        if self.config.as_published:
            return ((Mark(self.steps == 0, self.ended, self._ends(self.steps)),),)
        steps = range(self.steps, self.steps + self.config.passes)
        every = self.config.path_steps
        return (tuple(Mark(False, step % every == 0, self._ends(step)) for step in steps),)

    def _ends(self, step: int) -> bool:
        whole = (step + 1) % self.config.path_steps == 0
        return whole or (self.config.as_published and step == 0)

    def train(self, *inputs: Any) -> dict[str, Any]:
        self.marks = iter(inputs[-1])
        return super().train(*inputs)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        self.now = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        self.mark = next(self.marks, None)
        if self.mark is not None and self.config.as_published:
            self.slope = self._slope()  # before the step's own pass moves batch norm
        moved = torch.cat([w.flatten() for w in self.weights]) - self.walk["anchor"]
        penalty = self.config.strength * self.walk["penalty"].dot(moved.square())
        self.scalars["penalty"] = penalty.detach()
        return F.cross_entropy(self.scores(self.now[0]), self.now[1]) + penalty

    def _slope(self) -> Tensor:
        self.model.eval()
        slope = gradient(self.model, *self.now)
        self.model.train()
        return slope

    def update(self, loss: Tensor) -> None:
        if self.mark is None:
            super().update(loss)
            return
        walk, before = self.walk, flat(self.weights)
        if self.mark.begins:
            walk["path"].zero_()
            walk["start"].copy_(before)
        slope = self.slope if self.config.as_published else self._slope()
        super().update(loss)
        after = flat(self.weights)
        walk["fisher"].lerp_(slope.square(), 1.0 if self.mark.first else self.config.alpha)
        walk["path"].sub_(slope * (after - before))
        if self.mark.ends:
            distance = 0.5 * walk["fisher"] * (after - walk["start"]).square()
            walk["score"].add_(walk["path"] / (distance + EPSILON))

    def job_kind(self) -> str:
        return super().job_kind() if self.progress.warm(self.config.warmup) else "warmup"

    def work(self) -> tuple[int, ...]:
        return (*super().work(), int(self.progress.warm(self.config.warmup)))

    def state_dict(self) -> dict[str, Any]:
        own = {"walk": dict(self.walk), "steps": self.steps, "ended": self.ended}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name, vector in state["walk"].items():
            self.walk[name].copy_(vector)
        self.steps, self.ended = state["steps"], state["ended"]


def _to_one(x: Tensor) -> Tensor:
    """Scaled so that the largest is 1; zeros stay zeros."""
    return x / x.max().clamp(min=torch.finfo(x.dtype).tiny)
