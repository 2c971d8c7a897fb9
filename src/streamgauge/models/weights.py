"""Published weights from a file, without running what a file says."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.models.base import Model

CLASSIFIER = "fc."
MASK = "fc.seen"  # which classes were met: ours alone, so no published file has it


class Loaded(NamedTuple):
    """What became of the names in a file of weights."""

    loaded: tuple[str, ...]
    kept: tuple[str, ...]  # of the model, left as they were
    unused: tuple[str, ...]  # of the file, not needed

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} arrays loaded"]
        if self.kept:
            parts.append(f"left as initialised: {_some(self.kept)}")
        if self.unused:
            parts.append(f"in the file but not used: {_some(self.unused)}")
        return "; ".join(parts) + "."


def load_weights(model: Model, path: str | Path) -> Loaded:
    """Fill a model with weights from a `.safetensors`, `.pth` or `.pt` file.

    All of the backbone has to be in the file, by name and with the right shape, or nothing is
    loaded. The classifier, that is every name that begins with `fc.`, is loaded where name and
    shape agree and otherwise left as it was initialised: published weights have 1,000 classes, and
    a stream has its own. The answer says what was loaded and what was not, and reads as a sentence.
    Which classes are masked changes only if the file says so (`fc.seen`).

    Batch norm's count of batches may be missing, as it is in old files. A dictionary under
    `state_dict` or `model`, and names that all begin with `module.`, are recognised. Pickled files
    are read with `weights_only=True`.
    """
    found = _read(Path(path))
    own = model.state_dict()
    want = {name: tuple(array.shape) for name, array in own.items()}
    have = {name: tuple(array.shape) for name, array in found.items()}
    fits = [name for name in own if have.get(name) == want[name]]
    kept = [name for name in own if name not in fits]
    unused = [name for name in found if name not in own]
    backbone = [name for name in kept if not name.startswith(CLASSIFIER)]
    missing = [n for n in backbone if n not in found and not n.endswith(".num_batches_tracked")]
    misfit = [f"{n} {have[n]} where it needs {want[n]}" for n in backbone if n in found]
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
            own[name].copy_(found[name])  # the arrays of state_dict() are the model's own
    return Loaded(tuple(fits), tuple(n for n in kept if n != MASK), tuple(unused))


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise StreamgaugeError(f"there is no file of weights '{path}': check the path.")
    if path.suffix == ".safetensors":
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        except ImportError:
            raise StreamgaugeError(
                "reading .safetensors files needs a package: pip install 'streamgauge[weights]'."
            ) from None
        try:
            return dict(load_file(path))
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from None
    if path.suffix not in (".pth", ".pt"):
        raise StreamgaugeError(
            f"'{path}' is not a file of weights that can be read: "
            f"give one that ends in .safetensors, .pth or .pt."
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
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


def _unreadable(path: Path, error: Exception) -> StreamgaugeError:
    why = (str(error).splitlines() or [type(error).__name__])[0].strip()
    if isinstance(error, pickle.UnpicklingError):
        why = "it is damaged, or holds more than arrays and plain values"
    return StreamgaugeError(f"the weights in '{path}' cannot be read ({why}): get the file anew.")


def _some(names: list[str] | tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
