"""The journal of a recorder: calls that are not in the Parquet segments of a log yet (docs/log.md).

    journal-00003   a sequence of records: kind, length, CRC-32 of the payload, CRC-32 of these
                    three (none in the first format of records), payload

`progress.json` names the journal that follows the committed segments. Readers add its rows to those
of the segments, also while the writer goes on. A record that is cut off was never acknowledged.
"""

from __future__ import annotations

import json
import os
import struct
import warnings
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamgauge.errors import Damaged, StreamgaugeError
from streamgauge.files import read_bytes, sync_file, sync_folder
from streamgauge.tables.commit import read_progress, segment_files
from streamgauge.tables.late import LateLabels

HEAD, HEAD_CHECK = struct.Struct("<4sII"), struct.Struct("<I")
ANSWERS, LABELS, VALUES = b"sgA2", b"sgL2", b"sgV2"
OLD_KINDS = {b"sgA1": ANSWERS, b"sgL1": LABELS, b"sgV1": VALUES}
SIZES = struct.Struct("<II")  # answers, scores per answer
# The rows of the two large tables, as NumPy and as `struct` write them.
ANSWER = np.dtype([("step", "<i4"), ("sample", "<i8"), ("prediction", "<i4"), ("confidence", "<f4"),
                   ("version", "<i4"), ("shift", "<i4"), ("age", "<i4"), ("task", "<i4"),
                   ("user", "<i8"), ("time", "<f8")])  # fmt: skip
LABEL = np.dtype([("sample", "<i8"), ("label", "<i4"), ("label_time", "<f8")])
ONE_ANSWER, ONE_LABEL = struct.Struct("<iqifiiiiqd"), struct.Struct("<qid")
OPTIONAL_FIELDS = ("age", "task", "user", "time")


def record(kind: bytes, payload: bytes) -> bytes:
    head = HEAD.pack(kind, len(payload), zlib.crc32(payload))
    return head + HEAD_CHECK.pack(zlib.crc32(head)) + payload


def answers_record(
    rows: bytes, lengths: bytes, text: bytes, count: int, scores: bytes = b"", width: int = 0
) -> bytes:
    """Answers with the lengths and the text of their ids, and log-probabilities as float32."""
    return record(ANSWERS, b"".join((SIZES.pack(count, width), rows, lengths, scores, text)))


def values_record(**values: Any) -> bytes:
    """Anything else: `rows` of other tables, new `classes`, entries of the recorder's `state`."""
    return record(VALUES, json.dumps(values).encode())


def journal_path(folder: Path, number: int) -> Path:
    return folder / f"journal-{number:05d}"


