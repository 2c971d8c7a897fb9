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
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from streamgauge.errors import MissingPackage, StreamgaugeError, nearest
from streamgauge.metrics import score, training_flops
from streamgauge.record import Run
from streamgauge.report.figures import online_answers
from streamgauge.running.active_run import ActiveRun, FolderStore, run_to_completion
from streamgauge.running.execution import Execution
from streamgauge.running.executors.cluster import Misplaced
from streamgauge.running.loop import Loop
from streamgauge.running.plan import Experiment, PlannedRun, plan
from streamgauge.streams import Leak, Stream

PARTS = 10  # of a stream without tasks, after which a trial says how it stands
SHORT = {"held_out": "retained_accuracy", "online": "online_accuracy"}
OF_ANSWERS = ("online_accuracy", "macro_accuracy", "album_accuracy")  # need no held-out samples
OF_EVALUATIONS = (
    "retained_accuracy", "average_accuracy", "anytime_accuracy", "minimum_accuracy",
    "worst_case_accuracy", "rescaled_accuracy", "probed_accuracy",
)  # fmt: skip
_NEAR_FUTURE = re.compile(r"near_future_accuracy@(\d+)")
# Called with the value of a trial after a part (1, 2, ...); returns whether to give it up.
Report = Callable[[int, float], bool]


@dataclass(frozen=True)
class Task:
    """All that decides a trial, and where it is made: plain data."""

    experiment: Experiment  # one learner, with the settings of this trial
    prefix: str
    objective: str
    out: str
    execution: Execution = field(default_factory=Execution)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def planned_run(self) -> PlannedRun:
        (planned,) = plan(self.experiment, self.out)
        return replace(planned, part=self.prefix, notes={"trial": dict(self.notes)})


@dataclass(frozen=True)
class Result:
    """A trial's value, a mean of `count` answers, and its FLOPs of training from the log's jobs."""

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


class TrialStanding(NamedTuple):
    """How a trial stands after a part."""

    part: int
    value: float


class Value(NamedTuple):
    accuracy: float
    answers: float  # that it is a mean of


def check_objective(name: str, stream: Stream) -> None:
    """Refuse what is no accuracy, or cannot be had on this stream."""
    names = (*SHORT, *OF_ANSWERS, *OF_EVALUATIONS)
    if name not in names and not _NEAR_FUTURE.fullmatch(name):
        hint = nearest(name, [*names, "near_future_accuracy@S"])
        raise StreamgaugeError(f"The objective cannot be '{name}'; {hint}")
    if SHORT.get(name, name) in OF_EVALUATIONS and not stream.splits:
        raise StreamgaugeError(
            f"The objective {name} needs held-out samples, and this part of {stream.name} has none:"
            " give --stream.held_out 0.1, or --objective online."
        )


def protocol_for(name: str, stream: Stream) -> dict[str, Any]:
    """What a trial measures, where the user does not say: what its objective needs, no more."""
    shift = _NEAR_FUTURE.fullmatch(name)
    if shift:
        return {"protocol.shifts": (int(shift[1]),), "protocol.evaluate": "never"}
    if SHORT.get(name, name) in OF_ANSWERS:
        return {"protocol.evaluate": "never"}
    often: str | int = "boundaries" if stream.task is not None else every(stream)
    wanted: dict[str, Any] = {"protocol.evaluate": often, "protocol.milestones": ()}
    if name == "probed_accuracy":
        wanted["protocol.probe"] = "boundaries"
    return wanted


