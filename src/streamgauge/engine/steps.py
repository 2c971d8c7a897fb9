"""Functions of tensors, run as they are a few times, then recorded once and replayed.

What is recorded is a list of operations on fixed memory. So a function may only depend on what its
tensors hold, on its plain arguments, and on tensors that stay where they are (weights, buffers); it
may not wait for the device, and its shapes follow from those of its arguments. Other shapes or
plain arguments make another recording.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from streamgauge.cost.flops import counting
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Executor

WARM = 2  # times that a function is run before it is recorded: libraries choose their kernels then
MOST = 96  # recordings; what comes after them is run as it is
Function = Callable[..., Any]


class CannotRecord(Exception):
    """Why not, in words for a user."""


class Tape(Protocol):
    """Records a function on fixed inputs; what it returns replays it."""

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]: ...


class Steps(Executor):
    """The executor of a learner under this engine."""

    def __init__(
        self,
        tape: Tape,
        log: Callable[[str], None],
        inference: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._tape, self._log, self._inference = tape, log, inference
        self._met: dict[Any, int] = {}
        self._recorded: dict[Any, _Recorded] = {}
        self._refused: set[str] = set()

    def inference(self) -> AbstractContextManager[Any]:
        return self._inference()

    def run(self, function: Function, *inputs: Any) -> Any:
        """Outputs are copies: recordings share their memory, so any other replay writes there."""
        name = function.__qualname__
        key = (name, *[_shape(one) for one in inputs])
        known = self._recorded.get(key)
        if known is None:
            if name in self._refused or not self._due(key) or counting():
                return function(*inputs)
            known = self._record(name, key, function, inputs)
            if known is None:
                return function(*inputs)
        if counting():  # FLOPs are seen in operations, and a replay has none
            return function(*inputs)
        if known.places:  # in one call, which costs half of what as many would
            values = [inputs[number] for number in known.numbers]
            torch._foreach_copy_(known.places, values, non_blocking=True)
        known.replay()
        return _copied(known.outputs)

    def _due(self, key: Any) -> bool:
        self._met[key] = self._met.get(key, 0) + 1
        return self._met[key] > WARM and len(self._recorded) < MOST

    def _record(
        self, name: str, key: Any, function: Function, inputs: tuple[Any, ...]
    ) -> _Recorded | None:
        fixed = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        try:
            replay, outputs = self._tape.record(function, fixed)
        except CannotRecord as reason:
            self._refused.add(name)
            self._log(f"{name} is run step by step: {reason}")
            return None
        filled = [n for n, one in enumerate(fixed) if isinstance(one, torch.Tensor) and one.numel()]
        places = [fixed[number] for number in filled]
        self._recorded[key] = made = _Recorded(filled, places, replay, outputs)
        return made


class _Recorded(NamedTuple):
    numbers: list[int]  # of the inputs that are tensors and hold anything
    places: list[torch.Tensor]  # where these go
    replay: Callable[[], None]
    outputs: Any


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return value


class CudaTape:
    """A CUDA graph for each function. All of one run share their memory, as they never overlap."""

    def __init__(self, device: torch.device, generators: list[torch.Generator]) -> None:
        self._generators = generators
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            outputs = function(*fixed)
        except RuntimeError as error:
            with suppress(RuntimeError):
                graph.capture_end()
            raise CannotRecord(f"{str(error).strip().splitlines()[0]}") from error
        graph.capture_end()
        return graph.replay, outputs


class HostTape:
    """A stand-in for tests without a GPU: it calls the function each time, on the fixed inputs and
    into the fixed outputs, and refuses what a graph could not hold: other operations or shapes than
    at the first time, and anything that waits for the device. As recordings share their memory, a
    replay spoils what others have put out."""

    def __init__(self) -> None:
        self._outputs: list[Any] = []

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]:
        outputs, first = _watched(function, fixed)
        self._outputs.append(outputs)
        fresh = [True]  # what recording has just run counts as the first replay

        def replay() -> None:
            if fresh:
                fresh.clear()
                return
            again, seen = _watched(function, fixed)
            if seen != first:
                raise _refusal(function, "its operations or shapes differ from time to time.")
            again = _copied(again)  # an input that is put out as it is would be spoilt, too
            for others in self._outputs:
                _spoil(others)
            _copy(outputs, again)

        return replay, outputs


def _watched(function: Function, fixed: list[Any]) -> tuple[Any, list[Any]]:
    watch = _Watch()
    try:
        with watch, _Refuse():
            return function(*fixed), watch.seen
    except CannotRecord as reason:
        raise _refusal(function, str(reason)) from reason


def _refusal(function: Function, reason: str) -> StreamgaugeError:
    return StreamgaugeError(f"{function.__qualname__} cannot be recorded: {reason}")


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each operation and the shapes of its result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Any] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(operation)
        if any(word in name for word in ("_local_scalar_dense", "nonzero", "masked_select")):
            raise CannotRecord(f"{name} waits for the device.")
        if name == "aten.index.Tensor" and any(_is_mask(one) for one in args[1]):
            raise CannotRecord("indexing with a mask waits for the device.")
        result = operation(*args, **(kwargs or {}))
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else None
        self.seen.append((name, shape))
        return result


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


class _Refuse(TorchFunctionMode):
    """Refuses what brings a tensor to the host."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("cpu", "numpy", "item", "tolist", "__bool__", "__int__", "__float__"):
            raise CannotRecord(f".{name}() waits for the device.")
        return function(*args, **(kwargs or {}))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(one) for one in value)
    return value


def _spoil(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            value.fill_(torch.nan)
    elif isinstance(value, dict):
        for one in value.values():
            _spoil(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _spoil(one)


def _copy(places: Any, values: Any) -> None:
    if isinstance(places, torch.Tensor):
        if places is not values:
            with torch.no_grad():
                places.copy_(values)
    elif isinstance(places, dict):
        for name, place in places.items():
            _copy(place, values[name])
    elif isinstance(places, (list, tuple)):
        for place, value in zip(places, values, strict=True):
            _copy(place, value)
