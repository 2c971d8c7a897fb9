"""`streamgauge data classes` and `streamgauge data shift`: commands that look at a stream one has.

They are plain functions; `cli.data` makes commands of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli.options import (
    AsJson,
    column_option,
    expand_options,
    no_settings,
    print_json,
    settings_of,
)
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    from streamgauge.streams import Stream


@dataclass(frozen=True, kw_only=True)
class ClassesOptions:
    """Options of `run_classes`, by its names."""

    out: Annotated[Path, typer.Option(help="File for the classes.")] = Path("classes.json")
    use: Annotated[Path | None, typer.Option(help="Use the classes of this file; build none.")] = (
        None
    )
    labels: Annotated[
        Path | None, typer.Option(help="Write labelled points: .parquet, .csv or .npy.")
    ] = None
    report: Annotated[Path | None, typer.Option(help="Write a page with a map here.")] = None
    preparation: Annotated[
        float, typer.Option(help="Share of the points, the earliest, to build from.")
    ] = 0.05
    split_above: Annotated[
        int, typer.Option(help="Divide a cell while it holds more points than this.")
    ] = 10_000
    keep_from: Annotated[int, typer.Option(help="Drop cells with fewer points than this.")] = 50
    max_level: Annotated[int, typer.Option(help="Never divide a cell of this level.")] = 30
    latitude: Annotated[str | None, column_option("latitudes")] = None
    longitude: Annotated[str | None, column_option("longitudes")] = None
    time: Annotated[str | None, column_option("times")] = None
    user: Annotated[str | None, column_option("users")] = None
    keep: Annotated[
        list[str] | None, typer.Option(help="Another column to write with labels; repeatable.")
    ] = None
    calendar: Annotated[
        bool, typer.Option("--calendar", help="Write time of day, week and year with labels.")
    ] = False
    threads: Annotated[int | None, typer.Option(help="CPU threads [all].")] = None


@expand_options
def classes(
    context: typer.Context,
    table: Annotated[
        Path, typer.Argument(help="CSV, ARFF, Parquet, NPZ, JSON lines, or .npy files.")
    ],
    options: ClassesOptions,
    as_json: AsJson = False,
) -> None:
    """Make classes of places: S2 cells, small where there are many points.

    As the CLOC paper does: divide a cell while it holds more than 10,000 points of the first 5 %,
    drop cells of fewer than 50. Points in no class are dropped and counted.

    Examples:

        streamgauge data classes photos.csv --labels labelled.parquet --report map.html

        streamgauge data classes points/ --split-above 500 --keep-from 20 --preparation 0.2

        streamgauge data classes later.csv --use classes.json --labels later.parquet
    """
    no_settings(context, ".")
    from streamgauge.places.command import run_classes

    if options.threads is not None and options.threads < 1:
        raise StreamgaugeError(f"--threads must be at least 1, not {options.threads}.")
    summary = run_classes(table, **vars(options) | {"keep": options.keep or ()})
    if as_json:
        print_json(summary)
        return
    for sentence in summary["words"]:
        print(sentence)


@dataclass(frozen=True, kw_only=True)
class DriftOptions:
    """Options of `stream_drift` and `table_drift`, by their names."""

    periods: Annotated[int | None, typer.Option(help="Periods of equally many samples.")] = None
    shown: Annotated[
        int | None, typer.Option("--period", help="The one to draw [the middle one].")
    ] = None
    gap: Annotated[
        int | None, typer.Option(help="Samples between learnt and tested [correlation length].")
    ] = None
    samples: Annotated[int, typer.Option(help="At most so many for each model.")] = 20_000
    chance: Annotated[float, typer.Option(help="Rate of false alarms.")] = 0.01
    seed: Annotated[int, typer.Option(help="Of the samples and permutations drawn.")] = 0


@expand_options
def shift(
    context: typer.Context,
    table: Annotated[
        Path | None, typer.Argument(help="CSV, ARFF, Parquet, NPZ or JSON lines, a label per row.")
    ] = None,
    stream: Annotated[str | None, typer.Option(help="Or a stream: its name, or FILE.py.")] = None,
    label: Annotated[str | None, column_option("labels")] = None,
    time: Annotated[str | None, column_option("times")] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help="Column of the input, or an NPZ array; repeatable.")
    ] = None,
    *,
    options: DriftOptions,
    report: Annotated[Path | None, typer.Option(help="Write a page with a picture here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a stream changes at all: a model of one period against one of the whole range.

    As Figure 2 of the CLOC paper, with a test. Settings of a stream are --stream.X. Without inputs
    the models know only how frequent each class was.

    Examples:

        streamgauge data shift photos.csv --label place --time taken --report shift.html

        streamgauge data shift elec2.csv --label class --feature nswprice --feature nswdemand

        streamgauge data shift --stream albums --stream.drift 0
    """
    from streamgauge.drift import stream_drift, table_drift
    from streamgauge.drift.page import drift_page, method_text

    if (table is None) == (stream is None):
        raise StreamgaugeError("Name one thing to look at: a table, or --stream NAME.")
    if stream is not None:
        if label or time or feature:
            raise StreamgaugeError("--label, --time and --feature are for a table, not a stream.")
        drift = stream_drift(stream_of(stream, context), **vars(options))
    else:
        no_settings(context, ".")
        assert table is not None
        drift = table_drift(table, features=feature or (), label=label, time=time, **vars(options))
    written = None if report is None else drift_page(drift).write(report)
    if as_json:
        print_json({**drift.to_dict(), "report": None if written is None else str(written)})
        return
    print(drift.words)
    print(method_text(drift))
    for note in drift.notes:
        print(f"Note: {note}")
    if written is not None:
        print(f"Report: {written}")


def stream_of(name: str, context: typer.Context) -> Stream:
    """The stream of a command, with its settings --stream.X."""
    from streamgauge import catalogue

    return catalogue.stream(name, **settings_of(context, "stream")["stream"])
