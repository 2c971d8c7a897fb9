"""A learner that trains on one request after another, in a thread or in a process of its own.

A trainer receives requests and returns the learner's whole state as bytes, so that a state is
either complete or not there.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streamgauge.catalogue import Recipe
from streamgauge.cost.flops import Meter
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch
from streamgauge.live.dispatcher import Ints, TrainingRequest, Update
from streamgauge.live.spool import SpoolGate, SpoolSource
from streamgauge.memory import Memory, RingPerClass
from streamgauge.running import jobs
from streamgauge.streams import ArraySource, Gate, Source, Spec
from streamgauge.streams.gate import fetch_labels

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner

NO_ADDRESSES: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Setup:
    """What a trainer needs besides the recipe of its learner."""

    spec: Spec
    source: Source
    batch: int  # samples of a usual batch
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    preparation: Ints = field(default_factory=lambda: NO_ADDRESSES)
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the learner, before the first step

    def build(self, recipe: Recipe, gate: Gate) -> LearnerAdapter:
        """A new learner, with the facts that it is told before the first step."""
        import torch

        learner = recipe.build(self.spec, gate, self.seed, torch.device(self.device))
        adapter = LearnerAdapter(learner)
        adapter.tell_facts(**self.facts)
        return adapter


class LocalTrainer:
    """Trains in the thread that calls `train`."""

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        state: dict[str, Any] | None = None,
        known: Ints = NO_ADDRESSES,
    ) -> None:
        """A learner that goes on from a `state` may read the addresses in `known`, which it has
        learnt before."""
        import torch

        self.setup = setup
        self.device = torch.device(setup.device)
        warm_up(recipe, setup)
        self.gate = gate_for(setup.source, setup.preparation, self.device)
        self.adapter = setup.build(recipe, self.gate)
        self.learner = self.adapter.learner
        self.meter = Meter(self.adapter.work, self.adapter.sees_input)
        if state is not None:
            self.gate.label_due(known)
            self.learner.load_state_dict(state)

    def train(self, request: TrainingRequest) -> Update:
        import torch

        source, index = self.setup.source, request.index
        if isinstance(source, SpoolSource) and request.slots is not None:
            source.add_slots(index, request.slots)
        began = time.perf_counter()
        self.gate.reveal(index)
        self.gate.label_due(index)
        for facts in request.facts:
            self.adapter.tell_facts(**facts)
        scores = request.predicted
        predicted = None if scores is None else torch.from_numpy(scores).to(self.device)
        batch = _batch(source, index, self.adapter, self.device)
        returned = jobs.train(self.learner, self.meter, batch, predicted)
        scalars = {name: float(value) for name, value in returned.items()}
        seconds = time.perf_counter() - began
        kept = NO_ADDRESSES
        if isinstance(source, SpoolSource):
            kept = stored_addresses(self.adapter)
            source.keep_only(kept)
        state = self.learner.state_dict()
        return Update(state, scalars, seconds, self.adapter.memory_bytes(), kept, self.meter.flops)


def _batch(source: Source, index: Ints, adapter: LearnerAdapter, device: torch.device) -> Batch:
    x = jobs.inputs(source, index, adapter, device)
    return Batch(x, fetch_labels(source, index, device), index)


def gate_for(source: Source, preparation: Ints, device: torch.device) -> Gate:
    if isinstance(source, SpoolSource):
        return cast(Gate, SpoolGate(source, device))
    return Gate(source, preparation, device)


def warm_up(recipe: Recipe, setup: Setup, times: int = 3) -> None:
    """Train and predict a few times on zeros with a temporary learner, so that the first step of
    the stream does not pay for what libraries do at their first use."""
    import torch

    spec, count = setup.spec, 4 * setup.batch
    dtype = getattr(setup.source, "dtype", None) or _dtype(setup.source)
    zeros = np.zeros((count, *spec.input_shape), dtype)
    source = ArraySource(zeros, np.arange(count) % spec.classes, classes=spec.classes)
    device = torch.device(setup.device)
    gate = Gate(source, np.arange(count), device)
    # A learner that fails on zeros starts cold; the data of the stream may well suit it.
    with contextlib.suppress(Exception):
        adapter = setup.build(recipe, gate)
        meter = Meter(adapter.work, adapter.sees_input)
        for number in range(times):
            index = np.arange(setup.batch) + number * setup.batch
            batch = _batch(source, index, adapter, device)
            adapter.learner.predict(batch.x)
            jobs.train(adapter.learner, meter, batch, None)
            unpack(pack(adapter.learner.state_dict()))


def _dtype(source: Source) -> Any:
    return source.read(np.zeros(1, np.int64)).dtype if len(source) else np.float32


def memories(learner: Learner) -> list[Memory]:
    """The memories of addresses among the attributes of a learner."""
    memories: list[Memory] = []
    for value in vars(learner).values():
        values: Iterable[Any] = value if type(value) in (list, tuple) else (value,)
        memories += [value for value in values if isinstance(value, Memory)]
    return memories


def stored_addresses(adapter: LearnerAdapter) -> Ints:
    """Addresses that a learner may still read."""
    learner = adapter.learner
    if adapter.stored_addresses is not None:
        return np.unique(np.asarray(adapter.stored_addresses(), np.int64))
    parts = [memory.index[memory.slots()] for memory in memories(learner)]
    parts += [value.index for value in vars(learner).values() if isinstance(value, Batch)]
    return np.unique(np.concatenate([NO_ADDRESSES, *parts]))


def max_samples(memory: Memory, spec: Spec) -> int | None:
    """The most samples that a memory will ever hold; None without a limit."""
    if not memory.bounded:
        return None
    if isinstance(memory, RingPerClass):
        return memory.per_class * spec.classes
    return memory.capacity


class _Tensor(NamedTuple):
    array: Any


def pack(state: Any) -> bytes:
    """A state as bytes. Arrays are pickled ten times as fast as tensors."""
    return pickle.dumps(_converted(state, _to_array), protocol=5)


def unpack(data: bytes) -> Any:
    return _converted(pickle.loads(data), _to_tensor)


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert the leaves of nested dictionaries, lists and tuples."""
    if isinstance(value, dict):
        return {key: _converted(item, convert) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_converted(item, convert) for item in value)
    return convert(value)


def _to_array(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    try:
        return _Tensor(value.numpy())
    except (TypeError, RuntimeError):  # a type that NumPy does not have
        return value


def _to_tensor(value: Any) -> Any:
    import torch

    if not isinstance(value, _Tensor):
        return value
    return torch.from_numpy(np.require(value.array, requirements="W"))
