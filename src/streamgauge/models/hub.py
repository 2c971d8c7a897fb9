"""Published weights by name; needs the package of that name and a network connection.

`torchvision:resnet18` (or `torchvision:resnet50.IMAGENET1K_V1`), `timm:resnet50.a1_in1k`,
`hf:microsoft/resnet-50`. Mean and std are taken from their description.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError, first_line
from streamgauge.models.layouts import Published

_NAME = re.compile(r"(torchvision|timm|hf):(.+)")


def is_hub_name(weights: str | Path) -> bool:
    """
    >>> is_hub_name("timm:resnet18.a1_in1k"), is_hub_name("resnet18.pth")
    (True, False)
    """
    return _NAME.fullmatch(str(weights)) is not None


def fetch(weights: str) -> tuple[Path | dict[str, Any], Published]:
    """A file of weights, or the weights themselves; and the facts that are known about them."""
    match = _NAME.fullmatch(weights)
    assert match is not None
    if match[1] == "torchvision":
        return _torchvision(match[2])
    repository = match[2] if match[1] == "hf" else f"timm/{match[2]}"
    return _hugging_face(repository, weights)


def _torchvision(name: str) -> tuple[dict[str, Any], Published]:
    model, _, version = name.partition(".")
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise StreamgaugeError(
            f"'torchvision:{name}' needs a package that works with this torch ({error}):"
            " pip install torchvision, or give a file of weights."
        ) from None
    try:
        chosen = models.get_model_weights(model)[version or "DEFAULT"]
        state = dict(chosen.get_state_dict(check_hash=True, progress=False))
        ways = chosen.transforms()
    except (ValueError, KeyError) as error:
        raise StreamgaugeError(f"torchvision has no weights '{name}': {error}.") from None
    except OSError as error:
        raise _no_network(f"torchvision:{name}", error) from None
    return state, Published({}, tuple(ways.mean), tuple(ways.std))


def _hugging_face(repository: str, weights: str) -> tuple[Path, Published]:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise StreamgaugeError(
            f"'{weights}' is fetched from the Hugging Face hub, which needs a package: pip install"
            " 'streamgauge[hub]', or give a file of weights."
        ) from None
    try:
        file = Path(hf_hub_download(repository, "model.safetensors"))
    except Exception as error:  # the network's, the hub's or the package's
        raise _no_network(weights, error) from None
    about: dict[str, Any] = {}
    for name in ("preprocessor_config.json", "config.json"):
        try:
            about = {**json.loads(Path(hf_hub_download(repository, name)).read_text()), **about}
        except Exception:  # not every repository has both, and none is needed
            continue
    about |= about.get("pretrained_cfg", {})
    mean, std = about.get("image_mean", about.get("mean")), about.get("image_std", about.get("std"))
    return file, Published({}, tuple(mean) if mean else None, tuple(std) if std else None)


def _no_network(weights: str, error: Exception) -> StreamgaugeError:
    why = first_line(error).rstrip(".")
    return StreamgaugeError(
        f"'{weights}' cannot be fetched ({why}): check the name and the network, or give a file."
    )
