"""Writes a run folder so that a kill at any moment loses only the work after the last checkpoint.

    run.json                what was run: configuration, identity, stream, environment
    progress.json           the commit point: last step, checkpoint file, number of valid segments,
                            size and checksum of each of these files
    checkpoint-STEP.pt      state of learner and loop
    log/TABLE/00000.parquet numbered segments
    lock                    locked by the process that writes

Every file is written atomically, `progress.json` last; both JSON files are sealed (`files.py`).
Files that `progress.json` does not name are left over from an interrupted write and are removed on
resume.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import Damaged, StreamgaugeError, packages_for
from streamgauge.files import (
    LOCK,
    TEMPORARY,
    acquire_lock,
    checksum,
    make_folder,
    misfit,
    read_sealed,
    release_lock,
    size_and_checksum,
    write_atomic,
    write_sealed,
)
from streamgauge.record.tables import ADDED, LOG_VERSION, TABLES, RowBuffer, columns_of
from streamgauge.tables.commit import (
    REMEDY,
    check_committed,
    committed_files,
    read_progress,
    segment_name,
)

_FAR = 1 << 62  # samples or steps; sums of two such numbers have 64 bits
# Limit of rows of one table in memory; a table that reaches the limit asks for a checkpoint.
MAX_ROWS = 1 << 19

# What every run.json has, of whatever version.
SHAPE = {
    "log_version": int,
    "id": str,
    "config": {
        "stream": {"name": str, "settings": dict, "origin?": (str, None)},
        "learner": {"name": str, "settings": (dict, None), "where?": str, "needs?": [str],
                    "code?": (str, None)},
        "protocol": {"label_delay?": int, "shifts?": [int]},
        "seed": int,
        "device": str,
        "engine?": dict,
    },
    "stream": {
        "name": str, "settings": dict, "samples": int, "steps": int, "step_size": (int, None),
        "tasks": (int, None), "classes": int, "class_names": ([str], None),
        "class_task?": ([int], None), "input_shape": ([int], None), "data_hash": str,
        "order_hash": str, "held_out?": dict, "notes?": dict,
    },
    "environment": dict,
    "resumed_in?": [{"step": int, "environment": dict}],
    "recorder?": {"count": (int, None), "names": ([str], None), "ids": (str, None)},
}  # fmt: skip


class RunWriter:
    """The only writer of a run folder: holds its lock from construction to `close`.

    `absent` and `added` say which optional columns the log has (see `columns_of`).
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        absent: frozenset[str],
        added: frozenset[str] = frozenset(),
    ) -> None:
        self.path, self._version = path, LOG_VERSION if added else 1
        with disk_errors(path):
            make_folder(path)
            self._lock = acquire_lock(path, f"{path} is being written by another process.")
        self.rows = {
            name: RowBuffer(columns_of(name, absent, added))
            for name in TABLES
            if name not in ADDED - added
        }
        self._segments = dict.fromkeys(self.rows, 0)
        self._files: dict[str, list[Any]] = {}  # size and checksum of what is committed
        self._checkpoint: str | None = None
        self._state: dict[str, Any] | None = None
        self.step = 0
        self.done = False  # whether the stored run is complete
        self.threads: int | None = None  # of the first start, where this run is resumed
        try:
            with disk_errors(path):
                self._open(header)
        except BaseException:
            self.close()
            raise

    def _open(self, header: dict[str, Any]) -> None:
        progress = read_progress(self.path)
        stored = self.path / "run.json"
        if progress is None:
            write_sealed(stored, {"log_version": self._version, **header})
        else:
            header_before = read_header(self.path)
            if header_before["environment"] != header["environment"]:
                header_before.setdefault("resumed_in", []).append(
                    {"step": progress["step"], "environment": header["environment"]}
                )
                write_sealed(stored, header_before)
            self.threads = header_before["environment"].get("threads")
            self._segments.update(progress["segments"])
            self.step, self.done = progress["step"], progress["done"]
            self._checkpoint = progress.get("checkpoint")
            self._files = self._checked_files(progress)
            if self._checkpoint:
                self._state = read_checkpoint(self.path / self._checkpoint)
        self._remove_leftovers()

    def _checked_files(self, progress: dict[str, Any]) -> dict[str, list[Any]]:
        """Size and checksum of every committed file. All are checked before anything goes on from
        them; for a folder of an older version, which stored none, they are computed."""
        names = []
        for name in committed_files(progress):
            check_committed(self.path, progress, name)
            names.append(name)
        stored: dict[str, list[Any]] = progress.get("files", {})
        return stored or {name: size_and_checksum(self.path / name) for name in names}

    def _remove_leftovers(self) -> None:
        """Remove files that the commit point does not name: temporary files and later segments.
        Only in this folder: what a link leads to is not ours."""
        for folder in (self.path / "log", *(self.path / "log" / name for name in self._segments)):
            if folder.is_symlink():
                raise StreamgaugeError(
                    f"{folder} is a symbolic link: put the folder itself there to go on with this"
                    " run."
                )
        keep = self._checkpoint
        for file in self.path.glob("checkpoint-*"):
            if file.name != keep:
                file.unlink()
        for name in self._segments:
            for file in (self.path / "log" / name).glob("[0-9]*.parquet*"):
                number = file.name.removesuffix(".parquet")
                if file.suffix in TEMPORARY or (
                    number.isdecimal() and int(number) >= self._segments[name]
                ):
                    file.unlink()
        for file in self.path.iterdir():
            if file.suffix in TEMPORARY:
                file.unlink()

    @property
    def state(self) -> dict[str, Any] | None:
        """State of the last checkpoint, None at a fresh start. The first access releases it, so
        that it is not in memory twice."""
        state, self._state = self._state, None
        return state

    @property
    def peek(self) -> dict[str, Any] | None:
        """The same as `state`, without releasing it."""
        return self._state

    @property
    def full(self) -> bool:
        """Whether a checkpoint should be made now to keep memory bounded."""
        return any(rows.count >= MAX_ROWS for rows in self.rows.values())

    def checkpoint(
        self,
        step: int,
        state: dict[str, Any] | None,
        done: bool = False,
        **notes: Any,
    ) -> None:
        """Write the rows collected so far and the state that continues from them (None: no state,
        for logs of loops that are not ours). `notes` become part of `progress.json`."""
        import pyarrow.parquet as pq

        if not (self.path / "run.json").exists():
            raise StreamgaugeError(
                f"{self.path} was renamed or removed while it was written: its log up to step "
                f"{self.step} is in the folder that it is now; rename that back and run the same "
                "command to go on."
            )
        with disk_errors(self.path, f"the log up to step {self.step} is safe"):
            segments, files, before = dict(self._segments), dict(self._files), self._checkpoint
            for name, rows in self.rows.items():
                if rows.count:
                    segment = segment_name(name, segments[name])
                    make_folder((self.path / segment).parent)
                    # In memory: pyarrow prints a traceback of its own where a disk fails.
                    buffer = io.BytesIO()
                    pq.write_table(
                        rows.take(), buffer, compression="zstd", write_page_checksum=True
                    )
                    data = buffer.getvalue()
                    with write_atomic(self.path / segment) as part:
                        part.write_bytes(data)
                    files[segment] = [len(data), checksum(data)]
                    segments[name] += 1
            checkpoint = None
            files.pop(before or "", None)
            if state is not None:
                checkpoint = f"checkpoint-{step}.pt"
                with write_atomic(self.path / checkpoint) as part:
                    _save(state, part)
                    files[checkpoint] = size_and_checksum(part)
            now: dict[str, Any] = {
                "step": step,
                "done": done,
                "checkpoint": checkpoint,
                "time": int(time.time()),
            }
            now |= {"segments": segments, "files": files}
            write_sealed(self.path / "progress.json", {**now, **notes})
            self.step, self._segments = step, segments
            self._files, self._checkpoint = files, checkpoint
            if before and before != checkpoint:
                (self.path / before).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove a run folder without a checkpoint."""
        if read_progress(self.path) is None:
            (self.path / "run.json").unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        release_lock(self._lock)


def read_header(path: Path) -> dict[str, Any]:
    """The contents of run.json; an error if it is damaged or of a later version."""
    file = path / "run.json"
    try:
        header = read_sealed(file, {"log_version": int}, REMEDY)
    except FileNotFoundError:
        raise StreamgaugeError(f"{path} is not a run folder: it has no run.json.") from None
    version = header["log_version"]
    if version > LOG_VERSION:
        raise StreamgaugeError(
            f"{path} has log version {version}, and this streamgauge reads versions up to "
            f"{LOG_VERSION}: install a newer streamgauge to read it."
        )
    problem = misfit(header, SHAPE, "")
    if problem := problem or _bad_delay(header["config"]["protocol"]):
        raise Damaged(f"{file} is damaged ({problem}); {REMEDY}.")
    return header


def _bad_delay(protocol: Mapping[str, Any]) -> str:
    delays = {"label_delay": [protocol.get("label_delay", 0)], "shifts": protocol.get("shifts", [])}
    bad = [name for name, values in delays.items() if not all(0 <= v < _FAR for v in values)]
    return f"entry 'config.protocol.{bad[0]}' is out of range" if bad else ""


def _save(state: dict[str, Any], path: Path) -> None:
    import torch

    with open(path, "wb") as file:
        try:
            torch.save(to_plain(state), file)
        except RuntimeError as error:
            # torch reports a failing disk as a RuntimeError; the OSError behind it says why.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint of tensors and plain values; no code in the file is executed."""
    with packages_for("Reading a checkpoint"):
        import torch

    if not path.exists():
        raise Damaged(f"The checkpoint {path} is missing.")
    try:
        state: dict[str, Any] = from_plain(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damaged(
            f"The checkpoint {path} is damaged ({reason}); remove the run folder and run again."
        ) from None
    return state


def to_plain(value: Any) -> Any:
    """Replace NumPy arrays by tagged tensors, since `weights_only` loading accepts tensors only."""
    if isinstance(value, np.ndarray):
        import torch

        return {"__array__": torch.from_numpy(np.require(value, requirements=("C", "W")))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`, except that tuples stay lists."""
    if isinstance(value, dict):
        if value.keys() == {"__array__"}:
            return value["__array__"].cpu().numpy()
        return {key: from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    return value


def read_back(state: Any, name: str) -> Any:
    """The state of a learner as a checkpoint gives it back. One that could be written to a
    checkpoint and not be read from it again is refused."""
    if not isinstance(state, Mapping):
        kind = "None" if state is None else f"a {type(state).__name__}"
        raise StreamgaugeError(
            f"state_dict of the learner {name} must return a dictionary, not {kind}; return {{}} if"
            " there is nothing to store."
        )
    with contextlib.suppress(Exception):  # whatever the pickling of a user's object raises
        return _written_and_read(state)
    where, value = _unreadable(state, "state_dict()") or ("state_dict()", state)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, np.ndarray):
        kind = f"array of type {value.dtype}"
    raise StreamgaugeError(
        f"The learner {name} could not be resumed: {where} is of type {kind}, and a checkpoint"
        " holds dictionaries, lists, numbers, text, bytes, tensors and arrays of numbers. Return"
        " one of these, such as pickle.dumps(model) for a model that can be pickled, and use"
        " pickle.loads in load_state_dict."
    )


def _written_and_read(value: Any) -> Any:
    import torch

    buffer = io.BytesIO()
    torch.save(to_plain(value), buffer)
    buffer.seek(0)
    return from_plain(torch.load(buffer, map_location="cpu", weights_only=True))


def _unreadable(value: Any, where: str) -> tuple[str, Any] | None:
    """The first entry of a state that cannot be read back, and how it is reached."""
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, (dict, list, tuple)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
    bad = (_unreadable(item, f"{where}[{key!r}]") for key, item in entries)
    inside = next((damage for damage in bad if damage is not None), None)
    if inside is not None:
        return inside
    try:
        _written_and_read(value)
    except Exception:
        return where, value
    return None


@contextlib.contextmanager
def disk_errors(path: Path, safe: str = "") -> Iterator[None]:
    """Raise a failing disk as a StreamgaugeError; `safe` says what is still valid."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = "a file has the name of a folder; choose another folder"
        raise StreamgaugeError(
            f"Cannot write to {path}: {reason}" + (f"; {safe}." if safe else ".")
        ) from error
