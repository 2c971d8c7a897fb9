"""Shared by all tests: one thread each, since two test processes share two cores."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

# What a shell starts in the background ignores SIGINT, and so do the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that take minutes, or start Ray, run when asked for: `make test-all`."""
    for marker in ("long", "ray"):
        if marker not in (config.option.markexpr or ""):
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=f"pytest -m {marker} runs it"))


# A busy machine is no failure: no limit on the time of an example.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Call the command in an empty folder: exit code, what it printed, what it complained."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        from streamgauge import cli
        from streamgauge.tables.columns import announce

        announce.cache_clear()  # a process says each line once
        monkeypatch.setattr(sys, "argv", ["streamgauge", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(stop.value.code or 0), printed.out, printed.err

    return command
