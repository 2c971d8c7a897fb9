"""What a method costs: FLOPs, seconds, bytes and energy of one training job, relative to ER.

FLOPs are those of matrix products and convolutions, forward and backward, as
`torch.utils.flop_counter` sees them at the level of operators: copies of a model, functional calls
and frozen layers are counted as what they do. Element-wise work (penalties, optimisers, batch norm)
counts as none, which is why seconds and bytes are given too; where nothing is counted, because a
learner works outside torch, its FLOPs are unknown. Seconds are timed in turns with ER's.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.energy import Energy, of_job
from streamgauge.cost.turns import TurnSeconds, most_pairs, time_in_turns
from streamgauge.engine.eager import ask
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch
from streamgauge.pages.units import bytes_text
from streamgauge.running.determinism import suitable_threads, threads
from streamgauge.streams import ArraySource, Gate, Stream, arrange
from streamgauge.streams.stream import Arrangement

if TYPE_CHECKING:
    import torch

MOST_CYCLE = 100  # jobs; a longer cycle is measured in part
WARM_UP = 2  # jobs before any is counted
MOST_FILLED = 20_000  # samples of a memory that is filled to measure a job
# Settings that a method shares with the ER it is measured against.
_SHARED = ("model", "memory", "recall", "batch", "head", "augment")

Conditions = tuple[tuple[int, ...], int, int, "torch.device"]  # input shape, classes, batch, device


@dataclasses.dataclass(frozen=True)
class JobCost:
    """Of one training job with the memory full, on average over the measured jobs."""

    learner: str
    flops: float  # NaN: unknown, as nothing was counted
    relative_flops: float
    seconds: float  # the least: whatever else the machine does only adds
    relative_seconds: float  # median over pairs that were timed in turns
    relative_seconds_low: float  # 95 % confidence interval of the median
    relative_seconds_high: float
    reference_seconds: tuple[float, float]  # ER's shortest and longest job
    busy: bool  # the machine was too busy to tell the relative seconds
    memory_bytes: float  # indices and side arrays that the learner holds
    sample_bytes: float  # what the remembered samples themselves would take
    joules: float | None  # of a job, with what the devices take anyway
    joules_above_idle: float | None
    energy_source: str  # what counted, or why nothing could
    by_kind: dict[str, float]  # relative FLOPs by kind of job, where a learner has kinds


def measure(
    recipes: list[Recipe],
    *,
    input_shape: tuple[int, ...] = (3, 32, 32),
    classes: int = 100,
    batch: int = 10,
    jobs: int = 4,
    device: str = "cpu",
    timed: bool = True,
) -> list[JobCost]:
    """The cost of each learner's job, and of the ER with the same network and memory as 1. The
    memory is filled first; then `jobs` jobs are counted, or as many more as make whole cycles of a
    learner whose jobs take turns (`cycle`). With `timed`, jobs are timed in turns with ER's."""
    from streamgauge.models.features import device_named

    for what, number in (("batch", batch), ("jobs", jobs)):
        if number < 1:
            raise StreamgaugeError(f"{what} must be at least 1, not {number}.")
    conditions = (input_shape, classes, batch, device_named(device))
    return [_measure(recipe, conditions, jobs, timed) for recipe in recipes]


def _reference(recipe: Recipe) -> Recipe:
    mine, known = recipe.config, catalogue.learner("er").config
    shared = [name for name in _SHARED if hasattr(mine, name) and hasattr(known, name)]
    return catalogue.learner("er", **{name: getattr(mine, name) for name in shared})


