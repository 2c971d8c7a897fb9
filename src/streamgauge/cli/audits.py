"""`streamgauge audit`: how much of a log's accuracy needs no input."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.options import (
    Address,
    AsJson,
    Cpus,
    On,
    cluster_of,
    column_option,
    expand_options,
    no_settings,
)


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of `run_audit`, by its names."""

    label: Annotated[str | None, column_option("true labels")] = None
    prediction: Annotated[str | None, column_option("predicted labels")] = None
    time: Annotated[str | None, column_option("times")] = None
    user: Annotated[str | None, column_option("users")] = None
    album: Annotated[str | None, column_option("albums: samples taken together")] = None
    shift: Annotated[
        str | None, column_option("shifts: samples between the model's last update and the sample")
    ] = None
    age: Annotated[
        str | None, column_option("ages: samples or seconds since the model last learned")
    ] = None
    label_time: Annotated[str | None, column_option("the times at which labels became known")] = (
        None
    )
    label_delay: Annotated[
        str | None,
        typer.Option(help="How late labels become known: a number of samples, or a time (3d)."),
    ] = None
    logp: Annotated[
        str | None, column_option("the natural log of the probability of the true label")
    ] = None
    confidence: Annotated[str | None, column_option("the probability of the predicted label")] = (
        None
    )
    step: Annotated[
        str | None,
        typer.Option(help="Samples whose labels arrive together, or the column of the step."),
    ] = None
    features: Annotated[
        list[str] | None, typer.Option("--feature", help="Column of an input feature; repeatable.")
    ] = None
    shifts: Annotated[
        str | None, typer.Option(help="Shifts to test, in samples or durations: 0,100,1h,1d.")
    ] = None
    every: Annotated[
        str | None, typer.Option(help="Time between samples (30m) where the log has no times.")
    ] = None
    ties: Annotated[
        str,
        typer.Option(help="How blind breaks ties: recent, smallest, or evalocl (as published)."),
    ] = "recent"
    tolerance: Annotated[
        float, typer.Option(help="Advantage of past labels that counts as none (0.02: 2 points).")
    ] = 0.02
    sort: Annotated[bool, typer.Option(help="Sort the rows by time before the audit.")] = False
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help="Exit with code 1 if this condition is true; repeatable."),
    ] = None
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None


@expand_options
def audit(
    context: typer.Context,
    log: Annotated[
        Path, typer.Argument(help="CSV, ARFF, Parquet, Arrow, NPZ, JSON lines, or a run folder.")
    ],
    options: AuditOptions,
    on: On = "local",
    address: Address = None,
    cpus: Cpus = None,
    as_json: AsJson = False,
) -> None:
    """Audit a log: how much of its accuracy needs no input.

    Works on the log of any system: a column of labels is enough, predictions are better.

    Examples:

        streamgauge audit predictions.csv

        streamgauge audit log.parquet --label truth --step 32 --report audit.html

        streamgauge audit log.csv --fail-if 'near_future < blind + 2pt'
    """
    no_settings(context)
    from streamgauge.audit import run_audit
    from streamgauge.running.executors.cluster import spreading

    cluster = cluster_of(on, address, None, cpus)
    with ExitStack() as stack:
        spread = None if cluster is None else stack.enter_context(spreading(cluster))
        given = vars(options) | {
            "features": options.features or (),
            "shifts": None if options.shifts is None else options.shifts.split(","),
            "fail_if": options.fail_if or (),
        }
        code = run_audit(log, spread=spread, as_json=as_json, **given)
    raise typer.Exit(code)
