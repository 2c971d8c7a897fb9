"""`streamgauge data`: list, download, add, describe and pack data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli import options as shared
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    from streamgauge.streams import Stream
    from streamgauge.streams.datasets.data_set import Stored

data = typer.Typer(
    help="List, download, add and pack data sets.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Name of a data set; `streamgauge data list` shows all.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets [$STREAMGAUGE_DATA, or the data folder of your user]."
    ),
]


@data.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand not in ("pack", "shift"):
        shared.no_settings(context, ".")


@dataclass(frozen=True, kw_only=True)
class ClassesOptions:
    """Options of `run_classes`, by its names."""

    out: Annotated[Path, typer.Option(help="File to write the classes to.")] = Path("classes.json")
    use: Annotated[
        Path | None, typer.Option(help="Use the classes in this file instead of making new ones.")
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Write the points with their labels to this file: .parquet, .csv or .npy."
        ),
    ] = None
    report: Annotated[Path | None, typer.Option(help="HTML page with a map to write.")] = None
    preparation: Annotated[
        float,
        typer.Option(help="Share of the points, the earliest, that the classes are made from."),
    ] = 0.05
    split_above: Annotated[int, typer.Option(help="Divide cells with more points than this.")] = (
        10_000
    )
    keep_from: Annotated[int, typer.Option(help="Drop cells with fewer points than this.")] = 50
    max_level: Annotated[int, typer.Option(help="Do not divide cells of this S2 level.")] = 30
    latitude: Annotated[str | None, shared.column_option("latitudes")] = None
    longitude: Annotated[str | None, shared.column_option("longitudes")] = None
    time: Annotated[str | None, shared.column_option("times")] = None
    user: Annotated[str | None, shared.column_option("users")] = None
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Another column to write with the labels; may be given several times."),
    ] = None
    calendar: Annotated[
        bool, typer.Option("--calendar", help="Write time of day, week and year with the labels.")
    ] = False
    years: Annotated[
        str | None,
        typer.Option(help="Use only points of these years, such as 2004-2014, as CLOC does."),
    ] = None
    threads: Annotated[int | None, typer.Option(help="Number of CPU threads [all].")] = None


@data.command()
@shared.expand_options
def classes(
    table: Annotated[
        Path,
        typer.Argument(
            help="Table of points: CSV, ARFF, Parquet, NPZ, JSON lines, or a folder of .npy files."
        ),
    ],
    options: ClassesOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Make classes of locations: S2 cells, smaller where there are more points.

    As in the CLOC paper, cells with more than 10,000 points of the first 5 % are divided, and cells
    with fewer than 50 points are dropped. Points without a class are dropped and
    counted.

    Examples:

        streamgauge data classes photos.csv --labels labelled.parquet --report map.html

        streamgauge data classes points/ --split-above 500 --keep-from 20 --preparation 0.2

        streamgauge data classes later.csv --use classes.json --labels later.parquet
    """
    from streamgauge.places.command import run_classes

    if options.threads is not None and options.threads < 1:
        raise StreamgaugeError(f"--threads must be at least 1, not {options.threads}.")
    summary = run_classes(table, **vars(options) | {"keep": options.keep or ()})
    if as_json:
        shared.print_json(summary)
        return
    for sentence in summary["words"]:
        print(sentence)


@dataclass(frozen=True, kw_only=True)
class DriftOptions:
    """Options of `stream_drift` and `table_drift`, by their names."""

    periods: Annotated[
        int | None,
        typer.Option(
            help="Number of periods; each has equally many samples [10, fewer for short streams]."
        ),
    ] = None
    shown: Annotated[
        int | None, typer.Option("--period", help="Number of the period to draw [a typical one].")
    ] = None
    gap: Annotated[
        int | None,
        typer.Option(
            help="Samples left out between training and test blocks [correlation length of the "
            "labels]."
        ),
    ] = None
    samples: Annotated[int, typer.Option(help="Largest number of training samples per model.")] = (
        20_000
    )
    chance: Annotated[float, typer.Option(help="Rate of false alarms.")] = 0.01
    seed: Annotated[int, typer.Option(help="Seed of the sampling and of the permutations.")] = 0


