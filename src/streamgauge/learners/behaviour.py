"""The code of a learner, as it counts in a run's identity: behaviour for ours, source for others.

`behaviour.toml` has a hash for each built-in method and variant, and for the parts that settings
name, of what they answered and logged in 50 recorded steps (`tests/behaviour`). Files may be
edited, moved and renamed: while the behaviour stays, the identity does.
"""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from streamgauge.files import json_hash
from streamgauge.learners import user_code
from streamgauge.record.renamed import current_settings

_HERE = Path(__file__).parent
_PARTS = ("model", "policy", "augment", "head")  # settings that name a shared part


@cache
def table() -> dict[str, Any]:
    return tomllib.loads((_HERE / "behaviour.toml").read_text(encoding="utf-8"))


def variant_of(settings: Mapping[str, Any]) -> str:
    return "as_published" if settings.get("as_published") else "default"


def method_code(method: str, settings: Mapping[str, Any]) -> str:
    """Of a built-in method with these settings; empty if its behaviour is not recorded.

    >>> method_code("er", {"augment": "flip"}) == method_code("er", {"augment": "flip", "lr": 1})
    True
    >>> method_code("mir", {}) == method_code("mir", {"as_published": True})
    False
    """
    behaviour = table()["methods"].get(method, {}).get(variant_of(settings))
    return "" if behaviour is None else json_hash([behaviour, *_parts(settings)], 8)


def _parts(settings: Mapping[str, Any]) -> list[str]:
    known = table()["parts"]
    named = {kind: str(settings[kind]) for kind in _PARTS if settings.get(kind) is not None}
    # A policy or the like that only one method has is recorded with that method.
    parts = [known[kind].get(part, part) for kind, part in named.items()]
    if "model" in named and named["model"] not in known["model"]:
        files = sorted((_HERE.parent / "models").glob("*.py"))
        parts.append(json_hash([file.read_text(encoding="utf-8") for file in files], 8))
    return [*parts, known["optimiser"]["sgd"]] if settings.get("momentum") else parts


def code_of(kind: type, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Of a class: the behaviour of a built-in method; of a user's class the source of its files and
    of what they import (`user_code.py`), with the behaviour of the built-in method that it extends.
    And the reason where that is not all that the class depends on."""
    sources, base = [], ""
    for part in kind.__mro__:
        library = part.__module__.partition(".")[0]
        if library == "streamgauge":
            base = base or method_code(_method_name(part), settings)
        elif library != "torch" and library not in sys.stdlib_module_names:
            sources.append(_source(part))
    if base and not sources:
        return base, ""
    used, unknown = user_code.used_by(kind)
    if not base:  # a new built-in method, or one that uses parts of ours without extending one
        ours = [_source(p) for p in kind.__mro__ if p.__module__.startswith("streamgauge.")]
        sources += [*ours, *_parts(settings)]
    return json_hash([*sources, base, *used], 8), unknown


def _method_name(part: type) -> str:
    """A method has the name of its file; what all networks share is recorded with ER."""
    name = part.__module__.rpartition(".")[2]
    return "er" if name == "network" else name


def stored_code(learner: Mapping[str, Any]) -> str:
    """The code of a stored learner: version 0.1.0 stored a hash of source files instead,
    which is translated where the behaviour of those files is known to be today's."""
    settings = learner["settings"] or {}
    code = str(learner["code"])
    for entry in table()["sources"].get(code, ()):
        method, _, variant = entry.partition("/")
        if variant == variant_of(settings):
            return method_code(method, settings)
    return code


def current_learner(learner: Mapping[str, Any]) -> dict[str, Any]:
    """A learner as a run stored it, in today's terms."""
    settings = current_settings(learner.get("where", ""), learner["settings"] or {})
    if not settings:
        settings = learner["settings"]  # none at all is another thing than an empty table
    renamed = {**learner, "settings": settings}
    return {**renamed, "code": stored_code(renamed)}


def _source(part: type) -> str:
    """The text of its file; of a class defined at a prompt there is none."""
    if part.__module__ != "__main__":
        with suppress(OSError, TypeError):
            return Path(inspect.getfile(part)).read_text(encoding="utf-8")
    return ""
