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
    """torch's, but for its count of batches: nothing uses it, and it costs a kernel a layer."""

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


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(before, width, 3, stride)
        self.bn1 = BatchNorm(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = BatchNorm(width)
        self.downsample = _shortcut(before, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a shortcut; the stride is on the 3 x 3."""

    expansion = 4
    stride_on_first = False

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.expansion
        first, second = (stride, 1) if self.stride_on_first else (1, stride)
        self.conv1 = _conv(before, width, 1, first)
        self.bn1 = BatchNorm(width)
        self.conv2 = _conv(width, width, 3, second)
        self.bn2 = BatchNorm(width)
        self.conv3 = _conv(width, after, 1)
        self.bn3 = BatchNorm(after)
        self.downsample = _shortcut(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class FirstBottleneck(Bottleneck):
    """The stride is on the first 1 x 1, as in the paper and in Keras."""

    stride_on_first = True


class SlimResNet18(Model):
    """ResNet18 with `nf` = 20 channels in place of 64, for images of 32 x 32 and 64 x 64.

    The network of the survey and the real-time paper: a 3 x 3 stem without pooling, and averages
    over fields of 4 x 4 at the end. So there are 160 features at 32 x 32 and 640 at 64 x 64, where
    a grid of 2 x 2 averages is left. Where less than 4 x 4 is left, all of it is averaged.
    """

    def __init__(self, input_shape: Sequence[int], *, nf: int = 20) -> None:
        super().__init__()
        channels, *sides = input_shape
        self.conv1 = _conv(channels, nf, 3)
        self.bn1 = BatchNorm(nf)
        self.layer1 = _stage(BasicBlock, nf, nf, 2, 1)
        self.layer2 = _stage(BasicBlock, nf, 2 * nf, 2, 2)
        self.layer3 = _stage(BasicBlock, 2 * nf, 4 * nf, 2, 2)
        self.layer4 = _stage(BasicBlock, 4 * nf, 8 * nf, 2, 2)
        left = [-(-side // 8) for side in sides]
        self.field = tuple(min(4, side) for side in left)
        grid = [side // field for side, field in zip(left, self.field, strict=True)]
        self.feature_size = 8 * nf * grid[0] * grid[1]

    def body(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        return F.avg_pool2d(out, self.field).flatten(1)


class ResNet(Model):
    """ResNet18 and ResNet50 as torchvision has them, initialised as there."""

    def __init__(
        self,
        input_shape: Sequence[int],
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
    ) -> None:
        super().__init__()
        wide = block.expansion
        self.stride_on_first = getattr(block, "stride_on_first", None)
        self.conv1 = nn.Conv2d(input_shape[0], 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = BatchNorm(64)
        self.layer1 = _stage(block, 64, 64, depths[0], 1)
        self.layer2 = _stage(block, 64 * wide, 128, depths[1], 2)
        self.layer3 = _stage(block, 128 * wide, 256, depths[2], 2)
        self.layer4 = _stage(block, 256 * wide, 512, depths[3], 2)
        self.feature_size = 512 * wide
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def body(self, x: Tensor) -> Tensor:
        out = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        return torch.flatten(F.adaptive_avg_pool2d(out, 1), 1)


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


def _stage(
    block: type[BasicBlock] | type[Bottleneck], before: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    rest = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(before, width, stride), *rest)
