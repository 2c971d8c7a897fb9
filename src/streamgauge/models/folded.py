"""A residual network for fast inference: batch norm folded into the convolutions before it.

In evaluation mode batch norm multiplies and adds per channel, so w' = w g / sqrt(v + eps) and
b' = b - m g / sqrt(v + eps) do its work (g, b: its weights, m, v: its running statistics). Channels
are padded with zeros to multiples that matrix units need, and products are taken in the given
precision with sums in fp32. The head stays the model's own, in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.models.base import Head
from streamgauge.models.resnet import Residual
from streamgauge.models.wide import Padding, padded

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class _Conv:
    """A convolution with batch norm folded in, its memory fixed."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        self.conv, self.norm = conv, norm
        self.parallel: _Conv | None = None  # of a shortcut, whose bias is added to this one's
        self.how: tuple[Any, ...] = (conv.stride, conv.padding, conv.dilation, 1)

    def alone(self, x: Tensor) -> Tensor:
        """A shortcut's 1 x 1 without its bias: skipped pixels are removed, then it is a product."""
        down, across = self.conv.stride
        return F.conv2d(x[:, :, ::down, ::across], self.weight)

    def relu(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.how)
        return F.relu(F.conv2d(x, self.weight, self.bias, *self.how))

    def add_relu(self, x: Tensor, shortcut: Tensor) -> Tensor:
        if x.is_cuda:
            return torch.cudnn_convolution_add_relu(
                x, self.weight, shortcut, 1.0, self.bias, *self.how
            )
        return F.relu(F.conv2d(x, self.weight, self.bias, *self.how) + shortcut)


class Folded:
    """Answers instead of a model; call `refresh` after the model has changed."""

    def __init__(self, model: Residual, precision: str) -> None:
        self.model, self.dtype = model, DTYPES[precision]
        # In fp16 widths of 40 and 48 take cuDNN twice as long as 64.
        self._pad = 32 if self.dtype.itemsize == 2 else 8
        self._convs: list[_Conv] = []
        self.feature_size = model.feature_size
        self._stem = self._fold(model.conv1, model.bn1)
        self._blocks = [self._block(block) for stage in model.stages() for block in stage]
        self._width = self._convs[-1].conv.weight.shape[0]
        self._lay_out()

    @property
    def head(self) -> Head:
        return self.model.head

    @property
    def fc(self) -> Head:
        return self.model.fc

    def eval(self) -> Folded:
        return self

    def _lay_out(self) -> None:
        """All weights in one tensor and all biases in another, padded, so that folding is a few
        operations for all convolutions together."""
        scaled: list[Tensor] = []  # per weight: the number of its channel
        biased: list[Tensor] = []  # per padded bias: the number of its channel, or of the zero
        parallel: list[Tensor] = []  # per padded bias: the same in the shortcut's convolution
        channels = sum(len(conv.norm.weight) for conv in self._convs)
        channel = 0
        begins: dict[_Conv, int] = {}  # the number of its first channel
        for conv in self._convs:
            weight = conv.conv.weight
            rows = len(weight)
            scaled.append((channel + torch.arange(rows)).repeat_interleave(weight[0].numel()))
            begins[conv] = channel
            for numbers, owner in ((biased, conv), (parallel, conv.parallel)):
                numbers.append(torch.full((padded((rows,), self._pad)[0],), channels))
                if owner is not None:
                    numbers[-1][:rows] = begins[owner] + torch.arange(rows)
            channel += rows
        scaled.append(torch.tensor([channels]))  # the zero behind the last weight
        device = self._convs[0].conv.weight.device
        self._scaled, self._biased, self._shortcut = (
            torch.cat(parts).to(device) for parts in (scaled, biased, parallel)
        )
        self._padding = Padding([conv.conv.weight for conv in self._convs], self._pad)
        self._weights = torch.zeros(len(self._padding.source), dtype=self.dtype, device=device)
        self._biases = torch.zeros(len(self._biased), dtype=self.dtype, device=device)
        weights = self._padding.split(self._weights)
        biases = self._biases.split([len(numbers) for numbers in biased])  # type: ignore[no-untyped-call]
        for conv, weight, bias in zip(self._convs, weights, biases, strict=True):
            conv.weight, conv.bias = weight, bias

    @torch.no_grad()
    def refresh(self) -> None:
        norms: list[Any] = [conv.norm for conv in self._convs]
        weight, bias, mean, variance = (
            torch.cat([getattr(norm, name) for norm in norms])
            for name in ("weight", "bias", "running_mean", "running_var")
        )
        scale = weight / (variance + norms[0].eps).sqrt()
        nothing = scale.new_zeros(1)
        scales = torch.cat([scale, nothing]).index_select(0, self._scaled)
        own = self._padding.vector([conv.conv.weight for conv in self._convs]) * scales
        self._weights.copy_(own.index_select(0, self._padding.source))
        shift = torch.cat([torch.addcmul(bias, mean, scale, value=-1), nothing])
        shifts = shift.index_select(0, self._biased) + shift.index_select(0, self._shortcut)
        self._biases.copy_(shifts)

    def ready(self, x: Tensor) -> Tensor:
        """Normalised floats as `features` takes them; done once for inputs that are used often."""
        missing = self._stem.weight.shape[1] - x.shape[1]
        x = F.pad(x.to(self.dtype), (0, 0, 0, 0, 0, missing))
        return x.contiguous(memory_format=torch.channels_last)

    def features(self, x: Tensor) -> Tensor:
        made = x.dtype == self.dtype and x.shape[1] == self._stem.weight.shape[1]
        x = self.model.after_stem(self._stem.relu(x if made else self.ready(x)))
        for block in self._blocks:
            x = block(x)
        return self.model.pool(x[:, : self._width].float())

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model.head(self.features(x))
        return logits

    def _fold(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> _Conv:
        folded = _Conv(conv, norm)
        self._convs.append(folded)
        return folded

    def _block(self, block: Any) -> Any:
        parallel = None if block.downsample is None else self._fold(*block.downsample)
        *inner, last = [self._fold(*layer) for layer in block.layers()]
        last.parallel = parallel

        def run(x: Tensor) -> Tensor:
            out = x
            for conv in inner:
                out = conv.relu(out)
            return last.add_relu(out, x if parallel is None else parallel.alone(x))

        return run
