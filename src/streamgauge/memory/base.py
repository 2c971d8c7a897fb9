"""What every memory shares: slots with addresses and labels, and side arrays.

A memory never stores a sample. It stores, by slot, the address of a sample in its source, the
label, and fixed-shape side arrays that a method wants (logits, scores). So a memory of forty
thousand photos is forty thousand integers, and a checkpoint of it is small.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError

Ints = NDArray[np.int64]
State = dict[str, Any]  # only dict, list, int, float, str, bool, None and arrays inside


class Memory:
    """Base of all policies, which say where samples go (`_place`) and what comes back (`_choose`).
    A sample can be recalled as soon as `add` has returned and not before: the learner decides
    whether a batch is added before or after it is learnt."""

    model_free: ClassVar[bool] = True
    """What it will recall depends on addresses, labels and its seed only, never on a model."""

    bounded: ClassVar[bool] = True
    """Whether the number of stored samples has a limit that does not depend on the stream."""

    def __init__(self, slots: int, seed: int, replacement: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.replacement = replacement
        self.side: dict[str, NDArray[Any]] = {}
        self._index: Ints = np.empty(slots, dtype=np.int64)
        self._label: Ints = np.empty(slots, dtype=np.int64)
        self._size = 0
        self._used = False

    # What is stored

    @property
    def capacity(self) -> int | None:
        """The most samples it can store at present; None if there is no limit."""
        return len(self._index)

    def __len__(self) -> int:
        """How many samples are stored."""
        return self._size

    @property
    def index(self) -> Ints:
        """Address by slot: a view of the filled slots, valid until the next `add`."""
        return self._index[: self._top()]

    @property
    def label(self) -> Ints:
        """Label by slot: a view of the filled slots, valid until the next `add`."""
        return self._label[: self._top()]

    def slots(self) -> Ints:
        """All filled slots, in arbitrary order."""
        return np.arange(self._size)

    def nbytes(self) -> int:
        """Bytes of the addresses, labels and side arrays of the stored samples."""
        side = sum(array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
                   for array in self.side.values())  # fmt: skip
        return self._size * (self._index.itemsize + self._label.itemsize + side)

    # What changes it

    def add(self, index: ArrayLike, label: ArrayLike, **payload: ArrayLike) -> Ints:
        """Offer a batch, in order of arrival; returns the slot of each sample, or -1. Samples that
        the policy did not store, or that a later sample of the same batch replaced, have -1. Each
        keyword is an array with one row per sample; it is stored in `side[keyword]`, which is made
        at the first `add`, so every `add` must bring the same keywords."""
        addresses = np.asarray(index, dtype=np.int64)
        labels = np.asarray(label, dtype=np.int64)
        if addresses.ndim != 1 or addresses.shape != labels.shape:
            raise StreamgaugeError(
                f"a memory takes one index and one label per sample, but got shapes "
                f"{addresses.shape} and {labels.shape}: pass two arrays of equal length."
            )
        if payload.keys() != self.side.keys() or not self._used:
            self._make_side(payload, len(addresses))
        if len(addresses) == 0:
            return np.empty(0, dtype=np.int64)
        self._used = True
        slots = self._place(addresses, labels)
        if payload:
            kept = slots >= 0
            for name, rows in payload.items():
                self.side[name][slots[kept]] = np.asarray(rows)[kept]
        return slots

    def recall(self, n: int) -> Ints:
        """Slots of up to n samples, drawn by the policy's rule with its own generator."""
        if n < 0:
            raise StreamgaugeError(f"a memory cannot recall {n} samples: ask for 0 or more.")
        if self._size == 0:
            return np.empty(0, dtype=np.int64)
        return self._choose(n)

    def _place(self, index: Ints, label: Ints) -> Ints:
        """Write a batch where the policy wants it; returns what `add` returns."""
        raise NotImplementedError

    def _choose(self, n: int) -> Ints:
        """The policy's way to recall n samples from a memory that is not empty."""
        return self._draw(n)

    # Checkpoints

    def state_dict(self) -> State:
        """A copy of everything, random state included, in plain values and arrays."""
        top = self._top()
        return {
            "policy": type(self).__name__,
            "replacement": self.replacement,
            "capacity": self.capacity if self.bounded else None,
            "size": self._size,
            "used": self._used,
            "index": self._index[:top].copy(),
            "label": self._label[:top].copy(),
            "side": {name: array[:top].copy() for name, array in self.side.items()},
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue exactly as the memory that gave this state."""
        if state["policy"] != type(self).__name__:
            raise StreamgaugeError(
                f"this state is of a {state['policy']} memory, not of a {type(self).__name__}: "
                f"make the memory with the policy it was saved with."
            )
        if state["replacement"] != self.replacement:
            raise StreamgaugeError(
                f"this state is of a memory with replacement={state['replacement']}, "
                f"not {self.replacement}: make the memory as it was when it was saved."
            )
        self._fit(state)
        top = len(state["index"])
        self._size, self._used = int(state["size"]), bool(state["used"])
        self._index[:top] = state["index"]
        self._label[:top] = state["label"]
        self.side = {}
        for name, rows in state["side"].items():
            self.side[name] = np.zeros((len(self._index), *rows.shape[1:]), dtype=rows.dtype)
            self.side[name][:top] = rows
        self.rng.bit_generator.state = state["rng"]

    def _fit(self, state: State) -> None:
        """Make room for a state that is about to be loaded, or refuse it."""
        if state["capacity"] != self.capacity:
            raise StreamgaugeError(
                f"this state is of a memory with capacity {state['capacity']}, "
                f"not {self.capacity}: make the memory with the capacity it was saved with."
            )

    # Tools for the policies

    def _top(self) -> int:
        """One past the highest slot that `index` shows."""
        return self._size

    def _draw(self, n: int) -> Ints:
        """Up to n of 0..size-1, uniformly; the cost does not grow with the size."""
        if self.replacement:
            return self.rng.integers(0, self._size, n)
        # NumPy draws these by Floyd's method: time and space go with n, not with the population.
        return self.rng.choice(self._size, min(n, self._size), replace=False)

    def _reserve(self, slots: int) -> None:
        """Have room for at least this many slots, at least doubling it when there is too little."""
        if slots > len(self._index):
            room = max(slots, 2 * len(self._index), 1024)
            self._index = _longer(self._index, room)
            self._label = _longer(self._label, room)
            self.side = {name: _longer(array, room) for name, array in self.side.items()}

    def _make_side(self, payload: dict[str, ArrayLike], samples: int) -> None:
        if self._used:
            raise StreamgaugeError(
                f"this memory stores {sorted(self.side) or 'nothing'} with each sample, but this "
                f"add brings {sorted(payload) or 'nothing'}: bring the same names at every add."
            )
        self.side = {}
        for name, rows in payload.items():
            array = np.asarray(rows)
            if array.shape[:1] != (samples,):
                raise StreamgaugeError(
                    f"the side array '{name}' has shape {array.shape}, but there are {samples} "
                    f"samples: give it one row per sample."
                )
            self.side[name] = np.zeros((len(self._index), *array.shape[1:]), dtype=array.dtype)


def _longer(array: NDArray[Any], rows: int) -> NDArray[Any]:
    grown = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def at_least_one(what: str, number: int | None) -> int:
    """The number, or an error that says which setting has to be 1 or more."""
    if number is None or number < 1:
        raise StreamgaugeError(f"{what} is {number}, but has to be a whole number of 1 or more.")
    return int(number)


def rank_in_group(group: Ints) -> tuple[Ints, Ints]:
    """For each element how many equal ones came before it, and how many there are in all.

    >>> rank_in_group(np.array([7, 3, 7, 7, 3]))
    (array([0, 0, 1, 2, 1]), array([3, 2, 3, 3, 2]))
    """
    n = len(group)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(starts, append=n)
    rank = np.empty(n, dtype=np.int64)
    total = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n) - np.repeat(starts, sizes)
    total[order] = np.repeat(sizes, sizes)
    return rank, total
