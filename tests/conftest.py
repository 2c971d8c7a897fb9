"""Shared by all tests: one thread each, since two test processes share two cores."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ray takes seconds, on a busy machine a minute, to start: its tests run when asked for."""
    if "ray" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("ray"):
                item.add_marker(pytest.mark.skip(reason="starts Ray: pytest -m ray"))
