"""A stream from an object in Python: arrays, a data frame, a data set of another library.

`stream_of` decides by what the object is: arrays with labels; a data frame or columns by name; a
scikit-learn `Bunch`; a Hugging Face `Dataset`; a torch `TensorDataset`, or any data set with
`__len__` and `__getitem__`; an iterator of (input, label), such as a river data set.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.settings import configure, setting_types
from streamgauge.streams.own import _common as _own
from streamgauge.streams.own import huggingface, tabular
from streamgauge.streams.own.manifest import is_bytes
from streamgauge.streams.source import (
    KNOWN_COLUMNS,
    Array,
    IntArray,
    Source,
    Spec,
    VectorSource,
    as_labels,
    as_named_column,
    raw_scale_line,
)
from streamgauge.streams.stream import Arrangement, Stream, arrange
from streamgauge.tables.columns import announce, choose
from streamgauge.tables.read import open_table
from streamgauge.tables.rows import Rows
from streamgauge.tables.typed import to_arrow

LIMIT = 100_000  # samples of an iterator that does not say how many it has
_REGRESSION = (
    "The targets of the {} are quantities: regression is not supported; give whole-number class"
    " labels."
)
_READ_TWICE = 3  # samples of a data set that are read twice, to find random transforms


def stream_of(data: Any, y: Any, settings: dict[str, Any]) -> Stream:
    """The stream of an object, with labels `y` where it has none of its own."""
    try:
        if y is None:
            return _of_object(data, settings)
        if _is_frame(data):
            return _of_frame(data, y, settings)
        return _of_arrays(data, y, settings)
    except StreamgaugeError as error:  # in Python, settings are keywords
        error.args = (str(error).replace("--stream.", "").replace("'stream.", "'"),)
        raise


def _of_object(data: Any, settings: dict[str, Any]) -> Stream:
    name = type(data).__name__
    if isinstance(data, tuple) or (isinstance(data, list) and _are_arrays(data)):
        raise StreamgaugeError(f"Give inputs and labels apart, not in a {name}: sg.stream(x, y).")
    if isinstance(data, np.ndarray) or (hasattr(data, "detach") and hasattr(data, "shape")):
        raise StreamgaugeError("A stream from arrays needs labels: sg.stream(x, y).")
    if isinstance(data, Stream):
        raise StreamgaugeError("This is a stream already: sg.run(stream, learner).")
    if type(data).__module__.partition(".")[0] == "datasets":
        return _of_hugging_face(data, settings)
    if isinstance(data, Mapping):
        return _of_mapping(data, settings)
    if _is_frame(data):
        return _of_table(data, settings)
    if hasattr(data, "dataset") and hasattr(data, "collate_fn"):
        raise StreamgaugeError(
            "A DataLoader cuts and shuffles batches itself: give its data set,"
            " sg.stream(loader.dataset, batch=10)."
        )
    if isinstance(getattr(data, "tensors", None), tuple):
        if len(data.tensors) != 2:
            raise StreamgaugeError(
                f"The {name} has {len(data.tensors)} tensors, not inputs and labels: choose two,"
                " sg.stream(data.tensors[0], data.tensors[1])."
            )
        x, labels = data.tensors
        return _of_arrays(x, labels, settings)
    indexed = hasattr(data, "__getitem__") and not isinstance(data, str | type)
    if indexed and hasattr(data, "__len__"):
        return _of_data_set(data, settings)
    if hasattr(data, "readline"):
        name = getattr(data, "name", "PATH")
        raise StreamgaugeError(f"Give the path, not an open file: sg.stream({name!r}).")
    if isinstance(data, Iterable):
        return _of_iterator(data, settings)
    if indexed:
        return _of_data_set(CountedDataset(data, settings.pop("limit", LIMIT)), settings)
    raise StreamgaugeError(
        f"A {name} is no data for a stream: give arrays (x, y), a data frame with label=COLUMN, a"
        " data set of (input, label), or the name of a stream."
    )


def _are_arrays(parts: Sequence[Any]) -> bool:
    return len(parts) == 2 and all(hasattr(part, "shape") for part in parts)


def _is_frame(data: Any) -> bool:
    import narwhals

    if isinstance(data, pa.Table | pa.RecordBatch):
        return True
    try:
        seen = narwhals.from_native(data, pass_through=True)
    except narwhals.exceptions.DuplicateError:
        return True  # a column that comes twice is refused when the frame is read
    return isinstance(seen, narwhals.DataFrame | narwhals.LazyFrame)


def _of_arrays(x: Any, y: Any, settings: dict[str, Any]) -> Stream:
    online = _scales(settings)

    def make(**columns: Any) -> Source:
        width = math.prod(getattr(x, "shape", ())[1:]) if online else 0
        source = VectorSource(x, y, width, **columns)
        _check_scale(source, online, rows=1000)
        return source

    return _arranged(make, settings)


def _scales(settings: dict[str, Any]) -> bool:
    """Whether vectors are to be standardised online."""
    scale = settings.pop("scale", "none")
    if scale not in ("online", "none"):
        raise StreamgaugeError(f"scale cannot be {scale!r}; it can be online or none.")
    return bool(scale == "online")


def _check_scale(source: Source, online: bool, rows: int) -> None:
    """Refuse to standardise what is no vector, and announce vectors that need it, by their first
    `rows`."""
    if online and len(source.spec.input_shape) != 1:
        raise StreamgaugeError(
            f"scale='online' is for vectors, and inputs have shape {source.spec.input_shape}."
        )
    if not online and len(source.spec.input_shape) == 1:
        first = source.read(np.arange(min(len(source), rows)))
        if line := raw_scale_line(first, "sg.stream(..., scale='online')"):
            announce(line)


def _arranged(make: Callable[..., Source], settings: dict[str, Any]) -> Stream:
    """The stream of the source that `make` returns for the settings that are not of the order."""
    how = {name: settings.pop(name) for name in setting_types(Arrangement) if name in settings}
    for name in settings:
        if name not in (known := (*KNOWN_COLUMNS, "classes", "class_names")):
            hint = nearest(name, [*known, "scale", *setting_types(Arrangement)])
            raise StreamgaugeError(f"A stream has no setting '{name}'; {hint}")
    arrangement = configure(Arrangement, how, "stream")
    # Built-in streams have tasks by default, so there they may be left over from another order;
    # here somebody asked for them.
    if arrangement.tasks > 1 and arrangement.order not in ("classes", "blurry"):
        raise StreamgaugeError(
            f"The order '{arrangement.order}' does not divide classes into tasks; leave out tasks,"
            " or set order to 'classes' or 'blurry'."
        )
    if arrangement.held_out_by == "task" and arrangement.order in ("given", "time", "iid"):
        raise StreamgaugeError(
            f"The order '{arrangement.order}' has no tasks to hold samples out by; set held_out_by"
            " to 'time' or 'random'."
        )
    return arrange(make(**settings), arrangement)


def _of_table(data: Any, settings: dict[str, Any], name: str = "") -> Stream:
    """A data frame or columns by name, as `--stream tabular` reads a file."""
    arrays = {role: settings.pop(role) for role in tuple(settings) if _is_column(settings[role])}
    config = configure(tabular.Config, settings, "stream")
    if config.batch == 0:
        config = replace(config, batch=10 if config.step == "album" else 1)
    reader = open_table(data, name)
    for role, values in arrays.items():
        table, settings[role] = _with_column(reader.read(), role, values)
        reader = open_table(table, reader.name)
    config = replace(config, **{role: settings[role] for role in arrays})
    settings = {k: v for k, v in tabular.stored_settings(config).items() if k != "path"}
    return tabular.table_stream(reader, reader.name, config, settings, option="")


def _is_column(value: Any) -> bool:
    return hasattr(value, "shape") or (hasattr(value, "__array__") and not np.isscalar(value))


def _with_column(table: pa.Table, role: str, values: Any) -> tuple[pa.Table, str]:
    """The table with one more column, and its name."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (len(table),):
        raise StreamgaugeError(
            f"The column '{role}' has shape {array.shape}, where ({len(table)},) is needed."
        )
    name = _free_name(role, table.column_names)
    return table.append_column(name, to_arrow(array)), name


