"""WebDataset tar shards of your own: photo.jpg with photo.cls or photo.json, seekable.

The offset of every image is looked up once and stored next to each shard (`shard.tar.index`), if
that folder is writable. Labels are in .cls, or in a field of .json, which may also have time,
user, latitude, longitude. Nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pjson
import pyarrow.parquet as pq

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_atomic
from streamgauge.streams.datasets.archive import leaves_folder
from streamgauge.streams.images.image_source import SUFFIXES
from streamgauge.streams.images.items import TarItems
from streamgauge.streams.own import _common as _own
from streamgauge.streams.stream import Stream
from streamgauge.tables.columns import announce
from streamgauge.tables.parquet import open_parquet
from streamgauge.tables.rows import Rows

_VERSION = b"streamgauge tar index 1"
_TEXT, _NUMBER = pa.large_string(), pa.int64()
_INDEX = pa.schema(
    {"key": _TEXT, "name": _TEXT, "offset": _NUMBER, "size": _NUMBER, "cls": _TEXT, "json": _TEXT}
).append(pa.field("problem", pa.string()))  # what is wrong with this sample, if anything


@dataclass(frozen=True)
class Config(_own.Columns):
    """Settings of tar shards. `path` is a shard, or a folder of them, with train/ and test/ or
    names such as train-0001.tar where there are splits."""


def build(config: Config) -> Stream:
    """The stream of tar shards, in the order of their names."""
    path = _own.need_path(config, "webdataset")
    shards = sorted(path.rglob("*.tar")) if path.is_dir() else [path]
    if not shards:
        packed = sorted(path.rglob("*.tar.*z*"))
        hint = f"; '{packed[0].name}' is compressed: unpack it to .tar first" if packed else ""
        raise StreamgaugeError(f"There is no .tar file in '{path}'{hint}.")
    parts, cut = [], []
    for shard in shards:
        index, whole = shard_index(shard)
        parts.append(index)
        if not whole:
            cut.append(shard)
    if cut and config.on_bad == "fatal":
        raise StreamgaugeError(
            f"The shard '{cut[0]}' is cut off: get it again, or set --stream.on_bad skip to use"
            " the samples before the cut."
        )
    where = f"'{path.name}'"
    if cut:
        announce(f"{where}: {len(cut)} of {len(shards)} shards are cut off, as '{cut[0].name}' is.")
    index = pa.concat_tables(parts)
    if len(index) == 0:
        raise StreamgaugeError(f"There is no image in {where}.")
    shard_of = np.repeat(np.arange(len(shards)), [len(part) for part in parts])
    columns = _fields(index, where)
    splits = [_split_of(shard, path) for shard in shards]
    counts = [len(part) for part in parts]
    columns = _own.split_by_file(columns, "split by shard", splits, counts)

    rows = Rows(len(index), where, on_bad=config.on_bad)
    problem = index["problem"].combine_chunks()
    for kind in [kind for kind in problem.unique().to_pylist() if kind]:
        rows.refuse(
            np.asarray(pc.fill_null(pc.equal(problem, kind), False)),
            kind,
            lambda row, k=kind: (  # type: ignore[misc]
                f"'{index['name'][row].as_py()}' in '{shards[shard_of[row]].name}' is bad: {k}."
            ),
        )
    _own.refuse_repeated(index["key"], "key", rows)
    offset, size = (index[name].to_numpy() for name in ("offset", "size"))
    items = TarItems(shards, shard_of, offset, size, index["name"])
    stream = _own.table_stream("webdataset", config, columns, rows, items)
    return replace(stream, notes={**stream.notes, "cut_off_shards": len(cut)})


def _fields(index: pa.Table, where: str) -> pa.Table:
    """The fields of .json members as columns, and `.cls` as the column 'cls'."""
    columns = pa.table({"key": index["key"]})
    has_json = index["json"].null_count < len(index)
    if has_json:
        lines = [text or "{}" for text in index["json"].to_pylist()]
        try:
            fields = pjson.read_json(
                io.BytesIO("\n".join(lines).encode()),
                parse_options=pjson.ParseOptions(newlines_in_values=False),
            )
        except pa.ArrowException as error:
            why = str(error).splitlines()[0]
            raise StreamgaugeError(
                f"The .json members of {where} do not have the same kinds of fields: {why}."
            ) from None
        if len(fields) == len(index):
            for name in fields.column_names:
                if name != "key" and not pa.types.is_nested(fields[name].type):
                    columns = columns.append_column(name, fields[name])
    if index["cls"].null_count < len(index):
        cls = index["cls"].combine_chunks()
        try:
            columns = columns.append_column("cls", [cls.cast(pa.int64())])
        except pa.ArrowException:
            columns = columns.append_column("cls", [cls])
    return columns.drop_columns(["key"])


def _split_of(shard: Path, root: Path) -> str:
    around = [shard.parent.name.lower()] if shard.parent != root else []
    for text in (*around, shard.stem.lower().replace("_", "-").split("-")[0]):
        if text in _own.SPLITS:
            return text
    return ""


def shard_index(shard: Path) -> tuple[pa.Table, bool]:
    """Offsets of the images in a shard, and whether the shard is whole. Looked up once: the index
    file next to the shard is used while the shard's size and modification time are the same."""
    about = shard.stat()
    state = f"{about.st_size} {about.st_mtime_ns}".encode()
    file = shard.with_name(shard.name + ".index")
    if file.is_file():
        try:
            stored = open_parquet(file, None).read()
            meta = stored.schema.metadata or {}
            if meta.get(b"version") == _VERSION and meta.get(b"shard") == state:
                return stored, meta.get(b"whole") == b"yes"
        except (pa.ArrowException, OSError, ValueError, StreamgaugeError):
            pass  # damaged: made again
    index, whole = _look_through(shard)
    index = index.replace_schema_metadata(
        {"version": _VERSION, "shard": state, "whole": "yes" if whole else "no"}
    )
    # A folder that may not be written to has no index, and its shards are read each time.
    with suppress(OSError), write_atomic(file) as part:
        pq.write_table(index, part)
    return index, whole


