"""The survey's methods, each loss and update against a slow and obvious implementation."""

from __future__ import annotations

import colorsys
import copy
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import streamgauge as sg
from helpers import small_stream
from streamgauge import catalogue
from streamgauge.learners.base import Batch
from streamgauge.learners.parts import contrast as _contrast
from streamgauge.learners.parts import gradients as _probe
from streamgauge.learners.parts import losses as _losses
from streamgauge.learners.parts import replay_batch as _deal
from streamgauge.learners.replay import agem, scr
from streamgauge.memory import ClassBalanced
from streamgauge.models import augment as _views
from streamgauge.streams import Gate, Split, Stream

CPU = torch.device("cpu")


def build(stream: Stream, name: str, **config: Any) -> tuple[Any, Gate]:
    gate = Gate(stream.source, stream.preparation, CPU)
    learner: Any = catalogue.learner(name, **config).build(stream.spec, gate, 0, CPU)
    return learner, gate


def batch_of(stream: Stream, step: int, gate: Gate) -> Batch:
    index = stream.index(step).astype(np.int64)
    gate.reveal(index)
    gate.label_due(index)
    return Batch(gate.read(index), gate.label(index), index)


def after(
    stream: Stream, name: str, steps: int, boundary: bool = False, **config: Any
) -> tuple[Any, Batch]:
    """A learner that has learnt some steps, and the batch that comes next."""
    learner, gate = build(stream, name, **config)
    if boundary:
        learner.tell(boundary=0, classes=np.arange(2))
    for step in range(steps):
        learner.learn(batch_of(stream, step, gate), None)
    return learner, batch_of(stream, steps, gate)


def normal(x: torch.Tensor) -> torch.Tensor:
    """What the default settings make of bytes."""
    return x.float().div(255).sub(0.5).div(0.25)


def weights(learner: Any) -> list[torch.Tensor]:
    return [w.detach().clone() for w in learner.model.parameters()]


def statistics(learner: Any) -> list[torch.Tensor]:
    return [b.clone() for n, b in learner.model.named_buffers() if "running" in n]


def equal(a: list[torch.Tensor], b: list[torch.Tensor], atol: float = 0.0) -> bool:
    return all(torch.allclose(x, y, rtol=0, atol=atol) for x, y in zip(a, b, strict=True))


def coming_recall(learner: Any, *counts: int) -> list[np.ndarray]:
    """The slots that the next calls of `recall` will draw."""
    memory = copy.deepcopy(learner.memory)
    return [memory.recall(n) for n in counts]


def one_by_one(logits: torch.Tensor, y: torch.Tensor, classes: list[int]) -> float:
    """Mean cross-entropy over the classes given, in plain numbers."""
    total = 0.0
    for row, label in zip(logits.tolist(), y.tolist(), strict=True):
        total -= row[label] - math.log(sum(math.exp(row[c]) for c in classes))
    return total / len(y)


# Losses


@given(seed=st.integers(0, 1000), rows=st.integers(1, 6), classes=st.integers(1, 7))
@settings(max_examples=30, deadline=None)
def test_restricted_cross_entropy_by_a_loop(seed: int, rows: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(rows, classes)) * 3).requires_grad_()
    y = torch.from_numpy(rng.integers(0, classes, rows))
    allowed = torch.from_numpy(rng.random(classes) < 0.5)
    allowed[y] = True
    loss = _losses.restricted_cross_entropy(logits, y, allowed)
    kept = allowed.nonzero()[:, 0].tolist()
    assert loss.item() == pytest.approx(one_by_one(logits.detach(), y, kept))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[:, ~allowed] == 0).all()
    if len(kept) == 1:
        assert loss.item() == 0
    # One flag a sample and class does the same.
    again = _losses.restricted_cross_entropy(logits, y, allowed.expand(rows, -1))
    assert again.item() == loss.item()


def test_restricted_cross_entropy_is_safe() -> None:
    logits = torch.tensor([[1e4, -1e4], [0.0, 800.0]], requires_grad=True)
    y = torch.tensor([1, 0])
    loss = _losses.restricted_cross_entropy(logits, y, torch.ones(2, dtype=torch.bool))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(10400)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    none = _losses.restricted_cross_entropy(logits[:0], y[:0], torch.ones(2, dtype=torch.bool))
    assert none.item() == 0


def test_classes_an_incoming_batch_may_push_on() -> None:
    seen = torch.tensor([True, True, True, False, False])
    mask = _losses.ace_mask(torch.tensor([2, 2, 0]), seen)
    assert mask.tolist() == [True, False, True, True, True]
    assert _losses.present(torch.tensor([2, 2, 0]), 5).tolist() == [True, False, True, False, False]


@given(seed=st.integers(0, 1000), temperature=st.floats(0.5, 4))
@settings(max_examples=30, deadline=None)
def test_distillation_by_a_loop(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(4, 5)) * 2) for _ in range(2))
    kept = [0, 3, 4]
    flags = torch.zeros(5, dtype=torch.bool)
    flags[kept] = True
    total = 0.0
    for row in range(4):
        p, q = ([math.exp(x[row, c].item() / temperature) for c in kept]
                for x in (teacher, student))  # fmt: skip
        p, q = [v / sum(p) for v in p], [v / sum(q) for v in q]
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 4
    plain = _losses.distillation(student, teacher, temperature, flags, scaled=False)
    assert plain.item() == pytest.approx(total, abs=1e-12)
    scaled = _losses.distillation(student, teacher, temperature, flags)
    assert scaled.item() == pytest.approx(total * temperature**2, abs=1e-12)
    assert _losses.distillation(teacher, teacher, temperature, flags).item() == 0
    assert _losses.distillation(student, teacher, temperature, flags & False).item() == 0


@given(seed=st.integers(0, 1000), rows=st.integers(2, 9))
@settings(max_examples=30, deadline=None)
def test_supervised_contrast_by_a_loop(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    z = F.normalize(torch.from_numpy(rng.normal(size=(rows, 4))))
    y = torch.from_numpy(rng.integers(0, 3, rows))
    terms = []
    for i in range(rows):
        friends = [p for p in range(rows) if p != i and y[p] == y[i]]
        below = sum(math.exp(float(z[i] @ z[a]) / 0.3) for a in range(rows) if a != i)
        logs = [float(z[i] @ z[p]) / 0.3 - math.log(below) for p in friends]
        if friends:
            terms.append(-sum(logs) / len(friends))
    expected = sum(terms) / max(len(terms), 1)
    loss = _losses.supervised_contrastive(z, y, 0.3)
    assert loss.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rows", [1, 2])
def test_supervised_contrast_is_safe(rows: int) -> None:
    z = torch.full((rows, 3), 40.0, requires_grad=True)
    loss = _losses.supervised_contrastive(z, torch.zeros(rows, dtype=torch.long), 0.07)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert z.grad is not None
    assert z.grad.isfinite().all()


# Views


def test_resized_crop_image_by_image() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 3, 9, 12, generator=generator)
    box = _views.draw_boxes(x, generator)
    batched = _views.resized_crop(x, box)
    for i, (top, left, high, wide) in enumerate(zip(*(v.int().tolist() for v in box), strict=True)):
        cut = x[i : i + 1, :, top : top + high, left : left + wide]
        alone = F.interpolate(cut, (9, 12), mode="bilinear", align_corners=False)
        assert torch.allclose(batched[i : i + 1], alone, atol=1e-5)


