"""A prefix: the beginning of a stream as a stream, from which later samples cannot be reached.

Settings are tuned on a prefix. Its source has new addresses for the samples of the prefix alone, so
that a later sample, its label and its time have no address.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Source, SourceView
from streamgauge.streams.stream import Arrangement, Split, Stream, cut_steps

_FORM = re.compile(r"([0-9._eE+-]+)\s*(tasks?|samples?|%(?:\s*of\s*time)?)")
_WORDS = '"4 tasks", "5 %", "5 % of time", "20000 samples" or "preparation"'


class PrefixRequest(NamedTuple):
    """The length of a prefix: a number of tasks or samples, or a share of samples or of time."""

    kind: str  # tasks, samples, share, time or preparation
    amount: float = 0.0


def parse(text: str) -> PrefixRequest:
    """
    >>> parse("4 tasks"), parse("5 %")
    (PrefixRequest(kind='tasks', amount=4.0), PrefixRequest(kind='share', amount=0.05))
    """
    plain = text.strip()
    if plain == "preparation":
        return PrefixRequest("preparation")
    match = _FORM.fullmatch(plain)
    try:
        amount = float(match[1]) if match else 0.0
    except ValueError:
        amount = 0.0
    if match is None or not amount > 0:
        raise StreamgaugeError(f"A prefix is {_WORDS}, not '{text}'.")
    unit = match[2]
    if unit.startswith("%"):
        if amount > 100:
            raise StreamgaugeError(f"A prefix is 100 % of a stream at the most, not '{text}'.")
        return PrefixRequest("time" if unit.endswith("time") else "share", amount / 100)
    if amount != int(amount):
        raise StreamgaugeError(f"A prefix has a whole number of tasks or samples, not '{text}'.")
    return PrefixRequest("tasks" if unit.startswith("task") else "samples", amount)


def prefix(stream: Stream, how_much: str) -> Stream:
    """The first tasks ("4 tasks"), samples ("5 %", "20000 samples") or time ("5 % of time") of a
    stream; or "preparation": the preparation part before the stream, as a stream.

    A prefix has whole steps only. Held-out samples are kept if their position is within the prefix;
    an official test set is left out, since no setting may be chosen on it.

    >>> from streamgauge.streams.named import blobs
    >>> prefix(blobs.build(blobs.Config()), "2 tasks")
    Stream('blobs': 720 samples in 72 steps, 2 tasks)
    """
    request = parse(how_much)
    settings = {**stream.settings, "prefix": how_much.strip()}
    if request.kind == "preparation":
        return _preparation(stream, settings)
    steps = _steps(stream, request)
    if steps == 0:
        raise StreamgaugeError(f"'{how_much}' of {stream.name} is less than its first step.")
    end = int(stream.starts[steps])
    task = None if stream.task is None else stream.task[:steps]
    order = stream.order[:end]
    splits = {
        name: inside
        for name, split in stream.splits.items()
        if not split.at_boundaries and len(inside := _within(stream, split, steps))
    }
    class_task = stream.class_task
    if class_task is not None and task is not None:
        # All later tasks get one number, so that the order of later classes is not revealed.
        class_task = np.minimum(class_task, int(task[-1]) + 1)
    part = SourcePart(
        stream.source, [order, stream.preparation, *(s.index for s in splits.values())]
    )
    return replace(
        stream,
        source=part,
        order=part.addresses(order),
        starts=stream.starts[: steps + 1],
        task=task,
        splits={n: replace(s, index=part.addresses(s.index)) for n, s in splits.items()},
        preparation=part.addresses(stream.preparation),
        class_task=class_task,
        settings=settings,
        known=None,
    )


def _preparation(stream: Stream, settings: dict[str, Any]) -> Stream:
    if not len(stream.preparation):
        raise StreamgaugeError(
            f"{stream.name} has no preparation part: set one apart with --stream.preparation 0.05,"
            f" or give another prefix, {_WORDS}."
        )
    part = SourcePart(stream.source, [stream.preparation])
    order = part.addresses(stream.preparation)
    how = Arrangement(batch=stream.size, step="album" if stream.albums else "batch")
    return replace(
        stream,
        source=part,
        order=order,
        starts=cut_steps(part, order, None, how),
        task=None,
        splits={},
        preparation=order[:0],
        class_task=None,
        settings=settings,
        known=None,
    )


def _steps(stream: Stream, request: PrefixRequest) -> int:
    """Number of whole steps in the requested prefix."""
    if request.kind == "tasks":
        if stream.task is None or request.amount > stream.tasks:
            has = f"{stream.tasks} tasks" if stream.tasks else "no tasks"
            raise StreamgaugeError(
                f"{stream.name} has {has}, so '{int(request.amount)} tasks' is not a prefix of it."
            )
        return int(np.searchsorted(stream.task, int(request.amount)))
    if request.kind == "time":
        time = stream.source.columns.get("time")
        if time is None:
            raise StreamgaugeError(
                f"{stream.name} has no times: give its prefix in samples, such as '5 %'."
            )
        times = time[stream.order].astype(np.float64)
        if np.any(times[1:] < times[:-1]):
            raise StreamgaugeError(
                f"{stream.name} is not in order of time: give its prefix in samples, such as '5 %'."
            )
        last = times[0] + request.amount * (times[-1] - times[0])
        samples = int(np.searchsorted(times, last, side="right"))
    elif request.kind == "samples":
        samples = int(request.amount)
    else:
        samples = int(request.amount * stream.samples + 1e-9)
    return int(np.searchsorted(stream.starts, samples, side="right")) - 1


def _within(stream: Stream, split: Split, steps: int) -> Split:
    """The held-out samples before the end of the prefix. A held-out sample comes right before the
    stream sample at its position. At the end of the prefix the position does not tell on which side
    it is; its task does, where every sample comes in the task of its class."""
    end = int(stream.starts[steps])
    inside: NDArray[np.bool_] = np.asarray(split.position < end)
    if split.task is not None and stream.task is not None:
        last = int(stream.task[steps - 1])
        inside &= split.task <= last
        whole = steps == len(stream) or int(stream.task[steps]) > last
        if whole and _keep_to_tasks(stream):
            inside |= (split.position == end) & (split.task <= last)
    elif steps == len(stream):
        inside[:] = True
    return split.where(inside)


def _keep_to_tasks(stream: Stream) -> bool:
    """Whether every sample comes in the task of its class (not so in blurry orders)."""
    if stream.class_task is None or stream.task is None:
        return True
    task = np.repeat(stream.task, np.diff(stream.starts))
    return bool((stream.class_task[stream.source.label[stream.order]] == task).all())


class SourcePart(SourceView):
    """Some samples of a source as a source; the others cannot be reached."""

    def __init__(self, source: Source, parts: Sequence[IntArray]) -> None:
        super().__init__(source)
        self._index = np.unique(np.concatenate([np.asarray(part, np.int64) for part in parts]))
        self.label = source.label[self._index]
        self.columns = {name: column[self._index] for name, column in source.columns.items()}

    def addresses(self, index: IntArray) -> IntArray:
        """Addresses in this part, of samples given by their address in the whole source."""
        return np.searchsorted(self._index, index)

    def read(self, index: IntArray) -> Array:
        return self._source.read(self._index[index])

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(self._source.fingerprint.encode(), digest_size=16)
        digest.update(self._index.tobytes())
        return digest.hexdigest()

    def __getattr__(self, name: str) -> Any:
        """Optional members of a source: `in_memory`, and those of encoded images for workers."""
        if name in ("in_memory", "encoded_images", "scaled"):
            return getattr(self._source, name)
        if name == "encoded":
            whole = self._source.encoded  # type: ignore[attr-defined]
            return lambda index: whole(int(self._index[index]))
        if name == "read_into":
            into = self._source.read_into  # type: ignore[attr-defined]
            return lambda index, out: into(self._index[index], out)
        raise AttributeError(name)
