"""Runs: one learner on one stream into one folder; many of them; and taking one up again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.loop import Loop, Protocol, job_costs
from streamgauge.record import LOG_VERSION, OPTIONAL, Recorder, Run, environment, find_runs
from streamgauge.settings import as_plain, configure, setting_types
from streamgauge.streams import Stream

# Settings `features.X`: a frozen network's features in place of inputs (see `features.Config`).
FEATURES = ("model", "weights", "embedding", "mean", "std")
Progress = Callable[[Loop], None]
Said = Callable[[str], None]


def run(
    stream: Stream,
    learner: Recipe | str | type,
    *,
    protocol: Protocol | None = None,
    seed: int = 0,
    out: str | Path = "runs",
    device: str = "auto",
    checkpoint: float = 30.0,
    progress: Progress | None = None,
    origin: str | None = None,
    said: Said = print,
) -> Run:
    """Run a learner on a stream and return the stored run.

    A run that is already complete is returned as it is; one that was interrupted goes on from its
    last checkpoint (made every `checkpoint` seconds); `said` is told so. `origin` names the stream
    for `resume`.
    """
    import torch

    protocol = protocol or Protocol()
    job_costs(protocol)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    place = _device(device)
    config = {
        "stream": {"origin": origin, "name": stream.name, "settings": dict(stream.settings)},
        "learner": recipe.describe(),
        "protocol": as_plain(protocol),
        "seed": seed,
        "device": torch.device(place).type,
    }
    described = stream.describe()
    run_id = identity(config, described)
    header = {
        "id": run_id,
        "config": config,
        "stream": described,
        "environment": environment(place),
    }
    path = Path(out) / f"{stream.name}-{recipe.name}-s{seed}-{run_id[:8]}"
    if (path / "run.json").exists() and Run(path).done:
        said(f"{path} is complete already; nothing to do.")
        return Run(path)
    absent = OPTIONAL - set(stream.source.columns)
    if stream.task is not None:
        absent -= {"task"}
    with closing(Recorder(path, header, frozenset(absent))) as recorder:
        loop = Loop(
            stream,
            lambda gate: recipe.build(stream.spec, gate, seed, torch.device(place)),
            protocol,
            recorder,
            torch.device(place),
        )
        state = recorder.state
        if state is not None:
            loop.load_state_dict(state)
            said(f"{path} goes on from step {loop.step}.")
        loop.run(checkpoint, progress)
    return Run(path)


def identity(config: Mapping[str, Any], stream: Mapping[str, Any]) -> str:
    """Hash of what determines the result: equal commands have equal identities.

    The name a learner is shown under, where its file lies, and the machine do not count; the
    stream's data and order, the learner's code and settings, protocol, seed and kind of device do.
    """
    learner = config["learner"]
    determines = {
        "log_version": LOG_VERSION,
        "stream": {k: stream[k] for k in ("name", "settings", "data_hash", "order_hash")},
        "learner": {k: learner[k] for k in ("settings", "needs", "code")},
        "protocol": config["protocol"],
        "seed": config["seed"],
        "device": config["device"],
    }
    text = json.dumps(determines, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise StreamgaugeError(f"There is no device '{device}'; use auto, cpu or cuda.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise StreamgaugeError("This machine has no CUDA device; use --device cpu.")
    return device


@dataclass(frozen=True)
class Experiment:
    """Several learners on one kind of stream, over seeds; settings by dotted name."""

    stream: str
    learners: tuple[str, ...]
    seeds: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """One run to be made. The stream is built when it is needed, once a seed."""

    recipe: Recipe
    seed: int
    stream_seed: int
    learner_seed: int


def plan(experiment: Experiment) -> tuple[list[Planned], dict[str, Any], Protocol]:
    """Check every setting before anything runs; all learners of one seed see the same stream."""
    if experiment.seeds < 1:
        raise StreamgaugeError(f"seeds must be at least 1, not {experiment.seeds}.")
    if not experiment.learners:
        raise StreamgaugeError("Name at least one learner: --learner NAME.")
    kinds = {}
    for text in experiment.learners:
        recipe = catalogue.learner(text)
        if recipe.name in kinds:
            raise StreamgaugeError(
                f"There are two learners named '{recipe.name}'; name one of them: OTHER={text}"
            )
        kinds[recipe.name] = (text, recipe)
    groups = _grouped(experiment, {name: recipe for name, (_, recipe) in kinds.items()})
    protocol = configure(Protocol, groups["protocol"], "protocol")
    job_costs(protocol)
    planned = []
    for seed in range(experiment.seeds):
        for name, (text, _) in kinds.items():
            own = dict(groups[name])
            learner_seed = int(own.pop("seed", seed))
            stream_seed = int(groups["stream"].get("seed", seed))
            planned.append(Planned(catalogue.learner(text, **own), seed, stream_seed, learner_seed))
    stream_settings = dict(groups["stream"])
    if groups["features"]:
        stream_settings["features"] = groups["features"]
    return planned, stream_settings, protocol


def _grouped(experiment: Experiment, recipes: Mapping[str, Recipe]) -> dict[str, dict[str, Any]]:
    """Sort dotted names to whom they belong; `learner.X` goes to every learner that has X."""
    known = {
        "stream": set(catalogue.stream_settings(experiment.stream)),
        "protocol": set(setting_types(Protocol)),
        "features": set(FEATURES),
    }
    for name, recipe in recipes.items():
        kind = catalogue.config_type_of(recipe.kind)
        known[name] = {"seed"} | (set() if kind is None else set(setting_types(kind)))
    everyone = {f"{group}.{s}" for group, settings in known.items() for s in settings}
    shared = set().union(*(known[name] for name in recipes))
    groups: dict[str, dict[str, Any]] = {name: {} for name in known}
    for dotted, value in experiment.settings.items():
        group, _, setting = dotted.partition(".")
        if group == "learner" and setting in shared:
            for name in recipes:
                if setting in known[name]:
                    groups[name].setdefault(setting, value)
        elif dotted in everyone:
            groups[group][setting] = value
        else:
            hint = nearest(dotted, everyone)
            raise StreamgaugeError(f"There is no setting '{dotted}'; {hint}")
    return groups


def run_all(
    experiment: Experiment,
    *,
    out: str | Path = "runs",
    device: str = "auto",
    checkpoint: float = 30.0,
    watch: Callable[[Planned, Stream], Progress | None] | None = None,
    said: Said = print,
) -> Iterator[Run]:
    """Do what is missing of an experiment, one run after the other, and yield every run."""
    planned, stream_settings, protocol = plan(experiment)
    stream, built_for = None, None
    for one in planned:
        if built_for != one.stream_seed or stream is None:
            settings = {**stream_settings, "seed": one.stream_seed}
            stream = catalogue.stream(experiment.stream, **settings)
            built_for = one.stream_seed
        yield run(
            stream,
            one.recipe,
            protocol=protocol,
            seed=one.learner_seed,
            out=out,
            device=device,
            checkpoint=checkpoint,
            progress=None if watch is None else watch(one, stream),
            origin=experiment.stream,
            said=said,
        )


def resume(
    path: str | Path,
    *,
    device: str = "auto",
    checkpoint: float = 30.0,
    watch: Callable[[Run], Progress | None] | None = None,
    said: Said = print,
) -> Iterator[Run]:
    """Finish an interrupted run, or every interrupted run in a folder of runs."""
    for stored in find_runs([path]):
        if stored.done:
            said(f"{stored.path} is complete already; nothing to do.")
            yield stored
            continue
        config = stored.header["config"]
        if config["stream"]["origin"] is None:
            raise StreamgaugeError(
                f"{stored.path} was made from arrays in Python: call run() again with the same "
                f"arrays and settings, and it goes on from step {stored.step}."
            )
        stream = catalogue.stream(config["stream"]["origin"], **config["stream"]["settings"])
        learner = config["learner"]
        recipe = catalogue.learner(f"{learner['name']}={learner['where']}", **learner["settings"])
        protocol = configure(Protocol, config["protocol"], "protocol")
        found = identity({**config, "learner": recipe.describe()}, stream.describe())
        if found != stored.id:
            what = _changed(stored, recipe, stream)
            raise StreamgaugeError(
                f"{stored.path} cannot be resumed: {what} changed since it was started."
            )
        yield run(
            stream,
            recipe,
            protocol=protocol,
            seed=config["seed"],
            out=stored.path.parent,
            device=config["device"] if device == "auto" else device,
            checkpoint=checkpoint,
            progress=None if watch is None else watch(stored),
            origin=config["stream"]["origin"],
            said=said,
        )


def _changed(stored: Run, recipe: Recipe, stream: Stream) -> str:
    if stored.header["config"]["learner"]["code"] != recipe.code:
        return f"the code of the learner {recipe.name}"
    if stored.stream["data_hash"] != stream.source.fingerprint:
        return "the data"
    return "the order of the stream or a setting"
