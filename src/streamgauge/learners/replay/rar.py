"""RAR (retrospective adversarial replay): also replay samples pushed towards the new classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import ahead, scored, slope
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    beta: float = 0.4  # weight of the pushed samples
    epsilon: float = 8 / 255  # how far a pixel may be pushed, of its range 0..1
    iterations: int = 2  # steps of the attack that perturbs recalled samples
    decay: float = 1.0  # of the direction from one iteration to the next
    virtual_lr: float = 0.1  # of the step ahead whose model gives the gradients to push by
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class RAR(er.ER):
    """Kumari et al. 2022 (not repeated augmented rehearsal, which has the same initials): ER's loss
    + beta CE(pushed copies of the recalled samples, their own labels), forwarded separately. A
    recalled sample is pushed towards the class of the nearest new sample of another class, by
    features. The paper's mixing of recalled samples is left out."""

    config: Config
    published = "survey.PublishedRAR"

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        x, y = self.view(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
        features = self.model.features(x)
        loss = F.cross_entropy(self.model.head(features), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if not len(recalled.y):
            return loss.detach()
        pushed, y = self.pushed(x, y, features.detach(), len(batch.y), batch.x.dtype == torch.uint8)
        extra = F.cross_entropy(self.scores(pushed), y)
        self.scalars["pushed"] = extra.detach()
        return loss.detach() + self.config.beta * extra

    def pushed(
        self, x: Tensor, y: Tensor, features: Tensor, new: int, images: bool
    ) -> tuple[Tensor, Tensor]:
        """Pushed samples and their labels; the first `new` rows are the new batch."""
        same = y[new:, None] == y[:new]
        distance = torch.cdist(features[new:], features[:new])
        target = y[:new][distance.masked_fill(same, torch.inf).argmin(1)]
        return self.push(x[new:], target, ~same.all(1), images), y[new:]

    def push(self, x: Tensor, target: Tensor, has_target: Tensor, images: bool) -> Tensor:
        """Steps of epsilon / iterations against the sign of the gradient of CE with the target,
        with momentum (Dong et al. 2018); in pixels, within their range."""
        config, state = self.config, ahead(self.model, self.config.virtual_lr)
        mean, std, low, high = self.mean.view(-1, 1, 1), self.std.view(-1, 1, 1), 0.0, 1.0
        if not images:
            mean, std, low, high = mean.new_zeros(()), std.new_ones(()), -torch.inf, torch.inf
        pixels, speed = x * std + mean, torch.zeros_like(x.flatten(1))
        for _ in range(config.iterations):
            downhill = -slope(*scored(self.model, state, (pixels - mean) / std), target) / std
            speed = config.decay * speed + F.normalize(downhill.flatten(1), p=1)
            step = config.epsilon / config.iterations * has_target[:, None] * speed.sign()
            pixels = (pixels + step.view_as(x)).clamp(low, high)
        return (pixels - mean) / std

    def update(self, loss: Tensor) -> None:
        if loss.requires_grad:  # added to the gradient of ER's loss, for all weights at once
            given = [(w, w.grad) for w in self.model.parameters() if w.grad is not None]
            more = torch.autograd.grad(loss, [weight for weight, _ in given])
            torch._foreach_add_([gradient for _, gradient in given], list(more))
        self.optimizer.step()
