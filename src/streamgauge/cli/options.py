"""Options and helpers that several commands share."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

from streamgauge.errors import ALSO_CALLED, StreamgaugeError, nearest
from streamgauge.running.executors.cluster import Cluster, check_executor
from streamgauge.settings import CHECKPOINT

if TYPE_CHECKING:
    from streamgauge.running.execution import Execution

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda or cuda:N.")]
Checkpoint = Annotated[float, typer.Option(min=0, help="Time between checkpoints.")]
Threads = Annotated[int | None, typer.Option(help="Number of CPU threads [chosen per network].")]
ReadAhead = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Number of processes that decode images in advance [one per core]."
    ),
]
StreamName = Annotated[
    str,
    typer.Option(
        "--stream", help="Stream: a name, your data (mine.csv, a folder, ...) or FILE.py."
    ),
]
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle",
        help="Resume models of other libraries, whose states are pickles that can execute code.",
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Execute any code that a folder names: FILE.py or a module.")
]
Code = Annotated[
    list[str] | None,
    typer.Option(
        help="FILE.py of a learner or a stream to execute although a folder names the file; may be "
        "given several times."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the run folders.")]


def column_option(content: str) -> Any:
    """The option that names the column of a table with this content."""
    return typer.Option(help=f"Column of {content}; none: no such column [guessed by name].")


RunFolders = Annotated[list[Path], typer.Argument(help="Run folders, or folders with run folders.")]

# Options of a cluster.
On = Annotated[
    str,
    typer.Option(
        "--on", help="Where to run: local (this machine) or ray (a Ray cluster, docs/cluster.md)."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of the Ray cluster [$RAY_ADDRESS, a cluster on this machine, or a new one]."
    ),
]
Cpus = Annotated[float | None, typer.Option(help="CPUs per Ray task [1].")]


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Options of every command that makes runs, here or on a cluster."""

    device: Device = "auto"
    workers: ReadAhead = None
    engine: Annotated[
        Literal["auto", "eager", "graph"],
        typer.Option(
            help="How training steps execute: eager, or graph (recorded once, replayed on a GPU)."
        ),
    ] = "auto"
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16"],
        typer.Option(
            help="Precision of evaluation on a GPU; the number of answers that differ from fp32 is "
            "logged."
        ),
    ] = "fp16"
    side_by_side: Annotated[
        int | None,
        typer.Option(min=1, help="Runs executed concurrently per GPU [as many as fit]."),
    ] = None
    checkpoint: Checkpoint = CHECKPOINT
    on: On = "local"
    address: Address = None
    gpus: Annotated[
        float | None,
        typer.Option(help="GPUs per Ray task, such as 0.25 [1 if the cluster has GPUs]."),
    ] = None
    cpus: Cpus = None
    store: Annotated[
        str | None,
        typer.Option(help="URL of the storage through which machines exchange run folders."),
    ] = None

    def execution(self, **more: Any) -> Execution:
        """The `Execution` of these options; `more` are the fields that no option gives."""
        from streamgauge.running.execution import Execution

        fields = dict(vars(self))
        of_cluster = [fields.pop(name) for name in ("on", "address", "gpus", "cpus", "store")]
        return Execution(**fields, **more, cluster=cluster_of(*of_cluster))


