"""Training on weights padded with zeros is training on the weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from streamgauge import models
from streamgauge.learners.parts.gradients import ahead, scored, slope
from streamgauge.models.wide import Padding, Wide, padded


def network(name: str, shape: tuple[int, ...], last: bool = True, wide: bool = False) -> Any:
    model = models.build(name, shape, 10, seed=0, masked=False).train()
    if last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if wide:
        model.precision = torch.bfloat16
        model.wide = Wide(model, torch.bfloat16)
    return model


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("slim_resnet18", (3, 16, 16)), ("slim_resnet18", (1, 28, 28)), ("resnet18", (3, 32, 32))],
)
def test_features_gradients_and_statistics_are_the_networks_own(
    name: str, shape: tuple[int, ...], last: bool
) -> None:
    plain, other = network(name, shape, last), network(name, shape, last)
    wide, rng = Wide(other, torch.float32), torch.Generator().manual_seed(1)
    for _ in range(2):  # the second time with statistics that have moved
        x = torch.randn(6, *shape, generator=rng)
        wanted, found = plain.body(x), wide(x)
        assert torch.allclose(wanted, found, atol=1e-3)
        for model, features in ((plain, wanted), (other, found)):
            model.zero_grad()
            features.square().sum().backward()
    for (name, one), two in zip(plain.named_parameters(), other.parameters(), strict=True):
        if not name.startswith("fc"):
            assert torch.allclose(one.grad, two.grad, rtol=1e-4, atol=1e-4 * one.grad.abs().max())
            assert two.grad.shape == two.shape
            assert two.grad.stride() == two.stride()  # else the optimiser takes one by one
    for one, two in zip(plain.buffers(), other.buffers(), strict=True):
        assert torch.allclose(one.float(), two.float(), atol=1e-5)
    assert other.bn1.running_mean.abs().sum() > 0


def test_padded_channels_stay_zero_and_real_ones_do_not() -> None:
    model = network("slim_resnet18", (3, 16, 16))
    seen: list[Tensor] = []
    model.layer1.register_forward_hook(lambda _module, _given, out: seen.append(out))
    Wide(model, torch.bfloat16)(torch.randn(4, 3, 16, 16))
    assert seen[0].shape[1] == 24
    assert seen[0].dtype == torch.bfloat16
    assert torch.equal(seen[0][:, 20:], torch.zeros_like(seen[0][:, 20:]))
    assert (seen[0][:, :20].flatten(2).sum((0, 2)) > 0).all()


def test_it_takes_the_weights_that_lie_in_the_network_when_called() -> None:
    """Also those that `functional_call` puts there, as methods do that ask what a step would do."""
    model = network("slim_resnet18", (3, 16, 16), wide=True)
    x = torch.randn(4, 3, 16, 16)
    other = {name: weight.detach() * 1.5 for name, weight in model.named_parameters()}
    spare = {name: buffer.clone() for name, buffer in model.named_buffers()}
    before = copy.deepcopy(model)
    said = functional_call(model, other | spare, (x,))
    for (name, one), two in zip(model.named_buffers(), before.buffers(), strict=True):
        assert torch.equal(one, two), name
    assert not torch.equal(spare["bn1.running_mean"], before.bn1.running_mean)
    moved = copy.deepcopy(before)
    assert moved.wide._body.model is moved  # a copy trains its own weights
    moved.load_state_dict({**moved.state_dict(), **other})
    assert torch.equal(moved(x), said)
    assert not torch.equal(before(x), said)


def test_gradients_under_other_weights_do_not_mind_that_statistics_move() -> None:
    """RAR takes them; buffers put in place of the network's share their memory, and so does what
    autograd knows of changes to them."""
    x, y = torch.randn(4, 3, 16, 16), torch.arange(4)
    slopes = []
    for wide in (False, True):
        model = network("slim_resnet18", (3, 16, 16), wide=wide)
        model.precision = torch.bfloat16
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        state, before = ahead(model, 0.1), copy.deepcopy(model.state_dict())
        once = scored(model, state, x)
        scored(model, state, -x)  # moves the same statistics once more before the slope is taken
        slopes.append(slope(*once, y))
        assert not torch.equal(state["bn1.running_mean"], before["bn1.running_mean"])
        assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    size = slopes[0].abs().max()
    assert size > 0
    assert torch.allclose(*slopes, atol=0.02 * float(size))


def test_a_flop_counter_sees_the_network_and_not_the_padding() -> None:
    counts = []
    for wide in (False, True):
        model = network("slim_resnet18", (3, 16, 16), wide=wide)
        with FlopCounterMode(display=False) as counter:
            model(torch.randn(2, 3, 16, 16)).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_in_evaluation_the_network_is_asked_as_it_is() -> None:
    model, plain = (
        network("slim_resnet18", (3, 16, 16), wide=wide).eval() for wide in (True, False)
    )
    plain.precision = torch.bfloat16
    x = torch.randn(3, 3, 16, 16)
    assert torch.equal(model(x), plain(x))


def test_padding_brings_back_what_it_was_given() -> None:
    own = [torch.randn(5, 3, 3, 3), torch.randn(7), torch.randn(9, 8, 1, 1)]
    own[2] = own[2].to(memory_format=torch.channels_last)
    lay = Padding(own, 8)
    wide = lay.spread(own)
    for one, two, back in zip(own, wide, lay.gather(wide), strict=True):
        assert tuple(two.shape) == padded(one.shape, 8)
        within = tuple(map(slice, one.shape))
        assert torch.equal(two[within], one)
        assert two.abs().sum() == pytest.approx(float(one.abs().sum()), rel=1e-5)
        assert torch.equal(back, one)
        assert back.stride() == one.stride()
