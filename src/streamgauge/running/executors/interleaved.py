"""Several runs side by side on one GPU: each takes a step in turn, and their work overlaps there.

A step of a small network fills a large GPU to a small part. Nothing in a recorded step waits for
the device, so one process keeps several runs in flight, each on a stream of its own: other seeds,
other settings, other learners. No run knows of the others, and each writes the log that it would
write alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import torch

    from streamgauge.running.loop import Loop

LOOK = 8  # steps of the first run after which its need of memory is known
SHARE = 0.85  # of the free memory that is given out
MOST = 32  # queues that a GPU works through at the same time

Key = TypeVar("Key")


class Begun(NamedTuple):
    """A run that is under way: its loop, its steps, and what to close when it ends."""

    loop: Loop
    steps: Iterator[None]
    close: ExitStack


def take_turns(
    starts: Sequence[tuple[Key, Callable[[], Begun]]],
    device: torch.device,
    most: int | None = None,
    said: Callable[[str], None] = print,
) -> Iterator[Key]:
    """Start what fits into the device's memory, and the others as these end; yields what ended.

    How much a run needs is measured on the first, which goes ahead for a few steps alone.
    """
    import torch

    waiting, active = list(starts), dict[Any, Begun]()
    before = torch.cuda.memory_reserved(device)
    room = 1
    with ExitStack() as everything:
        while waiting or active:
            while waiting and len(active) < room:
                key, start = waiting.pop(0)
                begun = start()
                everything.push(begun.close)
                active[key] = begun
            for key, one in list(active.items()):
                if next(one.steps, one) is one:  # there was no step left
                    del active[key]
                    one.close.close()
                    yield key
                elif room == 1 and waiting and one.loop.step >= LOOK:
                    room = _room(one.loop, device, before, most or MOST)
                    said(f"{min(room, 1 + len(waiting))} runs side by side on {device}.")


def _room(loop: Loop, device: torch.device, before: int, most: int) -> int:
    import torch

    with loop.engine.scope():
        loop.evaluator.warm_up()
    torch.cuda.synchronize(device)
    need = max(torch.cuda.memory_reserved(device) - before, 1 << 20)
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(most, 1 + int(SHARE * free / need)))
