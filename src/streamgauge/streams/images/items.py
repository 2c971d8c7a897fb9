"""Encoded images by number: files, a column of a table, or members of tar files.

Each class has `len`, `[i] -> bytes`, `name(i)`, a cheap `fingerprint`, and can be pickled: files
are opened again after unpickling. No class keeps a Python object per sample.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import IntArray


def texts(values: Any) -> pa.Array:
    """One text per sample, in one block of memory."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = pa.array(values, pa.large_string())
    return values.cast(pa.large_string())


class FileItems:
    """Files below a folder. The fingerprint is of their paths and sizes, not of their content.

    `sizes`, where they are known already, saves looking every file up.
    """

    def __init__(
        self, folder: str | Path, names: Sequence[str] | pa.Array, sizes: IntArray | None = None
    ) -> None:
        self.folder = os.fspath(folder)
        self.names = texts(names)
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self.names)

    def name(self, number: int) -> str:
        return str(self.names[number].as_py())

    def __getitem__(self, number: int) -> bytes:
        path = os.path.join(self.folder, self.name(number))
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise StreamgaugeError(
                f"The file '{path}' cannot be read: {error.strerror}: bring it back, or open the"
                " data anew."
            ) from None

    @property
    def sizes(self) -> IntArray:
        if self._sizes is None:
            paths = (os.path.join(self.folder, name) for name in self.names.to_pylist())
            self._sizes = np.fromiter((os.stat(path).st_size for path in paths), np.int64)
        return self._sizes

    @cached_property
    def fingerprint(self) -> str:
        return _hash_of(self.names, self.sizes)


class TarItems:
    """Members of uncompressed tar files.

    The fingerprint is a hash of the names of the shards and the names, offsets and sizes of
    members.
    """

    def __init__(
        self,
        shards: Sequence[str | Path],
        shard: IntArray,
        offset: IntArray,
        size: IntArray,
        names: Sequence[str] | pa.Array,
    ) -> None:
        self.shards = [os.fspath(path) for path in shards]
        self.shard, self.offset, self.size = shard, offset, size
        self.names = texts(names)
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.offset)

    def name(self, number: int) -> str:
        return f"{Path(self.shards[self.shard[number]]).name}/{self.names[number].as_py()}"

    def __getitem__(self, number: int) -> bytes:
        which = int(self.shard[number])
        if which not in self._open:
            try:
                self._open[which] = os.open(self.shards[which], os.O_RDONLY)
            except OSError as error:
                raise StreamgaugeError(
                    f"The shard '{self.shards[which]}' cannot be read: {error.strerror}."
                ) from None
        return os.pread(self._open[which], int(self.size[number]), int(self.offset[number]))

    @cached_property
    def fingerprint(self) -> str:
        shards = [Path(path).name for path in self.shards]
        return _hash_of(texts(shards), self.names, self.shard, self.offset, self.size)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": {}}

    def __del__(self) -> None:
        for handle in getattr(self, "_open", {}).values():
            os.close(handle)


