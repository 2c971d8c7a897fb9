"""From stored pixels to the input of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError


def at_hand(x: Tensor) -> bool:
    """Whether NumPy, which has less overhead, may be used: the tensor is on the CPU, and no
    operations are being observed (to count FLOPs, to record a step)."""
    watching = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    return x.is_cpu and not watching


def refuse_unused_normalisation(config: Any, input_shape: Sequence[int]) -> None:
    """Mean and std are those of pixels: where inputs are vectors, they would have no effect."""
    if len(input_shape) > 1:
        return
    for field in fields(config):
        if field.name in ("mean", "std") and getattr(config, field.name) != field.default:
            raise StreamgaugeError(
                f"'{field.name}' is for images, and these inputs are vectors, which it would not"
                " change: leave it out. To standardise vectors, set --stream.scale online."
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
