"""What a method costs: FLOPs, seconds, bytes and energy of one training job, relative to ER.

FLOPs are those of matrix products and convolutions, forward and backward, as
`torch.utils.flop_counter` sees them at the level of operators: copies of a model, functional calls
and frozen layers are counted as what they do. Element-wise work (penalties, optimisers, batch norm)
counts as none, which is why seconds and bytes stand beside it.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.energy import Energy, of_job
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch
from streamgauge.streams import ArraySource, Gate, Stream, arrange
from streamgauge.streams.stream import Arrangement

if TYPE_CHECKING:
    import torch

MOST_CYCLE = 100  # jobs; a longer cycle is measured in part
TIMED = 8  # jobs that are timed at least
# Settings that a method shares with the ER it is measured against.
_SHARED = ("model", "memory", "recall", "batch", "head", "augment")


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
    """The cost of each learner's job, and of the ER with the same network and memory as 1.

    The memory is filled first; then `jobs` jobs are counted, or as many more as make whole cycles
    of a learner whose jobs take turns (`cycle`), and the least of their times taken.
    """
    from streamgauge.models.features import device_named

    for what, number in (("batch", batch), ("jobs", jobs)):
        if number < 1:
            raise StreamgaugeError(f"{what} must be at least 1, not {number}.")
    place = device_named(device)
    found = []
    references: dict[str, _Measured] = {}
    for recipe in recipes:
        reference = _reference(recipe)
        key = repr(reference.config)
        if key not in references:
            references[key] = _measure(reference, input_shape, classes, batch, jobs, place)
        er, mine = (
            references[key],
            _measure(recipe, input_shape, classes, batch, jobs, place),
        )
        found.append(
            Cost(
                recipe.name,
                mine.flops,
                mine.flops / er.flops,
                mine.seconds,
                mine.seconds / er.seconds,
                mine.memory_bytes,
                mine.sample_bytes,
                mine.energy.joules,
                mine.energy.above_idle,
                mine.energy.source,
                {kind: flops / er.flops for kind, flops in mine.by_kind.items()},
            )
        )
    return found


@dataclasses.dataclass
class _Measured:
    flops: float
    seconds: float
    memory_bytes: float
    sample_bytes: float
    energy: Energy
    by_kind: dict[str, float]


def _reference(recipe: Recipe) -> Recipe:
    settings = {
        name: getattr(recipe.config, name)
        for name in _SHARED
        if recipe.config is not None and hasattr(recipe.config, name)
    }
    known = catalogue.learner("er").config
    return catalogue.learner("er", **{k: v for k, v in settings.items() if hasattr(known, k)})


def _measure(
    recipe: Recipe,
    input_shape: tuple[int, ...],
    classes: int,
    batch: int,
    jobs: int,
    device: torch.device,
) -> _Measured:
    from torch.utils.flop_counter import FlopCounterMode

    capacity = int(getattr(recipe.config, "memory", 0) or 0)
    if capacity > 20_000:
        raise StreamgaugeError(
            f"To fill a memory of {capacity} takes long; measure with a smaller one, such as "
            f"--{recipe.name}.memory 100: the cost of a job does not depend on it."
        )
    filling = -(-capacity // batch) + 2
    cycle = _cycle(recipe, input_shape, classes, batch, device)
    jobs = -(-jobs // cycle) * cycle
    timed = max(jobs, -(-TIMED // cycle) * cycle)
    stream = _stream(input_shape, classes, batch, filling + jobs + timed)
    gate = Gate(stream.source, stream.preparation, device)
    learner = recipe.build(stream.spec, gate, 0, device)
    adapter = LearnerAdapter(learner)
    tasks = np.array_split(np.arange(classes), 2)
    if "boundaries" in recipe.needs:
        adapter.tell_facts(boundary=0, classes=tasks[0])
    if "horizon" in recipe.needs:
        adapter.tell_facts(horizon=len(stream))
    kinds: dict[str, list[float]] = {}
    times: list[float] = []
    for step in range(len(stream)):
        index = stream.index(step).astype(np.int64)
        gate.reveal(index)
        gate.label_due(index)
        given = Batch(gate.read(index), gate.label(index), index)
        if step == filling and "boundaries" in recipe.needs:  # a task is over: a teacher is there
            adapter.tell_facts(boundary=1, classes=tasks[1])
        if step < filling - 2 and adapter.store is not None:
            adapter.store(given)  # fills the memory without paying for training
        elif step < filling:
            learner.learn(given, learner.predict(given.x))
        elif step < filling + jobs:
            predicted = learner.predict(given.x)
            kind = adapter.job_kind()
            with FlopCounterMode(display=False) as counter:
                learner.learn(given, predicted)
            kinds.setdefault(kind, []).append(float(counter.get_total_flops()))
        else:
            predicted = learner.predict(given.x)
            start = time.perf_counter()
            learner.learn(given, predicted)
            _wait(device)
            times.append(time.perf_counter() - start)

    def again() -> None:
        learner.learn(given, predicted)
        _wait(device)

    memory = adapter.memory
    return _Measured(
        flops=statistics.fmean(f for flops in kinds.values() for f in flops),
        # The least: whatever else the machine does only adds.
        seconds=min(statistics.fmean(times[i : i + cycle]) for i in range(0, timed, cycle)),
        memory_bytes=adapter.memory_bytes(),
        sample_bytes=float(len(memory) * np.prod(input_shape)) if memory is not None else 0.0,
        energy=of_job(again, device),
        by_kind={kind: statistics.fmean(flops) for kind, flops in kinds.items()},
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
    wide = max([14, *(len(one.learner) + 1 for one in costs)])
    lines = [f"{'learner':<{wide}}{'FLOPs':>10}{'time':>9}{'GFLOP a job':>14}{'ms a job':>11}"
             f"{'memory held':>14}{'samples':>12}"]  # fmt: skip
    for one in costs:
        lines.append(
            f"{one.learner:<{wide}}{one.relative_flops:>9.3f}x{one.relative_seconds:>8.2f}x"
            f"{one.flops / 1e9:>14.3f}{1e3 * one.seconds:>11.1f}"
            f"{_bytes(one.memory_bytes):>14}{_bytes(one.sample_bytes):>12}"
        )
        if len(one.by_kind) > 1:
            kinds = ", ".join(f"{kind} {ratio:.3f}x" for kind, ratio in one.by_kind.items())
            lines.append(f"{'':<{wide}}by kind of job: {kinds}")
    lines.append("FLOPs and time relative to er with the same network, batch and memory.")
    for one in costs:
        if one.joules is not None and one.joules_above_idle is not None:
            lines.append(
                f"{one.learner}: {one.joules:.3g} J a job, {one.joules_above_idle:.3g} J above "
                f"idle ({one.energy_source})"
            )
    if costs and costs[0].joules is None:
        lines.append(f"Energy is not available: {costs[0].energy_source}.")
    return "\n".join(lines)


def _bytes(count: float) -> str:
    if count != count:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} TB"
