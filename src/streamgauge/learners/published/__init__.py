"""What published codes do differently from their papers: one file per published code.

A method is the paper's algorithm and names the class of its published variant, which is used
instead where the setting `as_published` is on. Files here are no learner names.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Self


class HasPublishedVariant:
    """Base of methods whose published code differs from the paper."""

    # "module.Class" in this folder; by the setting `code` where there are several published codes.
    published: ClassVar[str | dict[str, str]] = ""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        config: Any = named.get("config", given[-1] if given else None)
        kind: Any = cls
        if cls.published and getattr(config, "as_published", False):
            path = cls.published
            kind = _variant(kind, path if isinstance(path, str) else path[config.code])
        made: Self = super().__new__(kind)
        return made


@cache
def _variant(method: Any, path: str) -> Any:
    """The published variant of a method, or of a class that extends the method: there, what the
    class overrides stays overridden."""
    module, _, name = path.partition(".")
    variant = getattr(import_module(f"{__name__}.{module}"), name)
    if issubclass(variant, method) or issubclass(method, variant):
        return variant if issubclass(variant, method) else method
    return type(method.__name__, (method, variant), {"__module__": method.__module__})
