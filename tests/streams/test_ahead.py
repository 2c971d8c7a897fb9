"""Reading ahead: what was announced is decoded early, and no value depends on it."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.running.prefetch import PrefetchPlan, prefetching
from streamgauge.streams.images.image_source import ImageSource
from streamgauge.streams.prefetch import PrefetchSource, decodes, workers_for
from streamgauge.streams.stream import Arrangement, Stream, arrange

Image = pytest.importorskip("PIL.Image")


def photos(count: int = 120, side: int = 12, classes: int = 4) -> ImageSource:
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, count)
    files = []
    for number in range(count):
        file = io.BytesIO()
        pixels = rng.integers(0, 60, (side, side, 3)) + 45 * label[number]
        Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG")
        files.append(file.getvalue())
    return ImageSource(files, label, size=8, classes=classes)


def stream_of(source: Any, **settings: Any) -> Stream:
    return arrange(source, Arrangement(batch=5, held_out=0.1, **settings), name="photos")


class Counting:
    """A source that says which samples were read in this process."""

    def __init__(self, source: ImageSource) -> None:
        self.source, self.here = source, 0
        self.process = os.getpid()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: Any) -> Any:
        if os.getpid() == self.process:
            self.here += len(index)
        return self.source.read(index)


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_read_is_what_the_source_gives(workers: int) -> None:
    source = photos()
    ahead = PrefetchSource(source, workers)
    rng = np.random.default_rng(1)
    coming = [rng.integers(0, len(source), rng.integers(1, 40)) for _ in range(60)]
    told = 0
    try:
        for number, index in enumerate(coming):
            while told < len(coming) and (ahead.needs_more or told <= number):
                if told % 5:  # every fifth is a surprise
                    ahead.announce(coming[told])
                told += 1
            np.testing.assert_array_equal(ahead.read(index), source.read(index))
        assert ahead.hits == 48
        assert ahead.misses == 12
        assert ahead.unused == 0
    finally:
        ahead.close()


def test_a_read_larger_than_all_of_the_room_and_wrong_announcements() -> None:
    source = photos()
    ahead = PrefetchSource(source, 2, memory=1)  # the least there can be: four pieces
    everything = np.arange(120)
    try:
        ahead.announce(np.array([3, 4]))  # never asked for
        ahead.announce(everything)
        ahead.announce(np.array([9]))
        np.testing.assert_array_equal(ahead.read(everything), source.read(everything))
        assert ahead.unused == 1
        np.testing.assert_array_equal(ahead.read(np.array([9])), source.read(np.array([9])))
        np.testing.assert_array_equal(ahead.read(everything[::-1]), source.read(everything[::-1]))
        for _ in range(50):  # nothing of the room is lost by what was given up
            ahead.announce(np.array([1, 2]))
            ahead.announce(np.array([5]))
            assert ahead.read(np.array([5])).shape == (1, 3, 8, 8)
        while any(ahead._sent.values()):
            ahead._receive(None)
        assert (len(ahead._free), len(ahead._spare)) == (4, 4)
    finally:
        ahead.close()


def test_workers_that_are_killed_cost_time_only() -> None:
    source = photos()
    ahead = PrefetchSource(source, 2)
    try:
        for start in range(0, 60, 10):
            ahead.announce(np.arange(start, start + 10))
        for process in ahead._workers.processes:
            os.kill(process.pid, signal.SIGKILL)
        for start in range(0, 60, 10):
            index = np.arange(start, start + 10)
            np.testing.assert_array_equal(ahead.read(index), source.read(index))
    finally:
        ahead.close()


def test_a_bad_image_is_an_error_where_it_is_read() -> None:
    source = photos()
    source.items[7] = b"no image"  # type: ignore[index]
    ahead = PrefetchSource(source, 1)
    try:
        ahead.announce(np.arange(10))
        with pytest.raises(StreamgaugeError, match="sample 7"):
            ahead.read(np.arange(10))
    finally:
        ahead.close()


def test_workers_by_default_only_where_images_are_decoded() -> None:
    arrays = sg.stream("blobs").source
    assert not decodes(arrays)
    assert workers_for(arrays, None) == 0
    assert workers_for(photos(5), None) >= 1
    assert workers_for(photos(5), 0) == 0
    with pytest.raises(StreamgaugeError, match="0 or more"):
        workers_for(arrays, -1)


@pytest.mark.parametrize(
    ("learner", "protocol"),
    [
        (sg.learner("er", model="linear", passes=2, memory=30), {}),
        (sg.learner("er", model="linear", policy="class_balanced", memory=9), {"label_delay": 3}),
        (sg.learner("er", model="linear", policy="fifo", memory=20), {"cost": "5/2"}),
        (sg.learner("er", model="linear"), {"cost": "2", "busy": "queue", "shifts": (7,)}),
        (sg.learner("er", model="linear", wait=True), {"cost": "3", "busy": "store"}),
        (sg.learner("er", model="linear"), {"remainder": "store", "predict": False}),
        (sg.learner("derpp", model="linear", memory=30), {}),
        (sg.learner("er_ace", model="linear", memory=30), {}),
        (sg.learner("replay_only", model="linear", sampler="mixed", passes=2), {}),
        (sg.learner("derpp", model="linear", memory=30, passes=2, as_published=True), {}),
        (sg.learner("er_ace", model="linear", memory=30, passes=2, as_published=True), {}),
        (sg.learner("mir", model="linear", memory=30, candidates=15), {}),
        (sg.learner("mir", model="linear", memory=30, as_published=True, passes=2), {}),
        (sg.learner("gss", model="linear", memory=30), {}),
    ],
    ids=lambda value: getattr(value, "name", None) or ",".join(value) or "plain",
)
def test_everything_is_foreseen_and_nothing_changes(
    learner: Any, protocol: dict[str, Any], tmp_path: Path
) -> None:
    """The reads of the loop itself are counted: with workers there are none but surprises."""
    runs = {}
    for workers in (0, 2):
        source = Counting(photos())
        stream = stream_of(source)
        runs[workers] = sg.run(
            stream,
            learner,
            protocol=sg.Protocol(evaluate="never", **protocol),
            out=tmp_path / str(workers),
            device="cpu",
            workers=workers,
        )
        if workers:
            foreseen = learner.name != "gss"
            assert (source.here == 0) == foreseen
        else:
            assert source.here > 100
    assert runs[0].id == runs[2].id
    for table in ("predictions", "training"):
        here, there = (getattr(runs[workers], table) for workers in (0, 2))
        for column in here:
            np.testing.assert_array_equal(np.asarray(here[column]), np.asarray(there[column]))


def test_a_run_that_is_taken_up_again_is_foreseen_from_there(tmp_path: Path) -> None:
    source = Counting(photos())
    stream = stream_of(source)
    with prefetching(stream, 1) as ahead_stream:
        from streamgauge.running.loop import Loop

        recipe = sg.learner("er", model="linear", memory=30)
        device = torch.device("cpu")

        class Nowhere:
            full = False
            rows = type("", (dict,), {"__missing__": lambda self, key: self})()

            def checkpoint(self, *_: Any) -> None: ...

        Nowhere.rows.append = lambda *_, **__: None  # type: ignore[attr-defined]

        def build(gate: Any) -> Any:
            return recipe.build(stream.spec, gate, 0, device)

        first = Loop(ahead_stream, build, sg.Protocol(evaluate="never"), Nowhere(), device)
        first.run(until=8)
        second = Loop(ahead_stream, build, sg.Protocol(evaluate="never"), Nowhere(), device)
        second.load_state_dict(first.state_dict())
        source.here = 0
        plan = PrefetchPlan(second, ahead_stream.source)  # type: ignore[arg-type]
        plan.announce()
        for _ in second.steps(progress=lambda _: plan.announce()):
            pass
        assert source.here == 0
        assert ahead_stream.source.unused == 0  # type: ignore[attr-defined]


def test_who_changes_what_is_recalled_is_not_foreseen() -> None:
    stream = sg.stream("blobs")
    gate = sg.streams.Gate(stream.source, stream.preparation, torch.device("cpu"))

    def made(name: str) -> Any:
        return sg.learner(name, model="linear").build(stream.spec, gate, 0, torch.device("cpu"))

    for name in ("er", "ace", "derpp", "er_ace", "replay_only", "er_lwf", "mir", "agem"):
        assert LearnerAdapter(made(name)).prefetch_copy() is not None, name
    for name in ("gss", "gdumb"):
        assert LearnerAdapter(made(name)).prefetch_copy() is None, name
    learner = made("er")
    learner.memory.add([1, 2, 3], [0, 0, 1])
    LearnerAdapter(learner).prefetch_copy().memory.add([4], [1])  # type: ignore[union-attr]
    assert len(learner.memory) == 3
