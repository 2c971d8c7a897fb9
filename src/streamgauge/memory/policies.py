"""Memories without classes: the newest samples, a uniform sample of all, and all samples."""

from __future__ import annotations

from typing import ClassVar

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
        """Change the capacity and keep the newest samples. Slots change: the oldest is slot 0. For
        adaptive memory sizes (ADRep of CLOC, Cai et al. 2021)."""
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


class Everything(Memory):
    """Every sample seen, recalled uniformly; unbounded, and declared so.

    The storage model of the near-future paper (Hammoud et al. 2023), where compute is limited and
    storage is not. Slot = number of arrival.

    >>> memory = Everything(seed=0)
    >>> memory.add([10, 11, 12], [0, 1, 0])
    array([0, 1, 2])
    >>> memory.index[memory.newest(2)]
    array([11, 12])
    """

    bounded: ClassVar[bool] = False

    def __init__(self, seed: int, replacement: bool = False) -> None:
        super().__init__(0, seed, replacement)

    @property
    def capacity(self) -> None:
        return None

    def _place(self, index: Ints, label: Ints) -> Ints:
        start, end = self._size, self._size + len(index)
        self._reserve(end)
        self._index[start:end] = index
        self._label[start:end] = label
        self._size = end
        return np.arange(start, end)

    def newest(self, n: int) -> Ints:
        """Slots of the last n samples added, oldest of them first; fewer if fewer are stored."""
        return np.arange(max(self._size - n, 0), self._size)

    def _fit(self, state: State) -> None:
        self._reserve(len(state["index"]))


class Mixed(Everything):
    """Everything seen; a recall is half the newest samples and half uniform over all.

    Mixed sampling of the near-future paper (Hammoud et al. 2023). The newest half comes first, in
    time order; of an odd n the uniform half has one more. The uniform half is drawn from all, the
    newest included, without replacement, so a sample may be in both halves.

    >>> memory = Mixed(seed=0)
    >>> _ = memory.add([10, 11, 12, 13], [0, 1, 0, 1])
    >>> memory.index[memory.recall(4)][:2]
    array([12, 13])
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, replacement=False)

    def _choose(self, n: int) -> Ints:
        return np.concatenate((self.newest(n // 2), self._draw(n - n // 2)))


class Window(Everything):
    """FIFO as CLOC's code has it (Cai et al. 2021): every sample stays on disk, and a recall draws
    from the last `width`, with replacement. A wider window has old samples again at once, where a
    FIFO memory would have to wait for new ones.

    >>> memory = Window(2, seed=0)
    >>> _ = memory.add([10, 11, 12, 13], [0, 1, 0, 1])
    >>> set(memory.index[memory.recall(50)].tolist()) == {12, 13}
    True
    >>> memory.resize(3)
    >>> set(memory.index[memory.recall(50)].tolist()) == {11, 12, 13}
    True
    """

    def __init__(self, width: int, seed: int) -> None:
        super().__init__(seed, replacement=True)
        self.width = width

    def resize(self, width: int) -> None:
        self.width = width

    def _choose(self, n: int) -> Ints:
        return self.rng.integers(max(0, self._size - self.width), self._size, n)

    def state_dict(self) -> State:
        return {**super().state_dict(), "width": self.width}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.width = int(state["width"])
