"""Reads a run folder: the log as columns of NumPy arrays, each loaded at its first use."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import Damaged, StreamgaugeError, nearest, packages_for, sentence_of
from streamgauge.files import readable, write_atomic, write_text
from streamgauge.record.index import Index, index_of
from streamgauge.record.recorded import folded, rows_of
from streamgauge.record.tables import TABLES, columns_of
from streamgauge.record.writer import read_header
from streamgauge.settings import RUNS
from streamgauge.tables.commit import REMEDY, read_progress, segment_files
from streamgauge.tables.journal import JournalSegments, read_journal
from streamgauge.tables.late import LabelledParquet
from streamgauge.tables.parquet import open_parquet

FAILED = "failed.txt"
MEET = 20  # answers after which some class that was answered must have been a label
FAILED_ROWS = "failed"  # folder with the rows after the last checkpoint of a run that failed

# Settings of a stream that say where its data are stored. They are not part of a run's identity,
# which holds a hash of the data.
PATH_SETTINGS = frozenset({"path", "root", "names", "cache"})


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

    def __init__(
        self,
        name: str,
        files: list[Path],
        keep: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.name, self.class_names = name, class_names
        self._files, self._keep = files, keep  # `keep` has to exist as long as the files
        self._loaded: dict[str, NDArray[Any]] = {}
        self._names = self._read_names()

    def _read_names(self) -> list[str]:
        if not self._files:
            return list(columns_of(self.name, frozenset()))
        return list(self._open(self._files[0]).schema_arrow.names)

    def _open(self, file: Path, *columns: str) -> Any:
        with _damage_errors(file):
            return open_parquet(file, columns)

    def _read(self, file: Path, column: str) -> NDArray[Any]:
        opened = self._open(file, column)
        with _damage_errors(file):
            return _as_array(opened.read([column]).column(0))

    def __getitem__(self, column: str) -> NDArray[Any]:
        if column not in self._names:
            raise KeyError(f"{column}; the columns are {', '.join(self._names)}")
        if column not in self._loaded:
            self._loaded[column] = self._load(column)
        return self._loaded[column]

    def _load(self, column: str) -> NDArray[Any]:
        parts = [self._read(file, column) for file in self._files]
        kind = TABLES[self.name].get(column, "float64")
        types = {"text": "U1", "scalar": "f8", "scores": "O"}
        empty = np.empty(0, types.get(kind, kind))
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

    def to_arrow(self) -> Any:
        """The table as a `pyarrow.Table`; a missing value is null. Where classes have names, the
        columns `label_name` and `prediction_name` have them."""
        table, names = self._stored(), self.class_names or ()
        for column in ("label", "prediction") if names else ():
            if column not in table.column_names:
                continue
            table = table.append_column(f"{column}_name", _names_of(table[column], names))
        return table

    def _stored(self) -> Any:
        """The columns of the log as a `pyarrow.Table`."""
        import pyarrow as pa

        parts = []
        for file in self._files:
            opened = self._open(file)
            with _damage_errors(file):
                parts.append(opened.read())
        return pa.concat_tables(parts).unify_dictionaries() if parts else pa.table(self.copy())

    def to_pandas(self) -> Any:
        """The table as a pandas data frame."""
        with packages_for("A pandas data frame"):
            import pandas  # noqa: F401
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a polars data frame."""
        with packages_for("A polars data frame"):
            import polars
        return polars.from_arrow(self.to_arrow())

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
        super().__init__(answers.name, answers._files, answers._keep, answers.class_names)
        self._joined = LabelledParquet(self._files, labels._files, "the log")
        self._names = list(self._joined.names)
        known = np.asarray(self._joined.read(["label"])["label"].is_valid())
        self._rows = np.flatnonzero(known | keep_all)

    def _load(self, column: str) -> NDArray[Any]:
        values = _as_array(self._joined.read([column]).column(0))[self._rows]
        whole = column == "label" and bool((values == values).all())
        return values.astype(np.int32) if whole else values

    def _stored(self) -> Any:
        return self._joined.read(self._names).take(self._rows)

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def repeated(self) -> int:
        return len(self._joined.repeated)

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
        raise Damaged(f"The log segment {file} is damaged ({reason}).") from None


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


def _names_of(codes: Any, names: Sequence[str]) -> Any:
    """The names of class numbers, null where there is none."""
    import pyarrow as pa

    values = np.ma.masked_invalid(codes.cast(pa.float64()).to_numpy(zero_copy_only=False))
    known = np.ma.masked_outside(values, 0, len(names) - 1)
    indices = pa.array(known.filled(-1).astype(np.int32), mask=np.ma.getmaskarray(known))
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


