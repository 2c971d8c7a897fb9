"""Runs the tests of the bridges to Avalanche, CapyMOA and Lightning against the real libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from environments import PACKAGES, REPOSITORY, python_of


@pytest.mark.long
@pytest.mark.parametrize("name", PACKAGES)
def test_bridge_against_the_real_library(name: str) -> None:
    """`-k` chooses the file of this name, the section of docs/bridges.md, and the test that reads
    results of this tool."""
    files = [f"tests/bridges/test_{name}.py", "tests/bridges/test_bridges_page.py"]
    files += ["tests/exchange/test_other_tools.py", "-k", name]
    command = [python_of(name), "-m", "pytest", "-q", "-rs", *files]
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=REPOSITORY,
        env={**kept, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    print(done.stdout[-4000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert "skipped" not in done.stdout.splitlines()[-1]
