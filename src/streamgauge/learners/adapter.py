"""Everything a learner may have beyond the four required methods, resolved once.

`LearnerAdapter(learner)` looks each optional member of `base.py` up once and has a default for
those that are missing. The loop, the evaluation, the engines, torchrun, the profiler and the FLOP
meter ask the adapter; nobody else asks a learner what it has.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache
from inspect import unwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import NEEDS, Batch, Learner
from streamgauge.versions import warn_deprecated

# Old name -> new name of an optional member; old names are removed in version 0.4.
RENAMED = {"conclude": "prepare_test", "foresee": "upcoming_reads", "held": "stored_addresses"}
# Methods of networks that are no longer called -> what to override instead.
NOT_CALLED = {"bring": "read_draws", "meet": "after_store"}
TURNS = "answer_and_learn"
NOT_RECORDABLE = "it has no part that can be recorded"


class LearnerAdapter:
    """One learner and its optional members. A method that the learner does not have is None."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        _warn_of_overrides(type(learner))
        optional = _Members(learner)
        # Facts
        self.needs: frozenset[str] = frozenset(optional("needs", ()))
        self.tell: Callable[..., None] | None = optional("tell")
        # Inputs
        self.sees_input: bool = optional("sees_input", True)
        self.rescale: Callable[..., None] | None = optional("rescale")
        # Storage
        self.store: Callable[[Batch], None] | None = optional("store")
        self.skipped: Callable[[Batch], None] | None = optional("skipped")
        self.stored_addresses: Callable[[], Any] | None = optional("stored_addresses")
        self.unbounded: bool = optional("unbounded", False)
        self.memory: Any = optional("memory")
        self._memory_bytes: Callable[[], int] | None = optional("memory_bytes")
        # Cost
        self.work: Callable[[], Any] | None = optional("work")
        self.has_job_kinds = optional("job_kind") is not None
        self.job_kind: Callable[[], str] = optional("job_kind", lambda: "learn")
        self.cycle: Callable[[int], int] = optional("cycle", lambda batch: 1)
        # Execution
        self.eager: str = optional("eager", NOT_RECORDABLE)
        # ManySteps
        self.answer_and_learn: Callable[..., tuple[Any, float]] | None = optional(TURNS)
        # Evaluation
        self.prepare: Callable[[], None] | None = optional("prepare")
        self.prepare_test: Callable[[], None] = optional("prepare_test", lambda: None)
        self.features: Callable[..., Any] | None = optional("features")
        self.answers_cheaply: bool = bool(optional("answers_cheaply", False))
        # Prefetching
        self._upcoming_reads = optional.name_of("upcoming_reads")

    def check_needs(self) -> None:
        unknown = self.needs - NEEDS
        if unknown:
            names = ", ".join(sorted(unknown))
            raise StreamgaugeError(f"A learner cannot need {names}; known: {sorted(NEEDS)}.")

    def tell_facts(self, **facts: Any) -> None:
        """Call `tell` if there are any facts; a learner that declares needs must have it."""
        if facts:
            self.learner.tell(**facts)  # type: ignore[attr-defined]

    def memory_bytes(self) -> float:
        """Bytes stored besides the weights; NaN if the learner does not say."""
        return float("nan") if self._memory_bytes is None else float(self._memory_bytes())

    def uses_torch(self) -> bool:
        """Whether an attribute of the learner is a module, an optimiser or a tensor, or a
        dictionary or list of them. Elsewhere there is nothing whose FLOPs could be counted.
        Learners of this package count as such, except those around models of other libraries: 0
        FLOPs in their logs stay 0."""
        module = _module_of_ours(type(self.learner))
        if module.startswith("streamgauge.bridges."):
            return False
        return bool(module) or _has_torch(getattr(self.learner, "__dict__", {}))

    @property
    def takes_turns(self) -> bool:
        """Whether `answer_and_learn` does what `predict` and `learn` do: all three are wrapped
        alike, as by the standardisation of inputs, or none is. Only our own bridges are trusted
        with labels before they answer."""
        if not type(self.learner).__module__.startswith("streamgauge.bridges."):
            return False
        if self.answer_and_learn is None:
            return False
        wrappers = {_wrappers(self.learner, name) for name in ("predict", "learn", TURNS)}
        return len(wrappers) == 1 and None not in wrappers

    def replace_method(self, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace one method of this learner object by `wrap(method)`, if it has the method. The
        profiler times methods with it, and torchrun distributes them over processes."""
        method = getattr(self.learner, name, None)
        if method is None:
            return
        wrapped = wrap(method)
        setattr(self.learner, name, wrapped)
        if name in vars(self):
            setattr(self, name, wrapped)

    def prefetch_copy(self) -> PrefetchCopy | None:
        """A copy with its own memory, which can run ahead of the learner; None where recalls
        cannot be known in advance: the memory looks at the model, or a class overrides `learn`,
        `recall` or `store` without overriding `upcoming_reads`."""
        name = self._upcoming_reads
        if name is None or not self.memory.model_free:
            return None
        changed = min(_depth(type(self.learner), m) for m in ("learn", "recall", "store"))
        if _depth(type(self.learner), name) > changed:
            return None
        return PrefetchCopy(self.learner, name)


class PrefetchCopy:
    """A shallow copy of a learner with its own memory. It shares the model and never uses it."""

    def __init__(self, learner: Any, method: str) -> None:
        twin = copy.copy(learner)
        self.memory = twin.memory = copy.deepcopy(learner.memory, {id(learner.memory.side): {}})
        self.upcoming_reads: Callable[[Batch], list[NDArray[np.int64]]] = getattr(twin, method)


class _Members:
    """Looks optional members up, and warns where a learner uses an old name."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def __call__(self, name: str, default: Any = None) -> Any:
        return getattr(self._learner, self.name_of(name) or name, default)

    def name_of(self, name: str) -> str | None:
        """The name under which the learner has this member; None if it has none."""
        kind: Any = type(self._learner)
        for old, new in RENAMED.items():
            if new == name and _uses_old_name(kind, old, new):
                return old
        return name if hasattr(self._learner, name) else None


@cache  # so that a class is warned about once
def _uses_old_name(kind: Any, old: str, new: str) -> bool:
    used = hasattr(kind, old) and _depth(kind, old) < _depth(kind, new)
    if used:
        warn_deprecated(f"{kind.__name__}.{old} is now called {new}; the old name", 2)
    return used


@cache
def _warn_of_overrides(kind: Any) -> None:
    for name, successor in NOT_CALLED.items():
        if hasattr(kind, name):
            warnings.warn(
                f"{kind.__name__}.{name} is not called any more: override {successor}.",
                DeprecationWarning,
                stacklevel=2,
            )


@cache
def _module_of_ours(kind: Any) -> str:
    """The module of this package that a class, or the nearest of its bases, is of; else ""."""
    modules = (part.__module__ for part in kind.__mro__)
    return next((module for module in modules if module.startswith("streamgauge.")), "")


def _has_torch(value: Any) -> bool:
    import torch

    if isinstance(value, dict):
        return any(map(_has_torch, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_torch, value[:100]))
    return isinstance(value, (torch.nn.Module, torch.optim.Optimizer, torch.Tensor))


def _depth(kind: type, name: str) -> int:
    """How far up in the class hierarchy a member is defined: 0 is the class itself."""
    line = kind.__mro__
    return next((depth for depth, part in enumerate(line) if name in vars(part)), len(line))


def _wrappers(learner: Any, name: str) -> int | None:
    """How many wrappers (`functools.wraps`) one object has around a method of its class; None where
    the method was replaced by another."""
    method, count = getattr(learner, name), 0
    while getattr(method, "__func__", None) is not getattr(type(learner), name):
        if not hasattr(method, "__wrapped__"):
            return None
        method, count = method.__wrapped__, count + 1
    return count


def rate_advice(learner: Any) -> str:
    """What may help where training diverges; "" for a learner of this package without `lr`."""
    if hasattr(getattr(learner, "config", None), "lr"):
        return "lower the learning rate (--LEARNER.lr)"
    return "" if _module_of_ours(learner.__class__) else "lower the learning rate"


def declared_needs(kind: type) -> list[str]:
    """What a learner class declares that it needs, without making one."""
    return sorted(getattr(kind, "needs", ()))


def class_sees_input(kind: type) -> bool:
    return bool(getattr(kind, "sees_input", True))


def required_settings(kind: type) -> frozenset[str]:
    """Settings without a default, of a learner of another library."""
    return getattr(kind, "required", frozenset())


def class_prepares(kind: type) -> bool:
    """Whether learners of this class do work before an evaluation."""
    return hasattr(kind, "prepare")


def same_methods(kind: type, other: type, names: tuple[str, ...]) -> bool:
    """Whether a class has these methods unchanged from another class."""
    return all(getattr(kind, name, None) is getattr(other, name) for name in names)


def has_methods_of(learner: Any, other: type, names: tuple[str, ...]) -> bool:
    """As `same_methods`, of one object: a method that was replaced counts as changed, unless its
    replacement only wraps it (`functools.wraps`), as the profiler's does."""
    own = vars(learner)
    return same_methods(type(learner), other, names) and all(
        getattr(unwrap(own[name]), "__func__", None) is getattr(other, name)
        for name in names
        if name in own
    )
