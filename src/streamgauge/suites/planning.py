"""What a suite will take, before it begins: runs, steps, FLOPs, time and memory, as an estimate.

FLOPs of a training job and of an answer are counted on a few samples (convolutions and matrix
products; nothing else counts), times are measured on this machine, and both are multiplied by the
number of jobs and answers. Reading data, writing the log and a memory that is still filling are not
in it. Times are those of an idle machine: each is measured in turns with a matrix product that
lasts about as long, and multiplied by the shortest time of that product.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.clock import as_cost
from streamgauge.cost.turns import most_pairs, time_in_turns
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import class_prepares
from streamgauge.models.features import device_named
from streamgauge.running.determinism import threads
from streamgauge.running.evaluation import DueEvaluation, Heldout
from streamgauge.running.job_cost import JobBenchmark
from streamgauge.running.protocol import Protocol
from streamgauge.streams import Stream
from streamgauge.suites.running import PlannedRow, StoredRuns, distinct
from streamgauge.suites.spec import Row

FILL = 64  # samples in memory while measuring, or twice what a job draws if that is more
MOST = 10  # samples of a batch while measuring; the rest is proportion
PAIRS, SECONDS = 3, 0.5  # at least so many are timed, and no more after so many seconds
BLOCK = 64  # samples answered at once while measuring; a run answers up to 512
SIDE = 64  # pixels a side while measuring networks that average over any size


@dataclass(frozen=True)
class Work:
    """What one run does."""

    steps: int
    jobs: float  # batches that are trained on
    answered: int  # samples of the stream, and those again further ahead
    evaluated: int  # held-out samples answered, over all evaluations
    trainings: int  # from memory alone, before an evaluation
    data_bytes: float
    basis: str


@dataclass(frozen=True)
class Price:
    """FLOPs and seconds, as an array of both, of one job, answer and preparation here."""

    job: NDArray[np.float64]
    answer: NDArray[np.float64]
    prepare: NDArray[np.float64]
    held_bytes: float
    slowdown: float = 1.0  # of this machine while it was measured, by what else it did


class Pace:
    """A matrix product on a device as the unit of time."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._matrix = device, torch.full((192, 192), 1 / 192, device=device)
        self._products, self._spent, self._least = 0, 0.0, math.inf
        for _ in range(20):
            self._time(1)

    @property
    def slowdown(self) -> float:
        """How many times longer products took than when nothing else ran."""
        return self._spent / (self._products * self._least)

    def seconds(self, work: Callable[[], float]) -> float:
        """Seconds on an idle machine of a job that returns its seconds."""
        count = min(max(1, round(work() / self._least)), 10_000)
        turns = time_in_turns(work, lambda: self._time(count), least=PAIRS, seconds=SECONDS)
        return min(turns.ratio * self._least, *turns.own)  # other processes only add

    def _time(self, count: int) -> float:
        """Seconds of a product, mean over so many."""
        with threads(1):
            start = time.perf_counter()
            for _ in range(count):
                self._matrix = self._matrix @ self._matrix
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            spent = time.perf_counter() - start
        self._products, self._spent = self._products + count, self._spent + spent
        self._least = min(self._least, spent / count)
        return spent / count


@dataclass(frozen=True)
class Estimate:
    row: Row
    complete: int
    begun: int
    missing: int
    work: Work
    price: Price | None  # None: not measured
    why: str = ""
    shared: int = 0  # of the missing runs, those that a row before it asks for, too

    @property
    def to_run(self) -> int:
        return self.missing - self.shared

    @property
    def flops(self) -> float:
        return self._of_one_run[0]

    @property
    def seconds(self) -> float:
        return self._of_one_run[1]

    @property
    def _of_one_run(self) -> tuple[float, float]:
        work, price = self.work, self.price
        if price is None:
            return math.nan, math.nan
        answers = (work.answered + work.evaluated) * price.answer
        flops, seconds = work.jobs * price.job + answers + work.trainings * price.prepare
        return float(flops) or math.nan, float(seconds)  # nothing counted: unknown

    @property
    def memory(self) -> float:
        """Bytes of data, of samples in memory, and of what the learner keeps besides them."""
        return self.work.data_bytes + (0.0 if self.price is None else self.price.held_bytes)

    def as_plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "row": self.row.title,
            "complete": self.complete,
            "missing": self.missing,
            "to_run": self.to_run,
            "steps": self.work.steps,
            "jobs": self.work.jobs,
            "answers": self.work.answered + self.work.evaluated,
            "flops_a_run": self.flops,
            "seconds_a_run": self.seconds,
            "slowdown": 1.0 if self.price is None else self.price.slowdown,
            "bytes": self.memory,
            "basis": self.work.basis,
        }


