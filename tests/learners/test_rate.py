"""SGD with a rate on the device against SGD written out."""

from __future__ import annotations

import copy

import pytest
import torch

from streamgauge.learners.parts.sgd import (
    forget_gradients,
    forget_speed,
    movable_sgd,
    set_rate,
    settle,
    step,
)
from streamgauge.learners.replay import er

CPU = torch.device("cpu")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_step_takes_the_rate_that_lies_there(momentum: float, decay: float) -> None:
    """And momentum that was forgotten begins as at the first step."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(7, generator=generator))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    config = er.Config(momentum=momentum, weight_decay=decay)
    optimizer = movable_sgd([weight, frozen], config, 0.5)
    place = optimizer.param_groups[0]["lr"].data_ptr()
    by_hand, speed = weight.detach().double(), torch.zeros(7, dtype=torch.float64)
    for number, rate in enumerate((0.5, 0.5, 0.1, 0.2, 0.0, 0.3)):
        set_rate(optimizer, rate)
        if number == 3:
            forget_speed(optimizer)
            speed = torch.zeros_like(speed)
        slope = torch.randn(7, generator=generator)
        forget_gradients(optimizer)
        (weight * slope).sum().backward()
        step(optimizer)
        speed = momentum * speed + slope.double() + decay * by_hand
        by_hand = by_hand - rate * speed
        assert torch.allclose(weight.detach().double(), by_hand, atol=1e-6), number
    assert optimizer.param_groups[0]["lr"].data_ptr() == place
    assert frozen.tolist() == [1, 1]


def test_a_loaded_rate_is_not_shared_with_the_checkpoint() -> None:
    """Also one that was saved as a plain number, by a step of another kind."""
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    first, second = (movable_sgd([w], er.Config(momentum=0.9), 0.5) for w in weights)
    set_rate(first, 0.25)
    state = first.state_dict()
    for saved in (state, copy.deepcopy(state)):
        if saved is not state:
            saved["param_groups"][0] |= {"lr": 0.25, "fused": None}
        second.load_state_dict(saved)
        settle(second, CPU)
        group = second.param_groups[0]
        assert (float(group["lr"]), group["fused"], group["momentum"]) == (0.25, True, 0.9)
        set_rate(second, 0.125)
        assert float(first.param_groups[0]["lr"]) == 0.25
        assert float(saved["param_groups"][0]["lr"]) == 0.25


def test_momentum_of_another_layout_is_laid_as_the_weights_are() -> None:
    """A GPU has weights of convolutions channels first, a processor channels last."""
    weights = [torch.nn.Parameter(torch.zeros(2, 3, 2, 2)) for _ in range(2)]
    weights[1].data = weights[1].data.to(memory_format=torch.channels_last)
    slope = torch.arange(24.0).view(2, 3, 2, 2)
    optimizers = [movable_sgd([w], er.Config(momentum=0.5), 1.0) for w in weights]
    (weights[0] * slope).sum().backward()
    step(optimizers[0])
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    settle(optimizers[1], CPU)
    weights[1].grad = torch.zeros_like(weights[1])
    step(optimizers[1])
    assert torch.equal(weights[1], -0.5 * slope)
