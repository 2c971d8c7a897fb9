"""The near-future paper's three comparisons, small, on the generated photo stream.

    python examples/near_future.py overadapt   # newest or uniform samples x head or whole network
    python examples/near_future.py samplers    # uniform, newest, and half of each
    python examples/near_future.py features    # ACM, NCM, SLDA and a trained head, same features

Each trains a backbone on the first fifth of the stream, which is not scored, prints a table and
writes an HTML report. What is done already is not done again.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import streamgauge as sg
from streamgauge.models.features import with_features
from streamgauge.models.pretrain import pretrain
from streamgauge.report import write_report
from streamgauge.report.terminal import leaderboard_text

SHIFT = 160  # photos ahead, far beyond the 38 over which labels of this stream are related
TABLES: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "overadapt": {
        "newest, head": ("overadapt", {"sampler": "fifo", "train": "head"}),
        "newest, whole": ("overadapt", {"sampler": "fifo", "train": "all"}),
        "uniform, head": ("overadapt", {"sampler": "uniform", "train": "head"}),
        "uniform, whole": ("overadapt", {"sampler": "uniform", "train": "all"}),
    },
    "samplers": {
        "uniform": ("replay_only", {"sampler": "uniform"}),
        "newest": ("replay_only", {"sampler": "fifo"}),
        "mixed": ("replay_only", {"sampler": "mixed"}),
    },
    "features": {
        "acm": ("acm", {}),
        "ncm, cosine": ("ncm", {"distance": "cosine"}),
        "ncm, L2": ("ncm", {"distance": "l2"}),
        "slda": ("slda", {}),
        "fc_only": ("fc_only", {"model": "linear"}),
    },
}
FLOOR = {"blind": ("blind", {}), "majority": ("majority", {})}
Table = Enum("Table", {name: name for name in TABLES})  # type: ignore[misc]


def main(
    table: Table,
    seeds: Annotated[int, typer.Option(help="Streams and learners of this many seeds.")] = 3,
    updates: Annotated[int, typer.Option(help="Gradient steps a batch.")] = 1,
    lr: Annotated[float, typer.Option(help="Learning rate; the paper's is the default.")] = 0.005,
    out: Annotated[Path, typer.Option(help="Folder for runs, backbones and features.")] = Path(
        "runs/near_future"
    ),
) -> None:
    torch.set_num_threads(1)  # such small networks gain nothing from a second one
    runs = []
    for seed in range(seeds):
        stream = sg.stream("albums", preparation=0.2, seed=seed)
        weights = out / "backbones"
        pretrain(stream, out=weights)
        if table.value == "features":
            stream = with_features(stream, "cnn4", weights, out=out / "features")
        for name, (learner, settings) in {**TABLES[table.value], **FLOOR}.items():
            own = dict(settings)
            if table.value != "features" and name not in FLOOR:
                own["weights"] = str(weights)
            if "sampler" in own or learner == "fc_only":
                own |= {"passes": updates, "lr": lr}
            recipe = sg.learner(f"{name}={learner}", **own)
            protocol = sg.Protocol(shifts=(SHIFT,), evaluate="end")
            runs.append(sg.run(stream, recipe, protocol=protocol, seed=seed, out=out / table.value))
    print(leaderboard_text(runs))
    print(f"\nReport: {write_report(runs, out / f'{table.value}.html').resolve()}")


if __name__ == "__main__":
    typer.run(main)
