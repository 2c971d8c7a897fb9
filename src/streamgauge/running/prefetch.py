"""Prefetching: announces what a loop will read next, so that images are decoded before they are
needed.

A copy of the loop's schedule says what is answered and trained when; a copy of a memory that does
not depend on the model says what is recalled. No value depends on this: what is predicted wrongly
or not at all (what GSS keeps) is read when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from streamgauge.learners.adapter import PrefetchCopy
from streamgauge.learners.base import Batch
from streamgauge.running.loop import Loop, Progress
from streamgauge.running.schedule import Event
from streamgauge.streams import Stream
from streamgauge.streams.prefetch import PrefetchSource, workers_for
from streamgauge.streams.source import IntArray

CHECK = 64  # recalls after which their predictions are checked


@contextmanager
def prefetching(stream: Stream, workers: int | None) -> Iterator[Stream]:
    """The same stream, read ahead of time by worker processes; without workers, the stream."""
    count = workers_for(stream.source, workers)
    if count == 0:
        yield stream
        return
    source = PrefetchSource(stream.source, count)
    try:
        yield replace(stream, source=source)
    finally:
        source.close()


def with_prefetch(loop: Loop, progress: Progress | None) -> Progress | None:
    """A progress callback that also announces the next reads, if the stream is prefetched."""
    if not isinstance(loop.stream.source, PrefetchSource):
        return progress
    plan = PrefetchPlan(loop, loop.stream.source)
    plan.announce()

    def after_step(loop: Loop) -> None:
        plan.announce()
        if progress is not None:
            progress(loop)

    return after_step


class PrefetchPlan:
    """Plays the coming steps of a loop without its model, and announces what they read."""

    def __init__(self, loop: Loop, source: PrefetchSource) -> None:
        self.loop, self.source, self.stream = loop, source, loop.stream
        self.schedule = loop.schedule.copy()
        self.newest = -1  # the step that the loop still has in memory
        self.kinds = {"answer"}  # events that read inputs
        self.learner: PrefetchCopy | None = None  # the copy that predicts recalls
        if self.schedule.predictable:
            self.kinds |= {"learn", *loop.shown_untrained}
            self.learner = loop.adapter.prefetch_copy()
        self._recalls = self._misses = 0

    def announce(self) -> None:
        """Announce reads until the workers have enough to do."""
        while self.source.needs_more and self.schedule.step < len(self.stream):
            due = self.schedule.step >= self.loop.step  # otherwise the loop was faster
            for index in self.step_reads():
                if due:
                    self.source.announce(index)
        self._check()

    def step_reads(self) -> Iterator[IntArray]:
        """Play one step: the addresses that it reads, in order."""
        for event in self.schedule.play_step():
            if event.kind in self.kinds:
                yield from self._reads(event)

    def _reads(self, event: Event) -> Iterator[IntArray]:
        index = self.stream.index(event.step)
        if self.loop.sees_input and event.step != self.newest:
            yield index
        if event.kind == "answer":
            self.newest = event.step if event.shift == 0 else self.newest
        elif self.learner is not None and event.kind != "skip":
            yield from self._recall(self.learner, event, index)

    def _recall(self, learner: PrefetchCopy, event: Event, index: IntArray) -> Iterator[IntArray]:
        label = self.stream.source.label[index].astype(np.int64, copy=False)
        if event.kind == "store":
            learner.memory.add(index, label)
            return
        no_inputs: Any = None
        batch = Batch(no_inputs, no_inputs, index.astype(np.int64, copy=False), label)
        for recalled in learner.upcoming_reads(batch):
            if len(recalled):
                self._recalls += 1
                yield recalled

    def _check(self) -> None:
        """Stop predicting recalls if most of them turn out different."""
        if self._recalls < CHECK:
            return
        if self.source.unused - self._misses > self._recalls // 2:
            self.learner = None
        self._recalls, self._misses = 0, self.source.unused
