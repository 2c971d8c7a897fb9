"""Learners of other libraries by name, as `river:forest.ARFClassifier`, and around model objects.

A bridge is a module with

- `PACKAGE`, `DISTRIBUTION`: the name to import and the name on PyPI;
- `Learner`: a subclass of `ForeignLearner`;
- `refuse(model)`: raises a sentence for a class or an object that is not a classifier that learns
  from a stream;
- `is_model(value)`: whether a value is a model of the library; the library is imported by then;
- `parameters(model)`: the settings of an object by name; values may be models;
- `copy(model, settings)`: an untrained copy of an object with some settings changed;
- `title(model)`: the name of an object in tables;
- `declared(model_type)`, optional: its settings by name, where its signature does not say them.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType, UnionType
from typing import Any, NamedTuple, Union, cast, get_args, get_origin

from streamgauge.bridges.foreign import ForeignLearner, class_of, library_version, load
from streamgauge.errors import StreamgaugeError, first_line, nearest
from streamgauge.files import json_hash
from streamgauge.learners import behaviour
from streamgauge.learners.mistakes import METHODS
from streamgauge.learners.user_code import Closure

NAMES = {
    name: f"streamgauge.bridges.{name}" for name in ("avalanche", "capymoa", "river", "sklearn")
}
OBJECT = "object"  # PREFIX:object is a model that was made in Python
VERSION = 1  # of what bridges do with a model; a change of answers changes it
_PLAIN = (bool, int, float, str, type(None))
_SCALAR = bool | int | float | str | None


class NamedModel(NamedTuple):
    """A learner class for a model, the name it is shown under, its import path, and its
    settings."""

    kind: type[ForeignLearner]
    name: str
    where: str
    settings: dict[str, Any]


def prefix_of(text: str) -> str:
    """The library of a name; "" for the name of anything else.

    >>> prefix_of("river:forest.ARFClassifier"), prefix_of("mine.py:Mine"), prefix_of("er")
    ('river', '', '')
    """
    prefix, colon, _ = text.partition(":")
    return prefix if colon and prefix in NAMES else ""


def find(what: Any, settings: Mapping[str, Any]) -> NamedModel | None:
    """The learner for a name such as `river:forest.ARFClassifier` or `river:ARFClassifier`, for a
    model class, or around a model object; None for anything else."""
    prefix = prefix_of(what) if isinstance(what, str) else _library_of(what)
    if not prefix:
        return None
    bridge = import_module(NAMES[prefix])
    load(bridge.PACKAGE, what if isinstance(what, str) else type(what).__name__)
    if isinstance(what, str):
        path = what.removeprefix(f"{prefix}:")
        if path == OBJECT:
            raise StreamgaugeError(
                f"This learner is a {prefix} object that was made in Python: call sg.run with the"
                " same stream and model."
            )
        what, path = _find_class(bridge, prefix, path)
    else:
        path = _public_path(bridge, what) if isinstance(what, type) else ""
    bridge.refuse(what)
    if isinstance(what, type):
        if path and are_plain(settings):
            kind = _by_class(prefix, path, what)
            return NamedModel(kind, what.__name__, f"{prefix}:{path}", dict(settings))
        what, settings = what(**settings), {}
    try:
        model = bridge.copy(what, settings)
    except StreamgaugeError:
        raise
    except Exception as error:  # whatever the library raises for a setting that it does not have
        name = type(what).__name__
        raise StreamgaugeError(f"{name} of {prefix} is refused: {first_line(error)}") from error
    return _by_parameters(bridge, prefix, model) or _around(bridge, prefix, model)


# Names.


def _library_of(model: Any) -> str:
    """The library that a class or an object is of, or that a base of its class is of."""
    kind = class_of(model)
    if all(hasattr(kind, method) for method in METHODS):
        return ""  # a learner of the user's that extends a class of the library
    packages = {part.__module__.partition(".")[0] for part in kind.__mro__}
    return next((prefix for prefix in NAMES if prefix in packages), "")


def _find_class(bridge: ModuleType, prefix: str, path: str) -> tuple[type, str]:
    module, _, name = path.rpartition(".")
    if not module:
        path = _full_path(bridge, prefix, name)
        module, _, name = path.rpartition(".")
    try:
        model_class = getattr(import_module(f"{bridge.PACKAGE}.{module}"), name, None)
    except ImportError:
        known = [info.name for info in pkgutil.iter_modules(import_module(bridge.PACKAGE).__path__)]
        hint = nearest(module, known)
        raise StreamgaugeError(f"{bridge.PACKAGE} has no module '{module}'; {hint}") from None
    if not isinstance(model_class, type):
        owner = import_module(f"{bridge.PACKAGE}.{module}")
        known = [n for n, value in vars(owner).items() if isinstance(value, type)]
        raise StreamgaugeError(
            f"There is no class '{name}' in {bridge.PACKAGE}.{module}; {nearest(name, known)}"
        )
    return model_class, path


@cache
def _full_path(bridge: ModuleType, prefix: str, name: str) -> str:
    """The path of a class that is given without its module."""
    package = import_module(bridge.PACKAGE)
    path_of: dict[type, str] = {}
    known = set()
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_") or info.name in ("tests", "conftest"):
            continue
        try:
            members = vars(import_module(f"{bridge.PACKAGE}.{info.name}"))
        except ImportError:  # a part that needs another library
            continue
        known |= {n for n, value in members.items() if isinstance(value, type)}
        if isinstance(members.get(name), type):
            path_of.setdefault(members[name], f"{info.name}.{name}")
    if len(path_of) == 1:
        return next(iter(path_of.values()))
    if path_of:
        paths = " or ".join(f"{prefix}:{path}" for path in sorted(path_of.values()))
        raise StreamgaugeError(
            f"{bridge.PACKAGE} has {len(path_of)} classes '{name}': write {paths}."
        )
    if name in (info.name for info in pkgutil.iter_modules(package.__path__)):
        of_part = vars(import_module(f"{bridge.PACKAGE}.{name}"))
        example = next((n for n in sorted(of_part) if n.endswith("Classifier")), "CLASS")
        raise StreamgaugeError(
            f"{bridge.PACKAGE}.{name} is a module: name a class in it, such as"
            f" {prefix}:{name}.{example}."
        )
    hint = nearest(name, known)
    raise StreamgaugeError(f"There is no class '{name}' in {bridge.PACKAGE}; {hint}")


def _public_path(bridge: ModuleType, kind: type) -> str:
    """The shortest import path of a class below its package; "" for a user's class."""
    parts = kind.__module__.split(".")
    if parts[0] != bridge.PACKAGE.partition(".")[0]:
        return ""
    for end in range(2, len(parts) + 1):
        module = import_module(".".join(parts[:end]))
        if getattr(module, kind.__name__, None) is kind:
            return ".".join([*parts[1:end], kind.__name__])
    return ""


