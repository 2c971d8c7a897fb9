"""The newest samples of each class."""

from __future__ import annotations

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.memory.base import Ints, Memory, State, at_least_one, rank_in_group
from streamgauge.memory.classes import Classes


class RingPerClass(Memory):
    """The last `per_class` samples of each class; recall draws a class, then one of its samples.

    The ring buffer of CLOC's code (Cai et al. 2021): both draws are uniform, so a rare class is
    replayed as often as a common one. The capacity is per_class times the classes seen so far.

    With `replacement=False` a batch is built one draw after another by the same two draws, and a
    draw that names a sample already in the batch is repeated.

    >>> memory = RingPerClass(2, seed=0)
    >>> memory.add([10, 11, 12, 13], [5, 5, 9, 5])
    array([-1,  0,  1,  2])
    >>> memory.capacity
    4
    """

    def __init__(self, per_class: int, seed: int, replacement: bool = True) -> None:
        super().__init__(0, seed, replacement)
        self.per_class = at_least_one("the number of samples per class of a ring", per_class)
        self._classes = Classes()
        # By class, in order of first appearance: its slots, and how many samples it ever had.
        self._slot: Ints = np.empty((0, self.per_class), dtype=np.int64)
        self._count: Ints = np.empty(0, dtype=np.int64)

    @property
    def capacity(self) -> int:
        return self.per_class * len(self._classes)

    def _place(self, index: Ints, label: Ints) -> Ints:
        row = self._classes.rows(label)
        self._open(len(self._classes))
        rank, total = rank_in_group(row)
        kept = np.flatnonzero(rank >= total - self.per_class)
        r = row[kept]
        arrival = self._count[r] + rank[kept]
        position = arrival % self.per_class
        self._count[r] = arrival + 1  # of several of one class the last is written last

        slot = self._slot[r, position]
        fresh = np.flatnonzero(slot < 0)
        slot[fresh] = self._size + np.arange(len(fresh))
        self._slot[r[fresh], position[fresh]] = slot[fresh]
        self._size += len(fresh)
        self._reserve(self._size)
        self._index[slot] = index[kept]
        self._label[slot] = label[kept]

        slots = np.full(len(index), -1, dtype=np.int64)
        slots[kept] = slot
        return slots

    def _choose(self, n: int) -> Ints:
        if self.replacement:
            return self._two_draws(n)
        n = min(n, self._size)
        taken: Ints = np.empty(0, dtype=np.int64)
        draws = 2 * n
        while len(taken) < n and draws <= 4 * self._size:
            taken = _distinct(np.concatenate((taken, self._two_draws(draws))))[:n]
            draws *= 2
        if len(taken) < n:
            taken = np.concatenate((taken, self._race(taken, n - len(taken))))
        return taken

    def _two_draws(self, n: int) -> Ints:
        row = self.rng.integers(0, len(self._count), n)
        return self._slot[row, self.rng.integers(0, np.minimum(self._count[row], self.per_class))]

    def _race(self, taken: Ints, n: int) -> Ints:
        """The next n of the same draws, in one pass over the memory instead of by repeats.

        Give each sample a waiting time, exponential with its probability as the rate: the order
        in which the samples come is then that of successive draws without replacement.
        """
        stored = np.minimum(self._count, self.per_class)
        wait = self.rng.exponential(size=self._size) * stored[self._classes.rows(self.label)]
        wait[taken] = np.inf
        return np.argsort(wait)[:n]

    def _open(self, classes: int) -> None:
        new = classes - len(self._count)
        if new:
            self._slot = np.concatenate((self._slot, np.full((new, self.per_class), -1)))
            self._count = np.concatenate((self._count, np.zeros(new, dtype=np.int64)))

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "per_class": self.per_class,
            "classes": self._classes.labels.copy(),
            "slot": self._slot.copy(),
            "count": self._count.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._classes = Classes(state["classes"])
        self._slot = state["slot"].copy()
        self._count = state["count"].copy()

    def _fit(self, state: State) -> None:
        if state["per_class"] != self.per_class:
            raise StreamgaugeError(
                f"this state is of a ring of {state['per_class']} samples per class, not of "
                f"{self.per_class}: make the memory as it was when it was saved."
            )
        self._reserve(len(state["index"]))


def _distinct(values: Ints) -> Ints:
    """The values without repeats, in order of first appearance."""
    return values[np.sort(np.unique(values, return_index=True)[1])]
