"""DER++ in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.replay_batch import NONE, ReplayDraw, next_shuffled
from streamgauge.learners.replay.derpp import DERpp

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge import models
    from streamgauge.streams import Spec


class PublishedDERpp(DERpp):
    """Uses one recalled batch for both terms, recalls no sample twice in the passes over a batch,
    and masks no classes in predictions."""

    left = NONE  # slots that the passes over this batch have not recalled yet

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        model.head.masked = False
        return model

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        self.left = NONE
        return super().draw_passes(batch)

    def draw(self, batch: Batch) -> ReplayDraw:
        memory = self.memory
        slots, self.left = next_shuffled(self.left, self.config.recall, memory.slots(), memory.rng)
        return ReplayDraw((memory.index[slots],), slots)

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        if len(self.slots) == 0:
            return super().loss(batch, recalled)
        logits = self.logits(self.view(torch.cat([batch.x, recalled.x])))
        new, old = logits.tensor_split([len(batch.y)])
        return self.combine(
            F.cross_entropy(new, batch.y),
            F.mse_loss(old, self.stored_logits[self.slots]),
            F.cross_entropy(old, recalled.y),
        )
