"""Copies of a model that learn in parallel at different rates (PoLRS, Cai et al. 2021)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.learners.parts.gradients import flat
from streamgauge.learners.parts.sgd import forget_gradients, forget_speed, movable_sgd, set_rate
from streamgauge.models import Model

if TYPE_CHECKING:
    from streamgauge.learners.replay import er


class Population(Checkpointed):
    """Three models at rates 2l, l and l/2, their hits, and which is best. The best is an index on
    the device, so that no step waits for it; only `recentre` does. All tensors are changed in
    place, for recorded steps."""

    checkpointed = "hits best rates models optimizers"

    def __init__(self, model: Model, config: er.Config, prefer_middle: bool) -> None:
        device = next(model.parameters()).device
        self.models = [copy.deepcopy(model) for _ in range(3)]
        self.config = config
        self.tie = torch.tensor([1, 2, 0] if prefer_middle else [0, 0, 0], device=device)
        self.hits = torch.zeros(3, dtype=torch.int64, device=device)
        self.best = torch.tensor([1], device=device)
        self.rates = torch.zeros(3, dtype=torch.float64, device=device)
        self.optimizers = [movable_sgd(m.parameters(), config, config.lr) for m in self.models]
        self._set_rates(config.lr)

    def see(self, y: Tensor) -> None:
        for model in self.models:
            model.head.see(y)

    def scores(self, x: Tensor, train: bool) -> Tensor:
        """[3, B, C]"""
        return torch.stack([model.train(train)(x) for model in self.models])

    def step(self, losses: Tensor) -> None:
        """One gradient step of each model on its own loss."""
        for optimizer in self.optimizers:
            forget_gradients(optimizer)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()

    def choose(self) -> None:
        """The best is the one with most hits; ties are broken by less than one hit."""
        self.best.copy_((4 * self.hits + self.tie).argmax(0, keepdim=True))

    def of_best(self, three: Tensor) -> Tensor:
        """The best one's row."""
        return three.index_select(0, self.best)[0]

    def copy_best(self, to: Model) -> None:
        """All arrays of a type as one vector: one by one they take more calls than a step."""
        arrays = [list(model.state_dict().values()) for model in (to, *self.models)]
        for kind in dict.fromkeys(array.dtype for array in arrays[0]):
            target, *three = ([a for a in some if a.dtype == kind] for some in arrays)
            best = self.of_best(flat(array for some in three for array in some).view(3, -1))
            parts = torch.split_with_sizes(best, [array.numel() for array in target])
            shaped = [part.view_as(array) for part, array in zip(parts, target, strict=True)]
            torch._foreach_copy_(target, shaped)

    def recentre(self) -> None:
        """All become the best one, at rates around its rate; hits and momentum are reset."""
        rate = float(self.of_best(self.rates))
        for model in self.models:
            self.copy_best(model)
        for optimizer in self.optimizers:
            forget_speed(optimizer)
        self._set_rates(rate)
        self.hits.zero_()
        self.best.fill_(1)

    def _set_rates(self, middle: float) -> None:
        for number, factor in enumerate((2.0, 1.0, 0.5)):
            self.rates[number] = factor * middle
            set_rate(self.optimizers[number], factor * middle)
