"""Streams over a stored image data set, in tasks of classes or shuffled; `splits.toml` lists them.

Every table there becomes a module-like object here with `Config`, `build` and the data set `DATA`.
"""

from __future__ import annotations

import tomllib
from dataclasses import make_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from streamgauge.streams.datasets.data_set import DataSet, Stored, find
from streamgauge.streams.stream import Arrangement, Stream, arrange


@cache
def splits() -> dict[str, dict[str, Any]]:
    """Every split by name: `what` it is, its `data` set, and all `settings` with their defaults."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {
        name: {**table, "settings": tables["families"][table["family"]] | table.get("settings", {})}
        for name, table in tables["streams"].items()
    }


@cache
def split_module(name: str) -> ModuleType:
    """A split in the form of a stream's file: `Config`, and `build(config)`."""
    table = splits()[name]
    types = get_type_hints(Arrangement)
    fields = [(field, types[field], default) for field, default in table["settings"].items()]
    config = make_dataclass("Config", fields, bases=(Arrangement,), frozen=True)
    config.__module__, config.__qualname__ = __name__, f"{name}.Config"  # where pickle finds it

    def build(config: Any) -> Stream:
        return arrange_stored(find(table["data"]), config, name)

    module = ModuleType(f"{__name__}.{name}", table["what"])
    vars(module).update(Config=config, build=build, DATA=find(table["data"]))
    return module


def arrange_stored(data: DataSet, config: Arrangement, name: str) -> Stream:
    """The stored training samples in the order that `config` says, without the official test set,
    which is evaluated at task boundaries."""
    stored = Stored(data)
    test = stored.test if len(stored.test) else None
    return arrange(stored.source(), config, name=name, test=test, settings=vars(config))


def __getattr__(name: str) -> ModuleType:
    if name not in splits():
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return split_module(name)
