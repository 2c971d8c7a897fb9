"""A stream of 39,000,000 samples: how long it takes to open, and what it takes in memory.

python benchmarks/scale.py [--folder DIR] [--samples N]

Labels, users, times and coordinates are generated and packed (left where they are if the folder has
them). Each line is a process of its own, that imports the library, opens the stream with 5 % to
prepare on and 1 % held out, and asks for its description, hashes included: first with no order
kept, then again. Limits: opened in 2 s and 500 MB; albums and splits in 60 s.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ONE = """
import resource, sys, time
start = time.perf_counter()
import streamgauge as sg
stream = sg.stream("packed", path=sys.argv[1], order="time", step=sys.argv[2], batch=256,
                   held_out=0.01, preparation=0.05)
stream.describe()
index = stream.index(len(stream) // 2)
took = time.perf_counter() - start
used = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{stream.samples:>12,} {len(stream):>12,} {took:9.2f} {used:9.2f} {peak:9.0f}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("cloc_sized"))
    parser.add_argument("--samples", type=int, default=39_000_000)
    asked = parser.parse_args()
    packed = asked.folder / "packed"
    if not (packed / "about.json").exists():
        command = [sys.executable, str(HERE / "cloc_sized.py"), "generate", "pack"]
        command += ["--folder", str(asked.folder), "--samples", str(asked.samples)]
        subprocess.run(command, check=True)
    shutil.rmtree(packed / "orders", ignore_errors=True)
    print(
        f"{'':22s} {'samples':>12s} {'steps':>12s} {'seconds':>9s} {'processor':>9s} "
        f"{'peak MB':>9s}"
    )
    for step in ("batch", "album"):
        for when in ("first time", "again"):
            command = [sys.executable, "-c", ONE, str(packed), step]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{step:8s} {when:13s} {done.stdout.rstrip()}", flush=True)


if __name__ == "__main__":
    main()
