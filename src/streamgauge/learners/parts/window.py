"""A memory that holds everything and recalls from the newest part of it."""

from __future__ import annotations

from streamgauge.memory import Everything, State
from streamgauge.memory.base import Ints


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
