"""A network by name, and its memory layout and precision on a device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.models.base import CosineHead, LinearHead, Model
from streamgauge.models.efficientnet import EfficientNetLite0
from streamgauge.models.resnet import Residual, SlimResNet18, resnet18, resnet50, resnet50_v1
from streamgauge.models.small import Cnn4, Linear, Mlp
from streamgauge.models.wide import Wide

BACKBONES: dict[str, Callable[..., Model]] = {
    "linear": Linear,
    "mlp": Mlp,
    "cnn4": Cnn4,
    "slim_resnet18": SlimResNet18,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet50_v1": resnet50_v1,
    "efficientnet_lite0": EfficientNetLite0,
}
HEADS: dict[str, Callable[..., LinearHead | CosineHead]] = {
    "linear": LinearHead,
    "cosine": CosineHead,
}
TAKES_ANY_SHAPE = ("linear", "mlp")


def model_name(name: str, input_shape: Sequence[int]) -> str:
    """The network that a setting `model` names; auto is cnn4 for images and mlp for vectors."""
    return name if name != "auto" else "cnn4" if len(input_shape) == 3 else "mlp"


def build(
    name: str,
    input_shape: Sequence[int],
    classes: int,
    seed: int,
    head: str = "linear",
    *,
    masked: bool = True,
    **options: Any,
) -> Model:
    """A network with initial weights drawn from `seed` alone, on the CPU.

    The global random state of torch is neither read nor changed. Options go to the network
    (`hidden` of mlp; `width`, `batch_norm` of cnn4; `nf` of slim_resnet18) or to the head (`sigma`
    of cosine).

    >>> model = build("mlp", (1, 8, 8), classes=10, seed=0, hidden=[32])
    >>> model.feature_size, model(torch.zeros(5, 1, 8, 8)).shape
    (32, torch.Size([5, 10]))
    """
    name = model_name(name, input_shape)
    if name not in BACKBONES:
        raise StreamgaugeError(f"there is no model '{name}': {nearest(name, BACKBONES)}")
    if head not in HEADS:
        raise StreamgaugeError(f"there is no head '{head}': {nearest(head, HEADS)}")
    shape = tuple(int(side) for side in input_shape)
    if name not in TAKES_ANY_SHAPE and len(shape) != 3:
        raise StreamgaugeError(
            f"the model '{name}' takes images of channels x height x width, but the input has "
            f"shape {shape}: use 'mlp' or 'linear' for it."
        )
    if classes < 1 or any(side < 1 for side in shape):
        raise StreamgaugeError(
            f"a model cannot have {classes} classes and input of shape {shape}: "
            f"all of these have to be 1 or more."
        )
    of_backbone, of_head = _options(BACKBONES[name]), _options(HEADS[head], "sigma")
    for option in options:
        if option not in of_backbone | of_head:
            raise StreamgaugeError(
                f"the model '{name}' with a {head} head has no option '{option}': "
                f"{nearest(option, of_backbone | of_head)}"
            )
    # Only the CPU's generator is used and restored: touching other devices would start them.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = BACKBONES[name](shape, **{k: v for k, v in options.items() if k in of_backbone})
        own = {k: v for k, v in options.items() if k in of_head}
        model.fc = HEADS[head](model.feature_size, classes, masked, **own)
    return model


def _options(make: Callable[..., Any], *also: str) -> set[str]:
    """Names of keyword-only parameters, and of those in `also` that exist."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY or p.name in also}


def suit(model: Model, device: torch.device, precision: str = "fp32") -> Model:
    """Change a network in place to the layout that is fast on its device; values stay the same. On
    a CPU convolutions are channels-last: slim ResNet18 trains 20 % and answers 50 % faster than
    with channels first. On a GPU this helps only in bfloat16 (20 %), where channels are padded
    too."""
    if device.type == "cpu" or precision == "bf16":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precision == "bf16" and not has_bfloat16(device):
        raise StreamgaugeError(
            f"This {device.type} has no bfloat16 arithmetic, which would make it slower and not "
            f"faster here: leave precision at fp32."
        )
    model.precision = torch.bfloat16 if precision == "bf16" else torch.float32
    if precision == "bf16" and device.type == "cuda" and isinstance(model, Residual):
        model.wide = Wide(model, model.precision)
    return model


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 numbers."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = _processor_flags()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})  # the last is ARM's


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith(("flags", "Features"))]
    except OSError:
        return set()
    return set(lines[0].partition(":")[2].split()) if lines else set()
