"""Keras' weights from files: TensorFlow.js (model.json and .bin shards) and HDF5 (.h5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streamgauge.errors import StreamgaugeError, first_line
from streamgauge.models.layouts import Published, from_keras

# For files without a topology: Keras' own ResNet50, by its old names and by its new ones.
_OLD_EPS, _NEW_EPS = 1e-3, 1.001e-5


def read_tensorflow_js(path: Path) -> Published:
    """A layers model: epsilons and strides are in its topology, positions of arrays in its
    manifest."""
    try:
        whole = json.loads(path.read_text())
        groups = whole["weightsManifest"]
        config = whole["modelTopology"]["model_config"]["config"]
    except (OSError, ValueError, KeyError, TypeError):
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


def read_hdf5(path: Path) -> Published:
    """A model or its weights as Keras 2 stores them, and as `keras.applications` publishes them."""
    try:
        import h5py
    except ImportError:
        raise StreamgaugeError(
            "reading .h5 files needs a package: pip install 'streamgauge[hdf5]'."
        ) from None
    arrays: dict[str, Any] = {}
    config = None
    try:
        with h5py.File(path, "r") as file:
            if "model_config" in file.attrs:
                config = json.loads(_text(file.attrs["model_config"]))["config"]
            group = file.get("model_weights", file)
            for layer in map(_text, group.attrs["layer_names"]):
                for name in map(_text, group[layer].attrs["weight_names"]):
                    kind = name.rpartition("/")[2].partition(":")[0].removeprefix(f"{layer}_")
                    values = np.asarray(group[layer][name], np.float32)
                    arrays[f"{layer}/{_KINDS.get(kind, kind)}"] = torch.from_numpy(values)
    except (OSError, KeyError, ValueError) as error:
        raise unreadable(path, first_line(error)) from None
    return _published(arrays, config)


# The first files of keras.applications called arrays by other names.
_KINDS = {"running_mean": "moving_mean", "running_std": "moving_variance"}
_KINDS |= {"W": "kernel", "b": "bias"}


def unreadable(path: Path, reason: str) -> StreamgaugeError:
    return StreamgaugeError(
        f"the weights in '{path}' cannot be read ({reason}): get the file anew."
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _published(arrays: Mapping[str, Any], config: Any) -> Published:
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
