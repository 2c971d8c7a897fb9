"""ER that trains on batches of its own size, smaller or larger than what a step reveals."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    train_batch: int | None = None  # new samples per gradient step; none = what a step reveals


class ERBatch(er.ER):
    """CLOC (Cai et al. 2021), section 5.4: samples are answered as they are revealed but trained
    on in groups of `train_batch` consecutive ones, each as soon as it is complete."""

    config: Config

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        size = self.config.train_batch
        if size is not None and size < 1:
            raise StreamgaugeError(f"train_batch is {size}, but must be 1 or more.")
        self.waiting: Batch | None = None  # revealed, and too few for a gradient step

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        size = self.config.train_batch
        if size is None:
            return super().learn(batch, predicted)
        if self.waiting is not None:
            old = self.waiting
            batch = Batch(torch.cat([old.x, batch.x]), torch.cat([old.y, batch.y]),
                          np.concatenate([old.index, batch.index]))  # fmt: skip
        scalars: dict[str, Any] = {"recalled": 0}
        recalled = steps = 0
        for end in range(size, len(batch.y) + 1, size):
            scalars = super().learn(_cut(batch, end - size, end), None)
            recalled, steps = recalled + scalars["recalled"], steps + 1
        left = _cut(batch, steps * size, len(batch.y))
        self.waiting = left if len(left.y) else None
        return {**scalars, "recalled": recalled, "steps": steps}

    def cycle(self, batch: int) -> int:
        size = self.config.train_batch or batch
        return size // gcd(size, batch)

    def work(self) -> tuple[Any, ...]:
        waiting = 0 if self.waiting is None else len(self.waiting.y)
        return (*super().work(), waiting)

    def state_dict(self) -> dict[str, Any]:
        waiting = np.empty(0, np.int64) if self.waiting is None else self.waiting.index
        return {**super().state_dict(), "waiting": waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting = self.read(state["waiting"]) if len(state["waiting"]) else None


def _cut(batch: Batch, start: int, end: int) -> Batch:
    return Batch(batch.x[start:end], batch.y[start:end], batch.index[start:end])
