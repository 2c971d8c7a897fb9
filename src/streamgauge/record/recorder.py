"""`sg.Recorder`: the log of a loop that is not ours, from its answers and the labels that follow.

A call is appended to a journal (`tables/journal.py`). When the journal is large, and when a folder
is opened or closed, its rows are committed as Parquet segments. Nothing else grows: labels are
joined to answers when the log is read. See docs/recorder.md.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, with_keywords
from streamgauge.files import write_sealed
from streamgauge.record.recorded import (
    FRESH,
    check_same_recording,
    folded,
    recorded_header,
    rows_of,
)
from streamgauge.record.tables import OPTIONAL
from streamgauge.record.values import (
    Classes,
    Ids,
    Kind,
    as_array,
    id_key,
    is_one,
    log_probabilities,
    one_whole,
    real,
    seconds,
    unpacked,
    whole,
)
from streamgauge.record.writer import RunWriter, disk_errors, read_header
from streamgauge.tables import journal
from streamgauge.tables.commit import read_progress
from streamgauge.tables.journal import Content, JournalFile

COMMIT_BYTES, COMMIT_ROWS = 1 << 24, 1 << 17  # a journal of this size is committed
TIME_TOLERANCE = 60.0  # seconds by which answers of threads may come out of order
SPLITS = ("test", "held_out", "probe")


class Recorder:
    """Records the answers and labels of any loop in a run folder (docs/recorder.md).

    `classes` are the names of the classes in the order of the scores, or how many there are.
    `seed`, `library` and `settings` tell recordings of one learner apart. With `hash_ids` the log
    has keyed hashes of ids and users; `key` is the key, by default one in the user's configuration
    folder. The scores of an answer are dropped when its label is known, unless `keep_scores`.
    """

    @with_keywords
    def __init__(
        self,
        path: str | Path,
        *,
        stream: str,
        learner: str,
        classes: Sequence[Any] | int | None = None,
        seed: int = 0,
        library: str | None = None,
        hash_ids: bool = False,
        key: str | bytes | None = None,
        keep_scores: bool = False,
        **settings: Any,
    ) -> None:
        _refuse_misspelt(settings)
        self.path = Path(path)
        self._ids = Ids(id_key(key) if hash_ids else b"")
        self._lock, self._process = threading.RLock(), os.getpid()
        self._journal: JournalFile | None = None
        self._rows = self._answered = 0  # in the journal: all rows, answers
        header = recorded_header(
            stream, learner, seed, library, settings, classes, self._ids.check()
        )
        if (self.path / "run.json").exists():
            check_same_recording(self.path, read_header(self.path), header)
        elif any(self.path.glob("*/run.json")):
            raise StreamgaugeError(
                f"{self.path} is a folder of runs: give the recording a folder of its own, such as"
                f" {self.path / learner}."
            )
        absent, added = OPTIONAL | {"label"}, frozenset({"labels", "id"})
        self._writer = RunWriter(self.path, header, absent, added)
        try:
            self._open(keep_scores)
        except BaseException:
            self._writer.close()
            raise

    def _open(self, keep_scores: bool) -> None:
        progress, content = journal.read_journal(self.path)
        self._header = read_header(self.path)
        self._state = progress.get("recorder", FRESH) | {"keep_scores": keep_scores}
        self._commit(content or journal.parse(b""))
        count = self._header["recorder"]["count"] or self._state["width"]
        self._classes = Classes(self._header["stream"]["class_names"], count)
        self._evaluated: set[tuple[int, str]] | None = None  # parts of the current evaluation
        self._pending = b""  # records that precede that of the next call

    def predict(
        self,
        ids: Any,
        answers: Any,
        *,
        time: Any = None,
        kind: Kind | None = None,
        version: Any = None,
        shift: int = 0,
        age: Any = None,
        user: Any = None,
        task: Any = None,
    ) -> None:
        """Record the answers to one id or several: a class each, or a row of scores each.

        The rows of probabilities and log-probabilities sum to one; name other scores with
        `kind="logits"`. `version` is by default the number of training jobs so far. The first call
        decides which of `time`, `age`, `user`, `task` and scores the log has.
        """
        with self._lock:
            state = self._state
            ids, answers, shift = unpacked(ids), unpacked(answers), one_whole(shift, "shift")
            single = is_one(ids)
            sample, lengths, text, count = self._ids.of(ids)
            logs, codes, confidence = self._answers(answers, single, count, kind)
            if not count:
                return
            tasks, moments = whole(task, "task"), seconds(time)
            if shift == 0 and time is not None:
                moments = self._in_order(moments)
            values = (
                state["step"] if shift == 0 else max(state["step"] - 1, 0),
                sample, codes, confidence,
                state["version"] if version is None else whole(version, "version"),
                shift, whole(age, "age"), tasks, self._ids.users(user), moments,
            )  # fmt: skip
            rows = _packed(values, journal.ANSWER, journal.ONE_ANSWER, count, single)
            given = {"age": age, "task": task, "user": user, "time": time, "scores": logs}
            self._require_same_columns(
                "columns", [name for name, value in given.items() if value is not None]
            )
            scores, width = (b"", 0) if logs is None else (logs.tobytes(), logs.shape[1])
            data = journal.answers_record(rows, lengths, text, count, scores, width)
            if width and self._classes.count is None:
                self._classes.count = width
                self._set(width=width)
            self._append(data, count)
            if shift == 0:
                state["step"] += 1
                self._answered += count
                state["task"] = tasks if is_one(tasks) else int(tasks[-1])
                if time is not None:
                    state["time"] = moments if is_one(moments) else float(moments[-1])
            self._evaluated = None

    def label(self, ids: Any, labels: Any, *, time: Any = None) -> None:
        """Record labels, in any order, also before their answers. Of several labels for an id the
        one with the newest time counts, of equal times the last."""
        with self._lock:
            rows, count = self._label_rows(ids, labels, time, self._classes)
            if not count:
                return
            self._require_same_columns("label_columns", [] if time is None else ["time"])
            self._append(journal.record(journal.LABELS, rows), count)

    def check_labels(self, ids: Any, labels: Any, width: int | None = None) -> None:
        """Refuse labels that `label` would refuse after answers of `width` scores each; record
        nothing."""
        with self._lock:
            if self._label_rows(ids, labels, None, self._classes.trial(width))[1]:
                self._refuse_other_columns("label_columns", [])

    def _label_rows(self, ids: Any, labels: Any, time: Any, classes: Classes) -> tuple[bytes, int]:
        ids = unpacked(ids)
        sample, _, _, count = self._ids.of(ids)
        codes = classes.encode(unpacked(labels), "label")
        if not count:
            return b"", 0
        values = sample, codes, seconds(time)
        return _packed(values, journal.LABEL, journal.ONE_LABEL, count, is_one(ids)), count

    def trained(
        self,
        ids: Any = None,
        *,
        version: int | None = None,
        seconds: float | None = None,
        flops: float | None = None,
    ) -> None:
        """Record a finished training job: later answers have the version after it. Of `ids` only
        the number is stored, as the scalar `trained_samples`."""
        with self._lock:
            state = self._state
            number = state["version"] + 1 if version is None else one_whole(version, "version")
            unknown = {"bytes": math.nan, "recalled": math.nan}
            job = {"version": number, "kind": "learn", "flops": real(flops, "flops"), **unknown}
            rows: list[tuple[str, dict[str, Any]]] = [("jobs", job)]
            if not math.isnan(took := real(seconds, "seconds")):
                rows.append(("timing", {"part": "learn", "seconds": took}))
            if ids is not None:
                count = float(self._ids.of(unpacked(ids))[-1])
                rows.append(("training", {"name": "trained_samples", "value": count}))
            self._append_rows(rows)
            state["version"], self._evaluated = number, None

    def evaluate(
        self, *, correct: int, count: int, task: int | None = None, split: str = "test"
    ) -> None:
        """Record an evaluation on held-out data. Calls for several tasks and splits are one
        evaluation, until the next answer or training job."""
        correct, count = one_whole(correct, "correct"), one_whole(count, "count")
        task = -1 if task is None else one_whole(task, "task")
        if split not in SPLITS or not 0 <= correct <= count:
            raise StreamgaugeError(
                f"evaluate takes split={' or '.join(map(repr, SPLITS))}, and correct from 0 to"
                f" count; got split={split!r}, correct={correct}, count={count}."
            )
        with self._lock:
            state, part = self._state, (task, split)
            begins = self._evaluated is None or part in self._evaluated
            number = state["evaluation"] + begins
            row = {"evaluation": number, "version": state["version"], "current": state["task"],
                   "split": split, "task": part[0], "within": -1, "correct": correct,
                   "count": count}  # fmt: skip
            self._append_rows([("evaluations", row)])
            state["evaluation"] = number
            self._evaluated = {part, *(() if begins else self._evaluated or ())}

    def scalar(self, name: str, value: float) -> None:
        """Record a number, such as a loss, at the current step."""
        with self._lock:
            self._append_rows([("training", {"name": str(name), "value": real(value, "value")})])

    @property
    def samples(self) -> int:
        """Answers in the folder so far, without those with a shift; also of earlier processes."""
        return int(self._state["samples"]) + self._answered

    def flush(self) -> None:
        """Return when all calls so far would survive a power loss."""
        with self._lock:
            self._file().sync()

    def close(self) -> None:
        """Commit all rows. A new `Recorder` can go on in the same folder."""
        with self._lock:
            try:
                if self._journal is not None:
                    self._commit_journal()
                    self._file().close()
                    with disk_errors(self.path, "all calls are in the log"):
                        self._file().path.unlink()
                    self._journal = None
            finally:
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _file(self) -> JournalFile:
        """The open journal, for calls that hold the lock."""
        if self._process != os.getpid():
            raise StreamgaugeError(
                f"The recorder of {self.path} belongs to another process: a folder has one writer."
            )
        if self._journal is None:
            raise StreamgaugeError(f"The recorder of {self.path} is closed: open a new one.")
        return self._journal

    def _answers(
        self, answers: Any, single: bool, count: int, kind: Kind | None
    ) -> tuple[NDArray[np.float32] | None, Any, Any]:
        """Log-probabilities where scores are given, predicted classes, confidences."""
        depth = 0 if is_one(answers) else np.ndim(answers)
        if depth != (1 if single else 2):
            return None, self._classes.encode(answers, "prediction"), math.nan
        logs = log_probabilities(as_array(answers)[None] if single else answers, kind)
        self._classes.check_width(logs.shape[1])
        if len(logs) != count:
            raise StreamgaugeError(f"There are {count} ids and {len(logs)} rows of scores.")
        codes = logs.argmax(axis=1).astype(np.int32)
        confidence = np.exp(logs[np.arange(count), codes])
        return logs, *((int(codes[0]), float(confidence[0])) if single else (codes, confidence))

    def _in_order(self, moments: Any) -> Any:
        """Times that never go back: a bit earlier than the newest, as from threads, becomes equal
        to it; more is refused."""
        before = self._state["time"]
        newest = -math.inf if before is None else before
        if is_one(moments):
            ordered = max(moments, newest)
            back = ordered - moments
        else:
            ordered = np.maximum.accumulate(np.maximum(moments, newest))
            back = np.max(ordered - moments, initial=0.0)
        if back > TIME_TOLERANCE:
            raise StreamgaugeError(
                f"time goes back by {back:,.0f} s, and answers are recorded in the order of their"
                " times: record older ones in another folder."
            )
        return ordered

    def _require_same_columns(self, name: str, value: list[str]) -> None:
        """The first call decides which optional columns the log has; later calls must give the
        same, only scores may be missing."""
        if self._state[name] is None:
            self._set(**{name: value})
        self._refuse_other_columns(name, value)

    def _refuse_other_columns(self, name: str, value: list[str]) -> None:
        before = self._state[name]
        if before is None:
            return
        if before != value and before != [*value, "scores"]:
            different = sorted((set(before) ^ set(value)) - ({"scores"} & set(before)))
            raise StreamgaugeError(
                f"The first call decides which columns {self.path} has, and this call differs in"
                f" {', '.join(different)}: give the same in every call."
            )

    def _set(self, **entries: Any) -> None:
        self._state |= entries
        self._pending += journal.values_record(state=entries)

    def _append_rows(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        step = self._state["step"]
        for table, row in rows:
            row["step"] = step if table == "evaluations" else max(step - 1, 0)
        self._append(journal.values_record(rows=rows), len(rows))

    def _append(self, data: bytes, count: int) -> None:
        """Append the record of a call, and before it what the call has fixed."""
        if self._file().size >= COMMIT_BYTES or self._rows >= COMMIT_ROWS:
            self._commit_journal()
        if self._classes.unsaved:
            self._pending += journal.values_record(classes=self._classes.unsaved)
            self._classes.unsaved.clear()
        self._file().append(self._pending + data if self._pending else data)
        self._pending = b""
        self._rows += count

    def _commit_journal(self) -> None:
        file = self._file()
        content = journal.parse(file.path.read_bytes())
        if content.valid != file.size:
            raise StreamgaugeError(f"{file.path} was changed by another program: open it again.")
        self._journal = None  # until it is certain which journal follows
        try:
            self._commit(content)
            del content
            _return_memory()
        except BaseException:
            if read_progress(self.path)["recorder"]["journal"] == file.number:  # type: ignore[index]
                self._journal = file
            raise
        file.close()

    def _commit(self, content: Content) -> None:
        """Write the rows of a journal as segments and begin a new journal."""
        state, header = folded(self._state, self._header, content)
        state["journal"] += 1
        self._writer.rows = rows_of(content, state)
        with disk_errors(self.path):
            if header != self._header:
                write_sealed(self.path / "run.json", header)
            self._writer.checkpoint(state["step"], None, True, recorder=state)
            self._writer.rows = {}
            self._state |= state
            self._header, self._rows, self._answered = header, 0, 0
            for file in self.path.glob("journal-?????"):
                file.rename(f"{file}.damaged") if content.damaged else file.unlink()
            self._journal = JournalFile(self.path, state["journal"])


def _refuse_misspelt(settings: Iterable[str]) -> None:
    """Refuse names of settings that are nearly a parameter's. Short ones are not compared: `speed`
    is a setting, and no misspelt `seed`."""
    names = ("stream", "learner", "classes", "library", "hash_ids", "keep_scores")
    for name in settings:
        if close := get_close_matches(name.lower(), names, 1, 0.83):
            raise StreamgaugeError(
                f"Recorder has no keyword '{name}': did you mean '{close[0]}'? A setting of the"
                " learner needs a name that is less like a keyword."
            )


def _return_memory() -> None:
    """Give the memory that a commit has freed back to the system: that of Arrow's pool, and that of
    the C library, which else keeps up to 64 MB of it. Only glibc has `malloc_trim`."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _packed(values: Sequence[Any], kind: Any, one: Any, count: int, single: bool) -> bytes:
    """Rows of a journal; each value is one for all rows, or a list with one for each."""
    if single:
        try:
            return bytes(one.pack(*values))
        except (struct.error, TypeError):
            raise StreamgaugeError("There is one id: give one value of each kind for it.") from None
    wrong = [len(v) for v in values if not is_one(v) and len(v) != count]
    if wrong:
        raise StreamgaugeError(f"There are {count} ids, but {wrong[0]} values for them.")
    rows = np.empty(count, kind)
    for name, value in zip(kind.names, values, strict=True):
        rows[name] = value
    return rows.tobytes()
