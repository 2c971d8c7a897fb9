"""Residual networks (He et al. 2016): the survey's slim ResNet18, and ResNet18 and 50.

Names of parameters and buffers are torchvision's, so that published weights fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.models.base import Model


class BatchNorm(nn.BatchNorm2d):
    """torch's without its count of batches, which costs a kernel per layer and is not used."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,  # type: ignore[arg-type]
            self.eps,
        )


class ResidualBlock(nn.Module):
    """Convolutions with batch norm and ReLU, and a shortcut, added before the last ReLU."""

    kernels: tuple[int, ...]  # kernel size of each convolution
    strided = 0  # number of the convolution that has the stride
    expansion = 1  # channels at the end of the block, in units of `width`

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.expansion
        widths = [before, *[width] * (len(self.kernels) - 1), after]
        for number, kernel in enumerate(self.kernels):
            into, out = widths[number : number + 2]
            conv = _conv(into, out, kernel, stride if number == self.strided else 1)
            self.add_module(f"conv{number + 1}", conv)
            self.add_module(f"bn{number + 1}", BatchNorm(out))
        self.downsample = _shortcut(before, after, stride)

    def layers(self) -> list[tuple[nn.Conv2d, BatchNorm]]:
        numbers = range(1, len(self.kernels) + 1)
        return [(getattr(self, f"conv{n}"), getattr(self, f"bn{n}")) for n in numbers]

    def forward(self, x: Tensor) -> Tensor:
        *inner, (last, last_norm) = self.layers()
        out = x
        for conv, norm in inner:
            out = F.relu(norm(conv(out)))
        out = last_norm(last(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class BasicBlock(ResidualBlock):
    kernels = (3, 3)


class Bottleneck(ResidualBlock):
    kernels, strided, expansion = (1, 3, 1), 1, 4


class FirstBottleneck(Bottleneck):
    """The stride is on the first 1 x 1, as in the paper and in Keras."""

    strided = 0


class Residual(Model):
    """A convolution (the stem), four stages of blocks, and means over each feature map."""

    def __init__(self, stem: nn.Conv2d, block: type[ResidualBlock], depths: Sequence[int]) -> None:
        super().__init__()
        before = width = stem.out_channels
        self.conv1, self.bn1 = stem, BatchNorm(width)
        for number, depth in enumerate(depths):
            stride = 2 if number else 1
            rest = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
            stage = nn.Sequential(block(before, width, stride), *rest)
            self.add_module(f"layer{number + 1}", stage)
            before, width = width * block.expansion, 2 * width
        self.feature_size = before

    def stages(self) -> list[nn.Sequential]:
        return [getattr(self, f"layer{number}") for number in range(1, 5)]

    def after_stem(self, x: Tensor) -> Tensor:
        return x

    def pool(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] -> [B, feature_size]."""
        raise NotImplementedError

    def body(self, x: Tensor) -> Tensor:
        out = self.after_stem(F.relu(self.bn1(self.conv1(x))))
        for stage in self.stages():
            out = stage(out)
        return self.pool(out)


class SlimResNet18(Residual):
    """ResNet18 with `nf` = 20 channels instead of 64, for images of 32 x 32 and 64 x 64. The
    network of the survey and the real-time paper: a 3 x 3 stem without pooling, and means over
    fields of 4 x 4 at the end. So there are 160 features at 32 x 32, and 640 at 64 x 64, where 2 x
    2 means are left. A smaller map than 4 x 4 gives one mean."""

    def __init__(self, input_shape: Sequence[int], *, nf: int = 20) -> None:
        channels, *sides = input_shape
        super().__init__(_conv(channels, nf, 3), BasicBlock, (2, 2, 2, 2))
        left = [-(-side // 8) for side in sides]
        self.field = tuple(min(4, side) for side in left)
        for side, field in zip(left, self.field, strict=True):
            self.feature_size *= side // field

    def pool(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.field).flatten(1)


class ResNet(Residual):
    """ResNet18 and ResNet50 with the layers and the initialisation of torchvision."""

    def __init__(
        self, input_shape: Sequence[int], block: type[ResidualBlock], depths: Sequence[int]
    ) -> None:
        stem = nn.Conv2d(input_shape[0], 64, 7, stride=2, padding=3, bias=False)
        super().__init__(stem, block, depths)
        # None: basic blocks have their stride on the first convolution in all libraries.
        self.stride_on_first = block.strided == 0 if len(block.kernels) == 3 else None
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def after_stem(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, 3, stride=2, padding=1)

    def pool(self, x: Tensor) -> Tensor:
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)


def resnet18(input_shape: Sequence[int]) -> ResNet:
    """11,689,512 parameters with 1,000 classes; 512 features."""
    return ResNet(input_shape, BasicBlock, (2, 2, 2, 2))


def resnet50(input_shape: Sequence[int]) -> ResNet:
    """25,557,032 parameters with 1,000 classes; 2,048 features."""
    return ResNet(input_shape, Bottleneck, (3, 4, 6, 3))


def resnet50_v1(input_shape: Sequence[int]) -> ResNet:
    """ResNet50 with the stride on the first 1 x 1 convolution of a block, as the paper and Keras
    have it: for weights that were trained so."""
    return ResNet(input_shape, FirstBottleneck, (3, 4, 6, 3))


def _conv(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(before: int, after: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and before == after:
        return None
    return nn.Sequential(_conv(before, after, 1, stride), BatchNorm(after))
