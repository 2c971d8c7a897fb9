"""EfficientNet-Lite0: small, without squeeze-and-excitation, ReLU6 throughout.

Tan and Le 2019 (EfficientNet); the Lite variants are Google's. Names of parameters and buffers are
timm's for `tf_efficientnet_lite0`, but for the classifier, so that published weights fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.models.base import Model

# Per stage: expansion, channels, blocks, stride of the first block, kernel size.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_EPS, _MOMENTUM = 1e-3, 0.01  # as the weights were trained


class SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow's SAME: where the padding is odd, more at the end."""

    def forward(self, x: Tensor) -> Tensor:
        pad: list[int] = []
        for side, kernel, stride in zip(
            reversed(x.shape[2:]), reversed(self.kernel_size), reversed(self.stride), strict=True
        ):
            more = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            pad += [more // 2, more - more // 2]
        return F.conv2d(F.pad(x, pad), self.weight, self.bias, self.stride, groups=self.groups)


class InvertedResidual(nn.Module):
    """A 1 x 1 convolution that adds channels (not with an expansion of 1), a convolution of each
    channel, and a 1 x 1 convolution that removes channels; a shortcut where the shape is kept."""

    def __init__(self, before: int, after: int, stride: int, kernel: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        depthwise, project = (wide, wide, kernel, stride, wide), (wide, after, 1)
        self.convs: dict[str, tuple[int, ...]] = {"conv_dw": depthwise, "conv_pw": project}
        if expansion > 1:
            expand = (before, wide, 1)
            self.convs = {"conv_pw": expand, "conv_dw": depthwise, "conv_pwl": project}
        for number, (name, sizes) in enumerate(self.convs.items(), 1):
            self.add_module(name, _conv(*sizes))
            self.add_module(f"bn{number}", _norm(sizes[1]))
        self.has_shortcut = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for number, name in enumerate(self.convs, 1):
            out = getattr(self, f"bn{number}")(getattr(self, name)(out))
            if number < len(self.convs):
                out = F.relu6(out)
        return out + x if self.has_shortcut else out


class EfficientNetLite0(Model):
    """4,652,008 parameters with 1,000 classes; 1,280 features. Made for 224 x 224."""

    feature_size = 1280

    def __init__(self, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.conv_stem = _conv(input_shape[0], 32, 3, 2)
        self.bn1 = _norm(32)
        stages, before = [], 32
        for expansion, after, depth, stride, kernel in STAGES:
            blocks = []
            for block in range(depth):
                step = stride if block == 0 else 1
                blocks.append(InvertedResidual(before, after, step, kernel, expansion))
                before = after
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = _conv(before, self.feature_size, 1)
        self.bn2 = _norm(self.feature_size)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def body(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu6(self.bn1(self.conv_stem(x))))
        out = F.relu6(self.bn2(self.conv_head(out)))
        return torch.flatten(F.adaptive_avg_pool2d(out, 1), 1)


def _conv(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> SameConv:
    return SameConv(before, after, kernel, stride, groups=groups, bias=False)


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_EPS, momentum=_MOMENTUM)
