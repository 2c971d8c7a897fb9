"""Trials on a cluster: a Ray task is one trial.

The study stays in the process that runs `tune`: it proposes, stores, and decides what to give up.
Ray places trials, and calls one again elsewhere when its worker is lost; it then goes on from the
last checkpoint in its run folder. Between the two is a queue, a Ray actor: a trial reports its
value after a part there and waits for the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgauge.errors import StreamgaugeError
from streamgauge.running.active_run import BUSY_WAIT
from streamgauge.running.execution import Execution
from streamgauge.running.executors import cluster as clusters
from streamgauge.running.executors.on_ray import Workspace, upload
from streamgauge.tuning.trial import Report, Result, Task, TrialStanding, attempt

if TYPE_CHECKING:
    from streamgauge.tuning.study import Study


def drive(work: Study, pool: RayPool) -> None:
    """Make trials, as many at a time as there is room for; the next is asked for when one ends. A
    trial that cannot be made does not keep others that are under way from their end."""
    going: set[int] = set()
    twins: dict[int, int] = {}  # wait for another with the same values
    problems: list[str] = []
    numbers = itertools.count()
    while True:
        while not problems and len(going) + len(twins) < pool.room():
            number = next(numbers)
            under_way = work.ask(number)
            if under_way is None:
                break
            if under_way.task is not None:
                pool.submit(number, under_way.task)
                going.add(number)
            elif under_way.twin is None:
                work.end(number)
            else:
                twins[number] = under_way.twin
        if not going:
            if not problems and work.waits():
                time.sleep(BUSY_WAIT)
                continue
            break
        number, message = pool.receive()
        if isinstance(message, TrialStanding):
            # A worker that was believed lost, and whose trial another has ended, is told to stop.
            give_up = number not in going or work.report(number, message.part, message.value)
            pool.answer(number, message.part, give_up)
            continue
        going.remove(number)
        if isinstance(message, StreamgaugeError):
            problems.append(str(message))
            continue
        try:
            work.end(number, message)
        except StreamgaugeError as problem:
            problems.append(str(problem))
        for other in [n for n, twin in twins.items() if twin == number]:
            del twins[other]
            if not problems:
                work.end(other)
    if problems:
        raise StreamgaugeError(" ".join(dict.fromkeys(problems)))


class TrialQueue:
    """Reports of trials that wait for an answer. It holds nothing that trials would not report
    again, so Ray may restart it anywhere."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[tuple[int, TrialStanding]] = asyncio.Queue()
        self.waiting: dict[tuple[int, int], asyncio.Future[bool]] = {}

    async def report(self, number: int, part: int, value: float) -> bool:
        """Called by a trial; returns whether to give it up."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting[number, part] = answer
        await self.reports.put((number, TrialStanding(part, value)))
        return await answer

    async def receive(self) -> tuple[int, TrialStanding]:
        return await self.reports.get()

    async def answer(self, number: int, part: int, give_up: bool) -> None:
        waiting = self.waiting.pop((number, part), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(give_up)


class RayPool:
    """Ray's workers on other machines, which make trials, many at the same time."""

    def __init__(
        self,
        cluster: clusters.Cluster,
        ray: Any,
        gpus: float,
        shared: clusters.Shared,
        calls: clusters.Calls,
    ) -> None:
        self.device = clusters.device_of(gpus)
        self._cluster, self._ray, self._gpus, self._calls = cluster, ray, gpus, calls
        self._shared = shared
        self._workspace = Workspace(self.device, shared, cluster.store)
        actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=10_000)
        self._queue = actor(TrialQueue).remote()
        self._next = self._queue.receive.remote()

    def room(self) -> int:
        """How many trials can be under way now."""
        return clusters.room(self._cluster, self._ray, self._gpus)

    def submit(self, number: int, task: Task) -> None:
        self._calls.call(number, number, task, self._queue, self._workspace)

    def receive(self) -> tuple[int, TrialStanding | Result | StreamgaugeError]:
        """Wait for a trial's value after a part, its result, or why it cannot be made."""
        first, value = self._calls.first(self._next)
        if first is self._next:
            number, standing = value()
            self._next = self._queue.receive.remote()
            return number, standing
        try:
            result: Result = value()
        except StreamgaugeError as problem:
            return first, problem
        if self._cluster.store and result.run:
            clusters.Store(self._cluster.store).get(self._shared.folder / result.run)
        return first, result

    def answer(self, number: int, part: int, give_up: bool) -> None:
        """To a trial that reported its value after a part."""
        self._queue.answer.remote(number, part, give_up)

    def close(self) -> None:
        with suppress(Exception):  # Ray may be gone itself
            self._ray.cancel(self._next)
            self._ray.wait([self._next], timeout=5)
            self._ray.kill(self._queue)


@contextmanager
def ray_pool(execution: Execution, out: Path) -> Iterator[RayPool]:
    """Workers of the execution's cluster, for as long as this lasts."""
    cluster = execution.cluster or clusters.Cluster()
    with clusters.connected(cluster) as ray, clusters.Shared(out) as shared:
        gpus = clusters.gpus_for(execution.device, cluster, ray)
        with clusters.Calls(remote_trial, cluster, ray, gpus) as calls:
            pool = RayPool(cluster, ray, gpus, shared, calls)
            execution.log(
                f"Up to {pool.room()} trials at the same time, each with {cluster.cpus:g} CPU and "
                f"{gpus:g} GPU."
            )
            for sentence in clusters.has_no_room(cluster, ray, gpus):
                execution.log(sentence)
            with closing(pool):
                yield pool


def remote_trial(number: int, task: Task, trial_queue: Any, workspace: Workspace) -> Result:
    """Called by a Ray worker."""
    import ray

    def report(part: int, value: float) -> bool:
        return bool(ray.get(trial_queue.report.remote(number, part, value)))

    return attempt_in(workspace, task, report)


def attempt_in(workspace: Workspace, task: Task, report: Report) -> Result:
    """Make a trial on another machine."""
    out, store = workspace.open()
    execution = replace(task.execution, device=workspace.device)
    result = attempt(replace(task, out=str(out), execution=execution), report, store=store)
    if result.run:
        upload(out / result.run, store)
    return result
