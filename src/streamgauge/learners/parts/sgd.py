"""An SGD step without the hooks, checks and profiler marks of torch's optimiser, which cost more
than the arithmetic of a small network."""

from __future__ import annotations

import torch
from torch.optim import SGD


def forget_gradients(optimizer: SGD) -> None:
    """As `zero_grad(set_to_none=True)`."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = None


def step(optimizer: SGD) -> None:
    """As `optimizer.step()`, number for number: w <- w - lr * gradient where that is all there is
    to it; with momentum, weight decay or a rate on the device (`rate.py`) torch's own step."""
    groups = optimizer.param_groups
    if any(group["momentum"] or group["weight_decay"] or group["fused"] for group in groups):
        optimizer.step()
        return
    with torch.no_grad():
        for group in groups:
            moved = [weight for weight in group["params"] if weight.grad is not None]
            slopes = [weight.grad for weight in moved]
            torch._foreach_add_(moved, slopes, alpha=-group["lr"])
