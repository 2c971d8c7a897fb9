"""Writes a run folder so that a kill at any moment loses only the work after the last checkpoint.

    run.json                what was run: configuration, identity, stream, environment
    progress.json           the commit point: last step, checkpoint file, number of valid segments
    checkpoint-STEP.pt      state of learner and loop
    log/TABLE/00000.parquet numbered segments
    lock                    locked by the process that writes

Every file is written atomically, `progress.json` last. Files that `progress.json` does not name are
left over from an interrupted write and are removed on resume.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.files import LOCK, TEMPORARY, acquire_lock, write_atomic, write_json
from streamgauge.record.tables import ADDED, LOG_VERSION, TABLES, RowBuffer, columns_of

# Limit of rows of one table in memory; a table that reaches the limit asks for a checkpoint.
MAX_ROWS = 1 << 19


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
            path.mkdir(parents=True, exist_ok=True)
            self._lock = acquire_lock(path, f"{path} is being written by another process.")
        self.rows = {
            name: RowBuffer(columns_of(name, absent, added))
            for name in TABLES
            if name not in ADDED - added
        }
        self._segments = dict.fromkeys(self.rows, 0)
        self._state: dict[str, Any] | None = None
        self.step = 0
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
            write_json(stored, {"log_version": self._version, **header})
        else:
            header_before = read_header(self.path)
            if header_before["environment"] != header["environment"]:
                header_before.setdefault("resumed_in", []).append(
                    {"step": progress["step"], "environment": header["environment"]}
                )
                write_json(stored, header_before)
            self.threads = header_before["environment"].get("threads")
            self._segments.update(progress["segments"])
            self.step = progress["step"]
            if progress["checkpoint"]:
                self._state = read_checkpoint(self.path / progress["checkpoint"])
        self._remove_leftovers(progress)

    def _remove_leftovers(self, progress: dict[str, Any] | None) -> None:
        """Remove files that the commit point does not name: temporary files and later segments."""
        keep = None if progress is None else progress["checkpoint"]
        for file in self.path.glob("checkpoint-*"):
            if file.name != keep:
                file.unlink()
        for name in self._segments:
            for file in (self.path / "log" / name).glob("[0-9]*.parquet*"):
                if file.suffix in TEMPORARY or int(file.stem) >= self._segments[name]:
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
            segments = dict(self._segments)
            for name, rows in self.rows.items():
                if rows.count:
                    folder = self.path / "log" / name
                    folder.mkdir(parents=True, exist_ok=True)
                    with write_atomic(folder / f"{segments[name]:05d}.parquet") as part:
                        pq.write_table(rows.take(), part, compression="zstd")
                    segments[name] += 1
            before = (read_progress(self.path) or {}).get("checkpoint")
            checkpoint = None
            if state is not None:
                checkpoint = f"checkpoint-{step}.pt"
                with write_atomic(self.path / checkpoint) as part:
                    _save(state, part)
            now = {"step": step, "done": done, "checkpoint": checkpoint, "time": int(time.time())}
            write_json(self.path / "progress.json", {**now, "segments": segments, **notes})
            self.step, self._segments = step, segments
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
        self._lock.release()


def read_header(path: Path) -> dict[str, Any]:
    """The contents of run.json; an error if it is damaged or of a later version."""
    file = path / "run.json"
    try:
        header: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise StreamgaugeError(f"{path} is not a run folder: it has no run.json.") from None
    except (OSError, ValueError) as error:
        raise StreamgaugeError(f"{file} cannot be read ({error}).") from None
    version = header.get("log_version") if isinstance(header, dict) else None
    if not isinstance(version, int):
        raise StreamgaugeError(f"{file} names no log version: it is damaged, or not of a run.")
    if version > LOG_VERSION:
        raise StreamgaugeError(
            f"{path} has log version {version}, and this streamgauge reads versions up to "
            f"{LOG_VERSION}: install a newer streamgauge to read it."
        )
    return header


def read_progress(path: Path) -> dict[str, Any] | None:
    """The commit point, or None before the first one."""
    try:
        progress: dict[str, Any] = json.loads((path / "progress.json").read_text())
        return progress if progress["segments"] is not None else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StreamgaugeError(
            f"{path / 'progress.json'} cannot be read: {error.strerror}."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise StreamgaugeError(
            f"{path / 'progress.json'} is damaged ({error}); remove the folder and run again."
        ) from None


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
        raise StreamgaugeError(f"The checkpoint {path} is missing.")
    try:
        state: dict[str, Any] = from_plain(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StreamgaugeError(
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


def require_readable(state: Any, name: str) -> None:
    """Refuse a state that could be written to a checkpoint and not be read from it again."""
    if _reads_back(state):
        return
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


def _reads_back(value: Any) -> bool:
    import torch

    buffer = io.BytesIO()
    try:
        torch.save(to_plain(value), buffer)
        buffer.seek(0)
        torch.load(buffer, map_location="cpu", weights_only=True)
    except Exception:  # whatever the pickling of a user's object raises
        return False
    return True


def _unreadable(value: Any, where: str) -> tuple[str, Any] | None:
    """The first entry of a state that cannot be read back, and how it is reached."""
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, (dict, list, tuple)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
    bad = (_unreadable(item, f"{where}[{key!r}]") for key, item in entries)
    inside = next((found for found in bad if found is not None), None)
    return inside if inside is not None or _reads_back(value) else (where, value)


@contextlib.contextmanager
def disk_errors(path: Path, safe: str = "") -> Iterator[None]:
    """Raise a failing disk as a StreamgaugeError; `safe` says what is still valid."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StreamgaugeError(
            f"Cannot write to {path}: {reason}" + (f"; {safe}." if safe else ".")
        ) from error