class JobBenchmark:
    """A learner on generated samples with its memory filled: counts and times its work."""

    def __init__(
        self,
        recipe: Recipe,
        input_shape: tuple[int, ...],
        classes: int,
        batch: int,
        device: torch.device,
        jobs: int,  # at most so many are counted or timed
    ) -> None:
        capacity = int(getattr(recipe.config, "memory", 0) or 0)
        if capacity > MOST_FILLED:
            raise StreamgaugeError(
                f"To fill a memory of {capacity} takes long; measure with a smaller one, such as "
                f"--{recipe.name}.memory 100: the cost of a job does not depend on it."
            )
        self._filling = -(-capacity // batch)
        self._stream = _stream(input_shape, classes, batch, self._filling + WARM_UP + jobs)
        self._gate = Gate(self._stream.source, self._stream.preparation, device)
        self._step, self._device, self._needs = 0, device, recipe.needs
        self._tasks = np.array_split(np.arange(classes), 2)
        self.learner = recipe.build(self._stream.spec, self._gate, 0, device)
        self.adapter = LearnerAdapter(self.learner)
        self._threads = suitable_threads(
            lambda gate: recipe.build(self._stream.spec, gate, 0, device), self._stream, device
        )
        if "boundaries" in self._needs:
            self.adapter.tell_facts(boundary=0, classes=self._tasks[0])
        if "horizon" in self._needs:
            self.adapter.tell_facts(horizon=len(self._stream))

    def _next_batch(self) -> Batch:
        index = self._stream.index(self._step).astype(np.int64)
        self._step += 1
        self._gate.reveal(index)
        self._gate.label_due(index)
        self._batch = Batch(self._gate.read(index), self._gate.label(index), index)
        return self._batch

    def fill(self) -> None:
        """Fill the memory, where possible without training, take a few jobs, and end a task, so
        that a method with a teacher has one."""
        store = self.adapter.store
        for step in range(self._filling + WARM_UP):
            batch = self._next_batch()
            if step < self._filling and store is not None:
                store(batch)
            else:
                self.learner.learn(batch, self._answer(batch.x))
        if "boundaries" in self._needs:
            self.adapter.tell_facts(boundary=1, classes=self._tasks[1])

    def count_job(self) -> tuple[str, float, float]:
        """Kind and FLOPs of the next job, and FLOPs of answering one sample."""
        batch = self._next_batch()
        answer_flops, scores = _counted(lambda: self._answer(batch.x))
        kind = self.adapter.job_kind()
        flops, _ = _counted(lambda: self.learner.learn(batch, scores))
        return kind, flops, answer_flops / len(batch.index)

    def time_job(self) -> float:
        """Seconds of the next job."""
        batch = self._next_batch()
        self._scores = self._answer(batch.x)
        return self._seconds(self.repeat_job)

    def repeat_job(self) -> None:
        """The last timed job once more."""
        self.learner.learn(self._batch, self._scores)
        _wait(self._device)

    def time_answer(self, samples: int) -> float:
        """Seconds per sample of an answer to so many samples or a few more."""
        x = self._batch.x
        x = x.repeat(-(-samples // len(x)), *[1] * (x.dim() - 1))
        return self._seconds(lambda: self._answer(x)) / len(x)

    def prepare(self) -> tuple[float, float]:
        """FLOPs and seconds of the work before an evaluation; 0 where a learner has none."""
        prepare = self.adapter.prepare
        if prepare is None:
            return 0.0, 0.0
        counted: list[float] = []
        seconds = self._seconds(lambda: counted.append(_counted(prepare)[0]))
        return counted[0], seconds

    def _answer(self, x: torch.Tensor) -> torch.Tensor:
        return ask(self.learner, x, self._stream.spec.classes)

    def _seconds(self, work: Callable[[], Any]) -> float:
        """With as many threads as a run would take."""
        with threads(self._threads):
            _wait(self._device)
            start = time.perf_counter()
            work()
            _wait(self._device)
            return time.perf_counter() - start


def _counted(work: Callable[[], Any]) -> tuple[float, Any]:
    """FLOPs of some work, and its result."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = work()
    return float(counter.get_total_flops()), result


def _measure(recipe: Recipe, conditions: Conditions, jobs: int, timed: bool) -> JobCost:
    input_shape, *_, device = conditions
    cycle = _cycle(recipe, *conditions)
    jobs = -(-jobs // cycle) * cycle
    most = jobs + (cycle * most_pairs(cycle) if timed else 0)
    bench, er = (JobBenchmark(r, *conditions, most) for r in (recipe, _reference(recipe)))
    kinds: dict[str, list[float]] = {}
    bench.fill()
    er.fill()
    _, unit, _ = er.count_job()
    for _ in range(jobs):
        kind, flops, _ = bench.count_job()
        kinds.setdefault(kind, []).append(flops)
    turns = TurnSeconds((math.nan,), (math.nan,))
    energy = Energy(None, None, "not measured")
    if timed:
        turns = time_in_turns(bench.time_job, er.time_job, cycle)
        energy = of_job(bench.repeat_job, device)
    memory = bench.adapter.memory
    flops = statistics.fmean(f for of_kind in kinds.values() for f in of_kind) or math.nan
    low, high = turns.interval
    return JobCost(
        learner=recipe.name,
        flops=flops,
        relative_flops=flops / unit,
        seconds=min(turns.own),
        relative_seconds=turns.ratio,
        relative_seconds_low=low,
        relative_seconds_high=high,
        reference_seconds=(min(turns.reference), max(turns.reference)),
        busy=turns.busy,
        memory_bytes=bench.adapter.memory_bytes(),
        sample_bytes=float(len(memory) * np.prod(input_shape)) if memory is not None else 0.0,
        joules=energy.joules,
        joules_above_idle=energy.above_idle,
        energy_source=energy.source,
        by_kind={kind: statistics.fmean(of_kind) / unit for kind, of_kind in kinds.items()},
    )


def _cycle(
    recipe: Recipe, input_shape: tuple[int, ...], classes: int, batch: int, device: torch.device
) -> int:
    """Jobs after which a learner's work repeats."""
    stream = _stream(input_shape, classes, batch, 1)
    gate = Gate(stream.source, stream.preparation, device)
    learner = recipe.build(stream.spec, gate, 0, device)
    return min(LearnerAdapter(learner).cycle(batch), MOST_CYCLE)


def _stream(input_shape: tuple[int, ...], classes: int, batch: int, steps: int) -> Stream:
    rng = np.random.default_rng(0)
    count = steps * batch
    x = rng.integers(0, 256, (count, *input_shape), dtype=np.uint8)
    source = ArraySource(x, rng.integers(0, classes, count), classes=classes)
    return arrange(source, Arrangement(batch=batch))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def as_dict(cost: JobCost) -> dict[str, Any]:
    return dataclasses.asdict(cost)


def cost_text(costs: list[JobCost]) -> str:
    """A table for the terminal, and what could not be measured."""
    width = max([14, *(len(cost.learner) + 1 for cost in costs)])
    lines = [
        f"{'learner':<{width}}{'FLOPs':>10}{'time':>9}{'95 % interval':>16}{'GFLOP per job':>15}"
        f"{'ms per job':>12}{'memory':>14}{'samples':>12}"
    ]
    for cost in costs:
        known = not math.isnan(cost.flops)
        relative = f"{cost.relative_flops:.3f}x" if known else "unknown"
        interval = f"{cost.relative_seconds_low:.2f} to {cost.relative_seconds_high:.2f}"
        lines.append(
            f"{cost.learner:<{width}}{relative:>10}{cost.relative_seconds:>8.2f}x{interval:>16}"
            f"{f'{cost.flops / 1e9:.3f}' if known else 'unknown':>15}{1e3 * cost.seconds:>12.1f}"
            f"{bytes_text(cost.memory_bytes):>14}{bytes_text(cost.sample_bytes):>12}"
        )
        if len(cost.by_kind) > 1:
            kinds = ", ".join(f"{kind} {ratio:.3f}x" for kind, ratio in cost.by_kind.items())
            lines.append(f"{'':<{width}}by kind of job: {kinds}")
    lines.append(
        "FLOPs and time relative to er with the same network, batch and memory. Time: jobs of both "
        "in turns, median over pairs; ms per job: the least."
    )
    if any(math.isnan(cost.flops) for cost in costs):
        lines.append("FLOPs are unknown where none were counted: only torch's can be.")
    busy = [cost for cost in costs if cost.busy]
    if busy:
        # Of the learner with the greatest spread: each has an er of its own.
        short, long = max(
            (c.reference_seconds for c in busy), key=lambda times: times[1] / times[0]
        )
        names = ", ".join(cost.learner for cost in busy)
        lines.append(
            f"The machine was too busy to tell the time of {names}: a job of er took "
            f"{1e3 * short:.3g} to {1e3 * long:.3g} ms. FLOPs hold; for times, measure again when "
            "nothing else runs."
        )
    for cost in costs:
        if cost.joules is not None and cost.joules_above_idle is not None:
            lines.append(
                f"{cost.learner}: {cost.joules:.3g} J per job, {cost.joules_above_idle:.3g} J "
                f"above idle ({cost.energy_source})"
            )
    if costs and costs[0].joules is None:
        lines.append(f"Energy is not available: {costs[0].energy_source}.")
    return "\n".join(lines)
