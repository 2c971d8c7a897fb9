"""What a suite will take, before it begins: runs, steps, FLOPs, time and memory, as an estimate.

FLOPs of a training job and of an answer are counted on a few samples (convolutions and matrix
products; nothing else counts), times are measured on this machine, and both are multiplied by the
number of jobs and answers. Reading data, writing the log and a memory that is still filling are not
in it, and a machine that is busy with something else is slower.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.clock import as_cost
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import class_prepares
from streamgauge.models.features import device_named
from streamgauge.running.evaluation import Due, Heldout
from streamgauge.running.job_cost import JobBenchmark
from streamgauge.running.protocol import Protocol
from streamgauge.settings import setting_types
from streamgauge.streams import Stream
from streamgauge.suites.finding import PlannedRow, StoredRuns, distinct
from streamgauge.suites.spec import Row

FILL = 64  # samples in memory while measuring, or twice what a job draws if that is more
MOST = 10  # samples of a batch while measuring; the rest is proportion
TIMED = 3  # jobs that are timed
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
    """What one of it costs on this machine."""

    job_flops: float
    job_seconds: float
    answer_flops: float
    answer_seconds: float
    prepare_flops: float
    prepare_seconds: float
    held_bytes: float


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
        """Of one run."""
        if self.price is None:
            return math.nan
        return self._sum(self.price.job_flops, self.price.answer_flops, self.price.prepare_flops)

    @property
    def seconds(self) -> float:
        if self.price is None:
            return math.nan
        price = self.price
        return self._sum(price.job_seconds, price.answer_seconds, price.prepare_seconds)

    def _sum(self, job: float, answer: float, prepare: float) -> float:
        work = self.work
        return (
            work.jobs * job + (work.answered + work.evaluated) * answer + work.trainings * prepare
        )

    @property
    def memory(self) -> float:
        """Bytes of data, of samples in memory, and of what the learner keeps beside them."""
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
            "bytes": self.memory,
            "basis": self.work.basis,
        }


def estimate(
    planned: Sequence[PlannedRow],
    stored: StoredRuns,
    device: str = "auto",
    measure: bool = True,
) -> list[Estimate]:
    """One per row; the same network in the same stream is measured once."""
    prices: dict[str, Price | str] = {}
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
            streams[planned_row.stream_key] = _stream_if_here(planned_row)
        stream = streams[planned_row.stream_key]
        work = _work(row, stream, planned_row.protocol)
        if not class_prepares(recipe.kind):
            work = dataclasses.replace(work, trainings=0)
        price: Price | str = "not measured"
        if measure:
            shape, classes, batch = _measures(row, stream)
            name = repr((recipe.where, recipe.config, shape, classes, batch))
            if name not in prices:
                prices[name] = _price(recipe, shape, classes, batch, device)
            price = prices[name]
        known = price if isinstance(price, Price) else None
        why = price if isinstance(price, str) else ""
        missing = len(by_seed) - complete
        shared = missing - to_run[key]
        estimates.append(Estimate(row, complete, begun, missing, work, known, why, shared))
    return estimates


def _stream_if_here(planned: PlannedRow) -> Stream | None:
    try:
        return planned.build_stream()
    except StreamgaugeError:  # its data are not on this machine
        return None


def _work(row: Row, stream: Stream | None, protocol: Protocol) -> Work:
    every = 0.0 if not protocol.predict else 1.0 + len(protocol.shifts)
    cost = max(1.0, float(as_cost(protocol.cost)))
    if stream is None:
        size = row.size
        if "steps" not in size:
            raise StreamgaugeError(
                f"The data of the stream '{row.stream}' are not here, and the suite {row.suite} "
                f"does not say how large it is."
            )
        evaluated = int(size["evaluated"])
        trainings = 0
        if protocol.evaluate == "end":
            trainings = 1
        elif protocol.evaluate == "boundaries":
            trainings = int(size.get("tasks", 20))
        if protocol.evaluate in ("end", "never"):
            evaluated = 0
        elif isinstance(protocol.evaluate, int):  # the size is of evaluation after every step
            evaluated //= protocol.evaluate
        return Work(
            steps=int(size["steps"]),
            jobs=float(int(size["steps"]) / cost),
            answered=int(every * size["samples"]),
            evaluated=evaluated,
            trainings=trainings,
            data_bytes=float(size["samples"] * math.prod(size["shape"])),
            basis="published sizes: the data are not here",
        )
    evaluated, evaluations = _evaluated(stream, protocol)
    return Work(
        steps=len(stream),
        jobs=float(len(stream) / cost),
        answered=int(every * stream.samples),
        evaluated=evaluated,
        trainings=evaluations,
        data_bytes=float(len(stream.source) * math.prod(stream.spec.input_shape)),
        basis="the stream itself",
    )


def _evaluated(stream: Stream, protocol: Protocol) -> tuple[int, int]:
    """Held-out samples answered over all evaluations, and the number of these."""
    import torch

    due = Due(stream, protocol, torch.device("cpu"))
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
    recipe: Recipe, shape: tuple[int, ...], classes: int, batch: int, device: str
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
        bench = JobBenchmark(small, shape, classes, small_batch, device_named(device), TIMED + 1)
        bench.fill()
        timed = [(bench.time_answer(BLOCK), bench.time_job()) for _ in range(TIMED)]
        _, job_flops, answer_flops = bench.count_job()
        prepare_flops, prepare_seconds = bench.prepare()
    except (StreamgaugeError, RuntimeError, ValueError) as problem:
        return f"cannot be measured: {str(problem).splitlines()[0]}"
    whole = scale * area
    capacity = int(getattr(recipe.config, "memory", 0) or 0)
    small_capacity = max(1, int(getattr(small.config, "memory", 0) or 0))
    epochs = float(getattr(recipe.config, "epochs", 1) or 1)
    prepared = area * epochs * capacity / small_capacity
    return Price(
        job_flops=job_flops * whole,
        job_seconds=statistics.median(job for _, job in timed) * whole,
        answer_flops=answer_flops * area,
        answer_seconds=statistics.median(answer for answer, _ in timed) * area,
        prepare_flops=prepare_flops * prepared,
        prepare_seconds=prepare_seconds * prepared,
        held_bytes=capacity * (math.prod(shape) * area + 8.0),
    )


def _smaller(recipe: Recipe, batch: int) -> tuple[Recipe, float]:
    """The same learner with fewer samples a job, all kinds of them in proportion."""
    kind = catalogue.config_type_of(recipe.kind)
    known = set() if kind is None else set(setting_types(kind))
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
