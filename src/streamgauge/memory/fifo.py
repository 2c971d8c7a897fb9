"""The newest samples only."""

from __future__ import annotations

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.memory.base import Ints, Memory, State, at_least_one


class Fifo(Memory):
    """The last `capacity` samples added; recall is uniform over them.

    The memory of ER in the real-time paper (Ghunaim et al. 2023) and in CLOC (Cai et al. 2021),
    which both draw with replacement.

    >>> memory = Fifo(3, seed=0)
    >>> memory.add([10, 11, 12, 13], [0, 1, 0, 1])
    array([-1,  1,  2,  0])
    >>> memory.index[memory.newest(2)]
    array([12, 13])
    """

    def __init__(self, capacity: int, seed: int, replacement: bool = True) -> None:
        super().__init__(at_least_one("the capacity of a FIFO memory", capacity), seed, replacement)
        self._next = 0  # the slot that the next sample goes to

    def _place(self, index: Ints, label: Ints) -> Ints:
        room, n = len(self._index), len(index)
        slots = (self._next + np.arange(n)) % room
        if n > room:
            slots[: n - room] = -1
            index, label = index[n - room :], label[n - room :]
        kept = slots[-room:]
        self._index[kept] = index
        self._label[kept] = label
        self._next = (self._next + n) % room
        self._size = min(self._size + n, room)
        return slots

    def newest(self, n: int) -> Ints:
        """Slots of the last n samples added, oldest of them first; fewer if fewer are stored."""
        n = min(n, self._size)
        return (self._next - n + np.arange(n)) % len(self._index)

    def resize(self, capacity: int) -> None:
        """Change the capacity and keep the newest samples. Slots change: the oldest is slot 0.

        For adaptive memory sizes (ADRep of CLOC, Cai et al. 2021).
        """
        at_least_one("the capacity of a FIFO memory", capacity)
        keep = self.newest(capacity)
        n = len(keep)
        for name, old in [("_index", self._index), ("_label", self._label)]:
            new = np.empty(capacity, dtype=np.int64)
            new[:n] = old[keep]
            setattr(self, name, new)
        for name, rows in self.side.items():
            self.side[name] = np.zeros((capacity, *rows.shape[1:]), dtype=rows.dtype)
            self.side[name][:n] = rows[keep]
        self._size, self._next = n, n % capacity

    def state_dict(self) -> State:
        return {**super().state_dict(), "next": self._next}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._next = int(state["next"])

    def _fit(self, state: State) -> None:
        # A FIFO memory may have been resized before it was saved, so the state's capacity wins.
        if state["capacity"] is None:
            raise StreamgaugeError("this state of a FIFO memory lacks its capacity: save it again.")
        if state["capacity"] != self.capacity:
            self._index = np.empty(state["capacity"], dtype=np.int64)
            self._label = np.empty(state["capacity"], dtype=np.int64)
