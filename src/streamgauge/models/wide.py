"""Faster training of a residual network in bfloat16 on a GPU, by padding its channels.

Matrix units need multiples of 8 channels; slim ResNet18 has 20 in its largest layers and 3 at its
input. So a step uses weights padded with zeros, all of them rounded and padded at once. Zeros stay
zeros: a channel without weights outputs 0, and its gradient is 0. The network's own weights,
gradients and statistics are not padded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from streamgauge.models.padding import Padding

MULTIPLE = 8


class Wide:
    """Called in training mode instead of the network's `body`. Weights are looked up at each call,
    since `functional_call` may replace them."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.dtype, self._body = dtype, _Body(model)
        named = list(self._body.named_modules())
        self._convs = [(name, part) for name, part in named if isinstance(part, nn.Conv2d)]
        self._norms = [
            (name, part)
            for name, part in named
            if isinstance(part, nn.BatchNorm2d) and part.num_features % MULTIPLE
        ]
        pairs = [vector for _, norm in self._norms for vector in (norm.weight, norm.bias)]
        self._weights = Padding([conv.weight for _, conv in self._convs], MULTIPLE)
        self._pairs = Padding(pairs, MULTIPLE) if pairs else None

    def __call__(self, x: Tensor) -> Tensor:
        convs = self._convs
        norms: list[Any] = [norm for _, norm in self._norms]
        weights = _PadWeights.apply(self._weights, self.dtype, *(conv.weight for _, conv in convs))  # type: ignore[no-untyped-call]
        state = {f"{name}.weight": w for (name, _), w in zip(convs, weights, strict=True)}
        own: list[Any] = []
        moved: list[Tensor] = []
        if self._pairs is not None:
            given = [p for norm in norms for p in (norm.weight, norm.bias)]
            pairs = _PadWeights.apply(self._pairs, torch.float32, *given)  # type: ignore[no-untyped-call]
            state |= self._named(("weight", "bias"), pairs)
            # As batch norm updates its own: not seen by autograd, which has saved other statistics
            # that may share memory with these.
            own = [s.data for norm in norms for s in (norm.running_mean, norm.running_var)]
            moved = self._pairs.spread(own)
            state |= self._named(("running_mean", "running_var"), moved)
        first = convs[0][1].weight.shape[1]
        x = F.pad(x.to(self.dtype), (0, 0, 0, 0, 0, -first % MULTIPLE))
        x = x.contiguous(memory_format=torch.channels_last)
        features: Tensor = functional_call(self._body, state, (x,))
        if own:
            torch._foreach_copy_(own, [m[: len(o)] for m, o in zip(moved, own, strict=True)])
        return features

    def _named(self, kinds: tuple[str, str], values: Any) -> dict[str, Tensor]:
        names = [f"{name}.{kind}" for name, _ in self._norms for kind in kinds]
        return dict(zip(names, values, strict=True))


class _Body(nn.Module):
    """A module whose call is the model's `body`, for `functional_call`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.model.body(x)
        return features


class _PadWeights(torch.autograd.Function):
    """Pads and rounds all weights at once; backward removes the padding of their gradients."""

    @staticmethod
    def forward(ctx: Any, padding: Padding, dtype: torch.dtype, *own: Tensor) -> Any:
        ctx.padding = padding
        return tuple(padding.spread(own, dtype))

    @staticmethod
    def backward(ctx: Any, *wide: Tensor) -> Any:
        return None, None, *ctx.padding.gather(wide)
