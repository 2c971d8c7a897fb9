"""Reading ahead: worker processes decode what was announced, before it is asked for.

`read` returns what the source itself would return: a wrong announcement costs time and nothing
else, and the number of workers changes no value.
"""

from __future__ import annotations

import itertools
import mmap
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import Array, IntArray, Source, SourceView
from streamgauge.streams.workers import Workers, cores

ROOM = 256 << 20  # bytes of decoded samples that may wait
ROWS = 16  # samples that a worker decodes at a time
MOST = 256  # pieces that may wait, however small they are


def decodes(source: Source) -> bool:
    """Whether reading a sample means decoding an image."""
    return hasattr(source, "encoded") and bool(getattr(source, "encoded_images", True))


def workers_for(source: Source, asked: int | None) -> int:
    """As many as requested; by default one per core where images are decoded, none elsewhere."""
    if asked is None:
        return cores() if decodes(source) else 0
    if asked < 0:
        raise StreamgaugeError(f"The number of workers is 0 or more, not {asked}.")
    return asked


@dataclass(eq=False)
class _Piece:
    """A few samples of a read, decoded by one worker into one slot of the shared memory."""

    index: IntArray
    start: int  # row of the read
    slot: int = -1
    worker: int = -1
    ready: bool = False
    failed: bool = False
    dropped: bool = False


@dataclass(eq=False)
class _Block:
    """One read."""

    key: bytes
    pieces: list[_Piece] = field(default_factory=list)


