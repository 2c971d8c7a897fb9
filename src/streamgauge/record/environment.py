"""Versions, device, threads and git state that a run stores."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from streamgauge.versions import VERSION


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
    """Commit and number of changed files; None outside a git repository or without git."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "changed_files": len(git("status", "--porcelain").splitlines()),
        }
    except (OSError, subprocess.SubprocessError):
        return None
