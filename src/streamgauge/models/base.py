"""The interface of all networks: inputs, features, and a head that masks unseen classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from streamgauge.errors import StreamgaugeError
from streamgauge.models.wide import Wide


def at_hand(x: Tensor) -> bool:
    """Whether NumPy, which has less overhead, may be used: the tensor is on the CPU, and no
    operations are being observed (to count FLOPs, to record a step)."""
    watching = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    return x.is_cpu and not watching


def refuse_unused_normalisation(config: Any, input_shape: Sequence[int]) -> None:
    """Mean and std are those of pixels: where inputs are vectors, they would have no effect."""
    name = changed_normalisation(config)
    if name and len(input_shape) <= 1:
        raise StreamgaugeError(
            f"'{name}' is for images, and these inputs are vectors, which it would not change:"
            " leave it out. To standardise vectors, set --stream.scale online."
        )
    how = {field.name: field.default for field in fields(config)}.get("augment", "none")
    if len(input_shape) <= 1 and getattr(config, "augment", how) != how:
        raise StreamgaugeError(
            f"'augment' is for images, and these inputs are vectors, which '{config.augment}' would"
            " not change: leave it out."
        )


def changed_normalisation(config: Any) -> str:
    """Which of mean and std differs from its default; "" if none does."""
    for field in fields(config):
        if field.name in ("mean", "std") and getattr(config, field.name) != field.default:
            return field.name
    return ""


def refuse_float_images(x: Tensor, changed: str) -> None:
    """Images of floats are taken as they are, so a mean or std that was set has no effect."""
    if changed and x.is_floating_point():
        raise StreamgaugeError(
            f"'{changed}' is for images of bytes (uint8), and these inputs are floats, which it"
            " would not change: leave it out and normalise the floats yourself, or give bytes."
        )


def to_float(x: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """Bytes [B, C, H, W] to (x / 255 - mean) / std in float32, per channel; floats are not changed.

    The order of the operations is that of the usual ToTensor and Normalize, so the numbers are
    equal to theirs bit for bit. Pass `mean` and `std` as tensors on the device of `x` in a loop on
    a GPU: numbers from a list are copied there each time.

    >>> to_float(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), [0.5], [0.25])
    tensor([[[[-2.,  2.]]]])
    """
    if x.is_floating_point():
        return x
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise StreamgaugeError(
            f"images have to be bytes of shape [batch, channels, height, width] or floats, but "
            f"these are {str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}: "
            f"convert them first."
        )
    mean, std = (
        torch.as_tensor(value, dtype=torch.float32, device=x.device).reshape(1, -1, 1, 1)
        for value in (mean, std)
    )
    for what, value in (("mean", mean), ("std", std)):
        if value.shape[1] not in (1, x.shape[1]):
            raise StreamgaugeError(
                f"there are {value.shape[1]} values in {what} for {x.shape[1]} channels: "
                f"give one per channel, or one for all."
            )
    return x.to(torch.float32).div_(255).sub_(mean).div_(std)


UNSEEN = -1000.0
"""Logit of a class that was not seen yet: never predicted, and no gradient reaches its weights."""


class Head(nn.Module):
    """Base of all heads: `seen`, one flag per class, and the mask made from it. The number of
    outputs is fixed, and logits of classes not seen yet are replaced by -1000. The result equals
    that of a growing head (Soutif-Cormerais et al. 2023), with constant shapes. With `masked=False`
    all outputs count from the start (the fixed head of DER++); `seen` is still set."""

    seen: Tensor

    def __init__(self, features: int, classes: int, masked: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features, self.masked = features, classes, masked
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.bool))

    def see(self, y: Tensor, mask: Tensor | None = None) -> None:
        """Mark classes as seen; with a mask, only labels where it is true. Tensor operations of
        fixed shape only, so nothing waits for the device."""
        if mask is None and at_hand(y):
            self.seen.numpy()[y.numpy()] = True  # a tenth of the time of torch
        elif mask is None:
            self.seen.index_fill_(0, y, True)
        else:
            counts = torch.zeros_like(self.seen, dtype=torch.float32)
            counts.index_add_(0, torch.where(mask, y, 0), mask.to(torch.float32))
            self.seen.logical_or_(counts > 0)

    def scores(self, features: Tensor) -> Tensor:
        """Logits [B, C] of all classes, seen or not."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Tensor:
        logits = self.scores(features)
        return logits.masked_fill(~self.seen, UNSEEN) if self.masked else logits

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, masked={self.masked}"


class LinearHead(Head):
    """logits = W f + b, initialised as `torch.nn.Linear` is.

    >>> head = LinearHead(4, 3)
    >>> head.see(torch.tensor([2, 2]))
    >>> head(torch.ones(1, 4))[0, :2].tolist()
    [-1000.0, -1000.0]
    """

    def __init__(self, features: int, classes: int, masked: bool = True) -> None:
        super().__init__(features, classes, masked)
        linear = nn.Linear(features, classes)
        self.weight, self.bias = linear.weight, linear.bias

    def scores(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)


class CosineHead(Head):
    """logits = sigma * cos(W, f), with a learnt scale sigma and no bias. The cosine classifier of
    the near-future paper (CosineFC, Hammoud et al. 2023): sigma starts at 1 and W from
    U(-1/sqrt(d), 1/sqrt(d)). With many classes that is a very flat softmax at first."""

    def __init__(
        self, features: int, classes: int, masked: bool = True, sigma: float = 1.0
    ) -> None:
        super().__init__(features, classes, masked)
        bound = features**-0.5
        self.weight = nn.Parameter(torch.empty(classes, features).uniform_(-bound, bound))
        self.sigma = nn.Parameter(torch.tensor(float(sigma)))

    def scores(self, features: Tensor) -> Tensor:
        return self.sigma * F.linear(F.normalize(features), F.normalize(self.weight))


class Model(nn.Module):
    """Features, and a head on them. The head is named `fc`, as in published weights. A network sets
    `feature_size`, defines `body`, and gets its head from `build`. With `precision` set to bfloat16
    the body's products are computed in bfloat16; weights, batch norm's statistics, features and the
    head stay float32. `wide` computes the body faster in that precision."""

    feature_size: int
    fc: Head
    precision: torch.dtype = torch.float32
    wide: Wide | None = None

    def body(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size]."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size], in float32."""
        if self.precision == torch.float32:
            return self.body(x)
        # A dispatch mode, such as a FLOP counter, must see the network without padding.
        plain = self.wide is None or not self.training or _get_current_dispatch_mode() is not None
        with torch.autocast(x.device.type, self.precision):
            return (self.body(x) if plain else self.wide(x)).float()  # type: ignore[misc]

    @property
    def head(self) -> Head:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        logits: Tensor = self.fc(self.features(x))
        return logits
