"""Orders over a source: in which sequence its samples arrive, and which task each belongs to.

Every function returns addresses in order of arrival, and for each position a task number, or None
where the stream has no tasks. Labels are never renumbered; what changes is only the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Source, pieces


class Order(NamedTuple):
    index: IntArray  # type: ignore[assignment]
    task: IntArray | None = None
    class_task: IntArray | None = None  # home task of each class, where classes have one


def address_type(count: int) -> type[np.int32] | type[np.int64]:
    """The smallest type that holds addresses: 39 million cost 156 MB, not 312."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64


def addresses(count: int) -> IntArray:
    """All addresses, in order."""
    return np.arange(count, dtype=address_type(count))


def given(source: Source) -> Order:
    """As the source has them."""
    return Order(addresses(len(source)))


def by_time(source: Source) -> Order:
    """Oldest first; samples of the same time stay as the source has them."""
    time = _column(source, "time", "a time-ordered stream")
    if getattr(source, "in_time_order", False) or rises(time):
        return given(source)
    return Order(np.argsort(time, kind="stable").astype(address_type(len(source))))


def rises(time: Array) -> bool:
    """Whether no value is smaller than the one before it; piece by piece, for long columns."""
    return all(
        bool(np.all(time[part.start + 1 : part.stop + 1] >= time[part]))
        for part in pieces(len(time) - 1)
    )


def iid(source: Source, seed: int) -> Order:
    """Shuffled: every moment of the stream is like any other."""
    return Order(np.random.default_rng(seed).permutation(addresses(len(source))))


def class_order(classes: int, seed: int) -> IntArray:
    """A permutation of the classes, drawn as `torch.randperm` draws it after `manual_seed`.

    That is how the survey's benchmark draws its order, so equal seeds give equal orders.
    """
    import torch

    order: IntArray = torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).numpy()
    return order


def class_incremental(source: Source, tasks: int, class_seed: int, seed: int) -> Order:
    """Classes arrive task by task; inside a task the samples are shuffled."""
    class_task = _home_tasks(source.spec.classes, tasks, class_seed)
    task = class_task.astype(np.int32)[source.label]
    return Order(*_by_task(task, tasks, seed), class_task)


def blurry(source: Source, tasks: int, overlap: float, class_seed: int, seed: int) -> Order:
    """Class-incremental, but a share `overlap` of each class's samples lands in a task drawn
    uniformly from all tasks, so that classes fade in and out. 0 is class-incremental, 1 is i.i.d.
    """
    if not 0 <= overlap <= 1:
        raise StreamgaugeError(f"overlap must be between 0 and 1, not {overlap}.")
    rng = np.random.default_rng([seed, 1])
    class_task = _home_tasks(source.spec.classes, tasks, class_seed)
    task = class_task[source.label]
    strays = rng.random(len(task)) < overlap
    task = np.where(strays, rng.integers(0, tasks, len(task)), task)
    return Order(*_by_task(task, tasks, seed), class_task)


def domain_incremental(source: Source, seed: int) -> Order:
    """One domain (a year, a camera, a style) after the other, in increasing order of its value."""
    domain = _column(source, "domain", "a domain-incremental stream")
    values, task = np.unique(domain, return_inverse=True)
    return Order(*_by_task(task, len(values), seed))


def _home_tasks(classes: int, tasks: int, class_seed: int) -> IntArray:
    if not 1 <= tasks <= classes:
        raise StreamgaugeError(f"{classes} classes cannot be divided into {tasks} tasks.")
    home = np.empty(classes, np.int64)
    for number, chunk in enumerate(np.array_split(class_order(classes, class_seed), tasks)):
        home[chunk] = number
    return home


def _by_task(task: IntArray, tasks: int, seed: int) -> tuple[IntArray, IntArray]:
    shuffled = np.random.default_rng(seed).permutation(addresses(len(task)))
    index = shuffled[np.argsort(task[shuffled], kind="stable")]
    return index, task[index].astype(np.int32, copy=False)


def _column(source: Source, name: str, purpose: str) -> Array:
    if name not in source.columns:
        there = ", ".join(sorted(source.columns)) or "no columns"
        raise StreamgaugeError(f"{purpose} needs a column '{name}'; this source has {there}.")
    return source.columns[name]
