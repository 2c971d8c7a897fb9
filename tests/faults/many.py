"""A folder with many runs: the time of `score`, of `report` of a selection, and of `resume`.

    python tests/faults/many.py --runs 20000

Each is measured as a command, first without an index (which is made by it) and then with one; the
last command finds the one run that is not complete.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import streamgauge as sg
from provenance import provenance
from streamgauge.files import sealed

LEARNERS = ("ncm", "majority", "blind", "history")


def fill(folder: Path, count: int) -> None:
    """Copies of a few runs under other seeds and ids."""
    made = [
        sg.run(
            sg.stream("albums", length=200), learner, out=folder.parent / "made", progress=False,
            log=str, origin="albums",
        )
        for learner in LEARNERS
    ]  # fmt: skip
    headers = [json.loads((run.path / "run.json").read_text()) for run in made]
    for number in range(count):
        run, header = made[number % len(made)], headers[number % len(made)]
        path = folder / f"{run.path.name}-{number:06d}"
        header["id"], header["config"]["seed"] = f"{number:032x}", number // len(made)
        for file in run.path.rglob("*"):
            if file.is_file() and file.name not in ("lock", "run.json"):
                target = path / file.relative_to(run.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)
        # Not synced: a copy for a measurement.
        (path / "run.json").write_text(json.dumps(sealed(header)))


def timed(folder: Path, *words: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    started, before = time.monotonic(), os.times()
    done = subprocess.run(
        [sys.executable, "-m", "streamgauge", *words], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    after = os.times()
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return time.monotonic() - started, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-") as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        fill(folder / "runs", chosen.runs)
        print(f"{chosen.runs:,} runs made", flush=True)
        parts = []
        some = [str(path) for path in sorted((folder / "runs").iterdir())[:20]]
        for title, words in (
            ("command alone", ("--version",)),
            ("first score", ("score", "runs")),
            ("score", ("score", "runs")),
            ("report of 20 runs", ("report", *some, "--out", "report.html")),
            ("resume", ("resume", "runs")),
        ):
            clock, processor = timed(folder, *words)
            parts.append(f"{title} {clock:.1f} s ({processor:.1f} s of the processor)")
            print(parts[-1], flush=True)
        load = os.getloadavg()[0]
        print(
            f"RESULT: {chosen.runs:,} runs: {', '.join(parts)}; load {load:.1f} on"
            f" {os.cpu_count()} cores; {provenance()}"
        )


if __name__ == "__main__":
    main()