def test_boxes_lie_inside_and_have_the_shares_asked_for() -> None:
    x = torch.empty(4000, 3, 32, 32)
    top, left, high, wide = _views.draw_boxes(x, torch.Generator().manual_seed(1))
    for start, length in ((top, high), (left, wide)):
        assert (start >= 0).all()
        assert (length >= 1).all()
        assert (start + length <= 32).all()
    share = high * wide / 32**2
    assert share.min() > 0.17  # sides are whole numbers
    assert share.mean() == pytest.approx(0.58, abs=0.03)
    ratio = wide / high
    assert 0.65 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.5
    assert abs(ratio.log().mean()) < 0.01
    assert len(set(zip(top.tolist(), left.tolist(), strict=True))) > 100  # a draw an image


def slow_jitter(image: np.ndarray, factor: list[float], shift: float, order: list[int]) -> Any:
    """One image, one pixel at a time."""
    x = image.astype(np.float64).copy()
    for what in order:
        luma = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        if what == _views.BRIGHTNESS:
            x = np.clip(factor[0] * x, 0, 1)
        elif what == _views.CONTRAST:
            x = np.clip(factor[1] * x + (1 - factor[1]) * luma.mean(), 0, 1)
        elif what == _views.SATURATION:
            x = np.clip(factor[2] * x + (1 - factor[2]) * luma, 0, 1)
        else:
            for r, c in itertools.product(*map(range, x.shape[1:])):
                h, s, v = colorsys.rgb_to_hsv(*x[:, r, c])
                x[:, r, c] = colorsys.hsv_to_rgb((h + shift) % 1, s, v)
    return x


def test_colour_jitter_image_by_image() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(30, 3, 4, 5, generator=generator)
    x[0] = 0.5  # without any hue
    how = _views.draw_jitter(x, generator)
    assert how.factor.min() >= 0.6
    assert how.factor.max() <= 1.4
    assert how.shift.abs().max() <= 0.1
    assert len({tuple(order) for order in how.order.tolist()}) > 10  # an order an image
    batched = _views.jitter(x, how)
    for i in range(len(x)):
        alone = slow_jitter(x[i].numpy(), how.factor[i].tolist(), how.shift[i].item(),
                            how.order[i].tolist())  # fmt: skip
        assert np.allclose(batched[i].numpy(), alone, atol=1e-5)


def test_views_are_fresh_for_each_image_and_repeat_with_the_generator() -> None:
    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).expand(400, -1, -1, -1)
    view = _views.contrastive_view(x, torch.Generator().manual_seed(3))
    assert view.shape == x.shape
    assert view.min() >= 0
    assert view.max() <= 1
    assert len(torch.unique(view.flatten(1), dim=0)) > 380  # few are neither cut nor coloured
    grey = (view[:, 0] == view[:, 1]).flatten(1).all(1).float().mean()
    assert grey == pytest.approx(0.2, abs=0.06)
    assert torch.equal(view, _views.contrastive_view(x, torch.Generator().manual_seed(3)))
    one = torch.rand(2, 1, 8, 8)
    assert _views.contrastive_view(one, torch.Generator()).shape == one.shape
    features = torch.rand(2, 8)
    assert _views.contrastive_view(features, torch.Generator()) is features


