"""Steps of small networks in closed form: what autograd gives, and only where nobody asked for
anything else."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import streamgauge as sg
from helpers import CPU, batch_of, same_log
from streamgauge import models
from streamgauge.learners.parts import sgd as _small
from streamgauge.learners.replay import er
from streamgauge.running.loop import Loop
from streamgauge.running.profile import Profile
from streamgauge.streams import Gate, Stream

CLASSES = 7
SMALL: dict[str, Any] = {"model": "mlp", "recall": 6, "memory": 40, "policy": "class_balanced"}


def features(steps: int = 30, batch: int = 5) -> Stream:
    rng = np.random.default_rng(0)
    label = rng.integers(0, CLASSES, steps * batch)
    centre = rng.normal(size=(CLASSES, 12))
    x = (centre[label] + rng.normal(size=(len(label), 12))).astype(np.float32)
    return sg.stream(x, label, batch=batch, held_out=0.2)


def network(hidden: tuple[int, ...] = (8, 6), masked: bool = True) -> models.Model:
    if not hidden:
        return models.build("linear", (12,), CLASSES, 0, masked=masked)
    return models.build("mlp", (12,), CLASSES, 0, masked=masked, hidden=hidden)


# --- the arithmetic


@pytest.mark.parametrize("hidden", [(), (8,), (8, 6), (16, 8, 4)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("count", [1, 20])
def test_slopes_are_those_of_autograd(hidden: tuple[int, ...], masked: bool, count: int) -> None:
    model = network(hidden, masked)
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 12, generator=rng)
    y = torch.randint(0, 5, (count,), generator=rng)
    y[0] = 6  # of a class that was not met: its logit is fixed, so nothing comes back through it
    model.head.see(torch.arange(5))
    expected = F.cross_entropy(model(x), y)
    expected.backward()
    weights = models.closed_form(model, count)
    assert weights is not None
    unseen = ~model.head.seen.numpy() if masked else None
    loss, slopes = models.slopes(x.numpy(), y.numpy(), unseen, weights)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    parameters = dict(model.named_parameters())
    assert len(slopes) == len(parameters) == 2 * len(hidden) + 2
    order = [f"layers.{2 * i}.{kind}" for i in range(len(hidden)) for kind in ("weight", "bias")]
    for name, slope in zip([*order, "fc.weight", "fc.bias"], slopes, strict=True):
        np.testing.assert_allclose(slope, parameters[name].grad, rtol=1e-4, atol=1e-7, err_msg=name)
        assert slope.dtype == np.float32
    weights[0] += 1  # the very memory of the network
    assert torch.equal(next(model.parameters()), torch.from_numpy(weights[0]))


def test_a_network_that_diverges_has_nan_and_no_warning() -> None:
    model = network()
    weights = models.closed_form(model, 3)
    assert weights is not None
    weights[0][:] = 1e38
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss, _ = models.slopes(np.full((3, 12), 9, np.float32), np.zeros(3, int), None, weights)
    assert np.isnan(loss)


def test_there_is_a_closed_form_only_for_what_it_describes() -> None:
    def changed(act: Any) -> Any:
        model = network()
        act(model)
        return models.closed_form(model, 20)

    def swap(model: Any) -> None:
        model.layers[1] = nn.GELU()

    def without_bias(model: Any) -> None:
        model.layers[2] = nn.Linear(8, 6, bias=False)

    assert changed(lambda model: None) is not None
    assert changed(swap) is None
    assert changed(without_bias) is None
    assert changed(lambda model: model.layers.append(nn.ReLU())) is None
    assert changed(lambda model: models.suit(model, CPU).double()) is None
    assert changed(lambda model: setattr(model, "precision", torch.bfloat16)) is None
    assert changed(lambda model: model.layers.requires_grad_(False)) is None
    for part in ("", "layers", "layers.0", "layers.1", "fc"):
        for kind in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
            hook = f"register_{kind}_hook"
            assert changed(lambda m, p=part, h=hook: getattr(m.get_submodule(p), h)(print)) is None
    assert changed(lambda model: model.fc.bias.register_hook(lambda g: g)) is None
    bias_hook = "register_post_accumulate_grad_hook"
    assert changed(lambda model: getattr(model.fc.bias, bias_hook)(print)) is None
    assert models.closed_form(network(), 1 << 18) is None  # not small
    assert models.closed_form(models.build("mlp", (12,), 7, 0), 20) is None
    assert models.closed_form(models.build("mlp", (12,), 7, 0, head="cosine"), 20) is None
    assert models.closed_form(models.build("cnn4", (3, 8, 8), 7, 0), 20) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert models.closed_form(network(), 20) is None
    with FlopCounterMode(display=False):
        assert models.closed_form(network(), 20) is None

    class Own(models.small.Mlp):  # type: ignore[name-defined, misc]
        """May do anything in `body`."""

    own = Own((12,), hidden=(8,))
    own.fc = models.LinearHead(8, CLASSES)
    assert models.closed_form(own, 20) is None


# --- ER with it


class Small(er.ER):
    """Smaller than the network that it would get by name."""

    def build_model(self, spec: Any, seed: int) -> models.Model:
        if self.config.model == "linear":
            return super().build_model(spec, seed)
        return models.build("mlp", spec.input_shape, spec.classes, seed, hidden=(8, 6))


class ByTorch(Small):
    """The same, by way of autograd."""

    def loss(self, batch: Any, recalled: Any) -> Any:
        return super().loss(batch, recalled)


def learnt(kind: type[er.ER], steps: int = 12, **settings: Any) -> tuple[Any, list[Any]]:
    stream = features()
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = kind(stream.spec, gate, 0, CPU, er.Config(**(SMALL | settings)))
    return learner, [learner.learn(batch_of(stream, s, gate), None) for s in range(steps)]


@pytest.mark.parametrize("settings", [{}, {"passes": 3}, {"recall": 0}, {"model": "linear"}])
def test_er_learns_as_by_autograd(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    slopes = models.slopes
    monkeypatch.setattr(models, "slopes", lambda *a, **k: (calls.append(1), slopes(*a, **k))[1])
    quick, said = learnt(Small, **settings)
    assert len(calls) == 12 * settings.get("passes", 1)
    plain, expected = learnt(ByTorch, **settings)
    assert len(calls) == 12 * settings.get("passes", 1)
    for a, b in zip(said, expected, strict=True):
        assert a.keys() == b.keys()
        assert a["recalled"] == b["recalled"]
        assert a["loss"] == pytest.approx(float(b["loss"]), rel=1e-4)
    for (name, a), b in zip(
        quick.model.state_dict().items(), plain.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
    np.testing.assert_array_equal(quick.memory.index, plain.memory.index)
    assert all(w.grad is None for w in quick.model.parameters())


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"weight_decay": 0.01}])
def test_other_optimisers_are_torchs(settings: dict[str, float]) -> None:
    quick, _ = learnt(Small, **settings)
    plain, _ = learnt(ByTorch, **settings)
    for a, b in zip(quick.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_rate_that_changes_is_torchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in a tensor, so that a recorded step finds it."""
    recipe = sg.learner("er_cosine", **(SMALL | {"model": "linear"}))
    run = sg.run(features(), recipe, out=tmp_path / "a", log=str)
    monkeypatch.setattr(er, "small_passes", lambda *given: None)
    assert same_log(run, sg.run(features(), recipe, out=tmp_path / "b", log=str))


