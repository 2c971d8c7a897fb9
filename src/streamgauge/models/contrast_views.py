"""Views for contrastive learning: random resized crop, flip, colour jitter, grey, drawn per image.

All work on floats [B, C, H, W] whose range is 0..1. What is drawn and what is done with it are
separate functions, so that each can be checked by itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from streamgauge.models.augment import flip

TRIES = 10  # at a crop that lies inside the image, before the whole image is taken
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Boxes(NamedTuple):
    """Where each image is cut, in pixels [B]."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


class Jitter(NamedTuple):
    """How the colours of each image change: factors [B, 3] of brightness, contrast and saturation,
    a shift of the hue [B] in turns of the colour wheel, and the order of the four [B, 4]."""

    factor: Tensor
    shift: Tensor
    order: Tensor


def contrastive_view(x: Tensor, generator: torch.Generator, colours: bool = True) -> Tensor:
    """SCR's view (Mai et al. 2021): a crop of 20 to 100 % of the area at its old size, a flip,
    colour jitter of 0.4, 0.4, 0.4 and 0.1 in 8 of 10 images, grey in 2 of 10. Without
    three channels of colour, a crop and a flip; what is no image is left as it is."""
    if x.ndim != 4:
        return x
    x = flip(resized_crop(x, draw_boxes(x, generator)), generator)
    if x.shape[1] != 3 or not colours:
        return x
    x = torch.where(_chance(x, 0.8, generator), jitter(x, draw_jitter(x, generator)), x)
    return torch.where(_chance(x, 0.2, generator), grey(x), x)


def draw_boxes(
    x: Tensor, generator: torch.Generator, scale: tuple[float, float] = (0.2, 1.0)
) -> Boxes:
    """A share of the area, uniform in `scale`, and a ratio of the sides, uniform in its logarithm
    from 3/4 to 4/3; of ten draws the first that fits, or else the whole image."""
    count, _, height, width = x.shape
    area = _uniform(x, (count, TRIES), *scale, generator) * (height * width)
    ratio = _uniform(x, (count, TRIES), math.log(3 / 4), math.log(4 / 3), generator).exp()
    high, wide = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (high > 0) & (high <= height) & (wide > 0) & (wide <= width)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    any_fits = fits.any(1)
    high = torch.where(any_fits, high.gather(1, first)[:, 0], float(height))
    wide = torch.where(any_fits, wide.gather(1, first)[:, 0], float(width))
    corner = _uniform(x, (2, count), 0.0, 1.0, generator)
    top, left = (corner[0] * (height - high + 1)).floor(), (corner[1] * (width - wide + 1)).floor()
    return Boxes(top, left, high, wide)


def resized_crop(x: Tensor, box: Boxes) -> Tensor:
    """Cut and stretched to the old size, bilinearly: one product with a matrix for the rows of each
    image and one for its columns, as interpolation goes by one axis after the other."""
    height, width = x.shape[2:]
    rows = _stretch(box.top, box.height, height)
    columns = _stretch(box.left, box.width, width)
    return rows[:, None] @ x @ columns[:, None].transpose(2, 3)


def _stretch(start: Tensor, length: Tensor, size: int) -> Tensor:
    """[B, size, size]: the weight of each old pixel in each new one. A new pixel falls between two
    old ones, which are weighted by nearness; nothing beyond the ends of the crop counts."""
    pixel = torch.arange(size, device=start.device)
    source = (pixel + 0.5) * length[:, None] / size - 0.5
    source = source.clamp(min=0).minimum(length[:, None] - 1) + start[:, None]
    return (1 - (source[:, :, None] - pixel).abs()).clamp(min=0)


def draw_jitter(x: Tensor, generator: torch.Generator) -> Jitter:
    count = len(x)
    return Jitter(
        _uniform(x, (count, 3), 0.6, 1.4, generator),
        _uniform(x, (count,), -0.1, 0.1, generator),
        _uniform(x, (count, 4), 0.0, 1.0, generator).argsort(1),
    )


def jitter(x: Tensor, how: Jitter) -> Tensor:
    """Brightness, contrast and saturation blend an image with black, its mean grey and its grey;
    each result is cut to 0..1. In each of four rounds every image gets the one whose turn it is."""
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


def _uniform(
    x: Tensor, shape: tuple[int, ...], low: float, high: float, generator: torch.Generator
) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, device=x.device)


def _chance(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    return _uniform(x, (len(x), 1, 1, 1), 0.0, 1.0, generator) < probability