def estimate(
    planned: Sequence[PlannedRow], stored: StoredRuns, device: str = "auto", measure: bool = True
) -> list[Estimate]:
    """One per row; the same network in the same stream is measured once."""
    prices: dict[str, Price | str] = {}
    pace = Pace(device_named(device)) if measure else None
    streams: dict[str, Stream | None] = {}
    by_row: dict[tuple[str, str], dict[int, PlannedRow]] = {}
    for planned_row in planned:
        by_row.setdefault(planned_row.row.key, {})[planned_row.seed] = planned_row
    missing_runs = [p for seeds in by_row.values() for p in seeds.values() if not stored.has(p)]
    to_run = Counter(planned_row.row.key for planned_row in distinct(missing_runs))
    estimates = []
    for key, by_seed in by_row.items():
        planned_row = next(iter(by_seed.values()))
        row, recipe = planned_row.row, planned_row.recipe
        complete = len(by_seed.keys() & stored.complete.get(key, {}))
        begun = len(by_seed.keys() & stored.begun.get(key, {}))
        if planned_row.stream_key not in streams:
            streams[planned_row.stream_key] = None
            with suppress(StreamgaugeError):  # its data are not on this machine
                streams[planned_row.stream_key] = planned_row.build_stream()
        stream = streams[planned_row.stream_key]
        work = _work(row, stream, planned_row.protocol)
        if not class_prepares(recipe.kind):
            work = dataclasses.replace(work, trainings=0)
        price: Price | str = "not measured"
        if pace is not None:
            shape, classes, batch = _measures(row, stream)
            name = repr((recipe.where, recipe.config, shape, classes, batch))
            if name not in prices:
                prices[name] = _price(recipe, shape, classes, batch, pace)
            price = prices[name]
        known = price if isinstance(price, Price) else None
        why = price if isinstance(price, str) else ""
        missing = len(by_seed) - complete
        shared = missing - to_run[key]
        estimates.append(Estimate(row, complete, begun, missing, work, known, why, shared))
    return estimates


def _work(row: Row, stream: Stream | None, protocol: Protocol) -> Work:
    if stream is not None:
        steps, samples, data = len(stream), stream.samples, len(stream.source)
        shape, basis = stream.spec.input_shape, "the stream itself"
        evaluated, trainings = _evaluated(stream, protocol)
    else:
        size, every = row.size, protocol.evaluate
        if "steps" not in size:
            raise StreamgaugeError(
                f"The data of the stream '{row.stream}' are not here, and the suite {row.suite} "
                f"does not say how large it is."
            )
        steps, samples, data = int(size["steps"]), size["samples"], size["samples"]
        shape, basis = size["shape"], "published sizes: the data are not here"
        trainings = {"end": 1, "boundaries": int(size.get("tasks", 20))}.get(str(every), 0)
        evaluated = 0 if every in ("end", "never") else int(size["evaluated"])
        if isinstance(every, int):  # the size is of evaluation after every step
            evaluated //= every
    return Work(
        steps=steps,
        jobs=float(steps / max(1.0, float(as_cost(protocol.cost)))),
        answered=int((1.0 + len(protocol.shifts)) * samples) if protocol.predict else 0,
        evaluated=evaluated,
        trainings=trainings,
        data_bytes=float(data * math.prod(shape)),
        basis=basis,
    )