@pytest.mark.parametrize("name", ["choose", "loss", "update", "view", "scores"])
@pytest.mark.parametrize("how", ["class", "instance"])
def test_what_a_method_changes_is_called(name: str, how: str) -> None:
    calls = []

    def own(self: Any, *given: Any) -> Any:
        calls.append(name)
        return getattr(er.ER, name)(self, *given)

    if how == "class":
        learnt(type("Own", (Small,), {name: own}), steps=3)
    else:
        stream = features()
        gate = Gate(stream.source, stream.preparation, CPU)
        learner: Any = Small(stream.spec, gate, 0, CPU, er.Config(**SMALL))
        setattr(learner, name, own.__get__(learner))
        for step in range(3):
            learner.learn(batch_of(stream, step, gate), None)
    assert len(calls) >= 3


def test_a_copy_learns_by_itself() -> None:
    learner, _ = learnt(Small)
    twin = copy.deepcopy(learner.model)
    before = [weight.detach().clone() for weight in twin.parameters()]
    stream = features()
    gate = Gate(stream.source, stream.preparation, CPU)
    learner.source = gate
    for step in range(15):
        batch = batch_of(stream, step, gate)
        if step >= 12:
            learner.learn(batch, None)
    assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), before, strict=True))
    assert not torch.equal(next(learner.model.parameters()), next(twin.parameters()))


def test_runs_profiled_resumed_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    passes = _small.small_passes
    monkeypatch.setattr(
        er, "small_passes", lambda *given: (done := passes(*given), calls.append(done))[0]
    )
    stream, recipe = features(), sg.learner("er", **(SMALL | {"model": "linear"}))
    whole = sg.run(stream, recipe, out=tmp_path / "whole", log=str)
    quick = [done for done in calls if done is not None]
    assert 0 < len(calls) - len(quick) < 12  # jobs whose FLOPs are counted go through torch
    assert len(quick) > 12
    assert same_log(whole, sg.run(stream, recipe, out=tmp_path / "p", log=str, profile=Profile()))

    def stop(loop: Loop) -> None:
        if loop.step == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.run(stream, recipe, out=tmp_path / "cut", checkpoint=0.0, progress=stop, log=str)
    assert same_log(whole, sg.run(stream, recipe, out=tmp_path / "cut", log=str))
    flops = whole.table("jobs")["flops"]
    assert len(set(flops[-10:])) == 1
    assert flops[-1] > 0
