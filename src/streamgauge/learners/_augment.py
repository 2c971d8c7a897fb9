"""Random views of a batch of images, on its device, a fresh draw for every image.

All work on bytes or floats [B, C, H, W], and draw from the generator they are given.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Augmentation = Literal["none", "flip", "flip_batch", "crop_flip", "resized_crop_flip"]


def augment(x: Tensor, how: Augmentation, generator: torch.Generator, padding: int = 4) -> Tensor:
    """`flip`: mirrored left to right, each image with probability one half; `flip_batch`: then the
    whole batch once more by one draw, as the real-time paper's code does. `crop_flip`: padded
    with zeros, cut to its size again at a random place, then flipped. `resized_crop_flip`: a random
    cut of 8 to 100 % of the area stretched to the old size, then flipped (ImageNet's usual one)."""
    if how == "none" or x.ndim != 4 or len(x) == 0:
        return x
    if how == "crop_flip":
        x = pad_crop(x, padding, generator)
    if how == "resized_crop_flip":
        from streamgauge.learners._views import draw_boxes, resized_crop  # which imports from here

        cut = resized_crop(x.float(), draw_boxes(x, generator, scale=(0.08, 1.0)))
        x = cut if x.is_floating_point() else cut.round().to(x.dtype)
    x = flip(x, generator)
    if how == "flip_batch":
        x = torch.where(torch.rand((), generator=generator, device=x.device) < 0.5, x.flip(3), x)
    return x


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    mirrored = torch.rand(len(x), generator=generator, device=x.device) < 0.5
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


def pad_crop(x: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """As one gather: row and column of every output pixel, zero where it falls on the border."""
    count, channels, height, width = x.shape
    offset = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator, device=x.device)
    row = torch.arange(height, device=x.device) + offset[0] - padding
    column = torch.arange(width, device=x.device) + offset[1] - padding
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None]
    row, column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    place = (row[:, :, None] * width + column[:, None, :]).reshape(count, 1, -1)
    cut = x.flatten(2).gather(2, place.expand(-1, channels, -1)).view_as(x)
    return cut * inside[:, None]