# Learner classes.


@cache
def _by_class(prefix: str, path: str, model_type: Any) -> type[ForeignLearner]:
    bridge = import_module(NAMES[prefix])
    declared = _declared(bridge, model_type)
    defaults = {n: p.default if _is_plain(p.default) else None for n, p in declared.items()}
    return _kind(
        bridge,
        model_type,
        defaults,
        {name: _hint(model_type, parameter) for name, parameter in declared.items()},
        required=frozenset(n for n, p in declared.items() if p.default is p.empty),
        code=json_hash([VERSION, path, library_version(bridge.DISTRIBUTION)], 8),
    )


def _by_parameters(bridge: ModuleType, prefix: str, model: Any) -> NamedModel | None:
    """The learner of an object that its class and plain settings describe; None for another."""
    kind: Any = type(model)
    path = _public_path(bridge, kind)
    declared = _declared(bridge, kind)
    if not path or any(parameter.default is parameter.empty for parameter in declared.values()):
        return None
    given = bridge.parameters(model)
    if set(given) != set(declared):
        return None
    own = hasattr(bridge, "declared")
    usual = {n: p.default for n, p in declared.items()} if own else bridge.parameters(kind())
    changed = {
        name: value
        for name, value in given.items()
        if _Description(bridge, value) != _Description(bridge, usual[name])
    }
    if not all(_is_plain(value) for value in changed.values()):
        return None
    return NamedModel(_by_class(prefix, path, kind), kind.__name__, f"{prefix}:{path}", changed)


def _around(bridge: ModuleType, prefix: str, model: Any) -> NamedModel:
    """The learner of an object with parts, such as a pipeline: only Python can make it again."""
    description = _Description(bridge, model)
    kind = _kind(
        bridge,
        type(model),
        description.settings,
        template=model,
        code=json_hash([VERSION, library_version(bridge.DISTRIBUTION), *description.texts], 8),
        unknown=description.unknown,
    )
    name = re.sub(r"[^\w-]", "", bridge.title(model))  # it is a part of folder names
    return NamedModel(kind, name, f"{prefix}:{OBJECT}", {})


