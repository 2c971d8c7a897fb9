"""Runs: one learner on one stream into one folder; many of them; and taking one up again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge import catalogue
from streamgauge import engine as engines
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.learners.behaviour import current_learner
from streamgauge.metrics import (
    anytime_accuracy,
    anytime_error,
    continual_accuracy,
    near_future_accuracy,
    near_future_error,
)
from streamgauge.record import OPTIONAL, Run, RunWriter, environment, find_runs
from streamgauge.record.renamed import current_state
from streamgauge.running import costs as speed
from streamgauge.running.executors.interleaved import Begun, take_turns
from streamgauge.running.identity import identity
from streamgauge.running.lookahead import LookAhead, nth
from streamgauge.running.loop import Loop
from streamgauge.running.prefetch import prefetching, with_prefetch
from streamgauge.running.profile import Profile
from streamgauge.running.protocol import Protocol
from streamgauge.running.threads import suitable_threads, threads
from streamgauge.settings import as_plain, coerce, configure, setting_types
from streamgauge.streams import Gate, Stream
from streamgauge.streams.resident import Resident, fits

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.running.executors.torchrun import Ranks

# Settings `features.X`: a frozen network's features in place of inputs (see `features.Config`).
FEATURES = ("model", "weights", "embedding", "mean", "std")
# What a run's configuration holds beside its notes.
OWN = ("stream", "learner", "protocol", "seed", "device", "engine")
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
    notes: Mapping[str, Any] | None = None,
    workers: int | None = None,
    engine: engines.Name = "auto",
    precision: engines.Precision = "fp16",
    deterministic: bool = False,
    said: Said = print,
    profile: Profile | None = None,
) -> Run:
    """Run a learner on a stream and return the stored run.

    A run that is already complete is returned as it is; one that was interrupted goes on from its
    last checkpoint (made every `checkpoint` seconds); `said` is told so. `origin` names the stream
    for `resume`. `notes` are kept in the configuration and change nothing. `workers` processes
    decode images ahead of time (by default one a core where the stream's samples are encoded
    images, none elsewhere); their number changes no result. `engine` and `precision` say how steps
    execute (see `streamgauge.engine`). The same run gives the same log again on the same machine,
    unless its learner takes an operation that torch has no such algorithm for, of which torch warns
    on a GPU; with `deterministic` that is an error. A `profile` learns where the time went.
    """
    path, begin = prepare(
        stream,
        learner,
        protocol=protocol,
        seed=seed,
        out=out,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
        origin=origin,
        notes=notes,
        workers=workers,
        engine=engine,
        precision=precision,
        deterministic=deterministic,
        said=said,
        profile=profile,
    )
    if begin is not None:
        to_the_end(begin)
    return Run(path)


def to_the_end(begin: Callable[[], Begun]) -> None:
    """Do all steps of a run."""
    begun = begin()
    with begun.close:
        for _ in begun.steps:
            pass


def prepare(
    stream: Stream,
    learner: Recipe | str | type,
    *,
    protocol: Protocol | None,
    seed: int,
    out: str | Path,
    device: str,
    checkpoint: float,
    progress: Progress | None,
    origin: str | None,
    notes: Mapping[str, Any] | None,
    workers: int | None,
    engine: engines.Name,
    precision: engines.Precision,
    said: Said,
    deterministic: bool = False,
    profile: Profile | None = None,
    path: Path | None = None,
) -> tuple[Path, Callable[[], Begun] | None]:
    """Where a run lies, and how to begin it or to go on with it; None if there is nothing to do.

    It lies in a folder of `out` that is named after it, unless its `path` is known.
    """
    import torch

    protocol = protocol or Protocol()
    seed = check_seed(seed, "seed")
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    ranks = _ranks(recipe)
    place = _device(device) if ranks is None else ranks.device(device)
    make_deterministic(place, deterministic)
    if ranks is not None:
        engine, profile = "eager", None
        if ranks.rank:
            said, progress = _nothing, None
    config = {
        "stream": {"origin": origin, "name": stream.name, "settings": dict(stream.settings)},
        "learner": recipe.describe(stream),
        "protocol": as_plain(protocol),
        "seed": seed,
        "device": torch.device(place).type,
        **(notes or {}),
    }
    if profile is not None:
        engine = "eager"  # a recorded step has no parts
    motor = engines.make(engine, torch.device(place), precision)
    motor.say = said
    if motor.name != "eager":
        config["engine"] = {"name": motor.name, "precision": motor.precision}
    described = stream.describe()
    run_id = identity(config, described)
    header: dict[str, Any] = {
        "id": run_id,
        "config": config,
        "stream": described,
        "environment": environment(place),
    }
    path = path or _folder(Path(out), f"{stream.name}-{recipe.name}-s{seed}", run_id)
    done = (path / "run.json").exists() and Run(path).done
    if done if ranks is None else ranks.told(done):
        said(f"{path} is complete already; nothing to do.")
        return path, None
    with _in_words():
        chosen = suitable_threads(
            lambda gate: _build(recipe, stream, gate, seed, torch.device(place)),
            stream,
            torch.device(place),
        )
    header["environment"]["threads"] = chosen
    if ranks is not None:
        header["environment"]["ranks"] = ranks.count
    absent = OPTIONAL - set(stream.source.columns)
    if stream.task is not None:
        absent -= {"task"}

    def begin() -> Begun:
        with _in_words(), ExitStack() as close:
            seen = close.enter_context(prefetching(stream, workers))
            seen = _on_device(seen, torch.device(place))
            writer = partial(RunWriter, path, header, frozenset(absent))
            recorder = writer() if ranks is None else ranks.recorder(writer)
            close.enter_context(closing(recorder))
            try:
                loop = Loop(
                    seen,
                    lambda gate: _build(recipe, seen, gate, seed, torch.device(place), ranks),
                    protocol,
                    recorder,
                    torch.device(place),
                    motor,
                )
            except BaseException:
                recorder.discard()  # what cannot even begin leaves nothing behind
                raise
            if motor.reason:
                said(f"{recipe.name} is run step by step: {motor.reason}.")
            close.enter_context(threads(recorder.threads or chosen))
            if profile is not None:
                close.enter_context(profile.attached(loop))
            state = recorder.state
            if state is not None:
                state["learner"] = current_state(recipe.where, state["learner"])
                with motor.scope():
                    loop.load_state_dict(state)
                said(f"{path} goes on from step {loop.step}.")
            else:
                for sentence in loop.lookahead.sentences() + loop.idle_costs():
                    said(sentence)
            steps = loop.steps(checkpoint, with_prefetch(loop, progress))
            if ranks is not None:
                loop.meter.total, steps = ranks.total, ranks.and_wait(steps)
            if loop.lookahead.every > 1:
                steps = _and_then(steps, lambda: said(near_future_text(Run(path), loop.lookahead)))
            if _looks_at_some(stream, protocol):
                steps = _and_then(steps, lambda: said(continual_text(Run(path))))
            return Begun(loop, _worded(steps), close.pop_all())
        raise AssertionError("unreachable")

    return path, begin


def _folder(out: Path, prefix: str, run_id: str) -> Path:
    """The folder of a run; an older version may have named it after another hash of the same."""
    path = out / f"{prefix}-{run_id[:8]}"
    if not path.exists():
        for file in sorted(out.glob(f"{escape(prefix)}-*/run.json")):
            with suppress(StreamgaugeError, KeyError):  # damaged, or not a run with an identity
                header = Run(file.parent).header
                if identity(header["config"], header["stream"]) == run_id:
                    return file.parent
    return path


_RESIDENT: dict[tuple[str, str], Resident] = {}


def _on_device(stream: Stream, device: torch.device) -> Stream:
    """The stream with its inputs on the device, where they fit; the last source stays there."""
    if not fits(stream.source, device):
        return stream
    key = (stream.source.fingerprint, str(device))
    if key not in _RESIDENT:
        _RESIDENT.clear()
        _RESIDENT[key] = Resident(stream.source, device)
    return replace(stream, source=_RESIDENT[key])


def _and_then(steps: Iterator[None], act: Callable[[], None]) -> Iterator[None]:
    yield from steps
    act()


@contextmanager
def _in_words() -> Iterator[None]:
    """What `deterministic` refuses is for a user to mend."""
    try:
        yield
    except RuntimeError as error:
        what, said, _ = str(error).partition(" does not have a deterministic implementation")
        if not said:
            raise
        raise StreamgaugeError(
            f"{what} has no algorithm in torch that gives the same result every time, and"
            " --deterministic refuses it; without, it is taken."
        ) from error


def _worded(steps: Iterator[None]) -> Iterator[None]:
    with _in_words():
        yield from steps


def near_future_text(run: Run, lookahead: LookAhead) -> str:
    """What thinned shifts gave, with what that cost and how sure it is."""
    shifts = sorted(set(run.header["config"]["protocol"]["shifts"]))
    found = near_future_accuracy(run, shifts)
    errors = near_future_error(run, shifts)
    each = ", ".join(
        f"{s} ahead {100 * value:.2f} % (standard error {100 * error:.2f})"
        for s, value, error in zip(shifts, found, errors, strict=True)
    )
    return (
        f"Near future on every {nth(lookahead.every)} step: {each}; "
        f"{100 * lookahead.extra():.0f} % more forward passes."
    )


def _looks_at_some(stream: Stream, protocol: Protocol) -> bool:
    """Whether tasks are evaluated during training, but not after every step."""
    every = protocol.evaluate
    return stream.task is not None and bool(stream.splits) and isinstance(every, int) and every > 1


def continual_text(run: Run) -> str:
    """What evaluations at some of the steps gave, and how sure it is."""
    acc, task, step = continual_accuracy(run)
    found, error = float(anytime_accuracy(acc, task)[-1]), anytime_error(acc, task, step)
    every = nth(run.header["config"]["protocol"]["evaluate"])
    return (
        f"Evaluated after every {every} step: anytime accuracy {100 * found:.2f} %, with a standard"
        f" error of {100 * error:.2f} for the steps between; a worst case is the worst of these."
    )


def _device(device: str) -> str:
    from streamgauge.models.features import device_named

    return str(device_named(device))


def _nothing(_: str) -> None:
    """What ranks other than the first have to say."""


def _ranks(recipe: Recipe) -> Ranks | None:
    """The processes that share this run, where `torchrun` started some."""
    from streamgauge.running.executors.torchrun import of_torchrun

    found = of_torchrun()
    if found is not None:
        found.check(recipe)
    return found


def _build(
    recipe: Recipe,
    stream: Stream,
    gate: Gate,
    seed: int,
    device: torch.device,
    ranks: Ranks | None = None,
) -> Learner:
    try:
        with _in_words():
            learner = recipe.build(stream.spec, gate, seed, device)
        return learner if ranks is None else ranks.share(learner)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        raise StreamgaugeError(f"The learner {recipe.name} cannot be made: {reason}") from error


_SWITCHED = [False]  # whether torch was told by us, in this process


def make_deterministic(device: str, strict: bool = False) -> None:
    """On a GPU, choose algorithms that give the same sums every time: a run that is repeated or
    resumed there must have the same log. Where torch has none it warns, or, if `strict`, refuses;
    on a processor only then. It holds until the next run says otherwise."""
    import torch

    if strict or device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(True, warn_only=not strict)
        _SWITCHED[0] = True
    elif _SWITCHED[0]:
        torch.use_deterministic_algorithms(False)
        _SWITCHED[0] = False


def check_seed(seed: Any, name: str) -> int:
    number = int(coerce(seed.item() if hasattr(seed, "item") else seed, int, name))
    if not 0 <= number < 2**63:
        raise StreamgaugeError(f"{name} must lie between 0 and 2^63, not at {number}.")
    return number


@dataclass(frozen=True)
class Experiment:
    """Several learners on one kind of stream, over seeds; settings by dotted name.

    `protocol.cost` and `LEARNER.cost` may be a number, `paper` or `measured`. What `speed`,
    `budget` and `gradient_steps` do is said in `streamgauge.running.costs`; `baselines` adds ER++
    and ER-- to every learner.
    """

    stream: str
    learners: tuple[str, ...]
    seeds: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    speed: str | float | Fraction | None = None  # fast, slow, faster, or times as fast as ER
    budget: str | float | Fraction | None = None  # updates of ER a batch
    gradient_steps: int | None = None  # a batch
    baselines: bool = False
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by learner; see `run`


@dataclass(frozen=True)
class Planned:
    """One run to be made. The stream is built when it is needed, once a seed."""

    recipe: Recipe
    stream_seed: int
    learner_seed: int
    protocol: Protocol = field(default_factory=Protocol)
    relative: speed.Relative | None = None  # what its job costs, where that was asked for
    baseline_of: tuple[str, ...] = ()  # the learners whose compute it matches


def plan(
    experiment: Experiment, out: str | Path | None = None
) -> tuple[list[Planned], dict[str, Any]]:
    """Check every setting before anything runs; all learners of one seed see the same stream.

    What a learner costs is found here, once for all its seeds; `out` is where an earlier run may
    have kept what was measured.
    """
    if experiment.seeds < 1:
        raise StreamgaugeError(f"seeds must be at least 1, not {experiment.seeds}.")
    if not experiment.learners:
        raise StreamgaugeError("Name at least one learner: --learner NAME.")
    kinds = {}
    for text in experiment.learners:
        recipe = catalogue.learner(text)
        if recipe.name in ("stream", "protocol", "features", "learner"):
            raise StreamgaugeError(f"A learner cannot be named '{recipe.name}'; choose another.")
        if recipe.name in kinds:
            raise StreamgaugeError(
                f"There are two learners named '{recipe.name}'; name one of them: OTHER={text}"
            )
        kinds[recipe.name] = (text, recipe)
    groups = _grouped(experiment, {name: recipe for name, (_, recipe) in kinds.items()})
    stream_settings = dict(groups["stream"])
    if groups["features"]:
        stream_settings["features"] = groups["features"]
    asked = speed.Asked(
        groups["protocol"].pop("cost", None),
        experiment.speed,
        experiment.budget,
        experiment.gradient_steps,
        experiment.baselines,
    )
    protocol = configure(Protocol, groups["protocol"], "protocol")
    measure = _Measure(experiment.stream, stream_settings, out)
    timed = []
    for name, (text, recipe) in kinds.items():
        own = groups[name]
        ours = {"seed", "cost"} if speed.takes_cost(recipe) else {"seed"}
        settings = {k: v for k, v in asked.settings(recipe, own).items() if k not in ours}
        timed.append(asked.timed(catalogue.learner(text, **settings), own, protocol, measure))
    if experiment.baselines:
        timed += speed.baselines(timed, {name: text for name, (text, _) in kinds.items()})
    planned = []
    for seed in range(experiment.seeds):
        stream_seed = check_seed(groups["stream"].get("seed", seed), "stream.seed")
        for one in timed:
            name = one.like or one.recipe.name
            learner_seed = check_seed(groups.get(name, {}).get("seed", seed), f"{name}.seed")
            planned.append(
                Planned(
                    one.recipe,
                    stream_seed,
                    learner_seed,
                    one.protocol,
                    one.relative,
                    one.baseline_of,
                )
            )
    return planned, stream_settings


class _Measure:
    """Measures what learners cost on an experiment's stream, or finds what was measured before."""

    def __init__(self, stream: str, settings: Mapping[str, Any], out: str | Path | None) -> None:
        self._where, self._settings = stream, settings
        self._out = None if out is None else Path(out)
        self._stream: Stream | None = None

    def __call__(self, recipe: Recipe) -> speed.Relative:
        if self._stream is None:
            self._stream = catalogue.stream(self._where, **{"seed": 0, **self._settings})
        stored = speed.stored(self._headers(), recipe, self._stream)
        return stored or speed.measured(recipe, self._stream)

    def _headers(self) -> Iterator[dict[str, Any]]:
        files = [] if self._out is None else sorted(self._out.glob("*/run.json"))
        for file in files:
            with suppress(StreamgaugeError):  # a damaged run is no reason not to make another
                yield Run(file.parent).header


