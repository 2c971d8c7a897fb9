"""ER-ACE in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import present
from streamgauge.learners.parts.replay_batch import NONE, ReplayDraw, next_shuffled
from streamgauge.learners.replay.er_ace import ERACE

if TYPE_CHECKING:
    from torch import Tensor


class PublishedERACE(ERACE):
    """Weighs the two terms with alpha and 1 - alpha, leaves unseen classes out of the first term,
    stores a batch before training on it, and recalls no sample twice in the passes over a batch."""

    stores_first = True
    left = NONE  # slots that the passes over this batch have not recalled yet

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        self.left = NONE
        return super().draw_passes(batch)

    def draw(self, batch: Batch) -> ReplayDraw:
        memory = self.memory
        slots, self.left = next_shuffled(self.left, self.config.recall, memory.slots(), memory.rng)
        return ReplayDraw((memory.index[slots],))

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        seen, alpha = self.model.head.seen, self.config.alpha
        new = self.term(batch, present(batch.y, len(seen)))
        if not len(recalled.y):
            return new
        return alpha * new + (1 - alpha) * self.term(recalled, seen)
