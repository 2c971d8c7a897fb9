"""Encoded images by number: files, a column of a table, members of tar files.

Each class has `len`, `[i] -> bytes`, `name(i)` and a cheap `fingerprint`, and can be pickled:
files are opened again after unpickling. None of them has a Python object per sample.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamgauge.files import readable
from streamgauge.streams.images.image_source import Items
from streamgauge.streams.source import IntArray, hash_array
from streamgauge.tables.parquet import arrow_path, open_parquet
from streamgauge.tables.typed import map_arrow


def texts(values: Any) -> pa.Array:
    """One text per sample, in one block of memory."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = pa.array(values, pa.large_string())
    return values.cast(pa.large_string())


class StoredImages(Items, Protocol):
    """Encoded images of which some can be chosen."""

    def take(self, kept: IntArray) -> Items: ...


class FileItems:
    """Files below a folder. The fingerprint is of their paths and sizes, not of their content.
    `sizes`, where they are known already, saves looking every file up."""

    def __init__(
        self, folder: str | Path, names: Sequence[str] | pa.Array, sizes: IntArray | None = None
    ) -> None:
        self.folder = os.fspath(folder)
        self.names = texts(names)
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self.names)

    def take(self, kept: IntArray) -> FileItems:
        return FileItems(self.folder, self.names.take(pa.array(kept)), self.sizes[kept])

    def name(self, number: int) -> str:
        return str(self.names[number].as_py())

    def __getitem__(self, number: int) -> bytes:
        path = os.path.join(self.folder, self.name(number))
        with readable(f"The file '{path}'"), open(path, "rb") as file:
            return file.read()

    @property
    def sizes(self) -> IntArray:
        if self._sizes is None:
            paths = (os.path.join(self.folder, name) for name in self.names.to_pylist())
            self._sizes = np.fromiter((os.stat(path).st_size for path in paths), np.int64)
        return self._sizes

    @cached_property
    def fingerprint(self) -> str:
        return _hash_of(self.names, self.sizes)


class OpenFiles:
    """Shards that are read at offsets, by number; the last ones used stay open."""

    OPEN = 64

    def __init__(self, path_of: Callable[[int], str | Path]) -> None:
        self._path_of = path_of
        self._open: dict[int, int] = {}

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def descriptor(self, number: int) -> int:
        descriptor = self._open.pop(number, None)
        if descriptor is None:
            path = self._path_of(number)
            with readable(f"The shard '{path}'"):
                descriptor = os.open(
                    path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
                )
            if len(self._open) >= self.OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        self._open[number] = descriptor
        return descriptor


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Bytes of an open file; its position is not used, where the operating system can do so."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows
    return os.read(descriptor, length)


def read_into_at(descriptor: int, out: memoryview, offset: int) -> int:
    """The same into memory; returns the number of bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [out], offset)
    data = read_at(descriptor, len(out), offset)  # macOS, Windows
    out[: len(data)] = data
    return len(data)


class TarItems:
    """Members of uncompressed tar files. The fingerprint is of the shards' names and of the
    members' names, offsets and sizes."""

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
        self._files = OpenFiles(self.shards.__getitem__)

    def __len__(self) -> int:
        return len(self.offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return TarItems, (self.shards, self.shard, self.offset, self.size, self.names)

    def take(self, kept: IntArray) -> TarItems:
        where = self.shard[kept], self.offset[kept], self.size[kept]
        return TarItems(self.shards, *where, self.names.take(pa.array(kept)))

    def name(self, number: int) -> str:
        return f"{Path(self.shards[self.shard[number]]).name}/{self.names[number].as_py()}"

    def __getitem__(self, number: int) -> bytes:
        shard = self._files.descriptor(int(self.shard[number]))
        return read_at(shard, int(self.size[number]), int(self.offset[number]))

    @cached_property
    def fingerprint(self) -> str:
        shards = [Path(path).name for path in self.shards]
        return _hash_of(texts(shards), self.names, self.shard, self.offset, self.size)


class ColumnItems(ABC):
    """Some rows of a column of bytes, or of structs with a field `bytes`, in files of a table. The
    fingerprint is of the files' names, sizes and three samples of 64 KiB of each, and of the
    rows."""

    def __init__(self, files: Sequence[str | Path], column: str, rows: IntArray) -> None:
        self.files = [os.fspath(path) for path in files]
        self.column, self.rows = column, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.files, self.column, self.rows)

    def take(self, kept: IntArray) -> Self:
        return type(self)(self.files, self.column, self.rows[kept])

    @abstractmethod
    def _lengths(self) -> list[int]:
        """The number of rows of each chunk of the column."""

    @abstractmethod
    def _chunk(self, number: int) -> pa.Array: ...

    @cached_property
    def _starts(self) -> IntArray:
        return np.cumsum([0, *self._lengths()])

    def _cell(self, number: int, field: str) -> Any:
        row = int(self.rows[number])
        chunk = int(np.searchsorted(self._starts, row, "right")) - 1
        values = self._chunk(chunk)
        if pa.types.is_struct(values.type):
            if values.type.get_field_index(field) < 0:
                return None
            values = values.field(field)
        elif field != "bytes":
            return None
        return values[row - int(self._starts[chunk])].as_py()

    def name(self, number: int) -> str:
        return f"row {int(self.rows[number]) + 1:,}"

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._cell(number, "bytes") or b"")

    @cached_property
    def fingerprint(self) -> str:
        return _hash_of(texts([_sample_of(path) for path in self.files]), self.rows)


class ArrowItems(ColumnItems):
    """A column in Arrow files (a Hugging Face folder), mapped into memory."""

    @cached_property
    def _chunks(self) -> list[pa.Array]:
        tables = [map_arrow(Path(path)) for path in self.files]
        chunks: list[pa.Array] = pa.concat_tables(tables)[self.column].chunks
        return chunks

    def _lengths(self) -> list[int]:
        return [len(chunk) for chunk in self._chunks]

    def _chunk(self, number: int) -> pa.Array:
        return self._chunks[number]

    def name(self, number: int) -> str:
        return str(self._cell(number, "path") or super().name(number))


class ParquetItems(ColumnItems):
    """A column in Parquet files. Whole row groups are decompressed, and the last two are cached:
    fast for a stream in the order of the file, slow for replay of random samples; pack the data for
    that."""

    CACHED = 2

    @cached_property
    def _groups(self) -> list[tuple[str, int, int]]:
        """The file, number and length of every row group."""
        return [
            (path, group, about.row_group(group).num_rows)
            for path in self.files
            for about in [pq.read_metadata(arrow_path(path))]
            for group in range(about.num_row_groups)
        ]

    @cached_property
    def _cache(self) -> dict[int, pa.Array]:
        return {}

    def _lengths(self) -> list[int]:
        return [length for _, _, length in self._groups]

    def _chunk(self, number: int) -> pa.Array:
        if number not in self._cache:
            path, group, _ = self._groups[number]
            with (
                readable(f"The Parquet file '{path}'"),
                open_parquet(Path(path), [self.column], [group]) as file,
            ):
                column = file.read_row_group(group, columns=[self.column])[self.column]
            values = column.combine_chunks()
            if len(self._cache) >= self.CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
        return self._cache[number]


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
            _, offsets, letters = part.buffers()
            ends = np.frombuffer(offsets, np.int64)[part.offset : part.offset + len(part) + 1]
            digest.update(np.diff(ends).tobytes())
            if letters is not None:
                digest.update(memoryview(letters)[int(ends[0]) : int(ends[-1])])
        else:
            hash_array(digest, "", part)
    return digest.hexdigest()
