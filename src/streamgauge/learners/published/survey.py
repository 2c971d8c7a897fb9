"""What the survey's code does differently (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from streamgauge import models
from streamgauge.cost.flops import Affine
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.contrast import NO_MEAN, NearestMean, Projection, class_means
from streamgauge.learners.parts.gradients import ahead, push_and_cut, scored, slope
from streamgauge.learners.parts.losses import present
from streamgauge.learners.parts.replay_batch import (
    NONE,
    Ints,
    ReplayBatch,
    ReplayDraw,
    draw_sizes_of_other_classes,
    next_of_other_classes,
    next_shuffled,
)
from streamgauge.learners.published.realtime import PublishedMIR
from streamgauge.learners.replay import er
from streamgauge.learners.replay.derpp import DERpp
from streamgauge.learners.replay.er_ace import ERACE
from streamgauge.learners.replay.er_lwf import ERLwF
from streamgauge.learners.replay.rar import RAR
from streamgauge.learners.replay.scr import SCR
from streamgauge.models.augment import contrastive_view
from streamgauge.streams import Spec
from streamgauge.streams.gate import to_device


class NoRepeats(er.ER):
    """Recalls no sample twice in the passes over a batch."""

    left = NONE  # slots that the passes over this batch have not recalled yet

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        self.left = NONE
        return super().draw_passes(batch)

    def draw(self, batch: Batch) -> ReplayDraw:
        memory = self.memory
        slots, self.left = next_shuffled(self.left, self.config.recall, memory.slots(), memory.rng)
        return ReplayDraw((memory.index[slots],), slots)


class PublishedDERpp(NoRepeats, DERpp):
    """Uses one recalled batch for both terms, recalls no sample twice in the passes over a batch,
    masks no classes in predictions, and stores the logits of the image as it is, after training
    and in evaluation mode."""

    def after_store(self, batch: Batch, slots: Any) -> None:
        self.execute(self.store_logits, batch.x, batch.y, to_device(slots, self.device))

    def keep_logits(self, new: Tensor) -> None:
        pass

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        model = super().build_model(spec, seed)
        model.head.masked = False
        return model

    def split_recalled(self, first: int) -> tuple[slice, slice]:
        return slice(None), slice(None)


class PublishedERACE(NoRepeats, ERACE):
    """Weighs the two terms with alpha and 1 - alpha, leaves unseen classes out of the first term,
    stores a batch before training on it, and recalls no sample twice in the passes over a batch."""

    stores_first = True

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        seen, alpha = self.model.head.seen, self.config.alpha
        new = self.term(batch, present(batch.y, len(seen)))
        if not len(recalled.y):
            return new
        return alpha * new + (1 - alpha) * self.term(recalled, seen)


class PublishedERLwF(ERLwF):
    """The teacher stays in training mode, there is no factor T², a task's classes are unmasked when
    it begins, and the classes distilled are those of the second task up to the current one: never
    the first task's, and always the ones that have just begun."""

    scaled = False
    teacher_trains = True

    def tell(self, boundary: int, classes: NDArray[Any]) -> None:
        head = self.model.head
        coming = torch.from_numpy(classes).long().to(self.device)
        head.see(coming)
        if boundary > 0:
            self.keep_teacher(self.known | present(coming, len(head.seen)))


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
        n, least, labels = self.config.candidates, self.config.recall, self.previous_labels
        slots, self.left = next_of_other_classes(self.left, n, self.memory, labels, least)
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


class PublishedRAR(RAR):
    """Pushes other samples than those recalled, drawn from an order of the memory that is renewed
    only when it is used up, away from the class farthest by logits, and cuts them to 0..1 although
    values are normalised."""

    checkpointed = "left"
    left = NONE  # addresses of that order not drawn yet, kept while the memory changes

    def draw(self, batch: Batch) -> ReplayDraw:
        recalled = super().draw(batch).parts[0]
        others, memory = NONE, self.memory
        if len(recalled):
            pool, n = memory.index[memory.slots()], self.config.recall
            others, self.left = next_shuffled(self.left, n, pool, memory.rng, whole=False)
        return ReplayDraw((recalled, others))

    def choose(self, batch: Batch, replay: ReplayBatch) -> Batch:
        recalled, self.others = replay.parts
        return recalled

    def pushed(
        self, x: Tensor, y: Tensor, features: Tensor, new: int, images: bool
    ) -> tuple[Tensor, Tensor]:
        config, others = self.config, self.others
        state = ahead(self.model, config.virtual_lr)
        start, here = scored(self.model, state, self.view(others.x))
        with torch.no_grad():
            there = functional_call(self.model, state, (x,))
            same = others.y[:, None] == y
            target = y[torch.cdist(here, there).masked_fill(same, -1).argmax(1)]
        uphill = slope(start, here, target.masked_fill(same.all(1), 0)).sign()
        return push_and_cut(start.detach(), uphill, config.epsilon, config.iterations), others.y

    def work(self) -> tuple[Any, ...]:
        most = self.config.recall * self.config.passes
        return (*super().work(), min(len(self.left), most), min(len(self.memory), most))


class EarlyProjection(Projection):
    """Gives unit length to the features and not to their projection."""

    def scores(self, features: Tensor) -> Tensor:
        projected: Tensor = self.layers(F.normalize(features))
        return projected


class LateMeans(NearestMean):
    """New means are averaged with the means before, and used when the next ones are computed."""

    def renew(self, blocks: Iterable[tuple[Tensor, Tensor]]) -> None:
        fresh = class_means(blocks, self.means)
        self.means.copy_(self.newest)
        mixed = torch.where(self.means == NO_MEAN, fresh, (fresh + self.means) / 2)
        self.newest.copy_(torch.where(fresh == NO_MEAN, self.means, mixed))

    def use_newest(self) -> None:
        self.means.copy_(self.newest)


class PublishedSCR(SCR):
    """The projection keeps its length and its input has unit length, the loss is multiplied by
    temperature / 0.07, the random view is one of normalised values cut to 0..1, and means come into
    use one batch late, except on the test set at the end of a task, which sees the newest."""

    projection = EarlyProjection
    means_class = LateMeans
    nearest: LateMeans

    def loss(self, batch: Batch, recalled: Batch) -> Tensor:
        return super().loss(batch, recalled) * (self.config.temperature / 0.07)

    def random_view(self, x: Tensor) -> Tensor:
        return contrastive_view(self.normalise(x), self.generator, x.dtype == torch.uint8)

    def prepare(self) -> None:
        """Means are not computed for an evaluation."""

    def prepare_test(self) -> None:
        self.nearest.use_newest()
