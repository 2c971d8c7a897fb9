"""Which stream reads a file or folder of your own, decided by its name and its first bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.images.image_source import SUFFIXES
from streamgauge.streams.own.manifest import is_bytes
from streamgauge.tables.base import TableReader
from streamgauge.tables.columns import columns_named
from streamgauge.tables.read import open_table, table_format
from streamgauge.tables.values import is_text

_HUGGING_FACE = ("dataset_info.json", "dataset_dict.json", "state.json")


def stream_for(path: Path) -> str:
    """The name of the stream that reads a file or folder."""
    if path.is_dir():
        return _for_folder(path)
    if path.suffix == ".tar":
        return "webdataset"
    if path.suffix in (".npz", ".npy"):
        return "arrays"
    if table_format(path) is None:
        raise StreamgaugeError(
            f"No stream reads '{path}': a stream is a table (.csv, .tsv, .dat, .arff, .parquet,"
            " .arrow, .jsonl, also inside .gz or .zip), arrays (.npz, .npy), tar shards (.tar), a"
            " folder of images, or FILE.py. What Python reads in another way is a stream, too:"
            " sg.stream(x, y) or sg.stream(pandas.read_excel(...))."
        )
    return _for_table(open_table(path, f"'{path}'"))


def _for_folder(path: Path) -> str:
    if (path / "pack.json").is_file():
        return "packed"
    if (path / "run.json").is_file():
        raise StreamgaugeError(
            f"'{path}' is a run folder, not a stream: `streamgauge score {path}`."
        )
    if any((path / name).is_file() for name in _HUGGING_FACE):
        return "huggingface"
    for pattern, stream in (
        ("*.npy", "arrays"),
        ("*.tar", "webdataset"),
        ("*.parquet", "huggingface"),
    ):
        if any(path.glob(pattern)) or any(path.glob(f"*/{pattern}")):
            return stream
    return "folder"


def _for_table(reader: TableReader) -> str:
    """A table of images has bytes, or paths that end as images do; other tables have inputs."""
    first = next(reader.pieces(reader.names), None)
    if first is None:
        return "tabular"
    kinds = {field.name: field.type for field in first.schema}
    if any(map(is_bytes, kinds.values())):
        return "manifest"
    if any(isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
           for kind in kinds.values()):  # fmt: skip
        return "huggingface"
    for name in columns_named(reader.names, "path"):
        if not is_text(kinds[name]):
            continue
        cells = [str(cell).lower() for cell in first[name].slice(0, 20).to_pylist() if cell]
        if cells and all(Path(cell).suffix in SUFFIXES for cell in cells):
            return "manifest"
    return "tabular"
