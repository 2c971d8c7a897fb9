"""A folder of images of your own: DIR/CLASS/photo.jpg, or DIR/train/CLASS/... and DIR/test/...

Class names are the names of the folders, numbered alphabetically. Files have no time, so the
default order is `iid`. Hidden files and files that are no images by their names are not looked at.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.images.image_source import SUFFIXES
from streamgauge.streams.own import _common as _own
from streamgauge.streams.stream import Stream
from streamgauge.tables.columns import announce
from streamgauge.tables.rows import Rows


@dataclass(frozen=True)
class Config(_own.Images):
    """Settings of a folder of images."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "iid"
    layout: Literal["auto", "class", "split/class", "domain/class"] = "auto"  # of folders


def build(config: Config) -> Stream:
    """The stream of a folder; `given` is the order of the paths."""
    root = _own.need_path(config, "folder")
    if not root.is_dir():
        raise StreamgaugeError(
            f"'{root}' is a file, not a folder of images: for a table use --stream manifest."
        )
    names, others, links = _images_below(root)
    if links and config.on_bad == "fatal":
        raise StreamgaugeError(
            f"'{links[0]}' below '{root}' is a link to a folder, and such links are not followed:"
            " put the folder itself there, or set --stream.on_bad skip to do without it."
        )
    if not names:
        raise StreamgaugeError(
            f"There is no image below '{root}' (looked for {', '.join(sorted(SUFFIXES))})."
        )
    rows = Rows(len(names), f"'{root}'", on_bad=config.on_bad)
    rows.refuse(
        np.array([any("\ud800" <= letter <= "\udfff" for letter in name) for name in names]),
        "name that is not UTF-8",
        lambda row: f"The name of {names[row]!a} below '{root}' is not UTF-8: rename it.",
    )
    names = [name if good else "" for name, good in zip(names, rows.good.tolist(), strict=True)]
    layout = _layout(config, root, names)
    above = layout.split("/")
    parts = [name.split("/") for name in names]
    flat = np.array([len(part) <= len(above) for part in parts])
    rows.refuse(
        flat,
        "file in no class",
        lambda row: (
            f"'{names[row]}' is in no class folder of '{root}', as {layout}/photo.jpg would."
        ),
    )
    items = _own.file_items(root, names, rows)
    column = {
        level: pa.chunked_array([[part[at] if len(part) > at else "" for part in parts]])
        for at, level in enumerate(above)
    }
    split = _own.splits_of(column.get("split"), config, rows)
    kept = split.used(rows)
    level = {name: np.array(values.to_pylist())[kept] for name, values in column.items()}
    classes, label = np.unique(level["class"], return_inverse=True)
    columns = {"domain": level["domain"]} if "domain" in level else {}
    ignored = f" {others} other files were not looked at." if others else ""
    ignored += f" {len(links)} links to folders were not followed." if links else ""
    announce(
        f"'{root}': {layout} by folder: {len(classes)} classes, {len(kept)} images brought to"
        f" {config.size} x {config.size}.{split.line}{ignored}"
    )
    source = _own.source_of(
        items.take(kept), label.astype(np.int64), [str(c) for c in classes], columns, config
    )
    notes = {"layout": layout, "other_files": others, "linked_folders": len(links)}
    return _own.finish("folder", config, source, split.is_test[kept], rows, notes)


def _images_below(root: Path) -> tuple[list[str], int, list[str]]:
    """Paths of images, sorted, with slashes; the number of other files; and links to
    folders, which may lead anywhere, or round in circles."""
    names, links, others = [], [], 0
    for folder, inner, files in os.walk(root):  # does not follow links to folders
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        here = Path(folder).relative_to(root)
        links += [(here / name).as_posix() for name in inner if (Path(folder) / name).is_symlink()]
        for name in files:
            if name.startswith("."):
                continue
            if Path(name).suffix.lower() in SUFFIXES:
                names.append((here / name).as_posix())
            else:
                others += 1
    return sorted(names), others, links


def _layout(config: Config, root: Path, names: list[str]) -> str:
    if config.layout != "auto":
        return config.layout
    top = sorted({name.split("/")[0] for name in names if "/" in name})
    if not top:
        raise StreamgaugeError(
            f"The images are in '{root}' itself, so nothing says their classes: put them in one"
            " folder per class, or use --stream manifest with a table."
        )
    if config.train or config.test not in ("", "none"):
        return "split/class"
    splits = [name for name in top if name.lower() in _own.SPLITS]
    if not splits:
        return "class"
    if len(splits) == len(top) and any(name.lower() in _own.TRAIN for name in top):
        return "split/class"
    raise StreamgaugeError(
        f"'{splits[0]}' below '{root}' may be a split or a class, next to {', '.join(top[:6])}: set"
        " --stream.layout to class or split/class."
    )
