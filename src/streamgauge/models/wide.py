"""Faster training of a residual network in bfloat16 on a GPU, by padding its channels.

Matrix units need multiples of 8 channels; slim ResNet18 has 20 in its largest layers and 3 at its
input. So a step uses weights padded with zeros. Zeros stay zeros: a channel without weights outputs
0, and its gradient is 0. The network's own weights, gradients and statistics are not padded.

All tensors are padded as one vector: a few operations replace several per tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

Shape = tuple[int, ...]
MULTIPLE = 8


class Padding:
    """Pads tensors like these, [out, in, height, width] or [out]: out and in become multiples of
    `multiple`. Padded tensors are channels-last in memory, the others have the layout of these, so
    that no tensor is copied into another layout.

    >>> own = [torch.tensor([[[[5.0]], [[6.0]]]]), torch.tensor([7.0, 8.0, 9.0])]
    >>> padding = Padding(own, 2)
    >>> wide = padding.spread(own)
    >>> [x.flatten().tolist() for x in wide]
    [[5.0, 6.0, 0.0, 0.0], [7.0, 8.0, 9.0, 0.0]]
    >>> [x.flatten().tolist() for x in padding.gather(wide)]
    [[5.0, 6.0], [7.0, 8.0, 9.0]]
    """

    def __init__(self, like: Sequence[Tensor], multiple: int) -> None:
        self._own = [_MemoryLayout(tuple(x.shape), _is_last(x)) for x in like]
        self._wide = [_MemoryLayout(padded(x.shape, multiple), True) for x in like]
        nothing = sum(x.numel() for x in like)  # position of the zero at the end
        source, first = [], 0
        for own, wide in zip(self._own, self._wide, strict=True):
            numbers = torch.full(wide.shape, nothing)
            within = tuple(map(slice, own.shape))
            numbers[within] = own.tensor(torch.arange(first, first + math.prod(own.shape)))
            source.append(wide.vector(numbers))
            first += math.prod(own.shape)
        # Per number of the padded vector: its position in the vector without padding.
        self.source = torch.cat(source).to(like[0].device, torch.int32)
        self._nothing = torch.zeros(1, device=like[0].device)

    @cached_property
    def _back(self) -> Tensor:
        """Per number without padding: its position in the padded vector."""
        count = sum(math.prod(own.shape) for own in self._own)
        return self.source.argsort()[:count].to(torch.int32)

    def spread(self, own: Iterable[Tensor], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Padded, and rounded to this precision."""
        return self.split(self.vector(own).to(dtype).index_select(0, self.source))

    def vector(self, own: Iterable[Tensor]) -> Tensor:
        """All numbers without padding, and a zero; `source` has positions in this vector."""
        parts = (layout.vector(x) for layout, x in zip(self._own, own, strict=True))
        return torch.cat([*parts, self._nothing])

    def split(self, whole: Tensor) -> list[Tensor]:
        """A vector with the padding, as tensors; they share its memory."""
        return _split(whole, self._wide)

    def gather(self, wide: Iterable[Tensor]) -> list[Tensor]:
        """The tensors that `spread` was given, in float32."""
        parts = [layout.vector(x) for layout, x in zip(self._wide, wide, strict=True)]
        return _split(torch.cat(parts).index_select(0, self._back).float(), self._own)


class _MemoryLayout(NamedTuple):
    """The memory layout of a tensor."""

    shape: Shape
    last: bool  # channels-last, if it has four dimensions

    def vector(self, tensor: Tensor) -> Tensor:
        """Its numbers in that order; not copied if it has this layout."""
        images = self.last and tensor.dim() == 4
        return (tensor.permute(0, 2, 3, 1) if images else tensor).flatten()

    def tensor(self, vector: Tensor) -> Tensor:
        if self.last and len(self.shape) == 4:
            out, into, *field = self.shape
            return vector.view(out, *field, into).permute(0, 3, 1, 2)
        return vector.view(self.shape)


def _is_last(tensor: Tensor) -> bool:
    """By strides, since a 1 x 1 convolution is contiguous in both formats."""
    if tensor.dim() != 4:
        return False
    _, into, high, across = tensor.shape
    return tensor.stride() == (high * across * into, 1, across * into, into)


def padded(shape: Sequence[int], multiple: int) -> Shape:
    """
    >>> padded((20, 3, 5, 5), 8)
    (24, 8, 5, 5)
    """
    return (*(-(-n // multiple) * multiple for n in shape[:2]), *shape[2:])


def _split(whole: Tensor, layouts: Sequence[_MemoryLayout]) -> list[Tensor]:
    parts = whole.split([math.prod(layout.shape) for layout in layouts])  # type: ignore[no-untyped-call]
    return [layout.tensor(part) for layout, part in zip(layouts, parts, strict=True)]


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
