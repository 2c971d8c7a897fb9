"""`live`: a stored stream in real time, answered and trained on at the same time.

Step t is revealed when the time of all samples before it has passed: at starts[t] / rate seconds
after the beginning. The newest version answers it at once; then its labels are known, and its batch
is offered to the trainer. The clock and the trainer of a `Player` are parameters, so that the same
code runs by the wall clock and, in tests, by a simulated clock.
"""

from __future__ import annotations

import datetime
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.flops import Meter
from streamgauge.engine import Eager
from streamgauge.engine.eager import as_table
from streamgauge.errors import StreamgaugeError
from streamgauge.files import json_hash, write_json
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live.dispatcher import Dispatcher, TrainingRequest
from streamgauge.live.journal import Journal
from streamgauge.live.monitoring import quantiles
from streamgauge.live.snapshots import Answering, Snapshots
from streamgauge.live.trainer import BackgroundTrainer, Kind, Setup, start_trainer, warm_up
from streamgauge.models.features import device_named
from streamgauge.record import Run, RunWriter
from streamgauge.record.heartbeat import HeartbeatWriter
from streamgauge.running import jobs
from streamgauge.running.determinism import threads as threads_of_torch
from streamgauge.running.evaluation import Evaluator
from streamgauge.running.header import absent_columns, run_config, run_header
from streamgauge.running.protocol import Protocol
from streamgauge.running.rows import append_job, append_predictions
from streamgauge.running.schedule import begins_task
from streamgauge.settings import CHECKPOINT, RUNS, as_plain
from streamgauge.streams import Gate, Stream
from streamgauge.versions import renamed_parameter

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.running.execution import Logger

FACTS = "live.json"  # in the run folder: settings and events that the log does not hold
MAX_WAIT = 0.25  # seconds; a signal is noticed after this long at the latest


