"""MIR: recall the samples whose loss would rise most if only the new batch were learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F

from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradients import gradients, interference
from streamgauge.learners.parts.replay_batch import NONE, Ints, ReplayBatch, ReplayDraw
from streamgauge.learners.replay import er


@dataclass(frozen=True)
class Config(er.Config):
    candidates: int = 50  # drawn from the memory to choose from; the paper: 5 batches
    select: Literal["pass", "batch"] = "pass"  # choose in each pass, or once for all passes
    as_published: bool = False  # as the published code named by `code`
    code: Literal["survey", "realtime"] = "survey"  # whose code to follow


class MIR(er.ER):
    """Aljundi et al. 2019: with g the gradient of the new batch's loss and theta' = theta - lr g,
    the candidates with the largest loss(theta') - loss(theta) are recalled, and the step is on the
    mean loss over new and recalled. They are forwarded separately, and g is used twice. Probing
    leaves batch norm's statistics as they are."""

    config: Config
    published: ClassVar = {"survey": "survey.SurveyMIR", "realtime": "realtime.RealTimeMIR"}
    moves_statistics = False  # whether the pass under theta moves batch norm's statistics
    chosen: Batch | None = None  # for this batch: random views, not images

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        if self.config.select == "pass":
            return super().draw_passes(batch)
        return [self.draw(batch), *[ReplayDraw((NONE,))] * (self.config.passes - 1)]

    def draw(self, batch: Batch) -> ReplayDraw:
        """Candidates, of which `choose` takes some."""
        return ReplayDraw((self.memory.index[self.candidates()],))

    def candidates(self) -> Ints:
        return self.memory.recall(self.config.candidates)

    def largest_draw(self) -> int:
        return max(self.config.candidates, self.config.recall)

    def train(self, *inputs: Any) -> dict[str, Any]:
        self.chosen = None
        return super().train(*inputs)

    def choose(self, batch: Batch, replay: ReplayBatch) -> Batch:
        self.take_gradient(batch)
        if self.chosen is None or self.config.select == "pass":
            self.chosen = self.most_interfered(replay.parts[0])
        return self.chosen

    def most_interfered(self, candidates: Batch) -> Batch:
        view, y = self.view(candidates.x), candidates.y
        rise = interference(self.model, view, y, self.config.lr, self.moves_statistics)
        most = self.most(rise.argsort())
        return Batch(view[most], y[most], NONE)  # only the device knows their addresses

    def take_gradient(self, batch: Batch) -> None:
        """Leaves g in the weights."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.scores(self.view(batch.x)), batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.new = loss.detach()

    def most(self, ascending: torch.Tensor) -> torch.Tensor:
        return ascending[max(len(ascending) - self.config.recall, 0) :]

    def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
        if not len(recalled.y):
            return self.new
        old = F.cross_entropy(self.scores(recalled.x), recalled.y)
        share = len(batch.y) / (len(batch.y) + len(recalled.y))
        for gradient in gradients(self.model).values():
            gradient *= share
        return share * self.new + (1 - share) * old

    def update(self, loss: torch.Tensor) -> None:
        if loss.requires_grad:  # added to the gradient of the new batch
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
