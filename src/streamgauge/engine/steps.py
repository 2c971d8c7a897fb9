"""Functions of tensors, called a few times, then recorded once and replayed.

A recording is a list of operations on fixed memory. So a function may only depend on the values of
its tensors, on its plain arguments, and on tensors whose memory never moves (weights, buffers); it
may not wait for the device, and its shapes follow from those of its arguments. Other shapes or
plain arguments make another recording.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from streamgauge.cost.flops import counting
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import StepExecutor

WARM_UP = 2  # calls of a function before it is recorded: libraries choose their kernels then
MAX_RECORDINGS = 96  # what comes after them is called
Function = Callable[..., Any]


class CannotRecord(Exception):
    """Why a function cannot be recorded, in words for a user."""


class Tape(Protocol):
    """Records a function on fixed inputs; what it returns replays it."""

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]: ...


class EngineExecutor(StepExecutor):
    """The executor of a learner under this engine."""

    def __init__(
        self,
        tape: Tape,
        log: Callable[[str], None],
        inference: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._tape, self._log, self._inference = tape, log, inference
        self._calls: dict[Any, int] = {}
        self._recorded: dict[Any, _RecordedStep] = {}
        self._refused: set[str] = set()

    def inference(self) -> AbstractContextManager[Any]:
        return self._inference()

    def run(self, function: Function, *inputs: Any) -> Any:
        """Outputs are copies: recordings share their memory, so any other replay writes there."""
        name = function.__qualname__
        shapes = [(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in inputs]
        key = (name, *shapes)
        recording = self._recorded.get(key)
        if recording is None:
            if name in self._refused or not self._due(key) or counting():
                return function(*inputs)
            recording = self._record(name, key, function, inputs)
            if recording is None:
                return function(*inputs)
        if counting():  # FLOPs are seen in operations, and a replay has none
            return function(*inputs)
        if recording.inputs:  # in one call, which costs half of one call per tensor
            values = [inputs[number] for number in recording.numbers]
            torch._foreach_copy_(recording.inputs, values, non_blocking=True)
        recording.replay()
        return _copied(recording.outputs)

    def _due(self, key: Any) -> bool:
        self._calls[key] = self._calls.get(key, 0) + 1
        return self._calls[key] > WARM_UP and len(self._recorded) < MAX_RECORDINGS

    def _record(
        self, name: str, key: Any, function: Function, inputs: tuple[Any, ...]
    ) -> _RecordedStep | None:
        fixed = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        try:
            replay, outputs = self._tape.record(function, fixed)
        except CannotRecord as reason:
            self._refused.add(name)
            self._log(f"{name} is run step by step: {reason}")
            return None
        numbers = [n for n, x in enumerate(fixed) if isinstance(x, torch.Tensor) and x.numel()]
        recording = _RecordedStep(numbers, [fixed[number] for number in numbers], replay, outputs)
        self._recorded[key] = recording
        return recording


class _RecordedStep(NamedTuple):
    numbers: list[int]  # of the inputs that are non-empty tensors
    inputs: list[torch.Tensor]  # the memory that these are copied to
    replay: Callable[[], None]
    outputs: Any


class CudaTape:
    """A CUDA graph for each function. All of one run share their memory, as they never overlap."""

    def __init__(self, device: torch.device, generators: list[torch.Generator]) -> None:
        self._generators, self._device = generators, device
        self._pool = self._new_pool()

    def _new_pool(self) -> Any:
        with torch.cuda.device(self._device):
            return torch.cuda.graph_pool_handle()

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with _no_garbage_collection():
            try:
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                outputs = function(*fixed)
            except BaseException as error:  # a stream that goes on recording ends all other runs
                with suppress(RuntimeError):
                    graph.capture_end()
                self._pool = self._new_pool()  # the old one may still count as being recorded to
                if not isinstance(error, RuntimeError):
                    raise
                lines = str(error).strip().splitlines() or [type(error).__name__]
                raise CannotRecord(lines[0]) from error
            graph.capture_end()
        return graph.replay, outputs


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The garbage collector could free the CUDA graphs of a closed run, and a graph that is freed
    while another is recorded makes the recording fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class HostTape:
    """For tests without a GPU: calls the function each time, on the fixed inputs and into the fixed
    outputs, and refuses what a CUDA graph could not record: operations or shapes that differ from
    the first call, and anything that waits for the device. As recordings share their memory, a
    replay overwrites the outputs of the others with NaN."""

    def __init__(self) -> None:
        self._outputs: list[Any] = []

    def record(self, function: Function, fixed: list[Any]) -> tuple[Callable[[], None], Any]:
        outputs, first = _watched(function, fixed)
        self._outputs.append(outputs)
        fresh = [True]  # recording has called the function: that is the first replay

        def replay() -> None:
            if fresh:
                fresh.clear()
                return
            again, seen = _watched(function, fixed)
            if seen != first:
                raise _refusal(function, "its operations or shapes differ from time to time.")
            again = _copied(again)  # an output may be an input, which would be overwritten too
            for others in self._outputs:
                _overwrite(others)
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
        if name == "aten.index.Tensor" and any(_is_mask(index) for index in args[1]):
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
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(part) for part in value)
    return value


def _overwrite(value: Any) -> None:
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            leaf.fill_(torch.nan)


def _copy(targets: Any, values: Any) -> None:
    for target, value in zip(tree_leaves(targets), tree_leaves(values), strict=True):
        if isinstance(target, torch.Tensor) and target is not value:
            with torch.no_grad():
                target.copy_(value)
