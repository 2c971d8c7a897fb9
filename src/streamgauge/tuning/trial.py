"""One trial: a learner with some settings on the beginning of a stream, to a number.

`attempt` is a function of plain data (`Task`) to plain data (`Result`), so that it can be called in
this process or sent to another; what it makes on the way is a run folder, from which a trial that
was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamgauge import catalogue
from streamgauge import engine as engines
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.metrics import score, training_flops
from streamgauge.record import Run
from streamgauge.running import runner
from streamgauge.running.executors.cluster import Misplaced
from streamgauge.running.executors.interleaved import Begun
from streamgauge.running.runner import Experiment
from streamgauge.streams import Leak, Stream
from streamgauge.streams.prefix import prefix

PARTS = 10  # of a stream without tasks, after which a trial says how it stands
SHORT = {"held_out": "retained_accuracy", "online": "online_accuracy"}
ACCURACIES = (
    "online_accuracy",
    "macro_accuracy",
    "album_accuracy",
    "retained_accuracy",
    "average_accuracy",
    "anytime_accuracy",
    "minimum_accuracy",
    "worst_case_accuracy",
    "rescaled_accuracy",
    "probed_accuracy",
)
_NEAR_FUTURE = re.compile(r"near_future_accuracy@(\d+)")
# Told how a trial stands after a part (1, 2, ...); answers whether to give it up.
Report = Callable[[int, float], bool]
Said = Callable[[str], None]
Begin = Callable[[], Begun]
# From a run folder and how to begin it to how to begin it here; None: there is nothing to do.
TakeUp = Callable[[Path, Begin | None], Begin | None]


@dataclass(frozen=True)
class Task:
    """All that decides a trial, and where it is made: plain data."""

    experiment: Experiment  # one learner, with the settings of this trial
    prefix: str
    objective: str
    out: str
    device: str = "auto"
    engine: engines.Name = "auto"
    precision: engines.Precision = "fp16"
    checkpoint: float = 30.0
    workers: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What came of a trial. `count` is how many answers the value is a mean of; FLOPs are those of
    training, from the log's jobs."""

    value: float
    count: float
    run: str
    flops: float
    seconds: float
    pruned: bool = False
    failed: str = ""  # why there is no value
    reports: Mapping[int, float] = field(default_factory=dict)

    def as_plain(self) -> dict[str, Any]:
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
            if name != "reports"
        }


class Standing(NamedTuple):
    """How a trial stands after a part."""

    part: int
    value: float


class Value(NamedTuple):
    accuracy: float
    answers: float  # that it is a mean of


def check_objective(name: str, stream: Stream) -> None:
    """Refuse what is no accuracy, or cannot be had on this stream."""
    names = (*SHORT, *ACCURACIES)
    if name not in names and not _NEAR_FUTURE.fullmatch(name):
        hint = nearest(name, [*names, "near_future_accuracy@S"])
        raise StreamgaugeError(f"The objective cannot be '{name}'; {hint}")
    if SHORT.get(name, name) not in ("online_accuracy", "macro_accuracy", "album_accuracy") and (
        not stream.splits and not _NEAR_FUTURE.fullmatch(name)
    ):
        raise StreamgaugeError(
            f"The objective {name} needs held-out samples, and this part of {stream.name} has none:"
            " give --stream.held_out 0.1, or --objective online."
        )


def protocol_for(name: str, stream: Stream) -> dict[str, Any]:
    """What a trial measures, where the user does not say: what its objective needs, no more."""
    shift = _NEAR_FUTURE.fullmatch(name)
    if shift:
        return {"protocol.shifts": (int(shift[1]),), "protocol.evaluate": "never"}
    if SHORT.get(name, name) in ("online_accuracy", "macro_accuracy", "album_accuracy"):
        return {"protocol.evaluate": "never"}
    often: str | int = "boundaries" if stream.task is not None else every(stream)
    wanted: dict[str, Any] = {"protocol.evaluate": often, "protocol.milestones": ()}
    if name == "probed_accuracy":
        wanted["protocol.probe"] = "boundaries"
    return wanted


