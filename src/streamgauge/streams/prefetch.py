"""Prefetching: worker processes decode announced samples before they are read.

`read` returns what the source itself would return: a wrong announcement costs time only, and the
number of workers changes no value.
"""

from __future__ import annotations

import itertools
import mmap
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Source, SourceView
from streamgauge.streams.workers import CAN_FORK, Workers, cores

MEMORY = 256 << 20  # bytes of shared memory for decoded samples
ROWS = 16  # samples that a worker decodes per task
MAX_SLOTS = 256  # limit of slots in shared memory, however small they are


def decodes(source: Source) -> bool:
    """Whether reading a sample means decoding an image."""
    return hasattr(source, "encoded") and bool(getattr(source, "encoded_images", True))


def workers_for(source: Source, requested: int | None) -> int:
    """Number of workers: as requested, or one per core if images are decoded, else 0."""
    if requested is None:
        return cores() if decodes(source) and CAN_FORK else 0
    if requested < 0:
        raise StreamgaugeError(f"The number of workers is 0 or more, not {requested}.")
    return requested


@dataclass(eq=False)
class _DecodingPart:
    """Up to `ROWS` samples of a read, decoded by one worker into one slot of shared memory."""

    index: IntArray
    start: int  # first row in the result of the read
    slot: int = -1
    worker: int = -1
    ready: bool = False
    failed: bool = False
    dropped: bool = False


@dataclass(eq=False)
class _AnnouncedRead:
    """One announced read."""

    key: bytes
    pieces: list[_DecodingPart] = field(default_factory=list)


