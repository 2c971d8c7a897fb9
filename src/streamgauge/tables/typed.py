"""Tables in typed files and in memory: Parquet, Arrow, NumPy arrays."""

from __future__ import annotations

import copy
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable, refuse_bomb
from streamgauge.tables import base
from streamgauge.tables.base import TableReader, refuse_repeated_names
from streamgauge.tables.parquet import open_parquet


class ParquetTable(TableReader):
    """One Parquet file, or several that belong together, in the order of their names."""

    def __init__(self, files: Sequence[Path], name: str) -> None:
        self.files, self.name = list(files), name
        self.between: tuple[int, int] | None = None  # rows; None: all
        self.counts: list[int] = []
        for file in files:
            with readable(f"The Parquet file '{file}'"):
                opened = open_parquet(file)
            schema = opened.schema_arrow
            if not self.counts:
                self.schema = schema
            if set(schema.names) != set(self.schema.names):
                raise StreamgaugeError(f"'{files[0]}' and '{file}' have other columns.")
            self.counts.append(opened.metadata.num_rows)
        with readable(name):
            self.names = list(self.schema.names)
        refuse_repeated_names(self.names, name)
        self.rows = sum(self.counts)

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        start, stop = self.between or (0, self.rows or 0)
        row = 0
        for path in self.files:
            with readable(f"The Parquet file '{path}'"):
                # Buffering ahead would keep the bytes of the whole file in memory.
                file = open_parquet(path, names, pre_buffer=False, buffer_size=1 << 20)
                groups = []
                first = None
                for group in range(file.metadata.num_row_groups):
                    count = file.metadata.row_group(group).num_rows
                    if row < stop and row + count > start:
                        groups.append(group)
                        first = row if first is None else first
                    row += count
                for batch in (
                    file.iter_batches(base.PIECE_ROWS, groups, list(names)) if groups else ()
                ):
                    assert first is not None  # there is a row group
                    low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                    first += batch.num_rows
                    if low < high:
                        yield pa.Table.from_batches([batch.slice(low, high - low)])

    def part(self, start: int, stop: int) -> Self:
        some = copy.copy(self)
        some.between = (start, stop)
        some.files = [file.resolve() for file in self.files]  # for another process
        return some


class ArrowTable(TableReader):
    """An Arrow table in memory or memory-mapped; data frames come as one."""

    def __init__(self, table: pa.Table, name: str) -> None:
        self.table, self.name = table, name
        self.names = list(table.column_names)
        refuse_repeated_names(self.names, name)
        self.rows = len(table)

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, len(self.table), base.PIECE_ROWS):
            yield self.table.select(list(names)).slice(start, base.PIECE_ROWS)

    def part(self, start: int, stop: int) -> Self:
        some = copy.copy(self)
        some.table, some.rows = self.table.slice(start, stop - start), stop - start
        return some


