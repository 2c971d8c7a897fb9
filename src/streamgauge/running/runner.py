"""Runs in Python: one learner on one stream, all runs of an experiment, and interrupted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import Damaged, Failures, StreamgaugeError, with_keywords
from streamgauge.learners.behaviour import current_learner
from streamgauge.record import Run
from streamgauge.record.index import index_of
from streamgauge.record.run import run_folders
from streamgauge.running.active_run import (
    ActiveRun,
    complete_already,
    opened_in_turn,
    run_to_completion,
)
from streamgauge.running.determinism import user_threads
from streamgauge.running.execution import Execution, ExecutionKeywords, execution_of
from streamgauge.running.executors import dispatch
from streamgauge.running.executors.dispatch import Watch
from streamgauge.running.header import identity
from streamgauge.running.loop import Progress
from streamgauge.running.plan import Experiment, PlannedRun, plan
from streamgauge.running.progress import progress_line
from streamgauge.running.protocol import Protocol
from streamgauge.settings import RUNS, as_plain, configure
from streamgauge.streams import Stream
from streamgauge.streams.permuted import permuted_inputs
from streamgauge.versions import VERSION, renamed

# Entries of a run's configuration that are not notes.
CONFIG_ENTRIES = ("stream", "learner", "protocol", "seed", "device", "engine")

__getattr__ = renamed(__name__, {"Planned": "PlannedRun", "carry_out": "execute"})


@with_keywords
def run(
    stream: Stream,
    learner: Any,
    *,
    protocol: Protocol | None = None,
    seed: int = 0,
    out: str | Path = RUNS,
    progress: Progress | bool | None = None,
    origin: str | None = None,
    notes: Mapping[str, Any] | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> Run:
    """Run a learner on a stream and return the stored run. `learner` is a name, a class, what
    `sg.learner` returns, or a model of river or scikit-learn.

    A run that is already complete is returned as it is; an interrupted run goes on from its last
    checkpoint; `log` is called with a sentence that says so. With `force=True` it is run again, and
    so is a run of a learner of your own whose code cannot be known. `origin` names the stream for
    `resume`. `notes` are kept in the configuration and change nothing. `progress` is called after
    every step; by default it updates a line in terminals and notebooks (True: also prints lines
    elsewhere, False: nothing). How the run is carried out is an `Execution`, or keywords with the
    names of its fields: `device`, `checkpoint` (seconds), `workers`, `engine`, `precision`,
    `deterministic`, `threads`, `profile`, `log`, `force`, `trust_pickle`.

    The same run gives the same log again on the same machine, unless its learner uses an operation
    without a deterministic algorithm in torch, of which torch warns on a GPU; with `deterministic`
    that is an error.
    """
    execution = execution_of(execution, options)
    if execution.cluster is not None:
        raise StreamgaugeError("run() works in this process; run_all() can use a cluster.")
    _refuse_no_stream(stream, learner)
    if not isinstance(protocol, Protocol | None):
        raise StreamgaugeError(
            f"The protocol must be sg.Protocol(...), such as sg.Protocol(shifts=(100,)), not a"
            f" {type(protocol).__name__}."
        )
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    if progress is None or isinstance(progress, bool):
        progress = progress_line(f"{recipe.name}, seed {seed}", progress)
    with user_threads(execution.threads):
        active = ActiveRun(
            stream,
            recipe,
            execution,
            protocol=protocol,
            seed=seed,
            out=out,
            origin=origin,
            notes=notes,
            progress=progress,
        )
        run_to_completion(active)
    return Run(active.path)


def _refuse_no_stream(stream: Any, learner: Any) -> None:
    """An error that says what to write in place of a stream."""
    if isinstance(stream, Stream):
        return
    names = isinstance(stream, str) and isinstance(learner, str)
    if isinstance(learner, Stream) or (names and stream in catalogue.names("learners")):
        raise StreamgaugeError(
            "The arguments are swapped: the stream comes first, sg.run(stream, learner)."
        )
    if isinstance(stream, str | Path):
        write = f"sg.run(sg.stream({str(stream)!r}), learner)"
    elif isinstance(stream, tuple | list) and len(stream) == 2:
        write = "sg.run(sg.stream(x, y), learner)"
    elif hasattr(stream, "read") and hasattr(stream, "spec"):
        write = "sg.run(sg.arrange(source, sg.Arrangement()), learner)"
    else:
        write = "sg.run(sg.stream(data), learner), or sg.stream(x, y) for arrays"
    raise StreamgaugeError(f"A {type(stream).__name__} is not a stream: write {write}.")


def run_all(experiment: Experiment, **options: Any) -> Iterator[Run]:
    """Do what is missing of an experiment, yielding runs; options are those of `execute`."""
    for _, finished in execute(experiment, **options):
        yield finished


def execute(
    experiment: Experiment,
    *,
    out: str | Path = RUNS,
    watch: Watch | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of an experiment; yields every run as it ends, with its plan. `watch` is
    called before each run in this process, and returns a callback for its steps."""
    execution = execution_of(execution, options)
    yield from dispatch.execute(plan(experiment, out), execution, out, watch)


