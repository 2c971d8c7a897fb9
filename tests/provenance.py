"""What code a measured figure belongs to."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "streamgauge"


def code_hash(package: Path = PACKAGE) -> str:
    """A hash of the names and contents of all files of the package."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            data = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def provenance() -> str:
    """Commit, changed files, hash of the code and version of Python, for the end of a line."""
    from streamgauge.record.environment import git_state

    git = git_state(PACKAGE)
    commit = "no commit" if git is None else f"commit {git['commit'][:9]}"
    if git is not None and git["changed_files"]:
        commit += f" with {git['changed_files']} changed files"
    return f"{commit}, code {code_hash()}, Python {platform.python_version()}"
