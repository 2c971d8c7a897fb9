"""Experience replay: every step trains on the new samples and as many recalled from a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F

from streamgauge import memory, models
from streamgauge.learners.base import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config:
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    passes: int = 1  # gradient steps a batch, each with a fresh recall
    memory: int = 2000  # samples
    policy: Literal["class_balanced", "reservoir", "fifo", "ring", "everything", "mixed"] = (
        "reservoir"
    )
    recall: int = 10  # samples recalled a gradient step
    model: str = "cnn4"
    head: Literal["linear", "cosine"] = "linear"


class ER:
    """Chaudhry et al. 2019: cross-entropy on new and recalled samples together, one SGD step a
    pass; the batch enters the memory after training, so it is never recalled beside itself."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        self.config = config
        self.source = source
        self.model = models.build(
            config.model, spec.input_shape, spec.classes, seed, head=config.head
        ).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self.memory = memory.make(config.policy, config.memory, seed)
        self.unbounded = not self.memory.bounded

    def predict(self, x: Tensor) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            return self.model(models.to_float(x))

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.model.train()
        self.model.head.see(batch.y)
        for _ in range(self.config.passes):
            recalled = self.recall(batch)
            loss = self.loss(batch, recalled)
            self.update(loss)
        self.store(batch)
        return {"loss": loss.detach(), "recalled": len(recalled.y), "memory": len(self.memory)}

    def recall(self, batch: Batch) -> Batch:
        """What is replayed beside the new batch."""
        slots = self.memory.recall(self.config.recall)
        index = self.memory.index[slots]
        return Batch(self.source.read(index), self.source.label(index), index)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        """One forward pass over both, so that batch norm sees them together."""
        scores = self.model(models.to_float(torch.cat([batch.x, recalled.x])))
        return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))

    def update(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def store(self, batch: Batch) -> None:
        self.memory.add(batch.index, batch.y.cpu().numpy())

    def memory_bytes(self) -> int:
        return self.memory.nbytes()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": self.memory.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.memory.load_state_dict(state["memory"])
