"""What a loop will read next, known before the model runs.

The stream's order is known; when a batch is trained on, the clock says; what a memory that does not
look at the model will recall, a copy of it says, which plays the coming steps in advance. So images
can be decoded before they are needed. Nothing here decides a value: what is foreseen wrongly, or
not at all (what GSS keeps), is read when it is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge.learners.base import Batch
from streamgauge.streams.prefetch import Ahead, workers_for

if TYPE_CHECKING:
    from streamgauge.running.loop import Loop
    from streamgauge.streams import Stream
    from streamgauge.streams.source import IntArray

Progress = Callable[["Loop"], None]
CHECK = 64  # recalls after which it is seen whether they were foreseen


@contextmanager
def reading_ahead(stream: Stream, workers: int | None) -> Iterator[Stream]:
    """The same stream, read by worker processes ahead of time; without workers, the stream."""
    count = workers_for(stream.source, workers)
    if count == 0:
        yield stream
        return
    source = Ahead(stream.source, count)
    try:
        yield replace(stream, source=source)
    finally:
        source.close()


def announcing(loop: Loop, progress: Progress | None) -> Progress | None:
    """A progress function that also announces what comes next, where somebody reads ahead."""
    if not isinstance(loop.stream.source, Ahead):
        return progress
    foresight = Foresight(loop, loop.stream.source)
    foresight.announce()

    def after_a_step(loop: Loop) -> None:
        foresight.announce()
        if progress is not None:
            progress(loop)

    return after_a_step


class Foresight:
    """Plays the coming steps of a loop, without its model, and announces what they read."""

    def __init__(self, loop: Loop, source: Ahead) -> None:
        self.loop, self.source = loop, source
        self.stream, self.protocol = loop.stream, loop.protocol
        self.step = loop.step  # the next to be announced
        self.clock = copy.deepcopy(loop.clock)
        self.jobs = [(job.kind, job.step) for job in loop._jobs]
        self.unlabelled = [job.step for job in loop._unlabelled]
        self.backlog = [job.step for job in loop._backlog]
        self.newest = -1
        self.knows_training = not (self.protocol.preempt or self.protocol.costs)
        self.double = loop.adapter.prefetch_copy() if self.knows_training else None
        self._recalls = self._asked = 0

    def announce(self) -> None:
        while self.source.hungry and self.step < len(self.stream):
            if self.step >= self.loop.step:
                for index in self.reads():
                    self.source.announce(index)
            else:  # the loop was faster: follow it
                for _ in self.reads():
                    pass
            self.step += 1
        self._doubt()

    def reads(self) -> Iterator[IntArray]:
        """Play one step: what it reads, in order."""
        step, stream = self.step, self.stream
        sees = self.loop._sees_input
        if self.protocol.predict and sees:
            yield stream.index(step)
            self.newest = step
            for _, target in self.loop.lookahead.due(step):
                yield stream.index(target)
        if not self.knows_training:
            return
        self.unlabelled.append(step)
        if len(self.unlabelled) > self.protocol.label_delay:
            yield from self._labels_arrive(self.unlabelled.pop(0))
        yield from self._work(self.clock.finished(step + 1))

    def _labels_arrive(self, job: int) -> Iterator[IntArray]:
        protocol = self.protocol
        if protocol.remainder != "train" and self.stream.is_remainder(job):
            if protocol.remainder == "store":
                yield from self._store(job)
        elif protocol.busy == "queue":
            self.backlog.append(job)
            while self.backlog and self.clock.free_within(self.step):
                yield from self._train(self.backlog.pop(0))
        elif self.clock.free_within(self.step):
            yield from self._train(job)
        elif protocol.busy == "store":
            yield from self._store(job)

    def _store(self, job: int) -> Iterator[IntArray]:
        self.jobs.append(("store", job))
        yield from self._work(0)

    def _train(self, job: int) -> Iterator[IntArray]:
        yield from self._work(self.clock.finished(self.step + 1))
        self.clock.begin(self.step, self.loop._costs["learn"])
        self.jobs.append(("learn", job))

    def _work(self, finished: int) -> Iterator[IntArray]:
        while self.jobs and (finished > 0 or self.jobs[0][0] != "learn"):
            kind, step = self.jobs.pop(0)
            if kind == "boundary":
                continue
            index = self.stream.index(step)
            if step != self.newest and self.loop._sees_input:
                yield index
            finished -= kind == "learn"
            if self.double is None:
                continue
            label = self.stream.source.label[index].astype(np.int64, copy=False)
            if kind == "store":
                self.double.memory.add(index, label)
                continue
            nothing: Any = None
            batch = Batch(nothing, nothing, index.astype(np.int64, copy=False), label)
            for recalled in self.double.upcoming_reads(batch):
                if len(recalled):
                    self._recalls += 1
                    yield recalled

    def _doubt(self) -> None:
        """Recalls that keep coming out otherwise than foreseen are not worth decoding."""
        if self._recalls < CHECK:
            return
        if self.source.given_up - self._asked > self._recalls // 2:
            self.double = None
        self._recalls, self._asked = 0, self.source.given_up
