"""A stream: an order over a source, cut into steps, with data held out and a part to prepare on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.streams import order as orders
from streamgauge.streams import stored_order as kept
from streamgauge.streams.source import IntArray, Source, Spec


@dataclass(frozen=True, repr=False)
class Split:
    """Samples kept back from the stream to evaluate on.

    `position` is the number of stream samples that came before each, so that held-out samples have
    a place on the stream's own axis. `at_boundaries` = only evaluated at task boundaries.
    """

    index: IntArray
    position: IntArray
    task: IntArray | None = None
    at_boundaries: bool = False

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Split({len(self)} samples)"


@dataclass(frozen=True)
class Arrangement:
    """How a source becomes a stream. Every stream has these settings."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "given"
    batch: int = 10  # samples a step reveals; with albums, the most it may reveal
    step: Literal["batch", "album"] = "batch"
    tasks: int = 1  # for the orders `classes` and `blurry`; without effect in others
    overlap: float = 0.1  # share of samples outside their class's task; order `blurry` only
    held_out: float = 0.0  # share of samples kept back for evaluation
    held_out_by: Literal["time", "task", "random"] = "time"
    preparation: float = 0.0  # share at the start that is never scored
    seed: int = 0  # sets the three below unless they are given
    order_seed: int | None = None
    class_seed: int | None = None
    split_seed: int | None = None