def _grouped(experiment: Experiment, recipes: Mapping[str, Recipe]) -> dict[str, dict[str, Any]]:
    """Sort dotted names to whom they belong; `learner.X` goes to every learner that has X, and
    `er.X`, where there is no plain `er`, to every `er@PRESET`. The narrower one holds."""
    known = {
        "stream": set(catalogue.stream_settings(experiment.stream)),
        "protocol": set(setting_types(Protocol)),
        "features": set(FEATURES),
    }
    for name, recipe in recipes.items():
        kind = catalogue.config_type_of(recipe.kind)
        known[name] = {"seed", "cost"} | (set() if kind is None else set(setting_types(kind)))
    everyone = {f"{group}.{s}" for group, settings in known.items() for s in settings}
    groups: dict[str, dict[str, Any]] = {name: {} for name in known}

    def whom(dotted: str) -> list[str]:
        group, _, setting = dotted.partition(".")
        some = [group]
        if group not in known:
            some = [n for n in recipes if group in ("learner", n.partition("@")[0])]
        return [name for name in some if setting in known[name]]

    def narrowness(dotted: str) -> int:
        group = dotted.partition(".")[0]
        return 0 if group == "learner" else 2 if group in known else 1

    for dotted in sorted(experiment.settings, key=narrowness):
        names = whom(dotted)
        for name in names:
            groups[name][dotted.partition(".")[2]] = experiment.settings[dotted]
        if not names:
            hint = nearest(dotted, everyone)
            raise StreamgaugeError(f"There is no setting '{dotted}'; {hint}")
    return groups


