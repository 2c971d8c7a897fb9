"""The one atomic write and the one lock."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import StreamgaugeError
from streamgauge.files import (
    acquire_lock,
    locked,
    replace_synced,
    write_atomic,
    write_json,
    write_text,
)

SOURCE = Path(__file__).parents[2] / "src" / "streamgauge"

# Blocks modules that Windows does not have, for imports made by this package alone.
WITHOUT_UNIX = """
import builtins, importlib, pkgutil
real = builtins.__import__
UNIX = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"}

def windows(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if name in UNIX and importer.partition(".")[0] == "streamgauge":
        raise ModuleNotFoundError(f"{importer} imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = windows
import streamgauge
for module in pkgutil.walk_packages(streamgauge.__path__, "streamgauge."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_no_module_needs_unix_to_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_files_py_renames_syncs_and_locks() -> None:
    primitive = re.compile(r"\bos\.replace\(|\bfsync\(|\bflock\(|FileLock\(|^\s*import fcntl", re.M)
    users = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if primitive.search(file.read_text())
    }
    assert users == {"files.py"}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def interrupted() -> None:
        with write_atomic(file) as part:
            part.write_text("ha")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_text_is_written_byte_by_byte_and_json_reads_back(tmp_path: Path) -> None:
    write_text(tmp_path / "a.csv", "ä\r\nb\n")
    assert (tmp_path / "a.csv").read_bytes() == "ä\r\nb\n".encode()
    write_json(tmp_path / "a.json", {"b": [1]})
    assert (tmp_path / "a.json").read_text() == '{\n "b": [\n  1\n ]\n}\n'


def test_what_is_renamed_is_synced_before_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("sync"))
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("rename"), replace(*paths)))
    write_text(tmp_path / "file", "text")
    (tmp_path / "part").mkdir()
    replace_synced(tmp_path / "part", tmp_path / "folder")
    assert events == ["sync", "rename", "sync"] * 2


def _hold(folder: Path, pipe: Any) -> None:
    with locked(folder, "busy"):
        pipe.send("locked")
        pipe.recv()


def test_a_lock_excludes_other_processes_and_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    holder = context.Process(target=_hold, args=(tmp_path, theirs))
    holder.start()
    assert ours.recv() == "locked"
    with pytest.raises(StreamgaugeError, match="busy"), locked(tmp_path, "busy"):
        pass
    holder.kill()
    holder.join()
    with locked(tmp_path, "busy"):
        assert (tmp_path / "lock").exists()


def test_a_lock_excludes_a_second_one_of_the_same_process(tmp_path: Path) -> None:
    with locked(tmp_path, "busy"), pytest.raises(StreamgaugeError, match="busy"):
        acquire_lock(tmp_path, "busy")
    with locked(tmp_path, "busy"):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    lock = acquire_lock(tmp_path, "busy")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=theirs.recv, daemon=True)
    child.start()
    lock.release()
    with locked(tmp_path, "busy"):
        assert child.is_alive()
    ours.send("end")
    child.join()
