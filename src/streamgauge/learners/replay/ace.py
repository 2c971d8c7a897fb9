"""ACE of the real-time paper: ER-ACE's asymmetric loss, new and recalled in two passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.losses import ace_mask, restricted_cross_entropy
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    pass


class ACE(er.ER):
    """ER-ACE (Caccia et al. 2022) as Ghunaim et al. 2023 run it: new samples compete among the
    classes of their batch and those never seen, recalled ones among all that were seen. The loss is
    the sum of both means, so its gradient is about twice as long as ER's. Batch norm sees new and
    recalled samples apart."""

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        logits = self.model.head.scores(self.model.features(self.view(batch.x)))
        new = restricted_cross_entropy(logits, batch.y, ace_mask(batch.y, self.model.head.seen))
        if not len(recalled.y):
            return new
        return new + F.cross_entropy(self.scores(self.view(recalled.x)), recalled.y)