def _free_name(name: str, taken: Iterable[str]) -> str:
    return name if name not in taken else f"{name} (given)"


def _of_frame(data: Any, y: Any, settings: dict[str, Any]) -> Stream:
    if isinstance(y, str):
        raise StreamgaugeError(f"The name of a column has a keyword: sg.stream(data, label={y!r}).")
    if "label" in settings:
        raise StreamgaugeError(
            "Labels are given twice: leave out y, or label, the name of a column."
        )
    return _of_table(data, {**settings, "label": y if _is_column(y) else np.asarray(y)})


def _of_mapping(data: Mapping[str, Any], settings: dict[str, Any]) -> Stream:
    if "data" in data and "target" in data:
        return _of_bunch(data, settings)
    deep = [name for name, value in data.items() if len(getattr(value, "shape", ())) > 1]
    if deep:
        raise StreamgaugeError(
            f"'{deep[0]}' has more than one number per sample, so it is no column: give inputs and"
            f" labels apart, sg.stream(data[{deep[0]!r}], data[LABEL])."
        )
    return _of_table(data, settings, "the columns given")


def _of_bunch(bunch: Mapping[str, Any], settings: dict[str, Any]) -> Stream:
    """A scikit-learn data set: its matrix as columns, its target by the names of its classes."""
    x, y = bunch["data"], np.asarray(bunch["target"])
    if y.dtype.kind == "f":
        raise StreamgaugeError(_REGRESSION.format("Bunch"))
    names = bunch.get("target_names")
    if y.dtype.kind in "iu" and names is not None and len(names) > y.max(initial=0):
        y = np.asarray(names, dtype=str)[y]
    if _is_frame(x):
        return _of_frame(x, y, settings)
    if getattr(x, "ndim", 0) != 2 or not isinstance(x, np.ndarray):
        raise StreamgaugeError(
            f"The data of this Bunch are a {type(x).__name__}, not a matrix of numbers: turn them"
            " into one (a sparse matrix with .toarray()) and call sg.stream(x, y)."
        )
    columns = [str(name) for name in bunch.get("feature_names", ())]
    columns = columns if len(columns) == x.shape[1] else [f"x{i}" for i in range(x.shape[1])]
    table = {name: x[:, i] for i, name in enumerate(columns)}
    label = _free_name("target", columns)
    return _of_table({**table, label: y}, {"label": label, **settings}, "the Bunch")


