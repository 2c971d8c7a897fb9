"""Views for contrastive learning: random resized crop, flip, colour jitter, grey, drawn per image.

All functions take floats [B, C, H, W] in 0..1. Draws and their use are separate functions, so that
each can be tested by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from streamgauge.models.augment import draw_boxes, flip, resized_crop, uniform

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
