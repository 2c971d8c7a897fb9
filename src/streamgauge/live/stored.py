"""`live`: a stored stream by the wall clock, answered and trained on at the same time."""

from __future__ import annotations

import datetime
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.flops import Meter
from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_json
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live.bench import Setup, tell, warm_up
from streamgauge.live.desk import Desk
from streamgauge.live.journal import Journal
from streamgauge.live.player import Player, WallClock
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.trainer import Kind, Worker, hire
from streamgauge.models.features import device_named
from streamgauge.record import OPTIONAL, Run, RunWriter, environment
from streamgauge.running.evaluation import Evaluator
from streamgauge.running.protocol import Protocol
from streamgauge.settings import RUNS, as_plain
from streamgauge.streams import Gate, Stream

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner

Said = Callable[[str], None]
FACTS = "live.json"  # beside the log: what was asked for and what happened on the way


def live(
    stream: Stream,
    learner: Recipe | str | type,
    rate: float,
    *,
    seconds: float | None = None,
    shifts: tuple[int, ...] = (),
    snapshots: int = 4,
    trainer: Kind = "process",
    hang: float | None = None,
    seed: int = 0,
    out: str | Path = RUNS,
    device: str = "auto",
    threads: int = 1,
    checkpoint: float = 30.0,
    progress: Callable[[Any], None] | None = None,
    origin: str | None = None,
    said: Said = print,
) -> Run:
    """Reveal a stream at `rate` samples a second, for so many seconds or to its end.

    Answers are given here, training goes on in another process (or a thread of this one); each has
    `threads` threads of torch. With `shifts`, versions of the past are kept, `snapshots` of them at
    a time, and asked when their time has come. A trainer that works on one batch for more than
    `hang` seconds (by default many times its longest job) is ended and started again. Every call
    makes a run of its own: two passes by the wall clock are never the same. On SIGTERM or SIGINT
    what was answered is written and the run, incomplete, is returned. `progress` is called after
    every step with an object that has `step`, `stream`, `right` and `asked`.
    """
    if not rate > 0:
        raise StreamgaugeError(f"A rate is a number of samples a second above 0, not {rate}.")
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    place = device_named(device)
    stream = beginning(stream, None if seconds is None else rate * seconds)
    kept = Snapshots(shifts, snapshots)
    asked = {"rate": rate, "seconds": seconds, "snapshots": snapshots if shifts else 0,
             "trainer": trainer, "threads": threads}  # fmt: skip
    absent = absent_columns(stream)
    clock = WallClock()
    with torch_threads(threads):
        header = _header(stream, recipe, shifts, seed, place, origin, asked)
        path = Path(out) / f"{stream.name}-{recipe.name}-live-s{seed}-{header['id'][:8]}"
        stage = Stage(stream, recipe, seed, place, threads)
        with (
            closing(hire(trainer, recipe, stage.setup, clock.wake, said, hang=hang)) as worker,
            worker.when_ready(),
            closing(RunWriter(path, header, absent)) as recorder,
            closing(Journal(recorder, absent, checkpoint)) as journal,
        ):
            player = stage.player(worker, journal, clock, rate, kept, progress)
            try:
                with on_signals(player.stop):
                    player.play()
            except StreamgaugeError:
                player.commit(wait=True)  # what was answered until then
                raise
            done = player.step == len(stream)
            if done:
                _evaluate(stage, player, journal)
            else:
                said(f"Ended after step {player.step} of {len(stream)}: {player.stopped}.")
            player.commit(done, wait=True)
            write_json(path / FACTS, {**asked, **facts(player, worker)})
    return Run(path)


class Stage:
    """A learner to answer with, its view of the data, and what a trainer needs for its own."""

    def __init__(
        self, stream: Stream, recipe: Recipe, seed: int, device: torch.device, threads: int
    ) -> None:
        self.stream, self.recipe, self.seed, self.device = stream, recipe, seed, device
        self.gate = Gate(stream.source, stream.preparation, device)
        self.facts = start_facts(stream, recipe)
        self.setup = Setup(
            spec=stream.spec,
            source=stream.source,
            batch=stream.size,
            seed=seed,
            device=str(device),
            threads=threads,
            preparation=stream.preparation.astype(np.int64, copy=False),
            facts=self.facts,
        )
        self.learner = self.build()

    def build(self) -> Learner:
        learner = self.recipe.build(self.stream.spec, self.gate, self.seed, self.device)
        tell(learner, self.facts)
        return learner

    def player(
        self,
        worker: Worker,
        journal: Journal,
        clock: WallClock,
        rate: float,
        kept: Snapshots,
        progress: Callable[[Any], None] | None,
        stream: Stream | None = None,
    ) -> Player:
        stream = self.stream if stream is None else stream
        warm_up(self.recipe, self.setup)
        return Player(
            stream,
            self.learner,
            self.build,
            self.gate,
            Desk(worker),
            journal,
            clock,
            rate,
            self.device,
            kept,
            late=max(1.0, 0.1 * stream.samples / rate),
            progress=progress,
        )


