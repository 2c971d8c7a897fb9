"""Published weights under our names, and Keras' files converted to ours: TensorFlow.js and HDF5.

Our names are torchvision's for the ResNets and timm's for EfficientNet-Lite0. Names of Hugging
Face's ResNet, `efficientnet_lite_pytorch` and Keras' ResNet50 (`res2a_branch2a` in old files,
`conv2_block1_1_conv` in new ones) are known too. What is different in Keras' network is converted,
exactly in evaluation mode:
- convolutions have a bias: it is subtracted from batch norm's mean;
- batch norm's epsilon is different: variance + epsilon - 1e-5 is the new variance;
- colours come as BGR: the channels of the first convolution are reversed;
- pixels are 0..255 minus a mean: users of the weights set `KERAS_MEAN` and `KERAS_STD`;
- the stride is on the first 1 x 1 convolution of a block: only the model `resnet50_v1` has that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.models.efficientnet import STAGES
from streamgauge.models.hdf5 import CONFIG

OUR_EPS = 1e-5
KERAS_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
KERAS_STD = (1 / 255,) * 3
# For files without a topology: Keras' own ResNet50, by its old names and by its new ones.
_OLD_EPS, _NEW_EPS = 1e-3, 1.001e-5


class PublishedWeights(NamedTuple):
    """Weights by our names, and facts about their network; None where a fact is not known."""

    arrays: Mapping[str, Tensor]
    mean: tuple[float, ...] | None = None  # of pixels in 0..1
    std: tuple[float, ...] | None = None
    stride_on_first: bool | None = None  # of ResNet50's blocks


def to_ours(arrays: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights of PyTorch under our names; unknown names are kept."""
    if any(name.removeprefix("resnet.").startswith("embedder.embedder.") for name in arrays):
        return {_from_hugging_face(name): array for name, array in arrays.items()}
    if "_conv_stem.weight" in arrays:
        return {_from_lite(name): array for name, array in arrays.items()}
    if "conv_stem.weight" in arrays:  # timm's, but for the classifier
        return {re.sub(r"^classifier\.", "fc.", name): array for name, array in arrays.items()}
    return arrays


def _resnet_layer(stage: int, block: int, number: int, is_conv: bool) -> str:
    """Our name of a layer in a ResNet's block; number 0 is the shortcut.

    >>> _resnet_layer(2, 1, 1, is_conv=True), _resnet_layer(1, 0, 0, is_conv=False)
    ('layer2.1.conv1', 'layer1.0.downsample.1')
    """
    layer = f"{'conv' if is_conv else 'bn'}{number}" if number else f"downsample.{int(not is_conv)}"
    return f"layer{stage}.{block}.{layer}"


def _from_hugging_face(name: str) -> str:
    part = re.fullmatch(r"(?:resnet\.)?embedder\.embedder\.(convolution|normalization)\.(.+)", name)
    if part:
        return f"{'conv1' if part[1] == 'convolution' else 'bn1'}.{part[2]}"
    part = re.fullmatch(
        r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.(?:shortcut|layer\.(\d+))"
        r"\.(convolution|normalization)\.(.+)",
        name,
    )
    if part:
        number = 0 if part[3] is None else int(part[3]) + 1
        layer = _resnet_layer(int(part[1]) + 1, int(part[2]), number, part[4] == "convolution")
        return f"{layer}.{part[5]}"
    return re.sub(r"^classifier\.1\.", "fc.", name)


_LITE_BLOCKS = [(stage, block) for stage, sizes in enumerate(STAGES) for block in range(sizes[2])]
_LITE_OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1"}
_LITE_OUTSIDE |= {"_conv_head": "conv_head", "_bn1": "bn2", "_fc": "fc"}
_LITE_FIRST = {"depthwise_conv": "conv_dw", "project_conv": "conv_pw"}  # the first stage
_LITE_LATER = {"expand_conv": "conv_pw", "bn0": "bn1", "depthwise_conv": "conv_dw", "bn1": "bn2"}
_LITE_LATER |= {"project_conv": "conv_pwl", "bn2": "bn3"}


def _from_lite(name: str) -> str:
    part = re.fullmatch(r"_blocks\.(\d+)\._(\w+?)\.(.+)", name)
    if part:
        stage, block = _LITE_BLOCKS[int(part[1])]
        layers = _LITE_LATER if stage else _LITE_FIRST
        return f"blocks.{stage}.{block}.{layers.get(part[2], part[2])}.{part[3]}"
    layer, dot, kind = name.partition(".")
    return _LITE_OUTSIDE.get(layer, layer) + dot + kind


def from_keras(
    arrays: Mapping[str, Tensor], eps: Mapping[str, float], stride_on_first: bool
) -> PublishedWeights:
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
    return PublishedWeights(converted, KERAS_MEAN, KERAS_STD, stride_on_first)


