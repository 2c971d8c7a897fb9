"""Arrays of your own: an .npz, a folder of .npy files, or an .npy for inputs and one for labels.

Arrays are recognised by name: x, y, and time, user, domain, latitude, longitude, split where there
are any; x_train, y_train, x_test, y_test make an official test set. `.npy` files are mapped into
memory. Bytes with channels last are transposed to channels first, with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.own import _common as _own
from streamgauge.streams.source import Array, VectorSource, raw_scale_line
from streamgauge.streams.stream import Arrangement, Stream
from streamgauge.tables.columns import announce, choose, describe
from streamgauge.tables.rows import Rows
from streamgauge.tables.typed import load_array, load_arrays

_ROLES = ("x", "label", "time", "user", "latitude", "longitude", "domain", "split")


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of arrays in files; "" guesses an array by its name, "none" leaves it out."""

    path: str = ""  # an .npz, a folder of .npy files, or an .npy with the inputs
    x: str = ""  # array of inputs
    label: str = ""  # for an .npy: the file with the labels
    time: str = ""  # array of times
    user: str = ""  # array of users
    latitude: str = ""  # array of latitudes in degrees
    longitude: str = ""  # array of longitudes in degrees
    domain: str = ""  # array of domains, for the order `domains`
    split: str = ""  # array of splits such as train and test
    train: str = ""  # the splits that are streamed, by name
    test: str = ""  # the splits that are evaluated on, by name
    channels: Literal["auto", "first", "last"] = "auto"  # where an image's colours stand
    scale: Literal["none", "online"] = "none"  # standardise vectors by what was trained
    classes: int = 0  # how many may come; 0: as many as there are


def build(config: Config) -> Stream:
    """The stream of arrays in files."""
    path = _own.need_path(config, "arrays")
    where = f"'{path.name}'"
    arrays = _read(path, config)
    given = {role: str(getattr(config, role)) for role in _ROLES}
    if path.suffix == ".npy":
        given["x"], given["label"] = arrays
    paired = _train_and_test(arrays, given)
    if paired:
        x, y, x_test, y_test = (arrays[name] for name in paired)
        is_test = np.arange(len(x) + len(x_test)) >= len(x)
        chosen = {"x": "x_train, x_test", "label": "y_train, y_test"}
        columns: dict[str, Array] = {"x": _joined(x, x_test), "label": _joined(y, y_test)}
        left = [name for name in arrays if name not in paired]
    else:
        chosen = choose(list(arrays), _ROLES, given, where, needed=_ROLES[:2])
        columns = {role: arrays[name] for role, name in chosen.items()}
        left = [name for name in arrays if name not in chosen.values()]
        is_test = np.zeros(len(columns["label"]) if columns["label"].ndim else 0, bool)
    _refuse_unequal(columns, chosen, where)
    inputs, remark = _channels_first(columns.pop("x"), config, where)
    label = columns.pop("label")
    rows = Rows(len(label), where)
    split = _own.Splits(is_test, np.zeros(len(label), bool))
    if "split" in columns:
        names = pa.chunked_array([[str(value) for value in columns.pop("split")]])
        split = _own.splits_of(names, config, rows)
    kept = split.used(rows)
    if len(kept) < len(label):
        inputs, label = inputs[kept], label[kept]
        columns = {role: values[kept] for role, values in columns.items()}
    is_test = split.is_test[kept]
    if label.ndim == 2 and label.shape[1] == 1:  # as some archives have it
        label = label[:, 0]
    scaled = inputs.shape[1] if config.scale == "online" and inputs.ndim > 1 else 0
    if scaled:
        remark += " Inputs are standardised online."
    announce(f"{where}: {describe(chosen, given, left)}{remark}{split.line}")
    if not scaled and (line := raw_scale_line(inputs, "--stream.scale online")):
        announce(line)
    options: dict[str, Any] = {"classes": config.classes or None, **columns}
    source = VectorSource(inputs, label, scaled, **options)
    _own.refuse_backwards(source.columns, config, rows, kept, is_test)
    return _own.finish("arrays", config, source, is_test, rows, {"columns": chosen})


def _train_and_test(arrays: Mapping[str, Array], given: Mapping[str, str]) -> list[str]:
    """The names of x_train, y_train, x_test and y_test; none where they are not all there."""
    plain = {name.lower().replace("_", ""): name for name in arrays}
    wanted = ("xtrain", "ytrain", "xtest", "ytest")
    if any(given.values()) or not all(name in plain for name in wanted):
        return []
    return [plain[name] for name in wanted]


def _refuse_unequal(columns: Mapping[str, Array], chosen: Mapping[str, str], where: str) -> None:
    """Every array must have one entry per sample."""
    counts = {role: array.shape[0] if array.ndim else None for role, array in columns.items()}
    for role, count in counts.items():
        if count is None or count != counts["x"]:
            entries = "one value" if count is None else f"{count:,} entries"
            raise StreamgaugeError(
                f"The array '{chosen[role]}' in {where} (the {role}) has {entries}, and"
                f" '{chosen['x']}' (the x) {counts['x'] or 0:,}: there must be one per sample."
            )


def _joined(train: Array, test: Array) -> Array:
    if train.shape[1:] != test.shape[1:]:
        raise StreamgaugeError(
            f"Training and test arrays have samples of shapes {train.shape[1:]} and"
            f" {test.shape[1:]}."
        )
    return np.concatenate([train, test])


def _channels_first(x: Array, config: Config, where: str) -> tuple[Array, str]:
    asked = x.ndim == 4 and config.channels == "last"
    if not asked and (x.dtype != np.uint8 or x.ndim not in (3, 4)):
        return x, ""
    if x.ndim == 3:
        return x[:, None], f" Inputs {x.shape[1:]} are taken as images of one channel."
    first, last = x.shape[1] in (1, 3, 4), x.shape[3] in (1, 3, 4)
    if config.channels == "auto" and first and last:
        raise StreamgaugeError(
            f"Either axis of the inputs {x.shape} in {where} may be that of the colours: set"
            " --stream.channels to first or last."
        )
    if asked or (config.channels == "auto" and last):
        return x.transpose(0, 3, 1, 2), f" Inputs {x.shape[1:]} have channels last."
    return x, ""


def _read(path: Path, config: Config) -> dict[str, Array]:
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise StreamgaugeError(f"There is no .npy file in '{path}'.")
        return {file.stem: load_array(file) for file in files}
    if path.suffix == ".npy":
        if config.label in ("", "none"):
            raise StreamgaugeError(
                f"'{path}' holds the inputs alone: set --stream.label to the .npy with the labels."
            )
        file = Path(config.label).expanduser()
        file = file if file.exists() else path.parent / config.label
        if not file.is_file():
            raise StreamgaugeError(f"There is no file '{config.label}' with the labels.")
        apart = file.stem != path.stem
        return {path.stem: load_array(path), file.stem if apart else str(file): load_array(file)}
    if path.suffix != ".npz":
        raise StreamgaugeError(f"'{path}' is no file of arrays: give an .npz or .npy.")
    return load_arrays(path)
