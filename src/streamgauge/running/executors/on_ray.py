"""Runs on a cluster: a task of Ray's is one run, or a few that share a GPU side by side.

A task goes on from the last checkpoint that it finds in the run folder. So what Ray does when a
worker is lost, calling the task again elsewhere, resumes the runs that the worker had.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from streamgauge import catalogue
from streamgauge.record import Run
from streamgauge.running import runner
from streamgauge.running.executors.cluster import (
    Cluster,
    Shared,
    Store,
    connected,
    device_of,
    gpus_for,
    has_no_room,
    scatter,
)
from streamgauge.running.executors.interleaved import Begun, take_turns
from streamgauge.running.protocol import Protocol
from streamgauge.running.runner import Experiment, Said
from streamgauge.settings import as_plain

Begin = Callable[[], Begun]
Start = tuple[Path, Begin | None]
Answer = tuple[list[str], list[str]]  # names of run folders, and what there was to say
Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Elsewhere:
    """What a task must know of where it runs and where its run folders go."""

    device: str
    together: bool  # its runs take turns on the GPU
    shared: Shared
    store: str = ""

    def open(self) -> tuple[Path, Store | None]:
        """On the other machine: the folder to work in, and the store where folders travel."""
        if self.store:
            store = Store(self.store)
            return store.scratch, store
        self.shared.check()
        return self.shared.folder, None

    def complete(self, prepare: Callable[[Path, Said], Iterable[Start]]) -> Answer:
        """Called by Ray's worker: do what `prepare(folder, said)` finds to do."""
        import torch

        out, store = self.open()
        paths: list[Path] = []
        said: list[str] = []
        waiting: list[tuple[Path, Begin]] = []
        for path, begin in prepare(out, said.append):
            paths.append(path)
            begin = taken_up(path, begin, store)
            if begin is None:
                continue
            if self.together:
                waiting.append((path, begin))
            else:
                runner.to_the_end(begin)
        if waiting:
            for _ in take_turns(waiting, torch.device(self.device), len(waiting), said.append):
                pass
        for path in paths:
            put_away(path, store)  # also what another task of this machine left complete
        return [path.name for path in paths], said


def taken_up(path: Path, begin: Begin | None, store: Store | None) -> Begin | None:
    """How to begin a run where its folder may have travelled: None where it is complete."""
    if store is not None:
        store.get(path)
        begin = _storing(begin, path, store)
    return None if begin is None or _done(path) else begin


def put_away(path: Path, store: Store | None) -> None:
    """A run folder that was worked on goes where the next machine finds it."""
    if store is not None:
        store.put(path)
        shutil.rmtree(path, ignore_errors=True)


def _done(path: Path) -> bool:
    return (path / "run.json").exists() and Run(path).done


def _storing(begin: Begin | None, path: Path, store: Store) -> Begin | None:
    """The same run, its folder stored after every checkpoint."""
    if begin is None:
        return None

    def start() -> Begun:
        begun = begin()
        return begun._replace(steps=_stored_steps(begun, path, store))

    return start


def _stored_steps(begun: Begun, path: Path, store: Store) -> Iterator[None]:
    recorder: Any = begun.loop.recorder
    stored = recorder.step
    for _ in begun.steps:
        if recorder.step != stored:
            store.put(path)
            stored = recorder.step
        yield
    store.put(path)


def scatter_runs(
    work: Callable[..., Answer],
    asked: Sequence[Asked],
    how: Mapping[str, Any],
    title: Callable[[Asked], str],
    *,
    out: str | Path,
    cluster: Cluster,
    device: str,
    side_by_side: int | None,
    said: Said,
) -> Iterator[Run]:
    """Have `work(group, how, elsewhere)` called on the cluster for all that is asked, in groups of
    `side_by_side` where there are GPUs and one by one elsewhere; yields the runs as groups end, and
    says the `title` of each."""
    done = 0
    with connected(cluster) as ray, Shared(out) as shared:
        gpus = gpus_for(device, cluster, ray)
        size = side_by_side or 1 if gpus and how.get("engine") != "eager" else 1
        elsewhere = Elsewhere(device_of(gpus), size > 1, shared, cluster.store)
        groups = [asked[at : at + size] for at in range(0, len(asked), size)]
        found = ray.cluster_resources()
        said(
            f"{len(asked)} runs in {len(groups)} tasks, each with {cluster.cpus:g} CPU and "
            f"{gpus:g} GPU, on a Ray with {found.get('CPU', 0):g} CPUs and "
            f"{found.get('GPU', 0):g} GPUs."
        )
        for sentence in has_no_room(cluster, ray, gpus):
            said(sentence)
        tasks = [(group, dict(how), elsewhere) for group in groups]
        for number, (names, told) in scatter(work, tasks, cluster, ray, gpus):
            for sentence in told:
                said(sentence)
            for one, name in zip(groups[number], names, strict=True):
                if cluster.store:
                    Store(cluster.store).get(Path(out) / name)
                done += 1
                said(f"[{done}/{len(asked)}] {title(one)}")
                yield Run(Path(out) / name)


@dataclass(frozen=True)
class Errand:
    """One run of an experiment, in words that another process understands: classes of a file of
    one's own have no name there."""

    stream: str
    stream_settings: Mapping[str, Any]
    learner: str
    settings: Mapping[str, Any]
    protocol: Protocol
    seed: int
    notes: Mapping[str, Any] | None = field(default=None)


def run_all(
    experiment: Experiment,
    *,
    cluster: Cluster,
    out: str | Path = "runs",
    device: str = "auto",
    side_by_side: int | None = None,
    said: Said = print,
    **how: Any,
) -> Iterator[Run]:
    """As `runner.run_all`, on a cluster; what learners cost is measured here, before. `how` is
    checkpoint, workers, engine, precision and deterministic."""
    planned, stream_settings = runner.plan(experiment, out)
    errands = [_errand(experiment, one, stream_settings) for one in planned]
    yield from scatter_runs(
        _run_errands,
        errands,
        how,
        lambda one: f"{one.learner.partition('=')[0]}, seed {one.seed}",
        out=out,
        cluster=cluster,
        device=device,
        side_by_side=side_by_side,
        said=said,
    )


def _errand(
    experiment: Experiment, one: runner.Planned, stream_settings: Mapping[str, Any]
) -> Errand:
    measured = one.relative is not None and one.relative.measured
    return Errand(
        runner.origin(experiment.stream),
        {**stream_settings, "seed": one.stream_seed},
        f"{one.recipe.name}={one.recipe.where}",
        as_plain(one.recipe.config) or {},
        one.protocol,
        one.learner_seed,
        {"measured_cost": one.relative.as_plain()} if one.relative and measured else None,
    )


def _run_errands(errands: Sequence[Errand], how: dict[str, Any], elsewhere: Elsewhere) -> Answer:
    def prepare(out: Path, said: Said) -> Iterator[Start]:
        for one in errands:
            stream = catalogue.stream(one.stream, **one.stream_settings)
            yield runner.prepare(
                stream,
                catalogue.learner(one.learner, **one.settings),
                protocol=one.protocol,
                seed=one.seed,
                out=out,
                device=elsewhere.device,
                progress=None,
                origin=one.stream,
                notes=one.notes,
                said=said,
                **how,
            )

    return elsewhere.complete(prepare)
