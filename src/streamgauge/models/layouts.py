"""The names that published weights go by, and how to bring them to ours.

Ours are torchvision's for the ResNets and timm's for EfficientNet-Lite0. Also read:
- Hugging Face's ResNet (`resnet.encoder.stages.0.layers.0...`),
- EfficientNet-Lite0 by the names of `efficientnet_lite_pytorch` (`_blocks.0._depthwise_conv...`),
- Keras' ResNet50, by its old names (`res2a_branch2a`) and its new ones (`conv2_block1_1_conv`).

Keras' network is another one than torchvision's, and what differs is turned into numbers where
that is exact in evaluation mode:
- convolutions have a bias: batch norm's mean takes it up, mean - bias;
- batch norm's epsilon is another: its variance takes it up, variance + epsilon - 1e-5;
- colours come as BGR: the first convolution's channels are turned round;
- pixels are 0..255 less a mean of ImageNet: in our terms `MEAN` and `STD` below, which whoever
  uses the weights has to set, and is told so;
- the stride is on the first 1 x 1 convolution of a block: only the model `resnet50_v1` has that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from streamgauge.models.efficientnet import STAGES

OUR_EPS = 1e-5
KERAS_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
KERAS_STD = (1 / 255,) * 3
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Published(NamedTuple):
    """Weights by our names, and what is known of the network they are of."""

    arrays: Mapping[str, Tensor]
    mean: tuple[float, ...] | None = None  # of pixels in 0..1, where it is known
    std: tuple[float, ...] | None = None
    stride_on_first: bool | None = None  # of ResNet50's blocks, where it is known


def to_ours(arrays: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights of PyTorch under our names; what has none keeps its own."""
    if any(name.removeprefix("resnet.").startswith("embedder.embedder.") for name in arrays):
        return {_from_hugging_face(name): array for name, array in arrays.items()}
    if "_conv_stem.weight" in arrays:
        return {_from_lite(name): array for name, array in arrays.items()}
    if "conv_stem.weight" in arrays:  # timm's, but for the classifier
        return {re.sub(r"^classifier\.", "fc.", name): array for name, array in arrays.items()}
    return arrays


def _from_hugging_face(name: str) -> str:
    part = re.fullmatch(r"(?:resnet\.)?embedder\.embedder\.(convolution|normalization)\.(.+)", name)
    if part:
        return f"{'conv1' if part[1] == 'convolution' else 'bn1'}.{part[2]}"
    part = re.fullmatch(
        r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.(shortcut|layer\.(\d+))"
        r"\.(convolution|normalization)\.(.+)",
        name,
    )
    if part:
        block = f"layer{int(part[1]) + 1}.{part[2]}"
        is_conv = part[5] == "convolution"
        if part[3] == "shortcut":
            return f"{block}.downsample.{0 if is_conv else 1}.{part[6]}"
        return f"{block}.{'conv' if is_conv else 'bn'}{int(part[4]) + 1}.{part[6]}"
    return re.sub(r"^classifier\.1\.", "fc.", name)


def _from_lite(name: str) -> str:
    part = re.fullmatch(r"_blocks\.(\d+)\._(\w+?)\.(.+)", name)
    if part:
        stage, block = _LITE_BLOCKS[int(part[1])]
        own = {
            "expand_conv": "conv_pw",
            "bn0": "bn1",
            "depthwise_conv": "conv_dw",
            "bn1": "bn2",
            "project_conv": "conv_pwl",
            "bn2": "bn3",
        }
        if stage == 0:  # nothing is widened there
            own = {
                "depthwise_conv": "conv_dw",
                "bn1": "bn1",
                "project_conv": "conv_pw",
                "bn2": "bn2",
            }
        return f"blocks.{stage}.{block}.{own.get(part[2], part[2])}.{part[3]}"
    for theirs, ours in (
        ("_conv_stem.", "conv_stem."),
        ("_bn0.", "bn1."),
        ("_conv_head.", "conv_head."),
        ("_bn1.", "bn2."),
        ("_fc.", "fc."),
    ):
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


_LITE_BLOCKS = dict(
    enumerate(
        (stage, block) for stage, (_, _, depth, _, _) in enumerate(STAGES) for block in range(depth)
    )
)


def from_keras(
    arrays: Mapping[str, Tensor], eps: Mapping[str, float], stride_on_first: bool
) -> Published:
    """Keras' ResNet50: arrays by `layer/kind`, batch norm's epsilon by layer."""
    converted: dict[str, Tensor] = {}
    for name, array in arrays.items():
        layer, _, kind = name.rpartition("/")
        ours = _keras_layer(layer)
        if ours is None or kind == "bias":
            if ours == "fc":
                converted["fc.bias"] = array
            continue
        if kind == "kernel":
            converted[f"{ours}.weight"] = (
                array.T if array.ndim == 2 else array.permute(3, 2, 0, 1)
            ).contiguous()
        elif kind in ("gamma", "beta"):
            converted[f"{ours}.{'weight' if kind == 'gamma' else 'bias'}"] = array
        elif kind == "moving_variance":
            converted[f"{ours}.running_var"] = (array.double() + eps[layer] - OUR_EPS).float()
        elif kind == "moving_mean":
            bias = arrays.get(f"{_convolution_of(layer)}/bias")
            shifted = array if bias is None else (array.double() - bias.double()).float()
            converted[f"{ours}.running_mean"] = shifted
    if "conv1.weight" in converted:
        converted["conv1.weight"] = torch.flip(converted["conv1.weight"], (1,))
    return Published(converted, KERAS_MEAN, KERAS_STD, stride_on_first)


def _keras_layer(layer: str) -> str | None:
    """Where a layer of Keras stands with us: `res3b_branch2a` is `layer2.1.conv1`."""
    plain = {
        "conv1": "conv1",
        "bn_conv1": "bn1",
        "conv1_conv": "conv1",
        "conv1_bn": "bn1",
        "fc1000": "fc",
        "predictions": "fc",
        "probs": "fc",
    }
    if layer in plain:
        return plain[layer]
    old = re.fullmatch(r"(res|bn)(\d)([a-z])_branch(1|2[abc])", layer)
    if old:
        block, conv = f"layer{int(old[2]) - 1}.{ord(old[3]) - ord('a')}", old[1] == "res"
        if old[4] == "1":
            return f"{block}.downsample.{0 if conv else 1}"
        return f"{block}.{'conv' if conv else 'bn'}{'abc'.index(old[4][1]) + 1}"
    new = re.fullmatch(r"conv(\d)_block(\d+)_(\d)_(conv|bn)", layer)
    if new:
        block, conv = f"layer{int(new[1]) - 1}.{int(new[2]) - 1}", new[4] == "conv"
        if new[3] == "0":
            return f"{block}.downsample.{0 if conv else 1}"
        return f"{block}.{new[4]}{new[3]}"
    return None


def _convolution_of(layer: str) -> str:
    """The convolution in front of a batch norm."""
    if layer == "bn_conv1":
        return "conv1"
    return re.sub(r"^bn(\d)", r"res\1", layer) if layer.startswith("bn") else layer[:-2] + "conv"