def run_all(experiment: Experiment, **options: Any) -> Iterator[Run]:
    """Do what is missing of an experiment, and yield every run as it ends; options are those of
    `carry_out`."""
    for _, made in carry_out(experiment, **options):
        yield made


def carry_out(
    experiment: Experiment,
    *,
    out: str | Path = "runs",
    device: str = "auto",
    checkpoint: float = 30.0,
    watch: Callable[[Planned, Stream], Progress | None] | None = None,
    workers: int | None = None,
    engine: engines.Name = "auto",
    precision: engines.Precision = "fp16",
    deterministic: bool = False,
    side_by_side: int | None = None,
    said: Said = print,
    profile: Profile | None = None,
) -> Iterator[tuple[Planned, Run]]:
    """Do what is missing of an experiment; yields every run as it ends, and what it was planned as.

    On a GPU that replays recorded steps, runs go side by side, as many as fit or as many as
    `side_by_side` says; elsewhere one after the other.
    """
    import torch

    planned, stream_settings = plan(experiment, out)
    place = torch.device(_device(device))
    together = place.type == "cuda" and engine != "eager" and side_by_side != 1 and not profile
    stream, built_for = None, None
    starts: list[tuple[tuple[Planned, Path], Callable[[], Begun]]] = []
    for one in planned:
        if built_for != one.stream_seed or stream is None:
            settings = {**stream_settings, "seed": one.stream_seed}
            stream = catalogue.stream(experiment.stream, **settings)
            built_for = one.stream_seed
        notes = dict(experiment.notes.get(one.recipe.name, {}))
        if one.relative is not None and one.relative.measured:
            notes["measured_cost"] = one.relative.as_plain()
        path, begin = prepare(
            stream,
            one.recipe,
            protocol=one.protocol,
            seed=one.learner_seed,
            out=out,
            device=device,
            checkpoint=checkpoint,
            progress=None if watch is None else watch(one, stream),
            origin=origin(experiment.stream),
            notes=notes,
            workers=workers,
            engine=engine,
            precision=precision,
            deterministic=deterministic,
            said=said,
            profile=profile,
        )
        if begin is None:
            yield one, Run(path)
        elif together:
            starts.append(((one, path), begin))
        else:
            to_the_end(begin)
            yield one, Run(path)
    for one, path in take_turns(starts, place, side_by_side, said) if starts else ():
        yield one, Run(path)