class NpzTable(TableReader):
    """NumPy arrays of equal length, read in pieces out of the archive."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.namelist() if member.endswith(".npy")]
            self.shapes = {}
            for member in members:
                with archive.open(member) as file:
                    self.shapes[member.removesuffix(".npy")] = self._header(file, member)[0]
        self.names = list(self.shapes)
        if not self.names:
            raise StreamgaugeError(f"{name} is empty: save at least an array of labels in it")

    def _header(self, file: Any, member: str) -> tuple[tuple[int, ...], Any]:
        with readable(f"The array {member} in {self.name}"):
            version = np.lib.format.read_magic(file)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(file)
        if dtype.hasobject:
            raise StreamgaugeError(
                f"array {member.removesuffix('.npy')} in {self.name} holds Python objects: save "
                "plain numbers or fixed-length text"
            )
        return shape, dtype

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        check_lengths({name: self.shapes[name] for name in names})
        with readable(self.name), zipfile.ZipFile(self.path) as archive:
            files = {name: archive.open(f"{name}.npy") for name in names}
            types = {name: self._header(file, name)[1] for name, file in files.items()}
            length = self.shapes[names[0]][0]
            for start in range(0, length, base.PIECE_ROWS):
                count = min(base.PIECE_ROWS, length - start)
                columns = {}
                for name, file in files.items():
                    data = file.read(count * types[name].itemsize)
                    if len(data) < count * types[name].itemsize:
                        raise EOFError(f"array {name} ends early")
                    columns[name] = to_arrow(np.frombuffer(data, types[name]))
                yield pa.table(columns)

    def matrix(self, name: str) -> NDArray[Any] | None:
        if len(self.shapes[name]) < 2:
            return None
        return load_arrays(self.path)[name]


class ArrayTable(TableReader):
    """Arrays in memory or memory-mapped, by name."""

    def __init__(self, arrays: Mapping[str, Any], name: str = "the arrays given") -> None:
        self.name = name
        given = {str(key): array for key, array in arrays.items() if array is not None}
        self.arrays = {key: np.asarray(array) for key, array in given.items()}
        self.names = list(self.arrays)
        lengths = {array.shape[0] for array in self.arrays.values() if array.shape}
        self.rows = lengths.pop() if len(lengths) == 1 else None

    def part(self, start: int, stop: int) -> Self:
        some = copy.copy(self)
        some.arrays = {name: array[start:stop] for name, array in self.arrays.items()}
        some.rows = stop - start
        return some

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        check_lengths({name: self.arrays[name].shape for name in names})
        length = len(self.arrays[names[0]])
        for start in range(0, length, base.PIECE_ROWS):
            yield pa.table(
                {n: to_arrow(self.arrays[n][start : start + base.PIECE_ROWS]) for n in names}
            )

    def matrix(self, name: str) -> NDArray[Any] | None:
        array = self.arrays[name]
        return array if array.ndim > 1 else None


def map_arrow(path: Path) -> pa.Table:
    """An Arrow file or stream, memory-mapped; a damaged one is refused, also where only offsets
    within it are wrong, which would end the process at their first use."""
    with readable(f"The Arrow file '{path}'"):
        source = pa.memory_map(os.fsencode(path))
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        table.validate(full=True)
        for name in table.column_names:
            name.encode()
        return table


def load_array(path: Path) -> NDArray[Any]:
    """The array of an .npy file, memory-mapped; never Python objects."""
    with _arrays_readable(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise StreamgaugeError(f"'{path}' is an archive of arrays: rename it to .npz.")
        return array


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by name; never Python objects."""
    with _arrays_readable(path), np.load(path, allow_pickle=False) as archive:
        if isinstance(archive, np.ndarray):
            raise StreamgaugeError(f"'{path}' is one array and no archive: rename it to .npy.")
        if archive.zip is not None:
            refuse_bomb(sum(int(entry.file_size) for entry in archive.zip.infolist()), path)
        arrays = {name: archive[name] for name in archive.files}
        other = next((n for n, array in arrays.items() if not isinstance(array, np.ndarray)), None)
        if other is not None:
            raise StreamgaugeError(f"'{other}' in '{path}' is no array: leave it out.")
        return arrays


@contextmanager
def _arrays_readable(path: Path) -> Iterator[None]:
    with readable(f"The file of arrays '{path}'"):
        try:
            yield
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise StreamgaugeError(
                f"The arrays in '{path}' cannot be read: the file holds Python objects, which are"
                " not run; store plain arrays."
            ) from None


def check_lengths(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays that are no columns, or of different lengths."""
    first, *others = shapes
    for name, shape in shapes.items():
        if len(shape) != 1:
            raise StreamgaugeError(
                f"array {name} has {len(shape)} dimensions: a column has one entry per sample"
            )
    for name in others:
        if shapes[name] != shapes[first]:
            raise StreamgaugeError(
                f"there are {shapes[name][0]} entries in {name} for {shapes[first][0]} in {first}: "
                "every sample needs one of each"
            )


def to_arrow(array: NDArray[Any]) -> Any:
    """A NumPy column as an Arrow array; NaN becomes missing."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "OU":
        return pa.array(array.tolist(), from_pandas=True)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return pa.array(array, from_pandas=True)