def _of_hugging_face(data: Any, settings: dict[str, Any]) -> Stream:
    name = type(data).__name__
    if isinstance(data, Mapping):
        raise StreamgaugeError(
            f"The {name} has the splits {', '.join(data)}: give one,"
            f" sg.stream(data[{next(iter(data), 'train')!r}])."
        )
    if not hasattr(data, "with_format") or not hasattr(data, "__len__"):
        return _of_iterator(data, settings)
    table, where = data.with_format("arrow")[:], f"the {name}"
    schema = table.schema
    lists = any(huggingface.is_list(field.type) for field in schema)
    if not lists and not any(is_bytes(field.type) for field in schema):
        table = _class_names(table, data.features)
        return _of_table(table, settings, where)
    config = configure(huggingface.Config, settings, "stream")
    column = huggingface.input_column(config, schema, where)
    rest = [field for field in schema.names if field != column]
    label = choose(rest, ["label"], {"label": config.label}, where).get("label", "")
    known = getattr(data.features.get(label), "names", None)
    rows = Rows(len(table), where, on_bad=config.on_bad)
    inputs: Any
    if is_bytes(schema.field(column).type):
        inputs, table = CellItems(table[column]), table.select(rest)
    else:
        inputs = huggingface.vectors(table[column].combine_chunks(), column, rows)
    return _own.table_stream("huggingface", config, table, rows, inputs, column, known)


