"""Networks that train in milliseconds on a CPU: for demonstrations, tests and features.

Loss and gradients of fully connected ones are also computed in closed form, in NumPy: a step is a
few microseconds of arithmetic, and the overhead of torch and autograd is several times that. The
numbers equal those of torch except for the last digit, since sums are taken in another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from streamgauge.models.base import UNSEEN, LinearHead, Model, at_hand

Floats = NDArray[np.float32]
_GLOBAL_HOOKS = [
    getattr(torch_module, f"_global_{kind}_hooks")
    for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
MOST = 1 << 18  # products in a layer; up to here BLAS uses one thread, so sums are reproducible


class Linear(Model):
    """No backbone: the features are the input itself, flattened."""

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.feature_size = math.prod(input_shape)

    def body(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class Mlp(Model):
    """Fully connected layers with ReLU on the flattened input; `hidden` gives their sizes."""

    def __init__(self, input_shape: Sequence[int], *, hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        sizes = [math.prod(input_shape), *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.feature_size = sizes[-1]

    def body(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.flatten(1))
        return out


class Cnn4(Model):
    """Four 3 x 3 convolutions of stride 2, each with batch norm and ReLU, then the spatial mean.
    Channels double from `width` on, so there are 8 * width features (128). Strides are faster than
    pooling: a training step of 20 images of 3 x 32 x 32 takes under 4 ms on two cores, with
    max-pooling 9 ms. Without batch norm it is a third faster, but hardly learns in one pass over a
    stream. Maps are not reduced below 2 x 2, so that batch norm works in a batch of one."""

    def __init__(
        self, input_shape: Sequence[int], *, width: int = 16, batch_norm: bool = True
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, height, breadth = input_shape
        for i in range(4):
            out = width * 2**i
            stride = 2 if min(height, breadth) > 2 else 1
            height, breadth = -(-height // stride), -(-breadth // stride)
            layers.append(nn.Conv2d(channels, out, 3, stride, padding=1, bias=not batch_norm))
            if batch_norm:
                layers.append(nn.BatchNorm2d(out))
            layers.append(nn.ReLU())
            channels = out
        self.layers = nn.Sequential(*layers)
        self.feature_size = channels

    def body(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out.mean((2, 3))


def closed_form(model: Any, batch: int) -> list[Floats] | None:
    """Weight and bias of each layer, the head last, as arrays that share memory with them, for
    `slopes`. None for all networks but `Mlp` and `Linear` with a linear head in fp32 on a CPU, with
    all weights trained; for networks that are not small at this batch size; and while operations
    are observed by hooks. Called at every step, so it is written without helper functions."""
    if type(model) not in (Mlp, Linear) or model.precision != torch.float32:
        return None
    if torch.is_autocast_enabled("cpu"):
        return None
    if any(hooks for hooks in _GLOBAL_HOOKS):
        return None
    parts: Any = model._modules
    layers = [*parts["layers"]._modules.values()] if "layers" in parts else []
    layers.append(parts["fc"])
    for part in (model, *parts.values(), *layers):
        if part._forward_hooks or part._forward_pre_hooks:
            return None
        if part._backward_hooks or part._backward_pre_hooks:
            return None
    weights: list[Any] = []
    for number, layer in enumerate(layers):
        if type(layer) not in ((nn.ReLU,) if number % 2 else (nn.Linear, LinearHead)):
            return None
        weights += layer._parameters.values()  # weight and bias, in this order; of ReLU none
    for weight in weights:
        if weight is None or not weight.requires_grad or weight.numel() * batch > MOST:
            return None
        if weight._backward_hooks or weight._post_accumulate_grad_hooks:
            return None
    if weights[0].dtype != torch.float32 or not at_hand(weights[0]):
        return None
    return [weight.detach().numpy() for weight in weights]


def slopes(
    x: Floats,
    y: NDArray[np.int64],
    unseen: NDArray[np.bool_] | None,
    weights: Sequence[Floats],
    scale: float = 1.0,
) -> tuple[float, list[Floats]]:
    """Mean cross-entropy of samples [B, features], and its gradient by each weight, times `scale`.
    Logits of unseen classes are -1000, as in `Head`."""
    with np.errstate(all="ignore"):  # a network that diverges has NaN, as with torch
        inputs = [x]  # of each layer
        for layer in range(0, len(weights) - 2, 2):
            out = np.dot(inputs[-1], weights[layer].T)
            out += weights[layer + 1]
            inputs.append(np.maximum(out, 0, out=out))
        logits = np.dot(inputs[-1], weights[-2].T)
        logits += weights[-1]
        if unseen is not None:
            np.copyto(logits, UNSEEN, where=unseen)

        own = np.arange(0, logits.size, logits.shape[1]) + y  # positions among all logits
        logits -= np.maximum.reduce(logits, axis=1, keepdims=True)
        right = np.add.reduce(logits.reshape(-1)[own])
        chance = np.exp(logits, out=logits)
        total = np.add.reduce(chance, axis=1, keepdims=True)
        loss = float(np.add.reduce(np.log(total), axis=None) - right) / len(y)

        slope = np.divide(chance, total, out=chance)  # by logits: (chance - [own class]) / B
        slope.reshape(-1)[own] -= 1
        slope *= scale / len(y)
        if unseen is not None:
            np.copyto(slope, 0, where=unseen)
        gradients: list[Floats] = []
        for layer in range(len(weights) - 2, -1, -2):
            below = inputs.pop()
            gradients += [np.add.reduce(slope, axis=0), np.dot(slope.T, below)]
            if layer:
                slope = np.dot(slope, weights[layer])
                slope *= below > 0
        gradients.reverse()
        return loss, gradients