@data.command("shift", help="The old name of `streamgauge drift`.")
@shared.expand_options
def drift(
    context: typer.Context,
    table: Annotated[
        Path | None,
        typer.Argument(help="Table with one label per row: CSV, ARFF, Parquet, NPZ or JSON lines."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Stream to test instead of a table: a name, your data (mine.csv, a folder, ...) "
            "or FILE.py."
        ),
    ] = None,
    label: Annotated[str | None, shared.column_option("labels")] = None,
    time: Annotated[str | None, shared.column_option("times")] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="Column with an input, or NPZ array; may be given several times; none: labels "
            "alone [all that a stream of the table uses]."
        ),
    ] = None,
    *,
    options: DriftOptions,
    report: Annotated[Path | None, typer.Option(help="HTML page with a figure to write.")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Test whether a stream drifts: compare models of single periods on all periods.

    The figure is that of the CLOC paper (Figure 2), with a permutation test. Settings of a stream
    are --stream.X. The inputs of a table are those of `--stream TABLE`, so a table and a stream of
    the table give the same answer. Without inputs the models use class frequencies only.

    Examples:

        streamgauge drift mine.csv

        streamgauge drift photos.csv --label location --time taken --report drift.html

        streamgauge drift elec2.csv --label class --feature nswprice --feature nswdemand

        streamgauge drift --stream albums --stream.drift 0
    """
    from streamgauge import catalogue
    from streamgauge.drift import stream_drift, table_drift
    from streamgauge.drift.page import drift_page, method_text

    if (table is None) == (stream is None):
        raise StreamgaugeError("Give one of the two: a table, or --stream NAME.")
    if stream is not None:
        if label or time or feature:
            raise StreamgaugeError("--label, --time and --feature are for a table, not a stream.")
        result = stream_drift(stream_of(stream, context), **vars(options))
    else:
        shared.no_settings(context, ".")
        assert table is not None
        if feature is None and _has_inputs(table, label, time):
            how: dict[str, Any] = {
                "label": label or "",
                "time": time or "",
                "order": "time" if time else "given",
            }
            result = stream_drift(catalogue.stream(str(table), **how), **vars(options))
        else:
            columns = [name for name in feature or () if name != "none"]
            result = table_drift(table, features=columns, label=label, time=time, **vars(options))
    written = None if report is None else drift_page(result).write(report)
    if as_json:
        shared.print_json({**result.to_dict(), "report": None if written is None else str(written)})
        return
    print(result.words)
    print(method_text(result))
    for note in result.notes:
        print(f"Note: {note}")
    if written is not None:
        print(f"Report: {written}")


def _has_inputs(table: Path, label: str | None, time: str | None) -> bool:
    """Whether a stream of the table has inputs: it is no log of predictions, no list of images, and
    has columns besides those of labels, times, users and ids."""
    from streamgauge.streams.own.guess import stream_for
    from streamgauge.tables.columns import columns_named
    from streamgauge.tables.read import open_table

    if not table.is_file() or table.suffix in (".npy", ".npz"):
        return False
    names = open_table(table).names
    if columns_named(names, "prediction") or stream_for(table) != "tabular":
        return False
    known = {
        label,
        time,
        *(n for r in ("label", "time", "user", "id") for n in columns_named(names, r)),
    }
    return bool(set(names) - known)


def stream_of(name: str, context: typer.Context) -> Stream:
    """The stream of a command, with its settings --stream.X."""
    from streamgauge import catalogue

    return catalogue.stream(name, **shared.settings_of(context, "stream")["stream"])


@data.command("list")
def list_(data_folder: DataFolder = None, as_json: shared.AsJson = False) -> None:
    """List all data sets, and show which are on this machine.

    Example:

        streamgauge data list
    """
    from streamgauge.streams.datasets import data_set as sets

    folder = sets.data_folder(data_folder)
    entries = [sets.describe(sets.find(name), folder) for name in sets.names()]
    if as_json:
        shared.print_json({"folder": str(folder), "sets": entries})
        return
    print(f"Data folder: {folder}\n")
    for entry in entries:
        here = f"not here: streamgauge data {'fetch' if entry['files'] else 'info'} {entry['name']}"
        if entry["here"]:
            here = f"here: {entry['samples']:,} samples"
        here = entry.get("problem", here)
        print(f"  {entry['name']:<14} {entry['title']}\n{'':<17}{here}")


@data.command()
def fetch(name: Name, data_folder: DataFolder = None) -> None:
    """Download a data set from the official address, then verify and store the files.

    An interrupted download continues. Without a network, the message names the file and its URL.

    Example:

        streamgauge data fetch cifar100
    """
    from streamgauge.streams.datasets import data_set as sets

    with _progress() as progress:
        stored = sets.fetch(sets.find(name), data_folder, progress=progress)
    print(_stored_text(stored))


@data.command()
def add(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Local folder, archive or file.")],
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images, if not that of the metadata.")
    ] = None,
    other_contents: Annotated[
        bool,
        typer.Option(
            "--other-contents", help="Accept files with another checksum, and record the checksum."
        ),
    ] = False,
    data_folder: DataFolder = None,
) -> None:
    """Add a data set from local files, in any published form.

    Examples:

        streamgauge data add cifar100 ~/Downloads/cifar-100-python.tar.gz

        streamgauge data add cloc metadata/release --images /data/cloc
    """
    from streamgauge.streams.datasets import data_set as sets

    data_set = sets.find(name)
    with _progress() as bar:
        stored = sets.add(
            data_set, path, data_folder, other_contents=other_contents, images=images, progress=bar
        )
    print(_stored_text(stored))


@data.command()
def info(
    name: Name,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the checksums of a packed folder.")
    ] = False,
    data_folder: DataFolder = None,
    as_json: shared.AsJson = False,
) -> None:
    """Describe a data set: revision, licence, citation, folder, number of samples.

    NAME may be the path of a packed folder.

    Examples:

        streamgauge data info cifar100

        streamgauge data info packed/cifar100 --verify
    """
    from streamgauge.streams.datasets import data_set as sets
    from streamgauge.streams.pack.packed import is_packed

    if is_packed(name):
        _packed_info(name, verify, as_json)
        return
    if verify:
        raise StreamgaugeError(
            f"--verify is for packed folders, and '{name}' is none; data sets are verified when"
            " they are added."
        )
    facts = sets.describe(sets.find(name), data_folder)
    if as_json:
        shared.print_json(facts)
        return
    print(facts["title"])
    for key in ("revision", "licence", "citation", "home", "forms"):
        print(f"  {key:<9} {facts[key]}")
    for file in facts["files"]:
        size = "" if file["megabytes"] is None else f"{file['megabytes']} MB, "
        print(f"  {'file':<9} {file['urls'][0]} ({size}md5 {file['md5'] or '-'})")
    if not facts["here"]:
        print(f"  {'here':<9} {facts.get('problem') or 'no. Get it: ' + facts['get']}")
        return
    test = f", of which {facts['test']:,} are the official test set" if facts["test"] else ""
    print(f"  {'here':<9} {facts['folder']} ({facts['megabytes']:,} MB)")
    print(f"  {'counts':<9} {facts['samples']:,} samples, {facts['classes']:,} classes{test}")
    print(f"  {'columns':<9} {', '.join(facts['columns'])}")
    print(f"  {'came as':<9} {facts['form']}, from {facts['from']}")
    print(f"  {'verified':<9} {facts['verified']}")
    for key, value in facts["more"].items():
        print(f"  {key:<9} {value}")


@data.command()
def pack(
    context: typer.Context,
    stream: Annotated[
        str,
        typer.Option(
            help="Stream to pack: a name, your data (a folder, mine.csv, ...) or FILE.py."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the shards, empty or unfinished.")],
    form: Annotated[
        str,
        typer.Option(
            help="kept (image files unchanged), jpeg (resized, as JPEG), array (plain pixels or "
            "numbers), or auto: kept if there are image files, else array."
        ),
    ] = "auto",
    size: Annotated[int, typer.Option(help="Pixels per side; 0: as in the stream.")] = 0,
    quality: Annotated[int, typer.Option(help="JPEG quality for --form jpeg, 1 to 95.")] = 90,
    shard: Annotated[int, typer.Option(help="Samples per shard; 0: chosen by size in bytes.")] = 0,
    on_bad: Annotated[
        str,
        typer.Option(help="What a bad image does: stop the packing (fatal) or be left out (skip)."),
    ] = "fatal",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of worker processes; the result does not depend on the number [one per "
            "core]."
        ),
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Pack the samples of a stream into seekable shards, which open fast at any size.

    Settings of the stream are given as --stream.X. The same command continues an interrupted
    packing. Bad images are listed with the reason in bad.csv.

    Examples:

        streamgauge data pack --stream cifar100 --out packed/cifar100

        streamgauge data pack --stream my_photos.py --size 224 --form jpeg --out packed/photos

        streamgauge run --stream packed --stream.path packed/photos --learner er
    """
    from streamgauge.settings import coerce
    from streamgauge.streams.pack.packed import info as describe
    from streamgauge.streams.pack.packing import Form, OnBad, Packing
    from streamgauge.streams.pack.packing import pack as write

    if workers is not None and workers < 0:
        raise StreamgaugeError(f"--workers is 0 or more, not {workers}.")
    built = stream_of(stream, context)
    how = Packing(coerce(form, Form, "--form"), size, quality, shard)
    bad = coerce(on_bad, OnBad, "--on-bad")
    with _progress() as progress:
        write(built, out, how, on_bad=bad, workers=workers, progress=partial(progress, "packing"))
    facts = describe(out)
    if as_json:
        shared.print_json(facts)
        return
    _print_packed(facts, out)
    apart = {
        "to prepare on": len(built.preparation),
        "held out": len(built.splits.get("held_out", ())),
    }
    if facts["arrangement"] is None and any(apart.values()):
        parts = " and ".join(f"{count:,} {what}" for what, count in apart.items() if count)
        print(
            f"  {'note':<9} the stream's own parts ({parts}) are not kept apart, since no setting"
            " gives them: all samples are packed, and --stream.preparation and --stream.held_out"
            " set parts apart anew."
        )
    print(f"\nTo use it: streamgauge run --stream packed --stream.path {out} --learner er")


def _packed_info(name: str, verify: bool, as_json: bool) -> None:
    from streamgauge.streams.pack import packed

    facts = packed.info(name)
    wrong: list[str] = []
    if verify:
        with _progress() as progress:
            wrong = packed.verify(name, partial(progress, "verifying"))
        facts["wrong"] = wrong
    if as_json:
        shared.print_json(facts)
    else:
        _print_packed(facts, Path(name))
        if verify:
            print(*(wrong or ["Everything is as it was packed."]), sep="\n")
    if wrong:
        raise typer.Exit(1)


def _print_packed(facts: dict[str, Any], folder: Path) -> None:
    state = "whole" if facts["finished"] else f"of {facts['items']:,}; packing is not finished"
    shape = " x ".join(map(str, facts["input_shape"]))
    print(f"{folder}: {facts['samples'] or 0:,} samples, {state}.")
    print(f"  {'what':<9} {facts['name']}, {facts['classes']:,} classes, inputs of {shape}")
    print(
        f"  {'form':<9} {facts['form']}, {facts['shards']} shards, {facts['bytes'] / 1e6:,.1f} MB"
    )
    print(f"  {'columns':<9} {', '.join(facts['columns'])}")
    if facts["arrangement"]:
        arranged = ", ".join(f"{k} {v}" for k, v in facts["arrangement"].items() if v)
        print(f"  {'arranged':<9} {arranged}")
    if facts["bad"]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts["bad"].items())
        print(f"  {'left out':<9} {kinds}; each with its reason in {folder / 'bad.csv'}")


def _stored_text(stored: Stored) -> str:
    about = stored.about
    test = f" and {len(stored.test):,} to test on" if len(stored.test) else ""
    images = about["more"].get("images")
    missing = "Images were not found: add it again with --images FOLDER, or stream without them.\n"
    return (
        f"{stored.data.title}: {about['streamed']:,} samples{test}, {about['classes']:,} classes.\n"
        f"Found as {about['form']} in {about['from']}.\n"
        f"Verified: {about['verified']}.\n{missing if images == '' else ''}"
        f"Stored in {stored.folder}."
    )


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows a progress bar per task, on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console, tasks = Console(stderr=True), {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show