def _class_names(table: pa.Table, features: Mapping[str, Any]) -> pa.Table:
    """Columns of class numbers by the names that the data set has for them."""
    for at, name in enumerate(table.column_names):
        names = getattr(features.get(name), "names", None)
        if names:
            known = [None if i is None or i < 0 else names[i] for i in table[name].to_pylist()]
            table = table.set_column(at, name, pa.array(known, pa.string()))
    return table


class CellItems:
    """Encoded images in an Arrow column, as bytes or as Hugging Face stores them."""

    def __init__(self, cells: pa.ChunkedArray) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, kept: IntArray) -> CellItems:
        return CellItems(self.cells.take(pa.array(kept)))

    def __getitem__(self, number: int) -> bytes:
        cell = self.cells[number].as_py()
        if not isinstance(cell, dict):
            return cell or b""
        if cell["bytes"] is None and cell.get("path"):
            with open(cell["path"], "rb") as file:
                return file.read()
        return cell["bytes"] or b""


def _of_data_set(data: Any, settings: dict[str, Any]) -> Stream:
    """A torch data set, or a list of pairs; inputs stay where they are and are read when needed."""
    if len(data) == 0:
        raise StreamgaugeError(f"The {type(data).__name__} is empty.")
    if isinstance(_pair(data[0], data)[0], Mapping):
        return _of_iterator((data[i] for i in range(len(data))), settings, len(data))
    return _arranged(_of_pairs(data, _scales(settings)), settings)


def _of_pairs(data: Any, online: bool) -> Callable[..., Source]:
    def make(**columns: Any) -> Source:
        source = DataSetSource(data, **columns)
        _check_scale(source, online, rows=_READ_TWICE)
        source.scaled = source.spec.input_shape[0] if online else 0
        if online:
            source.fingerprint += "-scaled"
        return source

    return make


class CountedDataset:
    """A data set with `__getitem__` alone: its length is the first index that it refuses with an
    IndexError, or `limit`."""

    def __init__(self, data: Any, limit: int) -> None:
        self._data, self.kind = data, type(data).__name__
        low, high = 0, 1  # samples below `low` are there
        while high < limit and self._has(high - 1):
            low, high = high, min(2 * high, limit)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._has(middle) else (low, middle)
        self._count = low
        more = "; limit=N changes that" if low == limit else ""
        announce(f"The {self.kind} has no length: its first {low:,} samples are used{more}.")

    def _has(self, number: int) -> bool:
        try:
            self._data[number]
        except IndexError:
            return False
        return True

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        return self._data[number]


def _pair(item: Any, data: Any) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        if isinstance(item, Mapping) and hasattr(data, "take"):  # IterableDataset of datasets
            raise StreamgaugeError(
                f"The {type(data).__name__} has no length and no random access, which a stream"
                " needs: sg.stream(datasets.Dataset.from_list(list(data.take(10_000))))."
            )
        raise StreamgaugeError(
            f"The items of the {type(data).__name__} must be pairs (input, label), not"
            f" {type(item).__name__}{f' of {len(item)}' if isinstance(item, tuple | list) else ''}:"
            " wrap it, or give arrays: sg.stream(x, y)."
        )
    return item[0], item[1]


