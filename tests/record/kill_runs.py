"""Kill runs with SIGKILL at random moments, resume them, and compare with runs never killed.

    python tests/record/kill_runs.py --kills 20

Prints one line a kill and exits with 1 if any resumed log differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import streamgauge as sg
from helpers import same_log

ARGUMENTS = [
    "--stream", "albums", "--learner", "er", "--er.momentum", "0.9", "--er.augment", "flip",
    "--protocol.shifts", "40", "--protocol.evaluate", "25", "--protocol.cost", "4/3",
    "--checkpoint", "0.05",
]  # fmt: skip


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "streamgauge.cli", *words]


def start(out: Path, length: int) -> subprocess.Popen[bytes]:
    words = ["run", *ARGUMENTS, "--stream.length", str(length), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )


def step_of(out: Path) -> int:
    """How far a run has come, as its last commit says."""
    for file in out.glob("*/progress.json"):
        return int(json.loads(file.read_text())["step"])
    return 0


def kill_and_resume(folder: Path, kills: int, seed: int = 0, length: int = 1200) -> int:
    """How many of the killed and resumed runs differ from the one that ran through.

    A run is killed a moment after it has passed a random step, so the moment falls anywhere in its
    work, also into a write. Half of them go on by the same command, half by `resume`.
    """
    rng = random.Random(seed)
    assert start(folder / "whole", length).wait() == 0
    (whole,) = sg.find_runs([folder / "whole"])
    different = inside = 0
    for number in range(kills):
        out = folder / f"killed-{number}"
        process = start(out, length)
        target = rng.uniform(0, 0.8) * whole.step
        while step_of(out) < target and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        at = step_of(out)
        inside += 0 < at < whole.step
        if number % 2 and at:
            again = subprocess.run(command("resume", str(out)), capture_output=True, check=False)
            assert again.returncode == 0, again.stderr
        else:
            assert start(out, length).wait() == 0
        (resumed,) = sg.find_runs([out])
        same = resumed.done and same_log(whole, resumed)
        different += not same
        print(f"killed at step {at:4d} of {whole.step}, gone on by "
              f"{'resume' if number % 2 and at else 'run'}: "
              f"{'identical' if same else 'DIFFERENT'}", flush=True)  # fmt: skip
    assert inside > 0, "every kill came too early or too late"
    return different


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        different = kill_and_resume(Path(folder), chosen.kills, chosen.seed, 4000)
    print(f"{chosen.kills} kills, {different} logs differ")
    sys.exit(1 if different else 0)
