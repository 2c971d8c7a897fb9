"""Large sets of photos (CLOC, CGLM, CLEAR): lists of files with labels, times and users.

Images stay where they are; what is stored are the lists, as arrays that are memory-mapped: opening
39 million photos reads none of them. `part` says what a sample is for, where the release says so.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.files import json_hash
from streamgauge.streams.datasets.archive import Files, inside, refuse_leaving
from streamgauge.streams.datasets.data_set import Contents, DataRequest, DataSet, Stored
from streamgauge.streams.images.image_source import BadImage, ImageSource
from streamgauge.streams.source import Array, ArraySource, IntArray, Source
from streamgauge.streams.stream import Arrangement, Split, Stream, arrange
from streamgauge.tables.columns import choose
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_labels, read_columns
from streamgauge.tables.rows import Rows
from streamgauge.tables.values import Vocabulary

PREPARATION, STREAM, HELD_OUT, TEST = range(4)
_PARTS = {"pretrain": PREPARATION, "train": STREAM, "test": HELD_OUT}
_LOOKED_FOR = 64  # images that are looked for, to find the folder that holds them


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings that streams of photos share."""

    size: int = 224  # pixels a side; 0 leaves the images away: labels, times and users alone
    parts: Literal["official", "shares"] = "official"  # the release's split, or by the shares
    on_bad: Literal["fatal", "skip"] = "fatal"


@dataclass
class Photos:
    """A list of photos on its way into the store."""

    paths: Any  # pyarrow text
    label: Array
    columns: dict[str, Array]
    form: str
    class_names: Sequence[str] | None = None


class PathItems:
    """Bytes of image files below a folder, by number. The names are mapped from the stored data
    set, so pickling sends only its path."""

    def __init__(self, stored: Path, root: str, strip: str, put: str, known: str) -> None:
        self.stored = stored
        self.root, self.strip, self.put = root, strip, put
        self.fingerprint = known
        self._names: Array = np.load(stored / "paths.npy", mmap_mode="r")
        self._ends: Array = np.load(stored / "path_ends.npy", mmap_mode="r")

    def __reduce__(self) -> tuple[Any, ...]:
        return PathItems, (self.stored, self.root, self.strip, self.put, self.fingerprint)

    def __len__(self) -> int:
        return len(self._ends)

    def name(self, number: int) -> str:
        start = int(self._ends[number - 1]) if number else 0
        return bytes(self._names[start : int(self._ends[number])]).decode()

    def __getitem__(self, number: int) -> bytes:
        name = self.name(number)
        path = inside(Path(self.root), self.put + name.removeprefix(self.strip))
        try:
            return path.read_bytes()
        except OSError as error:
            raise BadImage(
                f"{path} cannot be read: {error.strerror}; if all images were moved, add the data"
                " set again with --images.",
                "missing",
            ) from None


def photo_stream(data: DataSet, config: Config, name: str) -> Stream:
    """The stream of a configuration over a stored list of photos."""
    stored = Stored(data)
    source = photo_source(stored, config)
    how: Arrangement = config
    if config.order == "time" and "time" not in source.columns:
        how = replace(config, order="given")  # order files are in order of time, and have no times
    cache = stored.folder / "orders"
    part = stored.arrays.get("part")
    if part is None or config.parts == "shares":
        return arrange(source, how, name=name, settings=vars(config), cache=cache)
    if len(part) != len(source):
        raise StreamgaugeError(
            "Some images cannot be used, so the official parts do not fit: set parts to 'shares',"
            " or mend the images."
        )
    apart = np.flatnonzero((part == PREPARATION) | (part == HELD_OUT))
    test = np.flatnonzero(part == TEST)
    given = replace(how, preparation=0.0, held_out=0.0)
    set_apart = np.append(apart, test)
    plain = arrange(source, given, name=name, test=set_apart, settings=vars(config), cache=cache)
    splits: dict[str, Split] = {}
    if "test" in plain.splits:
        every = plain.splits["test"]
        for what, kind in (("held_out", HELD_OUT), ("test", TEST)):
            chosen = part[every.index] == kind
            if chosen.any():
                split = replace(every.where(chosen), at_boundaries=what == "test")
                if "time" not in source.columns and split.task is None:  # evenly over the stream
                    even = np.arange(len(split)) * plain.samples // len(split)
                    split = replace(split, position=even)
                splits[what] = split
    prepared = np.flatnonzero(part == PREPARATION)
    if "time" in source.columns:
        prepared = prepared[np.argsort(source.columns["time"][prepared], kind="stable")]
    return replace(plain, splits=splits, preparation=prepared)


