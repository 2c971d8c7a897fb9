"""The share of a run's time that checksums take.

    python tests/faults/overhead.py

Runs `er` on albums with a checkpoint every second, 30 times as often as by default, and adds up the
time in the functions that compute checksums.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch

import streamgauge as sg
from streamgauge import files
from streamgauge.record import writer

spent = 0.0


def timed(function: Any) -> Any:
    def call(*args: Any) -> Any:
        global spent
        started = time.process_time()
        try:
            return function(*args)
        finally:
            spent += time.process_time() - started

    return call


def main() -> None:
    torch.set_num_threads(1)
    files._checksum_of = timed(files._checksum_of)
    writer.size_and_checksum = timed(writer.size_and_checksum)  # type: ignore[attr-defined]
    writer.checksum = timed(writer.checksum)  # type: ignore[attr-defined]
    for learner in ("er", "ncm"):
        global spent
        spent = 0.0
        with tempfile.TemporaryDirectory() as folder:
            stream = sg.stream("albums", length=12_000)
            started = time.process_time()
            run = sg.run(stream, learner, out=folder, checkpoint=1, log=str, progress=False)
            whole = time.process_time() - started
            size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
        share = f"{spent:.3f} s of {whole:.1f} s ({100 * spent / whole:.2f} %) for checksums"
        print(f"{learner}: {share}, {size / 1e6:.1f} MB in {run.step:,} steps")


if __name__ == "__main__":
    main()
