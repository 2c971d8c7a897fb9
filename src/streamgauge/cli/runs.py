"""`streamgauge run` and `resume` make runs; `score`, `report` and `diff` show stored ones."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamgauge.cli import options as shared
from streamgauge.cli.exports import LiveLogs, MatrixOptions, score_files
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.settings import CHECKPOINT, RUNS

if TYPE_CHECKING:
    from streamgauge.record import Run
    from streamgauge.running.plan import PlannedRun


@shared.expand_options
def run(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="TOML file with the same settings.")] = None,
    stream: Annotated[
        str | None,
        typer.Option(help="Stream: a name, your data (mine.csv, a folder, ...) or FILE.py."),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            help="Learner: NAME, NAME@PRESET or FILE.py:Class, or ALIAS= and one of these; may be "
            "given several times."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds: runs with seeds 0 to N-1 [1].")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            help="Speed of the stream: fast, slow, faster, or a multiple of ER's training speed."
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Compute per batch, in updates of ER.")] = None,
    gradient_steps: Annotated[int | None, typer.Option(help="Gradient steps per batch.")] = None,
    baselines: Annotated[
        bool | None,
        typer.Option(
            "--baselines", help="Also run ER++ and ER-- with the compute of each learner."
        ),
    ] = None,
    tuned: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a `tune` study whose best settings are used; may be given several "
            "times."
        ),
    ] = None,
    on_bad: Annotated[
        Literal["refuse", "skip", "fill"] | None,
        typer.Option(
            help="Missing cells of your own data: stop with an error (refuse), leave out their "
            "rows (skip), or fill missing inputs and leave out rows without a label (fill) "
            "[fill; refuse for images]."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run folders [runs].")] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print the share of time per part of the loop.")
    ] = False,
    log_to: Annotated[
        str | None,
        typer.Option(help="Also log to tensorboard, mlflow, wandb or csv during the run."),
    ] = None,
    log_out: Annotated[
        str | None, typer.Option(help="Folder for --log-to, or a tracking URI of MLflow.")
    ] = None,
    code: shared.Code = None,
    trust: shared.Trust = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Repeat complete runs; the stored ones move to the folder replaced/."
        ),
    ] = False,
    *,
    options: shared.RunOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Run learners on a stream; complete runs are skipped, except with --force.

    Settings are given by their dotted names: --stream.X, --protocol.X, --LEARNER.X, or --learner.X
    for every learner that has X. With one learner, --lr is short for --LEARNER.lr. `streamgauge
    list NAME` shows the settings. --features.model and --features.weights replace inputs by
    features of a frozen network. The training time per batch is --protocol.cost or --LEARNER.cost:
    a number of steps, paper (as published) or measured.

    Examples:

        streamgauge run --stream mine.csv --learner er

        streamgauge run --stream albums --learner er --learner finetune --seeds 3 --out runs/

        streamgauge run --stream albums --learner er --er.lr 0.1 --protocol.shifts 200

        streamgauge run --stream blobs --learner er --learner small=er --small.memory 50

        streamgauge run --stream albums --learner my_file.py:MyLearner

        streamgauge run --stream albums --learner er --learner mir --speed fast --baselines

        streamgauge run experiment.toml --seeds 5

    In TOML:  stream = "albums", learners = ["er"], seeds = 3, speed = "fast", and tables [stream]
    (with the stream's name as `name`), [protocol], [er] with their settings.
    """
    from streamgauge.running.executors import dispatch, torchrun
    from streamgauge.running.plan import Experiment, plan

    given = _read_toml(file) if file else {}
    settings = shared.learner_settings(
        context, learner or given.get("learners", ()), stream or given.get("stream")
    )
    settings |= shared.on_bad_setting(on_bad, stream or given.get("stream"))
    if tuned:
        from streamgauge.tuning.chosen import into

        given |= {"stream": stream} if stream else {}
        given["settings"] = {**given.get("settings", {}), **settings}
        given |= {"learners": learner or given.get("learners", ())}
        given = into(given, tuned, trust or tuple(code or ()))
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
    from streamgauge.report.terminal import leaderboard_text
    from streamgauge.report.watching import Watcher
    from streamgauge.running.profile import Profile

    profiled = Profile() if profile else None
    live = LiveLogs(log_to, log_out, options.on)
    with Watcher(quiet=as_json or not torchrun.first()) as watcher:
        execution = options.execution(log=watcher.say, profile=profiled, force=force)
        planned = plan(experiment, folder)
        watcher.expect(planned)
        runs, failed = _collect(dispatch.execute(planned, execution, folder, live.watch(watcher)))
    if not torchrun.first():
        return
    live.close()
    if failed is not None and not runs:
        raise failed
    runs += _failed_runs(failed, folder)
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
    for sentence in live.sentences(runs):
        print(sentence)
    print(f"\nFor a report with curves: streamgauge report {folder}")
    _raise(failed)


def _collect(
    runs: Iterator[tuple[PlannedRun, Run]],
) -> tuple[list[Run], StreamgaugeError | None]:
    """All runs that ended, and the error of those that failed."""
    ended: list[Run] = []
    try:
        ended.extend(run for _, run in runs)
    except StreamgaugeError as error:
        return ended, error
    return ended, None


