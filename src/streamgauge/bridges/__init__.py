"""Other libraries, one module per library: their models as learners in our loop, hooks that record
their loops, and our streams in their form. A library is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_MODULES = ("avalanche", "capymoa", "lightning", "river", "sklearn", "torch")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module 'streamgauge.bridges' has no attribute '{name}'")
    return import_module(f"streamgauge.bridges.{name}")


def __dir__() -> list[str]:
    return [*_MODULES]
