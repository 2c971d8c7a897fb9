"""Opening the log of any system and handing it on in pieces: CSV, Parquet, NPZ, JSON lines.

A source knows its column names and yields Arrow tables of some of the columns, a bounded number
of rows at a time. What the columns mean is decided elsewhere.
"""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError

ROWS = 1 << 20
BYTES = 1 << 24
KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


class Source(Protocol):
    """Where a log is read from."""

    names: list[str]
    rows: int | None

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        """Arrow tables of the named columns; ``text`` are read as text from untyped files."""
        ...

    def matrix(self, name: str) -> NDArray[Any] | None:
        """A whole many-dimensional array, where the source can hold one."""
        ...


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what can go wrong while reading into one sentence."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        what = str(error).splitlines()[0][:200]
        raise StreamgaugeError(
            f"{path} cannot be read, it may be damaged or cut off ({what}): write it again"
        ) from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise StreamgaugeError(
            f"{path} cannot be read, it may be damaged or cut off ({error}): write it again"
        ) from None
    except OSError as error:
        raise StreamgaugeError(f"{path} cannot be read: {error.strerror or error}") from None


def open_source(log: str | Path | Mapping[str, Any]) -> Source:
    """The source of a path, a folder of Parquet files, or a mapping of names to arrays."""
    if not isinstance(log, str | Path):
        return Arrays(dict(log.items()))
    path = Path(log)
    if not path.exists():
        raise StreamgaugeError(f"there is no file {path}: check the path")
    if path.is_dir():
        found: list[Path] = []
        for inside in ("log/predictions", "predictions", "."):
            found = found or sorted((path / inside).glob("*.parquet"))
        if not found:
            raise StreamgaugeError(f"the folder {path} holds no Parquet files: name a log file")
        return Parquet(path, found)
    endings = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zip", ".bz2", ".zst")]
    kind = KINDS.get(endings[-1] if endings else "")
    if kind is None:
        raise StreamgaugeError(
            f"{path.name} is of no kind that can be read: a log is CSV (.csv, .tsv), Parquet "
            "(.parquet), NPZ (.npz) or JSON lines (.jsonl)"
        )
    if path.stat().st_size == 0:
        raise StreamgaugeError(f"{path} is empty: a log needs at least a label for every sample")
    with readable(path):
        if kind == "csv":
            return Csv(path)
        if kind == "parquet":
            return Parquet(path, [path])
        if kind == "npz":
            return Npz(path)
        return JsonLines(path)


def raw(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed by its ending."""
    import pyarrow as pa

    if path.suffix.lower() == ".zip":
        archive = zipfile.ZipFile(path)
        inside = [n for n in archive.namelist() if not n.endswith("/")]
        if len(inside) != 1:
            raise StreamgaugeError(f"{path} holds {len(inside)} files: unpack the one to audit")
        return archive.open(inside[0])  # type: ignore[return-value]
    compression = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path.suffix.lower())
    stream: BinaryIO = pa.input_stream(str(path), compression=compression)
    return stream


class Csv:
    """Comma-, semicolon- or tab-separated text with a header."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        import csv

        self.path = path
        with raw(path) as file:
            start = file.read(1 << 16)
        text = start.decode("utf-8-sig", errors="replace")
        first = text.splitlines()[0] if text.strip() else ""
        if not first.strip():
            raise StreamgaugeError(f"{path} is empty: a log needs a header and a row a sample")
        self.delimiter = max(",;\t|", key=first.count)
        self.names = next(csv.reader([first], delimiter=self.delimiter))

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        types = {name: pa.dictionary(pa.int32(), pa.string()) for name in text}
        with readable(self.path), raw(self.path) as file:
            reader = csv.open_csv(
                file,
                read_options=csv.ReadOptions(block_size=BYTES),
                parse_options=csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=self._breaks_in_fields()
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=list(dict.fromkeys(names)),
                    column_types=types,
                    strings_can_be_null=True,
                    null_values=["", "nan", "NaN", "null", "None"],
                ),
            )
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def _breaks_in_fields(self) -> bool:
        """Whether fields may hold line breaks; only quoted files can, and it costs speed."""
        with raw(self.path) as file:
            return b'"' in file.read(1 << 20)

    def matrix(self, name: str) -> None:
        return None


class Parquet:
    """One Parquet file, or several that belong together, in the order of their names."""

    def __init__(self, path: Path, files: list[Path]) -> None:
        from pyarrow import parquet

        self.path, self.files = path, files
        self.between: tuple[int, int] | None = None  # rows; None: all
        self.rows: int | None = 0
        self.names: list[str] = []
        for file in files:
            with readable(file):
                found = parquet.ParquetFile(file)
                self.rows += found.metadata.num_rows
                self.names = self.names or list(found.schema_arrow.names)

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        start, stop = self.between or (0, self.rows or 0)
        row = 0
        for path in self.files:
            with readable(path):
                # Buffering ahead would keep the bytes of the whole file in memory.
                file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
                wanted = list(dict.fromkeys(names))
                groups = []
                skipped = True
                first = row
                for group in range(file.metadata.num_row_groups):
                    count = file.metadata.row_group(group).num_rows
                    if row < stop and row + count > start:
                        groups.append(group)
                        first, skipped = (row, False) if skipped else (first, False)
                    row += count
                for batch in file.iter_batches(ROWS, groups, wanted) if groups else ():
                    low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                    first += batch.num_rows
                    if low < high:
                        yield pa.Table.from_batches([batch.slice(low, high - low)])

    def part(self, start: int, stop: int) -> Parquet:
        some = copy.copy(self)
        some.between = (start, stop)
        some.files = [file.resolve() for file in self.files]  # for another process
        return some

    def matrix(self, name: str) -> None:
        return None