def test_jitter_of_normalised_values_loses_what_is_negative() -> None:
    """The survey's trap: colours are cut to 0..1 although the values are normalised."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(200, 3, 8, 8, generator=generator)
    view = _views.contrastive_view(x, generator)
    cut = (view.flatten(1).min(1).values >= 0).float().mean()
    assert cut == pytest.approx(0.8, abs=0.1)
    whole = _views.contrastive_view(x, generator, colours=False)
    assert (whole.flatten(1).min(1).values < 0).all()


# Recall without repeats


def test_dealing_gives_all_before_any_comes_again() -> None:
    rng, left, dealt = np.random.default_rng(0), _deal.NONE, []
    for _ in range(4):
        hand, left = _deal.next_shuffled(left, 3, np.arange(10, 22), rng)
        dealt += hand.tolist()
    assert sorted(dealt) == list(range(10, 22))
    assert len(_deal.next_shuffled(_deal.NONE, 3, np.arange(2), rng)[0]) == 0
    hand, left = _deal.next_shuffled(
        np.array([7]), 3, np.arange(5), rng
    )  # too few left: shuffled anew
    assert 7 not in hand
    assert len(_deal.next_shuffled(np.array([7]), 3, np.arange(5), rng, whole=False)[0]) == 1


# ER


def test_er_may_wait_until_as_many_are_stored_as_it_recalls() -> None:
    stream = small_stream(8)
    recalled = {}
    for wait in (False, True):
        learner, gate = build(stream, "er", recall=18, wait=wait, model="linear")
        recalled[wait] = [
            learner.learn(batch_of(stream, step, gate), None)["recalled"] for step in range(6)
        ]
    assert recalled[False] == [0, 5, 10, 15, 18, 18]
    assert recalled[True] == [0, 0, 0, 0, 18, 18]


def test_padding_is_a_setting() -> None:
    stream = small_stream(3)
    learner, batch = after(stream, "er", 0, augment="crop_flip", padding=8)
    bright = torch.full((200, 3, 8, 8), 255, dtype=torch.uint8)
    black = (learner.view(bright) < 0).float().mean()
    narrow, _ = build(stream, "er", augment="crop_flip", padding=1)
    assert black > 0.5 > 0.2 > (narrow.view(bright) < 0).float().mean()
    assert len(batch.y) == 5


# ER-ACE


def test_er_ace_is_the_sum_of_two_means_from_two_passes() -> None:
    stream = small_stream(8, classes=5)
    learner, batch = after(stream, "er_ace", 4, recall=4)
    twin = copy.deepcopy(learner)
    (slots,) = coming_recall(learner, 4)
    old = learner.read(learner.memory.index[slots])
    twin.model.train()
    twin.model.head.see(batch.y)
    seen = twin.model.head.seen.nonzero()[:, 0].tolist()
    mine = sorted({*batch.y.tolist()} | ({*range(5)} - {*seen}))
    head = twin.model.head
    new = head.scores(twin.model.features(normal(batch.x)))
    past = head.scores(twin.model.features(normal(old.x)))
    loss = F.cross_entropy(new[:, mine], torch.tensor([mine.index(c) for c in batch.y.tolist()]))
    loss = loss + F.cross_entropy(
        past[:, seen], torch.tensor([seen.index(c) for c in old.y.tolist()])
    )
    assert loss.item() == pytest.approx(
        one_by_one(new, batch.y, mine) + one_by_one(past, old.y, seen), rel=1e-5
    )
    said = learner.learn(batch, None)
    assert said["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    gradients = torch.autograd.grad(loss, list(twin.model.parameters()))
    stepped = [w - 0.05 * g for w, g in zip(weights(twin), gradients, strict=True)]
    assert equal(weights(learner), stepped, 1e-6)
    assert equal(statistics(learner), statistics(twin))  # each pass moved them by itself


def two_tasks(steps: int = 12) -> Stream:
    """Classes 0 and 1, then 2 and 3."""
    return small_stream(steps, order="classes", tasks=2)


def test_er_ace_leaves_absent_old_classes_alone() -> None:
    stream = two_tasks()
    learner, gate = build(stream, "er_ace", recall=0)
    weight = learner.model.head.weight
    boundary = int(np.flatnonzero(np.diff(stream.task))[0]) + 1
    for step in range(boundary):
        learner.learn(batch_of(stream, step, gate), None)
    before = weight.detach().clone()
    batch = batch_of(stream, boundary, gate)
    learner.learn(batch, None)
    new = torch.unique(batch.y).tolist()
    old = [c for c in range(4) if c not in new][:2]
    assert torch.equal(weight[old], before[old])
    assert not torch.equal(weight[new], before[new])
    plain, gate = build(stream, "er", recall=0)
    for step in range(boundary):
        plain.learn(batch_of(stream, step, gate), None)
    before = plain.model.head.weight.detach().clone()
    plain.learn(batch_of(stream, boundary, gate), None)
    assert not torch.equal(plain.model.head.weight[old], before[old])


def test_unseen_classes_stay_in_the_softmax_of_new_samples_unless_as_published() -> None:
    stream = two_tasks()
    moved = {}
    for published in (False, True):
        learner, batch = after(stream, "er_ace", 0, recall=0, as_published=published)
        bias = learner.model.head.bias.detach().clone()
        learner.learn(batch, None)
        later = [c for c in range(4) if stream.class_task[c] == 1]
        moved[published] = bool((learner.model.head.bias[later] != bias[later]).any())
    assert moved == {False: True, True: False}


def test_er_ace_as_published_stores_first_and_weighs_the_terms() -> None:
    stream = small_stream(6)
    learner, batch = after(stream, "er_ace", 0, recall=5, as_published=True, alpha=0.3)
    twin = copy.deepcopy(learner)
    said = learner.learn(batch, None)
    assert said["recalled"] == 5  # the batch itself, as there is nothing else
    assert said["memory"] == 5  # and it is stored once
    twin.model.train()
    twin.model.head.see(batch.y)
    logits = twin.model(normal(batch.x))
    mine = sorted(set(batch.y.tolist()))
    term = one_by_one(logits, batch.y, mine)  # both terms are of the same samples and classes
    assert said["loss"].item() == pytest.approx(0.3 * term + 0.7 * term, rel=1e-5)
    plain, batch = after(stream, "er_ace", 0, recall=5)
    assert plain.learn(batch, None)["recalled"] == 0
    plain.store(batch)
    learner.store(batch_of(stream, 1, Gate(stream.source, stream.preparation, CPU)))
    assert len(learner.memory) == len(plain.memory) == 10


def test_er_ace_as_published_recalls_none_twice_in_the_passes_over_a_batch() -> None:
    stream = small_stream(8)
    drawn: dict[bool, list[int]] = {}
    for published in (False, True):
        learner, batch = after(stream, "er_ace", 6, recall=10, passes=3, model="linear",
                               as_published=published)  # fmt: skip
        drawn[published] = seen = []
        draw = learner.draw

        def spy(batch: Batch, draw: Any = draw, seen: list[int] = seen) -> Any:
            drawn = draw(batch)
            seen.extend(drawn.parts[0].tolist())
            return drawn

        learner.draw = spy
        learner.learn(batch, None)
    assert len(set(drawn[True])) == len(drawn[True]) == 30
    assert len(set(drawn[False])) < len(drawn[False]) == 30


# ER + LwF


def test_lwf_with_alpha_0_is_er(tmp_path: Path) -> None:
    stream = two_tasks(16)
    a = sg.run(stream, sg.learner("er_lwf", alpha=0.0), out=tmp_path)
    b = sg.run(stream, "er", out=tmp_path)
    assert (a.predictions["confidence"] == b.predictions["confidence"]).all()
    c = sg.run(stream, "er_lwf", out=tmp_path)
    assert (a.predictions["confidence"] != c.predictions["confidence"]).any()


@pytest.mark.parametrize("published", [False, True])
def test_lwf_loss_at_the_second_task(published: bool) -> None:
    stream = small_stream(10, classes=6)
    learner, gate = build(stream, "er_lwf", recall=4, alpha=0.7, temperature=1.5,
                          as_published=published)  # fmt: skip
    learner.tell(boundary=0, classes=np.array([0, 1]))
    assert learner.model.head.seen.tolist()[:2] == [published, published]
    for step in range(3):
        said = learner.learn(batch_of(stream, step, gate), None)
        assert "distillation" not in said
    # What the teacher is and knows: as published, the classes that only now begin.
    learner.model.head.seen[3:] = False
    known = [3, 4] if published else learner.model.head.seen.nonzero()[:, 0].tolist()
    learner.tell(boundary=1, classes=np.array([3, 4]))
    assert len(known) > 1
    assert learner.known.nonzero()[:, 0].tolist() == known
    old = copy.deepcopy(learner.model).train(published)
    for step in range(3, 5):  # the model moves on, the teacher does not
        learner.learn(batch_of(stream, step, gate), None)
    assert equal([*old.parameters()], [*learner.teacher.parameters()])
    batch = batch_of(stream, 5, gate)
    (slots,) = coming_recall(learner, 4)
    recalled = learner.read(learner.memory.index[slots])
    x = normal(torch.cat([batch.x, recalled.x]))
    y = torch.cat([batch.y, recalled.y])
    model = copy.deepcopy(learner.model).train()
    model.head.see(batch.y)
    scores, taught = model(x), old(x)
    divergence = 0.0
    for new, before in zip(scores, taught, strict=True):
        q, p = (torch.softmax(v[known].detach().double() / 1.5, 0) for v in (new, before))
        divergence += float((p * (p / q).log()).sum()) / len(y)
    factor = 1 if published else 1.5**2
    expected = F.cross_entropy(scores, y).item() + 0.7 * factor * divergence
    said = learner.learn(batch, None)
    assert said["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert said["distillation"].item() == pytest.approx(factor * divergence, rel=1e-4)
    if published:  # the third task adds to what the second began with
        learner.tell(boundary=2, classes=np.array([5]))
        assert learner.known.nonzero()[:, 0].tolist() == [3, 4, 5]


def test_lwf_goes_on_after_it_was_stored() -> None:
    check_resume("er_lwf", as_published=True)


# MIR


def slow_interference(learner: Any, new: Batch, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """One copy of the model, one step, one sample's loss at a time; batch norm in training mode."""
    model = copy.deepcopy(learner.model).train()
    model.head.see(new.y)
    loss = F.cross_entropy(model(normal(new.x)), new.y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    ahead = copy.deepcopy(model)
    with torch.no_grad():
        for weight, gradient in zip(ahead.parameters(), gradients, strict=True):
            weight -= learner.config.lr * gradient
        now, then = model(x), ahead(x)
    return [
        one_by_one(then[i : i + 1], y[i : i + 1], seen)
        - one_by_one(now[i : i + 1], y[i : i + 1], seen)
        for i in range(len(y))
        for seen in [model.head.seen.nonzero()[:, 0].tolist()]
    ]


def test_mir_recalls_the_samples_whose_loss_rises_most() -> None:
    stream = small_stream(14)
    learner, batch = after(stream, "mir", 10, recall=4, candidates=20, lr=0.1)
    (slots,) = coming_recall(learner, 20)
    candidates = learner.read(learner.memory.index[slots])
    rise = slow_interference(learner, batch, normal(candidates.x), candidates.y)
    best = np.argsort(rise)[-4:]
    learner.model.train()
    learner.model.head.see(batch.y)
    before = statistics(learner)
    chosen = learner.recall(batch)
    moved = statistics(learner)
    assert torch.equal(chosen.x, normal(candidates.x[best]))
    assert chosen.y.tolist() == candidates.y[best].tolist()
    # Only the new batch has moved batch norm's statistics, once.
    alone = copy.deepcopy(learner.model)
    for buffer, value in zip((b for n, b in alone.named_buffers() if "running" in n), before,
                             strict=True):  # fmt: skip
        buffer.copy_(value)
    alone(normal(batch.x))
    assert equal(moved, [b for n, b in alone.named_buffers() if "running" in n], 1e-6)


def test_mir_step_is_that_of_the_mean_loss_over_new_and_recalled() -> None:
    stream = small_stream(14)
    learner, batch = after(stream, "mir", 10, recall=3, candidates=20, model="mlp")
    twin = copy.deepcopy(learner)
    twin.model.head.see(batch.y)
    chosen = copy.deepcopy(twin).recall(batch)
    x, y = torch.cat([normal(batch.x), chosen.x]), torch.cat([batch.y, chosen.y])
    loss = F.cross_entropy(twin.model(x), y)  # without batch norm, together is separately
    gradients = torch.autograd.grad(loss, list(twin.model.parameters()))
    said = learner.learn(batch, None)
    assert said["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert said["recalled"] == 3
    stepped = [w - 0.05 * g for w, g in zip(weights(twin), gradients, strict=True)]
    assert equal(weights(learner), stepped, 1e-6)


def test_mir_costs_eight_thirds_of_er() -> None:
    stream = small_stream(40, batch=10)
    flops = {}
    for name in ("er", "mir"):
        learner, batch = after(stream, name, 12, model="cnn4")
        with FlopCounterMode(display=False) as counter:
            learner.learn(batch, None)
        flops[name] = counter.get_total_flops()
    assert flops["mir"] / flops["er"] == pytest.approx(8 / 3, rel=0.03)


def test_mir_selects_once_a_batch_or_in_each_pass() -> None:
    stream = small_stream(14)
    for select, count in (("batch", 1), ("pass", 3)):
        learner, batch = after(stream, "mir", 10, recall=3, candidates=20, passes=3, select=select)
        asked: list[int] = []
        choose = learner.most_interfered
        learner.most_interfered = lambda some, c=choose, a=asked: (a.append(len(some.y)), c(some))[
            1
        ]
        trained: list[torch.Tensor] = []
        loss = learner.loss
        learner.loss = lambda b, r, f=loss, t=trained: (t.append(r.x), f(b, r))[1]
        learner.learn(batch, None)
        assert asked == [20] * count
        assert len(trained) == 3
        same = [torch.equal(a, b) for a, b in itertools.pairwise(trained)]
        assert all(same) == (select == "batch")


def test_mir_as_the_survey_ran_it() -> None:
    stream = small_stream(30, classes=8)
    learner, batch = after(stream, "mir", 20, recall=4, candidates=9, passes=4, as_published=True)
    absent = {*range(8)} - {*stream.source.label[stream.index(19)].tolist()}
    twin = copy.deepcopy(learner)
    twin.left = _deal.NONE
    twin.model.train()
    twin.model.head.see(batch.y)
    seen: list[int] = []
    for _ in range(4):
        twin.read = lambda index, read=twin.read: (seen.extend(index.tolist()), read(index))[1]
        before = statistics(twin)
        chosen = twin.recall(batch)
        twin.read = learner.read
    assert set(stream.source.label[seen].tolist()) <= absent
    assert len(set(seen)) == len(seen)  # dealt, so none comes twice in the passes over a batch
    # The probe moved batch norm beside the new batch's own pass: two updates in place of one.
    momentum, alone = 0.1, copy.deepcopy(twin.model)
    for buffer, value in zip((b for n, b in alone.named_buffers() if "running" in n), before,
                             strict=True):  # fmt: skip
        buffer.copy_(value)
    alone(normal(batch.x))
    once = [b for n, b in alone.named_buffers() if "running" in n]
    assert not equal(statistics(twin), once, 1e-6)
    assert momentum == alone.layers[1].momentum
    # The losses are added.
    old = F.cross_entropy(copy.deepcopy(twin.model)(chosen.x), chosen.y)
    total = twin.loss(batch, chosen)
    assert total.item() == pytest.approx(twin.new.item() + old.item(), rel=1e-5)
    # Classes of the batch before are all there is: nothing to recall.
    learner.previous_labels = np.arange(8)
    assert learner.learn(batch, None)["recalled"] == 0


@pytest.mark.parametrize(("held", "kept"), [(5, 5), (6, 4), (7, 3), (9, 1), (10, 10), (12, 10)])
def test_mir_tail_of_the_survey(held: int, kept: int) -> None:
    stream = small_stream(6)
    for published, expected in ((True, kept), (False, min(held, 10))):
        learner, gate = build(stream, "mir", as_published=published)
        batch = batch_of(stream, 0, gate)
        learner.model.head.see(batch.y)
        some = Batch(batch.x[:1].expand(held, -1, -1, -1), batch.y[:1].expand(held), batch.index)
        assert len(learner.most_interfered(some).y) == expected


def test_mir_as_the_real_time_paper_ran_it() -> None:
    stream = small_stream(14)
    learner, batch = after(stream, "mir", 10, recall=4, candidates=20, as_published=True,
                           code="realtime", lr=0.1)  # fmt: skip
    (slots,) = coming_recall(learner, 20)
    candidates = learner.read(learner.memory.index[slots])
    learner.model.train()
    learner.model.head.see(batch.y)
    # theta' from the gradient that the last step left behind.
    model = copy.deepcopy(learner.model)
    ahead = copy.deepcopy(model)
    with torch.no_grad():
        for weight, real in zip(ahead.parameters(), learner.model.parameters(), strict=True):
            weight -= 0.1 * real.grad
        x = normal(candidates.x)
        now, then = (F.cross_entropy(m(x), candidates.y, reduction="none") for m in (model, ahead))
    best = (then - now).argsort()[-4:]
    twin = copy.deepcopy(learner)
    for mine, theirs in zip(twin.model.parameters(), learner.model.parameters(), strict=True):
        mine.grad = theirs.grad.clone()
    chosen = twin.recall(batch)
    assert chosen.y.tolist() == candidates.y[best].tolist()
    assert torch.equal(chosen.x, x[best])
    assert equal(statistics(twin), [b for n, b in model.named_buffers() if "running" in n])
    # One pass over both, as in ER.
    joint = F.cross_entropy(model(torch.cat([normal(batch.x), chosen.x])),
                            torch.cat([batch.y, chosen.y]))  # fmt: skip
    assert twin.loss(batch, chosen).item() == pytest.approx(joint.item(), rel=1e-5)


@pytest.mark.parametrize("code", ["survey", "realtime"])
def test_mir_goes_on_after_it_was_stored(code: str) -> None:
    check_resume("mir", as_published=True, code=code, candidates=12, recall=4)


# DER++


def test_derpp_loss_from_two_recalled_batches() -> None:
    stream = small_stream(12)
    learner, batch = after(stream, "derpp", 6, recall=4, alpha=0.3, beta=0.7, augment="flip")
    twin = copy.deepcopy(learner)
    first, second = coming_recall(learner, 4, 4)
    one, two = (learner.read(learner.memory.index[slots]) for slots in (first, second))
    twin.model.train()
    twin.model.head.see(batch.y)
    x = twin.view(torch.cat([batch.x, one.x, two.x]))
    logits = twin.model.head.scores(twin.model.features(x))
    stored = learner.stored_logits[first]
    distance = ((logits[5:9] - stored) ** 2).sum() / stored.numel()
    loss = F.cross_entropy(logits[:5], batch.y) + 0.3 * distance
    loss = loss + 0.7 * F.cross_entropy(logits[9:], two.y)
    said = learner.learn(batch, None)
    assert said["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert said["recalled"] == 8
    gradients = torch.autograd.grad(loss, list(twin.model.parameters()))
    stepped = [w - 0.05 * g for w, g in zip(weights(twin), gradients, strict=True)]
    assert equal(weights(learner), stepped, 1e-6)


def test_derpp_with_alpha_0_is_er_with_a_weighted_memory() -> None:
    stream = small_stream(12)
    learner, batch = after(stream, "derpp", 6, recall=5, alpha=0.0, beta=1.0, model="mlp",
                           as_published=True)  # fmt: skip
    er, _ = build(stream, "er", recall=5, model="mlp", lr=0.1)  # mean over both halves sums of them
    er.model.load_state_dict(learner.model.state_dict())
    er.model.head.seen[:] = True  # a fixed head
    recalled = learner.recall(batch)
    learner.update(learner.loss(batch, recalled))
    er.update(er.loss(batch, recalled))
    assert equal(weights(learner), weights(er), 1e-6)


def test_derpp_as_published_uses_one_batch_for_both_terms() -> None:
    stream = small_stream(12)
    learner, batch = after(stream, "derpp", 6, recall=4, alpha=0.3, beta=0.7, as_published=True)
    learner.model.train()
    recalled = learner.recall(batch)
    assert len(recalled.y) == 4
    model = copy.deepcopy(learner.model)
    logits = model(normal(torch.cat([batch.x, recalled.x])))
    stored = learner.stored_logits[learner.slots]
    loss = F.cross_entropy(logits[:5], batch.y) + 0.3 * F.mse_loss(logits[5:], stored)
    loss = loss + 0.7 * F.cross_entropy(logits[5:], recalled.y)
    assert learner.loss(batch, recalled).item() == pytest.approx(loss.item(), rel=1e-5)
    # Nothing is masked: classes that never came may be answered, by default they may not.
    unseen = learner.predict(batch.x)[:, ~learner.model.head.seen]
    plain, _ = after(two_tasks(), "derpp", 2)
    assert (plain.predict(batch.x)[:, ~plain.model.head.seen] == -1000).all()
    assert (unseen > -1000).all()


def test_derpp_keeps_the_logits_of_the_training_pass() -> None:
    """Buzzega et al. 2020, Algorithm 2: z = h(x_t) of the augmented image, before the update. With
    recalled samples in the same pass, and batch norm over all of it."""
    learner, batch = after(small_stream(12), "derpp", 6, recall=4, augment="flip")
    twin = copy.deepcopy(learner)
    slots = np.concatenate(coming_recall(learner, 4, 4))
    recalled = learner.read(learner.memory.index[slots])
    twin.model.train()
    x = twin.view(torch.cat([batch.x, recalled.x]))
    expected = twin.model.head.scores(twin.model.features(x))[: len(batch.y)]
    learner.learn(batch, None)
    index = learner.memory.index.tolist()
    kept = [(index.index(i), n) for n, i in enumerate(batch.index.tolist()) if i in index]
    assert kept
    for slot, n in kept:
        assert np.allclose(learner.stored_logits[slot].numpy(), expected[n].detach(), atol=1e-5)


@pytest.mark.parametrize(("settings", "trained"), [({"as_published": True}, True), ({}, False)])
def test_derpp_keeps_the_logits_of_the_image_as_it_is(
    settings: dict[str, Any], trained: bool
) -> None:
    """Soutif-Cormerais et al. 2023, their code (ocl_survey): after training, of the image without
    augmentation. By default only where a batch is stored without training."""
    learner, batch = after(small_stream(6), "derpp", 2, augment="flip", passes=2, **settings)
    if trained:
        learner.learn(batch, None)
    else:
        learner.store(batch)
    slots = [learner.memory.index.tolist().index(i) for i in batch.index.tolist()]
    learner.model.eval()
    with torch.no_grad():
        expected = learner.model.head.scores(learner.model.features(normal(batch.x)))
    assert np.allclose(learner.stored_logits[slots].numpy(), expected.numpy(), atol=1e-6)


def test_derpp_trains_all_outputs_from_the_start() -> None:
    stream = two_tasks()
    moved = {}
    for name in ("derpp", "er"):
        learner, batch = after(stream, name, 0)
        before = learner.model.head.bias.detach().clone()
        learner.learn(batch, None)
        later = [c for c in range(4) if c not in batch.y.tolist()]
        moved[name] = bool((learner.model.head.bias[later] != before[later]).all())
    assert moved == {"derpp": True, "er": False}


# SCR


def test_scr_loss_on_two_views_of_each_sample() -> None:
    stream = small_stream(10)
    learner, batch = after(stream, "scr", 6, recall=8)
    (slots,) = coming_recall(learner, 8)
    recalled = learner.read(learner.memory.index[slots])
    model = copy.deepcopy(learner.model).train()
    pixels = torch.cat([batch.x, recalled.x])
    view = _views.contrastive_view(pixels / 255, copy_of(learner.generator))
    z = model.features(torch.cat([normal(pixels), (view - 0.5) / 0.25]))
    z = model.fc.layers(z)
    z = z / z.norm(dim=1, keepdim=True)
    y = torch.cat([batch.y, recalled.y]).repeat(2)
    expected = _losses.supervised_contrastive(z, y, 0.07)
    assert learner.learn(batch, None)["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


def copy_of(generator: torch.Generator) -> torch.Generator:
    again = torch.Generator()
    again.set_state(generator.get_state())
    return again


def slow_means(learner: Any) -> dict[int, np.ndarray]:
    learner.model.eval()
    found: dict[int, list[np.ndarray]] = {}
    for address in learner.memory.index[learner.memory.slots()]:
        one = learner.read(np.array([address]))
        with torch.no_grad():
            f = learner.model.features(normal(one.x))[0].double().numpy()
        found.setdefault(int(one.y), []).append(f / np.linalg.norm(f))
    means = {c: np.mean(rows, 0) for c, rows in found.items()}
    return {c: mean / np.linalg.norm(mean) for c, mean in means.items()}


def test_scr_answers_by_the_nearest_mean_of_its_memory() -> None:
    stream = small_stream(16, classes=5)
    learner, batch = after(stream, "scr", 12, recall=8, refresh=5, memory=30)
    assert learner.age == 1  # renewed after batches 1, 6 and 11
    stale = learner.predict(batch.x)
    learner.prepare()
    assert learner.age == 0
    scores = learner.predict(batch.x)
    assert not torch.equal(scores, stale)
    means = slow_means(learner)
    for image, row in zip(batch.x, scores, strict=True):
        f = learner.model.features(normal(image[None]))[0].detach().double().numpy()
        f /= np.linalg.norm(f)
        for c in range(5):
            expected = -np.linalg.norm(f - means[c]) if c in means else _contrast.NEVER
            assert row[c].item() == pytest.approx(expected, abs=1e-4)
    before = learner.nearest.means
    learner.prepare()  # nothing new: nothing to do
    assert learner.nearest.means is before


def test_scr_classes_without_a_mean_cannot_win() -> None:
    learner, batch = after(two_tasks(), "scr", 3)
    scores = learner.predict(batch.x)
    missing = ~learner.model.head.seen
    assert missing.any()
    assert (scores[:, missing] == _contrast.NEVER).all()
    assert (scores[:, ~missing] >= -2).all()
    fresh, batch = after(two_tasks(), "scr", 0)
    assert fresh.predict(batch.x).isfinite().all()


def test_scr_as_published_in_its_projection_loss_and_view() -> None:
    stream = small_stream(10)
    learner, batch = after(stream, "scr", 6, recall=8, temperature=0.2, as_published=True)
    features = torch.randn(6, learner.model.feature_size)
    z = learner.model.fc(features)
    unit = features / features.norm(dim=1, keepdim=True)
    assert torch.allclose(z, learner.model.fc.layers(unit), atol=1e-6)
    assert (z.norm(dim=1) - 1).abs().min() > 0.01  # it has the length it has
    plain, _ = build(stream, "scr")
    assert torch.allclose(plain.model.fc(features).norm(dim=1), torch.ones(6))
    (slots,) = coming_recall(learner, 8)
    recalled = learner.read(learner.memory.index[slots])
    model = copy.deepcopy(learner.model).train()
    x = normal(torch.cat([batch.x, recalled.x]))
    z = model(torch.cat([x, _views.contrastive_view(x, copy_of(learner.generator))]))
    loss = _losses.supervised_contrastive(z, torch.cat([batch.y, recalled.y]).repeat(2), 0.2)
    said = learner.learn(batch, None)["loss"].item()
    assert said == pytest.approx(0.2 / 0.07 * loss.item(), rel=1e-4)


def test_scr_as_published_averages_means_and_is_a_batch_late() -> None:
    stream = small_stream(10)
    learner, gate = build(stream, "scr", recall=8, refresh=1, as_published=True)
    fresh, newest = [], {}
    for step in range(5):
        learner.learn(batch_of(stream, step, gate), None)
        fresh.append(slow_means(learner))
        in_use = learner.nearest.means
        for c in range(4):
            old = newest.get(c)  # after the batch before
            if old is None:
                assert in_use[c].isinf().all()
            else:
                assert np.allclose(in_use[c].numpy(), old, atol=1e-5)
        for c, mean in fresh[-1].items():
            newest[c] = mean if c not in newest else (mean + newest[c]) / 2
    seldom, _ = after(stream, "scr", 4, recall=8, refresh=2, as_published=True)
    in_use = seldom.nearest.means
    assert seldom.age == 1
    seldom.prepare()
    assert seldom.nearest.means is in_use  # an evaluation sees them late, too


def test_scr_as_published_shows_the_newest_means_to_a_test_set(tmp_path: Path) -> None:
    """Held-out samples are asked with the means of the batch before, and after them, at a task's
    end, the test set with those of the last one; then training goes on as if nothing had been."""
    stream = two_tasks(20)
    asked: list[tuple[int, bool, bool]] = []  # samples, whether by the newest means, at a boundary

    class Watched(scr.SCR):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            newest = torch.equal(self.nearest.means, self.nearest.newest)
            asked.append((len(x), newest, self.progress.batches in ends))
            return super().predict(x)

    index, task = stream.index(0), np.zeros(5, np.int64)
    ends = [*(np.flatnonzero(np.diff(stream.task)) + 1).tolist(), len(stream)]
    later = stream.index(ends[0])
    held = Split(np.r_[index, later[:2]], np.r_[task, ends[0] + task[:2]], np.r_[task, 1, 1])
    test = Split(index[:3], task[:3], task[:3], at_boundaries=True)
    told = dataclasses.replace(stream, splits={"held_out": held, "test": test})
    protocol = sg.Protocol(predict=False, evaluate=1)
    for published in (True, False):
        asked.clear()
        recipe = sg.learner(Watched, recall=8, refresh=1, as_published=published)
        sg.run(told, recipe, protocol=protocol, out=tmp_path, engine="eager", device="cpu")
        assert sum(size == 3 for size, _, _ in asked) == 2
        for size, newest, boundary in asked:
            assert newest == (not published or size == 3), (size, boundary)
            assert boundary or size != 3


def test_scr_has_the_survey_number_of_parameters() -> None:
    from streamgauge.streams import Spec

    for size, classes, total in ((32, 100, 1_139_508), (64, 200, 1_093_140 + 492_288)):
        stream = small_stream(2)
        gate = Gate(stream.source, stream.preparation, CPU)
        recipe = catalogue.learner("scr", model="slim_resnet18")
        learner: Any = recipe.build(Spec((3, size, size), classes), gate, 0, CPU)
        assert sum(w.numel() for w in learner.model.parameters()) == total


# RAR


def test_rar_with_beta_0_is_er() -> None:
    stream = small_stream(10)
    rar, batch = after(stream, "rar", 5, beta=0.0, model="mlp")
    er, _ = after(stream, "er", 5, model="mlp")
    rar.learn(batch, None)
    er.learn(batch, None)
    assert equal(weights(rar), weights(er), 1e-6)


def slow_push(
    model: Any, x: torch.Tensor, target: int, epsilon: float, iterations: int, decay: float
) -> torch.Tensor:
    """One sample (no batch norm in the model), in pixels."""
    place, speed = x.clone(), torch.zeros_like(x)
    for _ in range(iterations):
        place = place.detach().requires_grad_()
        loss = F.cross_entropy(model(((place - 0.5) / 0.25)[None]), torch.tensor([target]))
        (gradient,) = torch.autograd.grad(loss, place)
        speed = decay * speed + gradient / gradient.abs().sum()
        place = (place - epsilon / iterations * speed.sign()).clamp(0, 1)
    return place.detach()


def test_rar_pushes_each_recalled_sample_towards_its_nearest_new_class() -> None:
    stream = small_stream(14)
    config = {"recall": 6, "epsilon": 0.1, "iterations": 3, "decay": 0.8, "beta": 0.5}
    learner, batch = after(stream, "rar", 8, model="mlp", **config)
    (slots,) = coming_recall(learner, 6)
    old = learner.read(learner.memory.index[slots])
    model = copy.deepcopy(learner.model).train()
    model.head.see(batch.y)
    x = normal(torch.cat([batch.x, old.x]))
    y = torch.cat([batch.y, old.y])
    main = F.cross_entropy(model(x), y)
    gradients = torch.autograd.grad(main, list(model.parameters()))
    ahead = copy.deepcopy(model)
    with torch.no_grad():
        for weight, gradient in zip(ahead.parameters(), gradients, strict=True):
            weight -= 0.1 * gradient
    features = model.features(x).detach()
    pushed = []
    for j in range(6):
        pixels = old.x[j] / 255
        others = [i for i in range(5) if batch.y[i] != old.y[j]]
        if others:
            near = min(others, key=lambda i: float((features[i] - features[5 + j]).norm()))
            pixels = slow_push(ahead, pixels, int(batch.y[near]), 0.1, 3, 0.8)
            before, behind = (
                F.cross_entropy(ahead(((p - 0.5) / 0.25)[None]), batch.y[near : near + 1])
                for p in (old.x[j] / 255, pixels)
            )
            assert behind < before  # towards it
        assert (pixels - old.x[j] / 255).abs().max() <= 0.1 + 1e-6
        pushed.append((pixels - 0.5) / 0.25)
    extra = F.cross_entropy(model(torch.stack(pushed)), old.y)
    said = learner.learn(batch, None)
    assert said["pushed"].item() == pytest.approx(extra.item(), rel=1e-4)
    assert said["loss"].item() == pytest.approx((main + 0.5 * extra).item(), rel=1e-4)
    both = torch.autograd.grad(F.cross_entropy(model(x), y) + 0.5 * extra, list(model.parameters()))
    stepped = [w - 0.05 * g for w, g in zip(model.parameters(), both, strict=True)]
    assert equal(weights(learner), stepped, 1e-5)


def test_rar_leaves_a_sample_alone_that_has_no_other_class_to_go_to() -> None:
    stream = small_stream(6)
    learner, batch = after(stream, "rar", 3, model="mlp")
    x = normal((batch.x > 127).to(torch.uint8) * 255)  # at both ends of the range
    learner.model.train()
    for weight in learner.model.parameters():
        weight.grad = torch.zeros_like(weight)
    free = torch.tensor([True, False, True, True, False])
    pushed = learner.push(x, (batch.y + 1) % 4, free, images=True)
    assert [torch.allclose(a, b, atol=1e-5) for a, b in zip(pushed, x, strict=True)] == (
        ~free
    ).tolist()
    assert pushed.min() >= -2 - 1e-6
    assert pushed.max() <= 2 + 1e-6  # pixels from 0 to 1


def test_rar_probing_leaves_batch_norm_alone() -> None:
    stream = small_stream(8)
    for published in (False, True):
        learner, batch = after(stream, "rar", 4, recall=5, as_published=published)
        twin = copy.deepcopy(learner)
        learner.learn(batch, None)
        counted = {n: int(b) for n, b in learner.model.named_buffers() if "tracked" in n}
        before = {n: int(b) for n, b in twin.model.named_buffers() if "tracked" in n}
        assert all(counted[n] - before[n] == 2 for n in counted)  # ER's pass, and the pushed ones'


@pytest.mark.parametrize("steps", [1, 7])  # an order of the memory that begins, and one half dealt
def test_rar_as_published_pushes_away_from_the_farthest_and_cuts(steps: int) -> None:
    stream = small_stream(14)
    learner, batch = after(stream, "rar", steps, model="mlp", recall=5, iterations=3, epsilon=0.05,
                           virtual_lr=0.3, beta=0.6, as_published=True)  # fmt: skip
    memory = copy.deepcopy(learner.memory)
    recalled = learner.read(memory.index[memory.recall(5)])
    index, _ = _deal.next_shuffled(
        learner.left, 5, memory.index[memory.slots()], memory.rng, whole=False
    )
    other = learner.read(index)
    x, y = normal(torch.cat([batch.x, recalled.x])), torch.cat([batch.y, recalled.y])
    model = copy.deepcopy(learner.model)
    model.head.see(batch.y)
    main = F.cross_entropy(model(x), y)
    ahead = copy.deepcopy(model)
    with torch.no_grad():
        gradients = torch.autograd.grad(main, list(model.parameters()))
        for weight, gradient in zip(ahead.parameters(), gradients, strict=True):
            weight -= 0.3 * gradient
    pushed = []
    for image, label in zip(normal(other.x), other.y, strict=True):
        image = image[None].requires_grad_()
        logits = ahead(image)
        distance = {(logits - there).norm().item(): int(c)
                    for there, c in zip(ahead(x), y, strict=True) if c != label}  # fmt: skip
        target = distance[max(distance)] if distance else 0
        F.cross_entropy(ahead(image), torch.tensor([target])).backward()  # type: ignore[no-untyped-call]
        assert image.grad is not None
        pushed.append((image.detach() + 0.05 / 3 * image.grad.sign()).clamp(0, 1))
    extra = F.cross_entropy(model(torch.cat(pushed)), other.y)
    said = learner.learn(batch, None)
    assert said["pushed"].item() == pytest.approx(extra.item(), rel=1e-4)
    assert said["loss"].item() == pytest.approx((main + 0.6 * extra).item(), rel=1e-4)


def test_the_survey_attack_is_one_step_and_a_cut() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(10, 3, 8, 8, generator=generator)
    sign = torch.randn(10, 3, 8, 8, generator=generator).sign()
    one = (start + 0.05 / 5 * sign).clamp(0, 1)
    for iterations in (2, 5):
        pushed = _probe.push_and_cut(start, sign, 0.05, iterations)
        assert torch.equal(pushed, (start + 0.05 / iterations * sign).clamp(0, 1))
    assert (one - start).abs().mean() == pytest.approx(0.49, abs=0.02)
    inside = start.sigmoid() * 0.5 + 0.25  # where nothing is cut it takes iterations - 1 steps
    pushed = _probe.push_and_cut(inside, sign, 0.05, 5)
    assert torch.allclose(pushed, inside + 4 * 0.05 / 5 * sign)


def test_rar_as_published_deals_from_an_old_order_of_the_memory() -> None:
    stream = small_stream(24)
    learner, gate = build(stream, "rar", model="linear", recall=5, as_published=True)
    missing = []  # samples in memory that cannot be dealt before the order is renewed
    for step in range(16):
        learner.learn(batch_of(stream, step, gate), None)
        held = learner.memory.index[learner.memory.slots()]
        newest = step * 5
        if len(learner.left):
            missing.append(int((held >= newest).sum()))
            assert not (learner.left >= newest).any()
    assert max(missing) == 5
    assert len(missing) > 5


def test_rar_as_published_goes_on_after_it_was_stored() -> None:
    check_resume("rar", as_published=True, recall=4)


# A-GEM


@given(seed=st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_projection_on_the_half_space(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, r = (torch.from_numpy(rng.normal(size=7)) for _ in range(2))
    parts = [g[:3].clone(), g[3:].clone().view(2, 2)]
    conflict = agem.project(parts, (r[:3], r[3:].view(2, 2)))
    found = torch.cat([part.flatten() for part in parts])
    dot = float(g @ r)
    expected = g if dot >= 0 else g - dot / float(r @ r) * r
    assert torch.allclose(found, expected)
    assert bool(conflict) == (dot < 0)
    assert float(found @ r) >= -1e-9  # the reference's loss does not rise, to first order
    nothing = [g.clone()]
    agem.project(nothing, (torch.zeros(7, dtype=torch.float64),))
    assert torch.equal(nothing[0], g)


def test_agem_step_by_autograd() -> None:
    stream = two_tasks(20)
    learner, gate = build(stream, "agem", recall=20, lr=0.1)
    conflicts = 0
    for step in range(16):
        batch = batch_of(stream, step, gate)
        twin = copy.deepcopy(learner)
        (slots,) = coming_recall(learner, 20)
        old = learner.read(learner.memory.index[slots])
        twin.model.train()
        twin.model.head.see(batch.y)
        parameters = list(twin.model.parameters())
        reference = None
        if step:
            loss = F.cross_entropy(twin.model(normal(old.x)), old.y)
            reference = torch.autograd.grad(loss, parameters)
        g = torch.autograd.grad(F.cross_entropy(twin.model(normal(batch.x)), batch.y), parameters)
        if reference is not None:
            flat, ref = (torch.cat([v.flatten() for v in part]) for part in (g, reference))
            if flat @ ref < 0:
                conflicts += 1
                g = tuple(a - (flat @ ref) / (ref @ ref) * b
                          for a, b in zip(g, reference, strict=True))  # fmt: skip
        stepped = [w - 0.1 * v for w, v in zip(weights(twin), g, strict=True)]
        learner.learn(batch, None)
        assert equal(weights(learner), stepped, 1e-5)
        assert equal(statistics(learner), statistics(twin), 1e-6)
    assert conflicts > 0


# GDumb


def test_gdumb_trains_on_its_memory_alone_and_only_when_there_is_something_new() -> None:
    stream = two_tasks(20)
    learner, gate = build(stream, "gdumb", memory=12, epochs=3, batch=5, model="mlp")
    first = weights(learner)
    for step in range(12):
        learner.learn(batch_of(stream, step, gate), None)
    assert equal(weights(learner), first)  # nothing on the way
    held = learner.memory.label[learner.memory.slots()]
    counts = np.bincount(held, minlength=4)
    assert counts.max() - counts[counts > 0].min() <= 1  # greedy and balanced
    reads: list[int] = []
    read = learner.read
    learner.read = lambda index: (reads.extend(index.tolist()), read(index))[1]
    learner.prepare()
    trained = weights(learner)
    assert not equal(trained, first)
    assert set(reads) == set(learner.memory.index[learner.memory.slots()].tolist())
    assert len(reads) == 3 * len(learner.memory)
    learner.prepare()
    assert len(reads) == 3 * len(learner.memory)  # not again
    learner.learn(batch_of(stream, 12, gate), None)
    learner.prepare()
    assert len(reads) > 3 * len(learner.memory)


def test_gdumb_by_hand() -> None:
    stream = small_stream(6)
    learner, gate = build(stream, "gdumb", memory=50, epochs=3, batch=8, lr=0.2, lowest_lr=0.02,
                          momentum=0.9, model="mlp")  # fmt: skip
    model = copy.deepcopy(learner.model)
    for step in range(4):
        learner.learn(batch_of(stream, step, gate), None)
    rng = np.random.default_rng([0, learner.stored])  # seed 0
    slots = learner.memory.slots()
    model.head.see(torch.from_numpy(learner.memory.label[slots]))
    speed = [torch.zeros_like(w) for w in model.parameters()]
    for epoch in range(3):
        lr = 0.02 + 0.18 * (1 + math.cos(math.pi * epoch / 3)) / 2
        order = rng.permutation(slots)
        for start in (0, 8, 16):
            some = learner.read(learner.memory.index[order[start : start + 8]])
            loss = F.cross_entropy(model(normal(some.x)), some.y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for w, v, g in zip(model.parameters(), speed, gradients, strict=True):
                    v.mul_(0.9).add_(g)
                    w -= lr * v
    learner.prepare()
    assert equal(weights(learner), [w.detach() for w in model.parameters()], 1e-5)


def test_gdumb_is_the_same_whether_or_not_it_was_evaluated_before() -> None:
    stream = small_stream(8)
    ends = []
    for evaluations in ((), (2, 4)):
        learner, gate = build(stream, "gdumb", memory=20, epochs=2, model="mlp", momentum=0.5)
        for step in range(6):
            learner.learn(batch_of(stream, step, gate), None)
            if step in evaluations:
                learner.prepare()
        learner.prepare()
        ends.append(weights(learner))
    assert equal(*ends)


def test_gdumb_may_drop_a_short_last_batch() -> None:
    stream = small_stream(6)
    for drop, seen in ((False, 20), (True, 16)):
        learner, gate = build(stream, "gdumb", epochs=1, batch=8, model="linear", drop_last=drop)
        for step in range(4):
            learner.learn(batch_of(stream, step, gate), None)
        reads: list[int] = []
        read = learner.read
        learner.read = lambda index, reads=reads, read=read: (reads.extend(index), read(index))[1]
        learner.prepare()
        assert len(reads) == seen


# All of them


def check_resume(name: str, **config: Any) -> None:
    """Interrupted half-way and taken up again: every weight, statistic and draw as without."""
    stream = two_tasks(16)
    boundary = "boundaries" in catalogue.learner(name).needs
    task = stream.task

    def go(learner: Any, gate: Gate, first: int, last: int) -> None:
        for step in range(first, last):
            if boundary and (step == 0 or task[step] != task[step - 1]):
                learner.tell(boundary=int(task[step]), classes=np.arange(4))
            learner.learn(batch_of(stream, step, gate), None)

    whole, gate = build(stream, name, **config)
    go(whole, gate, 0, 10)
    stored = copy.deepcopy(whole.state_dict())
    go(whole, gate, 10, 14)
    again, gate = build(stream, name, **config)
    for step in range(10):
        batch_of(stream, step, gate)
    again.load_state_dict(stored)
    go(again, gate, 10, 14)
    assert equal(weights(whole), weights(again))
    assert equal(statistics(whole), statistics(again))
    assert torch.equal(whole.generator.get_state(), again.generator.get_state())


@pytest.mark.parametrize("name", ["derpp", "scr", "er_ace"])
def test_as_published_goes_on_after_it_was_stored(name: str) -> None:
    check_resume(name, as_published=True, recall=4)


@pytest.mark.long
def test_methods_keep_what_finetuning_forgets(tmp_path: Path) -> None:
    stream = sg.stream("blobs", per_class=80)
    kept = {}
    for name in ("finetune", "er", "er_ace", "er_lwf", "mir", "derpp", "scr", "rar", "gdumb"):
        own = {"epochs": 4, "batch": 32} if name == "gdumb" else {}
        run = sg.run(stream, sg.learner(name, **own), out=tmp_path)
        kept[name] = sg.score(run)["retained_accuracy"]
    forgotten = kept.pop("finetune")
    assert min(kept.values()) > forgotten + 0.2, kept


def test_every_preset_of_the_survey_builds_a_learner() -> None:
    presets = catalogue.presets()
    rows = ("er", "er_ace", "er_lwf", "mir", "derpp", "scr", "rar", "agem", "gdumb")
    for name, bench in itertools.product(rows, ("survey-cifar100", "survey-tinyimagenet")):
        config: Any = catalogue.learner(f"{name}@{bench}").config
        assert config.policy == "class_balanced"
        assert config.model == "slim_resnet18"
        assert config.memory == (2000 if "cifar" in bench else 4000)
        assert (config.padding == 8) == ("tiny" in bench and name != "scr")
        if hasattr(config, "as_published"):
            assert config.as_published
    assert catalogue.learner("er@survey-cifar100-batch118").config.recall == 118
    assert presets["mir"]["survey-cifar100"]["lr"] == 0.014001056812425501
    plain: Any = catalogue.learner("er@rescaled").config
    assert (plain.policy, plain.memory) == ("reservoir", 2000)


def test_the_memory_of_the_survey_is_balanced_by_class() -> None:
    learner, _ = build(small_stream(2), "er", policy="class_balanced")
    assert isinstance(learner.memory, ClassBalanced)
