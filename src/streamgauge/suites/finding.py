"""Which stored runs belong to which row: by what was configured, wherever the folder lies.

A run's identity also holds the kind of device and the hash of the code; a row asks for neither, so
parts that were run on different machines add up when their folders are brought together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.behaviour import stored_code
from streamgauge.record import Run
from streamgauge.running import runner
from streamgauge.running.protocol import Protocol
from streamgauge.settings import as_plain
from streamgauge.streams import Stream
from streamgauge.suites.spec import Row

# Where files lie on a machine: not what a row asks for. What is in them has hashes of its own;
# of first weights a row says only that there are some.
PLACES = frozenset({"root", "folder", "path", "data", "cache", "weights"})


class Resolved(NamedTuple):
    """All settings of one run, checked."""

    planned: runner.Planned
    stream: dict[str, Any]
    protocol: Protocol


def build_stream(row: Row, settings: Mapping[str, Any]) -> Stream:
    """The stream of a row; on the preparation part, that part alone, in its order, as a stream."""
    stream = catalogue.stream(row.stream, **settings)
    if row.on == "stream":
        return stream
    count = len(stream.preparation)
    if count == 0:
        raise StreamgaugeError(f"The stream '{row.stream}' has no preparation part to run on.")
    starts = np.append(np.arange(0, count, stream.size), count)
    return replace(
        stream,
        name=f"{stream.name}-{row.on}",
        order=stream.preparation,
        starts=starts,
        task=None,
        class_task=None,
        albums=False,
        splits={},
        preparation=stream.preparation[:0],
        settings={**stream.settings, "on": row.on},
    )


@dataclass(frozen=True)
class Job:
    """One run of a row; what a worker is handed."""

    row: Row
    seed: int

    def resolve(self, weights: str = "") -> Resolved:
        planned, of_stream = runner.plan(self.row.experiment(self.seed + 1, weights))
        if self.row.joint is not None:
            planned = [each for each in planned if each.recipe.name == self.row.name]
        one = planned[self.seed]
        return Resolved(one, {**of_stream, "seed": one.stream_seed}, one.protocol)


def jobs(rows: Iterable[Row], seeds: Sequence[int] | None = None) -> list[Job]:
    """Row by row, in the order of the file, where cheap ones come first."""
    return [Job(row, seed) for row in rows for seed in (seeds or range(row.seeds))]


def parse_seeds(text: str | None) -> list[int] | None:
    """`5` is 0..4; `3-4` and `0,2` are what they say; None is what the suite says.

    >>> parse_seeds("3"), parse_seeds("3-4"), parse_seeds("0,2")
    ([0, 1, 2], [3, 4], [0, 2])
    """
    if text is None:
        return None
    try:
        if "," in text:
            found = [int(part) for part in text.split(",") if part.strip()]
        elif "-" in text:
            first, last = text.split("-")
            found = list(range(int(first), int(last) + 1))
        else:
            found = list(range(int(text)))
    except ValueError:
        found = []
    if not found or min(found) < 0:
        raise StreamgaugeError(f"'{text}' names no seeds: write 5 (for 0 to 4), 3-4 or 0,2.")
    return found


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
    found = {}
    for folder in map(Path, folders):
        for header in sorted(folder.rglob("run.json")):
            found[header.parent.resolve()] = Run(header.parent)
    return list(found.values())


def wanted(job: Job) -> dict[str, Any]:
    """What a run of this job has in its configuration."""
    planned, of_stream, protocol = job.resolve()
    settings = catalogue.full_stream_settings(job.row.stream, of_stream)
    if job.row.on != "stream":
        settings["on"] = job.row.on
    learner = planned.recipe
    return {
        "stream": {"name": job.row.stream, "settings": _without_places(settings)},
        "learner": {
            "where": learner.where,
            "settings": _without_places(as_plain(learner.config)),
            "trained": bool(job.row.weights),
        },
        "protocol": as_plain(protocol),
        "seed": job.seed,
    }


def distinct(some: Iterable[Job]) -> list[Job]:
    """The first of those that ask for the same run, as rows of different parts may do."""
    found: dict[tuple[str, str], Job] = {}
    for job in some:
        found.setdefault((_as_text(wanted(job)), job.row.weights), job)
    return list(found.values())


def as_wanted(run: Run) -> dict[str, Any]:
    """The same of a stored run, in the same form. A setting that the run knows nothing of came
    later, and has its default; that the code is another is said beside the row."""
    config = run.header["config"]
    stream, learner = config["stream"], config["learner"]
    return {
        "stream": {
            "name": stream["origin"] or stream["name"],
            "settings": _without_places(stream["settings"]),
        },
        "learner": {
            "where": learner["where"],
            "settings": _without_places({**_defaults(learner["where"]), **learner["settings"]}),
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


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in PLACES}


def fits(run: Run, job: Job) -> bool:
    """Whether a run is what a job asks for."""
    return _as_text(as_wanted(run)) == _as_text(wanted(job))


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class Found:
    """The runs of a suite's jobs: complete ones, one a seed, and what is begun."""

    complete: Mapping[tuple[str, str], Mapping[int, Run]]  # row -> seed -> run
    begun: Mapping[tuple[str, str], Mapping[int, Run]]

    def of(self, row: Row) -> list[Run]:
        return [run for _, run in sorted(self.complete.get(row.key, {}).items())]


def find(wanted_jobs: Sequence[Job], runs: Iterable[Run]) -> Found:
    """Sort runs to jobs. Of several for one job (two machines did the same) the one whose code
    behaves as today's counts, then the first by path."""
    by_config: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda one: str(one.path)):
        by_config.setdefault(_as_text(as_wanted(run)), []).append(run)
    complete: dict[tuple[str, str], dict[int, Run]] = {}
    begun: dict[tuple[str, str], dict[int, Run]] = {}
    for job in wanted_jobs:
        candidates = by_config.get(_as_text(wanted(job)), [])
        if not candidates:
            continue
        candidates = sorted(candidates, key=lambda run: not of_current_code(run))
        done = [run for run in candidates if run.done]
        if done:
            complete.setdefault(job.row.key, {})[job.seed] = done[0]
        else:
            begun.setdefault(job.row.key, {})[job.seed] = candidates[0]
    return Found(complete, begun)


def of_current_code(run: Run) -> bool:
    """Whether the learner's code now behaves as the code that made a run; what is no longer to be
    found does not."""
    learner = run.header["config"]["learner"]
    try:
        return stored_code(learner) == catalogue.current_code(learner)
    except StreamgaugeError:
        return False
