"""SGD whose learning rate is a tensor on the device, so that recorded steps read the current rate.

Torch's fused kernel reads such a rate without copying it to the host. It rounds differently from
torch's plain step, so the last digit of a weight may differ (on a CPU: with momentum only).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from streamgauge.learners.replay import er


def movable_sgd(weights: Iterable[Tensor], config: er.Config, rate: float) -> torch.optim.SGD:
    trained = [weight for weight in weights if weight.requires_grad]
    return torch.optim.SGD(
        trained,
        lr=torch.tensor(rate, dtype=torch.float32, device=trained[0].device),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        fused=True,
    )


def set_rate(optimizer: torch.optim.SGD, rate: float) -> None:
    """In place."""
    for group in optimizer.param_groups:
        group["lr"].fill_(rate)


def cosine(high: float, done: float, low: float = 0.0) -> float:
    """A rate that falls from `high` to `low` along a cosine while `done` goes from 0 to 1."""
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2


def forget_speed(optimizer: torch.optim.SGD) -> None:
    """Reset momentum to 0 in place, as before the first step."""
    for state in optimizer.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()


def settle(optimizer: torch.optim.SGD, device: torch.device) -> None:
    """Call it after loading a checkpoint. The optimiser leaves the rate on the device it was saved
    on, and shares it with the checkpoint; and it leaves momentum in the memory layout it was saved
    in, while the fused kernel expects the layout of the weights."""
    for group in optimizer.param_groups:
        group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(device, copy=True)
        group["fused"] = True
    for weight, state in optimizer.state.items():
        if state.get("momentum_buffer") is not None:
            speed = torch.empty_like(weight, requires_grad=False)
            state["momentum_buffer"] = speed.copy_(state["momentum_buffer"])
