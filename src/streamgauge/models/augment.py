"""Random views of a batch of images, on its device, a new draw for every image.

All work on bytes or floats [B, C, H, W], and draw from the generator they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 64 * 64  # pixels from which on an image by itself costs less than a gather over all

Augmentation = Literal["none", "flip", "flip_batch", "crop_flip", "resized_crop_flip"]


def augment(x: Tensor, how: Augmentation, generator: torch.Generator, padding: int = 4) -> Tensor:
    """`flip`: mirrored left to right, each image with probability one half; `flip_batch`: then the
    whole batch once more by one draw, as the real-time paper's code does. `crop_flip`: padded with
    zeros, cropped to the old size at a random position, then flipped. `resized_crop_flip`: a random
    crop of 8 to 100 % of the area resized to the old size, then flipped (as usual for ImageNet)."""
    if how == "none" or x.ndim != 4 or len(x) == 0:
        return x
    if how == "crop_flip":
        x = pad_crop(x, padding, generator)
    if how == "resized_crop_flip":
        from streamgauge.models.contrast_views import (  # which imports from here
            draw_boxes,
            resized_crop,
        )

        boxes = draw_boxes(x, generator, scale=(0.08, 1.0))
        if one_by_one(x):
            x = torch.cat([_stretched(image, box) for image, box in _boxes(x, boxes)])
        else:
            cut = resized_crop(x.float(), boxes)
            x = cut if x.is_floating_point() else cut.round().to(x.dtype)
    x = flip(x, generator)
    if how == "flip_batch":
        x = torch.where(torch.rand((), generator=generator, device=x.device) < 0.5, x.flip(3), x)
    return x


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    mirrored = torch.rand(len(x), generator=generator, device=x.device) < 0.5
    if one_by_one(x):
        out = x.clone()
        for image in mirrored.nonzero()[:, 0].tolist():
            out[image] = x[image].flip(2)
        return out
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


def pad_crop(x: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """As one gather: row and column of every output pixel, zero where it falls on the border."""
    count, channels, height, width = x.shape
    offset = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator, device=x.device)
    if one_by_one(x):
        out = torch.zeros_like(x)
        for image, (down, across) in enumerate((offset[:, :, 0] - padding).T.tolist()):
            (to, old), (to_side, old_side) = _overlap(down, height), _overlap(across, width)
            out[image, :, to, to_side] = x[image, :, old, old_side]
        return out
    row = torch.arange(height, device=x.device) + offset[0] - padding
    column = torch.arange(width, device=x.device) + offset[1] - padding
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None]
    row, column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    pixel = (row[:, :, None] * width + column[:, None, :]).reshape(count, 1, -1)
    cut = x.flatten(2).gather(2, pixel.expand(-1, channels, -1)).view_as(x)
    return cut * inside[:, None]


def one_by_one(x: Tensor) -> bool:
    """Large images on a CPU are cut one after the other: copying slices takes a tenth of what a
    gather takes. The draws, and what comes out, are the same, but for one of 256 levels where bytes
    are stretched, as that is done in whole numbers here."""
    return x.device.type == "cpu" and x.shape[2] * x.shape[3] >= LARGE


def _overlap(by: int, size: int) -> tuple[slice, slice]:
    """The part of a line that a shift by some pixels fills, and the part that it comes from."""
    return slice(max(0, -by), size - max(0, by)), slice(max(0, by), size + min(0, by))


def _boxes(x: Tensor, boxes: Iterable[Tensor]) -> Iterator[tuple[Tensor, list[int]]]:
    return zip(torch.split(x, 1), torch.stack(list(boxes), 1).long().tolist(), strict=True)


def _stretched(image: Tensor, box: list[int]) -> Tensor:
    top, left, high, wide = box
    cut = image[:, :, top : top + high, left : left + wide]
    size = (image.shape[2], image.shape[3])
    return F.interpolate(cut, size=size, mode="bilinear", align_corners=False)
