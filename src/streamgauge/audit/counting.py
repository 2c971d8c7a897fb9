"""Hits of blind classifiers, counted piece by piece and per block of the stream.

Used by :func:`streamgauge.audit.blind_accuracy` and for all intervals. Hits per block are enough
for a block bootstrap, a moving window or a prefix, and the whole stream is never in memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.history.family import FamilyHits
from streamgauge.history.known import Floats, Ints, check_shifts, check_step, check_whole

TIES = ("recent", "smallest", "evalocl")
# Measured cost per label in nanoseconds: of a backward walk, and of sliding one window.
WALK, SLIDE = 3.3, 50.0
MAJORITY = "the most frequent label so far"


def check_windows(windows: ArrayLike) -> Floats:
    """Window lengths as floats (infinity is the whole history); an error for invalid ones."""
    meaning = "a window is a whole number of labels, 1 or more, or infinity for the whole history"
    return check_whole(windows, "window", 1, math.inf, meaning)


def tie_rule(ties: str) -> int:
    """The number of a tie rule in the compiled loops."""
    if ties not in TIES:
        raise StreamgaugeError(f"there is no tie rule '{ties}': {nearest(ties, TIES)}")
    return TIES.index(ties)


def running_modes(
    codes: NDArray[np.int32], classes: int, window: float, ties: str = "recent"
) -> NDArray[np.int32]:
    """The mode of the last ``window`` labels after every number of known labels.

    Entry t is computed from ``codes[:t]``; -1 while there is no full window.

    >>> running_modes(np.array([3, 3, 1, 1], np.int32), classes=4, window=3)
    array([-1, -1, -1,  3,  1], dtype=int32)
    """
    from streamgauge.audit import kernels

    size = int(window) if math.isfinite(window) else 0
    tree = np.zeros(tree_size(classes) if size else max(1, classes), np.int64)
    modes = np.empty(codes.size + 1, np.int32)
    kernels.all_guesses(codes, size, tie_rule(ties), tree, modes)
    return modes


def tree_size(classes: int) -> int:
    """Entries of a tournament tree with one leaf per class."""
    return 2 << math.ceil(math.log2(max(1, classes)))


def cores() -> int:
    """Processor cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def in_threads(jobs: Sequence[Callable[[], Any]], threads: int | None = None) -> None:
    """Run jobs in parallel threads; the compiled loops release the interpreter lock."""
    workers = min(len(jobs), threads or cores())
    if workers <= 1:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


@dataclass(frozen=True)
class BlindCounts:
    """Hits of blind classifiers, [blocks, windows, shifts]; the last window is unlimited."""

    windows: Floats
    shifts: Floats
    hits: Ints
    tries: Ints
    block: int
    """Samples per block."""
    size: int = 1
    """Samples per step, the most of any step."""

    def at(self, keep: NDArray[np.bool_]) -> BlindCounts:
        """The counts of a subset of the shifts."""
        return replace(
            self,
            shifts=self.shifts[keep],
            hits=self.hits[:, :, keep],
            tries=self.tries[:, :, keep],
        )

    def families(self) -> list[FamilyHits]:
        """The windows as a blind family at each shift; a window that is not full yet answers with
        the most frequent label so far."""
        order = np.argsort(-self.windows, kind="stable")  # unlimited first
        names = [window_name(w) for w in self.windows[order]]
        families = []
        for s, shift in enumerate(self.shifts):
            hits, tries = (x[:, order, s] for x in (self.hits, self.tries))
            hits = np.where(tries == tries[:, :1], hits, hits[:, :1])
            families.append(
                FamilyHits(names, hits, tries[:, 0], self.block, float(shift) + self.size)
            )
        return families


def window_name(window: float) -> str:
    """The labels that the mode of a window uses."""
    if math.isinf(window):
        return "the most frequent of all labels"
    return (
        "the last label" if window == 1 else f"the most frequent of the last {window:,.0f} labels"
    )


