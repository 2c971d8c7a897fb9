"""A uniform sample of everything seen, in bounded space."""

from __future__ import annotations

import numpy as np

from streamgauge.memory.base import Ints, Memory, State, at_least_one


class Reservoir(Memory):
    """Each sample seen so far is stored with the same probability, capacity / seen.

    Algorithm R (Vitter 1985, *Random Sampling with a Reservoir*): the sample that arrives as
    number t (from 0) goes to slot t while there is room, and afterwards draws a slot uniformly
    from 0..t, which it takes if there is such a slot. A batch at a time here, with one draw per
    sample, so the outcome is that of the loop over samples.

    >>> memory = Reservoir(4, seed=0)
    >>> memory.add([10, 11, 12], [0, 1, 0])
    array([0, 1, 2])
    >>> len(memory), memory.capacity
    (3, 4)
    """

    def __init__(self, capacity: int, seed: int, replacement: bool = False) -> None:
        super().__init__(at_least_one("the capacity of a reservoir", capacity), seed, replacement)
        self.seen = 0

    def _place(self, index: Ints, label: Ints) -> Ints:
        room, n = len(self._index), len(index)
        arrival = self.seen + np.arange(n)
        slots = arrival.copy()
        filling = min(max(room - self.seen, 0), n)
        if filling < n:
            drawn = self.rng.integers(0, arrival[filling:] + 1)
            slots[filling:] = np.where(drawn < room, drawn, -1)
        kept = np.flatnonzero(slots >= 0)
        # Two samples of a batch may draw one slot and the later wins. Each writes its position in
        # the batch, and who can still read its own has won: no sorting, no array of its own.
        self._label[slots[kept]] = kept
        lost = self._label[slots[kept]] != kept
        slots[kept[lost]] = -1
        kept = kept[~lost]
        self._index[slots[kept]] = index[kept]
        self._label[slots[kept]] = label[kept]
        self.seen += n
        self._size = min(self.seen, room)
        return slots

    def state_dict(self) -> State:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.seen = int(state["seen"])