@contextmanager
def remembering_failure(
    folder: Path, rows: Callable[[], Mapping[str, Any]] = dict
) -> Iterator[None]:
    """An error of the data or of a learner is stored in the run folder until the next attempt, with
    what `rows` gives then: tables of rows that no checkpoint has."""
    with suppress(OSError):
        (folder / FAILED).unlink(missing_ok=True)
        shutil.rmtree(folder / FAILED_ROWS, ignore_errors=True)
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # a full disk, say, is no reason to hide the error
            _remember(folder, error, rows)
        raise


def _remember(folder: Path, error: Exception, rows: Callable[[], Mapping[str, Any]]) -> None:
    import pyarrow.parquet as pq

    if not (folder / "run.json").is_file():
        return
    failed_write = isinstance(error.__cause__, OSError)  # it has taken some of the rows
    with suppress(Exception):  # rows on a device that failed cannot be fetched
        for name, table in ({} if failed_write else rows()).items():
            if table.num_rows:
                (folder / FAILED_ROWS).mkdir(exist_ok=True)
                with write_atomic(folder / FAILED_ROWS / f"{name}.parquet") as part:
                    pq.write_table(table, part, compression="zstd")
    write_text(folder / FAILED, sentence_of(error))


class DoubtfulRecording(UserWarning):
    """The calls of a recorder hardly mean what they say."""


class Run:
    """A stored run. `run.predictions["label"]` and so on are NumPy arrays."""

    def __init__(self, path: str | Path, index: Index | None = None) -> None:
        self.path = Path(path)
        self._index, self._entry = index, None
        content: Any = None
        if index is not None:
            self._entry = index.entry(self.path, self._read)
            content = self._entry.content
        content = content or self._read()
        self.header, progress = content["header"], content["progress"]
        self._journal: JournalSegments | None = None
        self.recorded = "recorder" in progress  # by a loop of the user's
        if self.recorded:
            self._entry = None  # its journal changes its results
            progress = self._add_journal()
        self.step: int = progress["step"]
        self.done: bool = progress["done"]
        self.checkpoint: str | None = progress.get("checkpoint")
        self._progress = progress
        self._time: float | None = progress.get("time")  # versions before 0.2 have none
        self._tables: dict[str, LogTable] = {}
        self._checked: dict[str, list[Path]] = {}  # by table: its segments

    def _read(self) -> dict[str, Any]:
        header = read_header(self.path)
        progress = read_progress(self.path) or {"step": 0, "done": False, "segments": {}}
        return {"header": header, "progress": progress}

    def result(self, name: str, compute: Callable[[], Any], keep: bool = True) -> Any:
        """A value of plain JSON that is computed from the log; where the folder has an index, it is
        computed once, unless it is too large to `keep`."""
        return compute() if self._entry is None else self._entry.result(name, compute, keep)

    def _add_journal(self) -> dict[str, Any]:
        """Add the calls that a recorder has not committed yet; gives the commit point."""
        progress, content = read_journal(self.path)
        header = read_header(self.path)
        with readable(f"The recording {self.path}", REMEDY):  # its files may not be of each other
            assert content is not None  # the folder of a recorder stays one
            state, self.header = folded(progress["recorder"], header, content)
            rows = rows_of(content, state)
        self._journal = JournalSegments({name: some.take() for name, some in rows.items()})
        return {**progress, "step": state["step"]}

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
        if self.header["log_version"] < 2:
            return 0
        stored, joined = self.table("predictions"), self.predictions
        if stored.rows and not joined.rows:
            self._warn_of_other_ids()
        return 0 if joined is stored else stored.rows - joined.rows - self.repeated

    def _warn_of_other_ids(self) -> None:
        """Where there are labels, but none belongs to an answer."""
        labels = self.table("labels")
        if not labels.rows:
            return
        stored = self.table("predictions")
        names, code = self.class_names or (), int(labels["label"][0])
        label = f" (the first label is {names[code]!r})" if code < len(names) else ""
        answer = f" Answers have ids such as {str(stored['id'][0])!r}." if "id" in stored else ""
        count = len(np.unique(labels["sample"]))
        ids = "1 id that has" if count == 1 else f"{count:,} ids that have"
        warnings.warn(
            f"The labels of {self.path} came for {ids} no answer{label}.{answer} `label` takes the"
            " ids first, then the labels.",
            DoubtfulRecording,
            stacklevel=1,  # one line, and so once per sentence
        )

    @property
    def repeated(self) -> int:
        """Answers that do not count, since an earlier one has the same sample and shift."""
        if self.header["log_version"] < 2:
            return 0
        joined = self.predictions
        return joined.repeated if isinstance(joined, LabelledPredictions) else 0

    def __getattr__(self, name: str) -> LogTable:
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"A run has no '{name}'; {nearest(name, TABLES)}")
        return self.table(name)

    @property
    def class_names(self) -> list[str] | None:
        """The values of the labels by class number; None where labels are these numbers."""
        names: list[str] | None = self.stream.get("class_names")
        return names

    def check_classes(self) -> None:
        """An error if a recorded loop names classes in two ways (`OK` and `ok`, or names and
        numbers), so that no answer is ever a label; a warning while there are few labels."""
        names = self.class_names
        if not self.recorded or not names:
            return
        labels, answers = (np.unique(self.predictions[name]) for name in ("label", "prediction"))
        if not len(labels) or np.isin(answers, labels).any():
            return
        few = len(self.predictions["label"]) < MEET
        if few and self.header.get("recorder", {}).get("count"):
            return  # other classes were refused, so these answers are wrong
        shown = [
            ", ".join(repr(names[code]) for code in codes[codes >= 0][:4]) or "none"
            for codes in (labels, answers)
        ]
        sentence = (
            f"No answer of {self.path} is a class that occurs among its labels: labels are"
            f" {shown[0]}, answers {shown[1]}. Record both in the same way (upper and lower case"
            " differ; give the names in `classes=` where answers are numbers or probabilities)."
        )
        if not few:
            raise StreamgaugeError(sentence)
        same = "If these are names of the same classes, the accuracy of 0 means nothing."
        warnings.warn(f"{sentence} {same}", DoubtfulRecording, stacklevel=1)

    def table(self, name: str) -> LogTable:
        if name not in self._tables:
            files = self._committed(name)
            if self._journal is not None and name in self._journal.files:
                files.append(self._journal.files[name])
            rest = self.path / FAILED_ROWS / f"{name}.parquet"
            files += [rest] if self.failure and rest.is_file() else []
            self._tables[name] = LogTable(name, files, self._journal, self.class_names)
        return self._tables[name]

    def _committed(self, table: str) -> list[Path]:
        if table not in TABLES:
            raise StreamgaugeError(f"A log has no table '{table}'; {nearest(table, TABLES)}")
        if table not in self._checked:
            self._checked[table] = list(segment_files(self.path, self._progress, table))
        return list(self._checked[table])

    def files(self, table: str = "predictions") -> list[str]:
        """The Parquet files of a table that were committed when this run was opened, for scans by
        DuckDB or Polars. A pattern such as `log/predictions/*.parquet` may match a segment that
        is not complete."""
        return [str(file) for file in self._committed(table)]

    @property
    def made(self) -> str:
        """When its log was last written, in local time."""
        files = [self.path / name for name in ("progress.json", "run.json")]
        written = next(file.stat().st_mtime for file in files if file.exists())
        for seconds in (self._time, written):
            with suppress(TypeError, ValueError, OverflowError, OSError):  # no time of a calendar
                return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")  # type: ignore[arg-type]
        return "at an unknown time"

    @property
    def failure(self) -> str:
        """The sentence with which its last attempt failed; "" if the attempt did not fail."""
        file = self.path / FAILED
        return file.read_text(errors="replace") if file.is_file() and not self.done else ""

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
        return f"Run({str(self.path)!r}: {self.learner}, seed {self.seed}, {self._state})"

    @property
    def _state(self) -> str:
        return "done" if self.done else f"at step {self.step}"

    def _repr_html_(self) -> str:
        from streamgauge.pages import notebook_table

        sizes = {
            name: self.table(name).rows for name in TABLES if self._progress["segments"].get(name)
        }
        rows = [
            ("stream", self.stream["name"]),
            ("seed", self.seed),
            ("state", f"{self._state}, written {self.made}"),
            *((f"rows of {name}", f"{count:,}") for name, count in sizes.items()),
        ]
        return notebook_table(str(self.path), ("learner", self.learner), rows)


