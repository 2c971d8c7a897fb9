"""From an experiment to the list of its runs, with every setting checked before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.record import Run
from streamgauge.record.renamed import DROPPED
from streamgauge.running import costs
from streamgauge.running.protocol import Protocol
from streamgauge.settings import MAX_SEEDS, as_plain, coerce, configure, setting_types
from streamgauge.streams import Stream
from streamgauge.streams.prefix import prefix

# Settings `features.X`: a frozen network's features in place of inputs (see `features.Config`).
FEATURES = ("model", "weights", "embedding", "mean", "std")


@dataclass(frozen=True)
class Experiment:
    """Several learners on one kind of stream, over seeds; settings by dotted name. `protocol.cost`
    and `LEARNER.cost` may be a number, `paper` or `measured`. `speed`, `budget` and
    `gradient_steps` are explained in `streamgauge.running.costs`; `baselines` adds ER++ and ER-- to
    every learner."""

    stream: str
    learners: tuple[str, ...]
    seeds: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    speed: str | float | Fraction | None = None  # fast, slow, faster, or times as fast as ER
    budget: str | float | Fraction | None = None  # updates of ER per batch
    gradient_steps: int | None = None  # per batch
    baselines: bool = False
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by learner; see `run`


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run to be made: what runs, and how it is measured. Its stream is built when needed. Two
    planned runs are equal only if they are the same object. It can be pickled: a learner from a
    user's file is loaded again by its path."""

    recipe: Recipe
    stream: str  # a name, or the absolute path of FILE.py
    stream_settings: Mapping[str, Any]  # with the seed
    learner_seed: int
    protocol: Protocol = field(default_factory=Protocol)
    relative: costs.Relative | None = None  # cost of its job, where the experiment needs it
    baseline_of: tuple[str, ...] = ()  # the learners whose compute it matches
    notes: Mapping[str, Any] = field(default_factory=dict)  # kept in the run's configuration
    part: str = ""  # of the stream, as `streams.prefix` reads it; empty: all of it

    @property
    def stream_seed(self) -> int:
        return int(self.stream_settings["seed"])

    @property
    def title(self) -> str:
        return f"{self.recipe.name}, seed {self.learner_seed}"

    @property
    def origin(self) -> str | None:
        """The stream's name for `resume`; a part of a stream has none."""
        return None if self.part else self.stream

    @property
    def stream_key(self) -> str:
        """Equal for planned runs on the same stream."""
        return repr((self.stream, self.part, sorted(self.stream_settings.items())))

    def build_stream(self) -> Stream:
        stream = catalogue.stream(self.stream, **self.stream_settings)
        return prefix(stream, self.part) if self.part else stream

    def prepared(self, out: Path) -> PlannedRun:
        """The same run with the files it needs, made in the folder `out` where they are missing."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        recipe = self.recipe
        text = f"{recipe.name}={recipe.where}"
        return {**vars(self), "recipe": (text, as_plain(recipe.config) or {})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        text, settings = state["recipe"]
        vars(self).update(state, recipe=catalogue.learner(text, **settings))


class StreamCache:
    """Streams of planned runs: each is built once, and released after the last run on it."""

    def __init__(self, planned: Iterable[PlannedRun]) -> None:
        self._uses = Counter(run.stream_key for run in planned)
        self._streams: dict[str, Stream] = {}

    def stream_of(self, run: PlannedRun) -> Stream:
        key = run.stream_key
        stream = self._streams.pop(key, None) or run.build_stream()
        self._uses[key] -= 1
        if self._uses[key] > 0:
            self._streams[key] = stream
        return stream


def plan(experiment: Experiment, out: str | Path | None = None) -> list[PlannedRun]:
    """Check every setting before anything runs; all learners of one seed see the same stream. The
    cost of a learner is determined here, once for all its seeds; in the folder `out` an earlier run
    may have stored a measured cost."""
    if experiment.seeds < 1:
        raise StreamgaugeError(f"seeds must be at least 1, not {experiment.seeds}.")
    if experiment.seeds > MAX_SEEDS:
        raise StreamgaugeError(f"seeds must be at most {MAX_SEEDS:,}, not {experiment.seeds:,}.")
    stream, path = catalogue.own_data(experiment.stream)
    experiment = replace(experiment, stream=stream)
    recipes = _recipes(experiment)
    groups = _grouped(experiment, {name: recipe for name, (_, recipe) in recipes.items()})
    stream_settings = path | groups["stream"]
    if groups["features"]:
        stream_settings["features"] = groups["features"]
    request = costs.CostRequest(
        groups["protocol"].pop("cost", None),
        experiment.speed,
        experiment.budget,
        experiment.gradient_steps,
        experiment.baselines,
    )
    protocol = configure(Protocol, groups["protocol"], "protocol")
    measure = _Measure(experiment.stream, stream_settings, out)
    timed = []
    for name, (text, recipe) in recipes.items():
        given = groups[name]
        not_settings = {"seed", "cost"} if costs.takes_cost(recipe) else {"seed"}
        settings = request.settings(recipe, given)
        settings = {k: v for k, v in settings.items() if k not in not_settings}
        timed.append(request.timed(catalogue.learner(text, **settings), given, protocol, measure))
    if experiment.baselines:
        timed += costs.baselines(timed, {name: text for name, (text, _) in recipes.items()})
    planned = []
    for seed in range(experiment.seeds):
        stream_seed = check_seed(groups["stream"].get("seed", seed), "stream.seed")
        for method in timed:
            name = method.like or method.recipe.name
            notes = dict(experiment.notes.get(method.recipe.name, {}))
            if method.relative is not None and method.relative.measured:
                notes["measured_cost"] = method.relative.as_plain()
            planned.append(
                PlannedRun(
                    method.recipe,
                    origin(experiment.stream),
                    {**stream_settings, "seed": stream_seed},
                    check_seed(groups.get(name, {}).get("seed", seed), f"{name}.seed"),
                    method.protocol,
                    method.relative,
                    method.baseline_of,
                    notes,
                )
            )
    return planned


def _recipes(experiment: Experiment) -> dict[str, tuple[str, Recipe]]:
    """Name of a learner -> its text in the experiment, and its recipe with default settings."""
    if not experiment.learners:
        raise StreamgaugeError("Name at least one learner: --learner NAME.")
    recipes: dict[str, tuple[str, Recipe]] = {}
    for text in experiment.learners:
        recipe = catalogue.learner(text)
        if recipe.name in ("stream", "protocol", "features", "learner"):
            raise StreamgaugeError(f"A learner cannot be named '{recipe.name}'; choose another.")
        if recipe.name in recipes:
            raise StreamgaugeError(
                f"There are two learners named '{recipe.name}'; name one of them:"
                f" OTHER={text.rpartition('=')[2]}"
            )
        recipes[recipe.name] = (text, recipe)
    return recipes


def origin(stream: str) -> str:
    """A stream's name, or the absolute path of its file or data: valid in any folder."""
    if stream.endswith(".py"):
        return str(Path(stream).resolve())
    return str(catalogue.own_data(stream)[1].get("path", stream))