@dataclass(frozen=True, kw_only=True)
class RunOptions(ExecutionOptions):
    threads: Threads = None
    steps: Annotated[
        int | None,
        typer.Option(
            help="End each run after N steps; the same command without --steps continues."
        ),
    ] = None
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Refuse operations without a deterministic algorithm; applies to new runs.",
        ),
    ] = False
    trust_pickle: TrustPickle = False


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are dataclasses become one option per field."""
    parameters: list[Parameter] = []
    groups: dict[str, tuple[Any, dict[str, Any]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(parameter.annotation, include_extras=True)
        groups[parameter.name] = (parameter.annotation, hints)
        for field in fields(parameter.annotation):
            default = Parameter.empty if field.default is MISSING else field.default
            kind = Parameter.KEYWORD_ONLY
            option = Parameter(field.name, kind, default=default, annotation=hints[field.name])
            parameters.append(option)

    @wraps(command)
    def expanded(**given: Any) -> None:
        for name, (group, hints) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in hints})
        command(**given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def cluster_of(
    on: str, address: str | None, gpus: float | None, cpus: float | None, store: str | None = None
) -> Cluster | None:
    """The cluster of the options; None is this machine."""
    check_executor(on)
    options = {"address": address, "gpus": gpus, "cpus": cpus, "store": store}
    options = {name: value for name, value in options.items() if value is not None}
    if on == "local":
        if options:
            raise StreamgaugeError(f"--{next(iter(options))} has a meaning with --on ray only.")
        return None
    return Cluster(**options)  # type: ignore[arg-type]


def no_settings(context: typer.Context, hint: str = "; settings belong to `run`.") -> None:
    """Refuse dotted settings for a command that has none."""
    if context.obj:
        raise StreamgaugeError(f"--{next(iter(context.obj))} has no meaning here{hint}")


def learner_settings(
    context: typer.Context, learners: Sequence[str], stream: str | None = None
) -> dict[str, Any]:
    """The settings of a command by their dotted names; `--lr` is a setting of the only learner."""
    short = {name: value for name, value in context.obj.items() if "." not in name}
    settings = {name: value for name, value in context.obj.items() if "." in name}
    if not short:
        return settings
    from streamgauge import catalogue

    recipes = [catalogue.learner(text) for text in learners]
    for name, value in short.items():
        owners = [recipe.name for recipe in recipes if name in recipe.known_settings]
        if len(recipes) != 1 or not owners:
            raise StreamgaugeError(_no_option(context, name, owners, recipes, stream))
        if not value:
            raise StreamgaugeError(f"--{name} needs a value: it is a setting of {owners[0]}.")
        settings.setdefault(f"{owners[0]}.{name}", value)
    return settings


def _no_option(
    context: typer.Context, name: str, owners: list[str], recipes: list[Any], stream: str | None
) -> str:
    from streamgauge import catalogue
    from streamgauge.running.protocol import Protocol
    from streamgauge.settings import setting_types

    option, name = f"--{name.replace('_', '-')}", ALSO_CALLED.get(name, name)
    if owners:
        each = " or ".join(f"--{owner}.{name}" for owner in owners)
        return f"There is no option {option}: write {each}, or --learner.{name} for all learners."
    dotted = [f"protocol.{setting}" for setting in setting_types(Protocol)]
    if stream is not None:
        dotted += [f"stream.{setting}" for setting in catalogue.stream_settings(stream)]
    for recipe in recipes:
        dotted += [f"{recipe.name}.{setting}" for setting in ("seed", *recipe.known_settings)]
    if same := [setting for setting in dotted if setting.partition(".")[2] == name]:
        return f"There is no option {option}: did you mean --{' or --'.join(same)}?"
    names = [n for p in context.command.params for n in p.opts if n.startswith("--")]
    meant = {n.removeprefix("--"): n for n in names}
    meant |= {setting.partition(".")[2]: f"--{setting}" for setting in dotted}
    close = get_close_matches(name, meant, 1, 0.75)
    hint = f" Did you mean {meant[close[0]]}?" if close else ""
    owned = " and ".join(f"`streamgauge list {recipe.name}`" for recipe in recipes)
    return (
        f"There is no option {option}.{hint} The options are {', '.join(sorted(names))};"
        f" settings are shown by {owned or '`streamgauge list`'}."
    )


def on_bad_setting(on_bad: str | None, stream: str | None) -> dict[str, Any]:
    """The setting of a stream that --on-bad stands for."""
    if on_bad is None or stream is None:
        return {}
    from streamgauge import catalogue

    words = get_args(catalogue.stream_settings(stream).get("on_bad"))
    if not words:
        raise StreamgaugeError(f"--on-bad is for your own data; the stream {stream} has none.")
    if on_bad not in (*words, "refuse"):
        raise StreamgaugeError(f"--on-bad {on_bad} is for tables: images are refused or skipped.")
    return {"stream.on_bad": on_bad if on_bad in words else "fatal"}


def settings_of(
    context: typer.Context, *groups: str, given: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The dotted settings of a command (or those `given`) by group; other groups are refused."""
    settings: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for dotted, value in (context.obj if given is None else given).items():
        group, _, name = dotted.partition(".")
        if group not in settings:
            raise StreamgaugeError(f"--{dotted} has no meaning here; {nearest(group, groups)}")
        settings[group][name] = value
    return settings


def print_json(value: Any) -> None:
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """As JSON can hold it: an undefined number becomes null, since NaN is not JSON."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def token_in(file: Path | None) -> str | None:
    """A token from a file, since other users can see the words of a command."""
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise StreamgaugeError(f"The token in {file} cannot be read: {reason}.") from None
