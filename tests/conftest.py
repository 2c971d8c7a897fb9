"""Shared by all tests: one thread each, since two test processes share two cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ray takes seconds, on a busy machine a minute, to start: its tests run when asked for."""
    if "ray" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("ray"):
                item.add_marker(pytest.mark.skip(reason="starts Ray: pytest -m ray"))


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Call the command in an empty folder: exit code, what it printed, what it complained."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        from streamgauge import cli

        monkeypatch.setattr(sys, "argv", ["streamgauge", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(stop.value.code or 0), printed.out, printed.err

    return command