def every(stream: Stream) -> int:
    return max(1, len(stream) // PARTS)


def marks(stream: Stream) -> list[int]:
    """The steps after which a trial reports: after each task, or each tenth of the stream."""
    if stream.task is not None and stream.tasks > 1:
        return [int(one) + 1 for one in np.flatnonzero(np.diff(stream.task))]
    return list(range(every(stream), len(stream), every(stream)))


def measure(log: Run, name: str) -> Value:
    """The objective of a log, whole or up to now; NaN where the log cannot give it."""
    if SHORT.get(name, name) == "online_accuracy":
        right = np.equal(*online_answers(log))
        return Value(float(right.mean()) if len(right) else math.nan, float(len(right)))
    if name == "held_out":
        table = log.evaluations
        keep = (table["split"] == "held_out") & (table["within"] < 0)
        if not keep.any():
            return Value(math.nan, 0.0)
        keep &= table["evaluation"] == table["evaluation"][keep].max()
        count = float(table["count"][keep].sum())
        return Value(float(table["correct"][keep].sum()) / count, count)
    return Value(score(log).get(SHORT.get(name, name), math.nan), math.nan)


def attempt(
    task: Task,
    report: Report = lambda part, value: False,
    stream: Stream | None = None,
    store: FolderStore | None = None,
) -> Result:
    """Make or resume a trial to its end; `stream` is the part that it sees, if that is built."""
    stream = task.planned_run().build_stream() if stream is None else stream
    trial = SteppedTrial(report, stream, task, store)
    run_to_completion(trial)
    return trial.result()


class SteppedTrial:
    """A trial by steps, so that several can take turns on a GPU; its task may be set late."""

    task: Task

    def __init__(
        self,
        report: Report,
        stream: Stream,
        task: Task | None = None,
        store: FolderStore | None = None,
    ) -> None:
        self.report, self.stream, self.store = report, stream, store
        if task is not None:
            self.task = task
        self.run: ActiveRun | None = None
        self.pruned, self.failed = False, ""
        self.reports: dict[int, float] = {}

    @property
    def loop(self) -> Loop | None:
        return None if self.run is None else self.run.loop

    def open(self) -> None:
        """From its run folder; no steps follow a complete run, or settings that cannot start."""
        try:
            planned, out = self.task.planned_run(), self.task.out
            execution = replace(self.task.execution, log=lambda sentence: None)
            self.run = ActiveRun.of(planned, self.stream, execution, out=out, store=self.store)
            self.run.open()
        except StreamgaugeError as error:
            if not caused_by_settings(error):
                raise
            self.failed = str(error)

    def steps(self) -> Iterator[None]:
        loop = self.loop
        if self.run is None or loop is None:
            return
        parts = {step: part for part, step in enumerate(marks(self.stream), 1)}
        try:
            if loop.step in parts and self._give_up(parts[loop.step]):
                return  # it was stopped right after that part, before it could report
            for _ in self.run.steps():
                if loop.step in parts:
                    with loop.engine.scope():
                        loop.save()
                    if self._give_up(parts[loop.step]):
                        return
                yield
        except Leak:
            raise
        except Exception as error:
            if not caused_by_settings(error):
                raise
            self.failed = str(error).splitlines()[0]
            with contextlib.suppress(StreamgaugeError), loop.engine.scope():
                loop.save()  # its compute is counted

    def close(self) -> None:
        if self.run is not None:
            self.run.close()

    def _give_up(self, part: int) -> bool:
        assert self.run is not None
        value = measure(Run(self.run.path), self.task.objective).accuracy
        if math.isnan(value):
            return False
        self.reports[part] = value
        self.pruned = self.report(part, value)
        return self.pruned

    def result(self) -> Result:
        if self.run is None or not (self.run.path / "run.json").exists():  # it could not start
            return Result(math.nan, math.nan, "", 0.0, 0.0, failed=self.failed)
        run = Run(self.run.path)
        value = measure(run, self.task.objective)
        if math.isnan(value.accuracy) and not self.failed and not self.pruned:
            self.failed = f"its log does not give {self.task.objective}"
        accuracy = math.nan if self.failed or self.pruned else value.accuracy
        name, count, reports = run.path.name, value.answers, dict(self.reports)
        flops, seconds = training_flops(run), float(np.sum(run.timing["seconds"]))
        return Result(accuracy, count, name, flops, seconds, self.pruned, self.failed, reports)


def caused_by_settings(error: Exception) -> bool:
    """Whether a trial failed by its settings (it diverged, or did not fit into a GPU), so that the
    search goes on; a full disk, a folder that another process writes, or a machine that lacks a
    package or file is no such reason."""
    if isinstance(error, StreamgaugeError):
        system = isinstance(error.__cause__ or error.__context__, OSError)
        return not system and not isinstance(error, (Misplaced, MissingPackage))
    import torch

    return isinstance(error, torch.OutOfMemoryError)
