"""A stream: an order over a source, cut into steps, with held-out data and a preparation part."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.settings import check_choices
from streamgauge.streams import order as orders
from streamgauge.streams.source import IntArray, Source, Spec, pieces

Tasks = IntArray | None  # by sample or step; None where there are no tasks


@dataclass(frozen=True, repr=False)
class Split:
    """Held-out samples to evaluate on. `position` is the number of stream samples before each
    held-out sample. With `at_boundaries` the split is evaluated at task boundaries only."""

    index: IntArray
    position: IntArray
    task: IntArray | None = None
    at_boundaries: bool = False

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Split({len(self)} samples)"

    def where(self, chosen: NDArray[np.bool_]) -> Split:
        """The chosen samples alone."""
        task = None if self.task is None else self.task[chosen]
        return replace(self, index=self.index[chosen], position=self.position[chosen], task=task)


@dataclass(frozen=True)
class Arrangement:
    """How a source becomes a stream: the settings of every stream."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "given"  # of samples
    batch: int = 10  # samples per step; with albums, the maximum
    step: Literal["batch", "album"] = "batch"  # what a step is: a batch, or one user's samples
    tasks: int = 1  # for the orders `classes` and `blurry`; no effect in others
    overlap: float = 0.1  # share of samples outside the task of their class; order `blurry` only
    held_out: float = 0.0  # share of samples held out for evaluation
    held_out_by: Literal["time", "task", "random"] = "time"  # how held-out samples are chosen
    preparation: float = 0.0  # share at the start that is used for preparation and never scored
    seed: int = 0  # default of the three seeds below
    order_seed: int | None = None  # of the order of samples; None: `seed`
    class_seed: int | None = None  # of the assignment of classes to tasks; None: `seed`
    split_seed: int | None = None  # of the choice of held-out samples; None: `seed`