def _evaluated(stream: Stream, protocol: Protocol) -> tuple[int, int]:
    """Held-out samples answered over all evaluations, and the number of these."""
    due = DueEvaluation(stream, protocol, torch.device("cpu"))
    splits = [Heldout(stream, split) for split in stream.splits.values()]
    total = evaluations = 0
    if not splits:
        return 0, 0
    for step in range(1, len(stream) + 1):
        boundary, regular, keep, probe = due(step)
        if not (boundary or regular or keep or probe):
            continue
        evaluations += 1
        current = -1 if stream.task is None else int(stream.task[step - 1])
        for heldout in splits:
            if boundary or keep or not heldout.split.at_boundaries:
                everything = keep or protocol.unseen
                seen = heldout.seen(current, int(stream.starts[step]))
                total += len(heldout) if everything else seen
    return total, evaluations


def _measures(row: Row, stream: Stream | None) -> tuple[tuple[int, ...], int, int]:
    if stream is not None:
        return tuple(stream.spec.input_shape), stream.spec.classes, stream.size
    return tuple(row.size["shape"]), int(row.size["classes"]), int(row.size["batch"])


def _price(
    recipe: Recipe, shape: tuple[int, ...], classes: int, batch: int, pace: Pace
) -> Price | str:
    """Counted and timed with a small memory, a small batch and, where the network takes any size,
    small images; then in proportion to the number of samples and pixels."""
    small, scale = _smaller(recipe, batch)
    area = 1.0
    if getattr(recipe.config, "model", "") in ("resnet18", "resnet50") and shape[-1] > SIDE:
        area = math.prod(shape[1:]) / SIDE**2
        shape = (shape[0], SIDE, SIDE)
    small_batch = max(2, round(batch / scale))
    try:
        bench = JobBenchmark(small, shape, classes, small_batch, pace.device, most_pairs(1) + 2)
        bench.fill()
        _, job_flops, answer_flops = bench.count_job()
        job_seconds = pace.seconds(bench.time_job)
        answer_seconds = pace.seconds(lambda: bench.time_answer(BLOCK))
        prepare = np.array(bench.prepare())
    except (StreamgaugeError, RuntimeError, ValueError) as problem:
        return f"cannot be measured: {str(problem).splitlines()[0]}"
    capacity = int(getattr(recipe.config, "memory", 0) or 0)
    small_capacity = max(1, int(getattr(small.config, "memory", 0) or 0))
    epochs = float(getattr(recipe.config, "epochs", 1) or 1)
    return Price(
        job=scale * area * np.array([job_flops, job_seconds]),
        answer=area * np.array([answer_flops, answer_seconds]),
        prepare=area * epochs * capacity / small_capacity * prepare,
        held_bytes=capacity * (math.prod(shape) * area + 8.0),
        slowdown=pace.slowdown,
    )


def _smaller(recipe: Recipe, batch: int) -> tuple[Recipe, float]:
    """The same learner with fewer samples a job, all kinds of them in proportion."""
    known = recipe.known_settings
    scale = max(1.0, batch / MOST)
    given = {} if recipe.config is None else dict(vars(recipe.config))
    for name in ("recall", "candidates", "subset", "train_batch"):
        if name in known and given.get(name):
            given[name] = max(1, round(given[name] / scale))
    for name, value in (("warmup", 0), ("wait", False), ("epochs", 1), ("weights", "")):
        if name in known:
            given[name] = value
    if "memory" in known:
        # So much that a job draws as many as from a full one.
        drawn = max(
            int(given.get("recall", 0)),
            int(given.get("candidates", 0)) * int(given.get("passes", 1)),
            int(given.get("subsets", 0)) * int(given.get("subset", 0)),
        )
        given["memory"] = min(int(given["memory"]), max(FILL, 2 * drawn))
    if "embedding" in known:
        given["embedding"] = 0
    return catalogue.learner(recipe.where, **given), scale
