"""Options and helpers that several commands share, and the factory of their `Execution`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.running.executors.cluster import Cluster, check_executor

if TYPE_CHECKING:
    from streamgauge.running.execution import Execution

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Engine = Annotated[
    Literal["auto", "eager", "graph"],
    typer.Option(help="How steps execute: eager, or recorded once and replayed on a GPU (graph)."),
]
EvaluationPrecision = Annotated[
    Literal["fp32", "tf32", "fp16", "bf16"],
    typer.Option(
        help="Precision of evaluation on a GPU; how many answers differ from fp32 is logged."
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Fail on operations without a deterministic algorithm; applies to new runs.",
    ),
]
SideBySide = Annotated[
    int | None, typer.Option(min=1, help="Runs executed concurrently on one GPU [as many as fit].")
]
Checkpoint = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Threads = Annotated[
    int | None,
    typer.Option(help="CPU threads [chosen per network]."),
]
ReadAhead = Annotated[
    int | None,
    typer.Option("--workers", help="Processes that decode images in advance [one per core]."),
]
StreamName = Annotated[str, typer.Option("--stream", help="Name of a stream, or FILE.py.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the run folders.")]


def column_option(content: str) -> Any:
    """The option that names the column of a table with this content."""
    return typer.Option(help=f"Column of {content} [by its name]; none to ignore.")


RunFolders = Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")]

# Options of every command that can also use a cluster.
On = Annotated[str, typer.Option("--on", help="Executor: local or ray (docs/cluster.md).")]
Address = Annotated[
    str | None, typer.Option(help="Address of Ray [RAY_ADDRESS, this machine's Ray, or a new one].")
]
Gpus = Annotated[
    float | None, typer.Option(help="GPUs per Ray task, such as 0.25 [1 where there are GPUs].")
]
Cpus = Annotated[float | None, typer.Option(help="CPUs per Ray task [1].")]
StoreAt = Annotated[
    str | None,
    typer.Option("--store", help="URL of storage that copies run folders between machines."),
]


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


def execution_of(context: typer.Context, **fields: Any) -> Execution:
    """The `Execution` of a command's options; `fields` are those that no option gives."""
    from streamgauge.running.execution import Execution

    options = context.params
    names = (
        "device", "checkpoint", "workers", "engine", "precision", "deterministic", "side_by_side",
        "threads",
    )  # fmt: skip
    fields |= {name: options[name] for name in names if name in options}
    if "on" in options:
        cluster_options = ("on", "address", "gpus", "cpus", "store")
        fields["cluster"] = cluster_of(*(options.get(name) for name in cluster_options))  # type: ignore[arg-type]
    return Execution(**fields)


def no_settings(context: typer.Context, hint: str = "; settings belong to `run`.") -> None:
    """Refuse dotted settings for a command that has none."""
    if context.obj:
        raise StreamgaugeError(f"--{next(iter(context.obj))} has no meaning here{hint}")


def settings_of(context: typer.Context, *groups: str) -> dict[str, dict[str, Any]]:
    """The dotted settings of a command by group; other groups are refused."""
    settings: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for dotted, value in context.obj.items():
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
