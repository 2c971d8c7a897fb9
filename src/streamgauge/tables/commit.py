"""The commit point of a run folder, `progress.json`: which files are valid, and their checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamgauge.errors import Damaged
from streamgauge.files import check_file, read_sealed

REMEDY = "restore it from a copy, or remove the run folder and run again"
SHAPE = {
    "step": int, "done": bool, "checkpoint?": (str, None), "segments": {"*": int},
    "time?": float, "files?": {"*": list},
    "recorder?": {
        "journal": int, "columns": ([str], None), "label_columns": ([str], None),
        "keep_scores": bool, "width": (int, None), "step": int, "version": int, "evaluation": int,
        "task": int, "tasks": int, "samples": int, "step_size": int, "time": (float, None),
        "order_hash": int, "data_hash": int,
    },
}  # fmt: skip


def read_progress(folder: Path) -> dict[str, Any] | None:
    """The commit point, or None before the first one."""
    file = folder / "progress.json"
    try:
        progress = read_sealed(file, SHAPE, REMEDY)
    except FileNotFoundError:
        return None
    for table, count in progress["segments"].items():
        if not table.isidentifier() or count < 0:
            raise Damaged(f"{file} is damaged ({count} segments of '{table}'); {REMEDY}.")
    name = progress.get("checkpoint")
    if name is not None and not (name.startswith("checkpoint-") and Path(name).name == name):
        raise Damaged(f"{file} is damaged ('{name}' is no name of a checkpoint); {REMEDY}.")
    if "files" in progress:
        named = [] if name is None else [name]
        named += [
            segment_name(table, number)
            for table, count in progress["segments"].items()
            for number in range(min(count, len(progress["files"]) + 1))
        ]
        pairs = progress["files"].values()
        if sorted(named) != sorted(progress["files"]) or any(map(_not_a_pair, pairs)):
            raise Damaged(f"{file} is damaged (its files are not its segments); {REMEDY}.")
    return progress


def _not_a_pair(value: list[Any]) -> bool:
    return [type(item) for item in value] != [int, str]


def segment_name(table: str, number: int) -> str:
    return f"log/{table}/{number:05d}.parquet"


def committed_files(progress: Mapping[str, Any]) -> Iterator[str]:
    """The names of all files that the commit point names."""
    for table, count in progress["segments"].items():
        for number in range(count):
            yield segment_name(table, number)
    if progress.get("checkpoint"):
        yield progress["checkpoint"]


def segment_files(folder: Path, progress: Mapping[str, Any], table: str) -> Iterator[Path]:
    """The committed segments of a table, each checked to be as it was written."""
    for number in range(progress["segments"].get(table, 0)):
        check_committed(folder, progress, name := segment_name(table, number))
        yield folder / name


def check_committed(folder: Path, progress: Mapping[str, Any], name: str) -> None:
    """Refuse a committed file that is missing or changed; older versions stored no checksums."""
    if "files" in progress:
        check_file(folder / name, progress["files"][name], REMEDY)
    elif not (folder / name).is_file():
        raise Damaged(f"{folder / name} is missing; {REMEDY}.")