def photo_source(stored: Stored, config: Config) -> Source:
    """The photos as a source, decoded when they are read."""
    apart = ("label", "paths", "path_ends", "part")
    more: dict[str, Any] = {k: array for k, array in stored.arrays.items() if k not in apart}
    more |= {"classes": stored.about["classes"], "class_names": stored.about["class_names"]}
    if config.size == 0:
        nothing = np.empty((len(stored), 0), np.uint8)
        labels = ArraySource(nothing, stored.arrays["label"], **more)
        labels.fingerprint = _fingerprint(stored, 0)
        return labels
    where = stored.about["more"]["images"]
    if not where:
        raise StreamgaugeError(
            f"The images of {stored.data.title} were not found when it was added: add it again with"
            " --images FOLDER, or set --stream.size 0 to stream labels, times and users alone."
        )
    items = PathItems(
        stored.folder,
        str(stored.folder / where),  # what is absolute stays so
        stored.about["more"]["strip"],
        stored.about["more"]["put"],
        stored.about["arrays"]["paths"]["md5"],
    )
    source = ImageSource(
        items, stored.arrays["label"], size=config.size, on_bad=config.on_bad, **more
    )
    if not source.bad:
        source.fingerprint = _fingerprint(stored, config.size)
    return source


def _fingerprint(stored: Stored, size: int) -> str:
    """From the checksums of the stored arrays: tens of millions of labels are not hashed again."""
    known = {name: entry["md5"] for name, entry in sorted(stored.about["arrays"].items())}
    return json_hash([known, stored.about["classes"], stored.about["class_names"], size])


def contents(
    photos: Photos,
    files: Files,
    request: DataRequest,
    *,
    images: str | None = None,
    checksums: Mapping[str, str] | None = None,
    verified: str = "",
    streamed: int | None = None,
) -> Contents:
    """The lists as they are stored, and where the images were found."""
    paths, label, columns = photos.paths, photos.label, photos.columns
    if len(label) != len(paths):
        raise StreamgaugeError(f"{files.path} has {len(label)} labels for {len(paths)} images.")
    _refuse_leaving(paths, files.path)
    if "time" in columns and not bool(np.all(columns["time"][1:] >= columns["time"][:-1])):
        # Once and for all, since opening millions of photos must not mean sorting them.
        order = np.argsort(columns["time"], kind="stable")
        paths, label = paths.take(order), label[order]
        columns = {name: column[order] for name, column in columns.items()}
    offsets, letters = _letters(paths)
    classes = len(photos.class_names) if photos.class_names else int(label.max()) + 1
    if int(label.min()) < 0:
        raise StreamgaugeError(f"{files.path} has the label {label.min()}, below 0.")
    if images is None:
        step = max(1, len(paths) // _LOOKED_FOR)
        some = [str(paths[i].as_py()) for i in range(0, len(paths), step)][:_LOOKED_FOR]
        images_at = _find_images(some, files, request)
    else:
        images_at = {"images": images, "strip": "", "put": ""}
    arrays: dict[str, Array] = {
        "label": label.astype(np.int16 if classes <= 1 << 15 else np.int32),
        "paths": letters,
        "path_ends": offsets[1:],
        **columns,
    }
    return Contents(
        arrays,
        photos.form,
        classes,
        photos.class_names,
        checksums or {},
        streamed,
        verified or "by its counts only, since no checksum of these lists is published",
        images_at,
    )


def _letters(paths: Any) -> tuple[IntArray, Array]:
    """Where each text ends, and all of them in one row of bytes."""
    import pyarrow as pa

    texts = pa.concat_arrays([paths.cast(pa.large_string())])  # begins at offset 0
    _, offsets, letters = texts.buffers()
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1)
    if letters is None:
        return ends, np.empty(0, np.uint8)
    return ends, np.frombuffer(letters, np.uint8, int(ends[-1]))


def _refuse_leaving(paths: Any, where: Path) -> None:
    import pyarrow.compute as pc

    bad = pc.match_substring_regex(paths, r"(^|[/\\])\.\.([/\\]|$)|^[/\\]|^.:")
    if pc.any(bad).as_py():
        refuse_leaving(paths.filter(bad)[0].as_py(), where)


def _find_images(some: list[str], files: Files, request: DataRequest) -> dict[str, str]:
    """The folder below which most of some images lie; some lists begin with 'train/' where the
    folder does not, or the other way round."""
    base = files.path if files.kind == "folder" else files.path.parent
    roots = [base, base / "data", base / "images", base.parent, base.parent / "data"]
    if request.images is not None:
        roots = [request.images.expanduser()]
        if not roots[0].is_dir():
            raise StreamgaugeError(f"There is no folder {roots[0]} with images.")
    best, most = {"images": "", "strip": "", "put": ""}, 0
    for root in roots:
        for strip, put in (("", ""), ("train/", ""), ("", "train/")):
            there = sum((root / (put + name.removeprefix(strip))).is_file() for name in some)
            if there > most:
                best = {"images": str(root.resolve()), "strip": strip, "put": put}
                most = there
    if request.images is not None and not most:
        raise StreamgaugeError(
            f"None of {len(some)} images that were looked for lies in {roots[0]}, such as"
            f" {some[0]}."
        )
    return best | {"looked_for": f"{most} of {len(some)} images found"}