@dataclass(frozen=True, repr=False)
class Stream:
    """Steps over a source; made by `arrange`."""

    name: str
    source: Source
    order: IntArray
    starts: IntArray  # [steps + 1]: step t is order[starts[t]:starts[t + 1]]
    size: int
    task: IntArray | None = None  # by step: a step never crosses a task boundary
    splits: Mapping[str, Split] = field(default_factory=dict)
    preparation: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    class_task: IntArray | None = None
    albums: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)  # what was found and counted on opening
    known: kept.Known | None = None  # the hash of an order that was checked and stored before

    def __post_init__(self) -> None:
        if self.known is not None and self.known.fits(self.parts()):
            return  # it was looked through when it was stored; tens of millions stay on the disk
        for part in (self.order, self.preparation, *(s.index for s in self.splits.values())):
            refuse_outside(part, self.source)

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
        """The addresses that a step reveals, without padding."""
        return self.order[self.starts[step] : self.starts[step + 1]]

    def is_remainder(self, step: int) -> bool:
        """A short last batch (of the stream, or of a task); albums are short by nature."""
        return not self.albums and bool(self.starts[step + 1] - self.starts[step] < self.size)

    def parts(self) -> dict[str, IntArray | None]:
        """All that says which sample comes where, by name."""
        parts = {
            "order": self.order,
            "starts": self.starts,
            "task": self.task,
            "preparation": self.preparation,
        }
        for name, split in sorted(self.splits.items()):
            parts[f"{name} {split.at_boundaries}"] = split.index
            parts[f"{name} position"] = split.position
            parts[f"{name} task"] = split.task
        return parts

    @cached_property
    def order_hash(self) -> str:
        """Changes when any sample comes at another place, or in another step, task or part."""
        parts = self.parts()
        if self.known is not None and self.known.fits(parts):
            return self.known.hash
        digest = hashlib.blake2b(digest_size=16)
        for name, part in parts.items():
            digest.update(f"{name} {None if part is None else len(part)};".encode())
            if part is None:
                continue
            for start in range(0, len(part), 1 << 20):
                digest.update(part[start : start + (1 << 20)].astype(np.int64).data)
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a run stores of its stream: counts, the class map, hashes of data and order."""
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
    """Make a stream of a source: order it, set apart what prepares and what evaluates, cut steps.

    `test` are addresses of an official test set: never in the stream, evaluated at boundaries.
    `notes` is stored with every run: what was found in the data, and what was left out of it.
    `cache` is a folder where the order of a long source is kept, so that it is made once and then
    mapped from the disk; the stream is the same with and without.
    """
    how = how or Arrangement()
    if len(source) == 0:
        raise StreamgaugeError("The stream is empty: its source holds no sample.")
    _check(how)
    told: dict[str, Any] = {
        "name": name,
        "size": int(how.batch),
        "albums": how.step == "album",
        "settings": dict(settings if settings is not None else vars(how)),
        "notes": dict(notes or {}),
    }
    if cache is None or len(source) < kept.LONG:
        return _arrange(source, how, test, told)
    chosen = {setting: getattr(how, setting) for setting in get_type_hints(Arrangement)}
    folder = kept.folder(cache, source, chosen, test)
    found = kept.load(folder)
    if found is None:
        made = _arrange(source, how, test, told)
        kept.save(folder, made.parts(), made.class_task, made.order_hash)
        return made
    parts = found.parts
    splits = {}
    for label in [part for part in parts if part.endswith((" True", " False"))]:
        split, _, boundaries = label.rpartition(" ")
        splits[split] = Split(
            parts[label],
            parts[f"{split} position"],
            parts[f"{split} task"],
            boundaries == "True",
        )
    return Stream(
        source=source,
        order=parts["order"],
        starts=parts["starts"],
        task=parts["task"],
        splits=splits,
        preparation=parts["preparation"],
        class_task=found.class_task,
        known=found.known,
        **told,
    )


def _arrange(
    source: Source, how: Arrangement, test: IntArray | None, told: Mapping[str, Any]
) -> Stream:
    ordered = _order(source, how)
    if test is not None:
        refuse_outside(test, source)
    test_home = None if test is None else _task_of(source, test, ordered)
    class_task = ordered.class_task
    index, task = _without(ordered, test)
    del ordered  # as long as the source, and so is what a mere view of it would keep
    prepared = round(len(index) * how.preparation)
    preparation, index = index[:prepared].copy(), index[prepared:]
    task = None if task is None else task[prepared:]

    splits: dict[str, Split] = {}
    held = _held_out(len(index), task, how)
    if held.any():
        position = np.flatnonzero(held) - np.arange(int(held.sum()))
        kept_back = index[held]
        home = None if task is None else task[held]
        if class_task is not None:  # a class has a home, wherever its sample would have come
            home = class_task[source.label[kept_back]]
        splits["held_out"] = Split(kept_back, position, home)
        index = _compact(index, held)
        task = None if task is None else task[~held]
    if len(index) == 0:
        raise StreamgaugeError("Nothing is left to stream once the other parts are set apart.")
    if test is not None and len(test):
        place = _positions(source, test, test_home, index, task)
        splits["test"] = Split(test, place, test_home, True)

    starts = cut_steps(source, index, task, how)
    return Stream(
        source=source,
        order=index,
        starts=starts,
        task=None if task is None else task[starts[:-1]],
        splits=splits,
        preparation=preparation,
        class_task=class_task,
        **told,
    )


def refuse_outside(index: IntArray, source: Source) -> None:
    """Say which address of an order or a split its source does not have."""
    if len(index) == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= len(source):
        bad = lowest if lowest < 0 else highest
        raise StreamgaugeError(
            f"The order points at sample {bad}, outside its source of {len(source)}."
        )


def _check(how: Arrangement) -> None:
    for setting, kind in get_type_hints(Arrangement).items():
        value, choices = getattr(how, setting), get_args(kind)
        if get_origin(kind) is Literal and value not in choices:
            hint = nearest(str(value), choices)
            raise StreamgaugeError(f"{setting} cannot be {value!r}; {hint}")
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
    streamed = np.ones(len(ordered.index), bool)  # by address: one pass, however many are apart
    streamed[test] = False
    keep = streamed[ordered.index]
    return ordered.index[keep], None if ordered.task is None else ordered.task[keep]


def _compact(index: IntArray, held: NDArray[np.bool_]) -> IntArray:
    """What is not held, moved together in place: a second copy of a long order is not made."""
    end = 0
    for start in range(0, len(index), orders.PIECE):
        part = index[start : start + orders.PIECE][~held[start : start + orders.PIECE]]
        index[end : end + len(part)] = part
        end += len(part)
    return index[:end]


def _held_out(count: int, task: IntArray | None, how: Arrangement) -> NDArray[np.bool_]:
    """Which positions are kept back: one drawn from every stretch of 1/share samples (`time`),
    a random share of each task (`task`), or of all (`random`, and `task` where there is none)."""
    held = np.zeros(count, bool)
    if how.held_out == 0 or count == 0:
        return held
    rng = np.random.default_rng([how.seed if how.split_seed is None else how.split_seed, 2])
    if how.held_out_by == "time":
        edges = np.floor(np.arange(round(count * how.held_out) + 1) / how.held_out).astype(np.int64)
        edges = np.minimum(edges, count)
        width = np.diff(edges)
        edges, width = edges[:-1][width > 0], width[width > 0]
        held[edges + np.floor(rng.random(len(edges)) * width).astype(np.int64)] = True
    elif how.held_out_by == "random" or task is None:
        held[rng.choice(count, round(count * how.held_out), replace=False)] = True
    else:
        for number in range(int(task[-1]) + 1):
            inside = np.flatnonzero(task == number)
            held[rng.choice(inside, int(len(inside) * how.held_out), replace=False)] = True
    return held


def _task_of(source: Source, index: IntArray, ordered: orders.Order) -> IntArray | None:
    """A held-out sample is evaluated with its class's home task; without one, with the task that
    it would have come in."""
    if ordered.class_task is not None:
        return ordered.class_task[source.label[index]]
    if ordered.task is None:
        return None
    task = np.full(len(source), -1, np.int64)
    task[ordered.index] = ordered.task
    return task[index]


def _positions(
    source: Source,
    held: IntArray,
    home: IntArray | None,
    index: IntArray,
    task: IntArray | None,
) -> IntArray:
    """Where samples that are not in the order belong on its axis: by task, else by time
    where the stream is in order of time, else at its beginning."""
    if home is not None and task is not None:
        return np.searchsorted(task, home)
    time = source.columns.get("time")
    if time is not None:
        line = time[index]
        if bool(np.all(line[1:] >= line[:-1])):
            return np.searchsorted(line, time[held])
    return np.zeros(len(held), np.int64)


def cut_steps(source: Source, index: IntArray, task: IntArray | None, how: Arrangement) -> IntArray:
    """Where each step begins: a run of one task, or of one user in one task, in pieces of at most
    `batch` samples."""
    count = len(index)
    kind = orders.address_type(count)
    if how.step == "batch" and task is None:  # one run: no need for an entry per sample
        return np.append(np.arange(0, count, how.batch), count)
    user = None
    if how.step == "album":
        if "user" not in source.columns:
            raise StreamgaugeError("Albums need a column 'user', and this source has none.")
        user = source.columns["user"]
    # Long streams go by in pieces; `begin` is where the run that is not over yet began.
    starts = np.empty(count + 1, kind)  # as many as there can be; what is not used costs nothing
    used = begin = 0
    for start in range(0, count, orders.PIECE):
        end = min(start + orders.PIECE, count)
        first = max(start - 1, 0)  # the sample before the piece, to compare its first with
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
        if end < count:  # the last run may go on in the next piece, which cuts it
            steps = steps[: np.searchsorted(steps, begin)]
        starts[used : used + len(steps)] = steps
        used += len(steps)
    starts[used] = count
    found = starts[: used + 1]
    return found if 2 * used > count else found.copy()  # a view would keep all of the room