@dataclass(frozen=True, repr=False)
class Stream:
    """Steps over a source, with held-out splits; made by `arrange`."""

    name: str
    source: Source
    order: IntArray
    starts: IntArray  # [steps + 1]: step t is order[starts[t]:starts[t + 1]]
    size: int
    task: IntArray | None = None  # per step: a step never crosses a task boundary
    splits: Mapping[str, Split] = field(default_factory=dict)
    preparation: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    class_task: IntArray | None = None
    albums: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)  # counts made when data were opened
    known: orders.StoredHash | None = None  # of an order that was checked when it was stored

    def __post_init__(self) -> None:
        if self.known is not None and self.known.fits(self.parts()):
            return  # checked when it was stored; tens of millions of addresses stay on disk
        for part in (self.order, self.preparation, *(s.index for s in self.splits.values())):
            check_addresses(part, self.source)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        tasks = f", {self.tasks} tasks" if self.tasks else ""
        return f"Stream({self.name!r}: {self.samples} samples in {len(self)} steps{tasks})"

    @property
    def spec(self) -> Spec:
        return self.source.spec

    @property
    def samples(self) -> int:
        return len(self.order)

    @property
    def tasks(self) -> int:
        return 0 if self.task is None else int(self.task[-1]) + 1

    def index(self, step: int) -> IntArray:
        """The addresses of the samples of a step."""
        return self.order[self.starts[step] : self.starts[step + 1]]

    def is_remainder(self, step: int) -> bool:
        """Whether a step is a short last batch of the stream or of a task; false for albums."""
        return not self.albums and bool(self.starts[step + 1] - self.starts[step] < self.size)

    def parts(self) -> dict[str, IntArray | None]:
        """All arrays that determine the order, by name."""
        parts = {name: getattr(self, name) for name in ("order", "starts", "task", "preparation")}
        for name, split in sorted(self.splits.items()):
            parts[f"{name} {split.at_boundaries}"] = split.index
            parts[f"{name} position"] = split.position
            parts[f"{name} task"] = split.task
        return parts

    @cached_property
    def order_hash(self) -> str:
        """Changes when the position, step, task or part of any sample changes."""
        parts = self.parts()
        if self.known is not None and self.known.fits(parts):
            return self.known.hash
        digest = hashlib.blake2b(digest_size=16)
        for name, part in parts.items():
            digest.update(f"{name} {None if part is None else len(part)};".encode())
            if part is None:
                continue
            for some in pieces(len(part), 1 << 20):
                digest.update(part[some].astype(np.int64).data)
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a run stores about its stream: counts, tasks of classes, hashes."""
        names = self.source.class_names
        return {
            "name": self.name,
            "settings": {
                name: value.item() if isinstance(value, np.generic) else value
                for name, value in self.settings.items()
            },
            "samples": self.samples,
            "steps": len(self),
            "step_size": self.size,
            "albums": self.albums,
            "tasks": self.tasks,
            "input_shape": list(self.spec.input_shape),
            "classes": self.spec.classes,
            "class_names": None if names is None else list(names),
            "class_task": None if self.class_task is None else self.class_task.tolist(),
            "held_out": {name: len(split) for name, split in self.splits.items()},
            "preparation": len(self.preparation),
            "data_hash": self.source.fingerprint,
            "order_hash": self.order_hash,
            "notes": dict(self.notes),
        }


def arrange(
    source: Source,
    how: Arrangement | None = None,
    *,
    name: str = "arrays",
    test: IntArray | None = None,
    settings: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    cache: Path | None = None,
) -> Stream:
    """Make a stream from a source: order it, separate preparation and held-out parts, cut steps.
    `test` are addresses of an official test set: never in the stream, evaluated at boundaries.
    `notes` is stored with every run: counts and findings, and what was left out. `cache` is a
    folder that stores the order of a long source, which is then computed once and memory-mapped;
    the stream is the same with and without it."""
    how = how or Arrangement()
    if len(source) == 0:
        raise StreamgaugeError("The stream is empty: its source holds no sample.")
    _check(how)
    common: dict[str, Any] = {
        "name": name,
        "size": int(how.batch),
        "albums": how.step == "album",
        "settings": dict(settings if settings is not None else vars(how)),
        "notes": dict(notes or {}),
    }
    if cache is None or len(source) < orders.LONG:
        return _arrange(source, how, test, common)
    chosen = {setting: getattr(how, setting) for setting in get_type_hints(Arrangement)}
    folder = orders.stored_folder(cache, source, chosen, test)
    stored = orders.load_order(folder)
    if stored is None:
        stream = _arrange(source, how, test, common)
        orders.save_order(folder, stream.parts(), stream.class_task, stream.order_hash)
        return stream
    known, class_task = stored
    parts = known.parts
    splits = {}
    for label in [part for part in parts if part.endswith((" True", " False"))]:
        split, _, boundaries = label.rpartition(" ")
        splits[split] = Split(
            parts[label], parts[f"{split} position"], parts[f"{split} task"], boundaries == "True"
        )
    return Stream(
        source=source,
        order=parts["order"],
        starts=parts["starts"],
        task=parts["task"],
        splits=splits,
        preparation=parts["preparation"],
        class_task=class_task,
        known=known,
        **common,
    )


def _arrange(
    source: Source, how: Arrangement, test: IntArray | None, common: Mapping[str, Any]
) -> Stream:
    ordered = _order(source, how)
    if test is not None:
        check_addresses(test, source)
    test_task = None if test is None else _task_of(source, test, ordered)
    class_task = ordered.class_task
    index, task = _without(ordered, test)
    del ordered  # as long as the source: free it
    prepared = round(len(index) * how.preparation)
    preparation, index = index[:prepared].copy(), index[prepared:]
    task = None if task is None else task[prepared:]

    splits: dict[str, Split] = {}
    held_out = _held_out(len(index), task, how)
    if held_out.any():
        position = np.flatnonzero(held_out) - np.arange(int(held_out.sum()))
        chosen = index[held_out]
        split_task = None if task is None else task[held_out]
        if class_task is not None:  # the task of its class, also where the sample was in another
            split_task = class_task[source.label[chosen]]
        splits["held_out"] = Split(chosen, position, split_task)
        index = _compact(index, held_out)
        task = None if task is None else task[~held_out]
    if len(index) == 0:
        raise StreamgaugeError(
            "No sample is left for the stream after the preparation, held-out and test parts."
        )
    if test is not None and len(test):
        test_position = _positions(source, test, test_task, index, task)
        splits["test"] = Split(test, test_position, test_task, True)

    starts = cut_steps(source, index, task, how)
    return Stream(
        source=source,
        order=index,
        starts=starts,
        task=None if task is None else task[starts[:-1]],
        splits=splits,
        preparation=preparation,
        class_task=class_task,
        **common,
    )


def check_addresses(index: IntArray, source: Source) -> None:
    """Raise an error if an address is outside the source."""
    if len(index) == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= len(source):
        bad = lowest if lowest < 0 else highest
        raise StreamgaugeError(
            f"The order points at sample {bad}, outside its source of {len(source)}."
        )


def _check(how: Arrangement) -> None:
    check_choices(how)
    for setting in ("seed", "order_seed", "class_seed", "split_seed"):
        if (getattr(how, setting) or 0) < 0:
            raise StreamgaugeError(
                f"{setting} is a whole number from 0 on; it is {getattr(how, setting)}."
            )
    if how.batch < 1:
        raise StreamgaugeError(f"A step must reveal at least one sample; batch is {how.batch}.")
    for setting, share in (("held_out", how.held_out), ("preparation", how.preparation)):
        if not 0 <= share < 1:
            raise StreamgaugeError(
                f"{setting} is a share from 0 up to, but not including, 1; it is {share}."
            )


def _order(source: Source, how: Arrangement) -> orders.Order:
    seed = how.seed if how.order_seed is None else how.order_seed
    class_seed = how.seed if how.class_seed is None else how.class_seed
    match how.order:
        case "given":
            return orders.given(source)
        case "time":
            return orders.by_time(source)
        case "iid":
            return orders.iid(source, seed)
        case "classes":
            return orders.class_incremental(source, how.tasks, class_seed, seed)
        case "blurry":
            return orders.blurry(source, how.tasks, how.overlap, class_seed, seed)
        case "domains":
            return orders.domain_incremental(source, seed)


def _without(ordered: orders.Order, test: IntArray | None) -> tuple[IntArray, IntArray | None]:
    if test is None or len(test) == 0:
        return ordered.index, ordered.task
    streamed = np.ones(len(ordered.index), bool)  # by address, in one pass
    streamed[test] = False
    keep = streamed[ordered.index]
    return ordered.index[keep], None if ordered.task is None else ordered.task[keep]


def _compact(index: IntArray, held_out: NDArray[np.bool_]) -> IntArray:
    """The order without held-out positions, compacted in place: no second copy of a long order."""
    end = 0
    for part in pieces(len(index)):
        left = index[part][~held_out[part]]
        index[end : end + len(left)] = left
        end += len(left)
    return index[:end]


def _held_out(count: int, task: IntArray | None, how: Arrangement) -> NDArray[np.bool_]:
    """A mask of held-out positions: one drawn from every 1/share consecutive samples (`time`), a
    random share of each task (`task`), or of all (`random`, and `task` without tasks)."""
    held_out = np.zeros(count, bool)
    if how.held_out == 0 or count == 0:
        return held_out
    rng = np.random.default_rng([how.seed if how.split_seed is None else how.split_seed, 2])
    if how.held_out_by == "time":
        edges = np.floor(np.arange(round(count * how.held_out) + 1) / how.held_out).astype(np.int64)
        edges = np.minimum(edges, count)
        width = np.diff(edges)
        edges, width = edges[:-1][width > 0], width[width > 0]
        held_out[edges + np.floor(rng.random(len(edges)) * width).astype(np.int64)] = True
    elif how.held_out_by == "random" or task is None:
        held_out[rng.choice(count, round(count * how.held_out), replace=False)] = True
    else:
        for number in range(int(task[-1]) + 1):
            inside = np.flatnonzero(task == number)
            held_out[rng.choice(inside, int(len(inside) * how.held_out), replace=False)] = True
    return held_out


def _task_of(source: Source, index: IntArray, ordered: orders.Order) -> IntArray | None:
    """The task with which held-out samples are evaluated: that of their class, or else the task in
    which they would have arrived."""
    if ordered.class_task is not None:
        return ordered.class_task[source.label[index]]
    if ordered.task is None:
        return None
    task = np.full(len(source), -1, np.int64)
    task[ordered.index] = ordered.task
    return task[index]


def _positions(
    source: Source, test: IntArray, test_task: Tasks, index: IntArray, task: Tasks
) -> IntArray:
    """Positions of test samples in the stream: by task, by time in a stream in time order, or 0."""
    if test_task is not None and task is not None:
        return np.searchsorted(task, test_task)
    time = source.columns.get("time")
    if time is not None:
        times = time[index]
        if bool(np.all(times[1:] >= times[:-1])):
            return np.searchsorted(times, time[test])
    return np.zeros(len(test), np.int64)


def cut_steps(source: Source, index: IntArray, task: IntArray | None, how: Arrangement) -> IntArray:
    """The first position of each step: consecutive samples of one task, or with albums of one user
    in one task, are cut into pieces of at most `batch` samples."""
    count = len(index)
    kind = orders.address_type(count)
    if how.step == "batch" and task is None:  # without an array as long as the stream
        return np.append(np.arange(0, count, how.batch), count)
    user = None
    if how.step == "album":
        if "user" not in source.columns:
            raise StreamgaugeError("Albums need a column 'user', and this source has none.")
        user = source.columns["user"]
    # Processed in pieces; `begin` is the start of the run that continues in the next piece.
    starts = np.empty(count + 1, kind)  # the maximum; unused pages take no memory
    used = begin = 0
    for part in pieces(count):
        end = part.stop
        first = max(part.start - 1, 0)  # the sample before the piece, to compare with
        breaks = np.zeros(end - first, bool)
        if task is not None:
            breaks[1:] |= task[first + 1 : end] != task[first : end - 1]
        if user is not None:
            here = user[index[first:end]]
            breaks[1:] |= here[1:] != here[:-1]
        runs = np.concatenate(([begin], np.flatnonzero(breaks) + first))
        length = np.diff(runs, append=end)
        cuts = (length - 1) // how.batch  # further steps in each run
        number = np.arange(1, cuts.sum() + 1) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        inside = np.repeat(runs, cuts) + number * how.batch
        steps = np.sort(np.concatenate((runs, inside)), kind="stable")
        begin = int(runs[-1])
        if end < count:  # the last run may continue in the next piece
            steps = steps[: np.searchsorted(steps, begin)]
        starts[used : used + len(steps)] = steps
        used += len(steps)
    starts[used] = count
    cut = starts[: used + 1]
    return cut if 2 * used > count else cut.copy()  # a view would keep the whole array in memory