def from_order_files(files: Files) -> Photos | None:
    """CLDatasets' HDF5 lists: train, and where they are there pretrain and test, each with paths
    and labels as `store_list`. They are in order of time and hold no times."""
    import pyarrow as pa

    order_files = {
        split: where
        for split in _PARTS
        if (where := files.locate([f"{split}_image_paths.hdf5", f"{split}_labels.hdf5"]))
    }
    if "train" not in order_files:
        return None
    paths, labels, parts = [], [], []
    for split, where in order_files.items():
        raw = files.read(list(where.values()))
        names = _store_list(raw[where[f"{split}_image_paths.hdf5"]], files.path)
        label = _store_list(raw[where[f"{split}_labels.hdf5"]], files.path)
        if len(names) != len(label) or label.dtype.kind not in "iu":
            raise StreamgaugeError(
                f"{files.path} has {len(names)} paths and {len(label)} labels ({label.dtype}) for"
                f" '{split}': these do not belong together."
            )
        text = [n.decode() if isinstance(n, bytes) else str(n) for n in names.tolist()]
        paths.append(pa.array(text, pa.large_string()))
        labels.append(label)
        parts.append(np.full(len(label), _PARTS[split], np.uint8))
    return Photos(
        pa.concat_arrays(paths),
        np.concatenate(labels),
        {"part": np.concatenate(parts)},
        f"HDF5 order files ({', '.join(order_files)})",
    )


def _store_list(raw: bytes, where: Path) -> Array:
    with packages_for("Reading HDF5 order files"):
        import h5py
    try:
        with h5py.File(io.BytesIO(raw), "r") as file:
            return np.asarray(file["store_list"])
    except (OSError, KeyError, RuntimeError) as error:
        raise StreamgaugeError(f"An order file in {where} cannot be read: {error}.") from None


_ROLES = ("label", "path", "time", "user", "latitude", "longitude", "split")


def from_csv(files: Files, name: str, path_of: Any = None, least: int = 1) -> Photos:
    """A CSV with a column for the label and one for the path, and time, user, latitude, longitude
    where there are any. `path_of` makes paths of the table where it has none; classes of fewer
    than `least` images are left out."""
    import pyarrow as pa

    reader = open_table(files.read([name])[name], files.called(name))
    roles = [role for role in _ROLES if not (path_of and role == "path")]
    needed = roles[: 1 if path_of else 2]
    chosen = choose(reader.names, roles, {}, reader.name, option="", needed=needed)
    text = [chosen[role] for role in ("label", "user", "split") if role in chosen]
    table = reader.read(text=text)
    codes = Vocabulary().encode(table[chosen["label"]])
    unlabelled = int(np.sum(codes < 0))
    counts = np.bincount(codes[codes >= 0], minlength=1)
    good = np.flatnonzero((codes >= 0) & (counts[codes] >= least))
    if len(good) == 0:
        raise StreamgaugeError(f"{reader.name} lists no image.")
    table = table.take(pa.array(good))

    rows = Rows(len(table), reader.name, lambda row: reader.row_name(int(good[row])))
    label, class_names = code_labels(table[chosen["label"]], rows, by_value=True)
    columns = read_columns(table, chosen, rows, option="")
    if "time" in columns:
        columns["time"] = np.floor(columns["time"]).astype(np.int64)
    if "split" in chosen:
        columns["part"] = _parts(table[chosen["split"]].combine_chunks(), reader.name)
    paths = path_of(table) if path_of else table[chosen["path"]]
    line = ", ".join(f"{role} from '{column}'" for role, column in chosen.items())
    line += f"; {unlabelled:,} rows without a label left out" if unlabelled else ""
    paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    return Photos(paths.cast(pa.large_string()), label, columns, f"a CSV: {line}", class_names)


def _parts(values: Any, where: str) -> Array:
    words = ("pretrain preparation", "train stream", "val valid held_out", "test")
    known = {name: part for part, names in enumerate(words) for name in names.split()}
    coded = values.dictionary_encode()
    kinds = [str(kind).lower() for kind in coded.dictionary.to_pylist()]
    unknown = [kind for kind in kinds if kind not in known]
    if unknown or coded.null_count:
        raise StreamgaugeError(
            f"The split '{unknown[0] if unknown else ''}' in {where} is not known; known"
            f" are {', '.join(known)}."
        )
    table = np.array([known[kind] for kind in kinds], np.uint8)
    codes: IntArray = coded.indices.to_numpy(zero_copy_only=False)
    return table[codes]
