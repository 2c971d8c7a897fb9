"""ADRep in CLOC's code (Cai et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamgauge.learners.adaptive.adrep import ADRep
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.window import Window

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.streams import Spec


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