_KERAS_OUTSIDE = {"conv1": "conv1", "bn_conv1": "bn1", "conv1_conv": "conv1", "conv1_bn": "bn1"}
_KERAS_OUTSIDE |= dict.fromkeys(("fc1000", "predictions", "probs"), "fc")


def _keras_layer(layer: str) -> str | None:
    """Our name of a layer of Keras: `res3b_branch2a` is `layer2.1.conv1`. None: unknown."""
    old = re.fullmatch(r"(res|bn)(\d)([a-z])_branch(1|2[abc])", layer)
    if old:
        number = " abc".index(old[4][1:] or " ")
        return _resnet_layer(int(old[2]) - 1, ord(old[3]) - ord("a"), number, old[1] == "res")
    new = re.fullmatch(r"conv(\d)_block(\d+)_(\d)_(conv|bn)", layer)
    if new:
        return _resnet_layer(int(new[1]) - 1, int(new[2]) - 1, int(new[3]), new[4] == "conv")
    return _KERAS_OUTSIDE.get(layer)


def _convolution_of(layer: str) -> str:
    """The convolution before a batch norm."""
    if layer == "bn_conv1":
        return "conv1"
    return re.sub(r"^bn(\d)", r"res\1", layer) if layer.startswith("bn") else layer[:-2] + "conv"


def read_tensorflow_js(path: Path) -> PublishedWeights:
    """A layers model: its topology has epsilons and strides, its manifest positions of arrays."""
    try:
        whole = json.loads(path.read_text())
        groups = whole["weightsManifest"]
        config = whole["modelTopology"]["model_config"]["config"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise StreamgaugeError(
            f"'{path}' is not the model.json of a TensorFlow.js layers model."
        ) from None
    arrays: dict[str, Any] = {}
    for group in groups:
        parts = []
        for name in group["paths"]:
            if Path(name).name != name:
                raise StreamgaugeError(f"'{path}' names the file '{name}', outside its folder.")
            file = path.parent / name
            if not file.is_file():
                raise StreamgaugeError(f"The weights of '{path}' lack the file '{name}'.")
            parts.append(file.read_bytes())
        data, start = b"".join(parts), 0
        for entry in group["weights"]:
            stored = entry.get("quantization", {}).get("dtype", entry["dtype"])
            if stored not in ("float32", "float16"):
                raise StreamgaugeError(
                    f"The weights of '{path}' are stored as {stored}: only float32 and float16 can"
                    " be read."
                )
            kind = np.dtype(stored).newbyteorder("<")
            count = int(np.prod(entry["shape"], dtype=np.int64))
            if start + count * kind.itemsize > len(data):
                raise StreamgaugeError(f"The weights of '{path}' are cut off: get them anew.")
            flat = np.frombuffer(data, kind, count, start)
            start += count * kind.itemsize
            arrays[entry["name"]] = torch.from_numpy(
                flat.reshape(entry["shape"]).astype(np.float32, copy=True)
            )
    return _published(arrays, config)


HDF5_SECONDS = 60.0  # and a second per 10 MB


def read_hdf5(path: Path) -> PublishedWeights:
    """A model or its weights as Keras 2 stores them, and as `keras.applications` publishes them."""
    with packages_for("reading .h5 files"):
        import h5py  # noqa: F401
    program = Path(__file__).with_name("hdf5.py")
    with TemporaryDirectory(prefix="streamgauge-") as folder:
        out = Path(folder) / "arrays.npz"
        try:
            read = subprocess.run(
                [sys.executable, "-P", str(program), str(path), str(out)],
                capture_output=True,
                timeout=HDF5_SECONDS + path.stat().st_size / 1e7,
            )
        except subprocess.TimeoutExpired:
            raise ValueError("reading it does not end") from None
        if read.returncode:
            text = read.stderr.decode(errors="replace").strip() or f"exit code {read.returncode}"
            raise ValueError(text.splitlines()[-1])
        with np.load(out, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    described = arrays.pop(CONFIG, None)
    config = None if described is None else json.loads(described.tobytes())["config"]
    return _published({name: torch.from_numpy(array) for name, array in arrays.items()}, config)


def _published(arrays: Mapping[str, Any], config: Any) -> PublishedWeights:
    layers = {}
    if isinstance(config, dict):
        layers = {part["config"]["name"]: part["config"] for part in config.get("layers", [])}
    eps = {}
    for name in arrays:
        layer, _, kind = name.rpartition("/")
        if kind == "moving_variance":
            usual = _OLD_EPS if layer.startswith("bn") else _NEW_EPS
            eps[layer] = float(layers.get(layer, {}).get("epsilon", usual))
    first = layers.get("res3a_branch2a") or layers.get("conv3_block1_1_conv") or {}
    strides = first.get("strides", [2, 2])  # as in every ResNet50 that Keras has published
    return from_keras(arrays, eps, list(strides) == [2, 2])
