"""What CLOC's code does differently (Cai et al. 2021)."""

from __future__ import annotations

from math import floor
from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.adaptive.adrep import ADRep
from streamgauge.learners.adaptive.adrep_cosine import ADRepCosine
from streamgauge.learners.adaptive.er_cosine import ERCosine
from streamgauge.learners.adaptive.polrs_adrep import PoLRSADRep
from streamgauge.learners.base import Batch
from streamgauge.learners.published.realtime import TiesToHighestRate
from streamgauge.memory.policies import Window
from streamgauge.streams import Spec

SLICES = 90  # of the stream, in which the rate of ER with a cosine is constant


class PublishedADRep(ADRep):
    """The accuracy on new samples is that of the scored answers, in evaluation mode; the memory is
    a window on everything seen, so that a wider one has old samples again at once."""

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.unbounded = True
        self.answered = torch.zeros((), device=self.device)  # accuracy of the answers to this batch

    def build_memory(self, seed: int) -> Window:
        return Window(self.config.memory, seed)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        answers = self.predict(batch.x) if predicted is None else predicted
        self.answered.copy_((answers.argmax(1) == batch.y).float().mean())
        return super().learn(batch, predicted)

    def stream_accuracy(self, right: Tensor) -> Tensor:
        return self.answered.clone()


class PublishedERCosine(ERCosine):
    """The stream has 90 equal slices, and the rate changes at the beginning of each."""

    def done(self, t: int) -> float:
        return floor(super().done(t) * SLICES) / SLICES


class PublishedADRepCosine(ADRepCosine, PublishedERCosine, PublishedADRep):
    """Both of the above."""


class PublishedPoLRSADRep(PoLRSADRep, TiesToHighestRate, PublishedADRep):
    """The new size was never handed to the data set: it is logged as `memory_size`, while replay
    stays within the first size. Ties go to the highest rate, and the accuracy on new samples is
    that of the scored answers."""

    def resize(self) -> None:
        """The size is not used."""
