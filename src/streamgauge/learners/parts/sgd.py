"""SGD with less overhead than torch's, and with a learning rate that can be changed on the device.

`step` leaves out the hooks, checks and profiler marks of torch's optimiser, which cost more than
the arithmetic of a small network. The rate of `movable_sgd` is a tensor, so that recorded steps
read the current rate: torch's fused kernel reads it without copying it to the host. That kernel
rounds differently, so the last digit of a weight may differ (on a CPU: with momentum only).

`small_passes` are ER's passes for networks so small that calling torch costs more than computing:
gradients in closed form (`models/small.py`), and plain SGD in place. Everything else goes through
torch: a method that overrides how a pass is made, momentum, weight decay, a rate in a tensor,
random views, bytes as inputs, a GPU, a step that is recorded or counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD

from streamgauge import models
from streamgauge.learners.adapter import has_methods_of

if TYPE_CHECKING:
    from streamgauge.learners.parts.replay_batch import Sizes
    from streamgauge.learners.replay import er
    from streamgauge.learners.replay.er import ER


def forget_gradients(optimizer: SGD) -> None:
    """As `zero_grad(set_to_none=True)`."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = None


def step(optimizer: SGD) -> None:
    """As `optimizer.step()`, number for number: w <- w - lr * gradient where that is all there is
    to it; with momentum, weight decay or a rate on the device torch's own step."""
    groups = optimizer.param_groups
    if any(group["momentum"] or group["weight_decay"] or group["fused"] for group in groups):
        optimizer.step()
        return
    with torch.no_grad():
        for group in groups:
            moved = [weight for weight in group["params"] if weight.grad is not None]
            slopes = [weight.grad for weight in moved]
            torch._foreach_add_(moved, slopes, alpha=-group["lr"])


def movable_sgd(weights: Iterable[Tensor], config: er.Config, rate: float) -> SGD:
    trained = [weight for weight in weights if weight.requires_grad]
    return SGD(
        trained,
        lr=torch.tensor(rate, dtype=torch.float32, device=trained[0].device),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        fused=True,
    )


def set_rate(optimizer: SGD, rate: float) -> None:
    """In place."""
    for group in optimizer.param_groups:
        group["lr"].fill_(rate)


def cosine(high: float, done: float, low: float = 0.0) -> float:
    """A rate that falls from `high` to `low` along a cosine while `done` goes from 0 to 1."""
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2


def forget_speed(optimizer: SGD) -> None:
    """Reset momentum to 0 in place, as before the first step."""
    for state in optimizer.state.values():
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].zero_()


def settle(optimizer: SGD, device: torch.device) -> None:
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


PASS = ("choose", "loss", "update", "view", "normalise", "scores")  # methods that make a pass


def small_passes(
    learner: ER, like: type[ER], x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, sizes: Sizes
) -> dict[str, Any] | None:
    """What `like.train` does and returns, if a closed form can do it; else None and no change."""
    if not x.is_cpu or x.dtype != torch.float32 or not has_methods_of(learner, like, PASS):
        return None
    if x.ndim == 4 and learner.config.augment != "none":
        return None
    (group, *others) = learner.optimizer.param_groups
    if others or group["momentum"] or group["weight_decay"] or group["fused"]:
        return None
    weights = models.closed_form(learner.model, len(x) + max(parts[0] for parts in sizes))
    if weights is None:
        return None
    forget_gradients(learner.optimizer)  # none is computed, and an old one would be wrong
    head, rate = learner.model.head, -group["lr"]
    seen, new_y = head.seen.numpy(), y.numpy()
    seen[new_y] = True
    unseen = ~seen if head.masked else None
    new_x, all_x, all_y = x.flatten(1).numpy(), old_x.flatten(1).numpy(), old_y.numpy()
    start = 0
    for pass_sizes in sizes:
        recalled = slice(start, start + pass_sizes[0])
        start += sum(pass_sizes)
        x_of_pass = np.concatenate([new_x, all_x[recalled]])
        y_of_pass = np.concatenate([new_y, all_y[recalled]])
        loss, slopes = models.slopes(x_of_pass, y_of_pass, unseen, weights, scale=rate)
        for weight, slope in zip(weights, slopes, strict=True):
            weight += slope
    return {"loss": loss, "recalled": pass_sizes[0]}
