"""Orders over a source: the sequence in which samples arrive, and the task of each.

Every function returns addresses in order of arrival and a task number per position, or None where
the stream has no tasks. Labels are never renumbered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Source, pieces


class Order(NamedTuple):
    index: IntArray  # type: ignore[assignment]
    task: IntArray | None = None
    class_task: IntArray | None = None  # task of each class, where classes have one


def address_type(count: int) -> type[np.int32] | type[np.int64]:
    """The smallest integer type for addresses: 39 million take 156 MB instead of 312."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64


def addresses(count: int) -> IntArray:
    """All addresses, in order."""
    return np.arange(count, dtype=address_type(count))


def given(source: Source) -> Order:
    """The order of the source."""
    return Order(addresses(len(source)))


def by_time(source: Source) -> Order:
    """Oldest first; samples of equal time stay in the order of the source."""
    time = _column(source, "time", "a time-ordered stream")
    if getattr(source, "in_time_order", False) or is_sorted(time):
        return given(source)
    return Order(np.argsort(time, kind="stable").astype(address_type(len(source))))


def is_sorted(time: Array) -> bool:
    """Whether no value is smaller than its predecessor; in pieces, to bound memory."""
    return all(
        bool(np.all(time[part.start + 1 : part.stop + 1] >= time[part]))
        for part in pieces(len(time) - 1)
    )


def iid(source: Source, seed: int) -> Order:
    """Shuffled."""
    return Order(np.random.default_rng(seed).permutation(addresses(len(source))))


def class_order(classes: int, seed: int) -> IntArray:
    """A permutation of the classes by `torch.randperm` after `manual_seed`, as in the survey's
    benchmark: equal seeds give equal orders."""
    import torch

    order: IntArray = torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).numpy()
    return order


def class_incremental(source: Source, tasks: int, class_seed: int, seed: int) -> Order:
    """Classes arrive task by task; inside a task the samples are shuffled."""
    class_task = _class_tasks(source.spec.classes, tasks, class_seed)
    task = class_task.astype(np.int32)[source.label]
    return Order(*_by_task(task, tasks, seed), class_task)


def blurry(source: Source, tasks: int, overlap: float, class_seed: int, seed: int) -> Order:
    """Class-incremental, except that a share `overlap` of the samples gets a task drawn uniformly
    from all tasks. 0 is class-incremental, 1 is i.i.d."""
    if not 0 <= overlap <= 1:
        raise StreamgaugeError(f"overlap must be between 0 and 1, not {overlap}.")
    rng = np.random.default_rng([seed, 1])
    class_task = _class_tasks(source.spec.classes, tasks, class_seed)
    task = class_task[source.label]
    strays = rng.random(len(task)) < overlap
    task = np.where(strays, rng.integers(0, tasks, len(task)), task)
    return Order(*_by_task(task, tasks, seed), class_task)


def domain_incremental(source: Source, seed: int) -> Order:
    """One domain (a year, a camera, a style) after the other, in increasing order of its value."""
    domain = _column(source, "domain", "a domain-incremental stream")
    values, task = np.unique(domain, return_inverse=True)
    return Order(*_by_task(task, len(values), seed))


def _class_tasks(classes: int, tasks: int, class_seed: int) -> IntArray:
    if not 1 <= tasks <= classes:
        raise StreamgaugeError(f"{classes} classes cannot be divided into {tasks} tasks.")
    task = np.empty(classes, np.int64)
    for number, chunk in enumerate(np.array_split(class_order(classes, class_seed), tasks)):
        task[chunk] = number
    return task


def _by_task(task: IntArray, tasks: int, seed: int) -> tuple[IntArray, IntArray]:
    shuffled = np.random.default_rng(seed).permutation(addresses(len(task)))
    index = shuffled[np.argsort(task[shuffled], kind="stable")]
    return index, task[index].astype(np.int32, copy=False)


def _column(source: Source, name: str, purpose: str) -> Array:
    if name not in source.columns:
        present = ", ".join(sorted(source.columns)) or "no columns"
        raise StreamgaugeError(f"{purpose} needs a column '{name}'; this source has {present}.")
    return source.columns[name]
