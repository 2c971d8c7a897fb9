"""Memory layout and precision of a network on its device."""

from __future__ import annotations

import torch

from streamgauge.errors import StreamgaugeError
from streamgauge.models.base import Model
from streamgauge.models.resnet import Residual
from streamgauge.models.wide import Wide


def suit(model: Model, device: torch.device, precision: str = "fp32") -> Model:
    """Change a network in place to the layout that is fast on its device; values stay the same.

    On a CPU convolutions are channels-last: slim ResNet18 trains 20 % and answers 50 % faster than
    with channels first. On a GPU this helps only in bfloat16 (20 %), where channels are padded too.
    """
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
