"""PoLRS and ADRep together: learning rates and memory size both follow the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from streamgauge.learners.adaptive import adrep, er_batch, polrs


@dataclass(frozen=True)
class Config(er_batch.Config, polrs.Config, adrep.Config):
    policy: Literal["fifo"] = "fifo"
    as_published: bool = False  # as CLOC's code


class PoLRSADRep(er_batch.ERBatch, polrs.PoLRS, adrep.ADRep):
    """The overall strategy of CLOC (Cai et al. 2021, section 5.5): PoLRS, whose best model's
    accuracies decide on the memory, trained in batches of `train_batch`."""

    config: Config
    published = "cloc.PublishedPoLRSADRep"

    def watch(self, right: Tensor, new: int) -> None:
        polrs.PoLRS.watch(self, right, new)
        adrep.ADRep.watch(self, self.pool.of_best(right).float(), new)
