"""`streamgauge run` and `resume` make runs; `score`, `report` and `diff` show stored ones."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli import options as shared
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.settings import CHECKPOINT, RUNS

if TYPE_CHECKING:
    from streamgauge.record import Run


@shared.expand_options
def run(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="TOML file with the same settings.")] = None,
    stream: Annotated[str | None, typer.Option(help="Name of a stream, or FILE.py.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option(help="[ALIAS=]NAME or [ALIAS=]FILE.py:Class; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Run seeds 0..N-1.")] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            help="Speed of the stream: fast, slow, faster, or a multiple of ER's training speed."
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Compute per batch, in ER updates.")] = None,
    gradient_steps: Annotated[int | None, typer.Option(help="Gradient steps per batch.")] = None,
    baselines: Annotated[
        bool | None,
        typer.Option("--baselines", help="Also run ER++ and ER-- with each learner's compute."),
    ] = None,
    tuned: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a `tune` study: use its best settings; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs [runs].")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time went.")] = False,
    *,
    options: shared.RunOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Run learners on a stream; complete runs are skipped.

    Any setting is given by its dotted name: --stream.X, --protocol.X, --LEARNER.X, or --learner.X
    for every learner that has X; --features.model and --features.weights replace inputs by
    features of a frozen network. `streamgauge list` shows the names. The training time per batch is
    --protocol.cost or --LEARNER.cost: a number of steps, paper (as published) or measured.

    Examples:

        streamgauge run --stream albums --learner er --learner finetune --seeds 3 --out runs/

        streamgauge run --stream albums --learner er --er.lr 0.1 --protocol.shifts 200

        streamgauge run --stream blobs --learner er --learner small=er --small.memory 50

        streamgauge run --stream albums --learner my_file.py:MyLearner

        streamgauge run --stream albums --learner er --learner mir --speed fast --baselines

        streamgauge run experiment.toml --seeds 5

    In TOML:  stream = "albums", learners = ["er"], seeds = 3, speed = "fast", and tables [stream]
    (with the stream's name as `name`), [protocol], [er] with their settings.
    """
    from streamgauge.running.executors import torchrun
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import run_all

    given = _read_toml(file) if file else {}
    settings = shared.learner_settings(
        context, learner or given.get("learners", ()), stream or given.get("stream")
    )
    if tuned:
        from streamgauge.tuning.chosen import into

        given |= {"stream": stream} if stream else {}
        given["settings"] = {**given.get("settings", {}), **settings}
        given = into({**given, "learners": learner or given.get("learners", ())}, tuned)
        learner = given["learners"]
    folder = out or Path(given.pop("out", RUNS))
    chosen = {
        "stream": stream or None,
        "learners": learner or None,
        "seeds": seeds,
        "speed": speed,
        "budget": budget,
        "gradient_steps": gradient_steps,
        "baselines": baselines,
        "settings": {**given.get("settings", {}), **settings},
    }
    given |= {name: value for name, value in chosen.items() if value is not None}
    if given.get("stream") is None:
        raise StreamgaugeError("Name a stream: --stream NAME (see `streamgauge list streams`).")
    experiment = Experiment(**given | {"learners": tuple(given.get("learners", ()))})
    from streamgauge.report.compute import charged
    from streamgauge.report.terminal import Watcher, leaderboard_text
    from streamgauge.running.profile import Profile

    profiled = Profile() if profile else None
    with Watcher(quiet=as_json or not torchrun.first()) as watcher:
        execution = options.execution(log=watcher.say, profile=profiled)
        runs, failed = _collect(
            run_all(experiment, out=folder, watch=watcher.watch, execution=execution)
        )
    if not torchrun.first():
        return
    if failed is not None and not runs:
        raise failed
    if as_json:
        extra = {} if profiled is None else {"profile": profiled.shares()}
        shared.print_json({"runs": [scored(run) for run in runs], **extra})
        _raise(failed)
        return
    print(leaderboard_text(runs))
    for sentence in charged(runs):
        print(sentence)
    if profiled is not None:
        print(f"\n{profiled.text()}")
    print(f"\nFor a report with curves: streamgauge report {folder}")
    _raise(failed)


def _collect(runs: Iterator[Run]) -> tuple[list[Run], StreamgaugeError | None]:
    """All runs that ended, and the error of those that failed."""
    ended: list[Run] = []
    try:
        ended.extend(runs)
    except StreamgaugeError as error:
        return ended, error
    return ended, None