def beginning(stream: Stream, samples: float | None) -> Stream:
    """The steps that begin before so many samples have been revealed."""
    if samples is None or samples >= stream.samples:
        return stream
    if not samples > 0:
        raise StreamgaugeError("A live run must last longer than 0 seconds.")
    steps = int(np.searchsorted(stream.starts[:-1], samples))
    return replace(
        stream,
        order=stream.order[: stream.starts[steps]],
        starts=stream.starts[: steps + 1],
        task=None if stream.task is None else stream.task[:steps],
    )


def absent_columns(stream: Stream) -> frozenset[str]:
    absent = OPTIONAL - set(stream.source.columns)
    return frozenset(absent if stream.task is None else absent - {"task"})


def start_facts(stream: Stream, recipe: Recipe) -> dict[str, Any]:
    """What the loop would tell this learner before the first step."""
    found: dict[str, Any] = {}
    if "horizon" in recipe.needs:
        found["horizon"] = len(stream)
    if "class_count" in recipe.needs:
        found["class_count"] = len(np.unique(stream.source.label[stream.order]))
    return found


def _header(
    stream: Stream,
    recipe: Recipe,
    shifts: tuple[int, ...],
    seed: int,
    place: torch.device,
    origin: str | None,
    asked: dict[str, Any],
) -> dict[str, Any]:

    protocol = as_plain(Protocol(shifts=shifts, evaluate="end"))
    config = {
        "stream": {"origin": origin, "name": stream.name, "settings": dict(stream.settings)},
        "learner": recipe.describe(),
        # One text, so that leaderboards keep apart what was measured in different ways.
        "protocol": {**protocol, "live": f"{asked['rate']:g} samples/s, {asked['trainer']}"},
        "live": asked,
        "seed": seed,
        "device": place.type,
    }
    described = stream.describe()
    return {
        "id": own_identity(config, described, time.time_ns()),
        "config": config,
        "stream": described,
        "environment": environment(str(place)),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def own_identity(*parts: Any) -> str:
    text = json.dumps(parts, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def facts(player: Player, worker: Worker) -> dict[str, Any]:
    """What the log does not hold."""
    wanted = player.asked / float(player.rate)
    taken = float(player.ended - player.began)
    return {
        "rate_held": player.asked / max(wanted, taken) if player.asked else float("nan"),
        "duration": max(wanted, taken),
        "offered": player.desk.offered,
        "skipped": player.desk.offered - player.desk.finished,
        "lost": player.desk.lost,
        "restarts": worker.restarts,
        "near_future_left_out": player.near_future_left_out,
        "stopped": player.stopped,
    }


def _evaluate(stage: Stage, player: Player, journal: Journal) -> None:
    """What is retained, after the end, when there is time again."""
    protocol = Protocol(evaluate="end", milestones=(1.0,))
    adapter = LearnerAdapter(stage.learner)
    evaluator = Evaluator(stage.stream, adapter, protocol, journal, stage.device)  # type: ignore[arg-type]
    if not evaluator.due(player.step):
        return
    with journal.timed("evaluate"):
        if adapter.prepare is not None:
            meter = Meter(adapter.work, adapter.sees_input)
            with meter.job("prepare"):
                adapter.prepare()
            journal.rows["jobs"].append(1, step=player.step - 1, version=player.version,
                                        kind="prepare", flops=meter.flops, bytes=np.nan,
                                        recalled=np.nan)  # fmt: skip
        evaluator.evaluate(player.step, player.version)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    import torch

    if threads < 1:
        raise StreamgaugeError(f"threads must be at least 1, not {threads}.")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def on_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """SIGTERM and SIGINT end the work in good order. Only the main thread can be told of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        signal.signal(number, lambda n, _: stop(f"stopped by {signal.Signals(n).name}"))
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