class JournalFile:
    """An open journal, to which records are appended."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path, self.size, self.number = journal_path(folder, number), 0, number
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(self.path, flags, 0o644)
        self._broken = False
        sync_folder(folder)

    def append(self, data: bytes) -> None:
        """Returns when the operating system has the bytes: they survive the end of the process."""
        if self._broken:
            raise StreamgaugeError(f"{self.path} could not be written: open the recorder again.")
        start = self.size
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
            self.size = start + written
        except BaseException as error:
            self._broken = True  # unless what was written of the record can be taken back
            os.ftruncate(self._file, start)
            self.size, self._broken = start, False
            if not isinstance(error, OSError):
                raise
            raise StreamgaugeError(
                f"Cannot write to {self.path}: {error.strerror or error}; this call is not"
                " recorded, all calls before it are."
            ) from error

    def sync(self) -> None:
        """Returns when the bytes are on the disk."""
        sync_file(self._file)

    def close(self) -> None:
        """Of a journal that is not needed any more, so an error has no meaning."""
        with suppress(OSError):
            os.close(self._file)


@dataclass
class Content:
    """What the records of a journal say."""

    answers: NDArray[Any]
    labels: NDArray[Any]
    ids: pa.Array
    scores: NDArray[np.float32]  # of all answers in one row
    widths: NDArray[np.int64]  # scores of each answer
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of the other tables
    classes: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)  # of the recorder
    valid: int = 0  # bytes up to the first record that is damaged or cut off
    damaged: bool = False

    def tables(self, columns: Sequence[str], keep_scores: bool) -> dict[str, pa.Table]:
        """The tables `predictions` and `labels`; `columns` are the optional ones that the log has.

        Scores are kept for answers whose label is not in the same journal; of others only the
        log-probability of the label is, and which label that is.
        """
        names = [n for n in ANSWER.fields or () if n not in OPTIONAL_FIELDS or n in columns]
        stored = {name: pa.array(np.ascontiguousarray(self.answers[name])) for name in names}
        if "scores" in columns:
            late = LateLabels(self.labels["sample"], self.labels["label_time"])
            row = late.find(np.ascontiguousarray(self.answers["sample"]))
            known = (row >= 0) & (self.widths > 0)
            label = np.full(len(known), -1, np.int32)
            label[known] = self.labels["label"][row[known]]
            logp = np.full(len(known), np.nan)
            begin = np.cumsum(self.widths) - self.widths
            logp[known] = self.scores[(begin + label)[known]]
            kept = (self.widths > 0) & (keep_scores | ~known)
            ends = np.append(0, np.cumsum(np.where(kept, self.widths, 0))).astype(np.int32)
            stored |= {"logp": pa.array(logp), "logp_label": pa.array(label)}
            stored["scores"] = pa.ListArray.from_arrays(
                pa.array(ends), pa.array(self.scores[np.repeat(kept, self.widths)]),
                mask=pa.array(~kept),
            )  # fmt: skip
        labels = {
            name: pa.array(np.ascontiguousarray(self.labels[name])) for name in LABEL.fields or ()
        }
        predictions = pa.table({**stored, "id": self.ids.dictionary_encode()})
        return {"predictions": predictions, "labels": pa.table(labels)}


def parse(data: bytes) -> Content:
    view, at = memoryview(data), 0
    # One array each: an object per record would take several times the memory of the journal.
    answers, lengths, scores, texts = bytearray(), bytearray(), bytearray(), bytearray()
    labels, sizes = bytearray(), bytearray()
    rows: dict[str, list[dict[str, Any]]] = {}
    classes, state = list[str](), dict[str, Any]()
    damaged = False
    while (record := _record_at(view, at)) is not None:
        kind, payload, end_of_record = record
        if kind is None:
            damaged = True
            break
        if kind == ANSWERS:
            count, width = SIZES.unpack_from(payload)
            end = SIZES.size
            for some, item in ((answers, ANSWER.itemsize), (lengths, 4), (scores, 4 * width)):
                begin, end = end, end + count * item
                some += payload[begin:end]
            texts += payload[end:]
            sizes += payload[: SIZES.size]
        elif kind == LABELS:
            labels += payload
        elif kind == VALUES:
            values = json.loads(bytes(payload))  # as written: its CRC-32 is right
            for table, row in values.get("rows", ()):
                rows.setdefault(table, []).append(row)
            classes += values.get("classes", ())
            state |= values.get("state", {})
        at = end_of_record
    ends = np.append(0, np.cumsum(np.frombuffer(lengths, "<i4"), dtype=np.int64)).astype(np.int32)
    counts, widths = np.frombuffer(sizes, "<u4").reshape(-1, 2).T.astype(np.int64)
    return Content(
        answers=np.frombuffer(answers, ANSWER),
        labels=np.frombuffer(labels, LABEL),
        ids=pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(texts)),
        scores=np.frombuffer(scores, "<f4"),
        widths=np.repeat(widths, counts),
        rows=rows, classes=classes, state=state,
        valid=at, damaged=damaged,
    )  # fmt: skip


def _record_at(view: memoryview, at: int) -> tuple[bytes | None, memoryview, int] | None:
    """Kind, payload and end of the record that begins at a byte; no kind where the record is
    damaged. None where the journal ends, also in the middle of a record: that call never
    returned."""
    if at + HEAD.size > len(view):
        return None
    kind, size, check = HEAD.unpack_from(view, at)
    begin = at + HEAD.size
    if kind in OLD_KINDS:
        kind, sound = OLD_KINDS[kind], True
    elif kind not in (ANSWERS, LABELS, VALUES):
        sound = False
    elif begin + HEAD_CHECK.size > len(view):
        return None
    else:
        sound = HEAD_CHECK.unpack_from(view, begin)[0] == zlib.crc32(view[at:begin])
        begin += HEAD_CHECK.size
    payload = view[begin : begin + size]
    if sound and len(payload) < size:
        return None
    if not sound or zlib.crc32(payload) != check:
        return None, payload, begin
    return kind, payload, begin + size


def read_journal(folder: Path) -> tuple[dict[str, Any], Content | None]:
    """The commit point of a run folder and, where a recorder wrote it, its journal."""
    progress = read_progress(folder) or {}
    while "recorder" in progress:
        path = journal_path(folder, progress["recorder"]["journal"])
        try:
            data = read_bytes(path)
        except FileNotFoundError:  # not begun yet, or just committed
            data = b""
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error.strerror or error}.") from None
        again = read_progress(folder) or {}
        if again == progress:  # else the journal has been committed in between
            content = parse(data)
            if content.damaged:
                warnings.warn(
                    f"{path} is damaged after byte {content.valid:,} of {len(data):,}: the calls"
                    " recorded there are missing.",
                    stacklevel=2,
                )
            return progress, content
        progress = again
    return progress, None


class JournalSegments:
    """Tables as Parquet files in a temporary folder, which is removed with this object."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        from pyarrow import parquet

        self._folder = TemporaryDirectory(prefix="streamgauge-")
        self.files = dict[str, Path]()
        for name, table in tables.items():
            if len(table):
                self.files[name] = Path(self._folder.name) / f"{name}.parquet"
                parquet.write_table(table, self.files[name])


def log_files(folder: Path) -> tuple[dict[str, list[Path]], JournalSegments | None]:
    """The files of the predictions and labels of a run folder: those that its commit point names,
    and a temporary one with the rows of its journal, which exists as long as the second result."""
    progress, content = read_journal(folder)
    files = {
        name: list(segment_files(folder, progress, name))
        for name in progress.get("segments", {})
        if name in ("predictions", "labels")
    }
    if content is None:
        return files, None
    state = progress["recorder"] | content.state
    segments = JournalSegments(content.tables(state["columns"] or (), state["keep_scores"]))
    for name, file in segments.files.items():
        files.setdefault(name, []).append(file)
    return files, segments