class JsonLines:
    """One JSON object a line."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = []
        for table in self._blocks():
            self.names = list(table.column_names)
            break
        if not self.names:
            raise StreamgaugeError(f"{path} is empty: a log needs one JSON object a line")

    def _blocks(self) -> Iterator[Any]:
        from pyarrow import json

        with readable(self.path), raw(self.path) as file:
            rest = b""
            while True:
                block = file.read(BYTES)
                data = rest + block
                cut = data.rfind(b"\n") + 1 if block else len(data)
                data, rest = data[:cut], data[cut:]
                if data.strip():
                    options = json.ReadOptions(block_size=max(len(data), 1))
                    yield json.read_json(io.BytesIO(data), read_options=options)
                if not block:
                    return

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        for table in self._blocks():
            columns = {
                n: table[n] if n in table.column_names else pa.nulls(table.num_rows) for n in names
            }
            yield pa.table(columns)

    def matrix(self, name: str) -> None:
        return None


class Npz:
    """NumPy arrays of equal length, read in pieces out of the archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            found = [n for n in archive.namelist() if n.endswith(".npy")]
            shapes = {n.removesuffix(".npy"): self._header(archive, n)[0] for n in found}
        self.shapes = shapes
        self.names = list(shapes)
        if not shapes:
            raise StreamgaugeError(f"{path} is empty: save at least an array of labels in it")
        self.rows: int | None = None

    def _header(self, archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], Any]:
        with archive.open(member) as file:
            return self._read_header(file, member)

    def _read_header(self, file: Any, member: str) -> tuple[tuple[int, ...], Any]:
        try:
            version = np.lib.format.read_magic(file)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(file)
        except ValueError as error:
            raise StreamgaugeError(
                f"{self.path} holds no readable array {member}: {error}"
            ) from None
        if dtype.hasobject:
            raise StreamgaugeError(
                f"array {member.removesuffix('.npy')} in {self.path} holds Python objects: save "
                "plain numbers or fixed-length text"
            )
        return shape, dtype

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        wanted = list(dict.fromkeys(names))
        check_lengths({n: self.shapes[n] for n in wanted})
        with readable(self.path), zipfile.ZipFile(self.path) as archive:
            files = {n: archive.open(f"{n}.npy") for n in wanted}
            types = {n: self._read_header(f, n)[1] for n, f in files.items()}
            length = self.shapes[wanted[0]][0]
            for start in range(0, length, ROWS):
                count = min(ROWS, length - start)
                columns = {}
                for n, file in files.items():
                    data = file.read(count * types[n].itemsize)
                    if len(data) < count * types[n].itemsize:
                        raise EOFError(f"array {n} ends early")
                    columns[n] = to_arrow(np.frombuffer(data, types[n]))
                yield pa.table(columns)

    def matrix(self, name: str) -> NDArray[Any] | None:
        if len(self.shapes[name]) < 2:
            return None
        with readable(self.path), np.load(self.path, allow_pickle=False) as archive:
            array: NDArray[Any] = archive[name]
            return array


class Arrays:
    """Arrays in memory, by name."""

    path = Path("the arrays")

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = {str(n): np.asarray(a) for n, a in arrays.items() if a is not None}
        self.shapes = {n: a.shape for n, a in self.arrays.items()}
        self.names = list(self.arrays)
        lengths = {shape[0] for shape in self.shapes.values() if shape}
        self.rows: int | None = lengths.pop() if len(lengths) == 1 else None

    def part(self, start: int, stop: int) -> Arrays:
        return Arrays({name: array[start:stop] for name, array in self.arrays.items()})

    def tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        wanted = list(dict.fromkeys(names))
        check_lengths({n: self.shapes[n] for n in wanted})
        length = self.shapes[wanted[0]][0]
        for start in range(0, length, ROWS):
            part = {n: to_arrow(self.arrays[n][start : start + ROWS]) for n in wanted}
            yield pa.table(part)

    def matrix(self, name: str) -> NDArray[Any] | None:
        array = self.arrays[name]
        return array if array.ndim > 1 else None


def check_lengths(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays that are no columns, or of different lengths."""
    first, *others = shapes
    for name, shape in shapes.items():
        if len(shape) != 1:
            raise StreamgaugeError(
                f"array {name} has {len(shape)} dimensions: a column has one entry a sample"
            )
    for name in others:
        if shapes[name] != shapes[first]:
            raise StreamgaugeError(
                f"there are {shapes[name][0]} entries in {name} for {shapes[first][0]} in {first}: "
                "every sample needs one of each"
            )


def to_arrow(array: NDArray[Any]) -> Any:
    """A NumPy column as an Arrow array; NaN becomes missing."""
    import pyarrow as pa

    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "OU":
        return pa.array(array.tolist(), from_pandas=True)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return pa.array(array, from_pandas=True)
