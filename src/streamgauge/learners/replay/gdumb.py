"""GDumb: store greedily, balanced by class; before an evaluation train on the memory alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.sgd import cosine, forget_speed, movable_sgd, set_rate
from streamgauge.learners.replay import er
from streamgauge.streams import Spec


@dataclass(frozen=True)
class Config(er.Config):
    policy: Literal["reservoir", "class_balanced", "fifo", "ring", "everything", "mixed"] = (
        "class_balanced"
    )
    epochs: int = 10  # passes over the memory per training
    batch: int = 16  # samples per gradient step
    lowest_lr: float = 5e-4  # where the cosine from `lr` ends
    drop_last: bool = False  # leave out a short last batch of an epoch


class GDumb(er.ER):
    """Prabhu et al. 2020: nothing is learnt on the way. `prepare` begins again from the first
    weights, and takes SGD steps on shuffled passes over the memory with a cosine learning rate.
    What a training draws depends on the seed and the number of samples stored, so an evaluation
    more or less changes no other. If nothing was stored since the last, there is none."""

    config: Config
    checkpointed = "stored trained"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.stored = self.trained = 0  # samples seen by now, and by the last training
        self.optimizer = movable_sgd(self.model.parameters(), self.config, self.config.lr)
        self.first = {name: value.clone() for name, value in self.model.state_dict().items()}

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.store(batch)
        return {"recalled": 0, "memory": len(self.memory)}

    def store(self, batch: Batch) -> None:
        self.memory.add(batch.index, batch.labels())  # `prepare` unmasks its classes
        self.stored += len(batch.y)

    def prepare(self) -> None:
        if self.stored == self.trained:
            return
        self.trained = self.stored
        self.generator.manual_seed(((self.seed << 32) + self.stored) % 2**63)
        order = np.random.default_rng([self.seed, self.stored])
        self.model.load_state_dict(self.first)
        forget_speed(self.optimizer)
        config, slots, batch = self.config, self.memory.slots(), self.config.batch
        whole = max(len(slots) // batch, 1) * batch if config.drop_last else len(slots)
        self.model.head.see(torch.from_numpy(self.memory.label[slots]).to(self.device))
        self.model.train()
        for epoch in range(config.epochs):
            set_rate(self.optimizer, cosine(config.lr, epoch / config.epochs, config.lowest_lr))
            shuffled = self.memory.index[order.permutation(slots)][:whole]
            for start in range(0, len(shuffled), batch):
                some = self.read(shuffled[start : start + batch])
                self.execute_extra(self.fit, some.x, some.y)

    def largest_draw(self) -> int:
        return 0  # nothing is recalled on the way

    def fit(self, x: Tensor, y: Tensor) -> None:
        self.model.train()
        self.update(F.cross_entropy(self.scores(self.view(x)), y))
