"""A-GEM: train on new samples alone, but never against the gradient of a memory sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import flat
from streamgauge.learners.parts.sgd import forget_gradients, step
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 200  # samples that give the reference gradient


class AGEM(er.ER):
    """Chaudhry et al. 2019: with g the gradient of the new samples and r that of the recalled ones,
    g <- g - <g, r> / |r|² r where <g, r> < 0. Then <g, r> = 0: to first order, the step leaves the
    recalled samples' loss as it is. Recalled samples are never trained on."""

    reference: tuple[Tensor, ...] = ()

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """Separate forward passes in training mode, the reference first."""
        self.reference = ()
        if len(recalled.y):
            old = F.cross_entropy(self.scores(self.view(recalled.x)), recalled.y)
            self.reference = torch.autograd.grad(old, self._weights())
        return F.cross_entropy(self.scores(self.view(batch.x)), batch.y)

    def update(self, loss: Tensor) -> None:
        forget_gradients(self.optimizer)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.reference:
            gradients = [w.grad for w in self._weights() if w.grad is not None]
            self.scalars["conflict"] = project(gradients, self.reference)
        step(self.optimizer)

    def _weights(self) -> list[Tensor]:
        return [w for group in self.optimizer.param_groups for w in group["params"]]


def project(gradients: list[Tensor], reference: tuple[Tensor, ...]) -> Tensor:
    """Take out of the gradients, in place, what goes against the reference; returns 1 if anything
    did, else 0, without waiting for the device.

    >>> g = [torch.tensor([1.0, -1.0])]
    >>> project(g, (torch.tensor([0.0, 2.0]),)), g
    (tensor(1.), [tensor([1., 0.])])
    """
    new, old = flat(gradients), flat(reference)
    along, length = new @ old, old @ old
    against = along.clamp(max=0) / length.clamp(min=torch.finfo(length.dtype).tiny)
    torch._foreach_sub_(gradients, torch._foreach_mul(reference, against))
    return (along < 0).to(along.dtype)
