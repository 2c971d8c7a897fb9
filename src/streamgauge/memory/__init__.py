"""Which samples a learner stores and which it recalls: memories of addresses and side arrays."""

from __future__ import annotations

from collections.abc import Callable

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.memory.base import Memory, State
from streamgauge.memory.by_class import ClassBalanced, RingPerClass
from streamgauge.memory.policies import Everything, Fifo, Mixed, Reservoir

__all__ = [
    "POLICIES",
    "ClassBalanced",
    "Everything",
    "Fifo",
    "Memory",
    "Mixed",
    "Reservoir",
    "RingPerClass",
    "State",
    "make",
]

_BOUNDED: dict[str, Callable[[int, int], Memory]] = {
    "fifo": Fifo, "reservoir": Reservoir, "class_balanced": ClassBalanced, "ring": RingPerClass
}  # fmt: skip
_UNBOUNDED: dict[str, Callable[[int], Memory]] = {"everything": Everything, "mixed": Mixed}
POLICIES = (*_BOUNDED, *_UNBOUNDED)


def make(policy: str, capacity: int | None, seed: int) -> Memory:
    """A memory by name, each with its own default way to recall.

    The capacity of a `ring` counts samples per class; `everything` and `mixed` have no capacity
    and pay no attention to the one given.

    >>> make("fifo", 100, seed=0).capacity
    100
    >>> make("resevoir", 100, seed=0)
    Traceback (most recent call last):
    ...
    streamgauge.errors.StreamgaugeError: there is no memory policy 'resevoir': did you mean
    'reservoir'?
    """
    if policy in _UNBOUNDED:
        return _UNBOUNDED[policy](seed)
    if policy not in _BOUNDED:
        raise StreamgaugeError(f"there is no memory policy '{policy}': {nearest(policy, POLICIES)}")
    if capacity is None:
        raise StreamgaugeError(f"the memory policy '{policy}' needs a capacity: give 1 or more.")
    return _BOUNDED[policy](capacity, seed)
