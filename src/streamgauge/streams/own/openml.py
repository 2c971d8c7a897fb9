"""A data set of OpenML by its number (`--stream openml:151`): a table with its target column.

The description and the file are downloaded once and kept in the data folder. The label is the
target that the description names; row ids and attributes to ignore are no inputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import download
from streamgauge.streams.datasets.data_set import data_folder
from streamgauge.streams.own import tabular
from streamgauge.streams.stream import Stream
from streamgauge.tables.columns import announce
from streamgauge.tables.read import open_table

SERVER = "https://www.openml.org"
_DESCRIPTION_BYTES = 1 << 24


@dataclass(frozen=True)
class Config(tabular.Config):
    """Settings of the stream; `path` is filled in by the download."""

    dataset: int = 0  # number of the data set on openml.org
    cache: str = ""  # folder that downloads are kept in; "" is the data folder
    max_megabytes: int = 2000  # a larger file is refused


def build(config: Config) -> Stream:
    """The stream of a data set."""
    if config.dataset < 1:
        raise StreamgaugeError("Say which data set: --stream openml:NUMBER")
    folder = data_folder(Path(config.cache) if config.cache else None) / "openml"
    folder /= str(config.dataset)
    about = _description(config.dataset, folder)
    file = _data_file(about, folder, config)
    columns = open_table(file, f"'{file}'").names
    unused = _names(about, ("row_id_attribute", "ignore_attribute"), columns)
    label = config.label or _target(about, columns, config.dataset)
    drop = dict.fromkeys([*config.drop, *(name for name in unused if name != label)])
    kept = {field.name: getattr(config, field.name) for field in fields(tabular.Config)}
    table = tabular.Config(**kept | {"path": str(file), "label": label, "drop": tuple(drop)})
    title = f"{about.get('name')} version {about.get('version')}"
    licence = about.get("licence") or "not given"
    announce(f"OpenML {config.dataset}: {title}, target '{label}'; licence: {licence}.")
    if about.get("status") not in (None, "active"):
        announce(f"OpenML marks it as {about['status']}.")
    stream = tabular.build(table)
    settings = {**vars(config), "path": str(file), "batch": stream.settings["batch"]}
    return replace(stream, name=f"openml-{config.dataset}", settings=settings)


def _description(number: int, folder: Path) -> dict[str, Any]:
    file = folder / "description.json"
    url = f"{SERVER}/api/v1/json/data/{number}"
    try:
        download((url,), file, None, most=_DESCRIPTION_BYTES)
    except StreamgaugeError as error:
        raise StreamgaugeError(
            f"OpenML has no description of data set {number}, or is not reachable: {error}"
        ) from None
    try:
        about = json.loads(file.read_text())["data_set_description"]
        if isinstance(about, dict):
            return about
    except (ValueError, KeyError, TypeError):
        pass
    file.unlink()
    raise StreamgaugeError(f"{url} gave no description of a data set: try again later.")


def _data_file(about: dict[str, Any], folder: Path, config: Config) -> Path:
    """The downloaded table: ARFF, which has a checksum, or else Parquet."""
    arff = str(about.get("format", "ARFF")).lower() in ("arff", "sparse_arff")
    url = about.get("url") if arff else about.get("parquet_url")
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
        raise StreamgaugeError(
            f"OpenML {config.dataset} has no file that can be read: its format is"
            f" {about.get('format')}."
        )
    file = folder / ("data.arff" if arff else "data.parquet")
    md5 = about.get("md5_checksum") if arff else None
    download((url,), file, str(md5) if md5 else None, most=config.max_megabytes * 1_000_000,
             hint=" (set --stream.max_megabytes)")  # fmt: skip
    return file


def _target(about: dict[str, Any], columns: Sequence[str], number: int) -> str:
    targets = _names(about, ("default_target_attribute",), columns)
    if len(targets) != 1:
        listed = ", ".join(targets or columns[:20])
        why = "several targets" if targets else "no target"
        raise StreamgaugeError(
            f"OpenML {number} has {why}: set --stream.label to a column, such as {listed}."
        )
    return targets[0]


def _names(about: dict[str, Any], entries: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns that entries of a description name: a text, a text with commas, or a list."""
    listed: list[str] = []
    for entry in entries:
        value = about.get(entry) or []
        for name in map(str, value if isinstance(value, list) else [value]):
            listed += [name] if name in columns else [part.strip() for part in name.split(",")]
    return [name for name in dict.fromkeys(listed) if name in columns]