def _failed_runs(error: StreamgaugeError | None, folder: Path) -> list[Run]:
    """What the runs that failed have stored, so that the table names them."""
    from streamgauge.record import Run

    paths = [folder / name for name in getattr(error, "names", ())]
    return [Run(path) for path in paths if (path / "run.json").is_file()]


def _raise(error: StreamgaugeError | None) -> None:
    """After the results of the other runs are shown."""
    if error is not None:
        raise error


def _read_toml(file: Path) -> dict[str, Any]:
    """An experiment file: stream, learners, seeds, speed, ..., and tables of settings."""
    from streamgauge.tables.read import table_format

    if file.is_dir() or table_format(file) is not None:
        raise StreamgaugeError(
            f"{file} is data, not a TOML file with an experiment: stream it with --stream {file}."
        )
    try:
        tables = tomllib.loads(file.read_text())
    except OSError as error:
        from streamgauge.catalogue import names

        if str(file) in names("learners") or file.suffix == ".py":
            raise StreamgaugeError(
                f"{file} stands alone: write --learner before each learner, --learner {file}."
            ) from None
        if str(file) in names("streams"):
            raise StreamgaugeError(f"{file} is a stream: write --stream {file}.") from None
        raise StreamgaugeError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8
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
    folder: Annotated[Path, typer.Argument(help="Run folder, or folder with run folders.")],
    device: shared.Device = "auto",
    threads: shared.Threads = None,
    workers: shared.ReadAhead = None,
    checkpoint: shared.Checkpoint = CHECKPOINT,
    trust_pickle: shared.TrustPickle = False,
    code: shared.Code = None,
    trust: shared.Trust = False,
) -> None:
    """Finish interrupted runs; the log equals that of an uninterrupted run.

    Runs that were not begun have no folder: repeat the `streamgauge run` command to make these.

    A run folder may name a file with code, such as that of your own learner. The file is executed
    only if --code names the same file, or with --trust.

    Models of other libraries save themselves as pickles, and reading a pickle can execute any code:
    with --trust-pickle their runs go on, otherwise they start again.

    Examples:

        streamgauge resume runs/

        streamgauge resume runs/ --code my_file.py
    """
    from streamgauge.report.terminal import leaderboard_text
    from streamgauge.report.watching import Watcher
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
            trust_pickle=trust_pickle,
            trust=trust or tuple(code or ()),
        )
    print(leaderboard_text(runs))
    if not (folder / "run.json").exists():
        print(
            f"\nThese are the runs that were begun in {folder}. Runs that were not begun have no"
            " folder: repeat their command to make them."
        )


@shared.expand_options
def score(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Run folders, folders with run folders, or accuracy matrices."),
    ],
    options: MatrixOptions,
    as_json: shared.AsJson = False,
) -> None:
    """Compute all metrics of stored runs from their logs.

    No GPU is used and nothing is run again. `streamgauge list METRIC` explains a metric.

    Accuracy matrices of other tools are accepted, too: CSV, .npy, Avalanche's eval_results.csv,
    mammoth's logs.pyd (docs/exchange.md).

    Examples:

        streamgauge score runs/

        streamgauge score runs/albums-er-s0-1a2b3c4d --json

        streamgauge score matrix.csv --classes 5,5,5,5
    """
    from streamgauge.record import find_runs
    from streamgauge.record.run import save_results
    from streamgauge.report.leaderboard import why_unscored

    if any(path.is_file() for path in folders):
        score_files(folders, options, as_json)
        return
    if given := next((name for name, value in vars(options).items() if value is not None), None):
        raise StreamgaugeError(f"--{given} is for accuracy matrices, and {folders[0]} is none.")
    runs = find_runs(list(folders))
    if as_json:
        all_scores = [scored(run) for run in runs]
        shared.print_json({"runs": all_scores})
        save_results(runs)
        for run, result in zip(runs, all_scores, strict=True):
            if not result["scores"]:
                print(f"{run.path} has nothing to score: {why_unscored(run)}", file=sys.stderr)
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
        "scores": run.result("score", lambda: score_log(run)),
    }


def report(
    folders: shared.RunFolders,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write a report of stored runs: one HTML file that needs no network.

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


def verify(folders: shared.RunFolders, as_json: shared.AsJson = False) -> None:
    """Check every file of stored runs against its checksum.

    Exit code 0 if all files are as they were written, 1 otherwise.

    Example:

        streamgauge verify runs/
    """
    from streamgauge.record.verify import verify as verify_folders

    checked = list(verify_folders(list(folders)))
    problems = [problem for one in checked for problem in one.problems]
    unchecked = [one for one in checked if one.unchecked]
    if as_json:
        shared.print_json({"runs": [vars(one) for one in checked]})
    else:
        for problem in problems:
            print(problem)
        for one in unchecked:
            print(f"{one.path} is of an older version and has no checksums of all its files.")
        files, damaged = (
            sum(one.files for one in checked),
            sum(bool(one.problems) for one in checked),
        )
        print(f"{files:,} files of {len(checked):,} runs checked; {damaged:,} runs are damaged.")
    raise typer.Exit(1 if problems else 0)


def diff(
    first: Annotated[Path, typer.Argument(help="Run folder.")],
    second: Annotated[Path, typer.Argument(help="Run folder to compare with.")],
    as_json: shared.AsJson = False,
) -> None:
    """Show what differs between two runs, and the first step at which their logs differ.

    Exit code 0 if the logs are identical except for times, 1 otherwise.

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
