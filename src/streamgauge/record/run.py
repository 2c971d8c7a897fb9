"""Reads a run folder: the log as columns of NumPy arrays, each loaded at its first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.record.tables import TABLES, columns_of
from streamgauge.record.writer import read_header, read_progress
from streamgauge.settings import RUNS
from streamgauge.tables.late import LabelledParquet

# Settings of a stream that say where its data are stored. They are not part of a run's identity,
# which holds a hash of the data.
PLACES = frozenset({"path", "root", "names", "cache"})


if TYPE_CHECKING:  # `Mapping` and `dict` have different signatures

    class _Dict: ...
else:
    _Dict = dict


class LogTable(Mapping[str, NDArray[Any]], _Dict):
    """One table of the log. Each column is read from disk at its first use.

    It is a `dict` so that `pandas.DataFrame(table)`, `polars.DataFrame(table)` and
    `pyarrow.table(table)` take it as columns; `Mapping` comes first, so that all reading methods
    go through `__getitem__`.
    """

    def __init__(self, name: str, files: list[Path]) -> None:
        self.name = name
        self._files = files
        self._loaded: dict[str, NDArray[Any]] = {}
        self._names = self._read_names()

    def _read_names(self) -> list[str]:
        if not self._files:
            return list(columns_of(self.name, frozenset()))
        return list(self._open(self._files[0]).schema_arrow.names)

    def _open(self, file: Path) -> Any:
        import pyarrow.parquet as pq

        with _damage_errors(file):
            return pq.ParquetFile(file)

    def _read(self, file: Path, column: str) -> NDArray[Any]:
        opened = self._open(file)
        with _damage_errors(file):
            return _as_array(opened.read([column]).column(0))

    def __getitem__(self, column: str) -> NDArray[Any]:
        if column not in self._names:
            raise KeyError(column)
        if column not in self._loaded:
            self._loaded[column] = self._load(column)
        return self._loaded[column]

    def _load(self, column: str) -> NDArray[Any]:
        parts = [self._read(file, column) for file in self._files]
        kind = TABLES[self.name].get(column, "float64")
        empty = np.empty(0, "U1" if kind == "text" else "f8" if kind == "scalar" else kind)
        return np.concatenate(parts) if parts else empty

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"LogTable({self.name!r}: {self.rows:,} rows of {', '.join(self._names)})"

    def copy(self) -> dict[str, NDArray[Any]]:
        return dict(self.items())

    def __or__(self, other: Any) -> dict[str, Any]:
        return {**self.copy(), **other}

    def __ror__(self, other: Any) -> dict[str, Any]:
        return {**other, **self.copy()}

    def _refuse_change(self, *_: Any, **__: Any) -> Any:
        raise TypeError("A table of a log cannot be changed; change a copy: dict(table).")

    __setitem__ = __delitem__ = __ior__ = _refuse_change
    clear = pop = popitem = setdefault = update = _refuse_change

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    @property
    def rows(self) -> int:
        return sum(self._open(file).metadata.num_rows for file in self._files)

    def pieces(self, columns: list[str], rows: int = 1 << 20) -> Iterator[dict[str, NDArray[Any]]]:
        """The table in pieces of at most `rows` rows, for logs larger than memory."""
        for file in self._files:
            batches = self._open(file).iter_batches(batch_size=rows, columns=columns)
            while True:
                with _damage_errors(file):
                    batch = next(batches, None)
                    if batch is None:
                        break
                    piece = {name: _as_array(batch.column(name)) for name in columns}
                yield piece


class LabelledPredictions(LogTable):
    """Predictions with the labels that came later, from the table `labels` (log version 2).

    Rows without a label are left out; with `keep_all` they stay, and their label is NaN.
    """

    def __init__(self, answers: LogTable, labels: LogTable, keep_all: bool = False) -> None:
        super().__init__(answers.name, answers._files)
        self._joined = LabelledParquet(self._files, labels._files, "the log")
        self._names = list(self._joined.names)
        known = np.asarray(self._joined.read(["label"])["label"].is_valid())
        self._rows = np.flatnonzero(known | keep_all)

    def _load(self, column: str) -> NDArray[Any]:
        values = _as_array(self._joined.read([column]).column(0))[self._rows]
        whole = column == "label" and bool((values == values).all())
        return values.astype(np.int32) if whole else values

    @property
    def rows(self) -> int:
        return len(self._rows)

    def pieces(self, columns: list[str], rows: int = 1 << 20) -> Iterator[dict[str, NDArray[Any]]]:
        for start in range(0, len(self._rows), rows):
            yield {name: self[name][start : start + rows] for name in columns}


@contextmanager
def _damage_errors(file: Path) -> Iterator[None]:
    """Raise errors of a damaged file as a StreamgaugeError."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise StreamgaugeError(f"The log segment {file} is damaged ({reason}).") from None


