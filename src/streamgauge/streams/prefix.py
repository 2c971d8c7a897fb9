"""The beginning of a stream as a stream of its own, from which nothing later can be reached.

Settings are chosen on such a beginning. Its source holds the samples of that part and no others,
numbered anew, so that a sample of later, its label or its time has no address at all.
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
from streamgauge.streams.source import Array, IntArray, Source
from streamgauge.streams.stream import Arrangement, Split, Stream, cut_steps

_FORM = re.compile(r"([0-9._eE+-]+)\s*(tasks?|samples?|%(?:\s*of\s*time)?)")
_WORDS = '"4 tasks", "5 %", "5 % of time", "20000 samples" or "preparation"'


class Asked(NamedTuple):
    """How much of a stream: a number of tasks or samples, or a share of samples or of time."""

    kind: str  # tasks, samples, share, time or preparation
    amount: float = 0.0


def parse(text: str) -> Asked:
    """
    >>> parse("4 tasks"), parse("5 %")
    (Asked(kind='tasks', amount=4.0), Asked(kind='share', amount=0.05))
    """
    plain = text.strip()
    if plain == "preparation":
        return Asked("preparation")
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
        return Asked("time" if unit.endswith("time") else "share", amount / 100)
    if amount != int(amount):
        raise StreamgaugeError(f"A prefix has a whole number of tasks or samples, not '{text}'.")
    return Asked("tasks" if unit.startswith("task") else "samples", amount)


def prefix(stream: Stream, how_much: str) -> Stream:
    """The first tasks ("4 tasks"), samples ("5 %", "20000 samples") or time ("5 % of time") of a
    stream; or "preparation": the part before it that is never scored, as a stream.

    Whole steps, and as many as fit. Of held-out samples, only those that lie within are kept; an
    official test set is left out, since nothing is to be chosen on it.

    >>> from streamgauge.streams.named import blobs
    >>> prefix(blobs.build(blobs.Config()), "2 tasks")
    Stream('blobs': 720 samples in 72 steps, 2 tasks)
    """
    asked = parse(how_much)
    settings = {**stream.settings, "prefix": how_much.strip()}
    if asked.kind == "preparation":
        return _preparation(stream, settings)
    steps = _steps(stream, asked)
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
    later = None if stream.class_task is None else stream.class_task
    if later is not None and task is not None:
        # Which of the later tasks brings a class is not told, nor how many there are.
        later = np.minimum(later, int(task[-1]) + 1)
    kept = Part(stream.source, [order, stream.preparation, *(s.index for s in splits.values())])
    return replace(
        stream,
        source=kept,
        order=kept.places(order),
        starts=stream.starts[: steps + 1],
        task=task,
        splits={n: replace(s, index=kept.places(s.index)) for n, s in splits.items()},
        preparation=kept.places(stream.preparation),
        class_task=later,
        settings=settings,
        known=None,
    )


def _preparation(stream: Stream, settings: dict[str, Any]) -> Stream:
    if not len(stream.preparation):
        raise StreamgaugeError(
            f"{stream.name} has no preparation part: set one apart with --stream.preparation 0.05,"
            f" or give another prefix, {_WORDS}."
        )
    kept = Part(stream.source, [stream.preparation])
    order = kept.places(stream.preparation)
    how = Arrangement(batch=stream.size, step="album" if stream.albums else "batch")
    return replace(
        stream,
        source=kept,
        order=order,
        starts=cut_steps(kept, order, None, how),
        task=None,
        splits={},
        preparation=order[:0],
        class_task=None,
        settings=settings,
        known=None,
    )


def _steps(stream: Stream, asked: Asked) -> int:
    """How many whole steps lie in the part that was asked for."""
    if asked.kind == "tasks":
        if stream.task is None or asked.amount > stream.tasks:
            has = f"{stream.tasks} tasks" if stream.tasks else "no tasks"
            raise StreamgaugeError(
                f"{stream.name} has {has}, so '{int(asked.amount)} tasks' is no prefix of it."
            )
        return int(np.searchsorted(stream.task, int(asked.amount)))
    if asked.kind == "time":
        time = stream.source.columns.get("time")
        if time is None:
            raise StreamgaugeError(
                f"{stream.name} has no times: give its prefix in samples, such as '5 %'."
            )
        line = time[stream.order].astype(np.float64)
        if np.any(line[1:] < line[:-1]):
            raise StreamgaugeError(
                f"{stream.name} is not in order of time: give its prefix in samples, such as '5 %'."
            )
        last = line[0] + asked.amount * (line[-1] - line[0])
        samples = int(np.searchsorted(line, last, side="right"))
    elif asked.kind == "samples":
        samples = int(asked.amount)
    else:
        samples = int(asked.amount * stream.samples + 1e-9)
    return int(np.searchsorted(stream.starts, samples, side="right")) - 1


def _within(stream: Stream, split: Split, steps: int) -> Split:
    """The held-out samples that come before the end of the prefix.

    One comes right before the stream sample of its position. At the very end of the prefix that
    says nothing of the side it lies on; its task does, where samples only come in their own task.
    """
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
    return replace(
        split,
        index=split.index[inside],
        position=split.position[inside],
        task=None if split.task is None else split.task[inside],
    )


def _keep_to_tasks(stream: Stream) -> bool:
    """Whether every sample comes in the task of its class (not so in blurry orders)."""
    if stream.class_task is None or stream.task is None:
        return True
    task = np.repeat(stream.task, np.diff(stream.starts))
    return bool((stream.class_task[stream.source.label[stream.order]] == task).all())


class Part:
    """Some samples of a source, as a source; all others are out of reach."""

    def __init__(self, source: Source, parts: Sequence[IntArray]) -> None:
        self._source = source
        self._at = np.unique(np.concatenate([np.asarray(part, np.int64) for part in parts]))
        self.spec, self.class_names = source.spec, source.class_names
        self.label = source.label[self._at]
        self.columns = {name: column[self._at] for name, column in source.columns.items()}

    def __len__(self) -> int:
        return len(self._at)

    def places(self, index: IntArray) -> IntArray:
        """Where samples of the source are in this part of it."""
        return np.searchsorted(self._at, index)

    def read(self, index: IntArray) -> Array:
        return self._source.read(self._at[index])

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(self._source.fingerprint.encode(), digest_size=16)
        digest.update(self._at.tobytes())
        return digest.hexdigest()

    def __getattr__(self, name: str) -> Any:
        """What a source may have beyond the contract and this one needs: whether reading costs
        nothing, or decoding images, which workers then do."""
        if name in ("in_memory", "encoded_images"):
            return getattr(self._source, name)
        if name == "encoded":
            whole = self._source.encoded  # type: ignore[attr-defined]
            return lambda index: whole(int(self._at[index]))
        if name == "read_into":
            into = self._source.read_into  # type: ignore[attr-defined]
            return lambda index, out: into(self._at[index], out)
        raise AttributeError(name)
