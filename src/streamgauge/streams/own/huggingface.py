"""A Hugging Face data set of your own: a `save_to_disk` folder, Parquet files, or a hub name.

Folders are read with pyarrow alone; names of classes and the kind of each column come from the
data set's own description. A hub name (`user/name`) needs `pip install 'streamgauge[hub]'` once;
what was fetched is kept in `cache`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.files import readable, replace_synced, temporary_path
from streamgauge.streams.datasets.archive import refuse_leaving
from streamgauge.streams.images.items import ArrowItems, ParquetItems, StoredImages
from streamgauge.streams.own import _common as _own
from streamgauge.streams.own.manifest import is_bytes
from streamgauge.streams.source import Array
from streamgauge.streams.stream import Stream
from streamgauge.tables.base import refuse_repeated_names
from streamgauge.tables.columns import choose
from streamgauge.tables.rows import Rows
from streamgauge.tables.typed import ParquetTable, map_arrow

LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)


@dataclass(frozen=True)
class Config(_own.Columns):
    """Settings of a Hugging Face data set."""

    image: str = ""  # the column with images or lists of numbers; "" guesses
    subset: str = ""  # of a hub name that has several
    revision: str = ""  # of a hub name; "" is the newest
    cache: str = "data"  # folder that what comes from the hub is kept in


@dataclass
class _Part:
    split: str
    files: list[Path]
    features: dict[str, Any]


def build(config: Config) -> Stream:
    """The stream of a data set."""
    if not config.path:
        _own.need_path(config, "huggingface")
    path = Path(config.path).expanduser()
    if not path.exists():
        path = _from_hub(config)
    parts = _parts(path)
    files = [file for part in parts for file in part.files]
    arrow = files[0].suffix == ".arrow"
    where = f"'{path.name}'"
    reader = None if arrow else ParquetTable(files, where)
    schema = map_arrow(files[0]).schema if reader is None else reader.schema
    refuse_repeated_names(schema.names, where)
    features = parts[0].features or _features(schema)
    column = input_column(config, schema, where)
    rest = [name for name in schema.names if name != column]
    images = is_bytes(schema.field(column).type)
    if reader is None:
        tables = [map_arrow(file).select(rest if images else schema.names) for file in files]
        counts = np.array([len(table) for table in tables])
        columns = pa.concat_tables(tables, promote_options="permissive")
    else:
        counts = np.array(reader.counts)
        columns = reader.read(rest if images else schema.names)
    splits = [part.split for part in parts for _ in part.files]
    columns = _own.split_by_file(columns, "split by folder", splits, counts)
    label = choose([*rest], ["label"], {"label": config.label}, where).get("label", "")
    with readable(f"The description of {where}", "save the data set again"):
        about = features.get(label) or {}
        known = about.get("names") if about.get("_type") == "ClassLabel" else None
        known = known if known is None else [str(name) for name in known]
    rows = Rows(len(columns), where, on_bad=config.on_bad)
    inputs: StoredImages | Array
    if images:
        kind = ArrowItems if arrow else ParquetItems
        inputs = kind(files, column, np.arange(len(columns)))
    else:
        inputs = vectors(columns[column].combine_chunks(), column, rows)
    return _own.table_stream("huggingface", config, columns, rows, inputs, column, known)


def vectors(values: pa.Array, column: str, rows: Rows) -> Array:
    """A list of numbers per row, all of one length, as embeddings are; zeros in refused rows."""
    _refuse_no_numbers(values.type, column, rows.table)
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
    size = int(np.bincount(lengths[lengths > 0]).argmax()) if (lengths > 0).any() else 0
    rows.refuse(
        lengths != size,
        "input of another length",
        lambda row: rows.at(row, f"has {lengths[row]} numbers in '{column}', not {size}."),
    )
    good = values.filter(pa.array(lengths == size)).flatten().to_numpy(zero_copy_only=False)
    x = np.zeros((len(values), size), good.dtype)
    x[lengths == size] = good.reshape(int((lengths == size).sum()), size)
    return x


def _plain_list(kind: pa.DataType) -> pa.DataType:
    """The type of a column without a name of its own, as `Array2D` of datasets is."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_list(kind: pa.DataType) -> bool:
    return isinstance(_plain_list(kind), LISTS)