class ArrowItems:
    """A column of bytes in memory-mapped Arrow files (a Hugging Face folder).

    `column` has bytes, or structs with a field `bytes`. The fingerprint is a hash of the names and
    sizes of the files, of three samples of 64 KiB of each, and of the selected rows.
    """

    def __init__(self, files: Sequence[str | Path], column: str, rows: IntArray) -> None:
        self.files = [os.fspath(path) for path in files]
        self.column, self.rows = column, rows
        self._chunks: tuple[IntArray, list[Any], list[Any] | None] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, number: int) -> str:
        self._load()
        assert self._chunks is not None
        starts, _, paths = self._chunks
        chunk, row = _place(starts, int(self.rows[number]))
        path = None if paths is None else paths[chunk][row].as_py()
        return str(path) if path else f"row {int(self.rows[number]) + 1:,}"

    def __getitem__(self, number: int) -> bytes:
        self._load()
        assert self._chunks is not None
        starts, chunks, _ = self._chunks
        chunk, row = _place(starts, int(self.rows[number]))
        return bytes(chunks[chunk][row].as_py() or b"")

    def _load(self) -> None:
        if self._chunks is not None:
            return
        whole = pa.concat_tables([arrow_table(path) for path in self.files])[self.column]
        paths = None
        chunks = whole.chunks
        if pa.types.is_struct(whole.type):
            if whole.type.get_field_index("path") >= 0:
                paths = [chunk.field("path") for chunk in chunks]
            chunks = [chunk.field("bytes") for chunk in chunks]
        starts = np.cumsum([0, *map(len, chunks)])
        self._chunks = starts, chunks, paths

    @cached_property
    def fingerprint(self) -> str:
        return _hash_of(texts([_sample_of(path) for path in self.files]), self.rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_chunks": None}


class ParquetItems:
    """A column of bytes in Parquet files.

    Whole row groups are decompressed, and the last two are cached: fast for a stream in the order
    of the file, slow for replay of random samples; pack the data for that. The fingerprint is like
    that of `ArrowItems`.
    """

    KEPT = 2

    def __init__(self, files: Sequence[str | Path], column: str, rows: IntArray) -> None:
        self.files = [os.fspath(path) for path in files]
        self.column, self.rows = column, rows
        self._groups: tuple[IntArray, list[tuple[int, int]]] | None = None
        self._read: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, number: int) -> str:
        return f"row {int(self.rows[number]) + 1:,}"

    def __getitem__(self, number: int) -> bytes:
        if self._groups is None:
            counts, groups = [0], []
            for which, path in enumerate(self.files):
                about = pq.read_metadata(path)
                for group in range(about.num_row_groups):
                    counts.append(about.row_group(group).num_rows)
                    groups.append((which, group))
            self._groups = np.cumsum(counts), groups
        starts, places = self._groups
        group, row = _place(starts, int(self.rows[number]))
        if group not in self._read:
            which, inside = places[group]
            try:
                with pq.ParquetFile(self.files[which]) as file:
                    column = file.read_row_group(inside, columns=[self.column])[self.column]
            except (pa.ArrowException, OSError) as error:
                why = (str(error).splitlines() or [type(error).__name__])[0]
                raise StreamgaugeError(
                    f"The Parquet file '{self.files[which]}' is damaged ({why}): get it anew."
                ) from None
            values = column.combine_chunks()
            if isinstance(values, pa.ChunkedArray):
                values = values.chunk(0)
            if pa.types.is_struct(values.type):
                values = values.field("bytes")
            if len(self._read) >= self.KEPT:
                del self._read[next(iter(self._read))]
            self._read[group] = values
        return bytes(self._read[group][row].as_py() or b"")

    @cached_property
    def fingerprint(self) -> str:
        return _hash_of(texts([_sample_of(path) for path in self.files]), self.rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_groups": None, "_read": {}}


def arrow_table(path: str) -> pa.Table:
    """A memory-mapped Arrow file, in stream or file format."""
    try:
        mapped = pa.memory_map(path)
        try:
            return pa.ipc.open_stream(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_file(mapped).read_all()
    except (pa.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise StreamgaugeError(
            f"The Arrow file '{path}' is damaged or cut off ({why}): get it anew."
        ) from None


def _place(starts: IntArray, row: int) -> tuple[int, int]:
    chunk = int(np.searchsorted(starts, row, "right")) - 1
    return chunk, row - int(starts[chunk])


def _sample_of(path: str, most: int = 1 << 16) -> str:
    """Name and size of a file, and a hash of 64 KiB at its beginning, middle and end: unchanged by
    copying, and cheap for any size."""
    size = os.path.getsize(path)
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        for start in (0, max(0, size // 2 - most // 2), max(0, size - most)):
            file.seek(start)
            digest.update(file.read(most))
    return f"{Path(path).name} {size} {digest.hexdigest()}"


def _hash_of(*parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, pa.Array):
            digest.update(f"text {len(part)}".encode())
            if len(part) == 0:
                continue
            _, places, letters = part.buffers()
            ends = np.frombuffer(places, np.int64)[part.offset : part.offset + len(part) + 1]
            digest.update(np.diff(ends).tobytes())
            if letters is not None:
                digest.update(memoryview(letters)[int(ends[0]) : int(ends[-1])])
        else:
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
