"""All samples seen: no limit on storage, only on what a step may draw."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from streamgauge.memory.base import Ints, Memory, State


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