def check_seed(seed: Any, name: str) -> int:
    number = int(coerce(seed.item() if hasattr(seed, "item") else seed, int, name))
    if not 0 <= number < 2**63:
        raise StreamgaugeError(f"{name} must lie between 0 and 2^63, not at {number}.")
    return number


class _Measure:
    """Measures the cost of learners on an experiment's stream, or takes a stored measurement."""

    def __init__(self, stream: str, settings: Mapping[str, Any], out: str | Path | None) -> None:
        self._name, self._settings = stream, settings
        self._out = None if out is None else Path(out)
        self._stream: Stream | None = None

    def __call__(self, recipe: Recipe) -> costs.Relative:
        if self._stream is None:
            self._stream = catalogue.stream(self._name, **{"seed": 0, **self._settings})
        stored = costs.stored(self._headers(), recipe, self._stream)
        return stored or costs.measured(recipe, self._stream)

    def _headers(self) -> Iterator[dict[str, Any]]:
        files = [] if self._out is None else sorted(self._out.glob("*/run.json"))
        for file in files:
            with suppress(StreamgaugeError):  # a damaged run is no reason not to make another
                yield Run(file.parent).header


def _grouped(experiment: Experiment, recipes: Mapping[str, Recipe]) -> dict[str, dict[str, Any]]:
    """Settings by owner: stream, protocol, features, or the name of a learner. `learner.X` goes to
    every learner that has X, and `er.X`, where there is no plain `er`, to every `er@PRESET`. The
    more specific setting overrides the more general one."""
    known = {
        "stream": set(catalogue.stream_settings(experiment.stream)),
        "protocol": set(setting_types(Protocol)),
        "features": set(FEATURES),
    }
    for name, recipe in recipes.items():
        known[name] = {"seed", "cost", *recipe.known_settings}
    every_setting = {f"{group}.{s}" for group, settings in known.items() for s in settings}
    for name, recipe in recipes.items():
        known[name] |= set(DROPPED.get(recipe.where, ()))  # accepted with a warning, or refused
    groups: dict[str, dict[str, Any]] = {name: {} for name in known}

    def owners(dotted: str) -> list[str]:
        group, _, setting = dotted.partition(".")
        candidates = [group]
        if group not in known:
            candidates = [n for n in recipes if group in ("learner", n.partition("@")[0])]
        return [name for name in candidates if setting in known[name]]

    def specificity(dotted: str) -> int:
        group = dotted.partition(".")[0]
        return 0 if group == "learner" else 2 if group in known else 1

    for dotted in sorted(experiment.settings, key=specificity):
        names = owners(dotted)
        for name in names:
            groups[name][dotted.partition(".")[2]] = experiment.settings[dotted]
        if not names:
            hint = nearest(dotted, every_setting)
            raise StreamgaugeError(f"There is no setting '{dotted}'; {hint}")
    return groups
