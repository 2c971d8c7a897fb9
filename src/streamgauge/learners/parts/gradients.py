"""Gradients of the plain loss as flat vectors: of a batch, and of each sample by itself."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor
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
