"""Checkpoints from a declaration: a class names the attributes that its state consists of."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from torch import Tensor

from streamgauge.learners.parts.sgd import settle


class Checkpointed:
    """The state is what `checkpointed` names, in a class and in all that it extends. A state has
    copies of arrays and tensors, and shares those of models and optimisers, as in torch. Loading
    changes tensors in place, for recorded steps."""

    checkpointed = ""  # attributes, such as "sums counts"; "key=attribute" where the key differs

    def state_dict(self) -> dict[str, Any]:
        return {key: _state(getattr(self, name)) for key, name in _declared(type(self)).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for key, name in _declared(type(self)).items():
            value = getattr(self, name)
            loaded = _loaded(value, state[key])
            if loaded is not value:
                setattr(self, name, loaded)


def _declared(kind: Any) -> dict[str, str]:
    """Keys and attributes, those of the base class first."""
    entries = " ".join(vars(part).get("checkpointed", "") for part in reversed(kind.__mro__))
    pairs = (entry.partition("=") for entry in entries.split())
    return {key: attribute or key for key, _, attribute in pairs}


def _state(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, list):
        return [_state(item) for item in value]
    if isinstance(value, dict):
        return {name: _state(item) for name, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else copy.copy(value)


def _loaded(value: Any, state: Any) -> Any:
    """The value with the state loaded: the same object, or for plain values a copy of the state."""
    if isinstance(value, torch.optim.SGD):
        fused = value.param_groups[0]["fused"]
        value.load_state_dict(state)
        if fused:
            settle(value, value.param_groups[0]["params"][0].device)
    elif hasattr(value, "load_state_dict"):
        value.load_state_dict(state)
    elif isinstance(value, torch.Generator):
        restore(value, state.cpu())
    elif isinstance(value, Tensor):
        value.copy_(state)
    elif isinstance(value, list):
        for item, stored in zip(value, state, strict=True):
            _loaded(item, stored)
    elif isinstance(value, dict):
        for name, stored in state.items():
            value[name].copy_(stored)
    else:
        return copy.copy(state)
    return value


def restore(generator: torch.Generator, state: Tensor) -> None:
    """Set the state of a generator. States of other devices do not fit: there the generator gets a
    seed that follows from the state."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=7).digest()
        generator.manual_seed(int.from_bytes(digest))
