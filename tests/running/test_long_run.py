"""Memory, open files and threads stay flat; `benchmarks/long_run.py` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_twenty_thousand_steps_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    import long_run

    # Many checkpoints, so that what one of them keeps would be seen.
    taken = long_run.measure(20_000, tmp_path, checkpoint=0.1)
    grown = long_run.growth(taken)
    assert len(taken) == 100
    assert grown["files"] <= 0
    assert grown["threads"] <= 0
    assert grown["megabytes"] < 10