def every(stream: Stream) -> int:
    return max(1, len(stream) // PARTS)


def marks(stream: Stream) -> list[int]:
    """The steps after which a trial says how it stands: each task, or each tenth of the stream; the
    end is not among them."""
    if stream.task is not None and stream.tasks > 1:
        return [int(one) + 1 for one in np.flatnonzero(np.diff(stream.task))]
    return list(range(every(stream), len(stream), every(stream)))


def measure(log: Run, name: str) -> Value:
    """The objective of a log, whole or up to now; NaN where the log cannot give it."""
    if SHORT.get(name, name) == "online_accuracy":
        table = log.predictions
        live = np.asarray(table["shift"]) == 0
        right = (np.asarray(table["label"]) == np.asarray(table["prediction"]))[live]
        return Value(float(right.mean()) if len(right) else math.nan, float(len(right)))
    if name == "held_out":
        table = log.evaluations
        keep = (np.asarray(table["split"]) == "held_out") & (np.asarray(table["within"]) < 0)
        if not keep.any():
            return Value(math.nan, 0.0)
        number = np.asarray(table["evaluation"])
        keep &= number == number[keep].max()
        count = float(np.asarray(table["count"])[keep].sum())
        return Value(float(np.asarray(table["correct"])[keep].sum()) / count, count)
    return Value(score(log).get(SHORT.get(name, name), math.nan), math.nan)


def stream_of(task: Task) -> Stream:
    """The part of the stream that a trial may see."""
    planned, settings = runner.plan(task.experiment, task.out)
    seed = planned[0].stream_seed
    whole = catalogue.stream(task.experiment.stream, **{**settings, "seed": seed})
    return prefix(whole, task.prefix)


def go_on(part: int, value: float) -> bool:
    """The report that never gives up."""
    return False


def silent(sentence: str) -> None:
    """Trials say nothing."""


def as_it_lies(path: Path, begin: Begin | None) -> Begin | None:
    """The run folder is where it was left."""
    return begin


def attempt(
    task: Task,
    report: Report = go_on,
    stream: Stream | None = None,
    take_up: TakeUp = as_it_lies,
) -> Result:
    """Make a trial, or go on with it, to its end."""
    trial = Attempt(task, report, stream, take_up)
    begun = trial.begin()
    with begun.close:
        for _ in begun.steps:
            pass
    return trial.result()


class Attempt:
    """A trial under way, a step at a time, so that several can take turns on a GPU."""

    def __init__(
        self,
        task: Task,
        report: Report = go_on,
        stream: Stream | None = None,
        take_up: TakeUp = as_it_lies,
    ) -> None:
        self.task, self.report, self.take_up = task, report, take_up
        self.stream = stream_of(task) if stream is None else stream
        self.path: Path | None = None
        self.pruned, self.failed = False, ""
        self.reports: dict[int, float] = {}

    def begin(self) -> Begun:
        """From where its run folder stands; with no steps where it is complete, or where these
        settings cannot begin."""
        try:
            begin = self._prepare()
            if begin is not None:
                begun = begin()
                return begun._replace(steps=self._steps(begun))
        except StreamgaugeError as error:
            if not of_the_settings(error):
                raise
            self.failed = str(error)
        return no_steps()

    def _prepare(self) -> Begin | None:
        task = self.task
        (one,), _ = runner.plan(task.experiment, task.out)
        self.path, begin = runner.prepare(
            self.stream,
            one.recipe,
            protocol=one.protocol,
            seed=one.learner_seed,
            out=task.out,
            device=task.device,
            checkpoint=task.checkpoint,
            progress=None,
            origin=None,
            notes={"trial": dict(task.notes)},
            workers=task.workers,
            engine=task.engine,
            precision=task.precision,
            said=silent,
        )
        return self.take_up(self.path, begin)

    def _steps(self, begun: Begun) -> Iterator[None]:
        loop, parts = begun.loop, {step: n for n, step in enumerate(marks(self.stream), 1)}
        try:
            if loop.step in parts and self._give_up(parts[loop.step]):
                return  # it was stopped right after that part, before it could say so
            for _ in begun.steps:
                if loop.step in parts:
                    with loop.engine.scope():
                        loop.save()
                    if self._give_up(parts[loop.step]):
                        return
                yield
        except Leak:
            raise
        except Exception as error:
            if not of_the_settings(error):
                raise
            self.failed = str(error).splitlines()[0]
            with contextlib.suppress(StreamgaugeError), loop.engine.scope():
                loop.save()  # what it took is counted

    def _give_up(self, part: int) -> bool:
        assert self.path is not None
        value = measure(Run(self.path), self.task.objective).accuracy
        if math.isnan(value):
            return False
        self.reports[part] = value
        self.pruned = self.report(part, value)
        return self.pruned

    def result(self) -> Result:
        if self.path is None or not (self.path / "run.json").exists():  # it could not even begin
            return Result(math.nan, math.nan, "", 0.0, 0.0, failed=self.failed)
        run = Run(self.path)
        value = measure(run, self.task.objective)
        if math.isnan(value.accuracy) and not self.failed and not self.pruned:
            self.failed = f"its log does not give {self.task.objective}"
        accuracy = math.nan if self.failed or self.pruned else value.accuracy
        return Result(
            accuracy,
            value.answers,
            self.path.name,
            training_flops(run),
            float(np.sum(run.timing["seconds"])),
            self.pruned,
            self.failed,
            dict(self.reports),
        )


def no_steps(steps: Iterator[None] | None = None) -> Begun:
    """A trial without a loop."""
    nothing: Any = None
    return Begun(nothing, iter(()) if steps is None else steps, ExitStack())


def of_the_settings(error: Exception) -> bool:
    """Whether a trial failed by what was tried (it diverged, or did not fit into a GPU), so that
    the search goes on; a full disk, a folder that another process writes, or a machine that lacks
    something, is no such reason."""
    if isinstance(error, StreamgaugeError):
        system = isinstance(error.__cause__ or error.__context__, OSError)
        return not system and not isinstance(error, Misplaced)
    import torch

    return isinstance(error, torch.OutOfMemoryError)
