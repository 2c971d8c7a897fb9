"""Where training is done, in a thread or in a process of its own: a learner and its view of data.

What travels between a trainer and whoever serves is a job one way and the learner's whole state
the other way, as bytes: a state is complete or it is not there.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streamgauge.catalogue import Recipe
from streamgauge.cost.flops import Meter
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch
from streamgauge.live.answers import inputs
from streamgauge.live.desk import Ints, Job, Update
from streamgauge.live.spool import SpoolGate, SpoolSource
from streamgauge.memory import Memory, RingPerClass
from streamgauge.streams import ArraySource, Gate, Source, Spec
from streamgauge.streams.gate import fetch_labels

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner

NOTHING: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Setup:
    """All that a trainer needs beside the recipe."""

    spec: Spec
    source: Source
    batch: int  # samples of a usual batch
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    preparation: Ints = field(default_factory=lambda: NOTHING)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what it is told before the first step


class Bench:
    """A learner at work, one job after the other."""

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        state: dict[str, Any] | None = None,
        known: Ints = NOTHING,
    ) -> None:
        """`known` are addresses that were learnt before: a learner that goes on from a state may
        read them."""
        import torch

        self.setup = setup
        self.device = torch.device(setup.device)
        warm_up(recipe, setup)
        self.gate = gate_for(setup.source, setup.preparation, self.device)
        self.learner = recipe.build(setup.spec, self.gate, setup.seed, self.device)
        tell(self.learner, setup.facts)
        self.adapter = LearnerAdapter(self.learner)
        self.meter = Meter(self.adapter.work, self.adapter.sees_input)
        if state is not None:
            self.gate.label_due(known)
            self.learner.load_state_dict(state)

    def do(self, job: Job) -> Update:
        import torch

        source = self.setup.source
        if isinstance(source, SpoolSource) and job.places is not None:
            source.place(job.index, job.places)
        began = time.perf_counter()
        self.gate.reveal(job.index)
        self.gate.label_due(job.index)
        for facts in job.told:
            tell(self.learner, facts)
        batch = Batch(
            inputs(source, job.index, self.learner, self.device),
            fetch_labels(source, job.index, self.device),
            job.index,
        )
        scores = job.predicted
        predicted = None if scores is None else torch.from_numpy(scores).to(self.device)
        with self.meter.job("learn", len(batch.y), predicted is None):
            said = self.learner.learn(batch, predicted)
        scalars = {name: float(value) for name, value in (said or {}).items()}
        seconds = time.perf_counter() - began
        held = NOTHING
        if isinstance(source, SpoolSource):
            held = addresses(self.learner)
            source.forget_but(held)
        state = self.learner.state_dict()
        stored = self.adapter.memory_bytes()
        return Update(state, scalars, seconds, stored, held, self.meter.flops)


def gate_for(source: Source, preparation: Ints, device: torch.device) -> Gate:
    if isinstance(source, SpoolSource):
        return cast(Gate, SpoolGate(source, device))
    return Gate(source, preparation, device)


def tell(learner: Learner, facts: Mapping[str, Any]) -> None:
    LearnerAdapter(learner).tell_facts(**facts)


def warm_up(recipe: Recipe, setup: Setup, times: int = 3) -> None:
    """Learn and predict a few times with a learner that is thrown away, on blank data, so that the
    first step of the stream does not pay for what a library does at its first use."""
    import torch

    spec, count = setup.spec, 4 * setup.batch
    dtype = getattr(setup.source, "dtype", None) or _dtype(setup.source)
    blank = np.zeros((count, *spec.input_shape), dtype)
    source = ArraySource(blank, np.arange(count) % spec.classes, classes=spec.classes)
    device = torch.device(setup.device)
    gate = Gate(source, np.arange(count), device)
    # A learner that cannot do this much on blanks starts cold; its own data may well suit it.
    with contextlib.suppress(Exception):
        learner = recipe.build(spec, gate, setup.seed, device)
        tell(learner, setup.facts)
        adapter = LearnerAdapter(learner)
        meter = Meter(adapter.work, adapter.sees_input)
        for number in range(times):
            index = np.arange(setup.batch) + number * setup.batch
            x = inputs(source, index, learner, device)
            learner.predict(x)
            with meter.job("learn"):
                learner.learn(Batch(x, fetch_labels(source, index, device), index), None)
            unpack(pack(learner.state_dict()))


def _dtype(source: Source) -> Any:
    return source.read(np.zeros(1, np.int64)).dtype if len(source) else np.float32


def memories(learner: Learner) -> list[Memory]:
    """The memories of addresses that a learner has, found among its members."""
    found: list[Memory] = []
    for value in vars(learner).values():
        several: Iterable[Any] = value if type(value) in (list, tuple) else (value,)
        found += [one for one in several if isinstance(one, Memory)]
    return found


def addresses(learner: Learner) -> Ints:
    """Addresses that a learner may still read."""
    stored = LearnerAdapter(learner).stored_addresses
    if stored is not None:
        return np.unique(np.asarray(stored(), np.int64))
    parts = [memory.index[memory.slots()] for memory in memories(learner)]
    parts += [value.index for value in vars(learner).values() if isinstance(value, Batch)]
    return np.unique(np.concatenate([NOTHING, *parts]))


def room(memory: Memory, spec: Spec) -> int | None:
    """The most samples a memory will ever hold; None without a limit."""
    if not memory.bounded:
        return None
    if isinstance(memory, RingPerClass):
        return memory.per_class * spec.classes
    return memory.capacity


class _Tensor(NamedTuple):
    array: Any


def pack(state: Any) -> bytes:
    """A state as bytes. Arrays travel ten times as fast as tensors do."""
    return pickle.dumps(_to_arrays(state), protocol=5)


def unpack(data: bytes) -> Any:
    return _to_tensors(pickle.loads(data))


def _to_arrays(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        try:
            return _Tensor(value.numpy())
        except (TypeError, RuntimeError):  # a type that NumPy does not have
            return value
    if isinstance(value, dict):
        return {key: _to_arrays(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to_arrays(item) for item in value)
    return value


def _to_tensors(value: Any) -> Any:
    import torch

    if isinstance(value, _Tensor):
        return torch.from_numpy(np.require(value.array, requirements="W"))
    if isinstance(value, dict):
        return {key: _to_tensors(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to_tensors(item) for item in value)
    return value