class Ahead(SourceView):
    """A source with workers that decode announced reads into shared memory of a bounded size.

    `announce(index)` says that `read(index)` will come; reads are announced in the order they will
    come in. A read that was not announced is decoded on the spot, by the workers too if it is
    large. Announcements before the last that was read are given up.
    """

    def __init__(self, source: Source, workers: int, room: int = ROOM) -> None:
        super().__init__(source)
        kind = np.dtype(np.uint8)
        if not decodes(source):
            kind = source.read(np.zeros(1, np.int64)).dtype
        each = max(1, int(np.prod(source.spec.input_shape, dtype=np.int64)) * kind.itemsize)
        spare = 2 * workers  # for reads that nobody announced
        slots = spare + max(2 * workers, min(MOST, room // (ROWS * each) - spare))
        # Memory without a name: nothing of it is left behind, however this process ends.
        self._memory = mmap.mmap(-1, slots * ROWS * each)
        self._slots: Array = np.frombuffer(self._memory, kind, slots * ROWS * each // kind.itemsize)
        self._slots = self._slots.reshape(slots, ROWS, *source.spec.input_shape)
        self._workers = Workers(workers, _Decoder(source, self._slots))
        self._alive = set(range(workers))
        self._free = list(range(spare, slots))
        self._spare = list(range(spare))
        self._first_planned = spare
        self._queue: deque[_Piece] = deque()  # announced, and not sent yet
        self._sent: dict[int, dict[int, _Piece]] = {worker: {} for worker in range(workers)}
        self._number = 0
        self._blocks: deque[_Block] = deque()
        self._by_key: dict[bytes, deque[_Block]] = {}
        self.met = self.missed = self.given_up = 0  # reads announced, not announced; never read

    @property
    def hungry(self) -> bool:
        """Whether more announcements would keep the workers busy."""
        return bool(self._alive) and len(self._queue) < 2 * len(self._workers)

    def announce(self, index: IntArray) -> None:
        block = _Block(_key(index), _pieces(index))
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
            self.met += 1
            return self._fetch(coming[0], len(index))
        self.missed += 1
        if len(index) < 2 * ROWS:
            self._send(self._queue, self._free)
            return self._source.read(index)
        pieces = _pieces(index)
        return self._collect(len(index), pieces, deque(pieces), self._spare)

    def close(self) -> None:
        self._alive.clear()
        self._workers.stop()

    # Announced reads

    def _fetch(self, block: _Block, count: int) -> Array:
        while self._blocks[0] is not block:
            self._give_up(self._blocks[0])
            self.given_up += 1
        out = self._collect(count, block.pieces, self._queue, self._free)
        self._forget(block)
        self._send(self._queue, self._free)
        return out

    def _give_up(self, block: _Block) -> None:
        for piece in block.pieces:
            piece.dropped = True
            if piece.ready:
                self._release(piece)
        self._forget(block)

    def _forget(self, block: _Block) -> None:
        self._blocks.remove(block)
        same = self._by_key[block.key]
        same.remove(block)
        if not same:
            del self._by_key[block.key]

    # Pieces

    def _collect(
        self, count: int, pieces: list[_Piece], queue: deque[_Piece], slots: list[int]
    ) -> Array:
        """The samples of these pieces, some of which may still be in the queue for free slots."""
        out = np.empty((count, *self.spec.input_shape), self._slots.dtype)
        while pieces:
            self._send(queue, slots)
            pieces = [piece for piece in pieces if not self._take(piece, out)]
            if pieces:
                self._receive(None)
        return out

    def _send(self, queue: deque[_Piece], slots: list[int]) -> None:
        """Send queued pieces to the workers while slots are free, in order."""
        while queue and slots and self._alive:
            piece = queue.popleft()
            if not piece.dropped:
                self._give(piece, slots.pop())
        if not self._alive:
            for piece in queue:
                piece.failed = True
            queue.clear()

    def _give(self, piece: _Piece, slot: int) -> None:
        piece.slot = slot
        piece.worker = min(self._alive, key=lambda worker: len(self._sent[worker]))
        self._number += 1
        self._sent[piece.worker][self._number] = piece
        if not self._workers.send(piece.worker, (self._number, slot, piece.index)):
            self._lose(piece.worker)

    def _take(self, piece: _Piece, out: Array) -> bool:
        """Copy a piece to where it was asked for, if it is there."""
        rows = slice(piece.start, piece.start + len(piece.index))
        if piece.failed:  # by the source itself: it gives the sample, or says what is wrong with it
            out[rows] = self._source.read(piece.index)
            return True
        if piece.ready:
            out[rows] = self._slots[piece.slot, : len(piece.index)]
            self._release(piece)
        return piece.ready

    def _release(self, piece: _Piece) -> None:
        if piece.slot >= 0:
            (self._free if piece.slot >= self._first_planned else self._spare).append(piece.slot)
            piece.slot = -1

    def _receive(self, timeout: float | None) -> None:
        busy = [worker for worker in self._alive if self._sent[worker]]
        while busy:
            came = self._workers.receive(busy, timeout)
            for worker, answer in came:
                if answer is None or isinstance(answer, Exception):
                    self._lose(worker)
                    continue
                number, good = answer
                piece = self._sent[worker].pop(number)
                piece.ready, piece.failed = good, not good
                if piece.dropped or piece.failed:
                    self._release(piece)
            if not came:
                return
            timeout = 0  # and what else has come by now
            busy = [worker for worker in self._alive if self._sent[worker]]

    def _lose(self, worker: int) -> None:
        """A worker is gone: what it had is decoded here."""
        self._alive.discard(worker)
        for piece in self._sent.pop(worker, {}).values():
            piece.failed = True
            self._release(piece)


def _key(index: IntArray) -> bytes:
    return np.asarray(index, np.int64).tobytes()


def _pieces(index: IntArray) -> list[_Piece]:
    """Pieces of nearly equal size, so that no worker waits for a longer one."""
    whole = np.asarray(index, np.int64)
    count = -(-len(whole) // ROWS)
    edges = [len(whole) * number // count for number in range(count + 1)] if count else [0]
    return [_Piece(whole[start:end], start) for start, end in itertools.pairwise(edges)]


class _Decoder:
    """What a worker does: read samples of the source into a slot."""

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
        except Exception:  # the parent reads it again, and meets the error where it belongs
            return number, False
        return number, True
