"""RAR (retrospective adversarial replay): also replay samples pushed towards the new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.probe import ahead, push_and_cut, scored, slope
from streamgauge.learners.parts.replay_batch import NONE, Drawn, Hand, deal
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    beta: float = 0.4  # weight of the pushed samples
    epsilon: float = 8 / 255  # how far a pixel may be pushed, of its range 0..1
    iterations: int = 2
    decay: float = 1.0  # of the direction from one iteration to the next
    virtual_lr: float = 0.1  # pushed by the gradient of a model one such step ahead
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class RAR(er.ER):
    """Kumari et al. 2022 (not repeated augmented rehearsal, which has the same initials): ER's loss
    + beta CE(pushed copies of the recalled samples, their own labels), forwarded separately.

    A recalled sample is pushed towards the class of the nearest new sample of another class, by
    features. The paper's mixing of recalled samples is not in it.
    """

    config: Config
    left = NONE  # as published: addresses not dealt yet, kept while the memory goes on changing

    def draw(self, batch: Batch) -> Drawn:
        recalled = super().draw(batch).parts[0]
        others, memory = NONE, self.memory
        if self.config.as_published and len(recalled):
            pool = memory.index[memory.slots()]
            others, self.left = deal(self.left, self.config.recall, pool, memory.rng, whole=False)
        return Drawn((recalled, others))

    def choose(self, batch: Batch, hand: Hand) -> Batch:
        recalled, self.others = hand.parts
        return recalled

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        features = self.model.features(x)
        loss = F.cross_entropy(self.model.head(features), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if not len(recalled.y):
            return loss.detach()
        if self.config.as_published:
            pushed, y = self._pushed_away(x, y)
        else:
            new, same = len(batch.y), recalled.y[:, None] == batch.y
            away = torch.cdist(features[new:].detach(), features[:new].detach())
            target = batch.y[away.masked_fill(same, torch.inf).argmin(1)]
            x, y, images = x[new:], recalled.y, batch.x.dtype == torch.uint8
            pushed = self._pushed_towards(x, target, ~same.all(1), images)
        extra = F.cross_entropy(self.scores(pushed), y)
        self.scalars["pushed"] = extra.detach()
        return loss.detach() + self.config.beta * extra

    def _pushed_towards(self, x: Tensor, target: Tensor, free: Tensor, images: bool) -> Tensor:
        """Steps of epsilon / iterations against the sign of the gradient of CE with the target,
        with momentum (Dong et al. 2018); in pixels, within their range. Not free: no target."""
        config, state = self.config, ahead(self.model, self.config.virtual_lr)
        mean, std, low, high = self.mean.view(-1, 1, 1), self.std.view(-1, 1, 1), 0.0, 1.0
        if not images:
            mean, std, low, high = mean.new_zeros(()), std.new_ones(()), -torch.inf, torch.inf
        place, speed = x * std + mean, torch.zeros_like(x.flatten(1))
        for _ in range(config.iterations):
            downhill = -slope(*scored(self.model, state, (place - mean) / std), target) / std
            speed = config.decay * speed + F.normalize(downhill.flatten(1), p=1)
            step = config.epsilon / config.iterations * free[:, None] * speed.sign()
            place = (place + step.view_as(x)).clamp(low, high)
        return (place - mean) / std

    def _pushed_away(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """As published: other samples, in an order of the memory renewed only when used up, pushed
        away from the class farthest by logits, and cut to 0..1 although values are normalised."""
        config, old, state = self.config, self.others, ahead(self.model, self.config.virtual_lr)
        start, here = scored(self.model, state, self.view(old.x))
        with torch.no_grad():
            there = functional_call(self.model, state, (x,))
            same = old.y[:, None] == y
            target = y[torch.cdist(here, there).masked_fill(same, -1).argmax(1)]
        uphill = slope(start, here, target.masked_fill(same.all(1), 0)).sign()
        return push_and_cut(start.detach(), uphill, config.epsilon, config.iterations), old.y

    def update(self, loss: Tensor) -> None:
        if loss.requires_grad:  # added to the gradient of ER's loss, all weights' at once
            given = [(w, w.grad) for w in self.model.parameters() if w.grad is not None]
            more = torch.autograd.grad(loss, [weight for weight, _ in given])
            torch._foreach_add_([slopes for _, slopes in given], list(more))
        self.optimizer.step()

    def work(self) -> tuple[int, ...]:
        most = self.config.recall * self.config.passes
        return (*super().work(), min(len(self.left), most), min(len(self.memory), most))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"left": self.left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.left = state["left"]
