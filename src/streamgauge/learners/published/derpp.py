"""DER++ in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.replay_batch import NONE, ReplayDraw, next_shuffled
from streamgauge.learners.replay.derpp import DERpp

if TYPE_CHECKING:
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

    def split_recalled(self, first: int) -> tuple[slice, slice]:
        return slice(None), slice(None)
