"""`find_rate`: the highest rate of a stream that a learner keeps up with on this machine."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.live import stored_stream
from streamgauge.live.dispatcher import TrainingRequest
from streamgauge.live.journal import Journal
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.trainer import BackgroundTrainer, Kind, start_trainer
from streamgauge.models.features import device_named
from streamgauge.record import RunWriter
from streamgauge.running import jobs
from streamgauge.running.execution import Logger
from streamgauge.running.header import absent_columns
from streamgauge.streams import Stream
from streamgauge.versions import renamed_parameter

TRAINED = 0.99  # share of the batches that counts as all, since other processes take time too
CLOSE = 1.1  # a search ends when the rates that passed and failed are this close
HEADROOM = 0.9  # share of a confirmed rate that is reported
MAX_TRIALS = 12
HIGHEST, LOWEST = 1e7, 1e-3
HEADER = {"id": "trial", "config": {}, "stream": {}, "environment": {}}  # of a temporary log


class Trial(NamedTuple):
    """A few seconds at one rate."""

    rate: float
    late: float  # seconds within which 99 % of the answers were given
    behind: float  # how late the last answer was
    reached: float  # samples answered per second
    trained: float  # share of the batches
    answered: bool  # whether the answers kept up
    all_trained: bool  # whether the training did, too


class RateFound(NamedTuple):
    """Samples per second. `predicting`: answers keep up, however many batches are trained;
    `training`: every batch is trained on as well. NaN if no rate was slow enough."""

    predicting: float
    training: float
    step_size: int
    patience: float
    trials: tuple[Trial, ...]
    cut: float = math.nan  # the time limit in seconds, if it ended the search


@renamed_parameter("said", "log")
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
    log: Logger = print,
) -> RateFound:
    """The highest rates that a learner keeps up with, by trials of `trial` seconds each.

    Answers keep up with a rate when 99 % of them, and the last one, are given within `patience`
    seconds of the reveal (or within a step, if that is longer). Training keeps up when 99 % of the
    batches are trained on. Answers and training run at the same time in all trials.

    A short trial may be lucky, so its rate is not reported. `margin` times the highest rate that
    passed is tried for `hold` seconds, with a log being written as in a run, and lowered by a fifth
    until it passes. Nine tenths of the rate that passed are reported, which leaves a reserve of a
    tenth. A stream that is too short for a trial is repeated.

    All trials together take at most `limit` seconds: no trial is begun that would end later, and
    with a short limit trials are shorter too. `cut` says whether the limit ended the search.
    """
    if not (trial > 0 and patience > 0 and hold > 0 and limit > 0 and 0 < margin <= 1):
        raise StreamgaugeError(
            "find_rate needs a trial, a patience, a hold and a limit above 0, and a margin up to 1."
        )
    trial, hold = min(trial, limit / 30), min(hold, limit / 12)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    clock = stored_stream.WallClock()
    with stored_stream.torch_threads(threads):
        session = stored_stream.LiveSession(stream, recipe, seed, device_named(device), threads)
        with start_trainer(trainer, recipe, session.setup, clock.wake, log) as background:
            trials = _Trials(session, background, clock, trial, patience, log)
            began = time.perf_counter()
            trials.deadline = began + 0.3 * limit
            training = search(
                trials.run, lambda t: t.all_trained, lambda t: t.trained * t.rate,
                trials.guess_training(), allowed=trials.in_time,
            )  # fmt: skip
            trials.deadline = began + 0.6 * limit
            # A rate may have failed because the machine was busy: only passed rates are reused.
            answered = [t for t in trials.done if t.answered]
            predicting = search(
                trials.run, lambda t: t.answered, lambda t: t.reached,
                trials.guess_predicting(), answered, trials.in_time,
            )  # fmt: skip
            trials.deadline = began + 0.8 * limit
            predicting = trials.confirm(margin * predicting, lambda t: t.answered, hold)
            trials.deadline = began + limit
            training = trials.confirm(margin * training, lambda t: t.all_trained, hold)
    cut = limit if trials.cut else math.nan
    return RateFound(predicting, training, stream.size, patience, tuple(trials.done), cut)


def search(
    run: Callable[[float], Trial],
    passed: Callable[[Trial], bool],
    reached: Callable[[Trial], float],
    guess: float,
    known: Sequence[Trial] = (),
    allowed: Callable[[float], bool] = lambda rate: True,
) -> float:
    """The highest rate that passed; NaN if none did.

    Trials begin at a guess, or where the `known` trials end. A rate that failed is followed by the
    rate that was `reached` instead, then by bisection. The search ends at a rate that is not
    `allowed` any more.

    >>> def run(rate):
    ...     return Trial(rate, 0.0, 0.0, min(rate, 700), 1.0, rate < 700, all_trained=True)
    >>> 600 < search(run, lambda trial: trial.answered, lambda trial: trial.reached, 5000.0) < 700
    True
    """
    high = min([trial.rate for trial in known if not passed(trial)], default=float("inf"))
    low = max([t.rate for t in known if passed(t) and t.rate < high], default=float("nan"))
    rate = guess if not high < guess else _between(low, high)
    rate = max(rate, low * CLOSE) if high == float("inf") and low == low else rate
    for _ in range(MAX_TRIALS):
        if not LOWEST < rate < HIGHEST or high <= low * CLOSE or not allowed(rate):
            break
        trial = run(rate)
        if passed(trial):
            low = rate
            rate = low * 1.5 if high == float("inf") else _between(low, high)
        else:
            high = rate
            rate = reached(trial)
            if not (rate < high / CLOSE and not rate <= low * CLOSE):
                rate = _between(low, high)
    return low


def confirmed_rate(
    hold: Callable[[float], Trial],
    passed: Callable[[Trial], bool],
    rate: float,
    allowed: Callable[[float], bool] = lambda rate: True,
) -> float:
    """Nine tenths of the first rate that passes, from this one down by a fifth each time; NaN if
    none does.

    >>> def hold(rate):
    ...     return Trial(rate, 0.0, 0.0, rate, 1.0, rate < 700, all_trained=True)
    >>> round(confirmed_rate(hold, lambda trial: trial.answered, 1000.0))
    576
    """
    for _ in range(MAX_TRIALS // 2):
        if math.isnan(rate) or not allowed(rate):
            break
        if passed(hold(rate)):
            return HEADROOM * rate
        rate *= 0.8
    return math.nan


def _between(low: float, high: float) -> float:
    return high / 2 if low != low else (low * high) ** 0.5


@dataclass
class _Trials:
    """Trials with one learner and trainer, which go on learning: only their speed matters."""

    session: stored_stream.LiveSession
    background: BackgroundTrainer
    clock: stored_stream.WallClock
    seconds: float
    patience: float
    log: Logger
    done: list[Trial] = field(default_factory=list)
    deadline: float = math.inf  # no trial that would end later is begun
    cut: bool = False  # whether a trial was not begun
    overhead: float = 0.0  # the most seconds that a trial took beyond its own time

    def __post_init__(self) -> None:
        self.absent = absent_columns(self.session.stream)

    def guess_predicting(self) -> float:
        session = self.session
        index = session.stream.index(0)
        adapter = LearnerAdapter(session.learner)
        x = jobs.inputs(session.stream.source, index, adapter, session.device)
        return len(index) / _median_seconds(lambda: session.learner.predict(x), 20)

    def guess_training(self) -> float:
        index = self.session.stream.index(0).astype(np.int64, copy=False)

        def train() -> None:
            self.background.begin(TrainingRequest(0, index))
            self.background.wait()

        return len(index) / _median_seconds(train, 5)

    def confirm(self, rate: float, passed: Callable[[Trial], bool], seconds: float) -> float:
        """The rate to report: tried for `seconds` with a log, and lowered until it passes."""

        def hold(rate: float) -> Trial:
            with (
                tempfile.TemporaryDirectory() as folder,
                closing(RunWriter(Path(folder) / "run", HEADER, self.absent)) as recorder,
            ):
                # Written three times per trial, since a run writes now and then.
                return self.run(rate, seconds, recorder, every=seconds / 4)

        return confirmed_rate(hold, passed, rate, lambda rate: self.in_time(rate, seconds))

    def in_time(self, rate: float, seconds: float | None = None) -> bool:
        """Whether a trial at a rate would end before the deadline."""
        length = max(seconds or self.seconds, 2 * self.session.stream.size / rate)
        in_time = time.perf_counter() + length + self.overhead <= self.deadline
        self.cut |= not in_time
        return in_time

    def run(
        self,
        rate: float,
        seconds: float | None = None,
        recorder: RunWriter | None = None,
        every: float = 1e9,
    ) -> Trial:
        session, began = self.session, time.perf_counter()
        seconds = self.seconds if seconds is None else seconds
        stream = stored_stream.repeated(
            session.stream, max(rate * seconds, 2 * session.stream.size)
        )
        allowed = max(self.patience, stream.size / rate)
        late: list[float] = []

        def progress(player: stored_stream.Player) -> None:
            late.append(float(player.latency))
            if late[-1] > 1.0 + 2 * allowed:
                player.stop("too late")

        with closing(Journal(recorder, self.absent, every)) as journal:
            player = session.player(
                self.background, journal, self.clock, rate, Snapshots((), 0), progress, stream
            )
            with stored_stream.on_signals(player.stop):
                player.play()
        if player.dispatcher.training is not None:
            self.background.wait()  # the next trial begins with a free trainer
        if player.stopped.startswith("stopped by"):
            raise KeyboardInterrupt
        # A batch still in training at the end counts: it would have been trained in time.
        pending = player.dispatcher.training is not None or player.dispatcher.waiting is not None
        trained = min(1.0, (player.dispatcher.finished + pending) / len(stream))
        typical = float(np.quantile(late, 0.99))
        answered = not player.stopped and typical <= allowed and late[-1] <= allowed
        reached, all_trained = player.asked / player.duration, answered and trained >= TRAINED
        trial = Trial(rate, typical, late[-1], reached, trained, answered, all_trained)
        self.done.append(trial)
        length = time.perf_counter() - began
        self.overhead = max(self.overhead, length - stream.samples / rate)
        self.log(
            f"{rate:,.0f} samples/s: answers {'kept up' if answered else 'fell behind'} "
            f"(99 % within {1e3 * typical:.1f} ms), {100 * trained:.1f} % of the batches trained"
        )
        return trial


def _median_seconds(action: Callable[[], Any], times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
