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

import streamgauge as sg
from streamgauge.files import write_json, write_sealed

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
        write_sealed(path / "run.json", header) if number < 8 else _plain(path, header)


def _plain(path: Path, header: dict[str, object]) -> None:
    write_sealed.__globals__["write_json"] = lambda file, value: file.write_text(json.dumps(value))
    try:
        write_sealed(path / "run.json", header)
    finally:
        write_sealed.__globals__["write_json"] = write_json


def timed(folder: Path, *words: str) -> str:
    started, before = time.monotonic(), os.times()
    done = subprocess.run(
        [sys.executable, "-m", "streamgauge", *words], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    after = os.times()
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return f"{time.monotonic() - started:.1f} s ({used:.1f} s of the processor)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-") as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        fill(folder / "runs", chosen.runs)
        print(f"{chosen.runs:,} runs made", flush=True)
        some = [str(path) for path in sorted((folder / "runs").iterdir())[:20]]
        for title, words in (
            ("the command alone", ("--version",)),
            ("score, makes the index", ("score", "runs")),
            ("score", ("score", "runs")),
            ("report of 20 runs", ("report", *some, "--out", "report.html")),
            ("resume: finds what is missing", ("resume", "runs")),
        ):
            print(f"{title}: {timed(folder, *words)}", flush=True)


if __name__ == "__main__":
    main()
