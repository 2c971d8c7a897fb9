"""Gradients of the plain loss, and what a model would answer one step ahead: without a copy of it,
and without moving batch norm.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from streamgauge.models import Model


def flat(parts: Iterable[Tensor]) -> Tensor:
    """One vector of all entries, without their history.

    >>> flat([torch.ones(1, 2), torch.zeros(1)])
    tensor([1., 1., 0.])
    """
    return torch.cat([part.detach().flatten() for part in parts])


def gradient(model: Model, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross-entropy, by all weights that are trained, in the mode the model is in."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return flat(torch.autograd.grad(F.cross_entropy(model(x), y), weights))


def evaluation_gradient(model: Model, x: Tensor, y: Tensor) -> Tensor:
    """As `gradient`, in evaluation mode; the model is in training mode before and after."""
    model.eval()
    slope = gradient(model, x, y)
    model.train()
    return slope


def scaled_to_one(x: Tensor) -> Tensor:
    """Scaled so that the largest is 1; zeros stay zeros."""
    return x / x.max().clamp(min=torch.finfo(x.dtype).tiny)


def likeness(model: Model, x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """[B]: the largest cosine of each sample's own gradient with `directions` [n, weights], which
    have length 1. A few samples at a time, as each has a gradient as long as the model; in float32,
    as torch cannot map batch norm over samples in mixed precision."""
    weights = {name: w.detach() for name, w in model.named_parameters() if w.requires_grad}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (x[None],)), y[None])

    def cosine(x: Tensor, y: Tensor) -> Tensor:
        parts = grad(loss)(weights, x, y).values()
        gradient = torch.cat([part.flatten() for part in parts])
        return (directions @ F.normalize(gradient, dim=0)).max()

    before, model.precision = model.precision, torch.float32
    try:
        cosines: Tensor = vmap(cosine, chunk_size=16)(x, y)
    finally:
        model.precision = before
    return cosines


def ahead(model: nn.Module, lr: float) -> dict[str, Tensor]:
    """The model's state after one step of plain gradient descent, by the gradients that its weights
    have now, and with copies of its buffers."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    slopes = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    if slopes:
        moved = torch._foreach_add([weights[n] for n in slopes], list(slopes.values()), alpha=-lr)
        weights |= zip(slopes, moved, strict=True)
    return weights | spare_buffers(model)


def spare_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers: a forward pass in training mode moves these and not the model's. Those
    of one kind are copied at once, as each is small."""
    copies: dict[str, Tensor] = {}
    buffers = dict(model.named_buffers())
    for kind in {buffer.dtype for buffer in buffers.values()}:
        alike = {name: buffer for name, buffer in buffers.items() if buffer.dtype == kind}
        whole = torch.cat([buffer.flatten() for buffer in alike.values()])
        parts = torch.split(whole, [buffer.numel() for buffer in alike.values()])
        for (name, buffer), part in zip(alike.items(), parts, strict=True):
            copies[name] = part.view_as(buffer)
    return copies


def interference(
    model: nn.Module, x: Tensor, y: Tensor, lr: float, moves_statistics: bool = False
) -> Tensor:
    """How much each sample's loss would rise, loss(theta - lr g) - loss(theta), in whatever mode
    the model is; `moves_statistics`: the pass under theta moves batch norm's, as passes do."""
    if len(y) == 0:  # batch norm cannot train on nothing
        return x.new_empty(0)
    with torch.no_grad():
        now, then = (
            F.cross_entropy(functional_call(model, state, (x,)), y, reduction="none")
            for state in ({} if moves_statistics else spare_buffers(model), ahead(model, lr))
        )
    return then - now


def scored(model: nn.Module, state: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Samples, and the model's scores of them under this state, for `slope`."""
    x = x.detach().requires_grad_()
    # A view, as torch's FLOP counter cannot follow `grad` down to the very input of a module.
    return x, functional_call(model, state, (x.view_as(x),))


def slope(x: Tensor, scores: Tensor, y: Tensor) -> Tensor:
    """The gradient of each sample's cross-entropy with respect to the sample."""
    return torch.autograd.grad(F.cross_entropy(scores, y, reduction="sum"), x)[0]


def push_and_cut(start: Tensor, uphill: Tensor, epsilon: float, iterations: int) -> Tensor:
    """The survey's attack: up to iterations - 1 equal steps, each cut to 0..1, none after any value
    of the batch has gone further than epsilon. Normalised values lie outside of 0..1, so that the
    first cut is such a move, and the last step."""
    pushed, going = start, torch.ones((), dtype=torch.bool, device=start.device)
    for _ in range(iterations - 1):
        further = (pushed + epsilon / iterations * uphill).clamp(0, 1)
        pushed = torch.where(going, further, pushed)
        going = going & ((pushed - start).abs().max() <= epsilon)
    return pushed


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients of the weights, by name."""
    return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


def set_gradients(model: nn.Module, gradient: dict[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.grad = gradient[name].to(weight.device) if name in gradient else None
