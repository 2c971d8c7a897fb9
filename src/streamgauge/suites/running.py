"""The runs that a suite's rows ask for: planned, matched with stored runs by what was configured
wherever the folder lies, and made where they are missing.

A run's identity also holds the kind of device and the hash of the code; a row asks for neither, so
parts that were run on different machines add up when their folders are brought together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.learners.behaviour import stored_code
from streamgauge.models.pretrain import pretrain
from streamgauge.record import PATH_SETTINGS, Run
from streamgauge.report.watching import Watcher
from streamgauge.running.execution import Execution, ExecutionKeywords, execution_of
from streamgauge.running.executors.dispatch import Watch, execute
from streamgauge.running.loop import Progress
from streamgauge.running.plan import PlannedRun, plan
from streamgauge.running.protocol import Protocol
from streamgauge.settings import MAX_SEEDS, RUNS, as_plain
from streamgauge.streams import Stream
from streamgauge.suites.spec import Row, Suite

# Settings that say where files lie on a machine: not part of what a row asks for. The content of
# the files has hashes of its own; of first weights a row says only that there are some.
FILE_SETTINGS = PATH_SETTINGS | {"folder", "data", "weights"}
EMBEDDING = 16  # features of the layer that the stand-in for `embedding` learns on top


@dataclass(frozen=True, eq=False)
class PlannedRow(PlannedRun):
    """One run of a row of a suite."""

    row: Row = field(kw_only=True)
    seed: int = field(kw_only=True)

    @property
    def title(self) -> str:
        return f"{self.row.title}, seed {self.seed}"

    @property
    def origin(self) -> str:
        return self.stream

    def build_stream(self) -> Stream:
        """The stream of a row; on the preparation part, that part alone."""
        stream = super().build_stream()
        if not self.part:
            return stream
        settings = {k: v for k, v in stream.settings.items() if k != "prefix"}
        name = f"{stream.name}-{self.part}"
        return replace(stream, name=name, settings={**settings, "on": self.part})

    def prepared(self, out: Path) -> PlannedRow:
        """With first weights, which `pretrain` makes of the part never scored, if the suite says
        how: one backbone for each seed."""
        row = self.row
        if not row.weights or not row.own_weights:
            return self
        stream = catalogue.stream(self.stream, **self.stream_settings)  # also where a part runs
        embedding = EMBEDDING if row.weights == "embedding" else 0
        folder = out.resolve() / "backbones"
        how = {"embedding": embedding, "seed": self.seed, **row.pretrain}
        file = pretrain(stream, out=folder, device="cpu", **how)
        config = replace(self.recipe.config, weights=str(file))
        return replace(self, recipe=replace(self.recipe, config=config))


def plan_rows(
    rows: Iterable[Row],
    seeds: Sequence[int] | None = None,
    weights: Mapping[str, str] | None = None,
) -> list[PlannedRow]:
    """The runs of rows, row by row in the order of the file, where cheap ones come first. `weights`
    are files of first weights by the name of the backbone."""
    # Where first weights lie is part of a run's configuration: the same from any folder.
    files = {name: str(Path(file).resolve()) for name, file in (weights or {}).items()}
    planned_rows = []
    joint: dict[int, list[PlannedRun]] = {}  # the runs of rows that are planned together
    for row in rows:
        row_seeds = seeds or range(row.seeds)
        file = "" if row.own_weights else files.get(row.weights, "")
        planned = joint.get(id(row.joint)) or plan(row.experiment(max(row_seeds) + 1, file))
        if row.joint is not None:
            joint[id(row.joint)] = planned
            planned = [run for run in planned if run.recipe.name == row.name]
        part = "" if row.on == "stream" else row.on
        planned_rows += [
            PlannedRow(**{**vars(planned[seed]), "part": part}, row=row, seed=seed)
            for seed in row_seeds
        ]
    return planned_rows


def parse_seeds(text: str | None) -> list[int] | None:
    """`5` is 0..4; `3-4` and `0,2` are what they say; None is what the suite says.

    >>> parse_seeds("3"), parse_seeds("3-4"), parse_seeds("0,2")
    ([0, 1, 2], [3, 4], [0, 2])
    """
    if text is None:
        return None
    try:
        if "," in text:
            seeds = [int(part) for part in text.split(",") if part.strip()]
        elif "-" in text:
            first, last = text.split("-")
            seeds = list(_few(range(int(first), int(last) + 1)))
        else:
            seeds = list(_few(range(int(text))))
    except (ValueError, OverflowError):
        seeds = []
    if not seeds or min(seeds) < 0:
        raise StreamgaugeError(f"'{text}' names no seeds: write 5 (for 0 to 4), 3-4 or 0,2.")
    return seeds


def _few(seeds: range) -> range:
    if seeds and seeds[-1] - seeds[0] >= MAX_SEEDS:
        raise StreamgaugeError(f"There are at most {MAX_SEEDS:,} seeds.")
    return seeds


def seeds_text(seeds: Sequence[int]) -> str:
    """What `parse_seeds` reads as these.

    >>> seeds_text([0, 1, 2]), seeds_text([3, 4]), seeds_text([3]), seeds_text([0, 2])
    ('3', '3-4', '3-3', '0,2')
    """
    if list(seeds) == list(range(len(seeds))):
        return str(len(seeds))
    first, last = seeds[0], seeds[-1]
    if list(seeds) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, seeds))


def gather(folders: Iterable[str | Path]) -> list[Run]:
    """All runs in these folders, however deep; a folder that is not there has none."""
    runs = {}
    for folder in map(Path, folders):
        for header in sorted(folder.rglob("run.json")):
            runs[header.parent.resolve()] = Run(header.parent)
    return list(runs.values())


def configured(planned: PlannedRow) -> dict[str, Any]:
    """What a run of this row has in its configuration."""
    settings = catalogue.full_stream_settings(planned.stream, dict(planned.stream_settings))
    if planned.stream_settings.get("path") and (opened := _opened(planned)) is not None:
        settings = dict(opened.settings)  # own data decide what 0 and "" stand for
    if planned.part:
        settings["on"] = planned.part
    recipe = _with_network(planned)
    return {
        "stream": {"name": planned.stream, "settings": _without_files(settings)},
        "learner": {
            "where": recipe.where,
            "settings": _without_files(as_plain(recipe.config)),
            "trained": bool(planned.row.weights),
        },
        "protocol": as_plain(planned.protocol),
        "seed": planned.learner_seed,
    }


def _with_network(planned: PlannedRow) -> catalogue.Recipe:
    """The learner with the network that `auto` stands for, which stored runs name; as it is where
    the data are not on this machine."""
    if getattr(planned.recipe.config, "model", "") != "auto":
        return planned.recipe
    opened = _opened(planned)
    if opened is None:
        return planned.recipe
    return planned.recipe.for_inputs(opened.input_shape)


def _opened(planned: PlannedRow) -> OpenedStream | None:
    """Facts of the stream of a row, or None where its data are not on this machine."""
    return _facts(
        planned.stream, json.dumps(dict(planned.stream_settings), sort_keys=True, default=str)
    )


class OpenedStream(NamedTuple):
    input_shape: tuple[int, ...]
    settings: dict[str, Any]


@cache
def _facts(stream: str, settings: str) -> OpenedStream | None:
    try:
        opened = catalogue.stream(stream, **json.loads(settings))
    except StreamgaugeError:
        return None
    return OpenedStream(tuple(opened.spec.input_shape), opened.describe()["settings"])


def distinct(planned: Iterable[PlannedRow]) -> list[PlannedRow]:
    """The first of those that ask for the same run, as rows of different parts may do."""
    by_config: dict[tuple[str, str], PlannedRow] = {}
    for planned_row in planned:
        key = (_as_text(configured(planned_row)), planned_row.row.weights)
        by_config.setdefault(key, planned_row)
    return list(by_config.values())


def configuration(run: Run) -> dict[str, Any]:
    """The configuration of a stored run, in the form of `configured`. A setting that the run does
    not have came later, and has its default; a remark in the row says that the code was another."""
    config = run.header["config"]
    stream, learner = config["stream"], config["learner"]
    return {
        "stream": {
            "name": stream["origin"] or stream["name"],
            "settings": _without_files(stream["settings"]),
        },
        "learner": {
            "where": learner["where"],
            "settings": _without_files({**_defaults(learner["where"]), **learner["settings"]}),
            "trained": bool(learner["settings"].get("weights")),
        },
        "protocol": {**as_plain(Protocol()), **config["protocol"]},
        "seed": config["seed"],
    }


@cache
def _defaults(where: str) -> Mapping[str, Any]:
    """None of a learner in a file: finding its runs is no reason to execute that."""
    known = where in catalogue.names("learners")
    return as_plain(catalogue.learner(where).config) if known else {}


def _without_files(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in FILE_SETTINGS}


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class StoredRuns:
    """The stored runs of a suite's rows, one per seed: complete ones, and begun ones."""

    complete: Mapping[tuple[str, str], Mapping[int, Run]]  # row -> seed -> run
    begun: Mapping[tuple[str, str], Mapping[int, Run]]

    def of(self, row: Row) -> list[Run]:
        return [run for _, run in sorted(self.complete.get(row.key, {}).items())]

    def has(self, planned: PlannedRow) -> bool:
        return planned.seed in self.complete.get(planned.row.key, {})