def _look_through(shard: Path) -> tuple[pa.Table, bool]:
    columns: dict[str, list[Any]] = {name: [] for name in _INDEX.names}
    sample: dict[str, Any] = {}

    def put() -> None:
        if "name" in sample:
            for name in _INDEX.names:
                columns[name].append(sample.get(name))
        sample.clear()

    whole = True
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                base = member.name.rpartition("/")
                stem, dot, suffix = base[2].partition(".")
                if member.isdir() or not stem or not dot:
                    continue
                key = f"{base[0]}{base[1]}{stem}"
                if key != sample.get("key"):
                    put()
                    sample["key"] = key
                _take(tar, member, suffix.lower(), sample)
            end = tar.offset
    except tarfile.TarError as error:
        if not columns["key"] and not sample:
            raise StreamgaugeError(
                f"'{shard}' is not a plain .tar file ({error}): unpack it if it is compressed, or"
                " get it again."
            ) from None
        whole = False
    if whole:
        with shard.open("rb") as file:  # two blocks of zeros end a tar
            file.seek(end)
            tail = file.read(1024)
            whole = len(tail) >= 1024 and not any(tail)
    length = shard.stat().st_size
    if "offset" in sample and sample["offset"] + sample["size"] > length:
        sample.clear()
    put()
    return pa.table(columns, schema=_INDEX), whole


def _take(
    tar: tarfile.TarFile, member: tarfile.TarInfo, suffix: str, sample: dict[str, Any]
) -> None:
    image = f".{suffix}" in SUFFIXES
    if not image and suffix not in ("cls", "json"):
        return
    if member.issparse() or (not image and member.size > 1 << 20):
        sample["problem"] = "sparse or too large file"
        return
    if leaves_folder(member.name):
        sample["problem"] = "path that leaves the folder"
    elif not member.isreg():
        sample["problem"] = "link or device"
    if image:
        if "name" in sample:
            sample["problem"] = "two images of one key"
        sample |= {"name": member.name, "offset": member.offset_data, "size": member.size}
        return
    if not member.isreg():
        return
    opened = tar.extractfile(member)
    data = b"" if opened is None else opened.read()
    if len(data) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    try:
        if suffix == "cls":
            sample["cls"] = data.decode().strip()
        else:
            fields = json.loads(data)
            if not isinstance(fields, dict):
                raise ValueError(fields)
            sample["json"] = json.dumps(fields)
    except (ValueError, RecursionError):  # also of text that is not UTF-8
        sample["problem"] = f"unreadable .{suffix}"