def _refuse_no_numbers(kind: pa.DataType, column: str, where: str) -> None:
    """An error for a column of lists of lists, or of lists of text."""
    kind = _plain_list(kind)
    value = kind.value_type if isinstance(kind, LISTS) else kind
    if isinstance(value, LISTS):
        raise StreamgaugeError(
            f"The column '{column}' of {where} holds lists of lists, and a stream of it needs a"
            " list of numbers per row. Where all have one shape, give arrays:"
            f" sg.stream(np.array(data[{column!r}]), np.array(data[LABEL]))."
        )
    if not (pa.types.is_floating(value) or pa.types.is_integer(value)):
        raise StreamgaugeError(
            f"The column '{column}' of {where} holds {kind}, and an input is an image or a list of"
            " numbers per row."
        )


def input_column(config: Config, schema: pa.Schema, where: str) -> str:
    if config.image:
        return choose(schema.names, ["image"], {"image": config.image}, where)["image"]
    images = [name for name in schema.names if is_bytes(schema.field(name).type)]
    if not images:
        images = [
            name
            for name in schema.names
            if isinstance(kind := schema.field(name).type, LISTS)
            and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
        ]
    lists = [name for name in schema.names if is_list(schema.field(name).type)]
    if not images and len(lists) == 1:
        _refuse_no_numbers(schema.field(lists[0]).type, lists[0], where)
    if len(images) != 1:
        says = f"It may be {', '.join(images)}" if images else "None has images or lists of numbers"
        raise StreamgaugeError(
            f"Which column of {where} is the input? {says}: set --stream.image to one of"
            f" {', '.join(images or schema.names)}."
        )
    return str(images[0])


def _parts(path: Path) -> list[_Part]:
    """The splits in a folder, in the order that the data set has them."""
    if (path / "dataset_dict.json").is_file():
        with readable(f"The data set '{path}'", "save it again"):
            splits = _json(path / "dataset_dict.json").get("splits", [])
            return [_saved(path / refuse_leaving(name, path), name) for name in splits]
    if (path / "state.json").is_file():
        return [_saved(path, "")]
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix != ".parquet":
        raise StreamgaugeError(
            f"'{path}' is no Hugging Face data set: there is no dataset_dict.json, state.json or"
            " .parquet file in it."
        )
    parts: dict[str, _Part] = {}
    for file in files:  # hub repositories name them train-00000-of-00004.parquet
        match = re.match(r"([A-Za-z_]+?)(?:-\d+.*)?\.parquet$", file.name)
        split = match.group(1) if match else ""
        if split.lower() not in _own.SPLITS:
            split = file.parent.name if file.parent != path else ""
            split = split if split.lower() in _own.SPLITS else ""
        parts.setdefault(split, _Part(split, [], {})).files.append(file)
    return list(parts.values())


def _saved(folder: Path, split: str) -> _Part:
    state, info = _json(folder / "state.json"), _json(folder / "dataset_info.json")
    if state.get("_indices_data_files"):
        raise StreamgaugeError(
            f"'{folder}' is stored with an order of its own: save it again after flatten_indices()."
        )
    with readable(f"'{folder / 'state.json'}'", "save the data set again"):
        listed = [part["filename"] for part in state.get("_data_files", [])]
        files = [folder / refuse_leaving(name, folder) for name in listed]
        lacking = [file for file in files if not file.is_file()]
    if lacking:
        raise StreamgaugeError(f"The data set lacks its file '{lacking[0]}': get it again.")
    if not files:
        raise StreamgaugeError(f"'{folder}' names no data files in its state.json.")
    features = info.get("features") or {}
    return _Part(split, files, features if isinstance(features, dict) else {})


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Parquet files of the hub carry the description in their schema."""
    try:
        text = (schema.metadata or {}).get(b"huggingface", b"{}")
        features = json.loads(text).get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _json(file: Path) -> dict[str, Any]:
    with readable(f"'{file}'", "save the data set again"):
        content = json.loads(file.read_text())
    if not isinstance(content, dict):
        raise StreamgaugeError(f"'{file}' is not what a Hugging Face data set has there.")
    return content


def _from_hub(config: Config) -> Path:
    """Fetch a data set by its hub name once, and keep it as a folder."""
    name = config.path
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise StreamgaugeError(f"There is nothing at '{name}', and it is no name of a data set.")
    tag = "--".join(filter(None, [name.replace("/", "--"), config.subset, config.revision]))
    folder = Path(config.cache).expanduser() / "hub" / tag
    if folder.is_dir():
        return folder
    with packages_for(f"There is no folder '{name}' here; fetching it from the hub by that name"):
        import datasets
    try:
        loaded = datasets.load_dataset(
            name, config.subset or None, revision=config.revision or None
        )
    except Exception as error:  # whatever the network, the hub or the package has to say
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise StreamgaugeError(f"'{name}' cannot be fetched from the hub: {why}") from None
    part = temporary_path(folder)
    loaded.save_to_disk(str(part))
    replace_synced(part, folder)
    return folder
