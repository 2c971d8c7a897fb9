"""DER++: replay that also holds the model to the logits it gave when a sample was stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.replay_batch import NONE, Drawn, Hand, deal
from streamgauge.learners.replay import er
from streamgauge.streams.gate import to_device

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge import models
    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(er.Config):
    alpha: float = 0.1  # weight of the distance to the stored logits
    beta: float = 0.5  # weight of the cross-entropy of recalled samples
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)


class DERpp(er.ER):
    """Buzzega et al. 2020: loss = CE(new) + alpha MSE(logits, stored logits) on one recalled batch
    + beta CE on another, all in one forward pass.

    Logits are stored when a sample enters the memory, of the image as it is and in evaluation mode.
    All classes that may come have an output from the start, and all outputs are trained and kept;
    a class not met yet is masked in predictions only. The survey's code uses one recalled batch for
    both terms, recalls none twice in the passes over a batch, and masks nothing at all.
    """

    config: Config
    left = NONE  # of a shuffled memory

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        # By slot, and a last row for what found no slot: written by index, without waiting.
        self.kept = torch.zeros(config.memory + 1, spec.classes, device=device)

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        model.head.masked = not self.config.as_published
        return model

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        self.left = NONE
        return super().learn(batch, predicted)

    def draw(self, batch: Batch) -> Drawn:
        """The first batch, whose logits count, and the second, whose labels do; or one for both."""
        memory, n = self.memory, self.config.recall
        if self.config.as_published:
            slots, self.left = deal(self.left, n, memory.slots(), memory.rng)
            return Drawn((memory.index[slots],), slots)
        slots = memory.recall(n)
        return Drawn((memory.index[np.concatenate([slots, memory.recall(n)])],), slots)

    def choose(self, batch: Batch, hand: Hand) -> Batch:
        self.slots = hand.slots
        return hand.parts[0]

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        self.left = NONE
        return super().upcoming_reads(batch)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        config, kept = self.config, len(self.slots)
        if kept == 0:
            return F.cross_entropy(self.logits(self.view(batch.x)), batch.y)
        logits = self.logits(self.view(torch.cat([batch.x, recalled.x])))
        new, old = logits.tensor_split([len(batch.y)])
        second = 0 if config.as_published else kept
        distance = F.mse_loss(old[:kept], self.kept[self.slots])
        replayed = F.cross_entropy(old[second:], recalled.y[second:])
        self.scalars |= {"distance": distance.detach(), "replayed": replayed.detach()}
        return F.cross_entropy(new, batch.y) + config.alpha * distance + config.beta * replayed

    def logits(self, x: Tensor) -> Tensor:
        return self.model.head.scores(self.model.features(x))

    def store(self, batch: Batch) -> None:
        slots = self.memory.add(batch.index, batch.labels())
        self.execute(self.keep, batch.x, batch.y, to_device(slots, self.device))

    def keep(self, x: Tensor, y: Tensor, slots: Tensor) -> None:
        self.model.head.see(y)
        self.model.eval()
        with torch.no_grad():
            self.kept[slots] = self.logits(self.normalise(x))  # -1, no slot, is the last row

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.kept.nbytes

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.kept.copy_(state["kept"])