def _as_array(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        parts = [_as_array(chunk) for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if pa.types.is_dictionary(column.type):
        words = np.asarray(column.dictionary.to_pylist(), dtype=np.str_)
        codes = np.asarray(column.indices.to_numpy(zero_copy_only=False))
        return np.asarray(words[codes])
    return np.asarray(column.to_numpy(zero_copy_only=False))


class Run:
    """A stored run. `run.predictions["label"]` and so on are NumPy arrays."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header = read_header(self.path)
        progress = read_progress(self.path) or {"step": 0, "done": False, "segments": {}}
        self.step: int = progress["step"]
        self.done: bool = progress["done"]
        self.checkpoint: str | None = progress.get("checkpoint")
        self._segments: dict[str, int] = progress["segments"]
        self._tables: dict[str, LogTable] = {}

    @cached_property
    def predictions(self) -> LogTable:
        """The answers whose label is known; `table("predictions")` has all rows as stored."""
        return self.joined_predictions()

    def joined_predictions(self, keep_all: bool = False) -> LogTable:
        """The answers with their labels; `keep_all` keeps those without one, as NaN."""
        table = self.table("predictions")
        if self.header["log_version"] < 2 or not table.rows:
            return table
        return LabelledPredictions(table, self.table("labels"), keep_all)

    @property
    def unlabelled(self) -> int:
        """Answers whose label has not arrived."""
        stored, joined = self.table("predictions"), self.predictions
        return 0 if joined is stored else stored.rows - joined.rows

    def __getattr__(self, name: str) -> LogTable:
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"A run has no '{name}'; {nearest(name, TABLES)}")
        return self.table(name)

    def table(self, name: str) -> LogTable:
        if name not in self._tables:
            count = self._segments.get(name, 0)
            files = [self.path / "log" / name / f"{n:05d}.parquet" for n in range(count)]
            missing = [file for file in files if not file.exists()]
            if missing:
                raise StreamgaugeError(f"The log segment {missing[0]} is missing.")
            self._tables[name] = LogTable(name, files)
        return self._tables[name]

    @property
    def id(self) -> str:
        return str(self.header["id"])

    @property
    def learner(self) -> str:
        return str(self.header["config"]["learner"]["name"])

    @property
    def seed(self) -> int:
        return int(self.header["config"]["seed"])

    @property
    def stream(self) -> dict[str, Any]:
        stream: dict[str, Any] = self.header["stream"]
        return stream

    @property
    def label_delay(self) -> int:
        """Steps between the reveal of a sample and its label, beyond the step itself."""
        return int(self.header["config"]["protocol"].get("label_delay", 0))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def __repr__(self) -> str:
        state = "done" if self.done else f"at step {self.step}"
        return f"Run({str(self.path)!r}: {self.learner}, seed {self.seed}, {state})"


def find_runs(paths: str | Path | Run | Iterable[str | Path | Run] = RUNS) -> list[Run]:
    """Runs in a folder, or in several: each is a run folder, or a folder of run folders."""
    runs: list[Run] = []
    for path in [paths] if isinstance(paths, str | Path | Run) else paths:
        runs += [path] if isinstance(path, Run) else _runs_in(Path(path))
    return runs


def _runs_in(path: Path) -> list[Run]:
    if (path / "run.json").exists():
        return [Run(path)]
    if not path.is_dir():
        raise StreamgaugeError(f"There is no folder {path}.")
    inside = sorted(p.parent for p in path.glob("*/run.json"))
    if not inside:
        raise StreamgaugeError(f"There is no run in {path}.")
    return [Run(p) for p in inside]
