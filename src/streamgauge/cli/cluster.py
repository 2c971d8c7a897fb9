"""Options of every command that can also work on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgauge.errors import StreamgaugeError
from streamgauge.running.executors.cluster import Cluster, check_place

On = Annotated[str, typer.Option("--on", help="Where: local or ray (docs/cluster.md).")]
Address = Annotated[
    str | None, typer.Option(help="Of Ray [RAY_ADDRESS, this machine's Ray, or a new one].")
]
Gpus = Annotated[
    float | None, typer.Option(help="Of a GPU, each task on Ray, such as 0.25 [1 where there are].")
]
Cpus = Annotated[float | None, typer.Option(help="CPUs of each task on Ray [1].")]
StoreAt = Annotated[
    str | None,
    typer.Option("--store", help="URL that run folders travel through, where no disk is shared."),
]


def cluster_of(
    on: str, address: str | None, gpus: float | None, cpus: float | None, store: str | None = None
) -> Cluster | None:
    """The cluster that was asked for; None is this process."""
    check_place(on)
    given = {"address": address, "gpus": gpus, "cpus": cpus, "store": store}
    given = {name: value for name, value in given.items() if value is not None}
    if on == "local":
        if given:
            raise StreamgaugeError(f"--{next(iter(given))} has a meaning with --on ray only.")
        return None
    return Cluster(**given)  # type: ignore[arg-type]
