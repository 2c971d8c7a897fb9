"""Where the time of a run goes, so that its user sees what to change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch

from streamgauge.running.loop import Loop

# Methods of a learner that are a part of their own, where it has them.
LEARNER = {
    "draw": "recall",
    "read_draws": "recall",
    "choose": "recall",
    "view": "augment",
    "loss": "forward",
    "update": "backward",
    "store": "store",
    "prepare": "prepare",
}
_COMPUTE = (
    "a smaller --learner.model, fewer --learner.passes, --learner.precision bf16 where the device "
    "has it, another --threads"
)
_EVALUATE = "--protocol.evaluate with a larger number evaluates less often"
# Part of the time: what it is, and what makes it smaller.
PARTS = {
    "read": ("inputs fetched by the loop", "keep the data in memory or on a local disk"),
    "predict": ("answers before learning", "--protocol.predict false leaves answers out"),
    "recall": (
        "choosing and fetching what is replayed",
        "a smaller --learner.recall, or data in memory",
    ),
    "augment": ("random views, normalised", "--learner.augment none leaves random views out"),
    "forward": ("network and loss, learning", _COMPUTE),
    "backward": ("gradients and the optimiser's step", _COMPUTE),
    "store": ("batches into memory", "another --learner.policy"),
    "learn": ("learning, the rest of it", "what is special to this learner"),
    "prepare": ("work before an evaluation", _EVALUATE),
    "evaluate": ("held-out samples answered and counted", _EVALUATE),
    "record": ("log and checkpoints", "--checkpoint with a larger number writes less often"),
    "loop": ("everything else", "a larger --stream.batch makes fewer steps"),
}


class Profile:
    """Seconds by part over one run or several. A part within a part counts for itself alone, so
    that the parts add up to the whole. On a GPU every part waits for the device before and after,
    which slows the run: read shares, not speed. Nothing is measured, and nothing costs, in a run
    that was not attached."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self.steps = 0
        self._gpu: torch.device | None = None
        self._inner: list[float] = []  # by open part, what parts within it took

    def _wait(self) -> None:
        if self._gpu and not torch.cuda.is_current_stream_capturing():  # nothing runs in a capture
            torch.cuda.synchronize(self._gpu)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._wait()
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            self._wait()
            took = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took

    @contextmanager
    def attached(self, loop: Loop) -> Iterator[None]:
        """Measure what a loop does in this block."""
        self._gpu = loop.device if loop.device.type == "cuda" else None
        timed, before = loop.timed, loop.step

        @contextmanager
        def both(part: str) -> Iterator[None]:
            with self.part(part), timed(part):
                yield

        loop.timed = both  # type: ignore[method-assign]
        for method, part in LEARNER.items():
            loop.adapter.replace_method(method, partial(self._timed, part))
        for rows in loop.recorder.rows.values():
            rows.append = self._timed("record", rows.append)  # type: ignore[method-assign]
        start = time.perf_counter()
        try:
            yield
        finally:
            self.total += time.perf_counter() - start
            self.steps += loop.step - before

    def _timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*args: Any, **named: Any) -> Any:
            with self.part(part):
                return call(*args, **named)

        return timed

    def shares(self) -> dict[str, float]:
        """Part by part, in order of time; they add up to 1."""
        parts = {**self.seconds, "loop": max(0.0, self.total - sum(self.seconds.values()))}
        whole = sum(parts.values())
        ordered = sorted(parts.items(), key=lambda item: -item[1])
        return {name: seconds / whole for name, seconds in ordered if whole > 0}

    def text(self) -> str:
        """A table, and what could be changed about the largest part."""
        if not self.steps:
            return "There is nothing to profile: every run was complete already."
        shares = self.shares()
        lines = [f"Where the time went: {self.steps:,} steps in {self.total:.1f} s."]
        for name, share in shares.items():
            each = 1e3 * share * self.total / self.steps
            what, _ = PARTS.get(name, ("", ""))
            lines.append(f"  {name:<9}{share:>7.1%}{each:>11.3f} ms per step   {what}")
        largest = next(iter(shares))
        if largest in PARTS:
            lines.append(f"To spend less on {largest}: {PARTS[largest][1]}.")
        if self._gpu:
            lines.append(
                "Each part waited for the GPU, so this run was slower than one without --profile."
            )
        return "\n".join(lines)
