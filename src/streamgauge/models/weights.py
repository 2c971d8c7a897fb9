"""Loads weights from files, or by a published name, which needs a package and a network connection:
`torchvision:resnet18` (or `torchvision:resnet50.IMAGENET1K_V1`), `timm:resnet50.a1_in1k`,
`hf:microsoft/resnet-50`. Mean and std are taken from the description of such weights.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError, first_line, packages_for
from streamgauge.files import readable
from streamgauge.models.base import Model
from streamgauge.models.layouts import PublishedWeights, read_hdf5, read_tensorflow_js, to_ours

Numbers = Sequence[float]
_NAME = re.compile(r"(torchvision|timm|hf):(.+)")


def is_hub_name(weights: str | Path) -> bool:
    """
    >>> is_hub_name("timm:resnet18.a1_in1k"), is_hub_name("resnet18.pth")
    (True, False)
    """
    return _NAME.fullmatch(str(weights)) is not None


def fetch(weights: str) -> tuple[Path | dict[str, Any], PublishedWeights]:
    """A file of weights, or the weights themselves; and the facts that are known about them."""
    match = _NAME.fullmatch(weights)
    assert match is not None
    if match[1] == "torchvision":
        return _torchvision(match[2])
    repository = match[2] if match[1] == "hf" else f"timm/{match[2]}"
    return _hugging_face(repository, weights)


def _torchvision(name: str) -> tuple[dict[str, Any], PublishedWeights]:
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
    return state, PublishedWeights({}, tuple(ways.mean), tuple(ways.std))


def _hugging_face(repository: str, weights: str) -> tuple[Path, PublishedWeights]:
    with packages_for(f"Fetching '{weights}' from the Hugging Face hub"):
        from huggingface_hub import hf_hub_download
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
    return file, PublishedWeights({}, tuple(mean) if mean else None, tuple(std) if std else None)


def _no_network(weights: str, error: Exception) -> StreamgaugeError:
    why = first_line(error).rstrip(".")
    return StreamgaugeError(
        f"'{weights}' cannot be fetched ({why}): check the name and the network, or give a file."
    )


CLASSIFIER = "fc."
MASK = "fc.seen"  # which classes were seen: ours alone, so no published file has it


class Loaded(NamedTuple):
    """The names in a file of weights, by their use."""

    loaded: tuple[str, ...]
    kept: tuple[str, ...]  # arrays of the model that were not changed
    unused: tuple[str, ...]  # arrays of the file that the model does not have
    mean: tuple[float, ...] | None = None  # of the pixels that the weights take; None: not known
    std: tuple[float, ...] | None = None

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} arrays loaded"]
        if self.kept:
            parts.append(f"left as initialised: {_some(self.kept)}")
        if self.unused:
            parts.append(f"in the file but not used: {_some(self.unused)}")
        return "; ".join(parts) + "."


def load_weights(
    model: Model, path: str | Path, *, mean: Numbers | None = None, std: Numbers | None = None
) -> Loaded:
    """Fill a model with weights from a `.safetensors`, `.pth`, `.pt` or `.bin` file, from Keras'
    `.h5` or TensorFlow.js's `model.json`, or by a name such as `timm:resnet50.a1_in1k`.

    All of the backbone has to be in the file, by name and with the right shape, or nothing is
    loaded. The classifier, every name that begins with `fc.`, is loaded where name and shape agree
    and otherwise stays as it was. The result lists what was loaded and what was not; `str` makes a
    sentence of it. Which classes are masked changes only if the file has `fc.seen`.

    Batch norm's count of batches may be missing, as in old files. A dictionary under `state_dict`
    or `model`, the prefix `module.`, and the names of other libraries (see `layouts`) are known.
    Pickled files are read with `weights_only=True`.

    `mean` and `std` are what the pixels will be normalised with. If the weights are known to need
    other values, or another ResNet50, nothing is loaded and the error says what to set.
    """
    with readable(f"The file of weights '{path}'", "get it again"):
        published = _published(path)
    _refuse_other_network(published, model, path)
    _refuse_other_input(published, mean, std, path)
    arrays = published.arrays
    own = model.state_dict()
    want = {name: tuple(array.shape) for name, array in own.items()}
    have = {name: tuple(array.shape) for name, array in arrays.items()}
    fits = [name for name in own if have.get(name) == want[name]]
    kept = [name for name in own if name not in fits]
    unused = [name for name in arrays if name not in own]
    backbone = [name for name in kept if not name.startswith(CLASSIFIER)]
    missing = [n for n in backbone if n not in arrays and not n.endswith(".num_batches_tracked")]
    misfit = [f"{n} {have[n]} where it needs {want[n]}" for n in backbone if n in arrays]
    if missing or misfit or not fits:
        says = [("lacks", missing), ("does not fit in", misfit), ("has unexpectedly", unused)]
        reasons = "; ".join(f"it {what} {_some(names)}" for what, names in says if names)
        reasons = reasons or "nothing in it fits"
        raise StreamgaugeError(
            f"the weights in '{path}' are not of this model: {reasons}; "
            f"build the model that the file was made for."
        )
    with torch.no_grad():
        for name in fits:
            own[name].copy_(arrays[name])  # the arrays of state_dict() are the model's own
    return Loaded(tuple(fits), tuple(n for n in kept if n != MASK), tuple(unused), *published[1:3])


def _published(path: str | Path) -> PublishedWeights:
    if is_hub_name(path):
        fetched, about = fetch(str(path))
        arrays = fetched if isinstance(fetched, dict) else _read(fetched)
        return about._replace(arrays=to_ours(arrays))
    path = Path(path)
    if path.suffix == ".json" and path.is_file():
        return read_tensorflow_js(path)
    if path.suffix in (".h5", ".hdf5") and path.is_file():
        return read_hdf5(path)
    return PublishedWeights(to_ours(_read(path)))


def _refuse_other_network(published: PublishedWeights, model: Model, path: str | Path) -> None:
    first, own = published.stride_on_first, getattr(model, "stride_on_first", None)
    if first is not None and own is not None and first != own:
        raise StreamgaugeError(
            f"the weights in '{path}' have the stride on the "
            f"{'first 1 x 1' if first else '3 x 3'} convolution: build the model "
            f"'{'resnet50_v1' if first else 'resnet50'}' for them."
        )


def _refuse_other_input(
    published: PublishedWeights, mean: Numbers | None, std: Numbers | None, path: str | Path
) -> None:
    for given, wanted in ((mean, published.mean), (std, published.std)):
        if given is None or wanted is None:
            continue
        spread = tuple(given) * len(wanted) if len(given) == 1 else tuple(given)
        if len(spread) != len(wanted) or any(
            abs(a - b) > 0.01 * b for a, b in zip(spread, wanted, strict=True)
        ):
            assert published.mean is not None
            assert published.std is not None
            raise StreamgaugeError(
                f"the weights in '{path}' take pixels normalised in another way: set mean to "
                f"{_listed(published.mean)} and std to {_listed(published.std)}."
            )


def _listed(values: Numbers) -> str:
    return ",".join(f"{value:.5g}" for value in values)


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise StreamgaugeError(f"there is no file of weights '{path}': check the path.")
    if path.suffix == ".safetensors":
        with packages_for("reading .safetensors files"):
            from safetensors.torch import load_file
        return dict(load_file(path))
    if path.suffix not in (".pth", ".pt", ".bin"):
        raise StreamgaugeError(
            f"'{path}' is not a file of weights that can be read: "
            f"give one that ends in .safetensors, .pth, .pt, .bin, .h5 or .json."
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise StreamgaugeError(
            f"the weights in '{path}' cannot be read (the file is damaged, or holds more than"
            " arrays and plain values): get it again."
        ) from None
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    arrays = state if isinstance(state, dict) else {}
    if not arrays or not all(isinstance(v, Tensor) for v in arrays.values()):
        raise StreamgaugeError(
            f"'{path}' holds no weights by name: save model.state_dict(), and nothing else, in it."
        )
    if all(name.startswith("module.") for name in arrays):
        arrays = {name.removeprefix("module."): array for name, array in arrays.items()}
    return dict(arrays)


def _some(names: list[str] | tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
