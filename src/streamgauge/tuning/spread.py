"""Trials on a cluster: a task of Ray's is one trial.

The study stays with the process that asks: it proposes, stores, and decides what to give up. Ray
places trials, and calls one again elsewhere when its worker is lost; it then goes on from the last
checkpoint in its run folder. Between the two stands a desk, an actor of Ray's: a trial says there
how it stands and waits for the answer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamgauge.errors import StreamgaugeError
from streamgauge.running.executors.cluster import (
    Calls,
    Cluster,
    Shared,
    Store,
    connected,
    device_of,
    gpus_for,
    has_no_room,
    room,
)
from streamgauge.running.executors.on_ray import Elsewhere, put_away, taken_up
from streamgauge.tuning.trial import Report, Result, Said, Standing, Task, attempt

if TYPE_CHECKING:
    from streamgauge.tuning.study import Study


class Crew(Protocol):
    """Those who make trials somewhere else, many at the same time."""

    device: str

    def room(self) -> int:
        """How many trials they can have under way now."""

    def give(self, number: int, task: Task) -> None:
        """Have a trial made."""

    def heard(self) -> tuple[int, Standing | Result | StreamgaugeError]:
        """Wait for the next that a trial says: how it stands after a part, what came of it, or why
        it cannot be made."""

    def answer(self, number: int, part: int, give_up: bool) -> None:
        """To one that said how it stands."""


def drive(work: Study, crew: Crew) -> None:
    """Trials as many at a time as there is room for; the next is asked for when one ends. What a
    trial cannot be made for keeps no other that is under way from its end."""
    going: set[int] = set()
    twins: dict[int, int] = {}  # wait for another with the same values
    problems: list[str] = []
    numbers = itertools.count()
    while True:
        while not problems and len(going) + len(twins) < crew.room():
            number = next(numbers)
            one = work.ask(number)
            if one is None:
                break
            if one.task is not None:
                crew.give(number, one.task)
                going.add(number)
            elif one.twin is None:
                work.end(number)
            else:
                twins[number] = one.twin
        if not going:
            break
        number, said = crew.heard()
        if isinstance(said, Standing):
            # One that was believed lost, and whose trial another has ended, is told to stop.
            give_up = number not in going or work.report(number, said.part, said.value)
            crew.answer(number, said.part, give_up)
            continue
        going.remove(number)
        if isinstance(said, StreamgaugeError):
            problems.append(str(said))
            continue
        try:
            work.end(number, said)
        except StreamgaugeError as problem:
            problems.append(str(problem))
        for other in [n for n, twin in twins.items() if twin == number]:
            del twins[other]
            if not problems:
                work.end(other)
    if problems:
        raise StreamgaugeError(" ".join(dict.fromkeys(problems)))


class Desk:
    """Where trials say how they stand. It holds nothing that its callers would not say again, so
    Ray may begin it anew wherever it likes."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[int, Standing]] = asyncio.Queue()
        self.waiting: dict[tuple[int, int], asyncio.Future[bool]] = {}

    async def report(self, number: int, part: int, value: float) -> bool:
        """Of a trial; answers whether to give it up."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting[number, part] = answer
        await self.said.put((number, Standing(part, value)))
        return await answer

    async def heard(self) -> tuple[int, Standing]:
        return await self.said.get()

    async def answer(self, number: int, part: int, give_up: bool) -> None:
        waiting = self.waiting.pop((number, part), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(give_up)


class OnRay:
    """A crew of Ray's workers."""

    def __init__(
        self, cluster: Cluster, ray: Any, gpus: float, shared: Shared, calls: Calls
    ) -> None:
        self.device = device_of(gpus)
        self._cluster, self._ray, self._gpus, self._calls = cluster, ray, gpus, calls
        self._shared = shared
        self._elsewhere = Elsewhere(self.device, False, shared, cluster.store)
        desk = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=10_000)
        self._desk = desk(Desk).remote()
        self._next = self._desk.heard.remote()

    def room(self) -> int:
        return room(self._cluster, self._ray, self._gpus)

    def give(self, number: int, task: Task) -> None:
        self._calls.call(number, number, task, self._desk, self._elsewhere)

    def heard(self) -> tuple[int, Standing | Result | StreamgaugeError]:
        first, said = self._calls.first(self._next)
        if first is self._next:
            number, standing = said()
            self._next = self._desk.heard.remote()
            return number, standing
        try:
            result: Result = said()
        except StreamgaugeError as problem:
            return first, problem
        if self._cluster.store and result.run:
            Store(self._cluster.store).get(self._shared.folder / result.run)
        return first, result

    def answer(self, number: int, part: int, give_up: bool) -> None:
        self._desk.answer.remote(number, part, give_up)

    def close(self) -> None:
        with suppress(Exception):  # Ray may be gone itself
            self._ray.cancel(self._next)
            self._ray.wait([self._next], timeout=5)
            self._ray.kill(self._desk)


@contextmanager
def crew_on(cluster: Cluster, device: str, out: Path, said: Said) -> Iterator[OnRay]:
    """Workers of a cluster, for as long as this lasts."""
    with connected(cluster) as ray, Shared(out) as shared:
        gpus = gpus_for(device, cluster, ray)
        with Calls(make_there, cluster, ray, gpus) as calls:
            crew = OnRay(cluster, ray, gpus, shared, calls)
            said(
                f"Up to {crew.room()} trials at the same time, each with {cluster.cpus:g} CPU and "
                f"{gpus:g} GPU."
            )
            for sentence in has_no_room(cluster, ray, gpus):
                said(sentence)
            with closing(crew):
                yield crew


def make_there(number: int, task: Task, desk: Any, elsewhere: Elsewhere) -> Result:
    """A task of Ray's."""
    import ray

    def report(part: int, value: float) -> bool:
        return bool(ray.get(desk.report.remote(number, part, value)))

    return make(task, report, elsewhere)


def make(task: Task, report: Report, elsewhere: Elsewhere) -> Result:
    """A trial, on another machine."""
    out, store = elsewhere.open()
    task = replace(task, out=str(out), device=elsewhere.device)
    result = attempt(task, report, take_up=lambda path, begin: taken_up(path, begin, store))
    if result.run:
        put_away(out / result.run, store)
    return result
