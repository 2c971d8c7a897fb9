"""`find_rate`: how fast a stream may be for a learner to keep up with it on this machine."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.live.answers import inputs
from streamgauge.live.desk import Job
from streamgauge.live.journal import Journal
from streamgauge.live.player import Player, WallClock
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.stored import Stage, absent_columns, on_signals, torch_threads
from streamgauge.live.trainer import Kind, Worker, hire
from streamgauge.models.features import device_named
from streamgauge.record import RunWriter
from streamgauge.streams import Stream

TRAINED = 0.99  # of the batches: what counts as every one, since a machine has other things to do
CLOSE = 1.1  # a search ends when the rates that were held and not held are this close
HEADROOM = 0.9  # of a rate that was held for long is announced
MOST_TRIALS = 12
HIGHEST, LOWEST = 1e7, 1e-3
HEADER = {"id": "trial", "config": {}, "stream": {}, "environment": {}}  # of a log nobody reads


class Trial(NamedTuple):
    """A few seconds at one rate."""

    rate: float
    late: float  # 99 % of the answers came within so many seconds
    behind: float  # how late the last answer was
    reached: float  # samples answered a second
    trained: float  # share of the batches
    answered: bool  # whether the answers kept up
    all_trained: bool  # whether the training did, too


class RateFound(NamedTuple):
    """Samples a second. `predicting`: answers keep up, whatever is trained meanwhile; `training`:
    every batch is trained on as well. NaN where no rate was slow enough."""

    predicting: float
    training: float
    step_size: int
    patience: float
    trials: tuple[Trial, ...]
    cut: float = math.nan  # seconds after which time was up before the search came to its end


def find_rate(
    stream: Stream,
    learner: Recipe | str | type,
    *,
    trainer: Kind = "process",
    seed: int = 0,
    device: str = "auto",
    threads: int = 1,
    trial: float = 4.0,
    patience: float = 0.1,
    margin: float = 0.9,
    hold: float = 10.0,
    limit: float = 120.0,
    said: Callable[[str], None] = print,
) -> RateFound:
    """The highest rates that a learner keeps up with, by trials of `trial` seconds each.

    Answers keep up with a rate when 99 % of them, and the last one, are given within `patience`
    seconds of the reveal (or within a step, if that is longer). Training keeps up when 99 % of the
    batches are trained on. Both are tried with answers and training going on together.

    A short trial may be lucky, so what it found is not announced. `margin` of the highest rate that
    was held is tried for `hold` seconds, with a log being written as in a run, and lowered by a
    fifth until it is held that long. Nine tenths of what was held then are the answer: a run at
    that rate has a tenth more room than the machine has shown to have. Where the stream is too
    short for a trial it is shown again.

    All trials together take `limit` seconds at the most: no trial is begun that would not end in
    time, and with a short limit trials are shorter, too. What was found by then is the answer, and
    `cut` says that there might have been more.
    """
    if not (trial > 0 and patience > 0 and hold > 0 and limit > 0 and 0 < margin <= 1):
        raise StreamgaugeError(
            "find_rate needs a trial, a patience, a hold and a limit above 0, and a margin up to 1."
        )
    trial, hold = min(trial, limit / 30), min(hold, limit / 12)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    clock = WallClock()
    with torch_threads(threads):
        stage = Stage(stream, recipe, seed, device_named(device), threads)
        with (
            closing(hire(trainer, recipe, stage.setup, clock.wake, said)) as worker,
            worker.when_ready(),
        ):
            trials = _Trials(stage, worker, clock, trial, patience, said)
            began = time.perf_counter()
            trials.until = began + 0.3 * limit
            training = search(
                trials.run, lambda t: t.all_trained, lambda t: t.trained * t.rate,
                trials.guess_training(), may=trials.in_time,
            )  # fmt: skip
            trials.until = began + 0.6 * limit
            # A rate that was not held may have met with a busy moment: only what was held counts.
            answered = [t for t in trials.done if t.answered]
            predicting = search(
                trials.run, lambda t: t.answered, lambda t: t.reached,
                trials.guess_predicting(), answered, trials.in_time,
            )  # fmt: skip
            trials.until = began + 0.8 * limit
            predicting = trials.confirm(margin * predicting, lambda t: t.answered, hold)
            trials.until = began + limit
            training = trials.confirm(margin * training, lambda t: t.all_trained, hold)
    cut = limit if trials.cut else math.nan
    return RateFound(predicting, training, stream.size, patience, tuple(trials.done), cut)


def _always(rate: float) -> bool:
    return True


def search(
    run: Callable[[float], Trial],
    held: Callable[[Trial], bool],
    reached: Callable[[Trial], float],
    guess: float,
    known: Sequence[Trial] = (),
    may: Callable[[float], bool] = _always,
) -> float:
    """The highest rate that was held; NaN if none was.

    Trials begin at a guess, or where those `known` leave off. A rate that was not held is followed
    by the one that was `reached` instead, then by bisection. Where a rate may not be tried any
    more, the search ends.

    >>> def run(rate):
    ...     return Trial(rate, 0.0, 0.0, min(rate, 700), 1.0, rate < 700, all_trained=True)
    >>> 600 < search(run, lambda trial: trial.answered, lambda trial: trial.reached, 5000.0) < 700
    True
    """
    high = min([trial.rate for trial in known if not held(trial)], default=float("inf"))
    low = max([t.rate for t in known if held(t) and t.rate < high], default=float("nan"))
    rate = guess if not high < guess else _between(low, high)
    rate = max(rate, low * CLOSE) if high == float("inf") and low == low else rate
    for _ in range(MOST_TRIALS):
        if not LOWEST < rate < HIGHEST or high <= low * CLOSE or not may(rate):
            break
        trial = run(rate)
        if held(trial):
            low = rate
            rate = low * 1.5 if high == float("inf") else _between(low, high)
        else:
            high = rate
            rate = reached(trial)
            if not (rate < high / CLOSE and not rate <= low * CLOSE):
                rate = _between(low, high)
    return low


def promise(
    hold: Callable[[float], Trial],
    held: Callable[[Trial], bool],
    rate: float,
    may: Callable[[float], bool] = _always,
) -> float:
    """Nine tenths of the first rate that is held, from this one down by a fifth each time; NaN if
    none is.

    >>> def hold(rate):
    ...     return Trial(rate, 0.0, 0.0, rate, 1.0, rate < 700, all_trained=True)
    >>> round(promise(hold, lambda trial: trial.answered, 1000.0))
    576
    """
    for _ in range(MOST_TRIALS // 2):
        if math.isnan(rate) or not may(rate):
            break
        if held(hold(rate)):
            return HEADROOM * rate
        rate *= 0.8
    return math.nan


def _between(low: float, high: float) -> float:
    return high / 2 if low != low else (low * high) ** 0.5


class _Trials:
    """Trials one after the other with the same learner and trainer, which go on learning: only
    the time counts, and it is the more typical the longer they have."""

    def __init__(
        self,
        stage: Stage,
        worker: Worker,
        clock: WallClock,
        seconds: float,
        patience: float,
        said: Callable[[str], None],
    ) -> None:
        self.stage, self.worker, self.clock = stage, worker, clock
        self.seconds, self.patience, self.said = seconds, patience, said
        self.done: list[Trial] = []
        self.until = math.inf  # no trial that would end later is begun
        self.cut = False  # whether one was not begun
        self._beside = 0.0  # the most that a trial took beyond its own time
        self.absent = absent_columns(stage.stream)

    def guess_predicting(self) -> float:
        stage = self.stage
        index = stage.stream.index(0)
        x = inputs(stage.stream.source, index, stage.learner, stage.device)
        return len(index) / _quickest(lambda: stage.learner.predict(x), 20)

    def guess_training(self) -> float:
        index = self.stage.stream.index(0).astype(np.int64, copy=False)

        def train() -> None:
            self.worker.begin(Job(0, index))
            self.worker.wait()

        return len(index) / _quickest(train, 5)

    def confirm(self, rate: float, held: Callable[[Trial], bool], seconds: float) -> float:
        """What can be promised of a rate: most of it, once it is held for so long with a log being
        written; it is lowered until it is."""

        def hold(rate: float) -> Trial:
            with (
                tempfile.TemporaryDirectory() as folder,
                closing(RunWriter(Path(folder) / "run", HEADER, self.absent)) as recorder,
            ):
                # Written three times on the way: a run writes seldom, but it does.
                return self.run(rate, seconds, recorder, every=seconds / 4)

        return promise(hold, held, rate, lambda rate: self.in_time(rate, seconds))

    def in_time(self, rate: float, seconds: float | None = None) -> bool:
        """Whether a trial at a rate would end before time is up."""
        length = max(seconds or self.seconds, 2 * self.stage.stream.size / rate)
        good = time.perf_counter() + length + self._beside <= self.until
        self.cut |= not good
        return good

    def run(
        self,
        rate: float,
        seconds: float | None = None,
        recorder: RunWriter | None = None,
        every: float = 1e9,
    ) -> Trial:
        stage, began = self.stage, time.perf_counter()
        seconds = self.seconds if seconds is None else seconds
        stream = repeated(stage.stream, max(rate * seconds, 2 * stage.stream.size))
        allowed = max(self.patience, stream.size / rate)
        late: list[float] = []

        def progress(player: Player) -> None:
            late.append(float(player.latency))
            if late[-1] > 1.0 + 2 * allowed:
                player.stop("too late")

        with closing(Journal(recorder, self.absent, every)) as journal:
            player = stage.player(
                self.worker, journal, self.clock, rate, Snapshots((), 0), progress, stream
            )
            with on_signals(player.stop):
                player.play()
        if player.desk.training is not None:
            self.worker.wait()  # the next trial begins with a free trainer
        if player.stopped.startswith("stopped by"):
            raise KeyboardInterrupt
        # What was still being trained when time was up would have been trained in time.
        pending = player.desk.training is not None or player.desk.waiting is not None
        trained = min(1.0, (player.desk.finished + pending) / len(stream))
        typical = float(np.quantile(late, 0.99))
        answered = not player.stopped and typical <= allowed and late[-1] <= allowed
        reached = player.asked / max(player.asked / rate, float(player.ended - player.began))
        trial = Trial(
            rate,
            typical,
            late[-1],
            reached,
            trained,
            answered,
            answered and trained >= TRAINED,
        )
        self.done.append(trial)
        length = time.perf_counter() - began
        self._beside = max(self._beside, length - stream.samples / rate)
        self.said(
            f"{rate:,.0f} samples/s: answers {'kept up' if answered else 'fell behind'} "
            f"(99 % within {1e3 * typical:.1f} ms), {100 * trained:.1f} % of the batches trained"
        )
        return trial


def repeated(stream: Stream, samples: float) -> Stream:
    """The beginning of a stream that starts over when it ends. Only for timing."""
    steps = len(stream)
    lengths = np.diff(stream.starts)
    rounds = int(samples // stream.samples) + 1
    lengths = np.tile(lengths, rounds)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    count = max(1, int(np.searchsorted(starts[:-1], samples)))
    return replace(
        stream,
        order=np.tile(stream.order, rounds)[: starts[count]],
        starts=starts[: count + 1],
        task=None if stream.task is None else np.resize(stream.task, rounds * steps)[:count],
    )


def _quickest(act: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return float(np.median(found))