def origin(stream: str) -> str:
    """A file is to be found from any folder."""
    return str(Path(stream).resolve()) if stream.endswith(".py") else stream


def resume(
    path: str | Path,
    *,
    device: str = "auto",
    checkpoint: float = 30.0,
    watch: Callable[[Run], Progress | None] | None = None,
    workers: int | None = None,
    said: Said = print,
) -> list[Run]:
    """Finish an interrupted run, or every interrupted run in a folder of runs.

    A run that cannot be finished does not keep the others from it; what is wrong is said at the
    end.
    """
    runs, problems = [], []
    for stored in find_runs([path]):
        if stored.done:
            said(f"{stored.path} is complete already; nothing to do.")
            runs.append(stored)
            continue
        try:
            progress = None if watch is None else watch(stored)
            runs.append(_resume(stored, device, checkpoint, progress, workers, said))
        except StreamgaugeError as problem:
            problems.append(str(problem))
    if problems:
        raise StreamgaugeError(" ".join(problems))
    return runs


def _resume(
    stored: Run,
    device: str,
    checkpoint: float,
    progress: Progress | None,
    workers: int | None,
    said: Said,
) -> Run:
    config = stored.header["config"]
    if "live" in config:
        raise StreamgaugeError(f"{stored.path} is a live run: time that has passed cannot resume.")
    if "trial" in config:
        raise StreamgaugeError(
            f"{stored.path} is a trial: the `streamgauge tune` that began it goes on with it."
        )
    if device != "auto" and device.partition(":")[0] != config["device"]:
        raise StreamgaugeError(
            f"{stored.path} was begun on {config['device']} and can only be finished there."
        )
    if config["stream"]["origin"] is None:
        raise StreamgaugeError(
            f"{stored.path} was made from arrays in Python: call run() again with the same "
            f"arrays and settings, and it goes on from step {stored.step}."
        )
    stream = catalogue.stream(config["stream"]["origin"], **config["stream"]["settings"])
    learner = current_learner(config["learner"])
    recipe = catalogue.learner(f"{learner['name']}={learner['where']}", **learner["settings"])
    protocol = configure(Protocol, config["protocol"], "protocol")
    described, seen = recipe.describe(stream), stream.describe()
    now = {**config, "learner": described, "protocol": as_plain(protocol)}
    # Not by the stored id: an older version may have made it of other things. Settings that it did
    # not have yet have their defaults.
    before = {
        **config,
        "learner": {**learner, "settings": {**described["settings"], **learner["settings"]}},
        "protocol": {**now["protocol"], **config["protocol"]},
    }
    known = {**stored.stream, "settings": {**seen["settings"], **stored.stream["settings"]}}
    if identity(now, seen) != identity(before, known):
        what = _changed(stored, described, stream)
        raise StreamgaugeError(
            f"{stored.path} cannot be resumed: {what} changed since it was started."
        )
    path, begin = prepare(
        stream,
        recipe,
        protocol=protocol,
        seed=config["seed"],
        out=stored.path.parent,
        path=stored.path,
        device=config["device"] if device == "auto" else device,
        engine=config.get("engine", {}).get("name", "eager"),
        precision=config.get("engine", {}).get("precision", "fp16"),
        checkpoint=checkpoint,
        progress=progress,
        origin=config["stream"]["origin"],
        notes={name: value for name, value in config.items() if name not in OWN},
        workers=workers,
        said=said,
    )
    if begin is not None:
        to_the_end(begin)
    return Run(path)


def _changed(stored: Run, described: Mapping[str, Any], stream: Stream) -> str:
    learner = current_learner(stored.header["config"]["learner"])
    for what, words in (("code", "the code"), ("weights", "the weights")):
        if learner[what] != described[what]:
            return f"{words} of the learner {described['name']}"
    if stored.stream["data_hash"] != stream.source.fingerprint:
        return "the data"
    return "the order of the stream or a setting"
