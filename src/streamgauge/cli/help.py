"""How options look in `--help`, in one style for all commands, and how the shell completes them.

Commands declare options with a help text, which may end in the default that the code computes:
`Folder for the runs [runs].` Placeholders and completion follow from the name of the parameter.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

# Placeholder -> parameters; others have that of their type.
_PLACEHOLDERS = {
    "NAME|PATH": "stream",
    "NAME|FILE": "learner learners",
    "NAME": "name what model study",
    "FOLDER": "folder folders first second out runs tuned data_folder images results",
    "FILE": "code file report use labels token_file",
    "COLUMN": "album age confidence feature features keep label label_time latitude logp longitude"
    " prediction shift time user",
    "SECONDS": "checkpoint hang seconds",
    "SHARE": "chance preparation tolerance",
    "TOOL": "log_to",
    "FOLDER|URI": "log_out",
    "FILE:FUNCTION|NAME": "loop",
    "LIST": "methods shifts speeds",
    "URL": "storage store",
    "N|COLUMN": "step",
    "N|TIME": "label_delay",
    "BACKBONE=FILE": "weights",
    "BITS": "tolerance_bits",
    "CONDITION": "fail_if",
    "METRIC": "objective",
    "NUMBER": "budget",
    "PART": "prefix",
    "ROW": "only",
    "TABLE": "table",
    "TIME": "every",
    "auto|kept|jpeg|array": "form",
    "fatal|skip": "on_bad",
    "float32|uint8": "inputs",
    "local|ray": "on",
    "median|halving|none": "prune",
    "none|online": "scale",
    "process|thread": "trainer",
    "recent|smallest|evalocl": "ties",
    "survey|realtime": "like",
    "tpe|random|grid": "sampler",
}
_BY_NAME = {name: shown for shown, names in _PLACEHOLDERS.items() for name in names.split()}
_BY_TYPE = {int: "N", float: "NUMBER", Path: "PATH"}
_EXAMPLE = re.compile(r"\n\n( +streamgauge )")  # its line is not wrapped
_DEFAULT = re.compile(r"(?s)(.*) \[([^\]]+)\]\.")


def build(app: typer.Typer) -> Any:
    """The command of an app, with the placeholders, defaults and completion of all options."""
    _present_all(app)
    command: Any = typer.main.get_command(app)
    _restyle(command)
    return command


def _present_all(app: typer.Typer) -> None:
    for entry in app.registered_commands:
        if entry.callback is not None and not hasattr(entry.callback, "presented"):
            entry.callback = _presented(entry.callback)
            # Given, so that it is wrapped in the list of commands, not cut off.
            entry.short_help = entry.help or (entry.callback.__doc__ or "").partition("\n")[0]
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.short_help = group.typer_instance.info.help
            _present_all(group.typer_instance)


def _restyle(command: Any) -> None:
    """What Typer adds to placeholders and help texts, in our style."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            # Typer prints the Python type after a placeholder, and braces around it in the usage.
            parameter.display_type_rich = lambda ctx: ""
            parameter.get_usage_pieces = partial(_usage, parameter)
        parameter.get_help_record = partial(_record, parameter.get_help_record)
    for part in getattr(command, "commands", {}).values():
        _restyle(part)


def _usage(argument: Any, context: Any) -> list[str]:
    name = argument.metavar or argument.name.upper()
    return [(name if argument.required else f"[{name}]") + "..." * (argument.nargs != 1)]


def _record(record: Callable[[Any], Any], context: Any) -> Any:
    """Placeholder and help text of a parameter: defaults without parentheses and without `.0`,
    bounds in words."""
    shown = record(context)
    if shown is None:
        return None
    name, text = shown
    text = re.sub(r"(?s)\[default: \((.*)\)(?=[;\]])", r"[default: \1", text)
    text = re.sub(r"(?<=\[default: )(\d+)\.0(?![.\d])", r"\1", text)
    return name, re.sub(r"\bx>=(\d+)", r"at least \1", text)


def _presented(command: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(command, eval_str=True)
    parameters = [_with_looks(p, command.__module__) for p in signature.parameters.values()]

    @wraps(command)
    def presented(**given: Any) -> None:
        command(**given)

    presented.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    presented.presented = True  # type: ignore[attr-defined]
    doc = inspect.getdoc(command) or ""
    presented.__doc__ = _EXAMPLE.sub(lambda example: f"\n\n\b\n{example[1]}", doc)
    presented.__annotations__ = {p.name: p.annotation for p in parameters}
    return presented


def _with_looks(parameter: inspect.Parameter, module: str) -> inspect.Parameter:
    parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    shared = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    if shared is None:
        return parameter
    option, kind = copy.copy(shared), get_args(parameter.annotation)[0]
    option.metavar = option.metavar or _placeholder(parameter, kind)
    if match := _DEFAULT.fullmatch(option.help or ""):
        option.help, option.show_default = f"{match[1]}.", match[2]
    if complete := _names_for(parameter.name, module):
        option.autocompletion = _completion(complete)
    return parameter.replace(annotation=Annotated[kind, option])


def _placeholder(parameter: inspect.Parameter, kind: Any) -> str | None:
    """What stands for the value; None for flags and for choices, which are listed."""
    types = {kind, *get_args(kind)}
    for part in types:
        if get_origin(part) is Literal:
            return "|".join(get_args(part))
    types |= {part for inner in types for part in get_args(inner)}
    if bool in types or not types & {int, float, str, Path}:
        return None
    if isinstance(parameter.default, Path) and parameter.default.suffix:
        return "FILE"
    by_type = next((shown for part, shown in _BY_TYPE.items() if part in types), None)
    if by_type == "N":
        return by_type
    return _BY_NAME.get(parameter.name) or by_type or parameter.name.upper().replace("_", "-")


def _names_for(parameter: str, module: str) -> Callable[[], Iterable[str]] | None:
    """What lists the names that a parameter can have."""
    if parameter == "name":
        return _suites if module.endswith("suite") else _data_sets
    return {
        "learner": _learners,
        "learners": _learners,
        "stream": _streams,
        "objective": _metrics,
        "what": lambda: ["streams", "learners", "protocol", "metrics", "suites", "all",
                         *_learners(), *_streams(), *_suites(), *_metrics()],
    }.get(parameter)  # fmt: skip


def _completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        alias, equals, name = incomplete.rpartition("=")  # of a learner: small=er
        return [f"{alias}{equals}{n}" for n in names() if n.startswith(name)]

    return complete


def _learners() -> list[str]:
    from streamgauge.catalogue import names, presets

    known = [f"{name}@{preset}" for name, sets in presets().items() for preset in sets]
    return [*names("learners"), *sorted(known)]


def _streams() -> list[str]:
    from streamgauge.catalogue import names

    return names("streams")


def _suites() -> list[str]:
    from streamgauge.suites import spec

    return list(spec.names())


def _data_sets() -> list[str]:
    from streamgauge.streams.datasets import data_set

    return list(data_set.names())


def _metrics() -> list[str]:
    from streamgauge.metrics.summary import names

    return names()
