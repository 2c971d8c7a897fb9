"""Kill a recording process with SIGKILL at random moments, and go on in the same folder.

    python tests/record/kill_recorder.py --kills 200

After each kill the log must hold every call that had returned, each once, in order, and at most the
call that was under way. Prints a line per kill and exits with an error at the first call that is
missing or doubled.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import streamgauge as sg
from provenance import provenance
from streamgauge.record import recorder

CLASSES = ["a", "b", "c"]


def rows_of(call: int) -> tuple[list[str], list[tuple[str, int]], list[float]]:
    """What one call records: answers, labels (of an earlier call), scalars."""
    ids = [f"{call}-{n}" for n in range(call % 7 + 1)]
    if call % 3 == 0:
        return ids, [], []
    if call % 3 == 1:
        earlier = rows_of(call - 1 - 3 * (call % 4) if call > 12 else call - 1)[0]
        return [], [(name, call % 3) for name in earlier], []
    return [], [], [float(call)]


def record(path: Path, first: int, acknowledged: Any) -> None:
    """Record calls without end; each is acknowledged when it has returned."""
    recorder.COMMIT_ROWS = 300
    rec = sg.Recorder(path, stream="s", learner="l", classes=CLASSES)
    for call in range(first, 1 << 40):
        answers, labels, scalars = rows_of(call)
        if answers:
            rec.predict(answers, [[0.2, 0.3, 0.5]] * len(answers))
        elif labels:
            rec.label([name for name, _ in labels], [code for _, code in labels])
        else:
            rec.scalar("call", scalars[0])
        os.write(acknowledged, call.to_bytes(8, "little"))


def recorded_calls(path: Path) -> int:
    """How many calls the log holds; an error if they are not the first ones, each once."""
    run = sg.Run(path)
    ids = run.table("predictions")["id"].tolist() if run.table("predictions").rows else []
    sample = dict(zip(run.table("predictions")["sample"].tolist(), ids, strict=True)) if ids else {}
    table = run.table("labels")
    labels = [(sample[s], c) for s, c in zip(table["sample"], table["label"], strict=True)]
    scalars = run.training["value"].tolist()
    whole: tuple[list[Any], ...] = (ids, labels, scalars)
    call, at = 0, [0, 0, 0]
    while True:
        rows = rows_of(call)
        ends = [start + len(some) for start, some in zip(at, rows, strict=True)]
        if any(end > len(some) for end, some in zip(ends, whole, strict=True)):
            break
        stored = [some[a:b] for some, a, b in zip(whole, at, ends, strict=True)]
        assert stored == list(rows), f"call {call} is not in the log as it was made"
        call, at = call + 1, ends
    assert at == [len(some) for some in whole], f"rows after call {call} are of no call"
    return call


def kill_and_go_on(path: Path, kills: int, seed: int = 0, longest: float = 0.3) -> int:
    """The number of calls that survived all kills."""
    rng, fork = random.Random(seed), multiprocessing.get_context("fork")
    total = during_open = 0
    for number in range(kills):
        ours, theirs = os.pipe()
        child = fork.Process(target=record, args=(path, total, theirs))
        child.start()
        os.close(theirs)
        with open(ours, "rb", buffering=0) as pipe:
            # One in five kills may come while the folder is opened.
            first = pipe.read(8) if rng.random() < 0.8 else b""
            time.sleep(rng.uniform(0, longest))
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            data = first + pipe.readall()
        acknowledged = [
            int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)
        ]
        returned = acknowledged[-1] + 1 if acknowledged else total
        during_open += not acknowledged
        found = recorded_calls(path) if (path / "run.json").exists() else 0
        assert returned <= found <= returned + 1, f"{returned} calls returned, {found} in the log"
        segments = len(list((path / "log").glob("*/*.parquet")))
        print(f"kill {number}: {returned} calls had returned, {found} in the log, {segments} "
              "segments", flush=True)  # fmt: skip
        total = found
    assert during_open < kills, "every kill came before the first call"
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        calls = kill_and_go_on(Path(folder) / "mine", chosen.kills, chosen.seed)
    print(
        f"RESULT: {chosen.kills} kills of a recorder, {calls:,} calls: 0 lost, 0 doubled;"
        f" seed {chosen.seed}; {time.monotonic() - began:,.0f} s; {provenance()}"
    )
