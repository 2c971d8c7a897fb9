"""`streamgauge suite`: the papers' tables and figures by one command; `demo` and `realtime`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli import options as shared
from streamgauge.errors import RunsFailed, StreamgaugeError
from streamgauge.settings import RUNS, coerce

if TYPE_CHECKING:
    from streamgauge.record import Run
    from streamgauge.suites.comparing import LedgerCell
    from streamgauge.suites.measured import Measured
    from streamgauge.suites.spec import Suite


def demo(
    out: shared.Out = Path(RUNS, "demo"),
    seeds: Annotated[int, typer.Option(help="Number of runs per learner.")] = 2,
) -> None:
    """Show in two minutes why online accuracy alone misleads.

    Runs five learners on a generated photo stream. Prints a table and a sentence that says what
    the figures mean, and writes an HTML report. Nothing is downloaded.

    Example:

        streamgauge demo --out runs/demo
    """
    from streamgauge.suites.demo import demo as run_demo

    run_demo(out, seeds)


def realtime(
    context: typer.Context,
    stream: shared.StreamName = "albums",
    seeds: Annotated[int, typer.Option(help="Number of runs per method.")] = 2,
    speeds: Annotated[
        str,
        typer.Option(
            help="Speeds of the stream: fast, slow, faster, or multiples of ER's training speed."
        ),
    ] = "fast,slow",
    methods: Annotated[
        str | None, typer.Option(help="Methods to run, such as er,lwf,mir [all of the paper].")
    ] = None,
    out: shared.Out = Path(RUNS, "realtime"),
    as_json: shared.AsJson = False,
) -> None:
    """Draw the figures of the real-time paper: its methods on a fast and on a slow stream.

    Each method is shown next to ER with equal compute. Complete runs are not repeated. Settings are
    given by their dotted names, as for `run`.

    Examples:

        streamgauge realtime

        streamgauge realtime --seeds 5 --speeds fast,faster,slow --out runs/realtime
    """
    from streamgauge.suites.realtime import realtime as run_realtime
    from streamgauge.suites.realtime import text

    pictures, path = run_realtime(
        out,
        stream=stream,
        seeds=seeds,
        speeds=coerce(speeds, tuple[str, ...], "--speeds"),
        methods=None if methods is None else coerce(methods, tuple[str, ...], "--methods"),
        settings=context.obj,
        quiet=as_json,
    )
    if as_json:
        shared.print_json(
            {"pictures": [picture.as_plain() for picture in pictures], "page": str(path)}
        )
        return
    print(f"\n{text(pictures)}\n\nPictures: {path.resolve()}")


app = typer.Typer(
    help="Reproduce a paper's tables and figures, next to the published numbers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _settings(context: typer.Context) -> None:
    shared.no_settings(
        context, ": a suite's settings are what it reproduces. For others, use `streamgauge run`."
    )


Name = Annotated[str, typer.Argument(help="Name of a suite; `streamgauge suite list` shows all.")]
SuiteOut = Annotated[Path | None, typer.Option(help="Folder of the runs [runs/NAME].")]
Runs = Annotated[
    list[Path] | None,
    typer.Option(
        help="Another folder with runs, such as those of another machine; may be given several "
        "times."
    ),
]


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """A suite and the folders of its runs."""

    name: Name
    generated: Annotated[
        bool, typer.Option("--generated", help="Use small generated data instead of the real data.")
    ] = False
    out: SuiteOut = None
    runs: Runs = None

    def load(self) -> Suite:
        from streamgauge.suites import load

        for folder in self.runs or ():
            if not folder.is_dir():
                raise StreamgaugeError(f"There is no folder {folder}; check --runs.")
        return load(self.name, self.generated)

    @property
    def folder(self) -> Path:
        return self.out or Path(RUNS) / (f"{self.name}-generated" if self.generated else self.name)

    def stored(self) -> list[Run]:
        from streamgauge.suites.running import gather

        return gather([self.folder, *(self.runs or ())])

    def measured(self, suite: Suite, results: Path | None = None) -> list[Measured]:
        """The values of stored runs, and recorded values of rows without any."""
        from streamgauge.suites.measured import RESULTS, from_runs, recorded, together

        before = [] if suite.generated else recorded(suite.name, results or RESULTS)
        return together(before, from_runs(suite, self.stored()))

    def cells(self, suite: Suite) -> list[LedgerCell]:
        from streamgauge.suites.comparing import table

        return table(suite, self.measured(suite))


@dataclass(frozen=True, kw_only=True)
class RowOptions(SuiteOptions):
    """Rows and seeds of a suite."""

    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only this row, part, or 'PART: ROW'; may be given several times."),
    ] = None
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds: a number (5: 0 to 4), a range (3-4) or a list (0,2) [as published]."
        ),
    ] = None
    both: Annotated[
        bool,
        typer.Option(
            "--both",
            help="Also run methods as defined in the papers, if the published code differs.",
        ),
    ] = False


@app.command("list")
def list_(as_json: shared.AsJson = False) -> None:
    """List all suites.

    Example:

        streamgauge suite list
    """
    from streamgauge.suites import load, names
    from streamgauge.suites.text import list_text

    suites = [load(name) for name in names()]
    if as_json:
        listed = [
            {"name": s.name, "title": s.title, "what": s.what, "rows": [r.title for r in s.rows]}
            for s in suites
        ]
        shared.print_json(listed)
    else:
        print(list_text(suites))


@app.command()
@shared.expand_options
def plan(
    chosen: RowOptions,
    device: shared.Device = "auto",
    measure: Annotated[
        bool, typer.Option(help="Measure the cost of a step on this machine.")
    ] = True,
    as_json: shared.AsJson = False,
) -> None:
    """Show what would be run, with estimates of time, memory and FLOPs; nothing is run.

    Example:

        streamgauge suite plan survey-cifar100 --only ER
    """
    from streamgauge.models.features import device_named
    from streamgauge.suites.planning import estimate
    from streamgauge.suites.running import find, parse_seeds, plan_rows
    from streamgauge.suites.text import plan_text

    suite = chosen.load()
    planned = plan_rows(suite.choose(chosen.only or (), chosen.both), parse_seeds(chosen.seeds))
    estimates = estimate(planned, find(planned, chosen.stored()), device, measure)
    if as_json:
        shared.print_json([estimated.as_plain() for estimated in estimates])
    else:
        print(plan_text(suite, estimates, str(device_named(device))))


@app.command()
@shared.expand_options
def run(
    chosen: RowOptions,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="Pretrained weights, as BACKBONE=FILE; may be given several times."),
    ] = None,
    *,
    options: shared.RunOptions,
) -> None:
    """Run the missing runs of a suite and print its table.

    The same command continues after an interruption. Runs of other machines are used if their
    folders are in --out or given with --runs.

    Examples:

        streamgauge suite run demo

        streamgauge suite run survey-cifar100 --only ER --only ER-ACE --seeds 5 --device cuda

        streamgauge suite run near-future --generated

        streamgauge suite run survey-cifar100 --on ray --gpus 0.25 --out /shared/runs
    """
    from streamgauge.report.watching import Watcher
    from streamgauge.suites.running import parse_seeds
    from streamgauge.suites.running import run as run_suite
    from streamgauge.suites.text import table_text

    suite = chosen.load()
    failed: StreamgaugeError | None = None
    try:
        with Watcher() as watcher:
            for _ in run_suite(
                suite,
                only=chosen.only or (),
                seeds=parse_seeds(chosen.seeds),
                both=chosen.both,
                out=chosen.folder,
                runs=chosen.runs or (),
                weights=_weights(weights or []),
                watch=watcher.watch,
                expect=watcher.expect,
                execution=options.execution(log=watcher.say),
            ):
                pass
    except RunsFailed as error:  # the others are in the table
        failed = error
    print(table_text(suite, chosen.cells(suite), with_runs=False))
    more = " --generated" if chosen.generated else ""
    at = f" --out {chosen.out}" if chosen.out else ""
    print(f"\nFor the figures: streamgauge suite figures {chosen.name}{more}{at}")
    if failed is not None:
        raise failed


def _weights(given: list[str]) -> dict[str, str]:
    files = {}
    for text in given:
        backbone, equals, file = text.partition("=")
        if not equals or not file:
            raise StreamgaugeError(f"'{text}' is no BACKBONE=FILE, such as imagenet1k=resnet50.pt.")
        files[backbone] = file
    return files


@app.command()
@shared.expand_options
def table(chosen: SuiteOptions, as_json: shared.AsJson = False) -> None:
    """Print published and measured numbers: seeds, mean, deviation, difference, and a verdict.

    Rows without runs in the folders show recorded results (docs/ledger.md). Rows without either are
    marked as not run. Methods as defined in the papers, which need --both, are listed in one line.

    Examples:

        streamgauge suite table survey-cifar100

        streamgauge suite table survey-cifar100 --runs machine-a/ --runs machine-b/ --json
    """
    from streamgauge.suites.comparing import as_dict
    from streamgauge.suites.text import table_text

    suite = chosen.load()
    cells = chosen.cells(suite)
    if as_json:
        shared.print_json([as_dict(cell) for cell in cells])
    else:
        print(table_text(suite, cells))


@app.command()
@shared.expand_options
def figures(
    chosen: SuiteOptions,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML file to write [NAME.html].")
    ] = None,
) -> None:
    """Draw the figures of the paper from stored runs, in one HTML file.

    Example:

        streamgauge suite figures demo --to demo.html
    """
    from streamgauge.suites.drawing import write_figures

    page = write_figures(chosen.load(), chosen.stored(), to or Path(f"{chosen.name}.html"))
    print(f"Figures: {page.resolve()}")


@app.command()
def record(
    name: Name,
    out: SuiteOut = None,
    runs: Runs = None,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the result files.")] = Path(
        "results"
    ),
) -> None:
    """Write the results of a suite's runs into a file, from which the ledger is made.

    Rows without runs in the given folders keep the results that the file has.

    Example:

        streamgauge suite record survey-cifar100 --to results/
    """
    from streamgauge.suites.measured import write

    chosen = SuiteOptions(name=name, out=out, runs=runs)
    measured = chosen.measured(chosen.load(), to)
    if not measured:
        raise StreamgaugeError(f"There are no complete runs of {name} in {chosen.folder}.")
    print(f"Results: {write(name, measured, to / f'{name}.toml')}")


@app.command()
def ledger(
    to: Annotated[Path, typer.Option(help="Page to write.")] = Path("ledger.md"),
    results: Annotated[
        Path | None, typer.Option(help="Folder of result files [those in the package].")
    ] = None,
) -> None:
    """Write the page with every published number and the measured number.

    Example:

        streamgauge suite ledger --to ledger.md
    """
    from streamgauge.files import write_result
    from streamgauge.suites.measured import RESULTS
    from streamgauge.suites.text import ledger_page

    print(f"Ledger: {write_result(to, ledger_page(results or RESULTS))}")
