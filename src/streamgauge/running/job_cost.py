"""What a method costs: FLOPs, seconds, bytes and energy of one training job, relative to ER.

FLOPs are those of matrix products and convolutions, forward and backward, as
`torch.utils.flop_counter` sees them at the level of operators: copies of a model, functional calls
and frozen layers are counted as what they do. Element-wise work (penalties, optimisers, batch norm)
counts as none, which is why seconds and bytes are given too.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.energy import of_job
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch
from streamgauge.streams import ArraySource, Gate, Stream, arrange
from streamgauge.streams.stream import Arrangement

if TYPE_CHECKING:
    import torch

MOST_CYCLE = 100  # jobs; a longer cycle is measured in part
TIMED = 8  # jobs that are timed at least
WARM_UP = 2  # jobs before any is counted
MOST_FILLED = 20_000  # samples of a memory that is filled to measure a job
# Settings that a method shares with the ER it is measured against.
_SHARED = ("model", "memory", "recall", "batch", "head", "augment")

Conditions = tuple[tuple[int, ...], int, int, "torch.device"]  # input shape, classes, batch, device


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one training job with the memory full, on average over the measured jobs."""

    learner: str
    flops: float
    relative_flops: float
    seconds: float
    relative_seconds: float
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
) -> list[Cost]:
    """The cost of each learner's job, and of the ER with the same network and memory as 1. The
    memory is filled first; then `jobs` jobs are counted, or as many more as make whole cycles of a
    learner whose jobs take turns (`cycle`), and the least of their times taken."""
    from streamgauge.models.features import device_named

    for what, number in (("batch", batch), ("jobs", jobs)):
        if number < 1:
            raise StreamgaugeError(f"{what} must be at least 1, not {number}.")
    conditions = (input_shape, classes, batch, device_named(device))
    costs = []
    references: dict[str, Cost] = {}
    for recipe in recipes:
        reference = _reference(recipe)
        key = repr(reference.config)
        if key not in references:
            references[key] = _measure(reference, conditions, jobs)
        er, mine = references[key], _measure(recipe, conditions, jobs)
        costs.append(
            dataclasses.replace(
                mine,
                relative_flops=mine.flops / er.flops,
                relative_seconds=mine.seconds / er.seconds,
                by_kind={kind: flops / er.flops for kind, flops in mine.by_kind.items()},
            )
        )
    return costs


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
                self.learner.learn(batch, self.learner.predict(batch.x))
        if "boundaries" in self._needs:
            self.adapter.tell_facts(boundary=1, classes=self._tasks[1])

    def count_job(self) -> tuple[str, float, float]:
        """Kind and FLOPs of the next job, and FLOPs of answering one sample."""
        batch = self._next_batch()
        answer_flops, scores = _counted(lambda: self.learner.predict(batch.x))
        kind = self.adapter.job_kind()
        flops, _ = _counted(lambda: self.learner.learn(batch, scores))
        return kind, flops, answer_flops / len(batch.index)

    def time_job(self) -> float:
        """Seconds of the next job."""
        batch = self._next_batch()
        self._scores = self.learner.predict(batch.x)
        return self._seconds(self.repeat_job)

    def repeat_job(self) -> None:
        """The last timed job once more."""
        self.learner.learn(self._batch, self._scores)
        _wait(self._device)

    def time_answer(self, samples: int) -> float:
        """Seconds per sample of an answer to so many samples or a few more."""
        x = self._batch.x
        x = x.repeat(-(-samples // len(x)), *[1] * (x.dim() - 1))
        return self._seconds(lambda: self.learner.predict(x)) / len(x)

    def prepare(self) -> tuple[float, float]:
        """FLOPs and seconds of the work before an evaluation; 0 where a learner has none."""
        prepare = self.adapter.prepare
        if prepare is None:
            return 0.0, 0.0
        start = time.perf_counter()
        flops, _ = _counted(prepare)
        _wait(self._device)
        return flops, time.perf_counter() - start

    def _seconds(self, work: Callable[[], Any]) -> float:
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


def _measure(recipe: Recipe, conditions: Conditions, jobs: int) -> Cost:
    """The cost of a job by itself: relative to a job of 1 FLOP and 1 second."""
    input_shape, *_, device = conditions
    cycle = _cycle(recipe, *conditions)
    jobs = -(-jobs // cycle) * cycle
    timed = max(jobs, -(-TIMED // cycle) * cycle)
    bench = JobBenchmark(recipe, *conditions, jobs + timed)
    bench.fill()
    kinds: dict[str, list[float]] = {}
    for _ in range(jobs):
        kind, flops, _ = bench.count_job()
        kinds.setdefault(kind, []).append(flops)
    times = [bench.time_job() for _ in range(timed)]
    memory = bench.adapter.memory
    flops = statistics.fmean(f for of_kind in kinds.values() for f in of_kind)
    # The least: whatever else the machine does only adds.
    seconds = min(statistics.fmean(times[i : i + cycle]) for i in range(0, timed, cycle))
    energy = of_job(bench.repeat_job, device)
    return Cost(
        learner=recipe.name,
        flops=flops,
        relative_flops=flops,
        seconds=seconds,
        relative_seconds=seconds,
        memory_bytes=bench.adapter.memory_bytes(),
        sample_bytes=float(len(memory) * np.prod(input_shape)) if memory is not None else 0.0,
        joules=energy.joules,
        joules_above_idle=energy.above_idle,
        energy_source=energy.source,
        by_kind={kind: statistics.fmean(of_kind) for kind, of_kind in kinds.items()},
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


def as_dict(cost: Cost) -> dict[str, Any]:
    return dataclasses.asdict(cost)


def cost_text(costs: list[Cost]) -> str:
    """A table for the terminal, and what could not be measured."""
    width = max([14, *(len(cost.learner) + 1 for cost in costs)])
    lines = [f"{'learner':<{width}}{'FLOPs':>10}{'time':>9}{'GFLOP per job':>15}{'ms per job':>12}"
             f"{'memory held':>14}{'samples':>12}"]  # fmt: skip
    for cost in costs:
        lines.append(
            f"{cost.learner:<{width}}{cost.relative_flops:>9.3f}x{cost.relative_seconds:>8.2f}x"
            f"{cost.flops / 1e9:>15.3f}{1e3 * cost.seconds:>12.1f}"
            f"{bytes_text(cost.memory_bytes):>14}{bytes_text(cost.sample_bytes):>12}"
        )
        if len(cost.by_kind) > 1:
            kinds = ", ".join(f"{kind} {ratio:.3f}x" for kind, ratio in cost.by_kind.items())
            lines.append(f"{'':<{width}}by kind of job: {kinds}")
    lines.append("FLOPs and time relative to er with the same network, batch and memory.")
    for cost in costs:
        if cost.joules is not None and cost.joules_above_idle is not None:
            lines.append(
                f"{cost.learner}: {cost.joules:.3g} J per job, {cost.joules_above_idle:.3g} J "
                f"above idle ({cost.energy_source})"
            )
    if costs and costs[0].joules is None:
        lines.append(f"Energy is not available: {costs[0].energy_source}.")
    return "\n".join(lines)


def bytes_text(count: float) -> str:
    """
    >>> bytes_text(5300), bytes_text(1.5e12), bytes_text(float("nan"))
    ('5 kB', '1.5 TB', '-')
    """
    if count != count:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