def find(planned: Sequence[PlannedRow], runs: Iterable[Run]) -> StoredRuns:
    """Match stored runs to planned ones. Of several for one (two machines did the same) the one
    whose code behaves as today's counts, then the first by path."""
    by_config: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: str(run.path)):
        by_config.setdefault(_as_text(configuration(run)), []).append(run)
    complete: dict[tuple[str, str], dict[int, Run]] = {}
    begun: dict[tuple[str, str], dict[int, Run]] = {}
    for planned_row in planned:
        key, seed = planned_row.row.key, planned_row.seed
        candidates = by_config.get(_as_text(configured(planned_row)), [])
        if not candidates:
            continue
        candidates = sorted(candidates, key=lambda run: not of_current_code(run))
        done = [run for run in candidates if run.done]
        if done:
            complete.setdefault(key, {})[seed] = done[0]
        else:
            begun.setdefault(key, {})[seed] = candidates[0]
    return StoredRuns(complete, begun)


def of_current_code(run: Run) -> bool:
    """Whether a learner is still here and behaves as the code that made a run."""
    learner = run.header["config"]["learner"]
    try:
        return stored_code(learner) == catalogue.current_code(learner)
    except StreamgaugeError:
        return False


def run(
    suite: Suite,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    both: bool = False,
    out: str | Path = RUNS,
    runs: Sequence[str | Path] = (),
    weights: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    expect: Callable[[Sequence[PlannedRun]], None] | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> Iterator[Run]:
    """Run what is missing and yield every run that is there in the end.

    What is complete already, in `out` or in one of the folders `runs`, comes first and is not run
    again; what was interrupted in `out` goes on. `expect` is called with the runs that are missing
    before the first begins. `execution`, or keywords with the names of its fields, says how; with
    `on="ray"` the runs are made on `cluster`.
    """
    execution = execution_of(execution, options)
    rows = suite.choose(only, both)
    check_weights(rows, weights or {})
    planned = plan_rows(rows, seeds, weights)
    stored = find(planned, gather([out, *runs]))
    yield from (run for by_seed in stored.complete.values() for run in by_seed.values())

    def announce(planned_run: PlannedRun, stream: Stream) -> Progress | None:
        number = next(n for n, row in enumerate(planned, 1) if row is planned_run)
        execution.log(f"[{number}/{len(planned)}] {planned_run.title}")
        return None if watch is None else watch(planned_run, stream)

    missing = distinct(planned_row for planned_row in planned if not stored.has(planned_row))
    if expect is not None:
        expect(missing)
    for _, finished in execute(missing, execution, out, announce):
        yield finished


def check_weights(rows: Sequence[Row], weights: Mapping[str, str]) -> None:
    """Refuse, before anything runs, a backbone that rows begin from and no file is given for."""
    named = {row.weights: row for row in reversed(rows) if row.weights and not row.own_weights}
    for name in weights:
        if named and name not in named:
            raise StreamgaugeError(f"No row here begins from '{name}'; {nearest(name, named)}")
    for name, row in named.items():
        if name not in weights:
            raise StreamgaugeError(
                f"The row '{row.title}' begins from the backbone '{name}': give its weights with "
                f"--weights {name}=FILE (docs/suites.md says which they are)."
            )
        if not Path(weights[name]).exists():
            raise StreamgaugeError(f"There is no file {weights[name]} (--weights {name}).")


def run_small(suite: Suite, seeds: int, out: Path, quiet: bool = False) -> list[Run]:
    """Every run of a suite with seeds 0 to `seeds` - 1, on one thread. These networks are too small
    for a second thread to help, and if another program keeps a core busy, two threads that wait for
    each other are fifty times slower than one."""
    with Watcher(quiet=quiet) as watcher:

        def log(text: str) -> None:
            # Of a suite without parts the watcher's line on each run is enough.
            if len(suite.parts) > 1 or not text.startswith("["):
                watcher.say(text)

        options = ExecutionKeywords(device="cpu", threads=1, log=log)
        all_seeds = parse_seeds(str(seeds))
        return list(
            run(
                suite,
                seeds=all_seeds,
                out=out,
                watch=watcher.watch,
                expect=watcher.expect,
                **options,
            )
        )
