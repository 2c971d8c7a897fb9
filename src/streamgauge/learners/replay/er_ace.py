"""ER-ACE: the loss of new samples is over the classes of their batch and those never seen, that of
recalled samples over all."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import ace_mask, restricted_cross_entropy
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    as_published: bool = False  # as the survey's code (Soutif-Cormerais et al. 2023)
    alpha: float = 0.5  # as_published: weight of the new samples' term, 1 - alpha of the other


class ERACE(er.ER):
    """Caccia et al. 2022: loss = CE(new, softmax over the batch's classes and those never seen)
    + CE(recalled, softmax over all seen), each a mean, from separate forward passes."""

    config: Config
    published = "survey.PublishedERACE"

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        new = self.term(batch, ace_mask(batch.y, self.model.head.seen))
        return new + self.term(recalled, self.model.head.seen) if len(recalled.y) else new

    def term(self, batch: Batch, allowed: Tensor) -> Tensor:
        """Cross-entropy of a softmax over the allowed classes."""
        logits = self.model.head.scores(self.model.features(self.view(batch.x)))
        return restricted_cross_entropy(logits, batch.y, allowed)