class WallClock:
    """Real time, in seconds."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def now(self) -> float:
        return time.perf_counter()

    def wake(self) -> None:
        """Something has happened: end the wait."""
        self._woken.set()

    def wait(self, until: float) -> None:
        """Return at that time, or earlier if something has happened."""
        # The caller checks everything after a wait, so a wake-up between these lines is not lost.
        self._woken.wait(min(MAX_WAIT, max(0.0, until - self.now())))
        self._woken.clear()


class Player(Answering):
    """One pass over a stored stream. `advance` does what is due and returns when to call it again.
    `late` is how many seconds after the end of the stream's time it may go on answering."""

    def __init__(
        self,
        stream: Stream,
        learner: Learner,
        build: Callable[[], Learner],
        gate: Gate,
        dispatcher: Dispatcher,
        journal: Journal,
        clock: Any,  # with `now` and `wait`, as `WallClock`
        rate: Any,
        device: torch.device,
        snapshots: Snapshots,
        late: float = 1.0,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        classes = stream.spec.classes
        super().__init__(learner, build, classes, dispatcher, journal, device, snapshots)
        self.stream, self.gate, self.clock, self.rate = stream, gate, clock, rate
        self.late = late
        self.step = self.right = self.asked = 0
        self.latency: Any = 0.0  # of the last step's answers
        self.stopped = ""  # why it ended before the stream did
        self._progress = progress
        self.began = clock.now()
        self.ended = self.began  # when the last answer was given

    @property
    def end(self) -> Any:
        """When the time of the last step is over."""
        return self._time_of(len(self.stream))

    def _time_of(self, step: int) -> Any:
        return self.began + int(self.stream.starts[step]) / self.rate

    @property
    def duration(self) -> float:
        """Seconds: the time of the answered samples, or until the last answer where it was late."""
        return max(self.asked / float(self.rate), float(self.ended - self.began))

    def facts(self, restarts: list[str]) -> dict[str, Any]:
        rate = self.asked / self.duration if self.asked else float("nan")
        times = {"rate_held": rate, "duration": self.duration}
        return {**super().facts(restarts), **times, "stopped": self.stopped}

    def heartbeat(self) -> dict[str, Any]:
        """The facts of a heartbeat."""
        wait = quantiles(tuple(self.latencies))[0.99]
        more = {} if wait != wait else {"p99 ms": 1e3 * wait}
        steps = {"step": self.step, "steps": len(self.stream)}
        return {**steps, "right": self.right, "asked": self.asked, "more": more}

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why

    def play(self) -> None:
        """From the beginning to the end."""
        while (until := self.advance()) is not None:
            if until > self.clock.now():
                self.clock.wait(until)
        while self.delayed:
            self._answer_delayed()

    def advance(self) -> Any:
        """Do what is due; returns when something will be due next, None at the end."""
        now = self.clock.now()
        finished = self.dispatcher.collect(now)
        left = self.step < len(self.stream)
        due = left and self._time_of(self.step) <= now
        over = not left and now >= self.end
        # The trainer gets the waiting batch before anything else is done here, unless a newer
        # batch is revealed at this very moment; a step that is late has no labels yet.
        if not over and not (due and self._time_of(self.step) == now):
            self.dispatcher.dispatch(now)
        if finished is not None:
            self._apply(finished)
        if left and now > self.end + self.late:
            self.stop("the answers fell too far behind")
        if over or self.stopped:
            return None
        if due:
            self._one_step()
            self.dispatcher.dispatch(self.clock.now())
        if self.step == len(self.stream):
            return self.end
        next_time = self._time_of(self.step)
        if next_time <= self.clock.now():
            if self.journal.full:  # bounds the memory of a run that is always late
                self.commit()
            return next_time
        if self.delayed:
            self._answer_delayed()
            return now
        if self.journal.due:
            self.commit()
        return next_time

    def commit(self, done: bool = False, wait: bool = False) -> None:
        state = {"version": self.version, "step": self.step, "learner": self.state}
        self.journal.commit(self.step, state, done, wait=wait)

    def _one_step(self) -> None:
        stream, step = self.stream, self.step
        index = stream.index(step)
        self.gate.reveal(index)
        right, scores = self._answer(step, self._engine, self.version)
        self.ended = self.clock.now()
        self.latency = self.ended - self._time_of(step)
        self.gate.label_due(index)
        self.right += right
        self.asked += len(index)
        self._append_latency(step, float(self.latency))
        facts = {}
        if begins_task(stream, step):
            facts = jobs.boundary_facts(stream, step, self._adapter.needs)
        addresses = index.astype(np.int64, copy=False)
        told = (facts,) if facts else ()
        self.dispatcher.offer(TrainingRequest(step, addresses, as_table(scores), facts=told))
        start = int(stream.starts[step])
        self._delay(step, self.snapshots.begin(start, self.version, self.state))
        self.step += 1
        if self._progress is not None:
            self._progress(self)

    def _answer(self, step: int, engine: Eager, version: int, shift: int = 0) -> tuple[int, Any]:
        """Append the answers to a step; returns how many are correct, and the scores."""
        with self.journal.timed("read"):
            index = self.stream.index(step)
            x = jobs.inputs(self.stream.source, index, self._adapter, self.device)
        with self.journal.timed("predict"):
            scores, prediction, confidence = engine.answer(x)
        label = append_predictions(
            self.journal.rows, self.stream, step, prediction, confidence, version, shift
        )
        return int((prediction == label).sum()), scores

    def _answer_delayed(self) -> None:
        """Let a snapshot answer a step while there is nothing else to do."""
        step, due, _ = self.delayed.popleft()
        self._answer(step, self._load_snapshot(due), due.version, due.age)


@renamed_parameter("said", "log")
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
    checkpoint: float = CHECKPOINT,
    progress: Callable[[Any], None] | None = None,
    origin: str | None = None,
    log: Logger = print,
) -> Run:
    """Reveal a stream at `rate` samples per second, for `seconds` or to its end.

    Answers are given here, training runs in another process (or a thread of this one); each has
    `threads` threads of torch. With `shifts`, `snapshots` earlier versions at a time are kept to
    answer later steps. A trainer that works on one batch for more than `hang` seconds (by default
    many times its longest job) is killed and restarted. Every call makes a new run: two passes in
    real time are never the same. On SIGTERM or SIGINT the log is written and the incomplete run is
    returned. `progress` is called after every step with an object that has `step`, `stream`,
    `right` and `asked`. `log` gets messages.
    """
    if not rate > 0:
        raise StreamgaugeError(f"A rate is a number of samples per second above 0, not {rate}.")
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    recipe = recipe.for_inputs(stream.spec.input_shape)
    torch_device = device_named(device)
    stream = beginning(stream, None if seconds is None else rate * seconds)
    kept = Snapshots(shifts, snapshots)
    asked = {"rate": rate, "seconds": seconds, "snapshots": snapshots if shifts else 0,
             "trainer": trainer, "threads": threads}  # fmt: skip
    absent = absent_columns(stream)
    clock = WallClock()
    with torch_threads(threads):
        header = _header(stream, recipe, shifts, seed, torch_device, origin, asked)
        path = Path(out) / f"{stream.name}-{recipe.name}-live-s{seed}-{header['id'][:8]}"
        session = LiveSession(stream, recipe, seed, torch_device, threads)
        with (
            start_trainer(trainer, recipe, session.setup, clock.wake, log, hang=hang) as background,
            closing(RunWriter(path, header, absent)) as recorder,
            closing(Journal(recorder, absent, checkpoint)) as journal,
        ):
            player = session.player(background, journal, clock, rate, kept, progress)
            try:
                with HeartbeatWriter(path, player.heartbeat), on_signals(player.stop):
                    player.play()
            except StreamgaugeError:
                player.commit(wait=True)  # the answers until then
                raise
            done = player.step == len(stream)
            if done:
                _evaluate(session, player, journal)
            else:
                log(f"Ended after step {player.step} of {len(stream)}: {player.stopped}.")
            player.commit(done, wait=True)
            write_json(path / FACTS, {**asked, **player.facts(background.restarts)})
    return Run(path)


