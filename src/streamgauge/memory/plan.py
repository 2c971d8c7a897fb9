"""What a memory will recall, known before the model runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.memory.base import Ints, Memory


def plan(
    memory: Memory,
    batches: Iterable[tuple[ArrayLike, ArrayLike]],
    recalls: Sequence[int],
    add_first: bool = False,
) -> list[list[Ints]]:
    """The addresses that a memory will recall while the coming batches pass, to read them early.

    For each coming (index, label) batch the learner is taken to recall once for each number in
    `recalls` (three passes with ten each: `[10, 10, 10]`) and then to add the batch, or to add it
    before with `add_first`. The answer has one list a batch with one array of addresses a recall.
    The memory itself is left as it is: a copy runs ahead, without the side arrays. That copy costs
    as much as the addresses held, so plan many batches at once.

    >>> from streamgauge.memory import Fifo
    >>> memory = Fifo(2, seed=0)
    >>> plan(memory, [([10, 11], [0, 0]), ([12, 13], [1, 1])], [1])
    [[array([], dtype=int64)], [array([11])]]
    >>> len(memory)
    0
    """
    if not memory.model_free:
        raise StreamgaugeError(
            f"what a {type(memory).__name__} memory recalls depends on the model and cannot be "
            f"planned: recall from it step by step."
        )
    # The memo says what to put in place of a copy of the side arrays: nothing.
    ahead = copy.deepcopy(memory, {id(memory.side): {}})
    planned = []
    for index, label in batches:
        if add_first:
            ahead.add(index, label)
        planned.append([ahead.index[ahead.recall(n)] for n in recalls])
        if not add_first:
            ahead.add(index, label)
    return planned
