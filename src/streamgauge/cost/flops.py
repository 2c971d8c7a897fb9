"""FLOPs of jobs: counted once per kind and shape of job, then looked up.

`torch.utils.flop_counter` intercepts every operator, which makes a step of a small network two to
three times as slow. Jobs of equal shape take equal FLOPs, so the first job of a shape is counted
and its FLOPs are used for the following jobs of that shape. A shape consists of:

- the kind of job, the batch size, and the result of the learner's optional `work()` before the job:
  everything else that the FLOPs of the next job depend on, such as the number of recalled samples;
- parts of a job whose size is not known before: the learner marks them, `with part("name", size):`,
  and their FLOPs are counted per name and size and added.

What a learner declares is checked: of each shape, the first, second, fourth, eighth ... job is
counted, and once two counts of a shape differ, every job of that shape is counted. Where jobs are
replayed from a recording, only the first is counted, since equal shapes are equal operations.

The FLOPs of dense networks are affine in a number of samples. Where such a number differs in nearly
every job, a learner marks it in `work()` as `Affine(number)`; shapes that differ only in this
number, above 0, are a family. Once three counts lie exactly on a line, FLOPs of new shapes are
computed from it; the first, second, fourth, eighth ... of these is counted nevertheless. A count
that is not on the line ends its use for good. Numbers that are not marked are never interpolated,
since FLOPs need not be affine in them (a batch that waits until it is full takes none before).

Work outside torch cannot be counted. The FLOPs of a job are unknown (NaN) while nothing was counted
for the learner and none of its attributes is of torch: NumPy, scikit-learn, river.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any

_active: ContextVar[Meter | None] = ContextVar("meter", default=None)


class Affine(int):
    """Entry of `work()` in which the FLOPs of a job are affine where it is not 0, all else being
    equal: a number of samples that are all processed alike. At most one entry per job."""


@dataclass
class _FlopsLine:
    """The FLOPs of a family of shapes, by the number in which they differ."""

    counted: dict[int, int] = field(default_factory=dict)  # the first two define the line
    computed: list[str] = field(default_factory=list)  # shapes that were never counted
    read: int = 0  # number of shapes computed so far
    bent: bool = False  # a count was not on the line

    def at(self, number: int) -> float | None:
        """FLOPs computed from the line, None if the line is not established."""
        if self.bent or len(self.counted) < 3:
            return None
        flops = self._through_first_two(number)
        return float(flops) if flops.denominator == 1 else None

    def learn(self, number: int, flops: float) -> None:
        known = self.counted.setdefault(number, int(flops))
        expected = known if len(self.counted) < 2 else self._through_first_two(number)
        self.bent = self.bent or expected != flops

    def _through_first_two(self, number: int) -> Fraction:
        (x, y), (other_x, other_y) = islice(self.counted.items(), 2)
        return y + Fraction(other_y - y, other_x - x) * (number - x)


class Meter:
    """FLOPs of a learner's jobs: after `with meter.job("learn", 10): ...`, `meter.flops` are those
    of the job. The state of the meter is part of a checkpoint."""

    replayed = False  # jobs are replays of recordings
    total: Callable[[float], float] | None = None  # sums over processes that share a job

    def __init__(
        self,
        work: Callable[[], Any] | None = None,
        sees_input: bool = True,
        uses_torch: Callable[[], bool] = lambda: True,
    ) -> None:
        self._work = work
        self._uses_torch = uses_torch
        # Without inputs there are no products to count, and the first use of the counter imports a
        # large part of torch, which takes a second.
        self._nothing = not sees_input
        self.known: dict[str, float] = {}
        self.seen: dict[str, int] = {}  # jobs of each shape
        self.varies: set[str] = set()  # shapes whose counts differed
        self.lines: dict[str, _FlopsLine] = {}  # by family
        self.flops = float("nan")  # of the last job
        self.counting = False
        self._line: _FlopsLine | None = None  # of the current job
        self._own = 0.0  # FLOPs of the current job without its parts
        self._apart = 0.0  # FLOPs of its parts

    @property
    def finds_nothing(self) -> bool:
        """Whether jobs were counted and have nothing that can be: their FLOPs are unknown."""
        counted = self._nothing or any(self.known.values()) or self._uses_torch()
        return bool(self.known) and not counted

    def job(self, kind: str, *shape: Any) -> Meter:
        work = None if self._work is None else self._work()
        self._key = f"{kind}{shape}{'' if work is None else work}"
        self._line, self._number = None, 0
        entries = work if isinstance(work, tuple) else ()
        for position, entry in enumerate(entries):
            if isinstance(entry, Affine) and entry:
                family = f"{kind}{shape}{(*entries[:position], '*', *entries[position + 1 :])}"
                self._line, self._number = self.lines.setdefault(family, _FlopsLine()), int(entry)
        return self

    def __enter__(self) -> None:
        self._own = self._apart = 0.0
        self.counting = self._is_due(self._key)
        self._token = _active.set(self)
        if self.counting:
            self._resume()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _active.reset(self._token)
        if self.counting:
            self._pause()
            self.counting = False
            if kind is None:
                own = self._own if self.total is None else self.total(self._own)
                self._store(self._key, own)
        self.flops = self.known.get(self._key, float("nan")) + self._apart
        if not self.flops and self.finds_nothing:
            self.flops = float("nan")

    def _resume(self) -> None:
        self._counter = _counter()
        self._counter.__enter__()

    def _pause(self) -> None:
        self._counter.__exit__(None, None, None)
        self._own += float(self._counter.get_total_flops())
        del self._counter

    def _is_due(self, key: str) -> bool:
        if self._nothing:
            self.known[key] = 0.0
            return False
        self.seen[key] = times = self.seen.get(key, 0) + 1
        line = self._line
        if line is not None and times == 1:
            flops = line.at(self._number)
            if flops is not None:
                self.known[key] = flops
                line.computed.append(key)
                line.read += 1
                return _is_power_of_two(line.read)
        if self.replayed:
            return times == 1
        return _is_power_of_two(times) or key in self.varies

    def _store(self, key: str, flops: float) -> None:
        line = self._line
        if line is not None and key in line.computed:
            line.computed.remove(key)
        elif self.known.get(key, flops) != flops:
            self.varies.add(key)
        self.known[key] = flops
        if line is not None:
            line.learn(self._number, flops)
            while line.bent and line.computed:  # forget the computed shapes
                other = line.computed.pop()
                del self.known[other], self.seen[other]

    @contextmanager
    def part(self, name: str, *shape: Any) -> Iterator[None]:
        """A part with known FLOPs is not counted again, even within a job that is: there can be
        thousands in one job, and counted operators cannot be replayed from a recording."""
        key = f"part {name}{shape}"
        around = self.counting
        if around:
            self._pause()
        self.counting = key not in self.known
        try:
            if self.counting:
                with _counter() as counter:
                    yield
                self.known[key] = float(counter.get_total_flops())
            else:
                yield
        finally:
            self.counting = around
            if around:
                self._resume()
        self._apart += self.known[key]

    def state_dict(self) -> dict[str, Any]:
        lines = {family: asdict(line) for family, line in self.lines.items()}
        return {"known": dict(self.known), "seen": dict(self.seen), "varies": sorted(self.varies),
                "lines": lines}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known, self.seen = dict(state["known"]), dict(state["seen"])
        self.varies = set(state["varies"])
        lines = deepcopy(state.get("lines", {}))  # older checkpoints have none
        self.lines = {family: _FlopsLine(**line) for family, line in lines.items()}


@contextmanager
def part(name: str, *shape: Any) -> Iterator[None]:
    """Mark a part of a job whose size is not known before the job: counted once per name and size.
    Parts are not nested. Outside of a metered job this does nothing."""
    meter = _active.get()
    if meter is None:
        yield
    else:
        with meter.part(name, *shape):
            yield


def counting() -> bool:
    """Whether the current job is being counted. An engine must then execute every operator itself,
    since the operators of a replayed CUDA graph cannot be intercepted."""
    meter = _active.get()
    return meter is not None and meter.counting


def _is_power_of_two(times: int) -> bool:
    return times & (times - 1) == 0


def _counter() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)
