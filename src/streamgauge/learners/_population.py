"""Copies of a model that learn side by side at different rates (PoLRS, Cai et al. 2021)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners import er
    from streamgauge.models import Model


class Population:
    """Three models at rates 2l, l and l/2, their hits, and which is best. The best is an index on
    the device, so that no step waits for it; only `recentre` does."""

    def __init__(self, model: Model, config: er.Config, prefer_middle: bool) -> None:
        device = next(model.parameters()).device
        self.models = [copy.deepcopy(model) for _ in range(3)]
        self.config = config
        self.tie = torch.tensor([1, 2, 0] if prefer_middle else [0, 0, 0], device=device)
        self.hits = torch.zeros(3, dtype=torch.int64, device=device)
        self.best = torch.tensor([1], device=device)
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
            optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()

    def choose(self) -> None:
        """The best is the one with most hits; hits are whole, so a tie is settled below them."""
        self.best = (4 * self.hits + self.tie).argmax(0, keepdim=True)

    def of_best(self, three: Tensor) -> Tensor:
        """The best one's row."""
        return three.index_select(0, self.best)[0]

    def copy_best(self, to: Model) -> None:
        arrays = (model.state_dict().values() for model in (to, *self.models))
        for target, *three in zip(*arrays, strict=True):
            target.copy_(self.of_best(torch.stack(three)))

    def recentre(self) -> None:
        """All become the best one, at rates around its rate; hits and momentum begin anew."""
        rate = float(self.of_best(self.rates))
        for model in self.models:
            self.copy_best(model)
        self._set_rates(rate)
        self.hits, self.best = torch.zeros_like(self.hits), torch.ones_like(self.best)

    def _set_rates(self, middle: float) -> None:
        rates = [2 * middle, middle, middle / 2]
        self.rates = torch.tensor(rates, dtype=torch.float64, device=self.hits.device)
        self.optimizers = [
            torch.optim.SGD(
                model.parameters(),
                lr=rate,
                momentum=self.config.momentum,
                weight_decay=self.config.weight_decay,
            )
            for model, rate in zip(self.models, rates, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        return {
            "hits": self.hits,
            "best": self.best,
            "models": [model.state_dict() for model in self.models],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.hits, self.best = (state[k].to(self.hits.device, copy=True) for k in ("hits", "best"))
        for model, own in zip(self.models, state["models"], strict=True):
            model.load_state_dict(own)
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.rates = torch.tensor(rates, dtype=torch.float64, device=self.hits.device)