class DataSetSource:
    """A source over a data set with `__len__` and `__getitem__` that gives (input, label).

    Labels, shapes and a hash of the content need one pass over all items. A data set with
    `targets` and `fingerprint` (text that changes with the content) is opened without it.
    """

    scaled = 0  # columns that are standardised online

    def __init__(
        self,
        data: Any,
        *,
        classes: int | None = None,
        class_names: Sequence[str] | None = None,
        **columns: Any,
    ) -> None:
        self._data, self._name = data, getattr(data, "kind", type(data).__name__)
        first = self._input(0)
        self._type = first.dtype
        for number in range(min(_READ_TWICE, len(data))):
            if not np.array_equal(self._input(number), self._input(number)):
                raise StreamgaugeError(
                    f"The {self._name} gives another input when sample {number} is read again:"
                    " leave out random transforms; learners have a setting `augment`."
                )
        stated, targets = getattr(data, "fingerprint", None), getattr(data, "targets", None)
        quick = isinstance(stated, str) and targets is not None and len(targets) == len(data)
        label, content = (np.asarray(targets), stated) if quick else self._pass_over(first.shape)
        self.label, self.class_names, count = as_labels(label, classes, class_names)
        self.spec = Spec(first.shape, count)
        self.columns = {
            name: as_named_column(name, column, len(self.label)) for name, column in columns.items()
        }
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((content, count, self.class_names)).encode())
        for name, part in {"y": self.label, **dict(sorted(self.columns.items()))}.items():
            digest.update(f"{name}{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        self.fingerprint = digest.hexdigest()

    def _pass_over(self, shape: tuple[int, ...]) -> tuple[Array, str]:
        """All labels, and a hash of all inputs."""
        announce(
            f"The {self._name}: all {len(self._data):,} items are read once for their labels and a"
            " hash of the content (attributes `targets` and `fingerprint` save this)."
        )
        labels, digest = [], hashlib.blake2b(digest_size=16)
        for number in range(len(self._data)):
            x, y = _pair(self._data[number], self._data)
            array = self._as_input(x, number)
            if array.shape != shape:
                raise StreamgaugeError(
                    f"Sample {number} of the {self._name} has shape {array.shape}, but sample 0"
                    f" has {shape}: all need one shape."
                )
            digest.update(np.ascontiguousarray(array).data)
            labels.append(y.item() if hasattr(y, "item") else y)
        return np.asarray(labels), f"{shape} {digest.hexdigest()}"

    def _input(self, number: int) -> Array:
        return self._as_input(_pair(self._data[number], self._data)[0], number)

    def _as_input(self, x: Any, number: int) -> Array:
        if hasattr(x, "getbands"):
            raise StreamgaugeError(
                f"The {self._name} gives PIL images: add a transform to tensors, such as"
                " torchvision.transforms.PILToTensor() after a Resize."
            )
        array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
        if array.ndim == 0 or array.dtype.kind not in "fiub":
            raise StreamgaugeError(
                f"Sample {number} of the {self._name} must be an array of numbers, not"
                f" {type(x).__name__}."
            )
        if array.dtype == np.uint8:
            return array
        array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise StreamgaugeError(f"Sample {number} of the {self._name} holds a NaN or infinity.")
        return array

    def __len__(self) -> int:
        return len(self.label)

    def read(self, index: IntArray) -> Array:
        if not len(index):
            return np.empty((0, *self.spec.input_shape), self._type)
        return np.stack([self._input(int(number)) for number in index])


def _of_iterator(data: Any, settings: dict[str, Any], count: int | None = None) -> Stream:
    """An iterator of (input, label), kept in memory; inputs are dictionaries or arrays."""
    name = type(data).__name__
    if "regression" in str(getattr(data, "task", "")).lower():  # of river's data sets
        raise StreamgaugeError(_REGRESSION.format(name))
    stated = count or getattr(data, "n_samples", None)
    limit = settings.pop("limit", None) or (stated if isinstance(stated, int) else LIMIT)
    items = iter(data)
    pairs = [_pair(item, data) for item in islice(items, limit)]
    if not pairs:
        raise StreamgaugeError(f"The {name} gave no sample: an iterator can be used only once.")
    line = f"The {name}: {len(pairs):,} samples are kept in memory."
    if len(pairs) == limit and next(items, None) is not None:
        line = f"The {name}: only the first {limit:,} samples are used; limit=N changes that."
    announce(line)
    if not isinstance(pairs[0][0], Mapping):
        return _arranged(_of_pairs(pairs, _scales(settings)), settings)
    # Names of columns are text; river's generators number them.
    x = [{str(key): value for key, value in row.items()} for row, _ in pairs]
    y = [label for _, label in pairs]
    names = dict.fromkeys(key for row in x for key in row)
    columns = {key: _cells([row.get(key) for row in x]) for key in names}
    label = _free_name("label", names)
    table = pa.table({**columns, label: _cells(y)})
    return _of_table(table, {"label": label, **settings}, f"the {name}")


def _cells(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types
        return pa.array([None if value is None else str(value) for value in values])
