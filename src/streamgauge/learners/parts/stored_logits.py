"""The logits that a model gave to the samples in its memory when it was trained on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er
from streamgauge.streams import Spec
from streamgauge.streams.gate import to_device


class StoredLogits(er.ER):
    """`stored_logits` has one row per slot, and a last row for samples that got no slot (slot -1).
    `loss` calls `keep_logits`; the last training pass over a batch counts."""

    checkpointed = "kept=stored_logits"

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.stored_logits = torch.zeros(self.config.memory + 1, spec.classes, device=self.device)
        # By size of the batch: an engine replays writes into the same tensor.
        self.trained_logits: dict[int, Tensor] = {}

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        size, classes = len(batch.y), self.stored_logits.shape[1]
        if size not in self.trained_logits:
            self.trained_logits[size] = torch.zeros(size, classes, device=self.device)
        return super().learn(batch, predicted)

    upcoming_reads = er.ER.upcoming_reads  # `learn` above recalls nothing of its own

    def logits(self, x: Tensor) -> Tensor:
        """Of all classes, also of those that have not come yet."""
        return self.model.head.scores(self.model.features(x))

    def keep_logits(self, new: Tensor) -> None:
        """The logits of a training pass, for the memory."""
        if len(new) in self.trained_logits:
            self.trained_logits[len(new)].copy_(new)

    def after_store(self, batch: Batch, slots: Any) -> None:
        if batch.y is self.trained_labels:
            self.stored_logits[to_device(slots, self.device)] = self.trained_logits[len(batch.y)]
        else:
            self.execute(self.store_logits, batch.x, batch.y, to_device(slots, self.device))

    def store_logits(self, x: Tensor, y: Tensor, slots: Tensor) -> None:
        """Of samples that were not trained on: of the image as it is, in evaluation mode."""
        self.model.head.see(y)
        self.model.eval()
        with torch.no_grad():
            self.stored_logits[slots] = self.logits(self.normalise(x))

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.stored_logits.nbytes
