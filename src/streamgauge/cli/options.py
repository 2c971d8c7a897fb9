"""Options that several commands have, said once."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer for a program to read.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Engine = Annotated[
    Literal["auto", "eager", "graph"],
    typer.Option(help="How steps execute: recorded and replayed on a GPU, or called one by one."),
]
EvaluationPrecision = Annotated[
    Literal["fp32", "tf32", "fp16", "bf16"],
    typer.Option(help="Of evaluation on a GPU; the share of answers that changes is logged."),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Refuse, in what is still to run, operations that may differ each time.",
    ),
]
SideBySide = Annotated[
    int | None, typer.Option(min=1, help="Runs at once on a GPU [as many as fit].")
]
Checkpoint = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Threads = Annotated[
    int | None,
    typer.Option(help="CPU threads; small networks on a busy machine run best with 1."),
]
ReadAhead = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Processes that decode images ahead [one a core]; changes no result."
    ),
]
