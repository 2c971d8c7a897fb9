"""Nothing at import needs Unix: every module is imported where `fcntl`, `fork`, `/proc` and other
members that Windows or macOS lack are missing. `docs/promises.md` says what is tested where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.streams.images.items import read_at, read_into_at

SOURCE = Path(__file__).parents[2] / "src" / "streamgauge"

# What Windows does not have; `preadv` and `sched_getaffinity` are missing from macOS, too.
BLOCKED = """
import builtins, io, os, sys, importlib, pkgutil

for module in list(sys.modules):
    assert not module.startswith("streamgauge")
# These have ways of their own for Windows.
import filelock, numba, numpy, plotly, pyarrow, rich, torch, typer, uvicorn
from multiprocessing import resource_tracker, spawn, shared_memory, synchronize

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules.pop(name, None)
for name in ("fork", "forkpty", "pread", "preadv", "sched_getaffinity", "getuid", "geteuid",
             "getloadavg", "posix_fallocate", "fchmod", "mkfifo", "register_at_fork", "setsid"):
    if hasattr(os, name):
        delattr(os, name)

def refuse_proc(opened):
    def wrapper(file, *args, **kwargs):
        if str(file).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return opened(file, *args, **kwargs)
    return wrapper

builtins.open = io.open = refuse_proc(open)
sys.platform = "win32"

import streamgauge
failed = []
for info in pkgutil.walk_packages(streamgauge.__path__, "streamgauge."):
    if info.name.startswith("streamgauge.bridges.") or info.name.endswith("__main__"):
        continue  # need the library that each is for
    try:
        importlib.import_module(info.name)
    except Exception as error:
        failed.append(f"{info.name}: {error!r}")
print("\\n".join(failed))
"""


def test_every_module_imports_without_what_only_unix_has() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == ""


def test_no_two_files_differ_only_in_case() -> None:
    """macOS and Windows would have one of them."""
    names = [str(path.relative_to(SOURCE)).lower() for path in SOURCE.rglob("*")]
    assert len(set(names)) == len(names)


def test_reading_at_an_offset_without_pread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs and shards are read where the operating system has no `pread`."""
    file = tmp_path / "shard"
    file.write_bytes(bytes(range(100)))
    descriptor = os.open(file, os.O_RDONLY)
    try:
        for name in ("preadv", "pread"):
            monkeypatch.delattr(os, name)
            out = bytearray(7)
            assert read_into_at(descriptor, memoryview(out), 90) == 7
            assert out == bytes(range(90, 97))
            assert read_at(descriptor, 20, 95) == bytes(range(95, 100))
    finally:
        os.close(descriptor)