def _kind(
    bridge: ModuleType,
    model_type: type,
    defaults: Mapping[str, Any],
    hints: Mapping[str, Any] | None = None,
    **members: Any,
) -> type[ForeignLearner]:
    """A learner class with a dataclass of settings."""
    fields = [
        (name, (hints or {}).get(name, Any), dataclasses.field(default=value))
        for name, value in defaults.items()
    ]
    members |= {
        "__module__": bridge.__name__,
        "__doc__": inspect.getdoc(model_type),
        "model_type": model_type,
        "Config": dataclasses.make_dataclass("Config", fields, frozen=True),
        "library": library_version(bridge.DISTRIBUTION),
    }
    return cast(type[ForeignLearner], type(model_type.__name__, (bridge.Learner,), members))


class _Description:
    """An object in plain values: `settings` by name, PART__NAME for those of its parts, and the
    texts of functions and classes that are not of the library."""

    def __init__(self, bridge: ModuleType, value: Any) -> None:
        self.settings: dict[str, Any] = {}
        self.texts: list[str] = []
        self.unknown = ""
        self._bridge = bridge
        self._add((), value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Description) and (self.settings, self.texts) == (
            other.settings,
            other.texts,
        )

    __hash__ = None  # type: ignore[assignment]

    def _add(self, names: tuple[str, ...], value: Any) -> None:
        key = re.sub(r"\W", "_", "__".join(names)) or "model_class"
        if _is_plain(value):
            self.settings[key] = tuple(value) if isinstance(value, list) else value
        elif self._bridge.is_model(value):
            kind = type(value)
            self.settings[key] = f"{kind.__module__}.{kind.__qualname__}"
            self._add_code(kind)
            for name, part in self._bridge.parameters(value).items():
                self._add((*names, str(name)), part)
        elif isinstance(value, (list, tuple, dict)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            self.settings[key] = f"{type(value).__name__} of {len(value)}"
            for name, part in items:
                self._add((*names, str(name)), part)
        else:
            self.settings[key] = getattr(value, "__qualname__", type(value).__qualname__)
            closure = Closure()
            closure.value(key, value)
            self.texts += [*closure.parts, *closure.imports.texts()]
            self.unknown = self.unknown or closure.unknown or closure.imports.unknown

    def _add_code(self, kind: type) -> None:
        """The code of a class of the user's that extends one of the library."""
        package = self._bridge.PACKAGE.partition(".")[0]
        if kind.__module__.partition(".")[0] == package:
            return
        code, unknown = behaviour.code_of(kind, {})
        self.texts.append(code)
        self.unknown = self.unknown or unknown


# Settings.


def made(value: Any) -> Any:
    """The value of a setting: PREFIX:PATH in text stands for an object of that class."""
    prefix = prefix_of(value) if isinstance(value, str) else ""
    if not prefix:
        return value
    bridge = import_module(NAMES[prefix])
    return _find_class(bridge, prefix, value.removeprefix(f"{prefix}:"))[0]()


def are_plain(settings: Mapping[str, Any]) -> bool:
    """Whether settings can be stored, and given on a command line."""
    return all(_is_plain(value) for value in settings.values())


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _declared(bridge: ModuleType, kind: type) -> dict[str, inspect.Parameter]:
    """The settings of a model class by name."""
    if hasattr(bridge, "declared"):
        return cast(dict[str, inspect.Parameter], bridge.declared(kind))
    parameters = list(inspect.signature(kind).parameters.values())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name: parameter for parameter in parameters if parameter.kind in named}


def _hint(kind: type, parameter: inspect.Parameter) -> Any:
    """The type of a setting: as annotated where that is plain, else by its default."""
    annotation, default = parameter.annotation, parameter.default
    if isinstance(annotation, str):
        names = vars(sys.modules[kind.__module__])
        with suppress(Exception):  # a name that is imported for type checking only
            annotation = eval(annotation, dict(names))
    if annotation in _PLAIN or _is_plain_union(annotation):
        return annotation
    if isinstance(default, (tuple, list)):
        return tuple[type(default[0]) if default else _SCALAR, ...]  # type: ignore[misc]
    return float | str | None if isinstance(default, float) else _SCALAR


def _is_plain_union(annotation: Any) -> bool:
    union = get_origin(annotation) in (Union, UnionType)
    return union and all(part in _PLAIN for part in get_args(annotation))
