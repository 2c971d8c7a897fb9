"""Memories with a share for each class: a balanced reservoir, and rings of the newest samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.memory.base import Ints, Memory, State, at_least_one, rank_in_group


class ClassRows:
    """Which row of a table a class has; labels may be any whole numbers of 0 or more.

    >>> classes = ClassRows()
    >>> classes.rows(np.array([7, 3, 7]))
    array([0, 1, 0])
    >>> classes.labels
    array([7, 3])
    """

    def __init__(self, labels: Ints | None = None) -> None:
        self.labels: Ints = np.empty(0, dtype=np.int64)
        self._row: Ints = np.full(64, -1, dtype=np.int64)  # by label; -1 if not seen
        if labels is not None and len(labels):
            self.rows(np.asarray(labels, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, label: Ints) -> Ints:
        """The row of each label; labels not seen before get the next rows in order."""
        # Seen as unsigned, a negative label is larger than all others: one test finds both.
        highest = int(np.maximum.reduce(label.view(np.uint64), initial=0))
        if highest >= len(self._row):
            if highest >= 2**63:
                raise StreamgaugeError(
                    f"a memory cannot store label {int(label.min())}: labels start at 0."
                )
            longer = np.full(max(highest + 1, 2 * len(self._row)), -1, dtype=np.int64)
            longer[: len(self._row)] = self._row
            self._row = longer
        row = self._row[label]
        if np.minimum.reduce(row, initial=0) < 0:
            missing = label[row < 0]
            first = np.sort(np.unique(missing, return_index=True)[1])
            self._row[missing[first]] = len(self.labels) + np.arange(len(first))
            self.labels = np.concatenate((self.labels, missing[first]))
            row = self._row[label]
        return row


class ClassBalanced(Memory):
    """The class-balanced reservoir of the survey (Soutif-Cormerais et al. 2023), adaptive.

    Each sample draws a key from U(0, 1) when it arrives, and of each class the q samples with the
    largest keys are stored, so they are a uniform sample of all that the class ever had. With M =
    capacity and n = classes seen so far, q = M // n, and one more for the M % n classes that were
    seen first. What a class does not fill is not lent to others. As n only grows, no quota ever
    grows, hence adding a batch at once and adding its samples one by one end in the same memory.

    A sample that stays keeps its slot. Slots that a shrinking quota emptied show -1 in `index` and
    `label` until they are used again; `slots()` gives those that are filled.

    >>> memory = ClassBalanced(4, seed=0)
    >>> memory.add([10, 11, 12, 13], [8, 8, 8, 8])
    array([0, 1, 2, 3])
    >>> _ = memory.add([14], [3])       # a second class: two each, of which it has filled one
    >>> np.bincount(memory.label[memory.slots()])[[8, 3]]
    array([2, 1])
    """

    def __init__(self, capacity: int, seed: int, replacement: bool = False) -> None:
        capacity = at_least_one("the capacity of a class-balanced memory", capacity)
        super().__init__(capacity, seed, replacement)
        self._index[:] = -1
        self._label[:] = -1
        # All slots, the filled ones first: to fill one more is to move the border, `_size`.
        self._order: Ints = np.arange(capacity)
        # One row per class, in order of first appearance, as wide as the largest quota. The first
        # `_count` columns of a row are in use; the others have slot -1 and key infinity.
        self._classes = ClassRows()
        self._slot: Ints = np.empty((0, capacity), dtype=np.int64)
        self._key: NDArray[np.float64] = np.empty((0, capacity))
        self._count: Ints = np.empty(0, dtype=np.int64)
        self._quota: Ints = np.empty(0, dtype=np.int64)
        # The key that a sample must exceed to be stored: of a full class, the smallest one stored.
        self._bar: NDArray[np.float64] = np.empty(0)

    def slots(self) -> Ints:
        return self._order[: self._size].copy()

    def _choose(self, n: int) -> Ints:
        return self._order[self._draw(n)]

    def _top(self) -> int:
        return len(self._index)

    def _place(self, index: Ints, label: Ints) -> Ints:
        key = self.rng.random(len(index))
        row = self._classes.rows(label)
        if len(self._classes) > len(self._count):
            self._share_anew()
        slots = np.full(len(index), -1, dtype=np.int64)
        new = (key > self._bar[row]).nonzero()[0]
        if len(new) == 0:
            return slots

        # By class, and within a class by key, largest first: the j-th of its class is stored if it
        # finds an empty column, or else if it beats the key that the j before it left to beat.
        new = new[np.lexsort((-key[new], row[new]))]
        row, key = row[new], key[new]
        rank = np.arange(len(new)) - row.searchsorted(row)
        if len(new) > self._quota[-1]:  # more than some class may hold, at its very best
            able = rank < self._quota[row]
            new, row, key, rank = new[able], row[able], key[able], rank[able]
        column = self._count[row] + rank
        beat = column - self._quota[row]  # how many smaller keys go before it; < 0: there is room
        pushing = (beat >= 0).nonzero()[0]
        if len(pushing):
            column[pushing] = self._smallest(row[pushing], beat[pushing])
            stored = (beat < 0) | (key > self._key[row, column])
            new, row, key = new[stored], row[stored], key[stored]
            column, beat = column[stored], beat[stored]

        filling = (beat < 0).nonzero()[0]
        if len(filling):
            at = row[filling], column[filling]
            self._slot[at] = self._order[self._size : self._size + len(filling)]
            self._size += len(filling)
            self._count[at[0]] = at[1] + 1  # of several of one class the last has the last column
        self._key[row, column] = key
        self._set_bar(row if len(row) < 16 else np.unique(row))  # a few are quicker twice
        slots[new] = slot = self._slot[row, column]
        self._index[slot] = index[new]
        self._label[slot] = label[new]
        return slots

    def _smallest(self, row: Ints, nth: Ints) -> Ints:
        """For each pair, sorted by row: the column of the nth smallest key of the row, from 0."""
        deepest = int(nth.max())
        if deepest == 0:  # one of each class
            return np.asarray(self._key[row].argmin(axis=1))
        first = np.ones(len(row), dtype=bool)
        first[1:] = row[1:] != row[:-1]
        keys, which = self._key[row[first]], first.cumsum() - 1
        # A few smallest are found without sorting a row; many are found by sorting it.
        by_key = keys.argpartition(range(deepest + 1)) if deepest < 16 else keys.argsort()
        return np.asarray(by_key[which, nth])

    def _set_bar(self, rows: Ints) -> None:
        full = rows[self._count[rows] == self._quota[rows]]
        if len(full):
            self._bar[full] = self._key[full].min(axis=1)

    def _share_anew(self) -> None:
        """New quotas after new classes appeared: shrink the others and make rows for the new."""
        classes, known = len(self._classes), len(self._count)
        self._set_quota(classes)
        self._count = np.concatenate((self._count, np.zeros(classes - known, dtype=np.int64)))

        over = np.flatnonzero(self._count > self._quota)
        key = np.where(self._slot[over] < 0, -1.0, self._key[over])
        largest_first = np.argsort(-key, axis=1)
        slot = np.take_along_axis(self._slot[over], largest_first, axis=1)
        self._slot[over] = slot
        self._key[over] = np.take_along_axis(self._key[over], largest_first, axis=1)
        beyond = np.arange(slot.shape[1]) >= self._quota[over, None]
        self._empty(slot[beyond & (slot >= 0)])
        self._count[over] = self._quota[over]

        width = int(self._quota[0])
        used = np.arange(width) < self._count[:, None]
        slots = np.full((classes, width), -1, dtype=np.int64)
        keys = np.full((classes, width), np.inf)
        slots[:known], keys[:known] = self._slot[:, :width], self._key[:, :width]
        slots[~used], keys[~used] = -1, np.inf
        self._slot, self._key = slots, keys
        self._set_bar(np.arange(classes))

    def _set_quota(self, classes: int) -> None:
        share, rest = divmod(len(self._index), max(classes, 1))
        self._quota = share + (np.arange(classes) < rest)
        self._bar = np.full(classes, -1.0)  # no class is full, until `_set_bar` finds it so

    def _empty(self, slots: Ints) -> None:
        self._index[slots] = -1
        self._label[slots] = -1
        filled = np.zeros(len(self._index), dtype=bool)
        filled[self._order[: self._size]] = True
        filled[slots] = False
        self._order = np.concatenate((np.flatnonzero(filled), np.flatnonzero(~filled)))
        self._size -= len(slots)

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            "order": self._order.copy(),
            "classes": self._classes.labels.copy(),
            "slot": self._slot.copy(),
            "key": self._key.copy(),
            "count": self._count.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._order = state["order"].copy()
        self._classes = ClassRows(state["classes"])
        self._slot, self._key = state["slot"].copy(), state["key"].copy()
        self._count = state["count"].copy()
        self._set_quota(len(self._count))
        self._set_bar(np.arange(len(self._count)))


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
        self._classes = ClassRows()
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
            drawn = np.concatenate((taken, self._two_draws(draws)))
            taken = drawn[np.sort(np.unique(drawn, return_index=True)[1])][:n]  # without repeats
            draws *= 2
        if len(taken) < n:
            taken = np.concatenate((taken, self._race(taken, n - len(taken))))
        return taken

    def _two_draws(self, n: int) -> Ints:
        row = self.rng.integers(0, len(self._count), n)
        return self._slot[row, self.rng.integers(0, np.minimum(self._count[row], self.per_class))]

    def _race(self, taken: Ints, n: int) -> Ints:
        """The next n of the same draws, in one pass over the memory instead of by repeats. Give
        each sample a waiting time, exponential with its probability as the rate: the order in which
        the samples come is then that of successive draws without replacement."""
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
        self._classes = ClassRows(state["classes"])
        self._slot = state["slot"].copy()
        self._count = state["count"].copy()

    def _fit(self, state: State) -> None:
        if state["per_class"] != self.per_class:
            raise StreamgaugeError(
                f"this state is of a ring of {state['per_class']} samples per class, not of "
                f"{self.per_class}: make the memory as it was when it was saved."
            )
        self._reserve(len(state["index"]))
