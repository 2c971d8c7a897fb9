"""What a suite will take, before it begins: runs, steps, FLOPs, time and memory, as an estimate.

FLOPs of a training job and of an answer are counted on a few samples (convolutions and matrix
products; nothing else counts), times are measured on this machine, and both are multiplied by the
number of jobs and answers. Reading data, writing the log and a memory that is still filling are not
in it, and a machine that is busy with something else is slower.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.clock import as_cost
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter, class_prepares
from streamgauge.learners.base import Batch
from streamgauge.models.features import device_named
from streamgauge.running.evaluation import Due, Heldout
from streamgauge.running.protocol import Protocol
from streamgauge.settings import setting_types
from streamgauge.streams import ArraySource, Gate, Stream, arrange
from streamgauge.streams.stream import Arrangement
from streamgauge.suites.finding import Found, Job, build_stream, distinct
from streamgauge.suites.spec import Row

FILL = 64  # samples in memory while measuring, or twice what a job draws if that is more
MOST = 10  # samples of a batch while measuring; the rest is proportion
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


def estimate(
    rows: Sequence[Row],
    found: Found,
    seeds: Sequence[int] | None = None,
    device: str = "auto",
    measure: bool = True,
) -> list[Estimate]:
    """One for each row; the same network in the same stream is measured once."""
    prices: dict[str, Price | str] = {}
    streams: dict[str, Stream | None] = {}
    out = []
    missing_jobs = [
        Job(row, seed)
        for row in rows
        for seed in sorted(set(seeds or range(row.seeds)))
        if seed not in found.complete.get(row.key, {})
    ]
    first = Counter(job.row.key for job in distinct(missing_jobs))
    for row in rows:
        wanted = set(seeds or range(row.seeds))
        complete = len(wanted & set(found.complete.get(row.key, {})))
        begun = len(wanted & set(found.begun.get(row.key, {})))
        planned, of_stream, protocol = Job(row, 0).resolve()
        key = repr((row.stream, row.on, sorted(of_stream.items())))
        if key not in streams:
            streams[key] = _stream_if_here(row, of_stream)
        stream = streams[key]
        recipe, work = planned.recipe, _work(row, stream, protocol)
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
        missing = len(wanted) - complete
        shared = missing - first[row.key]
        out.append(Estimate(row, complete, begun, missing, work, known, why, shared))
    return out


def _stream_if_here(row: Row, settings: Mapping[str, Any]) -> Stream | None:
    try:
        return build_stream(row, settings)
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
    place = device_named(device)
    small, scale = _smaller(recipe, batch)
    area = 1.0
    if getattr(recipe.config, "model", "") in ("resnet18", "resnet50") and shape[-1] > SIDE:
        area = math.prod(shape[1:]) / SIDE**2
        shape = (shape[0], SIDE, SIDE)
    try:
        found = _measure(small, shape, classes, max(2, round(batch / scale)), place)
    except (StreamgaugeError, RuntimeError, ValueError) as problem:
        return f"cannot be measured: {str(problem).splitlines()[0]}"
    whole = scale * area
    capacity = int(getattr(recipe.config, "memory", 0) or 0)
    held = max(1, int(getattr(small.config, "memory", 0) or 0))
    again = float(getattr(recipe.config, "epochs", 1) or 1)
    sample = math.prod(shape) * area
    return Price(
        job_flops=found.job_flops * whole,
        job_seconds=found.job_seconds * whole,
        answer_flops=found.answer_flops * area,
        answer_seconds=found.answer_seconds * area,
        prepare_flops=found.prepare_flops * area * again * capacity / held,
        prepare_seconds=found.prepare_seconds * area * again * capacity / held,
        held_bytes=capacity * (sample + 8.0),
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


def _measure(
    recipe: Recipe, shape: tuple[int, ...], classes: int, batch: int, device: Any
) -> Price:
    from torch.utils.flop_counter import FlopCounterMode

    filling = -(-(int(getattr(recipe.config, "memory", 0) or 0) + batch) // batch)
    steps = filling + 3
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (steps * batch, *shape), dtype=np.uint8)
    source = ArraySource(x, rng.integers(0, classes, len(x)), classes=classes)
    stream = arrange(source, Arrangement(batch=batch))
    gate = Gate(stream.source, stream.preparation, device)
    learner = recipe.build(stream.spec, gate, 0, device)
    adapter = LearnerAdapter(learner)
    halves = np.array_split(np.arange(classes), 2)
    if "boundaries" in recipe.needs:
        adapter.tell_facts(boundary=0, classes=halves[0])
    if "horizon" in recipe.needs:
        adapter.tell_facts(horizon=steps)
    flops = answers = 0.0
    seconds: list[float] = []
    asked: list[float] = []
    for step in range(steps):
        index = stream.index(step).astype(np.int64)
        gate.reveal(index)
        gate.label_due(index)
        given = Batch(gate.read(index), gate.label(index), index)
        if step == filling and "boundaries" in recipe.needs:
            adapter.tell_facts(boundary=1, classes=halves[1])
        if step < filling - 1 and adapter.store is not None:
            adapter.store(given)
        elif step == steps - 1:  # the last one is counted, which takes longer
            with FlopCounterMode(display=False) as counter:
                predicted = learner.predict(given.x)
            answers = counter.get_total_flops() / batch
            with FlopCounterMode(display=False) as counter:
                learner.learn(given, predicted)
            flops = float(counter.get_total_flops())
        else:
            many = given.x.repeat(-(-BLOCK // batch), *[1] * len(shape))
            start = time.perf_counter()
            float(learner.predict(many).sum())  # the sum waits for a device
            asked.append((time.perf_counter() - start) / len(many))
            predicted = learner.predict(given.x)
            middle = time.perf_counter()
            learner.learn(given, predicted)
            float(learner.predict(given.x[:1]).sum())
            seconds.append(time.perf_counter() - middle)
    again = longer = 0.0
    if adapter.prepare is not None:
        start = time.perf_counter()
        with FlopCounterMode(display=False) as counter:
            adapter.prepare()
        longer = time.perf_counter() - start
        again = float(counter.get_total_flops())
    return Price(
        job_flops=flops,
        job_seconds=float(np.median(seconds)),
        answer_flops=answers,
        answer_seconds=float(np.median(asked)),
        prepare_flops=again,
        prepare_seconds=longer,
        held_bytes=0.0,
    )
