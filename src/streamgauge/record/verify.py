"""Checks every file of run folders against its checksum: `streamgauge verify`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_bytes
from streamgauge.record.run import run_folders
from streamgauge.record.writer import read_header
from streamgauge.tables.commit import check_committed, committed_files, read_progress
from streamgauge.tables.journal import journal_path, parse


@dataclass
class Verified:
    """Result of `verify` for one run folder."""

    path: Path
    files: int = 0  # that were checked
    problems: list[str] = field(default_factory=list)
    unchecked: bool = False  # an older version wrote it, without checksums


def verify(paths: str | Path | Iterable[str | Path]) -> Iterator[Verified]:
    """Check every committed file of run folders; a path is a run folder or a folder of them."""
    for path in [paths] if isinstance(paths, str | Path) else paths:
        for folder in run_folders(Path(path)):
            yield _verified(folder)


def _verified(folder: Path) -> Verified:
    verified = Verified(folder)
    try:
        header = read_header(folder)
        progress = read_progress(folder)
        verified.files += 1 + (progress is not None)
    except StreamgaugeError as error:
        verified.problems.append(str(error))
        return verified
    if progress is None:
        return verified
    verified.unchecked = "format" not in header or "files" not in progress
    for name in committed_files(progress):
        verified.files += 1
        try:
            check_committed(folder, progress, name)
        except StreamgaugeError as error:
            verified.problems.append(str(error))
            if "files" not in progress:
                break  # nothing but its count says that there are more
    if "recorder" in progress:
        file = journal_path(folder, progress["recorder"]["journal"])
        try:
            data = read_bytes(file)
        except FileNotFoundError:
            return verified
        except OSError as error:
            verified.problems.append(f"{file} cannot be read: {error.strerror or error}.")
        else:
            with warnings.catch_warnings():
                content = parse(data)
            verified.files += 1
            if content.damaged:
                verified.problems.append(
                    f"{file} is damaged after byte {content.valid:,}: the calls recorded there are"
                    " missing."
                )
    return verified
