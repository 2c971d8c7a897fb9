"""MIR in two published codes: the survey's (Soutif-Cormerais et al. 2023) and the real-time
paper's (Ghunaim et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.cost.flops import Affine
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.probe import gradients, set_gradients
from streamgauge.learners.parts.replay_batch import (
    NONE,
    Ints,
    ReplayDraw,
    draw_sizes_of_other_classes,
    next_of_other_classes,
)
from streamgauge.learners.replay.mir import MIR

if TYPE_CHECKING:
    from streamgauge.streams import Spec


class PublishedMIR(MIR):
    """Probing under theta moves batch norm's statistics, in both codes."""

    moves_statistics = True
    checkpointed = "before=previous_labels gradient=last_gradient"
    previous_labels = NONE  # of the batch before (the survey's code)

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        self.last_gradient: dict[str, torch.Tensor] = {}  # by name (the real-time paper's code)


class SurveyMIR(PublishedMIR):
    """Candidates are of classes absent from the batch before, and none comes twice in the passes
    over a batch; the two mean losses are added."""

    left = NONE  # candidates not drawn yet

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        self.left = NONE
        draws = super().draw_passes(batch)
        self.previous_labels = batch.labels()
        return draws

    def candidates(self) -> Ints:
        slots, self.left = next_of_other_classes(
            self.left,
            self.config.candidates,
            self.memory,
            self.previous_labels,
            least=self.config.recall,
        )
        return slots

    def most(self, ascending: torch.Tensor) -> torch.Tensor:
        """With fewer candidates than `recall` the slice begins at a negative position, so that of 6
        to 9 only 4 to 1 remain."""
        return ascending[len(ascending) - self.config.recall :]

    def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
        if not len(recalled.y):
            return self.new
        return self.new + F.cross_entropy(self.scores(recalled.x), recalled.y)

    def work(self) -> tuple[Any, ...]:
        """Candidates, each forwarded twice, and recalled samples, each trained on, of all passes.
        In a first task the number of candidates differs in nearly every step."""
        config, stored = self.config, self.memory.label[self.memory.slots()]
        pool = int((~np.isin(stored, self.previous_labels)).sum())
        draws = 1 if config.select == "batch" else config.passes
        sizes = draw_sizes_of_other_classes(pool, config.candidates, config.recall, draws)
        recalled = sum(len(range(size)[size - config.recall :]) for size in sizes)  # as in `most`
        return (Affine(sum(sizes)), recalled * config.passes // draws)


class RealTimeMIR(PublishedMIR):
    """g is the gradient of the step before, and new and recalled samples are forwarded together."""

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        # Changed in place for recorded steps. 0 before the first step, which is as none.
        self.last_gradient = {
            name: torch.zeros_like(weight) for name, weight in self.model.named_parameters()
        }

    def take_gradient(self, batch: Batch) -> None:
        set_gradients(self.model, self.last_gradient)

    def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.scores(torch.cat([self.view(batch.x), recalled.x]))
        return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))

    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)
        now = gradients(self.model)
        torch._foreach_copy_([self.last_gradient[name] for name in now], list(now.values()))
