"""Runs on a cluster: a Ray task is one run, or a few that share a GPU.

A task goes on from the last checkpoint that it finds in the run folder. So when Ray loses a worker
and calls the task again elsewhere, the runs of that worker resume.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamgauge.record import Run
from streamgauge.running.execution import Execution
from streamgauge.running.executors import cluster as clusters
from streamgauge.running.plan import PlannedRun


@dataclass(frozen=True)
class Workspace:
    """The device of a Ray task, and where its run folders go."""

    device: str
    shared: clusters.Shared
    store: str = ""  # URL

    def open(self) -> tuple[Path, clusters.Store | None]:
        """On the other machine: the folder to work in, and the store that folders go through."""
        if self.store:
            store = clusters.Store(self.store)
            return store.scratch, store
        self.shared.check()
        return self.shared.folder, None


@dataclass(frozen=True)
class RemoteJob:
    """The planned runs of one Ray task."""

    planned: Sequence[PlannedRun]
    execution: Execution
    workspace: Workspace

    def execute(self) -> tuple[list[str], list[str]]:
        """Called by a Ray worker; returns the names of the run folders, and the log's sentences."""
        from streamgauge.running.executors.dispatch import execute

        out, store = self.workspace.open()
        sentences: list[str] = []
        execution = replace(
            self.execution, device=self.workspace.device, log=sentences.append, cluster=None
        )
        runs = dict(execute(self.planned, execution, out, store=store))
        for run in runs.values():
            upload(run.path, store)  # complete ones too: another task may have left them here
        return [runs[planned_run].path.name for planned_run in self.planned], sentences


def upload(path: Path, store: clusters.Store | None) -> None:
    """Move a run folder to the store, where there is one."""
    if store is not None:
        store.put(path)
        shutil.rmtree(path, ignore_errors=True)


def execute(
    planned: Sequence[PlannedRun], execution: Execution, out: str | Path
) -> Iterator[tuple[PlannedRun, Run]]:
    """Do what is missing of the planned runs on the execution's cluster; yields runs as tasks end.
    A task takes `side_by_side` runs on a GPU, and one elsewhere."""
    cluster, log = execution.cluster, execution.log
    if cluster is None or not planned:
        return
    with clusters.connected(cluster) as ray, clusters.Shared(out) as shared:
        if not cluster.store:  # made once, not by every task at the same time
            for planned_run in planned:
                planned_run.prepared(shared.folder)
        gpus = clusters.gpus_for(execution.device, cluster, ray)
        size = execution.side_by_side or 1 if gpus and execution.engine != "eager" else 1
        workspace = Workspace(clusters.device_of(gpus), shared, cluster.store)
        groups = [planned[start : start + size] for start in range(0, len(planned), size)]
        resources = ray.cluster_resources()
        log(
            f"{len(planned)} runs in {len(groups)} tasks, each with {cluster.cpus:g} CPU and "
            f"{gpus:g} GPU, on a Ray with {resources.get('CPU', 0):g} CPUs and "
            f"{resources.get('GPU', 0):g} GPUs."
        )
        for sentence in clusters.has_no_room(cluster, ray, gpus):
            log(sentence)
        remote = replace(execution, cluster=None, side_by_side=size, log=print)
        tasks = [(RemoteJob(group, remote, workspace),) for group in groups]
        done = 0
        for number, (names, sentences) in clusters.scatter(
            RemoteJob.execute, tasks, cluster, ray, gpus
        ):
            for sentence in sentences:
                log(sentence)
            for planned_run, name in zip(groups[number], names, strict=True):
                if cluster.store:
                    clusters.Store(cluster.store).get(Path(out) / name)
                done += 1
                log(f"[{done}/{len(planned)}] {planned_run.title}")
                yield planned_run, Run(Path(out) / name)
