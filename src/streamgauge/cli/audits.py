"""`streamgauge audit`: what past labels alone predict, and what a model adds."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.options import (
    Address,
    AsJson,
    Code,
    Cpus,
    On,
    Trust,
    cluster_of,
    column_option,
    expand_options,
    no_settings,
)
from streamgauge.errors import StreamgaugeError


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
        str | None,
        column_option("ages: how many of the newest earlier labels the model had not learnt"),
    ] = None
    label_time: Annotated[str | None, column_option("the times at which labels became known")] = (
        None
    )
    label_delay: Annotated[
        str | None,
        typer.Option(
            help="Delay until a label becomes known: a number of samples, or a time such as 3d [0]."
        ),
    ] = None
    logp: Annotated[
        str | None, column_option("the natural log of the probability of the true label")
    ] = None
    confidence: Annotated[str | None, column_option("the probability of the predicted label")] = (
        None
    )
    step: Annotated[
        str | None,
        typer.Option(
            help="Number of samples whose labels arrive together, or name of the column that "
            "numbers the steps."
        ),
    ] = None
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", help="Column with an input feature; may be given several times."),
    ] = None
    shifts: Annotated[
        str | None,
        typer.Option(
            help="Shifts to examine, in samples or as times: 0,100,1h,1d [chosen by the length of "
            "the log]."
        ),
    ] = None
    every: Annotated[
        str | None,
        typer.Option(help="Time between two samples, such as 30m, if the log has no times."),
    ] = None
    ties: Annotated[
        str,
        typer.Option(
            help="How `blind` breaks ties: by the most recent label, the smallest label, or as the "
            "published code (evalocl)."
        ),
    ] = "recent"
    tolerance: Annotated[
        float,
        typer.Option(
            min=0, help="Advantage of past labels that counts as no advantage; 0.02 is two points."
        ),
    ] = 0.02
    margin: Annotated[float | None, typer.Option(hidden=True)] = None
    tolerance_bits: Annotated[
        float,
        typer.Option(min=0, help="Bits per sample from the answers that count as no information."),
    ] = 0.02
    placebo: Annotated[
        bool,
        typer.Option(
            "--placebo",
            help="Run folders only: run the learner again with permuted inputs and compare the "
            "results.",
        ),
    ] = False
    code: Code = None
    trust: Trust = False
    sort: Annotated[bool, typer.Option(help="Sort the rows by time before the audit.")] = False
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this condition is true; may be given several times."
        ),
    ] = None
    report: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None


@expand_options
def audit(
    context: typer.Context,
    log: Annotated[
        Path,
        typer.Argument(help="Table (CSV, ARFF, Parquet, Arrow, NPZ or JSON lines) or run folder."),
    ],
    options: AuditOptions,
    on: On = "local",
    address: Address = None,
    cpus: Cpus = None,
    as_json: AsJson = False,
) -> None:
    """Audit a log: does the model use its input beyond what past labels predict?

    The log can come from any system: a column of labels is enough, predictions are better. With
    --placebo, the second run is stored next to the first.

    Examples:

        streamgauge audit predictions.csv

        streamgauge audit log.parquet --label truth --step 32 --report audit.html

        streamgauge audit log.csv --label-delay 3d

        streamgauge audit log.csv --fail-if 'added_bits_low < 0.02'

        streamgauge audit runs/albums-er-s0-1a2b3c4d --placebo
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
        code, trust = given.pop("code"), given.pop("trust")
        allowed = trust or tuple(code or ())
        given["placebo"] = _placebo(log, allowed, quiet=as_json) if options.placebo else None
        if (margin := given.pop("margin")) is not None:
            given["tolerance"] = margin
            typer.echo("--margin is now --tolerance; it is removed in version 0.4.", err=True)
        code = run_audit(log, spread=spread, as_json=as_json, **given)
    raise typer.Exit(code)


def _placebo(folder: Path, trust: bool | tuple[str, ...], quiet: bool) -> Path:
    """The folder of the same run with permuted inputs, made where it is missing."""
    from streamgauge.report.watching import Watcher
    from streamgauge.running.runner import placebo

    if not (folder / "run.json").exists():
        raise StreamgaugeError(
            f"--placebo runs the learner again, which needs a run folder of Streamgauge: {folder} "
            "is none."
        )
    with Watcher(quiet=quiet) as watcher:
        return placebo(folder, watch=watcher.watch_run, log=watcher.say, trust=trust).path
