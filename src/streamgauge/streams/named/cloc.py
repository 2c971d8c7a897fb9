"""CLOC, 39 million photos by the time they were taken; the class is where (S2 cells)."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.streams.datasets import photos as _photos
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.data_set import Contents, DataRequest, described
from streamgauge.streams.stream import Stream
from streamgauge.tables.read import open_table

_SPLITS = {"cross_val": _photos.PREPARATION, "train": _photos.STREAM}


@dataclass(frozen=True)
class Config(_photos.Config):
    """Settings of the stream. The release says which photos are for what; where it does not, the
    first 5 % prepare and 1 % is held out uniformly over time, as the paper has it."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "time"
    batch: int = 256
    preparation: float = 0.05
    held_out: float = 0.01


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _photos.photo_stream(DATA, config, "cloc")


def _read(files: Files, scratch: Path, request: DataRequest) -> Contents | None:
    photos = _released(files) or _photos.from_order_files(files) or _from_csv(files)
    return None if photos is None else _photos.contents(photos, files, request)


def _from_csv(files: Files) -> _photos.Photos | None:
    tables = [name for name in files.names if name.endswith((".csv", ".csv.gz"))]
    tables = [name for name in tables if not name.startswith("download_link")]
    return _photos.from_csv(files, tables[0]) if len(tables) == 1 else None


def _released(files: Files) -> _photos.Photos | None:
    """The authors' arrays: lists stored by `torch.save`, read as data only."""
    import pyarrow as pa

    kinds = ("labels", "time", "store_loc")
    lists = {
        split: {kind: where[f"{split}_{kind}.torchSave"] for kind in kinds}
        for split in _SPLITS
        if (where := files.locate([f"{split}_{kind}.torchSave" for kind in kinds]))
    }
    if "train" not in lists:
        return None
    pieces: list[dict[str, Any]] = []
    for split, names in lists.items():
        content = {kind: _load(files, name) for kind, name in names.items()}
        content["user"] = _users(files, split)
        # Each stored path ends in one character too many, mostly the end of its line.
        content["store_loc"] = [str(path)[:-1] for path in content["store_loc"]]
        pieces.append({**content, "part": _SPLITS[split]})
    pieces += _held_out(files)
    for piece in pieces:
        counts = {kind: len(piece[kind]) for kind in kinds}
        if len(set(counts.values())) > 1:
            raise StreamgaugeError(f"The lists in {files.path} have different lengths: {counts}.")
    columns = {
        "time": np.concatenate([np.asarray(piece["time"], np.int64) for piece in pieces]),
        "part": np.concatenate(
            [np.full(len(piece["time"]), piece["part"], np.uint8) for piece in pieces]
        ),
    }
    user = _joined_users([piece["user"] for piece in pieces])
    if user is not None:
        columns["user"] = user
    return _photos.Photos(
        pa.concat_arrays([pa.array(p["store_loc"], pa.large_string()) for p in pieces]),
        np.concatenate([np.asarray(piece["labels"], np.int32) for piece in pieces]),
        columns,
        f"the released arrays ({', '.join(lists)}{', val' * (len(pieces) > len(lists))})",
    )


def _users(files: Files, split: str) -> dict[str, Any]:
    """Users by name and by number, as far as they are there."""
    users = {}
    for kind in ("user", "userID"):
        where = files.locate([f"{split}_{kind}.torchSave"])
        if where is not None:
            users[kind] = _load(files, next(iter(where.values())))
    return users


def _joined_users(pieces: list[dict[str, Any]]) -> Any:
    """One column for all parts: numbers where all have them, else names, else none."""
    import pyarrow as pa

    for kind in ("userID", "user"):
        if all(kind in piece for piece in pieces):
            whole = [value for piece in pieces for value in piece[kind]]
            if all(isinstance(value, int) for value in whole[:1000]):
                return np.asarray(whole, np.int64)
            texts = pa.array([str(value) for value in whole])
            return texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return None


def _held_out(files: Files) -> list[dict[str, Any]]:
    """The validation list: no head, label first, time third, user fourth, path last."""
    name = next((n for n in files.names if PurePosixPath(n).name.endswith("compact_val.csv")), None)
    if name is None:
        return []
    table = open_table(files.read([name])[name], files.called(name), header=False).read()
    if table.num_columns < 5:
        raise StreamgaugeError(
            f"{files.called(name)} has {table.num_columns} columns, where 5 are expected."
        )
    label, time, user = (table.column(i).to_pylist() for i in (0, 2, 3))
    if not all(isinstance(value, int) for value in (label[0], time[0])):
        raise StreamgaugeError(
            f"{files.called(name)} is not as released (label first, time third, no head)."
        )
    kind = "userID" if isinstance(user[0], int) else "user"
    paths = table.column(table.num_columns - 1).to_pylist()
    return [
        {
            "labels": label,
            "time": time,
            "store_loc": [str(path).strip() for path in paths],
            "user": {kind: user},
            "part": _photos.HELD_OUT,
        }
    ]


def _load(files: Files, name: str) -> Any:
    """A list from `torch.save`, by the reader that builds plain values and tensors only."""
    with packages_for("Reading a .torchSave list"):
        import torch

    raw = files.read([name])[name]
    try:
        value = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
        raise StreamgaugeError(
            f"{files.called(name)} is refused: it is damaged, or holds more than the plain values"
            " that are read."
        ) from None
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, (list, tuple)):
        raise StreamgaugeError(f"{files.called(name)} holds no list.")
    return value


DATA = described("cloc", read=_read)