def block_size(length: int) -> int:
    """Samples per block, for about two thousand blocks."""
    return max(1, length // 2048)


class BlindCounter:
    """Hits of blind classifiers for every window, shift and block of the stream.

    ``feed`` takes the labels (class numbers below ``classes``) in pieces of any size, ``finish``
    ends the stream. Then ``hits[b, w, s]`` counts the correct predictions of window w at shift s
    made before a sample t in block b, and ``tries[b, w, s]`` all predictions. Labels in memory are
    bounded by the longest window plus the longest shift plus one piece.

    Predictions of samples before ``first_target`` are not counted.
    """

    def __init__(
        self,
        windows: ArrayLike,
        shifts: ArrayLike,
        *,
        classes: int,
        ties: str = "recent",
        step: int = 1,
        block: int = 4096,
        first_target: int = 0,
    ) -> None:
        self.windows = check_windows(windows)
        self.shifts = check_shifts(shifts)
        self.size = check_step(step)[1]
        self.classes = max(1, classes)
        self.ties = tie_rule(ties)
        self.block = block
        self.first = np.maximum(first_target - self.shifts, 0)
        self.length = 0
        self.hits = np.zeros((0, self.windows.size, self.shifts.size), np.int64)
        self.tries = self.hits
        self._offset = 0
        self._done = 0
        self._labels = np.zeros(0, np.int32)
        self._steps = np.zeros(0, np.int64)
        self._stepped = False
        self._finite = np.unique(self.windows[np.isfinite(self.windows)]).astype(np.int64)
        cut = self._count_small()
        self._small, self._large = self._finite[:cut], self._finite[cut:]
        self._sliding = [int(w) for w in self._large] + [0] * bool(np.isinf(self.windows).any())
        leaves = tree_size(self.classes)
        self._trees = [np.zeros(leaves if w else self.classes, np.int64) for w in self._sliding]
        self._memory = [np.full(2, -1, np.int64) for _ in self._sliding]
        rows = max(1, self._small.size)
        self._walked = np.zeros((0, rows, self.shifts.size), np.int64)
        self._slid = [np.zeros((0, self.shifts.size), np.int64) for _ in self._sliding]
        # First sample that each window can predict; -1 if none.
        self.begin = {int(w): -1 for w in [*self._finite, 1]}

    def _count_small(self) -> int:
        """Number of the shortest windows that are cheaper in one backward walk than by sliding."""
        if TIES[self.ties] == "evalocl":
            return 0
        walk = np.concatenate([[0.0], self._finite * (WALK / self.size)])
        slide = SLIDE * np.arange(self._finite.size, -1, -1)
        return int(np.argmin(walk + slide))

    def feed(self, labels: NDArray[np.int32], steps: Ints | None = None) -> None:
        """Add the next labels, with step numbers if steps differ in size."""
        if labels.size == 0:
            return
        self._stepped = self._stepped or steps is not None
        if self._labels.size:
            labels = np.concatenate([self._labels, labels])
            if steps is not None:
                steps = np.concatenate([self._steps, steps])
        self._labels = np.ascontiguousarray(labels, dtype=np.int32)
        if steps is not None:
            self._steps = np.ascontiguousarray(steps, dtype=np.int64)
        self.length = self._offset + self._labels.size
        self._find_beginnings()
        self._count_to(max(self._done, self.length - int(self.shifts.max(initial=0))))
        self._drop_old_labels()

    def begin_with(self, counts: Ints, mode: int) -> None:
        """Start the unlimited window with labels before the first one fed: the count of each class
        and the current mode."""
        if self._sliding and self._sliding[-1] == 0:
            self._trees[-1][:] = counts
            self._memory[-1][0] = mode

    def finish(self, until: int | None = None) -> None:
        """End the stream: count the remaining predictions. With ``until``, count only predictions
        made before that sample; their targets must have been fed."""
        end = self.length if until is None else until
        self._count_to(end)
        blocks = -(-end // self.block)
        self._reserve(blocks)
        hits_per_window = {int(w): self._walked[:blocks, i] for i, w in enumerate(self._small)}
        hits_per_window |= {w: self._slid[i][:blocks] for i, w in enumerate(self._sliding)}
        rows = [hits_per_window[int(w) if np.isfinite(w) else 0] for w in self.windows]
        self.finish_with(np.stack(rows, axis=1) if rows else self.hits, self.length, self.begin)

    @property
    def counts(self) -> BlindCounts:
        """The counts of the finished stream."""
        shifts = self.shifts.astype(np.float64)
        return BlindCounts(self.windows, shifts, self.hits, self.tries, self.block, self.size)

    def finish_with(self, hits: Ints, length: int, begins: dict[int, int]) -> None:
        """Set the hits of a stream of this length, compute the tries, and release the labels."""
        self.hits, self.length = hits, length
        blocks = hits.shape[0]
        edges = np.arange(blocks + 1, dtype=np.int64)[:, None, None] * self.block
        begin = [begins[int(w) if np.isfinite(w) else 1] for w in self.windows]
        start = np.array([b if b >= 0 else self.length for b in begin], np.int64)
        low = np.maximum(start[:, None], self.first[None, :])
        high = np.maximum(self.length - self.shifts, 0)[None, :]
        clipped = np.minimum(np.maximum(edges, low), np.maximum(low, high))
        self.tries = np.diff(clipped, axis=0)
        self._labels = np.zeros(0, np.int32)
        self._steps = np.zeros(0, np.int64)

    def _find_beginnings(self) -> None:
        """Find the first sample each window can predict: its step begins with a full window."""
        for window, first in self.begin.items():
            if first >= 0:
                continue
            if not self._stepped:
                first = -(-window // self.size) * self.size
                if first < self.length:
                    self.begin[window] = first
                continue
            low = max(window, self._offset + 1)
            inside = self._steps[low - 1 - self._offset :]
            change = np.flatnonzero(inside[1:] != inside[:-1])
            if change.size:
                self.begin[window] = low + int(change[0])

    def _reserve(self, used: int) -> None:
        missing = used - self._walked.shape[0]
        if missing > 0:
            grown = [
                np.concatenate([old, np.zeros((missing, *old.shape[1:]), np.int64)])
                for old in (self._walked, *self._slid)
            ]
            self._walked, self._slid = grown[0], grown[1:]

    def _count_to(self, hi: int) -> None:
        lo = self._done
        if hi <= lo:
            return
        self._reserve(-(-hi // self.block))
        from streamgauge.audit import kernels

        piece = (self._labels, self._offset, self._steps, self.size)
        tail = (self.length, self.block)
        jobs: list[Callable[[], None]] = []
        for window, tree, memory, hits in zip(
            self._sliding, self._trees, self._memory, self._slid, strict=True
        ):
            jobs.append(
                partial(
                    kernels.count_sliding, *piece, lo, hi, *tail, window, self.shifts, self.first,
                    self.ties, tree, memory, hits,
                )
            )  # fmt: skip
        if self._small.size:
            chunk = max(self.block, -(-(hi - lo) // (8 * cores() * self.block)) * self.block)
            for a in range(lo - lo % self.block, hi, chunk):
                jobs.append(
                    partial(
                        kernels.count_backward, *piece, max(a, lo), min(a + chunk, hi), *tail,
                        self._small, self.shifts, self.first, self.ties, self.classes, self._walked,
                    )
                )  # fmt: skip
        in_threads(jobs)
        self._done = hi

    def _drop_old_labels(self) -> None:
        """Drop labels that no later prediction uses."""
        start = self._done
        if self._stepped:
            while start > self._offset and (
                start - self._offset >= self._steps.size
                or self._steps[start - 1 - self._offset] == self._steps[start - self._offset]
            ):
                start -= 1
        else:
            start -= start % self.size
        keep = start - (int(self._finite[-1]) if self._finite.size else 0) - 2
        cut = keep - self._offset
        # Dropping copies the rest, so drop only when more than half is unused.
        if cut > self._labels.size // 2:
            self._labels = self._labels[cut:].copy()
            self._steps = self._steps[cut:].copy() if self._stepped else self._steps
            self._offset = keep


def count_labels(
    codes: NDArray[np.int32],
    classes: int,
    windows: ArrayLike,
    shifts: ArrayLike,
    step: ArrayLike,
    ties: str,
    *,
    block: int,
    first_target: int = 0,
) -> BlindCounts:
    """Hits of blind classifiers on a whole stream of class numbers."""
    steps, size = check_step(step, codes.size)
    counter = BlindCounter(
        windows,
        shifts,
        classes=classes,
        ties=ties,
        step=size,
        block=block,
        first_target=first_target,
    )
    counter.feed(codes, steps)
    counter.finish()
    return counter.counts
