"""How many FLOPs a job takes: counted once for every kind and shape of job, and then known.

`torch.utils.flop_counter` sees every operator, which makes a small network's step two to three
times as slow. But equal shapes take equal FLOPs. So a job is counted when it is the first of its
shape, and its figure is used again for those that follow. What a shape is:

- the kind of job, the size of its batch, and what the learner's `work()` says before it begins,
  where it has one: whatever else the FLOPs of its next job depend on, such as how many samples it
  will recall;
- a part of a job whose size (or whether it happens at all) only shows on the way is marked by the
  learner, `with part("name", size):`, and has a figure of its own that is added.

No learner is taken at its word: of each shape the first, second, fourth, eighth ... job is counted,
and from the first figure that is another one on, every job of that shape is. Where jobs are
replayed from a recording, equal shapes are equal operations, and the first alone is counted. Only a
learner that never sees an input (`sees_input = False`) has 0 without being counted.

Where nearly every job has a shape of its own, as some number of samples is another one each time,
counting would never end. What dense networks take is affine in such a number, and a learner that
marks it in `work()`, `Affine(number)`, has its shapes put in families: alike but for that number,
which is not 0. Once a family's first two counted figures and a third, at three numbers, lie on a
line exactly, the figures of new shapes are read off it. This is not taken on trust either: of the
shapes so computed the first, second, fourth, eighth ... is counted all the same, and so is what the
rule above says. The first figure beside the line ends it for good: what was computed is forgotten,
and the family's shapes are counted as any others. Numbers that are not marked are never read off a
line, since many are not on one (a batch that waits to be full takes nothing until it is).
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
    """The entry of `work()` that the FLOPs of a job are an affine function of where it is not 0,
    all else being equal: a number of samples that are all treated alike. One entry at most."""


@dataclass
class _Line:
    """The FLOPs of a family of shapes, by the number in which they differ."""

    counted: dict[int, int] = field(default_factory=dict)  # the first two say where the line is
    computed: list[str] = field(default_factory=list)  # shapes read off it, and never counted
    read: int = 0  # how many shapes were
    bent: bool = False  # a figure was counted that does not lie on it

    def at(self, number: int) -> float | None:
        """What can be said of a shape that was not counted."""
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
    """The FLOPs of one learner's jobs. Used around each: `with meter.job("learn", 10): ...`, after
    which `meter.flops` is what it took. Its state belongs in the checkpoint."""

    replayed = False  # jobs are replays of recordings
    total: Callable[[float], float] | None = None  # sums over processes that share a job

    def __init__(self, work: Callable[[], Any] | None = None, sees_input: bool = True) -> None:
        self._work = work
        # Labels alone are nothing to multiply. And the counter's first use loads a good part of
        # torch, a second that is not to be paid for nothing.
        self._nothing = not sees_input
        self.known: dict[str, float] = {}
        self.seen: dict[str, int] = {}  # jobs of each shape
        self.varies: set[str] = set()  # shapes whose figures were not equal
        self.lines: dict[str, _Line] = {}  # of families
        self.flops = float("nan")  # of the last job
        self.counting = False
        self._line: _Line | None = None  # of the job at hand
        self._own = 0.0  # of it, without its parts
        self._apart = 0.0  # of its parts

    def job(self, kind: str, *shape: Any) -> Meter:
        work = None if self._work is None else self._work()
        self._key = f"{kind}{shape}{'' if work is None else work}"
        self._line, self._number = None, 0
        entries = work if isinstance(work, tuple) else ()
        for place, entry in enumerate(entries):
            if isinstance(entry, Affine) and entry:
                family = f"{kind}{shape}{(*entries[:place], '*', *entries[place + 1 :])}"
                self._line, self._number = self.lines.setdefault(family, _Line()), int(entry)
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
                self._learnt(self._key, own)
        self.flops = self.known.get(self._key, float("nan")) + self._apart

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

    def _learnt(self, key: str, flops: float) -> None:
        line = self._line
        if line is not None and key in line.computed:
            line.computed.remove(key)
        elif self.known.get(key, flops) != flops:
            self.varies.add(key)
        self.known[key] = flops
        if line is not None:
            line.learn(self._number, flops)
            while line.bent and line.computed:  # these are as though they had never been met
                other = line.computed.pop()
                del self.known[other], self.seen[other]

    @contextmanager
    def part(self, name: str, *shape: Any) -> Iterator[None]:
        """A part that is known is not counted again, though the job around it may be: there can be
        thousands in one job, and who replays recorded steps has to take counted ones as they are.
        """
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
        self.lines = {family: _Line(**line) for family, line in lines.items()}


@contextmanager
def part(name: str, *shape: Any) -> Iterator[None]:
    """Mark a part of a job whose size is not known before: it is counted once a name and size.
    Parts do not stand within parts. Outside of a metered job this does nothing."""
    meter = _active.get()
    if meter is None:
        yield
    else:
        with meter.part(name, *shape):
            yield


def counting() -> bool:
    """Whether the job at hand is being counted: whoever replays recorded steps (a CUDA graph, whose
    operators nobody sees) must take this one operator by operator."""
    meter = _active.get()
    return meter is not None and meter.counting


def _is_power_of_two(times: int) -> bool:
    return times & (times - 1) == 0


def _counter() -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)
