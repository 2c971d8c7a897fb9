"""MIR: recall the samples whose loss would rise most if only the new batch were learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from streamgauge.cost.flops import Affine
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.probe import gradients, interference, set_gradients
from streamgauge.learners.parts.replay_batch import NONE, Drawn, Hand, deal_others, sizes_of_others
from streamgauge.learners.replay import er

if TYPE_CHECKING:
    from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(er.Config):
    candidates: int = 50  # drawn from memory, to recall some of them; the paper: 5 batches
    select: Literal["pass", "batch"] = "pass"  # choose in each pass, or once for all of a batch
    as_published: bool = False  # as a published code did it, and whose:
    code: Literal["survey", "realtime"] = "survey"


class MIR(er.ER):
    """Aljundi et al. 2019: with g the gradient of the new batch's loss and theta' = theta - lr g,
    the candidates with the largest loss(theta') - loss(theta) are recalled, and the step is on the
    mean loss over new and recalled. They are forwarded separately, and g is used twice. Probing
    leaves batch norm's statistics as they are; in both published codes the one under theta does
    not. The survey's takes candidates of classes absent from the batch before, and adds the two
    mean losses; the real-time paper's takes for g the gradient of the step before, and forwards
    new and recalled together."""

    config: Config
    chosen: Batch | None = None  # for the batch at hand: views, not images
    drawn = 0  # passes over the batch at hand that have drawn their candidates
    left = before = NONE  # survey: candidates not dealt yet, and labels of the batch before

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        # Realtime: the gradient of the step before, by name. Copied to a place of its own, where
        # a recorded step finds it; 0 before the first, which is as none.
        weights = self.model.named_parameters() if self._as("realtime") else ()
        self.past = {name: torch.zeros_like(weight) for name, weight in weights}

    def learn(self, batch: Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
        self.left, self.chosen, self.drawn = NONE, None, 0
        said = super().learn(batch, predicted)
        self.before = batch.labels() if self._as("survey") else NONE
        return said

    def train(self, *inputs: Any) -> dict[str, Any]:
        self.chosen = None
        return super().train(*inputs)

    def choose(self, batch: Batch, hand: Hand) -> Batch:
        if self._as("realtime"):
            set_gradients(self.model, self.past)
        else:
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.scores(self.view(batch.x)), batch.y)
            loss.backward()  # type: ignore[no-untyped-call]
            self.new = loss.detach()
        if self.chosen is None or self.config.select == "pass":
            self.chosen = self._most_interfered(hand.parts[0])
        return self.chosen

    def draw(self, batch: Batch) -> Drawn:
        """Candidates, of which `choose` takes some."""
        memory, n = self.memory, self.config.candidates
        self.drawn += 1
        if self.config.select == "batch" and self.drawn > 1:
            return Drawn((NONE,))
        if self._as("survey"):
            slots, self.left = deal_others(self.left, n, memory, self.before, self.config.recall)
        else:
            slots = memory.recall(n)
        return Drawn((memory.index[slots],))

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        self.left, self.drawn = NONE, 0
        candidates = super().upcoming_reads(batch)
        self.before = batch.labels() if self._as("survey") else NONE
        return candidates

    def _most_interfered(self, some: Batch) -> Batch:
        view, first = self.view(some.x), len(some.y) - self.config.recall
        rise = interference(self.model, view, some.y, self.config.lr, self.config.as_published)
        if not self._as("survey"):  # which cuts 6 to 9 of them at a negative place: 4 to 1 remain
            first = max(first, 0)
        most = rise.argsort()[first:]
        return Batch(view[most], some.y[most], NONE)  # only the device knows which they are

    def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
        if self._as("realtime"):
            self.optimizer.zero_grad(set_to_none=True)
            scores = self.scores(torch.cat([self.view(batch.x), recalled.x]))
            return F.cross_entropy(scores, torch.cat([batch.y, recalled.y]))
        if not len(recalled.y):
            return self.new
        old = F.cross_entropy(self.scores(recalled.x), recalled.y)
        if self._as("survey"):
            return self.new + old
        share = len(batch.y) / (len(batch.y) + len(recalled.y))
        for gradient in gradients(self.model).values():
            gradient *= share
        return share * self.new + (1 - share) * old

    def update(self, loss: torch.Tensor) -> None:
        if loss.requires_grad:  # added to the gradient of the new batch
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.past:
            now = gradients(self.model)
            torch._foreach_copy_([self.past[name] for name in now], list(now.values()))

    def work(self) -> tuple[int, ...]:
        """Candidates, each forwarded twice, and recalled samples, each trained on, over all passes:
        FLOPs are so much for each of the one, and of the other, and what the new batch takes. The
        survey's code has others to choose from in nearly every step of a first task; else, what a
        memory recalls follows from what it holds, by its own rule."""
        memory, config = self.memory, self.config
        if not self._as("survey"):
            return (*super().work(), min(len(memory), config.candidates))
        pool = memory.label[memory.slots()]
        others = int((~np.isin(pool, self.before)).sum())
        hands = 1 if config.select == "batch" else config.passes
        sizes = sizes_of_others(others, config.candidates, config.recall, hands)
        recalled = sum(len(range(size)[size - config.recall :]) for size in sizes)  # cut as above
        return (Affine(sum(sizes)), recalled * config.passes // hands)

    def _as(self, code: str) -> bool:
        return self.config.as_published and self.config.code == code

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"before": self.before, "gradient": dict(self.past)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.before = state["before"]
        for name, gradient in state["gradient"].items():
            self.past[name].copy_(gradient)
