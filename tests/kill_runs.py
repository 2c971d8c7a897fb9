"""Kill runs with SIGKILL at random moments, resume them, and compare with runs never killed.

    python tests/kill_runs.py --kills 20

Prints one line a kill and exits with 1 if any resumed log differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
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


def until_it_runs(out: Path) -> None:
    """Wait while Python and torch load: a kill there is no test."""
    while not list(out.glob("*/run.json")):
        time.sleep(0.005)


def kill_and_resume(folder: Path, kills: int, seed: int = 0, length: int = 1200) -> int:
    """How many of the killed and resumed runs differ from the one that ran through."""
    rng = random.Random(seed)
    process = start(folder / "whole", length)
    until_it_runs(folder / "whole")
    began = time.monotonic()
    assert process.wait() == 0
    whole_time = time.monotonic() - began
    (whole,) = sg.find_runs([folder / "whole"])
    different = 0
    for number in range(kills):
        out = folder / f"killed-{number}"
        process = start(out, length)
        until_it_runs(out)
        delay = rng.uniform(0, 0.9) * whole_time
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (killed,) = sg.find_runs([out])
        assert start(out, length).wait() == 0
        (resumed,) = sg.find_runs([out])
        same = resumed.done and same_log(whole, resumed)
        different += not same
        print(f"killed after {delay:5.2f} s, at step {killed.step:4d} of {whole.step}: "
              f"{'identical' if same else 'DIFFERENT'}", flush=True)  # fmt: skip
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
