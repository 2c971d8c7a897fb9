"""A residual network as it is quickest to ask: batch norm folded into the convolutions before it.

In evaluation mode batch norm multiplies and adds per channel, so w' = w g / sqrt(v + eps) and
b' = b - m g / sqrt(v + eps) do its work (g, b: its weights, m, v: its running statistics). Channels
are padded with zeros to what matrix units like, and products are taken in the given precision with
sums in fp32. The head stays the model's own, in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.models.base import Model
from streamgauge.models.heads import Head
from streamgauge.models.resnet import BasicBlock, Bottleneck, ResNet, SlimResNet18

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def foldable(model: nn.Module) -> bool:
    return isinstance(model, (SlimResNet18, ResNet))


class _Conv:
    """A convolution with batch norm folded in, its memory fixed."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, pad: int, dtype: torch.dtype) -> None:
        self.conv, self.norm = conv, norm
        out, into = (-(-n // pad) * pad for n in conv.weight.shape[:2])
        device = conv.weight.device
        weight = torch.zeros(out, into, *conv.weight.shape[2:], dtype=dtype, device=device)
        self.weight = weight.contiguous(memory_format=torch.channels_last)
        self.bias = torch.zeros(out, dtype=dtype, device=device)
        rows, columns = conv.weight.shape[:2]
        self._weight, self._bias = self.weight[:rows, :columns], self.bias[:rows]
        self.how: tuple[Any, ...] = (conv.stride, conv.padding, conv.dilation, 1)

    def fold(self, scale: Tensor) -> None:
        torch.mul(self.conv.weight, scale[:, None, None, None], out=self._weight)
        mean: Any = self.norm.running_mean
        torch.addcmul(self.norm.bias, mean, scale, value=-1, out=self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, *self.how)

    def relu(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.how)
        return F.relu(self(x))

    def add_relu(self, x: Tensor, beside: Tensor) -> Tensor:
        if x.is_cuda:
            return torch.cudnn_convolution_add_relu(
                x, self.weight, beside, 1.0, self.bias, *self.how
            )
        return F.relu(self(x) + beside)


class Folded:
    """Answers in a model's place; `refresh` after the model has changed."""

    def __init__(self, model: Model, precision: str) -> None:
        self.model, self.dtype = model, DTYPES[precision]
        self._pad = 16 if self.dtype.itemsize == 2 else 8
        self._convs: list[_Conv] = []
        self.feature_size = model.feature_size
        self._stem = self._fold(model.conv1, model.bn1)  # type: ignore[arg-type]
        stages = (model.layer1, model.layer2, model.layer3, model.layer4)
        self._blocks = [self._block(block) for stage in stages for block in stage]  # type: ignore[union-attr]
        self._width = self._convs[-1].conv.weight.shape[0]

    @property
    def head(self) -> Head:
        return self.model.head

    @property
    def fc(self) -> Head:
        return self.model.fc

    def eval(self) -> Folded:
        return self

    @torch.no_grad()
    def refresh(self) -> None:
        norms: list[Any] = [conv.norm for conv in self._convs]
        root = torch._foreach_add([n.running_var for n in norms], norms[0].eps)
        torch._foreach_sqrt_(root)
        for conv, scale in zip(
            self._convs, torch._foreach_div([n.weight for n in norms], root), strict=True
        ):
            conv.fold(scale)

    def features(self, x: Tensor) -> Tensor:
        missing = self._stem.weight.shape[1] - x.shape[1]
        x = F.pad(x.to(self.dtype), (0, 0, 0, 0, 0, missing))
        x = self._stem.relu(x.contiguous(memory_format=torch.channels_last))
        if isinstance(self.model, ResNet):
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self._blocks:
            x = block(x)
        x = x[:, : self._width].float()
        if isinstance(self.model, SlimResNet18):
            return F.avg_pool2d(x, self.model.field).flatten(1)
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model.head(self.features(x))
        return logits

    def _fold(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> _Conv:
        folded = _Conv(conv, norm, self._pad, self.dtype)
        self._convs.append(folded)
        return folded

    def _block(self, block: Any) -> Any:
        beside = None if block.downsample is None else self._fold(*block.downsample)
        inner = [self._fold(block.conv1, block.bn1)]
        if isinstance(block, Bottleneck):
            inner.append(self._fold(block.conv2, block.bn2))
            last = self._fold(block.conv3, block.bn3)
        else:
            assert isinstance(block, BasicBlock)
            last = self._fold(block.conv2, block.bn2)

        def run(x: Tensor) -> Tensor:
            out = x
            for conv in inner:
                out = conv.relu(out)
            return last.add_relu(out, x if beside is None else beside(x))

        return run