def find_runs(paths: str | Path | Run | Iterable[str | Path | Run] = RUNS) -> list[Run]:
    """Runs in a folder, or in several: each is a run folder, or a folder of run folders."""
    runs: list[Run] = []
    several = [paths] if isinstance(paths, str | Path | Run) else paths
    for path in several if isinstance(several, Iterable) else [several]:
        if not isinstance(path, str | Path | Run):
            raise StreamgaugeError(f"Give runs or the paths of their folders, not {path!r}.")
        runs += [path] if isinstance(path, Run) else _runs_in(Path(path))
    return runs


def _runs_in(path: Path) -> list[Run]:
    folders = run_folders(path)
    index = index_of(path, len(folders))
    runs = [Run(folder, index) for folder in folders]
    save_results(runs)
    return runs


def save_results(runs: Iterable[Run]) -> None:
    """Write what was computed of these runs to the indexes of their folders, where there are."""
    for index in {id(run._index): run._index for run in runs if run._index is not None}.values():
        index.save()


def run_folders(path: Path) -> list[Path]:
    """The run folders at a path: itself, or those in it."""
    if (path / "run.json").exists():
        return [path]
    if path.is_file():
        raise StreamgaugeError(f"{path} is a file, not a folder of runs.")
    if not path.is_dir():
        raise StreamgaugeError(f"There is no folder {path}.")
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    inside = [path / name for name in names if os.path.exists(f"{path}/{name}/run.json")]
    if not inside:
        raise StreamgaugeError(f"There is no run in {path if path.name else 'this folder'}.")
    return inside
