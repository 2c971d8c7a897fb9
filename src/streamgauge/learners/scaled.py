"""A learner on standardised inputs: the statistics are a part of the learner.

They change when a batch is trained, are stored with the learner's state, and apply to everything
it reads. So an answer of an older version, a replayed sample and an evaluation are all read with
the statistics of the version that reads them, in runs and in live services alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.models.base import at_hand
from streamgauge.streams.gate import to_device
from streamgauge.streams.scaling import OnlineScaler

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners.base import Batch, Learner
    from streamgauge.streams import Gate
    from streamgauge.streams.source import IntArray

AnyLearner = TypeVar("AnyLearner", bound="Learner")
STATE = "input_scaler"  # key in the learner's state


def build_scaled(make: Callable[[Gate], AnyLearner], gate: Gate) -> AnyLearner:
    """The learner that `make` builds, on inputs standardised online where the source asks for it.

    Samples of the preparation part, which are known before the stream, are the first statistics.
    """
    if not getattr(gate, "scaled", 0):
        return make(gate)
    scaler = OnlineScaler(gate.spec.input_shape[0], gate.scaled)
    if len(gate.preparation):
        scaler.update(gate.read(gate.preparation))
    inputs = ScaledGate(gate, scaler)
    learner = make(cast("Gate", inputs))
    if LearnerAdapter(learner).sees_input:
        _Scaling(scaler, learner)
    return learner


class ScaledGate:
    """A gate whose inputs are standardised with the current statistics."""

    def __init__(self, gate: Gate, scaler: OnlineScaler) -> None:
        self.unscaled, self._scaler = gate, scaler

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.unscaled, name)

    def read(self, index: IntArray) -> Tensor:
        return scale(self._scaler, self.unscaled.read(index))

    def samples(self, index: IntArray) -> tuple[Tensor, Tensor]:
        x, y = self.unscaled.samples(index)
        return scale(self._scaler, x), y


def scale(scaler: OnlineScaler, x: Tensor) -> Tensor:
    """Standardised inputs; by NumPy where that is allowed, since it has less overhead."""
    if not at_hand(x):
        return scaler.on_tensor(x)
    import torch

    return torch.from_numpy(scaler(x.numpy()))


class _Scaling:
    """Replaces the methods of a learner that get inputs. Only the outermost call scales: a learner
    that calls its own `predict` within `learn` passes inputs that are scaled already."""

    def __init__(self, scaler: OnlineScaler, learner: Learner) -> None:
        self.scaler, self._inside = scaler, False
        adapter = LearnerAdapter(learner)
        self._rescale = adapter.rescale
        for name in ("predict", "features", "store", "skipped", "learn", "prepare", "prepare_test"):
            adapter.replace_method(name, self._entry(trains=name == "learn"))
        if self._rescale is None:
            adapter.replace_method("answer_and_learn", self._turns)
        adapter.replace_method("state_dict", self._state)
        adapter.replace_method("load_state_dict", self._load)

    def _entry(self, trains: bool) -> Callable[[Any], Any]:
        def replace(method: Any) -> Any:
            @wraps(method)
            def call(*inputs: Any, **more: Any) -> Any:
                if self._inside:
                    return method(*inputs, **more)
                self._inside = True
                try:
                    return method(*self._scaled(inputs, trains), **more)
                finally:
                    self._inside = False

            return call

        return replace

    def _scaled(self, inputs: tuple[Any, ...], trains: bool) -> tuple[Any, ...]:
        if not inputs:
            return inputs
        first, *rest = inputs
        if not hasattr(first, "_replace"):  # a tensor, and no batch
            return scale(self.scaler, first), *rest
        batch: Batch = first
        if trains:
            changed = self.scaler.update(batch.x)
            if changed is not None and self._rescale is not None:
                self._rescale(*(to_device(values, batch.x.device) for values in changed))
        return batch._replace(x=scale(self.scaler, batch.x)), *rest

    def _turns(self, method: Any) -> Any:
        @wraps(method)
        def answer_and_learn(x: Any, labels: Any, ends: Any) -> Any:
            answered, learnt = self.scaler.in_turns(x, ends)
            self._inside = True
            try:
                return method(answered, labels, ends, learnt)
            finally:
                self._inside = False

        return answer_and_learn

    def _state(self, method: Any) -> Any:
        @wraps(method)
        def state_dict() -> dict[str, Any]:
            state = method()
            if not isinstance(state, dict):
                return state  # type: ignore[no-any-return]  # refused by the loop
            return {**state, STATE: self.scaler.state_dict()}

        return state_dict

    def _load(self, method: Any) -> Any:
        @wraps(method)
        def load_state_dict(state: dict[str, Any]) -> None:
            self.scaler.load_state_dict(state[STATE])
            method({key: value for key, value in state.items() if key != STATE})

        return load_state_dict
