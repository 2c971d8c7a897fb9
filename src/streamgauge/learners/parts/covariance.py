"""Class means and one shared covariance of frozen features, and a linear classifier from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.parts.gradient_free import ClassSums
from streamgauge.streams import Gate, Spec


class SharedCovariance(ClassSums):
    """The scatter of all features around the mean of their class, and the classifier, which is
    solved for again after `config.refresh` samples; with 1, when it is needed next."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Any
    ) -> None:
        self.config = config
        self.check()
        super().__init__(spec, source, seed, device, config)
        self.weight, self.bias = torch.zeros_like(self.sums), torch.zeros_like(self.counts)
        self.scatter = self.sums.new_zeros(self.features.size, self.features.size)
        self.known = self.counts > 0  # classes in the classifier
        self.waiting = 0  # samples since the classifier was solved for

    def check(self) -> None:
        """Refuse wrong settings."""

    def solution(self) -> tuple[Tensor, Tensor]:
        """Weights and bias of the classifier."""
        raise NotImplementedError

    def solve(self) -> None:
        self.weight, self.bias = self.solution()
        self.known, self.waiting = self.counts > 0, 0

    def count(self, samples: int) -> None:
        """Solved now, so that it does not depend on when `predict` is called."""
        self.waiting += samples
        if self.waiting >= self.config.refresh > 1:
            self.solve()

    def solve_if_due(self) -> None:
        if self.config.refresh == 1 and self.waiting:
            self.solve()

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        super().rescale(factor, offset)
        if self.config.model == "linear":
            self.scatter *= factor[:, None] * factor
            self.waiting = self.config.refresh  # solve again at once

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.scatter.nbytes

    def state_dict(self) -> dict[str, Any]:
        self.solve_if_due()  # so that the state does not depend on calls of `predict`
        arrays = {k: v.clone() for k, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return {"waiting": self.waiting, **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Not in place: `solve` may have run in inference mode, and layouts decide on rounding."""
        for name, value in state.items():
            setattr(self, name, value if name == "waiting" else value.to(self.sums.device))