def _raise(error: StreamgaugeError | None) -> None:
    """After the results of the other runs are shown."""
    if error is not None:
        raise error


def _read_toml(file: Path) -> dict[str, Any]:
    """An experiment file: stream, learners, seeds, speed, ..., and tables of settings."""
    try:
        tables = tomllib.loads(file.read_text())
    except OSError as error:
        raise StreamgaugeError(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StreamgaugeError(f"{file} is not valid TOML: {error}.") from None
    given: dict[str, Any] = {"settings": {}}
    number, words = (int, float, str), "a number or text"
    kinds: dict[str, tuple[str, tuple[type, ...]]] = {
        "stream": ("text", (str,)),
        "learners": ("a list of names", (list,)),
        "seeds": ("a number", (int,)),
        "out": ("text", (str,)),
        "speed": (words, number),
        "budget": (words, number),
        "gradient_steps": ("a number", (int,)),
        "baselines": ("true or false", (bool,)),
    }
    for name, value in tables.items():
        if isinstance(value, dict):
            for setting, chosen in value.items():
                if name == "stream" and setting == "name":
                    given["stream"] = str(chosen)
                else:
                    given["settings"][f"{name}.{setting}"] = chosen
        elif name not in kinds:
            raise StreamgaugeError(f"{file} has an unknown entry '{name}'; {nearest(name, kinds)}")
        else:
            kind, types = kinds[name]
            fits = isinstance(value, types) and isinstance(value, bool) == (bool in types)
            if not fits or (
                name == "learners" and not all(isinstance(name, str) for name in value)
            ):
                raise StreamgaugeError(f"'{name}' in {file} must be {kind}.")
            given[name] = value
    return given


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder, or a folder of them.")],
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    workers: shared.ReadAhead = None,
    checkpoint: shared.Checkpoint = CHECKPOINT,
) -> None:
    """Finish interrupted runs, with the log of uninterrupted ones.

    Example:

        streamgauge resume runs/
    """
    from streamgauge.report.terminal import Watcher, leaderboard_text
    from streamgauge.running.runner import resume as resume_runs

    with Watcher() as watcher:
        runs = resume_runs(
            folder,
            watch=watcher.watch_run,
            log=watcher.say,
            device=device,
            threads=threads,
            workers=workers,
            checkpoint=checkpoint,
        )
    print(leaderboard_text(runs))


def score(folders: shared.RunFolders, as_json: shared.AsJson = False) -> None:
    """Compute every metric of stored runs from their logs: no GPU, no re-run.

    Examples:

        streamgauge score runs/

        streamgauge score runs/albums-er-s0-1a2b3c4d --json
    """
    from streamgauge.record import find_runs

    runs = find_runs(list(folders))
    if as_json:
        shared.print_json({"runs": [scored(run) for run in runs]})
        return
    from streamgauge.report.terminal import scores_text

    print(scores_text(runs))


def scored(run: Run) -> dict[str, Any]:
    """The metrics of a run, for a program to read."""
    from streamgauge.metrics import score as score_log

    return {
        "path": str(run.path),
        "id": run.id,
        "learner": run.learner,
        "stream": run.stream["name"],
        "seed": run.seed,
        "done": run.done,
        "unlabelled": run.unlabelled,
        "scores": score_log(run),
    }


def report(
    folders: shared.RunFolders,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML file that opens from disk without a network.

    Example:

        streamgauge report runs/ --out report.html
    """
    from streamgauge.record import find_runs
    from streamgauge.report import leaderboard, write_report
    from streamgauge.report.terminal import compute_text

    runs = find_runs(list(folders))
    boards = leaderboard(runs)
    path = write_report(runs, out, boards).resolve()
    if text := compute_text(boards):
        print(f"{text}\n")
    print(f"Report: {path}")


def diff(
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    as_json: shared.AsJson = False,
) -> None:
    """Say what differs between two runs, and the first step at which their logs part.

    Exit code 0 where the logs are identical (times apart), 1 where they part.

    Example:

        streamgauge diff runs/albums-er-s0-1a2b3c4d runs/albums-er-s1-5e6f7a8b
    """
    from streamgauge.record import Run
    from streamgauge.record.diff import differences

    result = differences(Run(first), Run(second))
    if as_json:
        shared.print_json(result)
    else:
        from streamgauge.report.terminal import differences_text

        print(differences_text(result))
    raise typer.Exit(0 if result["same"] else 1)