class PrefetchSource(SourceView):
    """A source whose workers decode announced reads into shared memory of bounded size.
    `announce(index)` says that `read(index)` will follow; reads are announced in the order in which
    they will happen. A read without announcement is decoded at once, by the workers if it is large.
    Announcements that a later announced read has overtaken are dropped and counted as unused."""

    def __init__(self, source: Source, workers: int, memory: int = MEMORY) -> None:
        super().__init__(source)
        kind = np.dtype(np.uint8)
        if not decodes(source):
            kind = source.read(np.zeros(1, np.int64)).dtype
        each = max(1, int(np.prod(source.spec.input_shape, dtype=np.int64)) * kind.itemsize)
        spare = 2 * workers  # slots for reads without announcement
        slots = spare + max(2 * workers, min(MAX_SLOTS, memory // (ROWS * each) - spare))
        # Anonymous memory: the system frees it however this process ends.
        self._memory = mmap.mmap(-1, slots * ROWS * each)
        self._slots: Array = np.frombuffer(self._memory, kind, slots * ROWS * each // kind.itemsize)
        self._slots = self._slots.reshape(slots, ROWS, *source.spec.input_shape)
        self._workers = Workers(workers, _Decoder(source, self._slots))
        self._alive = set(range(workers))
        self._free = list(range(spare, slots))
        self._spare = list(range(spare))
        self._first_planned = spare
        self._queue: deque[_DecodingPart] = deque()  # announced, not sent to a worker yet
        self._sent: dict[int, dict[int, _DecodingPart]] = {worker: {} for worker in range(workers)}
        self._number = 0
        self._blocks: deque[_AnnouncedRead] = deque()
        self._by_key: dict[bytes, deque[_AnnouncedRead]] = {}
        self.hits = self.misses = self.unused = 0  # announced reads, other reads, dropped blocks

    @property
    def needs_more(self) -> bool:
        """Whether more announcements would keep the workers busy."""
        return bool(self._alive) and len(self._queue) < 2 * len(self._workers)

    def announce(self, index: IntArray) -> None:
        block = _AnnouncedRead(_key(index), _pieces(index))
        self._blocks.append(block)
        self._by_key.setdefault(block.key, deque()).append(block)
        self._queue.extend(block.pieces)
        self._send(self._queue, self._free)

    def read(self, index: IntArray) -> Array:
        if not self._alive:
            return self._source.read(index)
        self._receive(0)
        coming = self._by_key.get(_key(index))
        if coming:
            self.hits += 1
            return self._fetch(coming[0], len(index))
        self.misses += 1
        if len(index) < 2 * ROWS:
            self._send(self._queue, self._free)
            return self._source.read(index)
        pieces = _pieces(index)
        return self._collect(len(index), pieces, deque(pieces), self._spare)

    def close(self) -> None:
        self._alive.clear()
        self._workers.stop()

    # Announced reads

    def _fetch(self, block: _AnnouncedRead, count: int) -> Array:
        while self._blocks[0] is not block:
            self._drop(self._blocks[0])
            self.unused += 1
        out = self._collect(count, block.pieces, self._queue, self._free)
        self._remove(block)
        self._send(self._queue, self._free)
        return out

    def _drop(self, block: _AnnouncedRead) -> None:
        for piece in block.pieces:
            piece.dropped = True
            if piece.ready:
                self._release(piece)
        self._remove(block)

    def _remove(self, block: _AnnouncedRead) -> None:
        self._blocks.remove(block)
        same = self._by_key[block.key]
        same.remove(block)
        if not same:
            del self._by_key[block.key]

    # Pieces

    def _collect(
        self, count: int, pieces: list[_DecodingPart], queue: deque[_DecodingPart], slots: list[int]
    ) -> Array:
        """The samples of these pieces, some of which may still be in the queue for free slots."""
        out = np.empty((count, *self.spec.input_shape), self._slots.dtype)
        while pieces:
            self._send(queue, slots)
            pieces = [piece for piece in pieces if not self._take(piece, out)]
            if pieces:
                self._receive(None)
        return out

    def _send(self, queue: deque[_DecodingPart], slots: list[int]) -> None:
        """Assign queued pieces to workers while there are free slots."""
        while queue and slots and self._alive:
            piece = queue.popleft()
            if not piece.dropped:
                self._assign(piece, slots.pop())
        if not self._alive:
            for piece in queue:
                piece.failed = True
            queue.clear()

    def _assign(self, piece: _DecodingPart, slot: int) -> None:
        piece.slot = slot
        piece.worker = min(self._alive, key=lambda worker: len(self._sent[worker]))
        self._number += 1
        self._sent[piece.worker][self._number] = piece
        if not self._workers.send(piece.worker, (self._number, slot, piece.index)):
            self._lose(piece.worker)

    def _take(self, piece: _DecodingPart, out: Array) -> bool:
        """Copy a piece into the result if it is decoded; true if that row range is complete."""
        rows = slice(piece.start, piece.start + len(piece.index))
        if piece.failed:  # the source itself reads it, or raises the error
            out[rows] = self._source.read(piece.index)
            return True
        if piece.ready:
            out[rows] = self._slots[piece.slot, : len(piece.index)]
            self._release(piece)
        return piece.ready

    def _release(self, piece: _DecodingPart) -> None:
        if piece.slot >= 0:
            (self._free if piece.slot >= self._first_planned else self._spare).append(piece.slot)
            piece.slot = -1

    def _receive(self, timeout: float | None) -> None:
        busy = [worker for worker in self._alive if self._sent[worker]]
        while busy:
            answers = self._workers.receive(busy, timeout)
            for worker, answer in answers:
                if answer is None or isinstance(answer, Exception):
                    self._lose(worker)
                    continue
                number, good = answer
                piece = self._sent[worker].pop(number)
                piece.ready, piece.failed = good, not good
                if piece.dropped or piece.failed:
                    self._release(piece)
            if not answers:
                return
            timeout = 0  # then take what else is there
            busy = [worker for worker in self._alive if self._sent[worker]]

    def _lose(self, worker: int) -> None:
        """Mark the pieces of a dead worker as failed, so that they are decoded here."""
        self._alive.discard(worker)
        for piece in self._sent.pop(worker, {}).values():
            piece.failed = True
            self._release(piece)


def _key(index: IntArray) -> bytes:
    return np.asarray(index, np.int64).tobytes()


def _pieces(index: IntArray) -> list[_DecodingPart]:
    """Pieces of nearly equal size, so that no worker waits for a longer one."""
    whole = np.asarray(index, np.int64)
    count = -(-len(whole) // ROWS)
    edges = [len(whole) * number // count for number in range(count + 1)] if count else [0]
    return [_DecodingPart(whole[start:end], start) for start, end in itertools.pairwise(edges)]


class _Decoder:
    """The work of a worker: reads samples of the source into a slot."""

    def __init__(self, source: Source, slots: Array) -> None:
        self.source, self.slots = source, slots
        self._into = getattr(source, "read_into", None)

    def __call__(self, task: tuple[int, int, IntArray]) -> tuple[int, bool]:
        number, slot, index = task
        try:
            if self._into is not None:
                self._into(index, self.slots[slot])
            else:
                self.slots[slot, : len(index)] = self.source.read(index)
        except Exception:  # the parent reads the piece again and raises the error
            return number, False
        return number, True
