"""Versions, device, threads and git state that a run stores."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from streamgauge.files import open_regular
from streamgauge.versions import VERSION

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\0\\]+")


def environment(device: str | None) -> dict[str, Any]:
    """What a run stores of its machine; None for a loop that is not ours, where torch is not
    imported."""
    facts: dict[str, Any] = {
        "streamgauge": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "git": git_state(Path.cwd()),
        "git_streamgauge": git_state(Path(__file__).parent),
    }
    if device is not None:
        import torch

        facts |= {"threads": torch.get_num_threads(), "device": _device_name(device)}
    for package in ("torch", "numpy", "pyarrow", "numba"):
        with suppress(metadata.PackageNotFoundError):
            facts[package] = metadata.version(package)
    return facts


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        return f"{device}: {torch.cuda.get_device_name(device)}"
    return f"{device}: {platform.processor() or platform.machine()}"


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and number of changed files; None outside a git repository. The commit is read from
    the files of the repository. `changed_files` is None where it is unknown: without git, or where
    git cannot tell without the repository's own configuration, which could name programs to run."""
    folders = _git_folders(folder)
    commit = None if folders is None else _commit(*folders[1:])
    if folders is None or commit is None:
        return None
    return {"commit": commit, "changed_files": _changed_files(*folders, commit)}


def _git_folders(folder: Path) -> tuple[Path, Path, Path] | None:
    """The work tree of a folder, its git folder, and the one that its work trees have in common."""
    for tree in (folder.absolute(), *folder.absolute().parents):
        git = tree / ".git"
        text = _line(git) if git.is_file() else ""
        if text.startswith("gitdir: "):
            git = tree / text.removeprefix("gitdir: ")
        if (git / "HEAD").is_file():
            common = git / (_line(git / "commondir") or ".")
            return tree, git, common
    return None


def _commit(git: Path, common: Path) -> str | None:
    """The commit of HEAD; None before the first one, or where refs are stored in another way."""
    text = _line(git / "HEAD")
    for _ in range(5):  # a reference may name another one
        if _HASH.fullmatch(text):
            return text
        name = text.removeprefix("ref: ")
        if name == text or not _REF.fullmatch(name) or ".." in name:
            return None
        text = _line(git / name) or _line(common / name) or _packed(common / "packed-refs", name)
    return None


def _packed(file: Path, name: str) -> str:
    with suppress(OSError), open_regular(file) as lines:
        for data in lines:
            line = data.decode(errors="replace")
            commit, _, packed = line.rstrip("\n").partition(" ")
            if packed == name:
                return commit
    return ""


def _line(file: Path) -> str:
    """The first line of a small file; "" if there is none."""
    with suppress(OSError), open_regular(file) as lines:
        return lines.readline(4096).decode(errors="replace").strip()
    return ""


def _changed_files(tree: Path, git: Path, common: Path, commit: str) -> int | None:
    """Files that differ from the commit, by `git status` in a temporary git folder: it has the
    commit, the index and the objects of the repository, and none of its configuration, hooks or
    submodules, so that no program which these name is started."""
    program = shutil.which("git")
    if program is None:
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="streamgauge-git-") as name:
            clean = Path(name)
            for part in ("refs", "objects", "info"):
                (clean / part).mkdir()
            (clean / "HEAD").write_text(f"{commit}\n")
            config = "[core]\nrepositoryformatversion = 1\nbare = false\n"
            sha256 = "[extensions]\nobjectformat = sha256\n" if len(commit) == 64 else ""
            (clean / "config").write_text(config + sha256)
            for source, target in (
                (git / "index", clean / "index"),
                (common / "info" / "exclude", clean / "info" / "exclude"),
            ):
                if source.is_file():
                    shutil.copyfile(source, target)
            own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
            status = subprocess.run(
                [program, "status", "--porcelain", "--ignore-submodules=all"],
                cwd=tree,
                env=own
                | {
                    "GIT_DIR": str(clean),
                    "GIT_WORK_TREE": str(tree),
                    "GIT_OBJECT_DIRECTORY": str(common / "objects"),
                    "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_CONFIG_GLOBAL": os.devnull,
                    "GIT_OPTIONAL_LOCKS": "0",
                    "GIT_NO_LAZY_FETCH": "1",
                    "GIT_TERMINAL_PROMPT": "0",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=True,
            )
            return len(status.stdout.splitlines())
    except (OSError, subprocess.SubprocessError):
        return None
