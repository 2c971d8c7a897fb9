"""`streamgauge suite`: the papers' tables and figures by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli.options import (
    Address,
    AsJson,
    Checkpoint,
    Cpus,
    Deterministic,
    Device,
    Engine,
    EvaluationPrecision,
    Gpus,
    On,
    ReadAhead,
    SideBySide,
    StoreAt,
    Threads,
    execution_of,
    no_settings,
    print_json,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.settings import CHECKPOINT, RUNS

if TYPE_CHECKING:
    from streamgauge.suites.measured import Measured
    from streamgauge.suites.spec import Suite

app = typer.Typer(
    help="Reproduce a paper's tables and figures, next to the published numbers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="A suite; see `streamgauge suite list`.")]
Only = Annotated[
    list[str] | None, typer.Option(help="Run only this row, part, or 'PART: ROW'; repeatable.")
]
Seeds = Annotated[
    str | None, typer.Option(help="Number (5: 0 to 4), range (3-4) or list (0,2) [as published].")
]
Both = Annotated[
    bool,
    typer.Option(
        "--both", help="Also run methods as their papers define them, if the code differs."
    ),
]
Generated = Annotated[
    bool, typer.Option("--generated", help="Use small generated data instead of the real data.")
]
Out = Annotated[Path | None, typer.Option(help="Folder of the runs [runs/NAME].")]
Runs = Annotated[
    list[Path] | None, typer.Option(help="More folders with runs, from other machines; repeatable.")
]


def _no_settings(context: typer.Context) -> None:
    no_settings(
        context,
        ": a suite's settings are what it reproduces. For others, use `streamgauge run`.",
    )


def _folder(suite: Suite, out: Path | None) -> Path:
    return out or Path(RUNS) / (f"{suite.name}-generated" if suite.generated else suite.name)


@app.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the suites there are."""
    _no_settings(context)
    from streamgauge.suites import load, names
    from streamgauge.suites.text import list_text

    if as_json:
        suites = [load(name) for name in names()]
        print_json(
            [
                {
                    "name": s.name,
                    "title": s.title,
                    "what": s.what,
                    "rows": [r.title for r in s.rows],
                }
                for s in suites
            ]
        )
    else:
        print(list_text())


@app.command()
def plan(
    context: typer.Context,
    name: Name,
    only: Only = None,
    seeds: Seeds = None,
    both: Both = False,
    generated: Generated = False,
    out: Out = None,
    runs: Runs = None,
    device: Device = "auto",
    measure: Annotated[bool, typer.Option(help="Measure what a step costs here.")] = True,
    as_json: AsJson = False,
) -> None:
    """Say what would be run, and estimate time, memory and FLOPs; nothing is run.

    Example:

        streamgauge suite plan survey-cifar100 --only ER
    """
    _no_settings(context)
    from streamgauge.models.features import device_named
    from streamgauge.suites import load
    from streamgauge.suites.finding import find, gather, parse_seeds, plan_rows
    from streamgauge.suites.planning import estimate
    from streamgauge.suites.text import plan_text

    suite = load(name, generated)
    planned = plan_rows(suite.choose(only or (), both), parse_seeds(seeds))
    stored = find(planned, gather([_folder(suite, out), *(runs or ())]))
    estimates = estimate(planned, stored, device, measure)
    if as_json:
        print_json(
            [
                {
                    "row": estimated.row.title,
                    "complete": estimated.complete,
                    "missing": estimated.missing,
                    "to_run": estimated.to_run,
                    "steps": estimated.work.steps,
                    "jobs": estimated.work.jobs,
                    "answers": estimated.work.answered + estimated.work.evaluated,
                    "flops_a_run": estimated.flops,
                    "seconds_a_run": estimated.seconds,
                    "bytes": estimated.memory,
                    "basis": estimated.work.basis,
                }
                for estimated in estimates
            ]
        )
    else:
        print(plan_text(suite, estimates, str(device_named(device))))


