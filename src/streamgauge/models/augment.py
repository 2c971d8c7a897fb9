"""Random views of a batch of images on its device, with separate draws for each image.

All functions take images [B, C, H, W], and draw from the given generator: `augment` takes bytes or
floats, the views for contrastive learning take floats in 0..1.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

TRIES = 10  # at a crop that lies inside the image, before the whole image is taken
LARGE = 64 * 64  # pixels; larger images are cropped one by one on a CPU

Augmentation = Literal["none", "flip", "flip_batch", "crop_flip", "resized_crop_flip"]


class Boxes(NamedTuple):
    """The crop of each image, in pixels [B]."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


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
        boxes = draw_boxes(x, generator, scale=(0.08, 1.0))
        if one_by_one(x):
            numbers = torch.stack(list(boxes), 1).long().tolist()
            x = torch.cat([_stretched(x[i : i + 1], box) for i, box in enumerate(numbers)])
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
    """As one gather by the row and column of each output pixel; zero outside the image."""
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


def draw_boxes(
    x: Tensor, generator: torch.Generator, scale: tuple[float, float] = (0.2, 1.0)
) -> Boxes:
    """A share of the area, uniform in `scale`, and a ratio of the sides, uniform in its logarithm
    from 3/4 to 4/3; of ten draws the first that fits, or else the whole image."""
    count, _, height, width = x.shape
    area = uniform(x, (count, TRIES), *scale, generator) * (height * width)
    ratio = uniform(x, (count, TRIES), math.log(3 / 4), math.log(4 / 3), generator).exp()
    high, wide = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (high > 0) & (high <= height) & (wide > 0) & (wide <= width)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    any_fits = fits.any(1)
    high = torch.where(any_fits, high.gather(1, first)[:, 0], float(height))
    wide = torch.where(any_fits, wide.gather(1, first)[:, 0], float(width))
    corner = uniform(x, (2, count), 0.0, 1.0, generator)
    top, left = (corner[0] * (height - high + 1)).floor(), (corner[1] * (width - wide + 1)).floor()
    return Boxes(top, left, high, wide)


def resized_crop(x: Tensor, box: Boxes) -> Tensor:
    """Crop and resize bilinearly: one matrix product for the rows and one for the columns."""
    height, width = x.shape[2:]
    rows = _stretch(box.top, box.height, height)
    columns = _stretch(box.left, box.width, width)
    return rows[:, None] @ x @ columns[:, None].transpose(2, 3)


def _stretch(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size, size]: the weight of each old pixel in each new one. A new pixel lies between two
    old ones, which are weighted by distance; pixels outside the crop have no weight."""
    pixel = torch.arange(size, device=start.device)
    source = (pixel + 0.5) * length[:, None] / size - 0.5
    source = source.clamp(min=0).minimum(length[:, None] - 1) + start[:, None]
    return (1 - (source[:, :, None] - pixel).abs()).clamp(min=0)


def uniform(
    x: Tensor, shape: tuple[int, ...], low: float, high: float, generator: torch.Generator
) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, device=x.device)


def one_by_one(x: Tensor) -> bool:
    """Large images on a CPU are cut one after the other: copying slices takes a tenth of the time
    of a gather. Draws and results are the same, except that resized bytes may differ by one of 256
    levels, since bytes are interpolated in whole numbers here."""
    return x.device.type == "cpu" and x.shape[2] * x.shape[3] >= LARGE


def _overlap(by: int, size: int) -> tuple[slice, slice]:
    """For a row or column shifted by some pixels: the part to write, and the part to read."""
    return slice(max(0, -by), size - max(0, by)), slice(max(0, by), size + min(0, by))


def _stretched(image: Tensor, box: list[int]) -> Tensor:
    top, left, high, wide = box
    cut = image[:, :, top : top + high, left : left + wide]
    size = (image.shape[2], image.shape[3])
    return F.interpolate(cut, size=size, mode="bilinear", align_corners=False)


BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Jitter(NamedTuple):
    """How the colours of each image change: factors [B, 3] of brightness, contrast and saturation,
    a shift of the hue [B] in turns of the colour wheel, and the order of the four [B, 4]."""

    factor: Tensor
    shift: Tensor
    order: Tensor


def contrastive_view(x: Tensor, generator: torch.Generator, colours: bool = True) -> Tensor:
    """SCR's view (Mai et al. 2021): a crop of 20 to 100 % of the area at its old size, a flip,
    colour jitter of 0.4, 0.4, 0.4 and 0.1 in 8 of 10 images, grey in 2 of 10. Without
    three colour channels: a crop and a flip. Inputs that are not images are not changed."""
    if x.ndim != 4:
        return x
    x = flip(resized_crop(x, draw_boxes(x, generator)), generator)
    if x.shape[1] != 3 or not colours:
        return x
    x = torch.where(_chance(x, 0.8, generator), jitter(x, draw_jitter(x, generator)), x)
    return torch.where(_chance(x, 0.2, generator), grey(x), x)


def draw_jitter(x: Tensor, generator: torch.Generator) -> Jitter:
    count = len(x)
    return Jitter(
        uniform(x, (count, 3), 0.6, 1.4, generator),
        uniform(x, (count,), -0.1, 0.1, generator),
        uniform(x, (count, 4), 0.0, 1.0, generator).argsort(1),
    )


def jitter(x: Tensor, how: Jitter) -> Tensor:
    """Brightness, contrast and saturation blend an image with black, its mean grey and its grey;
    each result is clamped to 0..1. Each of the four rounds applies the next change in the order of
    each image."""
    for turn in range(4):
        now = how.order[:, turn, None, None, None]
        dull = grey(x)
        middle = dull.mean((1, 2, 3), keepdim=True)
        other = torch.where(now == SATURATION, dull, torch.where(now == CONTRAST, middle, 0.0))
        factor = how.factor.gather(1, now[:, :, 0, 0].clamp(max=2))[:, :, None, None]
        blend = (other + factor * (x - other)).clamp(0, 1)
        x = torch.where(now == HUE, turn_hue(x, how.shift), blend)
    return x


def grey(x: Tensor) -> Tensor:
    """Luma in all three channels."""
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    return luma.expand_as(x)


def turn_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Hue shifted in HSV space; the largest and the smallest channel of a pixel stay as large."""
    most, least = x.amax(1), x.amin(1)
    range_ = most - least
    red, green, blue = x.unbind(1)
    step = torch.where(range_ > 0, range_, 1.0)
    hue = torch.where(
        most == red,
        (green - blue) / step,
        torch.where(most == green, (blue - red) / step + 2, (red - green) / step + 4),
    )
    hue = hue + 6 * shift[:, None, None]
    corner = torch.arange(5, 0, -2, device=x.device).view(1, 3, 1, 1)
    sector = (corner + hue[:, None]) % 6
    away = sector.minimum(4 - sector).clamp(0, 1)
    return most[:, None] - range_[:, None] * away


def _chance(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    return uniform(x, (len(x), 1, 1, 1), 0.0, 1.0, generator) < probability
