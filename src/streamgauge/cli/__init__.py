"""The command `streamgauge`. Each command is a thin shell around a function of the library.

Exit codes: 0 all is well; 1 the answer is no (a check failed, two runs differ, a gate is shut);
2 something in the input must be mended, said in one sentence; 130 interrupted.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamgauge.cli.cluster import Address, Cpus, Gpus, On, StoreAt, cluster_of
from streamgauge.cli.data import data
from streamgauge.cli.options import (
    AsJson,
    Checkpoint,
    Deterministic,
    Device,
    Engine,
    EvaluationPrecision,
    ReadAhead,
    SideBySide,
    Threads,
)
from streamgauge.cli.suite import app as suite
from streamgauge.cli.tune import tune
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.settings import coerce
from streamgauge.versions import VERSION

if TYPE_CHECKING:
    from streamgauge.record import Run

app = typer.Typer(
    help="Measure how well a model learns from a live stream, and whether the number can be "
    "believed.\n\nStart here:  streamgauge demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data, name="data")
app.add_typer(suite, name="suite")

# `--er.lr 0.1` and `--er.lr=0.1`: a setting by its dotted name.
_DOTTED = re.compile(r"--([A-Za-z_][\w@-]*(?:\.\w+)+)(?:=(.*))?", re.DOTALL)

Out = Annotated[Path, typer.Option("--out", help="Folder that run folders are made in.")]
RunFolders = Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")]


INTERRUPTED = 130  # exit code
GO_ON = {"demo", "run", "realtime", "resume", "suite", "tune"}  # commands that can


def main() -> None:
    """Entry point: errors a user can mend become one sentence and exit code 2."""
    try:
        words, settings = split_settings(sys.argv[1:])
        code = app(args=words or ["--help"], obj=settings, standalone_mode=False)
    except StreamgaugeError as error:
        _complain(str(error))
        code = 2
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        # Errors of the command line itself (an unknown option, a missing argument) come from the
        # parser with a sentence of their own; anything else is our fault and keeps its traceback.
        sentence = getattr(error, "format_message", None)
        if sentence is None:
            raise
        _complain(sentence())
        code = 2
    if code == INTERRUPTED:  # whichever way: newer versions of Typer return it
        safe = " What was checkpointed is safe: run the same command to go on."
        _complain("Interrupted." + (safe if {*words[:1]} & GO_ON else ""))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(sentence: str) -> None:
    print(f"streamgauge: {sentence}", file=sys.stderr)


def split_settings(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the dotted settings out of a command line.

    >>> split_settings(["run", "--er.lr", "0.1", "--seeds", "3", "--stream.batch=5"])
    (['run', '--seeds', '3'], {'er.lr': '0.1', 'stream.batch': '5'})
    """
    words: list[str] = []
    settings: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        match = _DOTTED.fullmatch(word)
        if match is None:
            words.append(word)
            continue
        name, value = match.groups()
        if value is None:
            value = next(rest, None)
        if value is None or value.startswith("--"):
            raise StreamgaugeError(f"--{name} needs a value.")
        settings[name] = value
    return words, settings


def _no_settings(context: typer.Context) -> None:
    if context.obj:
        name = next(iter(context.obj))
        raise StreamgaugeError(f"--{name} has no meaning here; settings belong to `run`.")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"streamgauge {VERSION}")
        raise typer.Exit()


@app.command()
def demo(
    context: typer.Context,
    out: Out = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each learner.")] = 2,
) -> None:
    """Show in two minutes why online accuracy alone misleads.

    Five learners on a generated photo stream: a table, a sentence that says what the figures mean,
    and an HTML report. Nothing is downloaded.

    Example:

        streamgauge demo --out runs/demo
    """
    _no_settings(context)
    from streamgauge.suites.demo import demo as run_demo

    run_demo(out, seeds)