class LiveSession:
    """The learner that answers, its view of the data, and the setup of a trainer."""

    def __init__(
        self, stream: Stream, recipe: Recipe, seed: int, device: torch.device, threads: int
    ) -> None:
        self.stream, self.recipe, self.device = stream, recipe, device
        self.gate = Gate(stream.source, stream.preparation, device)
        self.setup = Setup(
            spec=stream.spec,
            source=stream.source,
            batch=stream.size,
            seed=seed,
            device=str(device),
            threads=threads,
            preparation=stream.preparation.astype(np.int64, copy=False),
            facts=jobs.start_facts(stream, recipe.needs),
        )
        self.learner = self.build()

    def build(self) -> Learner:
        return self.setup.build(self.recipe, self.gate).learner

    def player(
        self,
        background: BackgroundTrainer,
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
            Dispatcher(background),
            journal,
            clock,
            rate,
            self.device,
            kept,
            late=max(1.0, 0.1 * stream.samples / rate),
            progress=progress,
        )


def beginning(stream: Stream, samples: float | None) -> Stream:
    """The steps that begin before `samples` samples have been revealed. Unlike `streams.prefix`, it
    keeps the source and the held-out samples: this is the same stream, ended early, and the log has
    the same addresses."""
    if samples is None or samples >= stream.samples:
        return stream
    if not samples > 0:
        raise StreamgaugeError("A live run must last longer than 0 seconds.")
    return repeated(stream, samples)


def repeated(stream: Stream, samples: float) -> Stream:
    """The steps that begin before `samples` samples, of a stream that starts over at its end."""
    rounds = int(samples // stream.samples) + 1
    starts = np.concatenate([[0], np.cumsum(np.tile(np.diff(stream.starts), rounds))])
    count = max(1, int(np.searchsorted(starts[:-1], samples)))
    return replace(
        stream,
        order=np.tile(stream.order, rounds)[: starts[count]],
        starts=starts[: count + 1],
        task=None if stream.task is None else np.tile(stream.task, rounds)[:count],
    )


def _header(
    stream: Stream,
    recipe: Recipe,
    shifts: tuple[int, ...],
    seed: int,
    device: torch.device,
    origin: str | None,
    asked: dict[str, Any],
) -> dict[str, Any]:
    protocol = as_plain(Protocol(shifts=shifts, evaluate="end"))
    # One text, so that leaderboards keep runs apart that were measured in different ways.
    live = {**protocol, "live": f"{asked['rate']:g} samples/s, {asked['trainer']}"}
    described, method, notes = stream.describe(), recipe.describe(), {"live": asked}
    config = run_config(
        stream.name, stream.settings, method, live, seed, device.type, origin, notes=notes
    )
    run_id = hash_identity(config, described, time.time_ns())
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**run_header(run_id, config, described, str(device)), "started": started}


def hash_identity(*parts: Any) -> str:
    return json_hash(parts, default=str)


def _evaluate(session: LiveSession, player: Player, journal: Journal) -> None:
    """Evaluate on held-out data after the end of the stream."""
    protocol = Protocol(evaluate="end", milestones=(1.0,))
    adapter = LearnerAdapter(session.learner)
    evaluator = Evaluator(session.stream, adapter, protocol, journal, session.device)  # type: ignore[arg-type]
    if not evaluator.due(player.step):
        return
    with journal.timed("evaluate"):
        meter = Meter(adapter.work, adapter.sees_input, adapter.uses_torch)
        if jobs.prepare(adapter, meter):
            step, version, unknown = player.step - 1, player.version, np.nan
            append_job(journal.rows, step, version, "prepare", meter.flops, unknown, unknown)
        evaluator.evaluate(player.step, player.version)


def torch_threads(count: int) -> AbstractContextManager[None]:
    if count < 1:
        raise StreamgaugeError(f"threads must be at least 1, not {count}.")
    return threads_of_torch(count)


@contextmanager
def on_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT. Only the main thread can handle signals."""
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
