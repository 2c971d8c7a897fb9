"""What the streams of your own data share: settings, bad rows, columns of a table, splits."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.datasets.archive import leaves_folder
from streamgauge.streams.images.image_source import ImageSource, Items
from streamgauge.streams.images.items import FileItems, StoredImages, texts
from streamgauge.streams.source import Array, ArraySource, IntArray, Source
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.columns import announce, choose, describe
from streamgauge.tables.roles import code_labels, coded_line, read_columns
from streamgauge.tables.rows import Flags, Rows, counted
from streamgauge.tables.values import clean_text

TRAIN = ("train", "training", "trn")
TEST = ("test", "testing", "tst", "eval", "evaluation")
VALIDATION = ("val", "valid", "validation", "dev")
SPLITS = (*TRAIN, *TEST, *VALIDATION)
ROLES = ("label", "time", "user", "latitude", "longitude", "domain", "split", "id")
_IMAGE_SETTINGS = ("size", "how", "alpha", "colour", "claim", "max_pixels", "on_bad")
TEXT = ("label", "user", "domain", "split", "id")  # roles whose cells keep their spelling


@dataclass(frozen=True)
class Images(Arrangement):
    """Settings of every stream of your own images."""

    path: str = ""  # of the data
    size: int = 64  # pixels per side that images are resized to
    how: Literal["crop", "stretch"] = "crop"  # the centred square, or all of it out of proportion
    alpha: Literal["white", "black", "drop", "refuse"] = "white"  # behind transparent parts
    colour: Literal["convert", "refuse"] = "convert"  # of images that are not RGB
    claim: Literal["refuse", "ignore"] = "refuse"  # of a name that says another format
    max_pixels: int = 64_000_000  # more are refused before they are unpacked
    on_bad: Literal["fatal", "skip"] = "fatal"  # of images, rows, labels and paths alike
    train: str = ""  # the splits that are streamed, by name; "" guesses
    test: str = ""  # the splits that are evaluated on; "" guesses, "none" leaves them out


@dataclass(frozen=True)
class Columns(Images):
    """Which column is what: "" guesses from the name and says so, "none" leaves it out."""

    label: str = ""  # column of labels; "" guesses
    time: str = ""  # column of times; "" guesses, "none": no times
    user: str = ""  # column of users; "" guesses, "none": no users
    latitude: str = ""  # column of latitudes in degrees; "" guesses, "none": none
    longitude: str = ""  # column of longitudes in degrees; "" guesses, "none": none
    domain: str = ""  # column of domains, for the order `domains`; "" guesses, "none": none
    split: str = ""  # column of splits such as train and test; "" guesses, "none": all is streamed
    id: str = ""  # column of unique ids; "" guesses, "none": no ids
    labels: Literal["auto", "numbers", "names"] = "auto"  # never code, or name always
    names: str = ""  # text file of class names, one a line; other labels are unknown


def table_stream(
    name: str,
    config: Columns,
    columns: pa.Table,
    rows: Rows,
    inputs: StoredImages | Array,
    input_column: str = "",
    class_names: Sequence[str] | None = None,
) -> Stream:
    """A stream of a table, given the inputs of all rows. Rows whose inputs are unusable were
    refused before; `class_names` name the numbers in the label column, where they are known."""
    given = {role: str(getattr(config, role)) for role in ROLES}
    free = [column for column in columns.column_names if column != input_column]
    chosen = choose(free, ROLES, given, rows.table, needed=["label"])
    text = {role: clean_text(columns[chosen[role]])[0] for role in TEXT if role in chosen}
    label, class_names, remark = labels_of(text["label"], config, class_names, rows)
    values = read_columns(columns, chosen, rows)
    if "id" in text:
        refuse_repeated(text["id"], "id", rows)
    split = splits_of(text.get("split"), config, rows)
    unused = [column for column in free if column not in chosen.values()]
    if input_column:
        chosen = {"image": input_column, **chosen}
        given["image"] = str(getattr(config, "image", ""))
    announce(f"{rows.table}: {describe(chosen, given, unused)}{remark}{split.line}")
    kept = split.used(rows)
    values = {role: column[kept] for role, column in values.items()}
    refuse_backwards(values, config, rows, kept, split.is_test[kept])
    some = inputs[kept] if isinstance(inputs, np.ndarray) else inputs.take(kept)
    source = source_of(some, label[kept], class_names, values, config)
    return finish(name, config, source, split.is_test[kept], rows, {"columns": chosen})


def source_of(
    inputs: Items | Array,
    label: IntArray,
    class_names: Sequence[str] | None,
    columns: Mapping[str, Any],
    config: Images,
) -> Source:
    classes = int(label.max()) + 1 if class_names is None else len(class_names)
    if isinstance(inputs, np.ndarray):
        return ArraySource(inputs, label, classes=classes, class_names=class_names, **columns)
    return ImageSource(
        inputs,
        label,
        classes=classes,
        class_names=class_names,
        **{name: getattr(config, name) for name in _IMAGE_SETTINGS},
        **columns,
    )


def finish(
    name: str,
    config: Arrangement,
    source: Source,
    is_test: Flags,
    rows: Rows,
    notes: Mapping[str, Any],
) -> Stream:
    """The stream of a source; what was left out is printed and stored in its notes."""
    left_out = dict(rows.left_out)
    if isinstance(source, ImageSource) and source.bad:
        kept = np.ones(len(is_test), bool)
        kept[[number for number, _ in source.bad]] = False
        is_test = is_test[kept]
        for kind, count in source.left_out.items():
            left_out[f"bad image ({kind})"] = count
    if left_out:
        total = sum(left_out.values())
        announce(f"{rows.table}: {total:,} of {len(rows.good):,} left out: {counted(left_out)}.")
    settings = dict(vars(config))
    if settings.get("scale") == "none":  # as in runs of versions that had no such setting
        del settings["scale"]
    for where in ("path", "root", "names"):  # so that a run can be resumed from any folder
        if settings.get(where) and Path(settings[where]).expanduser().exists():
            settings[where] = str(Path(settings[where]).expanduser().resolve())
    announce_no_tasks(config)
    return arrange(
        source,
        config,
        name=name,
        test=np.flatnonzero(is_test) if is_test.any() else None,
        settings=settings,
        notes={**notes, "left_out": left_out},
    )


def announce_no_tasks(config: Arrangement) -> None:
    """Say that tasks were asked for in an order that makes none."""
    if config.tasks > 1 and config.order not in ("classes", "blurry"):
        announce(
            f"The order '{config.order}' makes no tasks, so tasks = {config.tasks} has no effect:"
            " the orders classes and blurry make some (--stream.order)."
        )


def labels_of(
    column: pa.ChunkedArray, config: Columns, class_names: Sequence[str] | None, rows: Rows
) -> tuple[IntArray, Sequence[str] | None, str]:
    """Labels, names of classes, and a remark for the line that is shown."""
    known = _read_names(config.names) if config.names else class_names
    by_name = config.labels == "names" and bool(config.names)
    numbering = config.labels if known is None or by_name else "auto"
    label, names = code_labels(column, rows, numbering, known)
    return label, names, coded_line(names) if known is None else ""


def _read_names(file: str) -> list[str]:
    try:
        names = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise StreamgaugeError(f"The class names in '{file}' cannot be read: {error}.") from None
    if len(set(names)) < len(names):
        raise StreamgaugeError(f"A class name comes twice in '{file}'.")
    return names


def refuse_backwards(
    columns: Mapping[str, Array],
    config: Arrangement,
    rows: Rows,
    kept: IntArray,
    is_test: Flags | None,
) -> None:
    """In the order `given`, times may not go backwards: either the order or the column is not what
    it seems. Rows of a test split are not in the stream and do not count; `kept` is which row each
    sample comes from."""
    if config.order != "given" or "time" not in columns:
        return
    streamed = slice(None) if is_test is None else ~is_test
    time = columns["time"][streamed]
    back = time[1:] < time[:-1]
    if back.any():
        at = rows.row_name(int(kept[streamed][int(back.argmax()) + 1]))
        count = int(back.sum())
        raise StreamgaugeError(
            f"The times of {rows.table} go backwards at {count:,} row{'s' * (count > 1)}, first"
            f" at {at[0].lower()}{at[1:]}, so the order given is not that of time: set"
            " --stream.order time, or leave out --stream.time (or set it to none)."
        )


def refuse_repeated(values: pa.ChunkedArray | pa.Array, what: str, rows: Rows) -> None:
    """The first row with a value is kept; those after it are bad."""
    whole = texts(values)
    code = np.asarray(pc.fill_null(whole.dictionary_encode().indices, -1))
    consider = np.flatnonzero(rows.good & (code >= 0))
    _, first = np.unique(code[consider], return_index=True)
    again = np.zeros(len(code), bool)
    again[consider] = True
    again[consider[first]] = False
    rows.refuse(
        again,
        f"repeated {what}",
        lambda row: rows.at(row, f"has the {what} '{whole[row].as_py()}' of an earlier one."),
    )


@dataclass
class Splits:
    """Which rows are evaluated on, which are not used, and a sentence that says so."""

    is_test: Flags
    unused: Flags
    line: str = ""

    def used(self, rows: Rows) -> IntArray:
        """The numbers of the usable rows that are in a split."""
        kept = rows.kept()
        kept = kept[~self.unused[kept]]
        if len(kept) == 0:
            raise StreamgaugeError(f"No row of {rows.table} is in a split that is streamed.")
        return kept


def split_by_file(table: pa.Table, name: str, splits: Sequence[str], counts: Any) -> pa.Table:
    """Append the split of each row as a column, given the split and the row count of each file."""
    if not any(splits):
        return table
    file = pa.array(np.repeat(np.arange(len(splits), dtype=np.int32), counts))
    column = pa.DictionaryArray.from_arrays(file, pa.array(splits)).dictionary_decode()
    return table.append_column(name, column)


def splits_of(column: pa.ChunkedArray | None, config: Any, rows: Rows) -> Splits:
    """Which rows are streamed, which are evaluated on, and which are left alone. Guessed: `train`
    is streamed; `test` is evaluated on or, where there is none, `validation`."""
    none = np.zeros(len(rows.good), bool)
    if column is None:
        if config.train or config.test not in ("", "none"):
            raise StreamgaugeError(f"{rows.table} has no splits: leave out train and test.")
        return Splits(none, none.copy())
    coded = pc.fill_null(texts(column), "").dictionary_encode()
    there = [str(name) for name in coded.dictionary.to_pylist()]
    train = _chosen(config.train, there, "train") or _like(there, TRAIN)
    test: list[str] = []
    if config.test != "none":
        test = _chosen(config.test, there, "test")
        if not test:
            rest = [name for name in there if name not in train]
            test = _like(rest, TEST) or _like(rest, VALIDATION)
    if not train:
        raise StreamgaugeError(
            f"The splits of {rows.table} are {', '.join(map(repr, there))}: say which are streamed"
            " with --stream.train (and --stream.test), or set --stream.split none."
        )
    both = [name for name in train if name in test]
    if both:
        raise StreamgaugeError(f"The split '{both[0]}' cannot be both streamed and tested on.")
    indices = np.asarray(coded.indices)
    is_test = np.isin(indices, [there.index(name) for name in test])
    unused = ~is_test & ~np.isin(indices, [there.index(name) for name in train])
    rest = [name for name in there if name not in (*train, *test)]
    line = f" Splits: {', '.join(train)} is streamed"
    line += f", {', '.join(test)} is evaluated on" if test else ""
    line += f", {', '.join(map(repr, rest))} is not used" if rest else ""
    return Splits(is_test, unused, line + ".")


def _chosen(setting: str, there: Sequence[str], what: str) -> list[str]:
    names = [name.strip() for name in setting.split(",") if name.strip()]
    for name in names:
        if name not in there:
            raise StreamgaugeError(
                f"There is no split '{name}' for --stream.{what}; there is {', '.join(there)}."
            )
    return names


def _like(there: Sequence[str], words: Sequence[str]) -> list[str]:
    return [name for name in there if name.strip().lower() in words]


def file_items(folder: Path, paths: Any, rows: Rows) -> FileItems:
    """Images in files below a folder; refuses paths that leave it, are missing, or are repeated. A
    path is relative to the folder, or absolute and inside it, without `..`; a link must end inside
    it."""
    root = os.path.realpath(folder)
    given = pc.fill_null(texts(paths), "").to_pylist()
    names, sizes, state = list(given), np.zeros(len(given), np.int64), np.zeros(len(given), np.int8)
    inside: dict[str, bool] = {}
    for row, path in enumerate(given):
        names[row], state[row], sizes[row] = _look_up(root, path, inside)
    for code, (kind, what) in enumerate(_STATES.items(), start=1):
        rows.refuse(
            state == code,
            kind,
            lambda row, w=what: rows.at(row, w.format(given[row], folder)),  # type: ignore[misc]
        )
    items = FileItems(root, names, sizes)
    refuse_repeated(items.names, "path", rows)
    return items


_STATES = {
    "missing path": "has no path.",
    "path outside the folder": "has the path '{0}', which leaves the folder '{1}'.",
    "missing file": "names the file '{0}', which is not in '{1}'.",
}


def _look_up(root: str, path: str, inside: dict[str, bool]) -> tuple[str, int, int]:
    """A path relative to the root, what is wrong with it (see `_STATES`; 0: nothing), its size."""
    if not path.strip():
        return path, 1, 0
    if os.path.isabs(path):
        path = os.path.relpath(path, root) if path.startswith(root + os.sep) else path
    if leaves_folder(path):
        return path, 2, 0
    path = os.path.normpath(path)
    full = os.path.join(root, path)
    folder = os.path.dirname(full)
    if folder not in inside:
        real = os.path.realpath(folder)
        inside[folder] = real == root or real.startswith(root + os.sep)
    if not inside[folder]:
        return path, 2, 0
    try:
        about = os.lstat(full)
        if stat.S_ISLNK(about.st_mode):
            if not os.path.realpath(full).startswith(root + os.sep):
                return path, 2, 0
            about = os.stat(full)
    except (OSError, ValueError):
        return path, 3, 0
    return path, 0 if stat.S_ISREG(about.st_mode) else 3, about.st_size


def need_path(config: Any, stream: str) -> Path:
    if not config.path:
        raise StreamgaugeError(f"The stream {stream} needs its data: --stream.path PATH.")
    path = Path(config.path).expanduser()
    if not path.exists():
        raise StreamgaugeError(f"There is nothing at '{path}': check --stream.path.")
    return path
