"""`streamgauge data`: list, download, add, describe and pack data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.options import AsJson, print_json
from streamgauge.cli.streams import classes, shift, stream_of
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from streamgauge.streams.datasets.data_set import Stored

data = typer.Typer(
    help="List, download, add and pack data sets.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A data set; `streamgauge data list` shows them.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets [$STREAMGAUGE_DATA, or your user data folder]."),
]


@data.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


data.command()(classes)
data.command()(shift)


@data.command("list")
def list_(data_folder: DataFolder = None, as_json: AsJson = False) -> None:
    """List the known data sets, and which of them are on this machine.

    Example:

        streamgauge data list
    """
    from streamgauge.streams.datasets import data_set as sets

    folder = sets.data_folder(data_folder)
    entries = [sets.describe(sets.find(name), folder) for name in sets.names()]
    if as_json:
        print_json({"folder": str(folder), "sets": entries})
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
    """Download a data set from its official address, verify it and store it.

    An interrupted download continues. Without a network, the message names the file and its URL.

    Example:

        streamgauge data fetch cifar100
    """
    from streamgauge.streams.datasets import data_set as sets

    with _Bar() as bar:
        stored = sets.fetch(sets.find(name), data_folder, progress=bar)
    print(_stored_text(stored))


@data.command()
def add(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Local folder, archive or file.")],
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images, if it is not that of the metadata.")
    ] = None,
    other_contents: Annotated[
        bool, typer.Option("--other-contents", help="Accept another checksum, and record it.")
    ] = False,
    data_folder: DataFolder = None,
) -> None:
    """Add a data set from local files, in any form in which it was published.

    Examples:

        streamgauge data add cifar100 ~/Downloads/cifar-100-python.tar.gz

        streamgauge data add cloc metadata/release --images /data/cloc
    """
    from streamgauge.streams.datasets import data_set as sets

    with _Bar() as bar:
        stored = sets.add(
            sets.find(name),
            path,
            data_folder,
            other_contents=other_contents,
            images=images,
            progress=bar,
        )
    print(_stored_text(stored))


@data.command()
def info(
    name: Name,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the checksums of a packed folder.")
    ] = False,
    data_folder: DataFolder = None,
    as_json: AsJson = False,
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
        print_json(facts)
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
    stream: Annotated[str, typer.Option(help="Stream to pack: its name, or FILE.py.")],
    out: Annotated[Path, typer.Option(help="Folder for the shards, empty or unfinished.")],
    form: Annotated[
        str,
        typer.Option(
            help="kept (image files as they are), jpeg (resized, as JPEG), array (plain pixels or"
            " numbers), or auto: kept where there are image files, array elsewhere."
        ),
    ] = "auto",
    size: Annotated[int, typer.Option(help="Pixels per side; 0: as in the stream.")] = 0,
    quality: Annotated[int, typer.Option(help="JPEG quality of --form jpeg, 1 to 95.")] = 90,
    shard: Annotated[int, typer.Option(help="Samples per shard; 0: by size in bytes.")] = 0,
    on_bad: Annotated[
        str, typer.Option(help="A bad image stops the packing (fatal) or is left out (skip).")
    ] = "fatal",
    workers: Annotated[
        int | None, typer.Option(help="Worker processes [one per core]; the result is the same.")
    ] = None,
    as_json: AsJson = False,
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
    with _Bar() as bar:
        write(
            built,
            out,
            how,
            on_bad=coerce(on_bad, OnBad, "--on-bad"),
            workers=workers,
            progress=lambda done, total: bar("packing", done, total),
        )
    if as_json:
        print_json(describe(out))
        return
    facts = describe(out)
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
        with _Bar() as bar:
            wrong = packed.verify(name, lambda done, total: bar("verifying", done, total))
        facts["wrong"] = wrong
    if as_json:
        print_json(facts)
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


class _Bar:
    """A progress bar per task, on a terminal only."""

    def __enter__(self) -> _Bar:
        self.bars: Progress | None = None
        self.tasks: dict[str, TaskID] = {}
        return self

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if self.bars is None:
            self.bars = self._start()
        if what not in self.tasks:
            self.tasks[what] = self.bars.add_task(what, total=total)
        self.bars.update(self.tasks[what], completed=done, total=total)

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        bars.start()
        return bars

    def __exit__(self, *stopped: Any) -> None:
        if self.bars is not None:
            self.bars.stop()
