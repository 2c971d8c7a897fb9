"""The methods of the real-time paper and of CLOC, each against something slow and obvious."""

from __future__ import annotations

import copy
import math
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import streamgauge as sg
from helpers import small_stream
from streamgauge import catalogue
from streamgauge.checks.conformance import _CHECKS, _Case, images
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adaptive import polrs
from streamgauge.learners.base import Batch
from streamgauge.learners.parts import gradients as _gradients
from streamgauge.learners.parts.losses import ace_mask
from streamgauge.learners.replay import rwalk
from streamgauge.running import reference
from streamgauge.settings import configure
from streamgauge.streams import Gate, Stream
from streamgauge.suites import load
from streamgauge.suites.running import plan_rows

CPU = torch.device("cpu")
torch.set_num_threads(1)


def build(stream: Stream, name: str, seed: int = 0, **settings: Any) -> Any:
    """A learner, and the gate in `.source`."""
    gate = Gate(stream.source, stream.preparation, CPU)
    return catalogue.learner(name, **settings).build(stream.spec, gate, seed, CPU)


def reveal(learner: Any, stream: Stream, step: int) -> Batch:
    index = stream.index(step).astype(np.int64)
    learner.source.reveal(index)
    learner.source.label_due(index)
    return Batch(learner.source.read(index), learner.source.label(index), index)


def teach(learner: Any, stream: Stream, steps: range) -> list[dict[str, Any]]:
    return [learner.learn(reveal(learner, stream, step), None) for step in steps]


def recalled_next(learner: Any) -> Batch:
    """What it will recall next, from a copy of its memory."""
    ahead = copy.deepcopy(learner.memory)
    return learner.read(ahead.index[ahead.recall(learner.config.recall)])