@app.command()
def run(
    context: typer.Context,
    name: Name,
    only: Only = None,
    seeds: Seeds = None,
    both: Both = False,
    generated: Generated = False,
    out: Out = None,
    runs: Runs = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="Pretrained weights, BACKBONE=FILE; repeatable.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    checkpoint: Checkpoint = CHECKPOINT,
    workers: ReadAhead = None,
    engine: Engine = "auto",
    precision: EvaluationPrecision = "fp16",
    deterministic: Deterministic = False,
    side_by_side: SideBySide = None,
    on: On = "local",
    address: Address = None,
    gpus: Gpus = None,
    cpus: Cpus = None,
    store: StoreAt = None,
) -> None:
    """Run the missing runs of a suite and print its table.

    The same command again continues. Runs of other machines count if their folders are in --out or
    given with --runs.

    Examples:

        streamgauge suite run demo

        streamgauge suite run survey-cifar100 --only ER --only ER-ACE --seeds 5 --device cuda

        streamgauge suite run near-future --generated

        streamgauge suite run survey-cifar100 --on ray --gpus 0.25 --out /shared/runs
    """
    _no_settings(context)
    from streamgauge.report.terminal import Watcher
    from streamgauge.suites import load
    from streamgauge.suites.finding import parse_seeds
    from streamgauge.suites.running import run as run_suite

    suite = load(name, generated)
    folder = _folder(suite, out)
    with Watcher() as watcher:
        for _ in run_suite(
            suite,
            only=only or (),
            seeds=parse_seeds(seeds),
            both=both,
            out=folder,
            runs=runs or (),
            weights=_weights(weights or []),
            watch=watcher.watch,
            execution=execution_of(context, log=watcher.say),
        ):
            pass
    from streamgauge.suites.comparing import table as compare
    from streamgauge.suites.text import table_text

    print(table_text(suite, compare(suite, _measured(suite, folder, runs)), with_runs=False))
    more = " --generated" if generated else ""
    at = f" --out {out}" if out else ""
    print(f"\nFor the figures: streamgauge suite figures {name}{more}{at}")


def _weights(given: list[str]) -> dict[str, str]:
    files = {}
    for text in given:
        backbone, equals, file = text.partition("=")
        if not equals or not file:
            raise StreamgaugeError(f"'{text}' is no BACKBONE=FILE, such as imagenet1k=resnet50.pt.")
        files[backbone] = file
    return files


def _measured(
    suite: Suite, folder: Path, runs: list[Path] | None, results: Path | None = None
) -> list[Measured]:
    from streamgauge.suites.finding import gather
    from streamgauge.suites.measured import RESULTS, from_runs, recorded, together

    mine = from_runs(suite, gather([folder, *(runs or ())]))
    before = [] if suite.generated else recorded(suite.name, results or RESULTS)
    return together(before, mine)


@app.command()
def table(
    context: typer.Context,
    name: Name,
    generated: Generated = False,
    out: Out = None,
    runs: Runs = None,
    as_json: AsJson = False,
) -> None:
    """Published numbers beside ours: seeds, mean, deviation, difference, and whether they agree.

    Rows without runs here show what was recorded (docs/ledger.md); rows without either are shown as
    not run, and those as defined, which only --both runs, are named in one line.

    Examples:

        streamgauge suite table survey-cifar100

        streamgauge suite table survey-cifar100 --runs machine-a/ --runs machine-b/ --json
    """
    _no_settings(context)
    from streamgauge.suites import load
    from streamgauge.suites.comparing import as_dict
    from streamgauge.suites.comparing import table as compare
    from streamgauge.suites.text import table_text

    suite = load(name, generated)
    cells = compare(suite, _measured(suite, _folder(suite, out), runs))
    if as_json:
        print_json([as_dict(cell) for cell in cells])
    else:
        print(table_text(suite, cells))


@app.command()
def figures(
    context: typer.Context,
    name: Name,
    generated: Generated = False,
    out: Out = None,
    runs: Runs = None,
    to: Annotated[Path | None, typer.Option(help="The HTML file [NAME.html].")] = None,
) -> None:
    """Draw the paper's figures from the runs there are, in one HTML file.

    Example:

        streamgauge suite figures demo --to demo.html
    """
    _no_settings(context)
    from streamgauge.suites import load
    from streamgauge.suites.drawing import write_figures
    from streamgauge.suites.finding import gather

    suite = load(name, generated)
    there = gather([_folder(suite, out), *(runs or ())])
    print(f"Figures: {write_figures(suite, there, to or Path(f'{name}.html')).resolve()}")


@app.command()
def record(
    context: typer.Context,
    name: Name,
    out: Out = None,
    runs: Runs = None,
    to: Annotated[Path, typer.Option(help="Folder of result files.")] = Path("results"),
) -> None:
    """Write what the runs here gave into a results file, from which the ledger is made.

    What the file has for rows without runs here is kept.
    """
    _no_settings(context)
    from streamgauge.suites import load
    from streamgauge.suites.measured import write

    suite = load(name)
    measured = _measured(suite, _folder(suite, out), runs, to)
    if not measured:
        raise StreamgaugeError(f"There are no complete runs of {name} in {_folder(suite, out)}.")
    print(f"Results: {write(name, measured, to / f'{name}.toml')}")


@app.command()
def ledger(
    context: typer.Context,
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("ledger.md"),
    results: Annotated[
        Path | None, typer.Option(help="Folder of result files [those that come with it].")
    ] = None,
) -> None:
    """Write the page with every published number and ours beside it."""
    _no_settings(context)
    from streamgauge.suites.measured import RESULTS
    from streamgauge.suites.page import ledger_page

    page = ledger_page(results or RESULTS)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {to}: {error.strerror}.") from None
    print(f"Ledger: {to}")
