"""A program of its own that reads Keras' HDF5 files: HDF5 never returns from some damaged files,
and only the end of the process ends it. `layouts.read_hdf5` starts it with a time limit.

    python -P hdf5.py weights.h5 arrays.npz

It imports nothing of Streamgauge: it takes half a second to start.
"""

from __future__ import annotations

import sys
from typing import Any

CONFIG = "model_config"  # name of the model's description among the arrays, as bytes

# The first files of keras.applications called arrays by other names.
_KINDS = {"running_mean": "moving_mean", "running_std": "moving_variance"}
_KINDS |= {"W": "kernel", "b": "bias"}


def main(path: str, out: str) -> None:
    import h5py
    import numpy as np

    arrays: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        if CONFIG in file.attrs:
            arrays[CONFIG] = np.frombuffer(_text(file.attrs[CONFIG]).encode(), np.uint8)
        group = file.get("model_weights", file)
        for layer in map(_text, group.attrs["layer_names"]):
            for name in map(_text, group[layer].attrs["weight_names"]):
                kind = name.rpartition("/")[2].partition(":")[0].removeprefix(f"{layer}_")
                values = np.asarray(group[layer][name], np.float32)
                arrays[f"{layer}/{_KINDS.get(kind, kind)}"] = values
    with open(out, "wb") as target:
        np.savez(target, **arrays)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
