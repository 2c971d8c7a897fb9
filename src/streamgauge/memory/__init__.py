"""Which samples a learner stores and which it recalls: memories of addresses and side arrays."""

from __future__ import annotations

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.memory.base import Memory, State
from streamgauge.memory.class_balanced import ClassBalanced
from streamgauge.memory.everything import Everything, Mixed
from streamgauge.memory.fifo import Fifo
from streamgauge.memory.reservoir import Reservoir
from streamgauge.memory.ring import RingPerClass

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

POLICIES = ("fifo", "reservoir", "class_balanced", "ring", "everything", "mixed")


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
    if policy == "everything":
        return Everything(seed)
    if policy == "mixed":
        return Mixed(seed)
    if policy not in POLICIES:
        raise StreamgaugeError(f"there is no memory policy '{policy}': {nearest(policy, POLICIES)}")
    if capacity is None:
        raise StreamgaugeError(f"the memory policy '{policy}' needs a capacity: give 1 or more.")
    if policy == "fifo":
        return Fifo(capacity, seed)
    if policy == "reservoir":
        return Reservoir(capacity, seed)
    if policy == "class_balanced":
        return ClassBalanced(capacity, seed)
    return RingPerClass(capacity, seed)