@app.command()
def run(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="TOML file with the same settings.")] = None,
    stream: Annotated[str | None, typer.Option(help="Name of a stream, or FILE.py.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option(help="[ALIAS=]NAME or [ALIAS=]FILE.py:Class; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Run seeds 0..N-1.")] = None,
    speed: Annotated[
        str | None, typer.Option(help="fast, slow, faster, or times as fast as ER trains.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="ER's updates that a batch pays for.")] = None,
    gradient_steps: Annotated[int | None, typer.Option(help="Gradient steps a batch.")] = None,
    baselines: Annotated[
        bool | None, typer.Option("--baselines", help="Add ER++ and ER-- at each one's cost.")
    ] = None,
    tuned: Annotated[
        list[Path] | None, typer.Option(help="Folder of a study: take what it chose; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs [runs].")] = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: ReadAhead = None,
    engine: Engine = "auto",
    precision: EvaluationPrecision = "fp16",
    deterministic: Deterministic = False,
    side_by_side: SideBySide = None,
    checkpoint: Checkpoint = 30.0,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time went.")] = False,
    on: On = "local",
    address: Address = None,
    gpus: Gpus = None,
    cpus: Cpus = None,
    store: StoreAt = None,
    as_json: AsJson = False,
) -> None:
    """Run learners on a stream; what is complete already is not run again.

    Any setting is given by its dotted name: --stream.X, --protocol.X, --LEARNER.X, or --learner.X
    for every learner that has X; --features.model and --features.weights put a frozen network's
    features in place of inputs. `streamgauge list` shows the names. How long a learner trains on a
    batch is --protocol.cost or --LEARNER.cost: a number, paper or measured.

    Examples:

        streamgauge run --stream albums --learner er --learner finetune --seeds 3 --out runs/

        streamgauge run --stream albums --learner er --er.lr 0.1 --protocol.shifts 200

        streamgauge run --stream blobs --learner er --learner small=er --small.memory 50

        streamgauge run --stream albums --learner my_file.py:MyLearner

        streamgauge run --stream albums --learner er --learner mir --speed fast --baselines

        streamgauge run experiment.toml --seeds 5

    In TOML:  stream = "albums", learners = ["er"], seeds = 3, speed = "fast", and tables [stream]
    (its name is then `name`), [protocol], [er] with their settings.
    """
    from streamgauge.running.executors import on_ray as remote
    from streamgauge.running.executors import torchrun as ranks
    from streamgauge.running.runner import Experiment, run_all

    given = _read_toml(file) if file else {}
    if tuned:
        from streamgauge.tuning.chosen import into

        own: dict[str, Any] = {"stream": stream} if stream else {}
        own["settings"] = {**given.get("settings", {}), **context.obj}
        given = into({**given, **own, "learners": learner or given.get("learners", ())}, tuned)
        learner = given["learners"]
    settings = {**given.pop("settings", {}), **context.obj}
    stream = stream or given.get("stream")
    if stream is None:
        raise StreamgaugeError("Name a stream: --stream NAME (see `streamgauge list streams`).")
    experiment = Experiment(
        stream=stream,
        learners=tuple(learner or given.get("learners", ())),
        seeds=seeds if seeds is not None else given.get("seeds", 1),
        settings=settings,
        speed=given.get("speed") if speed is None else speed,
        budget=given.get("budget") if budget is None else budget,
        gradient_steps=given.get("gradient_steps") if gradient_steps is None else gradient_steps,
        baselines=given.get("baselines", False) if baselines is None else baselines,
        notes=given.get("notes", {}),
    )
    folder = out or Path(given.get("out", "runs"))
    _set_threads(threads)
    from streamgauge.report.compute import charged
    from streamgauge.report.terminal import Watcher, leaderboard_text
    from streamgauge.running.profile import Profile

    profiled = Profile() if profile else None
    cluster = cluster_of(on, address, gpus, cpus, store)
    if cluster is not None and profile:
        raise StreamgaugeError("--profile looks at this process: leave it out with --on ray.")
    with Watcher(quiet=as_json or not ranks.first()) as watcher:
        how: dict[str, Any] = {
            "out": folder,
            "device": device,
            "checkpoint": checkpoint,
            "workers": workers,
            "engine": engine,
            "precision": precision,
            "deterministic": deterministic,
            "side_by_side": side_by_side,
            "said": watcher.say,
        }
        if cluster is None:
            runs = list(run_all(experiment, watch=watcher.watch, profile=profiled, **how))
        else:
            runs = list(remote.run_all(experiment, cluster=cluster, **how))
    if not ranks.first():
        return
    if as_json:
        extra = {} if profiled is None else {"profile": profiled.shares()}
        _print_json({"runs": [_scored(r) for r in runs], **extra})
        return
    print(leaderboard_text(runs))
    for sentence in charged(runs):
        print(sentence)
    if profiled is not None:
        print(f"\n{profiled.text()}")
    print(f"\nFor a report with curves: streamgauge report {folder}")


app.command()(tune)  # in `--help` after `run`


@app.command()
def realtime(
    context: typer.Context,
    stream: Annotated[str, typer.Option(help="Name of a stream, or FILE.py.")] = "albums",
    seeds: Annotated[int, typer.Option(help="Runs of each method.")] = 2,
    speeds: Annotated[str, typer.Option(help="Of fast, slow, faster, 2, ...")] = "fast,slow",
    methods: Annotated[str | None, typer.Option(help="Some of them, such as er,lwf,mir.")] = None,
    out: Out = Path("runs/realtime"),
    as_json: AsJson = False,
) -> None:
    """Draw the real-time paper's pictures: its methods on a fast and on a slow stream.

    Each method stands beside the ER that may spend as much. What is complete already is not run
    again; any setting is given by its dotted name, as for `run`.

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
        _print_json({"pictures": [one.as_plain() for one in pictures], "page": str(path)})
        return
    print(f"\n{text(pictures)}\n\nPictures: {path.resolve()}")


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        if threads < 1:
            raise StreamgaugeError(f"--threads must be at least 1, not {threads}.")
        import torch

        os.environ["OMP_NUM_THREADS"] = str(threads)  # a choice made, which processes inherit
        torch.set_num_threads(threads)


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
            what, types = kinds[name]
            fits = isinstance(value, types) and isinstance(value, bool) == (bool in types)
            if not fits or (name == "learners" and not all(isinstance(one, str) for one in value)):
                raise StreamgaugeError(f"'{name}' in {file} must be {what}.")
            given[name] = value
    return given


@app.command()
def pretrain(
    context: typer.Context,
    stream: Annotated[str, typer.Option(help="Name of a stream, or FILE.py.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights.")] = Path("backbones"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a network on the part of a stream that is never scored, and store its weights.

    Settings are --stream.X and --pretrain.X (model, epochs, lr, embedding, ...). The same command
    again finds the file and trains nothing.

    Example:

        streamgauge pretrain --stream albums --stream.preparation 0.2 --pretrain.model cnn4
    """
    from streamgauge import catalogue
    from streamgauge.models.pretrain import pretrain as train

    groups: dict[str, dict[str, Any]] = {"stream": {}, "pretrain": {}}
    for dotted, value in context.obj.items():
        group, _, name = dotted.partition(".")
        if group not in groups:
            raise StreamgaugeError(f"--{dotted} has no meaning here; {nearest(group, groups)}")
        groups[group][name] = value
    _set_threads(threads)
    built = catalogue.stream(stream, **groups["stream"])
    print(f"Weights: {train(built, out=out, device=device, **groups['pretrain'])}")


@app.command()
def cost(
    context: typer.Context,
    learners: Annotated[list[str], typer.Argument(help="[ALIAS=]NAME, or FILE.py:Class.")],
    model: Annotated[
        str | None, typer.Option(help="Network of all of them [slim_resnet18, or the preset's].")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(help="Samples in memory; filled first [100, or the preset's up to 1000]."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples a batch.")] = 10,
    jobs: Annotated[int, typer.Option(help="Training jobs measured.")] = 4,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Measure what one training job of a method costs, relative to ER on the same network.

    FLOPs forward and backward, seconds, bytes of memory, and energy where the machine can tell.
    The result can drive the clock: --protocol.cost 8/3. As many samples are recalled as are new,
    or as many as a preset says.

    Examples:

        streamgauge cost lwf mir gss

        streamgauge cost mir@survey-cifar100

        streamgauge cost rwalk --rwalk.passes 2 --json
    """
    from streamgauge import catalogue
    from streamgauge.running.job_cost import as_dict, cost_text, measure
    from streamgauge.settings import setting_types

    recipes = []
    for text in learners:
        plain = catalogue.learner(text)
        prefix = f"{plain.name}."
        kind = catalogue.config_type_of(plain.kind)
        known = set() if kind is None else set(setting_types(kind))
        preset = catalogue.presets().get(plain.where, {}).get(text.partition("@")[2], {})
        asked = {
            "model": model or preset.get("model", "slim_resnet18"),
            "memory": min(preset.get("memory", 100), 1000) if memory is None else memory,
            "recall": preset.get("recall", batch),
            "warmup": 0,
        }
        settings: dict[str, Any] = {k: v for k, v in asked.items() if k in known}
        settings |= {
            name.removeprefix(prefix): value
            for name, value in context.obj.items()
            if name.startswith(prefix)
        }
        recipes.append(catalogue.learner(text, **settings))
    for name in context.obj:
        if name.partition(".")[0] not in {r.name for r in recipes}:
            raise StreamgaugeError(f"--{name} belongs to none of the learners measured.")
    found = measure(recipes, batch=batch, jobs=jobs, device=device)
    if as_json:
        _print_json({"costs": [as_dict(one) for one in found]})
    else:
        print(cost_text(found))


@app.command()
def live(
    context: typer.Context,
    learner: Annotated[str, typer.Option(help="NAME or FILE.py:Class.")],
    stream: Annotated[str | None, typer.Option(help="Stream to reveal by the wall clock.")] = None,
    rate: Annotated[float | None, typer.Option(help="Samples a second.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long; --find-rate after 120 at the latest.")
    ] = None,
    find_rate: Annotated[
        bool, typer.Option("--find-rate", help="Find the highest rate it keeps up with.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Serve HTTP on this loopback port; 0 = any.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Serve JSON lines on stdin.")] = False,
    shape: Annotated[str | None, typer.Option(help="Of one served input, such as 3,32,32.")] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes that served labels may have.")
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="Of a served stream: float32 as they are, or uint8 for pixels.")
    ] = "float32",
    batch: Annotated[int, typer.Option(help="Served labels that make a step.")] = 10,
    shifts: Annotated[str, typer.Option(help="Near-future shifts in samples, such as 100.")] = "",
    snapshots: Annotated[
        int, typer.Option(help="Versions kept at a time to answer for --shifts.")
    ] = 4,
    trainer: Annotated[str, typer.Option(help="process or thread.")] = "process",
    hang: Annotated[
        float | None, typer.Option(help="Seconds on one batch after which a trainer is restarted.")
    ] = None,
    out: Out = Path("runs"),
    device: Device = "auto",
) -> None:
    """Gauge a learner in real time: answers are given while training goes on beside them.

    Settings are --stream.X and --LEARNER.X. A stream of one's own service comes over HTTP on
    loopback or as JSON lines; docs/live.md shows the messages.

    Examples:

        streamgauge live --stream albums --learner er --rate 500 --seconds 20

        streamgauge live --stream albums --learner er --find-rate

        streamgauge live --learner er --port 8080 --shape 3,32,32 --classes 10 --inputs uint8
    """
    from streamgauge import catalogue
    from streamgauge.live import find_rate as find
    from streamgauge.live import live as run_live
    from streamgauge.live import rates_text, serve, summary_text
    from streamgauge.streams import Spec

    name = catalogue.learner(learner).name
    own: dict[str, dict[str, Any]] = {"stream": {}, name: {}}
    for dotted, value in context.obj.items():
        group, _, setting = dotted.partition(".")
        if group not in own:
            raise StreamgaugeError(f"--{dotted} has no meaning here; {nearest(group, own)}")
        own[group][setting] = value
    recipe = catalogue.learner(learner, **own[name])
    ahead = coerce(shifts, tuple[int, ...], "--shifts")
    trained_by: Literal["process", "thread"] = coerce(
        trainer, Literal["process", "thread"], "--trainer"
    )
    if port is not None and lines:
        raise StreamgaugeError("Serve either over HTTP (--port) or as lines on stdin (--lines).")
    if port is not None or lines:
        if stream is not None:
            raise StreamgaugeError("Name a stream (--stream) or serve one (--port, --lines).")
        if shape is None or classes is None:
            raise StreamgaugeError("To serve, say what comes: --shape 3,32,32 --classes 10.")
        spec = Spec(coerce(shape, tuple[int, ...], "--shape"), classes)
        run = serve(
            spec,
            recipe,
            port=port,
            batch=batch,
            inputs=coerce(inputs, Literal["float32", "uint8"], "--inputs"),
            shifts=ahead,
            snapshots=snapshots,
            trainer=trained_by,
            hang=hang,
            out=out,
            device=device,
        )
        print(summary_text(run), file=sys.stderr if lines else sys.stdout)
        return
    if stream is None:
        raise StreamgaugeError("Name a stream (--stream NAME), or serve one (--port, --lines).")
    built = catalogue.stream(stream, **own["stream"])
    if find_rate:
        if rate is not None or ahead:
            raise StreamgaugeError("--find-rate tries rates of its own: no --rate, no --shifts.")
        limit = 120.0 if seconds is None else seconds
        print(rates_text(find(built, recipe, trainer=trained_by, device=device, limit=limit)))
        return
    if rate is None:
        raise StreamgaugeError("Give a rate (--rate 500), or ask for one (--find-rate).")
    run = run_live(
        built,
        recipe,
        rate,
        seconds=seconds,
        shifts=ahead,
        snapshots=snapshots,
        trainer=trained_by,
        hang=hang,
        out=out,
        device=device,
        origin=stream,
    )
    print(summary_text(run))


@app.command()
def resume(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A run folder, or a folder of them.")],
    device: Device = "auto",
    threads: Threads = None,
    workers: ReadAhead = None,
    checkpoint: Checkpoint = 30.0,
) -> None:
    """Finish runs that were interrupted; the log comes out as if they never had been.

    Example:

        streamgauge resume runs/
    """
    _no_settings(context)
    from streamgauge.report.terminal import Watcher, leaderboard_text
    from streamgauge.running.runner import resume as resume_runs

    _set_threads(threads)
    with Watcher() as watcher:
        runs = resume_runs(
            folder,
            device=device,
            checkpoint=checkpoint,
            watch=watcher.watch_run,
            workers=workers,
            said=watcher.say,
        )
    print(leaderboard_text(runs))


@app.command()
def score(context: typer.Context, folders: RunFolders, as_json: AsJson = False) -> None:
    """Compute every metric of stored runs from their logs: no GPU, no re-run.

    Examples:

        streamgauge score runs/

        streamgauge score runs/albums-er-s0-1a2b3c4d --json
    """
    _no_settings(context)
    from streamgauge.record import find_runs

    runs = find_runs(list(folders))
    if as_json:
        _print_json({"runs": [_scored(r) for r in runs]})
        return
    from streamgauge.report.terminal import scores_text

    print(scores_text(runs))


def _scored(run: Run) -> dict[str, Any]:
    from streamgauge.metrics import score as score_log

    return {
        "path": str(run.path),
        "id": run.id,
        "learner": run.learner,
        "stream": run.stream["name"],
        "seed": run.seed,
        "done": run.done,
        "scores": score_log(run),
    }


@app.command()
def report(
    context: typer.Context,
    folders: RunFolders,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML file that opens from disk without a network.

    Example:

        streamgauge report runs/ --out report.html
    """
    _no_settings(context)
    from streamgauge.record import find_runs
    from streamgauge.report import leaderboard, write_report
    from streamgauge.report.terminal import compute_text

    runs = find_runs(list(folders))
    boards = leaderboard(runs)
    path = write_report(runs, out, boards).resolve()
    if text := compute_text(boards):
        print(f"{text}\n")
    print(f"Report: {path}")


@app.command()
def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs between two runs, and the first step at which their logs part.

    Exit code 0 where the logs are identical (times apart), 1 where they part.

    Example:

        streamgauge diff runs/albums-er-s0-1a2b3c4d runs/albums-er-s1-5e6f7a8b
    """
    _no_settings(context)
    from streamgauge.record import Run
    from streamgauge.record.diff import differences

    found = differences(Run(first), Run(second))
    if as_json:
        _print_json(found)
    else:
        from streamgauge.report.terminal import differences_text

        print(differences_text(found))
    raise typer.Exit(0 if found["same"] else 1)


@app.command("list")
def list_(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="streams, learners, protocol or all.")] = "all",
    as_json: AsJson = False,
) -> None:
    """List the streams and learners there are, with their settings.

    Examples:

        streamgauge list

        streamgauge list learners --json
    """
    _no_settings(context)
    from streamgauge.catalogue import names, summary

    rooms = ("streams", "learners", "protocol")
    if what not in (*rooms, "all"):
        raise StreamgaugeError(f"There is no list of '{what}'; {nearest(what, (*rooms, 'all'))}")
    found = {
        room: [summary(room, name) for name in names(room)]
        for room in rooms
        if what in (room, "all")
    }
    if as_json:
        _print_json(found)
        return
    for room, entries in found.items():
        print(f"{room}:")
        wide = max(len(entry["name"]) for entry in entries)
        for entry in entries:
            print(f"  {entry['name']:<{max(wide, 11)}} {entry['what']}")
            if "source" in entry:
                print(f"              from: {entry['source']}; cost, er = 1: {entry['cost']}")
            known = ", ".join(f"{k}={v}" for k, v in entry["settings"].items())
            if known:
                print(f"              settings: {known}")
            if entry.get("presets"):
                print(f"              presets: {', '.join(entry['presets'])}")
            if entry.get("needs"):
                print(f"              needs: {', '.join(entry['needs'])}")
        print()


Column = Annotated[str | None, typer.Option(help="Column, where the guess is wrong; or none.")]


@app.command()
def audit(
    context: typer.Context,
    log: Annotated[
        Path, typer.Argument(help="CSV, ARFF, Parquet, Arrow, NPZ, JSON lines, or a run folder.")
    ],
    label: Column = None,
    prediction: Column = None,
    time: Column = None,
    user: Column = None,
    album: Column = None,
    shift: Column = None,
    age: Column = None,
    step: Annotated[
        str | None, typer.Option(help="Samples whose labels arrive at once, or a column.")
    ] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help="Column of the input; repeatable.")
    ] = None,
    shifts: Annotated[
        str | None, typer.Option(help="Shifts to look at, such as 0,100,1h,1d.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Time between samples (30m) where the log has no times.")
    ] = None,
    ties: Annotated[str, typer.Option(help="recent, smallest or evalocl.")] = "recent",
    margin: Annotated[float, typer.Option(help="What counts as no better, as a share.")] = 0.005,
    sort: Annotated[bool, typer.Option(help="Sort by time first.")] = False,
    fail_if: Annotated[
        list[str] | None, typer.Option(help="Exit with 1 if this holds; repeatable.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    on: On = "local",
    address: Address = None,
    cpus: Cpus = None,
    as_json: AsJson = False,
) -> None:
    """Say how much of a log's accuracy could be had without looking at any input.

    Works on the log of any system: a column of labels is enough, predictions are better.

    Examples:

        streamgauge audit predictions.csv

        streamgauge audit log.parquet --label truth --step 32 --report audit.html

        streamgauge audit log.csv --fail-if 'near_future < blind + 2pt'
    """
    _no_settings(context)
    from streamgauge.audit import run_audit
    from streamgauge.running.executors.cluster import spreading

    cluster = cluster_of(on, address, None, cpus)
    with ExitStack() as stack:
        spread = None if cluster is None else stack.enter_context(spreading(cluster))
        code = run_audit(
            log,
            spread=spread,
            label=label,
            prediction=prediction,
            time=time,
            user=user,
            album=album,
            shift=shift,
            age=age,
            step=step,
            features=feature or (),
            shifts=None if shifts is None else shifts.split(","),
            every=every,
            ties=ties,
            margin=margin,
            sort=sort,
            fail_if=fail_if or (),
            report=report,
            as_json=as_json,
        )
    raise typer.Exit(code)


@app.command()
def check(
    context: typer.Context,
    learner: Annotated[str, typer.Argument(help="FILE.py:Class, or the name of a learner.")],
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Test a learner against the contract that every learner here keeps.

    Exit code 1 and a sentence for each broken promise.

    Example:

        streamgauge check my_file.py:MyLearner --MyLearner.lr 0.1
    """
    from streamgauge import catalogue
    from streamgauge.models.features import device_named
    from streamgauge.running.conformance import check_learner

    recipe = catalogue.learner(learner)
    prefix = f"{recipe.name}."
    for name in context.obj:
        if not name.startswith(prefix):
            raise StreamgaugeError(f"--{name} has no meaning here; settings begin with --{prefix}")
    settings = {name.removeprefix(prefix): value for name, value in context.obj.items()}
    results = check_learner(catalogue.learner(learner, **settings), str(device_named(device)))
    passed = all(r.passed is not False for r in results)
    if as_json:
        checks = [r._asdict() for r in results]
        _print_json({"learner": recipe.name, "passed": passed, "checks": checks})
    else:
        for result in results:
            mark = {True: "pass", False: "FAIL", None: "skip"}[result.passed]
            print(f"{mark}  {result.name}" + (f": {result.why}" if result.why else ""))
    raise typer.Exit(0 if passed else 1)


def _print_json(value: Any) -> None:
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """As JSON can hold it: an undefined number becomes null, since NaN is not JSON."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