def pixels(*parts: Tensor) -> Tensor:
    return torch.cat(parts).float().div(255).sub(0.5).div(0.25)


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def hard_stream(steps: int, batch: int, repeat: int = 1) -> Stream:
    """Four faint classes; a label stays for `repeat` batches in the first half of the stream."""
    rng = np.random.default_rng(1)
    count = steps * batch
    label = rng.integers(0, 4, count)
    runs = np.repeat(rng.integers(0, 4, steps), batch * repeat)[: count // 2]
    if repeat > 1:
        label[: count // 2] = runs
    faint = rng.integers(100, 156, (4, 3, 8, 8))[label]
    x = (faint + rng.integers(-90, 91, (count, 3, 8, 8))).astype(np.uint8)
    return sg.stream(x, label, batch=batch)


def slow_cross_entropy(logits: Tensor, y: Tensor, classes: list[list[int]]) -> Tensor:
    """Sample by sample; `classes` says which compete for each."""
    terms = []
    for row, label, among in zip(logits, y.tolist(), classes, strict=True):
        terms.append(torch.logsumexp(row[among], 0) - row[label])
    return torch.stack(terms).mean()


# What a step costs


def counted(learner: Any, batch: Batch) -> int:
    with FlopCounterMode(display=False) as counter:
        learner.learn(batch, None)
    return counter.get_total_flops()


def passes(model: Any, samples: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """FLOPs of a forward pass, and of forward and backward."""
    x = torch.zeros(samples, *shape)
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        model(x)
    with FlopCounterMode(display=False) as both:
        model(x).sum().backward()
    return forward.get_total_flops(), both.get_total_flops()


def costly(stream: Stream, model: str) -> dict[str, Any]:
    """Learners with a full memory and no warm-up left, and the batch they are about to learn."""
    made = {}
    for name, own in {
        "er": {},
        "ace": {},
        "lwf": {"warmup": 10},
        "rwalk": {"warmup": 10},
        "polrs": {},
        "gss": {"policy": "greedy"},
        "adrep": {},
    }.items():
        common = {"model": model, "memory": 20, "recall": 10, "policy": "fifo", "lr": 1e-6}
        if name == "gss":
            common |= {"subsets": 10, "subset": 2}
        learner = build(stream, name, **{**common, **own})
        teach(learner, stream, range(3))
        made[name] = learner
    return made


@pytest.mark.parametrize("model", ["mlp", "cnn4"])
def test_each_method_makes_exactly_the_passes_it_should(model: str) -> None:
    stream = small_stream(6, batch=10)
    for name, learner in costly(stream, model).items():
        flops = counted(learner, reveal(learner, stream, 3))
        once, both = passes(copy.deepcopy(learner.model), 20, (3, 8, 8))
        half = passes(copy.deepcopy(learner.model), 10, (3, 8, 8))[1]
        fifth = passes(copy.deepcopy(learner.model), 2, (3, 8, 8))[1]
        expected = {
            "er": both,
            "ace": 2 * half,
            "lwf": both + once,
            "rwalk": 2 * both,
            "polrs": 3 * both,
            "adrep": both,
            "gss": both + 10 * fifth + half,
        }[name]
        if name == "gss":
            assert learner.scalars["similarity"] > 0, "else each sample's own gradient is needed"
        assert flops == expected, name


def test_relative_cost_is_that_of_the_paper() -> None:
    """Slim ResNet18 at 32 x 32, where the first layer is small. The backward pass does not go on to
    the image, so it costs a little less than two forward passes: that is what is left of LwF's
    deviation from 4/3."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (60, 3, 32, 32)).astype(np.uint8)
    stream = sg.stream(x, np.arange(60) % 10, batch=2)
    common = {"model": "slim_resnet18", "memory": 20, "recall": 2, "policy": "fifo", "lr": 1e-6}
    flops = {}
    for name, own in {
        "er": {},
        "ace": {},
        "lwf": {"warmup": 1},
        "rwalk": {"warmup": 1},
        "polrs": {},
        "gss": {"policy": "greedy", "subset": 2},
    }.items():
        learner = build(stream, name, **{**common, **own})
        for step in range(10):  # fill the memory without training
            reveal(learner, stream, step)
        index = np.arange(20)
        if name == "gss":
            learner.memory.add(index, index % 10, score=np.zeros(20, np.float32))
        else:
            learner.memory.add(index, index % 10)
        learner.model.head.see(torch.arange(10))
        learner.progress.count(20)
        flops[name] = counted(learner, reveal(learner, stream, 10))
    paper = {"ace": 1, "lwf": 4 / 3, "rwalk": 2, "polrs": 3, "gss": 6.5}
    for name, ratio in paper.items():
        assert flops[name] / flops["er"] == pytest.approx(ratio, rel=0.03), name
    assert flops["lwf"] / flops["er"] == pytest.approx(4 / 3, rel=0.003)


@pytest.mark.parametrize("name", ["lwf", "rwalk", "polrs"])
def test_two_gradient_steps_cost_twice(name: str) -> None:
    stream = small_stream(6, batch=10)
    own = {} if name == "polrs" else {"warmup": 10}
    flops = []
    for count in (1, 2):
        learner = build(stream, name, passes=count, lr=1e-6, **own)
        teach(learner, stream, range(3))
        flops.append(counted(learner, reveal(learner, stream, 3)))
    assert flops[1] == 2 * flops[0]


def test_gss_selects_once_a_batch_however_many_steps() -> None:
    stream = small_stream(6, batch=10)
    flops = []
    for count in (1, 2):
        learner = build(stream, "gss", passes=count, lr=1e-6, memory=20, subset=2)
        teach(learner, stream, range(3))
        flops.append(counted(learner, reveal(learner, stream, 3)))
    both = passes(copy.deepcopy(learner.model), 20, (3, 8, 8))[1]
    assert flops[1] == flops[0] + both


# ACE


def test_ace_is_two_restricted_losses_summed() -> None:
    stream = small_stream(8, classes=6)
    learner = build(stream, "ace", lr=0.1, recall=4, model="mlp")
    met: set[int] = set()
    for step in range(8):
        batch = reveal(learner, stream, step)
        twin = copy.deepcopy(learner.model)
        old = recalled_next(learner)
        here = set(batch.y.tolist())
        met |= here
        new_classes = sorted(here | (set(range(6)) - met))
        loss = slow_cross_entropy(
            twin.head.scores(twin.features(pixels(batch.x))), batch.y, [new_classes] * len(batch.y)
        )
        if len(old.y):
            logits = twin.head.scores(twin.features(pixels(old.x)))
            loss = loss + slow_cross_entropy(logits, old.y, [sorted(met)] * len(old.y))
        slopes = torch.autograd.grad(loss, list(twin.parameters()))
        expected = weights(twin) - 0.1 * torch.cat([s.flatten() for s in slopes])
        said = learner.learn(batch, None)
        assert float(said["loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
        assert torch.allclose(weights(learner.model), expected, atol=1e-6)


def test_ace_leaves_absent_old_classes_alone() -> None:
    """No gradient of the incoming term on old classes that the batch lacks; the memory's has."""
    stream = small_stream(4, classes=4)
    learner = build(stream, "ace", model="linear")
    head = learner.model.head
    head.see(torch.arange(3))
    full = reveal(learner, stream, 0)
    batch = Batch(full.x, torch.ones_like(full.y), full.index)  # class 1 only; 0 and 2 are old
    nothing = Batch(full.x[:0], full.y[:0], full.index[:0])
    learner.loss(batch, nothing).backward()
    moved = head.weight.grad.abs().sum(1)
    assert moved[[0, 2]].eq(0).all()
    assert moved[[1, 3]].gt(0).all()
    assert ace_mask(batch.y, head.seen).tolist() == [False, True, False, True]
    head.weight.grad = None
    learner.loss(batch, batch).backward()
    assert head.weight.grad.abs().sum(1)[[0, 2]].gt(0).all()


def test_ace_is_er_ace_with_default_settings() -> None:
    stream = small_stream(10, classes=6)
    a, b = build(stream, "ace", lr=0.1), build(stream, "er_ace", lr=0.1)
    teach(a, stream, range(10))
    teach(b, stream, range(10))
    assert torch.allclose(weights(a.model), weights(b.model), atol=1e-6)


# LwF


def test_lwf_with_alpha_0_is_er() -> None:
    stream = small_stream(12)
    plain = build(stream, "er", lr=0.1)
    kept = build(stream, "lwf", lr=0.1, alpha=0, warmup=5, refresh=3)
    teach(plain, stream, range(12))
    said = teach(kept, stream, range(12))
    assert torch.equal(weights(plain.model), weights(kept.model))
    assert "distillation" in said[-1]


@pytest.mark.parametrize("as_published", [False, True])
def test_lwf_loss_by_hand(as_published: bool) -> None:
    stream = small_stream(12, classes=6)
    how = {"lr": 0.1, "alpha": 0.7, "temperature": 3.0, "warmup": 20, "refresh": 6}
    learner = build(stream, "lwf", as_published=as_published, **how)
    teacher, known, met, taken = None, [], set(), []
    for step in range(12):
        batch = reveal(learner, stream, step)
        if step in (4, 6):  # 20 samples are four batches; then every sixth batch
            teacher, known = copy.deepcopy(learner.model), sorted(met)
            taken.append(step)
        met |= set(batch.y.tolist())
        old = recalled_next(learner)
        twin = copy.deepcopy(learner.model).train()
        twin.head.see(batch.y)
        x, y = pixels(batch.x, old.x), torch.cat([batch.y, old.y])
        logits = twin(x)
        loss = slow_cross_entropy(logits, y, [sorted(met)] * len(y))
        if teacher is not None:
            teacher.train(as_published)
            with torch.no_grad():
                right = teacher(x)[:, known].div(3).softmax(1)
            wrong = logits[:, known].div(3).softmax(1)
            each = [sum(r * math.log(r) for r in row.tolist()) for row in right]
            cross = [-(r * w.log()).sum() for r, w in zip(right, wrong, strict=True)]
            divergence = torch.stack([c + e for c, e in zip(cross, each, strict=True)]).mean()
            loss = loss + 0.7 * divergence * (1 if as_published else 9)
        said = learner.learn(batch, None)
        assert float(said["loss"]) == pytest.approx(float(loss.detach()), rel=1e-4), step
        assert ("distillation" in said) == (step >= 4)
    assert taken == [4, 6]


def test_lwf_as_published_differs_in_the_teachers_mode_and_the_scale() -> None:
    stream = small_stream(8)
    made = [build(stream, "lwf", warmup=5, as_published=flag) for flag in (False, True)]
    for learner in made:
        teach(learner, stream, range(4))
    ours, published = made
    assert (ours.teacher.training, published.teacher.training) == (False, True)
    kept = ours.teacher.layers[1].running_mean.clone()
    moving = published.teacher.layers[1].running_mean.clone()
    teach(ours, stream, range(4, 5))
    teach(published, stream, range(4, 5))
    assert torch.equal(ours.teacher.layers[1].running_mean, kept)
    assert not torch.equal(published.teacher.layers[1].running_mean, moving)
    # On a network without batch norm the mode is nothing, and the factor T^2 is all that is left.
    value = []
    for flag in (False, True):
        learner = build(stream, "lwf", model="mlp", warmup=5, as_published=flag, alpha=0)
        value.append(float(teach(learner, stream, range(6))[-1]["distillation"]))
    assert value[0] == pytest.approx(4 * value[1], rel=1e-4)


# RWalk


def before_the_step(learner: Any, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Weights, and the gradient of ER's loss on the batch and what will be recalled."""
    twin = copy.deepcopy(learner.model)
    twin.head.see(batch.y)
    old = recalled_next(learner)
    loss = F.cross_entropy(twin(pixels(batch.x, old.x)), torch.cat([batch.y, old.y]))
    slopes = torch.autograd.grad(loss, list(twin.parameters()))
    slope = torch.cat([s.flatten() for s in slopes])
    return weights(twin).double().numpy(), slope.double().numpy()


def test_rwalk_by_hand() -> None:
    """Weight by weight in plain floats of 64 bits, gradients by autograd."""
    stream = small_stream(20, batch=4)
    how = {"lr": 0.2, "strength": 3.0, "alpha": 0.8, "path_steps": 2, "warmup": 12, "refresh": 5}
    learner = build(stream, "rwalk", model="linear", recall=3, **how)
    count = len(weights(learner.model))
    fisher, path, score, kept, penalty = (np.zeros(count) for _ in range(5))
    anchor = start = np.zeros(count)
    steps = 0
    for step in range(20):
        batch = reveal(learner, stream, step)
        begun = step >= 3  # 12 samples
        if begun and (step == 3 or step % 5 == 0):
            kept, score = (kept + score) / 2, np.zeros(count)
            relevant = np.maximum(kept, 0)
            penalty = fisher / (fisher.max() or 1) + relevant / (relevant.max() or 1)
            anchor = weights(learner.model).double().numpy()
        theta, slope = before_the_step(learner, batch)
        moved = theta - anchor
        pulled = 3.0 * float((penalty * moved**2).sum())
        new = theta - 0.2 * (slope + 2 * 3.0 * penalty * moved)
        said = learner.learn(batch, None)
        assert float(said["penalty"]) == pytest.approx(pulled, rel=1e-3, abs=1e-7), step
        after = weights(learner.model).double().numpy()
        np.testing.assert_allclose(after, new, atol=2e-5)
        if begun:
            if steps % 2 == 0:
                start, path = theta, np.zeros(count)
            fisher = 0.8 * slope**2 + 0.2 * fisher
            path = path - slope * (after - theta)
            steps += 1
            if steps % 2 == 0:
                score = score + path / (0.5 * fisher * (after - start) ** 2 + rwalk.EPSILON)
    assert pulled > 0
    np.testing.assert_allclose(learner.walk["fisher"].numpy(), fisher, rtol=1e-3, atol=1e-9)
    assert learner.steps == steps == 17
    biggest = np.abs(score).max()
    np.testing.assert_allclose(learner.walk["score"].numpy(), score, atol=2e-3 * biggest)


def test_rwalk_as_published_by_hand() -> None:
    """Weight by weight in plain floats of 64 bits, by the rules of the published code: what it
    remembers, at which steps, and by which counter."""
    stream = small_stream(30, batch=4)
    how = {"lr": 0.2, "strength": 3.0, "alpha": 0.8, "path_steps": 2, "warmup": 12, "refresh": 8}
    learner = build(stream, "rwalk", model="linear", recall=3, as_published=True, stride=3, **how)
    theta = weights(learner.model).double().numpy()
    start, path, score, counter = theta, 0 * theta, 0 * theta, 0
    fisher = kept = penalty = anchor = None
    consolidated = []
    for step in range(30):
        batch = reveal(learner, stream, step)
        theta, slope = before_the_step(learner, batch)
        pull = 0 if penalty is None else 2 * 3.0 * penalty * (theta - anchor)
        learner.learn(batch, None)
        after = weights(learner.model).double().numpy()
        np.testing.assert_allclose(after, theta - 0.2 * (slope + pull), atol=2e-5)
        if step < 3:  # 12 samples
            continue
        fisher = slope**2 if fisher is None else 0.8 * slope**2 + 0.2 * fisher
        path = path - slope * (after - theta)
        if counter == 0 or (counter + 1) % 2 == 0:
            score = score + path / (0.5 * fisher * (after - start) ** 2 + rwalk.EPSILON)
            start, path = after, 0 * theta
        if counter == 0 or (counter + 1) % 8 == 0:
            kept = score if kept is None else (kept + score) / 2
            penalty = fisher / fisher.max() + np.maximum(kept, 0) / kept.max()
            anchor, score, counter = after, 0 * theta, 3 * step
            consolidated.append(step)
        counter += 1
        found = learner.walk["penalty"].double().numpy()
        np.testing.assert_allclose(found, penalty, atol=5e-3, err_msg=str(step))
    # The counter is 9, 27, 39 and 63 there, and goes on by one a step to 15, 31, 47 and 71.
    assert consolidated == [3, 9, 13, 21, 29]
    with pytest.raises(StreamgaugeError, match="counts batches: take one pass over each, not 2"):
        build(stream, "rwalk", as_published=True, passes=2)


def test_rwalk_is_er_until_it_is_warm_and_without_strength() -> None:
    stream = small_stream(12)
    warm = {"warmup": 5, "refresh": 3}
    made = [
        build(stream, "er"),
        build(stream, "rwalk"),
        build(stream, "rwalk", strength=50.0, **warm),
        build(stream, "rwalk", strength=0, **warm),
    ]
    for learner in made:
        teach(learner, stream, range(12))
    er, cold, strong, none = (weights(learner.model) for learner in made)
    assert torch.equal(er, cold)
    assert torch.equal(er, none)
    assert not torch.allclose(er, strong, atol=1e-3)


def test_rwalks_second_pass_leaves_batch_norm_alone() -> None:
    stream = small_stream(8)
    made = [build(stream, "er"), build(stream, "rwalk", strength=0.0, warmup=5)]
    for learner in made:
        teach(learner, stream, range(8))
    for a, b in zip(*(m.model.state_dict().values() for m in made), strict=True):
        assert torch.equal(a, b)


# PoLRS


def slow_polrs(stream: Stream, steps: int, interval: int, lr: float, published: bool, **how: Any):
    """Three ER learners of their own, and a decision in plain Python."""
    three = [build(stream, "er", lr=lr * factor, **how) for factor in (2, 1, 0.5)]
    if published:  # tie of untrained models: the first, whose rate is 2 lr, becomes the centre
        three = [build(stream, "er", lr=lr * factor, **how) for factor in (4, 2, 1)]
    hits, seen, chosen, rates = [0, 0, 0], 0, 1, []
    story = []
    for step in range(steps):
        rates = [learner.optimizer.param_groups[0]["lr"] for learner in three]
        story.append((chosen, rates[chosen]))
        for j, learner in enumerate(three):
            batch = reveal(learner, stream, step)
            hits[j] += int((learner.predict(batch.x).argmax(1) == batch.y).sum())
            learner.learn(batch, None)
        seen += len(batch.y)
        most = max(hits)
        leaders = [j for j in range(3) if hits[j] == most]
        chosen = leaders[0] if published or 1 not in leaders else 1
        answering = copy.deepcopy(three[chosen].model.state_dict())
        if seen // interval > (seen - len(batch.y)) // interval:
            rate, best = rates[chosen], three[chosen]
            for learner, factor in zip(three, (2, 1, 0.5), strict=True):
                learner.model.load_state_dict(copy.deepcopy(best.model.state_dict()))
                kept = learner.optimizer.param_groups[0]
                learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=rate * factor,
                    momentum=kept["momentum"], weight_decay=kept["weight_decay"])  # fmt: skip
            hits, chosen = [0, 0, 0], 1
    return story, answering


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("lr", [0.003, 0.5])
def test_polrs_is_three_learners_and_a_decision(lr: float, as_published: bool) -> None:
    stream = hard_stream(48, batch=6)
    how = {"momentum": 0.5, "weight_decay": 1e-3, "policy": "fifo", "memory": 20, "model": "linear"}
    learner = build(
        stream, "polrs", lr=lr, rate_interval=50, judge="answers", as_published=as_published, **how
    )
    said = teach(learner, stream, range(48))
    story, answering = slow_polrs(stream, 48, 50, lr, as_published, **how)
    assert [(int(s["chosen"]), float(s["lr"])) for s in said] == story
    assert len({rate for _, rate in story}) > 2, "the rates hardly moved: this tests nothing"
    for name, array in learner.model.state_dict().items():
        assert torch.allclose(array.double(), answering[name].double(), atol=1e-4), name


def delayed_polrs(
    stream: Stream, every: int, lr: float, delay: int, shown: bool, **how: Any
) -> tuple[list[list[float]], list[Tensor]]:
    """The real-time paper's code in a plain loop: at a training step the three are copied and then
    trained; the copies answer until the next one, and all their answers count. Every `every` steps,
    the first included, all become the best. `shown=False`: only training steps count."""
    rates, hits = [2 * lr, lr, lr / 2], [0, 0, 0]
    three = [build(stream, "er", lr=rate, **how) for rate in rates]
    trail, ends = [], []
    for step in range(len(stream)):
        if step % every == 0:
            best = hits.index(max(hits))
            middle, hits = rates[best], [0, 0, 0]
            rates = [2 * middle, middle, middle / 2]
            state = copy.deepcopy(three[best].model.state_dict())
            for learner, rate in zip(three, rates, strict=True):
                learner.model.load_state_dict(copy.deepcopy(state))
                learner.optimizer = torch.optim.SGD(
                    learner.model.parameters(), lr=rate, momentum=learner.config.momentum
                )
        trained = step % (delay + 1) == 0
        batches = [reveal(learner, stream, step) for learner in three]
        if trained:
            copies = [copy.deepcopy(learner.model).eval() for learner in three]
        if trained or shown:
            for place, model in enumerate(copies):
                right = model(pixels(batches[0].x)).argmax(1) == batches[0].y
                hits[place] += int(right.sum())
        if trained:
            trail.append(list(rates))
            for learner, batch in zip(three, batches, strict=True):
                learner.learn(batch, None)
            ends.append(torch.stack([weights(learner.model) for learner in three]))
    return trail, ends


@pytest.mark.parametrize("shown", [False, True])
def test_polrs_as_published_is_judged_by_what_it_skips(tmp_path: Path, shown: bool) -> None:
    stream = hard_stream(180, batch=4)
    how = {"momentum": 0.5, "policy": "fifo", "memory": 20, "model": "linear"}
    trail, ends = [], []

    class Watched(polrs.PoLRS):
        def train(self, *inputs: Any) -> dict[str, Any]:
            trail.append(self.pool.rates.tolist())
            said = super().train(*inputs)
            ends.append(torch.stack([weights(model) for model in self.pool.models]))
            return said

    recipe = sg.learner(Watched, lr=0.003, rate_interval=20, judge="answers", as_published=True,
                        **how)  # fmt: skip
    protocol = sg.Protocol(cost="3", as_published=shown, evaluate="never")
    run = sg.run(stream, recipe, protocol=protocol, out=tmp_path, device="cpu", engine="eager")
    rates, models = delayed_polrs(stream, 15, 0.003, 2, shown, **how)
    assert trail == rates
    assert len(trail) == 60
    assert len({three[1] for three in trail}) > 2, "the rates hardly moved: this tests nothing"
    for mine, theirs in zip(ends, models, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    kinds = run.jobs["kind"].tolist()
    assert kinds.count("skipped") == (120 if shown else 0)
    other, _ = delayed_polrs(stream, 15, 0.003, 2, not shown, **how)
    assert other != rates, "what is counted makes no difference here: this tests nothing"


def test_polrs_judged_in_the_training_pass() -> None:
    """The hits are those of the pass that trains, before the update, on new samples only."""
    stream = small_stream(10)
    learner = build(stream, "polrs", lr=0.05, recall=4, passes=2)
    hits = [0, 0, 0]
    for step in range(10):
        batch = reveal(learner, stream, step)
        old = recalled_next(learner)
        for j, model in enumerate(learner.pool.models):
            twin = copy.deepcopy(model).train()
            twin.head.see(batch.y)
            answers = twin(pixels(batch.x, old.x))[: len(batch.y)].argmax(1)
            hits[j] += int((answers == batch.y).sum())
        learner.learn(batch, None)
        assert learner.pool.hits.tolist() == hits


def test_polrs_changes_nothing_at_step_0_and_as_published_doubles() -> None:
    stream = small_stream(3)
    for as_published, first in [(False, 0.01), (True, 0.02)]:
        learner = build(stream, "polrs", lr=0.01, as_published=as_published)
        assert float(teach(learner, stream, range(1))[0]["lr"]) == first
        assert learner.pool.rates.tolist() == [2 * first, first, first / 2]


def test_polrs_ties() -> None:
    stream = small_stream(3)
    for hits, ours, published in [
        ([5, 5, 5], 1, 0), ([4, 5, 5], 1, 1), ([5, 4, 5], 0, 0), ([1, 2, 3], 2, 2),
        ([5, 5, 4], 1, 0), ([0, 0, 0], 1, 0),
    ]:  # fmt: skip
        for as_published, expected in [(False, ours), (True, published)]:
            pool = build(stream, "polrs", as_published=as_published).pool
            pool.hits = torch.tensor(hits)
            pool.choose()
            assert pool.best.tolist() == [expected]


# ADRep


def test_adrep_decides_as_the_algorithm_says() -> None:
    stream = hard_stream(48, batch=5, repeat=6)
    learner = build(stream, "adrep", memory=16, recall=4, size_interval=20, lr=0.1, model="linear")
    size, streamed, replayed, decisions = 16, [], [], set()
    for step in range(48):
        batch = reveal(learner, stream, step)
        old = recalled_next(learner)
        twin = copy.deepcopy(learner.model).train()
        twin.head.see(batch.y)
        right = twin(pixels(batch.x, old.x)).argmax(1) == torch.cat([batch.y, old.y])
        if len(old.y):
            streamed.append(float(right[:5].float().mean()))
            replayed.append(float(right[5:].float().mean()))
        said = learner.learn(batch, None)
        if step % 4 == 3:  # 20 samples
            gap = np.mean(replayed) - np.mean(streamed)
            if gap > 0.005:
                size *= 2
            elif gap < -0.005:
                size = max(1, size // 2)
            decisions.add(np.sign(gap))
            streamed, replayed = [], []
        assert said["memory_size"] == learner.memory.capacity == size
        assert len(learner.memory) <= size
    assert decisions >= {1, -1}, "only one branch was tested"


def test_adrep_forgets_what_does_not_fit_and_stays_below_its_limit() -> None:
    stream = small_stream(8)
    learner = build(stream, "adrep", memory=20, size_interval=10_000, largest=30)
    assert not learner.unbounded
    teach(learner, stream, range(6))
    for gap, size in [((0.9, 0.5), 10), ((0.5, 0.5), 10), ((0.5, 0.504), 10), ((0.5, 0.9), 20),
                      ((0.5, 0.9), 30)]:  # fmt: skip
        learner.sums, learner.compared = torch.tensor(gap) * 3, 3
        learner.decide()
        learner.resize()
        assert learner.memory.capacity == learner.size == size
        if size == 10:
            assert sorted(learner.memory.index) == list(range(20, 30))
    assert build(stream, "adrep").unbounded


def test_adrep_as_published_compares_answers_and_widens_a_window() -> None:
    stream = small_stream(12)
    learner = build(stream, "adrep", memory=5, recall=300, size_interval=10_000, as_published=True)
    assert learner.unbounded
    teach(learner, stream, range(6))
    assert set(recalled_next(learner).index.tolist()) == set(range(25, 30))
    learner.size = 20
    learner.resize()
    assert set(recalled_next(learner).index.tolist()) == set(range(10, 30))  # old ones are back
    # The stream's accuracy is that of the answers it is handed, right or wrong.
    batch = reveal(learner, stream, 6)
    wrong = F.one_hot((batch.y + 1) % 4, 4).float()
    assert float(learner.learn(batch, wrong)["stream_accuracy"]) == 0
    batch = reveal(learner, stream, 7)
    assert float(learner.learn(batch, F.one_hot(batch.y, 4).float())["stream_accuracy"]) == 1
    ours = build(stream, "adrep", memory=5, recall=50)
    teach(ours, stream, range(3))
    batch = reveal(ours, stream, 3)
    plain = copy.deepcopy(ours)
    said = [ours.learn(batch, wrong), plain.learn(batch, None)]
    assert said[0]["stream_accuracy"] == said[1]["stream_accuracy"]  # from the training pass


def test_both_together_follow_the_best_models_accuracies() -> None:
    stream = hard_stream(30, batch=6)
    how = {"memory": 12, "recall": 3, "train_batch": 3, "size_interval": 30, "rate_interval": 45}
    learner = build(stream, "polrs_adrep", lr=0.005, model="mlp", **how)
    said = teach(learner, stream, range(30))
    assert learner.config.policy == "fifo"
    assert len({float(s["lr"]) for s in said}) > 2
    assert len({s["memory_size"] for s in said}) > 1
    assert all(s["steps"] == 2 for s in said)
    assert learner.memory.capacity == learner.size
    # With one model for all three, what is left is ADRep.
    how = {"lr": 0.05, "memory": 12, "recall": 3, "size_interval": 30, "model": "linear"}
    alone, same = build(stream, "adrep", **how), build(stream, "polrs_adrep", **how)
    for optimizer in same.pool.optimizers:
        optimizer.param_groups[0]["lr"] = 0.05
    pairs = zip(teach(alone, stream, range(30)), teach(same, stream, range(30)), strict=True)
    for a, b in pairs:
        assert a["memory_size"] == b["memory_size"]
        assert a.get("replay_accuracy") == b.get("replay_accuracy")


def test_the_published_combination_never_uses_the_new_size() -> None:
    stream = small_stream(30)
    how = {"lr": 0.05, "memory": 10, "recall": 30, "size_interval": 20}
    learner = build(stream, "polrs_adrep", as_published=True, **how)
    said = teach(learner, stream, range(30))
    assert said[-1]["memory_size"] != 10
    assert set(recalled_next(learner).index.tolist()) <= set(range(140, 150))
    assert float(said[0]["lr"]) == 0.05  # and no adjustment before the first step


# GSS


def test_scores_are_cosines_of_each_samples_own_gradient() -> None:
    stream = small_stream(6, batch=7)
    for model in ("mlp", "cnn4"):
        learner = build(stream, "gss", model=model, lr=0.05, memory=14, subset=3, subsets=4)
        teach(learner, stream, range(3))
        learner.model.eval()
        directions = learner.directions(*learner.subsets())
        assert directions.shape == (4, len(weights(learner.model)))
        assert torch.allclose(directions.norm(dim=1), torch.ones(4), atol=1e-5)
        batch = reveal(learner, stream, 3)
        x = pixels(batch.x)
        found = _gradients.likeness(learner.model, x, batch.y, directions)
        for i in range(7):
            loss = F.cross_entropy(learner.model(x[i : i + 1]), batch.y[i : i + 1])
            slopes = torch.autograd.grad(loss, list(learner.model.parameters()))
            own = torch.cat([s.flatten() for s in slopes])
            cosines = [float(F.cosine_similarity(own, d, dim=0)) for d in directions]
            assert float(found[i]) == pytest.approx(max(cosines), abs=1e-4)


def test_each_samples_own_gradient_is_in_float32_whatever_the_network_trains_in() -> None:
    stream = small_stream(2, batch=7)
    learner = build(stream, "gss", model="slim_resnet18", memory=14)
    learner.model.eval()
    batch = reveal(learner, stream, 0)
    x, directions = pixels(batch.x), F.normalize(torch.randn(2, len(weights(learner.model))))
    plain = _gradients.likeness(learner.model, x, batch.y, directions)
    learner.model.precision = torch.bfloat16
    assert torch.equal(_gradients.likeness(learner.model, x, batch.y, directions), plain)
    assert learner.model.precision == torch.bfloat16


def test_gss_compares_in_evaluation_mode_and_moves_no_statistics() -> None:
    stream = small_stream(8, batch=7)
    learner = build(stream, "gss", model="cnn4", lr=0.05, memory=14, subset=3, subsets=4)
    teach(learner, stream, range(6))
    model, memory, batch = copy.deepcopy(learner.model), learner.memory, reveal(learner, stream, 6)

    def slope(index: Any) -> torch.Tensor:
        x, y = pixels(learner.source.read(index)), learner.source.label(index)
        loss = F.cross_entropy(model.eval()(x), y)
        return torch.cat([s.flatten() for s in torch.autograd.grad(loss, [*model.parameters()])])

    drawn = copy.deepcopy(memory.rng).choice(14, (4, 3), replace=False)
    others = [slope(memory.index[slots]) for slots in drawn]
    nearest = max(float(F.cosine_similarity(slope(batch.index), o, dim=0)) for o in others)
    learner.model.train()
    learner.store(batch)
    assert float(learner.scalars["similarity"]) == pytest.approx(nearest, abs=1e-4)
    for name, array in learner.model.state_dict().items():
        assert torch.equal(array, model.state_dict()[name]), name


def test_gss_replaces_only_on_negative_similarity() -> None:
    """Batches of one class each, so that there is some of both kinds."""
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 5, 60), 4)
    x = rng.integers(40, 216, (5, 3, 8, 8))[label] + rng.integers(-40, 41, (240, 3, 8, 8))
    stream = sg.stream(x.clip(0, 255).astype(np.uint8), label, batch=4)
    learner = build(stream, "gss", lr=0.02, memory=10, subset=1, subsets=3, recall=4)
    seen = set()
    changed = 0
    for step in range(60):
        before = learner.memory.index.copy()
        said = learner.learn(reveal(learner, stream, step), None)
        assert said["replaced"] == changed  # by the batch before: until here, nobody had to know
        if step > 2:
            assert (learner.memory.index == before).all()
        learner.decide()
        after = learner.memory.index
        if step < 2:
            assert len(after) == 4 * (step + 1)
        elif step == 2:
            assert after.tolist() == list(range(10))  # two of the four did not fit
            assert "similarity" not in said
        else:
            changed = int((before != after).sum())
            assert changed == 0 or said["similarity"] < 0
            seen.add((bool(said["similarity"] < 0), changed > 0))
            assert all(after[before != after] // 4 == step)
        assert (learner.memory.label == label[after]).all()
    assert {(False, False), (True, True)} <= seen


def test_gss_goes_on_from_a_decision_that_was_not_taken_yet() -> None:
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 5, 60), 4)
    x = rng.integers(40, 216, (5, 3, 8, 8))[label] + rng.integers(-40, 41, (240, 3, 8, 8))
    stream = sg.stream(x.clip(0, 255).astype(np.uint8), label, batch=4)
    settings = {"lr": 0.02, "memory": 10, "subset": 1, "subsets": 3, "recall": 4}
    one, found = build(stream, "gss", **settings), 0
    for step in range(59):
        one.learn(reveal(one, stream, step), None)
        kept = one.undecided is not None and bool(one.undecided.similarity < 0)
        state = copy.deepcopy(one.state_dict())
        assert (state["undecided"] is not None) == kept
        if kept and found < 3:
            two = build(stream, "gss", **settings)
            for past in range(step + 1):
                reveal(two, stream, past)
            two.load_state_dict(state)
            unbroken = copy.deepcopy(one)
            said = [who.learn(reveal(who, stream, step + 1), None) for who in (unbroken, two)]
            assert said[0] == said[1]
            assert (unbroken.memory.index == two.memory.index).all()
            found += said[0]["replaced"] > 0
    assert found == 3
    older = {name: kept for name, kept in state.items() if name not in ("undecided", "replaced")}
    two.load_state_dict(older)
    assert (two.undecided, two.replaced) == (None, 0)


@pytest.mark.parametrize("as_published", [False, True])
def test_gss_draws_and_replaces_with_the_right_odds(as_published: bool) -> None:
    stream = small_stream(4)
    held = np.array([-0.5, 0.0, 0.5, 1.0], np.float32)
    replaced = np.zeros(4)
    learner = build(stream, "gss", memory=4, as_published=as_published)
    trials = 6000
    learner.memory.add(np.arange(4), np.zeros(4), score=held)
    weight = held - held.min() if as_published else held + 1
    expected_draw = weight / weight.sum()
    new = 0.2
    for _ in range(trials):
        learner.memory.replace(np.arange(4), np.arange(4), np.zeros(4), held)
        learner.exchange(np.array([9]), np.array([1]), np.array([new], np.float32))
        gone = learner.memory.index == 9
        replaced += gone
        if gone.any():
            assert learner.memory.side["score"][gone][0] == np.float32(new)
            assert learner.memory.label[gone][0] == 1
    old = held + 1
    expected = expected_draw * old / (old + new + 1)
    assert np.allclose(replaced / trials, expected, atol=4 * np.sqrt(0.25 / trials))
    assert (replaced[0] == 0) == as_published  # the lowest is never drawn there


def test_gss_as_published_takes_gradients_of_augmented_images() -> None:
    stream = small_stream(3)
    x = reveal(build(stream, "gss"), stream, 0).x
    for as_published in (False, True):
        learner = build(stream, "gss", augment="flip", as_published=as_published)
        looks = [learner.look(x) for _ in range(4)]
        plain = all(torch.equal(look, pixels(x)) for look in looks)
        assert plain != as_published


# ER++ and ER--


@settings(max_examples=60, deadline=None)
@given(st.fractions(min_value=Fraction(1, 5), max_value=7, max_denominator=12))
def test_any_rational_pace_is_met_exactly(pace: Fraction) -> None:
    learner = build(small_stream(2), "er_plus", steps=str(pace), model="linear")
    taken = [learner.steps_of(i) for i in range(3 * pace.denominator)]
    assert sum(taken) == 3 * pace.numerator
    assert max(taken) - min(taken) <= 1
    # The k-th step falls due once k / pace batches have come, on the batch that completes it.
    due = [math.ceil(k / pace) - 1 for k in range(1, sum(taken) + 1)]
    assert taken == np.bincount(due, minlength=len(taken)).tolist()


def test_published_patterns() -> None:
    stream = small_stream(2)

    def first(steps: str, as_published: bool) -> list[int]:
        learner = build(stream, "er_plus", steps=steps, as_published=as_published)
        return [learner.steps_of(i) for i in range(6)]

    assert first("4/3", False) == [1, 1, 2, 1, 1, 2]
    assert first("4/3", True) == [2, 1, 1, 2, 1, 1]
    assert first("5/2", False) == first("5/2", True) == [2, 3, 2, 3, 2, 3]
    assert first("3", True) == [3] * 6
    with pytest.raises(sg.StreamgaugeError, match="4/3 and 5/2"):
        first("7/5", True)
    with pytest.raises(sg.StreamgaugeError, match="positive number"):
        first("many", False)


def test_er_plus_with_whole_steps_is_er_with_passes() -> None:
    stream = small_stream(8)
    a, b = build(stream, "er", passes=3), build(stream, "er_plus", steps="3")
    teach(a, stream, range(8))
    assert [s["steps"] for s in teach(b, stream, range(8))] == [3] * 8
    assert torch.equal(weights(a.model), weights(b.model))


def test_er_plus_with_fewer_steps_than_batches_keeps_the_others() -> None:
    stream = small_stream(8)
    learner = build(stream, "er_plus", steps="1/2")
    before = weights(learner.model)
    said = learner.learn(reveal(learner, stream, 0), None)
    assert said["steps"] == 0
    assert torch.equal(weights(learner.model), before)
    said = learner.learn(reveal(learner, stream, 1), None)
    assert (said["steps"], said["recalled"], len(learner.memory)) == (1, 5, 10)


@pytest.mark.parametrize("cost", ["4/3", "2", "5/2"])
def test_er_minus_takes_one_step_a_stream_step_on_fewer_batches(tmp_path: Path, cost: str) -> None:
    stream = small_stream(40)
    run = sg.run(
        stream,
        sg.learner("er_minus", steps=cost, model="linear"),
        protocol=sg.Protocol(cost=cost, evaluate="never"),
        out=tmp_path,
    )
    rows = run.training
    taken = rows["value"][rows["name"] == "steps"]
    trained = rows["step"][rows["name"] == "steps"]
    exact = sg.schedule(cost, 40)
    done = exact.version[-1]
    assert trained.tolist()[:done] == np.flatnonzero(exact.trained)[:done].tolist()
    assert sum(taken) == pytest.approx(float(Fraction(cost)) * len(taken), abs=1)
    assert len(taken) < 40


# Training batches of another size; cosine


@pytest.mark.parametrize(("revealed", "trained"), [(12, 4), (4, 12), (4, 6), (6, 6)])
def test_er_batch_trains_as_if_steps_had_that_size(revealed: int, trained: int) -> None:
    seen = small_stream(120 // revealed, batch=revealed, data_seed=3)
    count = len(seen.order)
    wanted = sg.stream(
        seen.source.read(np.arange(count)), seen.source.label, classes=4, batch=trained
    )
    grouped = build(seen, "er_batch", train_batch=trained, lr=0.1)
    plain = build(wanted, "er", lr=0.1)
    said = teach(grouped, seen, range(120 // revealed))
    teach(plain, wanted, range(120 // trained))
    assert torch.equal(weights(grouped.model), weights(plain.model))
    assert sum(s["steps"] for s in said) == 120 // trained
    assert grouped.waiting is None
    with pytest.raises(sg.StreamgaugeError, match="train_batch"):
        build(seen, "er_batch", train_batch=0)


def test_er_batch_without_a_size_is_er() -> None:
    stream = small_stream(6)
    a, b = build(stream, "er"), build(stream, "er_batch")
    teach(a, stream, range(6))
    teach(b, stream, range(6))
    assert torch.equal(weights(a.model), weights(b.model))


def test_cosine_rate_over_the_horizon(tmp_path: Path) -> None:
    stream = small_stream(30)
    run = sg.run(stream, sg.learner("er_cosine", lr=0.4, model="linear"), out=tmp_path)
    rows = run.training
    rates = rows["value"][rows["name"] == "lr"]
    expected = [0.4 * (1 + math.cos(math.pi * t / 30)) / 2 for t in range(30)]
    assert rates == pytest.approx(expected)
    assert run.header["config"]["learner"]["needs"] == ["horizon"]


def test_adrep_with_a_cosine_is_both(tmp_path: Path) -> None:
    """Cai et al. 2021, section 5.3: the cosine schedule in the analysis of memories. At a rate of 0
    nothing is learnt, and the sizes are those of ADRep at a constant rate of 0."""
    stream = small_stream(40)
    how = {"model": "linear", "memory": 20, "size_interval": 40, "tolerance": 0.0}

    def logged(name: str, scalar: str, **own: Any) -> list[float]:
        rows = sg.run(stream, sg.learner(name, **own), out=tmp_path).training
        return list(rows["value"][rows["name"] == scalar])

    rates = logged("er_cosine", "lr", lr=0.4, model="linear")
    assert logged("adrep_cosine", "lr", lr=0.4, **how) == rates
    sizes = logged("adrep", "memory_size", lr=0.0, **how)
    assert logged("adrep_cosine", "memory_size", lr=0.0, **how) == sizes
    assert len(set(sizes)) > 1


def test_cosine_as_published_moves_once_a_slice() -> None:
    stream = small_stream(4)
    for as_published, distinct in [(False, 900), (True, 90)]:
        learner = build(stream, "er_cosine", as_published=as_published)
        learner.tell(horizon=900)
        assert len({learner.rate(t) for t in range(900)}) == distinct
    assert learner.rate(10) == pytest.approx(0.05 * (1 + math.cos(math.pi / 90)) / 2)


# Floor and ceiling


def test_random_is_uniform_over_what_was_seen() -> None:
    stream = small_stream(2, classes=6)
    learner = build(stream, "random", seed=5)
    empty = torch.empty(100, 0)
    assert len(learner.predict(empty)) == 100
    counts = np.zeros(6)
    for _ in range(60):
        learner.learn(Batch(empty[:2], torch.tensor([1, 4]), np.arange(2)), None)
        scores = learner.predict(empty)
        assert torch.equal(scores, learner.predict(empty))
        counts += np.bincount(scores.argmax(1).numpy(), minlength=6)
        confidence = scores.softmax(1).max(1).values
        assert confidence.tolist() == pytest.approx([0.5] * 100, abs=1e-3)
    assert counts[[0, 2, 3, 5]].sum() == 0
    assert counts[1] / counts.sum() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(6000))
    other = build(stream, "random", seed=6)
    other.seen, other.learnt = learner.seen, learner.learnt
    assert not torch.equal(other.predict(empty), learner.predict(empty))


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_offline_is_plain_training_on_everything(schedule: str) -> None:
    stream = sg.stream("blobs", classes=5, per_class=20)
    config = reference.Config(model="mlp", epochs=2, batch=16, lr=0.1, schedule=schedule)
    found = reference.offline(stream, config, seed=3, device="cpu")
    model = sg.learner("er", model="mlp").build(stream.spec, Gate(stream.source, stream.preparation,
        CPU), 3, CPU).model  # fmt: skip
    rng = np.random.default_rng(3)
    horizon, t = 2 * math.ceil(stream.samples / 16), 0
    for _ in range(2):
        order = rng.permutation(stream.order)
        losses = []
        for start in range(0, len(order), 16):
            index = order[start : start + 16]
            x = pixels(torch.from_numpy(stream.source.read(index)))
            y = torch.from_numpy(stream.source.label[index].astype(np.int64))
            model.head.see(y)
            loss = F.cross_entropy(model(x), y)
            losses.append(float(loss.detach()))
            rate = 0.1 if schedule == "constant" else 0.05 * (1 + math.cos(math.pi * t / horizon))
            t += 1
            for weight, slope in zip(model.parameters(),
                                     torch.autograd.grad(loss, list(model.parameters())),
                                     strict=True):  # fmt: skip
                weight.data -= rate * slope
    assert found.loss[-1] == pytest.approx(np.mean(losses), rel=1e-3)
    split = stream.splits["held_out"]
    answers = model(pixels(torch.from_numpy(stream.source.read(split.index)))).argmax(1)
    assert (found.answers["held_out"] == answers.numpy()).mean() > 0.97
    assert found.steps == horizon
    right = found.answers["held_out"] == stream.source.label[split.index]
    assert found.accuracy["held_out"] == right.mean()
    with pytest.raises(sg.StreamgaugeError, match="held_out"):
        reference.offline(sg.stream("markov", length=50))


# Everything together


TRIGGERED = {
    "lwf": {"warmup": 8, "refresh": 5},
    "rwalk": {"warmup": 8, "refresh": 5, "path_steps": 3},
    "polrs": {"rate_interval": 20, "momentum": 0.9},
    "gss": {"memory": 10, "subset": 2},
    "er_plus": {"steps": "4/3"},
    "er_batch": {"train_batch": 6},
    "adrep": {"size_interval": 16, "memory": 10, "as_published": True},
    "adrep_cosine": {"size_interval": 16, "memory": 10, "as_published": True},
    "polrs_adrep": {"size_interval": 16, "rate_interval": 24, "train_batch": 3, "memory": 10,
                    "largest": 20},
}  # fmt: skip


@pytest.mark.parametrize("name", TRIGGERED)
def test_the_contract_holds_when_everything_happens(name: str) -> None:
    """The kit's stream is short: with default settings no refresh or adjustment falls into it."""
    recipe = catalogue.learner(name, model="linear", **TRIGGERED[name])
    for check in (
        "predict changes nothing",
        "a resumed run is identical",
        "a batch of one",
        "same seed, same result",
        "nothing used that `needs` does not declare",
    ):
        _CHECKS[check](_Case(recipe, CPU, images()))


KEEPERS = {
    "ace": {},
    "lwf": {"warmup": 100, "refresh": 20},
    "rwalk": {"warmup": 100, "refresh": 20},
    "polrs": {"rate_interval": 200},
    "gss": {"memory": 100, "subset": 5},
    "er_plus": {"steps": "3/2"},
    "adrep": {"memory": 300, "size_interval": 200},
    "er_cosine": {},
}


def test_replay_keeps_what_finetuning_forgets(tmp_path: Path) -> None:
    stream = sg.stream("blobs", per_class=60)
    protocol = sg.Protocol(evaluate="end", predict=False)

    def retained(name: str, **own: Any) -> float:
        run = sg.run(stream, sg.learner(name, **own), out=tmp_path, protocol=protocol)
        return float(sg.score(run)["retained_accuracy"])

    floor = retained("finetune")
    for name, own in KEEPERS.items():
        assert retained(name, **own) > floor + 0.1, name


# The papers' settings

PRESETS = Path(catalogue.__file__).parent / "learners" / "presets"


@pytest.mark.parametrize("paper", ["realtime", "cloc"])
def test_every_preset_is_a_valid_setting(paper: str) -> None:
    tables = tomllib.loads((PRESETS / f"{paper}.toml").read_text())
    for name, presets in tables.items():
        for preset, values in presets.items():
            if name == "offline":
                config = configure(reference.Config, values, name)
            else:
                config = catalogue.learner(f"{name}@{preset}").config
            assert (config.momentum, config.weight_decay) == (0.9, 1e-4)
            if paper == "realtime" and "cifar" in preset:
                assert (config.memory, config.recall, config.augment) == (100, 10, "flip")


def test_learning_rates_are_the_papers() -> None:
    rates = {
        "realtime-cifar10": dict.fromkeys(["er", "ace", "lwf", "rwalk", "er_plus"], 0.001)
        | dict.fromkeys(["polrs", "mir", "gss"], 0.005),
        "realtime-cifar100": dict.fromkeys(["er", "ace", "polrs", "er_plus"], 0.001)
        | dict.fromkeys(["lwf", "rwalk", "gss"], 0.005) | {"mir": 0.01},
        "realtime-cloc": dict.fromkeys(["er", "ace", "lwf", "rwalk", "mir", "gss"], 0.005)
        | {"polrs": 0.001},
    }  # fmt: skip
    for preset, wanted in rates.items():
        for name, rate in wanted.items():
            assert catalogue.presets()[name][preset]["lr"] == rate, (name, preset)


def test_counts_of_the_fast_stream_are_those_of_the_batches_trained() -> None:
    """Warm-up ends when i / 4900 > 0.05, on the stream's clock; adjustments are 275 steps apart."""
    known = catalogue.presets()
    for data in ("cifar10", "cifar100"):
        for name, cost in [("lwf", "4/3"), ("rwalk", "2")]:
            for end, price in [("", "1"), ("-fast", cost)]:
                trained = sg.schedule(price, 4900).trained
                expected = 10 * int(trained[[i / 4900 <= 0.05 for i in range(4900)]].sum())
                assert known[name][f"realtime-{data}{end}"]["warmup"] == expected
        assert known["polrs"][f"realtime-{data}"]["rate_interval"] == 10 * 5 * math.ceil(4900 / 90)
        assert known["polrs"][f"realtime-{data}-fast"]["rate_interval"] == round(2750 / 3)


def test_intervals_of_cloc_are_whole_steps_of_the_published_code() -> None:
    """Five of 90 parts of ceil(steps / 90) steps each, in samples that are trained on."""
    found = 0
    for planned in plan_rows(load("realtime-cloc").rows, [0]):
        row = planned.row
        if row.method.startswith("polrs"):
            steps = math.ceil((2_064_152 if row.part.startswith("rate") else 38_003_083) / 128)
            wanted = 5 * math.ceil(steps / 90) * 128 / Fraction(planned.protocol.cost)
            assert abs(planned.recipe.config.rate_interval - wanted) < 1, row.title
            found += 1
    assert found > 10