def resume(
    path: str | Path | Run,
    *,
    watch: Callable[[Run], Progress | None] | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> list[Run]:
    """Finish an interrupted run, or every interrupted run in a folder of runs. A run that cannot be
    finished does not keep the others from it; what is wrong is raised at the end. Code that a run
    folder names (FILE.py of a learner or a stream) is executed only with `trust`: True, or a list
    of the files."""
    execution = execution_of(execution, options)
    runs = list[Run]()
    path = path.path if isinstance(path, Run) else Path(path)
    folders = run_folders(path)
    index = index_of(path, len(folders))
    with user_threads(execution.threads), Failures() as failures:

        def finish(folder: Path) -> None:
            with failures.of(folder.name):
                stored = Run(folder, index)
                if stored.done:
                    execution.log(complete_already(stored))
                else:
                    name = f"{stored.learner}, seed {stored.seed}"
                    progress = progress_line(name) if watch is None else watch(stored)
                    run_to_completion(_reopened(stored, execution, progress))
                    stored = Run(folder)
                runs.append(stored)

        for _ in opened_in_turn(folders, finish, execution.log):
            pass
    return runs


def placebo(
    path: str | Path,
    *,
    permutation: int = 0,
    watch: Callable[[Run], Progress | None] | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> Run:
    """Run the learner of a complete run again with inputs permuted against labels.

    Settings, seed and protocol are those of the run; the new run folder is stored next to it, and
    its stream is named NAME-placebo. `permutation` is the seed of the permutation.
    """
    execution = execution_of(execution, options)
    stored = Run(path)
    if not stored.done:
        raise StreamgaugeError(f"{path} is not complete: finish it with `streamgauge resume`.")
    if "placebo_of" in stored.header["config"]:
        raise StreamgaugeError(f"{path} is a placebo run already: give the run that it belongs to.")
    again = _same_run(stored, execution, "run again")
    with user_threads(execution.threads):
        active = ActiveRun(
            permuted_inputs(again.stream, permutation),
            again.recipe,
            again.execution,
            protocol=again.protocol,
            seed=stored.seed,
            out=stored.path.parent,
            notes={"placebo_of": stored.id},
            progress=None if watch is None else watch(stored),
        )
        run_to_completion(active)
    return Run(active.path)


def _reopened(stored: Run, execution: Execution, progress: Progress | None) -> ActiveRun:
    """An interrupted run as it was configured, checked to be the same run today."""
    config = stored.header["config"]
    if "placebo_of" in config:
        raise StreamgaugeError(
            f"{stored.path} is a placebo run: `streamgauge audit --placebo` goes on with it."
        )
    again = _same_run(stored, execution, "resumed")
    return ActiveRun(
        again.stream,
        again.recipe,
        again.execution,
        protocol=again.protocol,
        seed=config["seed"],
        path=stored.path,
        origin=config["stream"]["origin"],
        notes={name: value for name, value in config.items() if name not in CONFIG_ENTRIES},
        progress=progress,
    )


class _SameRun(NamedTuple):
    """What a stored run was made from, built again."""

    stream: Stream
    recipe: Recipe
    protocol: Protocol
    execution: Execution


def _same_run(stored: Run, execution: Execution, verb: str) -> _SameRun:
    """Stream, learner and protocol of a stored run, checked to be the same today."""
    config, device = stored.header["config"], execution.device
    if "live" in config:
        raise StreamgaugeError(f"{stored.path} is a live run: it cannot be {verb}.")
    if "trial" in config:
        raise StreamgaugeError(
            f"{stored.path} is a trial of `streamgauge tune`, which goes on with it: it cannot be "
            f"{verb} alone."
        )
    if device != "auto" and device.partition(":")[0] != config["device"]:
        raise StreamgaugeError(
            f"{stored.path} was begun on {config['device']} and can only be {verb} there."
        )
    if config["stream"]["origin"] is None:
        raise StreamgaugeError(
            f"{stored.path} was made from arrays in Python and cannot be {verb} from its folder: "
            "call run() with the same arrays and settings."
        )
    _check_id(stored)
    learner = current_learner(config["learner"])
    where = f"{learner['name']}={learner['where']}"
    _refuse_foreign_code(stored.path, where, config["stream"]["origin"], execution.trust)
    stream = catalogue.stream(config["stream"]["origin"], **config["stream"]["settings"])
    recipe = catalogue.learner(where, **learner["settings"])
    protocol = configure(Protocol, config["protocol"], "protocol")
    described, stream_now = recipe.describe(stream), stream.describe()
    now = {**config, "learner": described, "protocol": as_plain(protocol)}
    # Not by the stored id: an older version may have computed it from other fields. Settings that
    # it did not have yet have their defaults.
    before = {
        **config,
        "learner": {**learner, "settings": {**described["settings"], **learner["settings"]}},
        "protocol": {**now["protocol"], **config["protocol"]},
    }
    stream_settings = {**stream_now["settings"], **stored.stream["settings"]}
    stream_before = {**stored.stream, "settings": stream_settings}
    if recipe.unknown:
        raise StreamgaugeError(
            f"{stored.path} cannot be resumed: its learner may have changed, as {recipe.unknown}."
        )
    if identity(now, stream_now) != identity(before, stream_before):
        changed = _changed(stored, described, stream)
        raise StreamgaugeError(
            f"{stored.path} cannot be {verb}: {changed} changed since it was started."
        )
    engine = config.get("engine", {})
    return _SameRun(
        stream,
        recipe,
        protocol,
        replace(
            execution,
            device=config["device"] if device == "auto" else device,
            engine=engine.get("name", "eager"),
            precision=engine.get("precision", "fp16"),
        ),
    )


def _check_id(stored: Run) -> None:
    """Refuse a run whose id is not that of its configuration. Another version may have computed it
    from other fields."""
    header = stored.header
    same_version = header["environment"].get("streamgauge") == VERSION and "format" in header
    if same_version and identity(header["config"], stored.stream) != stored.id:
        raise Damaged(
            f"{stored.path / 'run.json'} was changed: its id is not that of its configuration;"
            " restore it from a copy, or remove the run folder and run again."
        )


def _refuse_foreign_code(
    path: Path, learner: str, stream: str, trust: bool | Sequence[str]
) -> None:
    """Nothing that a run folder names is executed, unless the user named it, too."""
    codes = [catalogue.code_of_learner(learner), catalogue.code_of_stream(stream)]
    if foreign := catalogue.untrusted(codes, trust):
        files = " and ".join(dict.fromkeys(foreign))
        raise StreamgaugeError(
            f"{path} names code of its own, {files}, which would be executed: if you trust it, give"
            f" --code {foreign[0]} (or --trust for everything that the folder names; in Python"
            " trust=...), or repeat the `streamgauge run` command that made the run."
        )


def _changed(stored: Run, described: Mapping[str, Any], stream: Stream) -> str:
    learner = current_learner(stored.header["config"]["learner"])
    for entry, words in (
        ("library", "the version of the library"),
        ("code", "the code"),
        ("weights", "the weights"),
    ):
        if learner.get(entry) != described.get(entry):
            return f"{words} of the learner {described['name']}"
    if stored.stream["data_hash"] != stream.source.fingerprint:
        return "the data"
    return "the order of the stream or a setting"
