"""Flips bits and bytes of stored folders, one at a time, and reads or resumes them.

    python tests/faults/flip.py --workers 2 --state build/flips.json   # 50,000 flips
    python tests/faults/flip.py --flips 500                            # a hundredth of them

The state file holds the result; the same command goes on where it stopped (--seconds per call).

Each flip must end in a sentence that names the file, or change nothing; a recorder may also warn
and use what comes before the damage. Prints a line per kind of folder: flips, those found (and with
the file named), those without effect, and failures: silent (another score, log or input),
traceback, hang, crash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import streamgauge as sg
from campaign import Campaign, Report, one_thread
from helpers import same_log, small_stream
from streamgauge.audit import audit
from streamgauge.errors import StreamgaugeError
from streamgauge.record.diff import differences
from streamgauge.record.tables import TABLES
from streamgauge.record.verify import verify

PROTOCOL = sg.Protocol(evaluate=5, shifts=(7,), cost="4/3")


def facts(run: sg.Run) -> str:
    """Everything that a log says, and its scores."""
    digest = hashlib.blake2b(json.dumps(sorted(sg.score(run).items())).encode())
    digest.update(json.dumps([run.header["stream"], run.header["config"], run.step]).encode())
    for name in TABLES:
        table = run.table(name)
        for column in table:
            digest.update(f"{name} {column}".encode())
            digest.update(json.dumps(table[column].tolist()).encode())
    return digest.hexdigest()


class Finished:
    """A complete run: score, all tables, audit, diff, and `verify`."""

    share = 0.8

    def __init__(self, folder: Path) -> None:
        stream = small_stream(60, held_out=0.1)
        self.run = sg.run(stream, "er", protocol=PROTOCOL, out=folder / "runs", log=str)
        self.path, self.number = self.run.path, 0
        shutil.copytree(self.path, folder / "whole")
        self.whole = sg.Run(folder / "whole")
        self.expected, self.audited = facts(self.whole), repr(audit(self.path).values)

    def read(self, file: Path) -> bool:
        """Whether it reads as before; raises where the damage is found."""
        self.number += 1
        checked = next(iter(verify(self.path)))
        if checked.problems and not any(str(file) in problem for problem in checked.problems):
            raise AssertionError(f"verify does not name {file}: {checked.problems}")
        if self.number % 20 == 0:
            with suppress(StreamgaugeError):
                if repr(audit(self.path).values) != self.audited:
                    return False
            with suppress(StreamgaugeError):
                if not differences(sg.Run(self.path), self.whole)["same"]:
                    return False
        if checked.problems and file.name.startswith("checkpoint"):
            raise StreamgaugeError(checked.problems[0])  # only `verify` and `resume` read it
        return facts(sg.Run(self.path)) == self.expected

    def after(self) -> None:
        pass


class Unfinished:
    """An interrupted run, which goes on."""

    share = 0.04

    def __init__(self, folder: Path) -> None:
        self.folder, self.stream = folder, small_stream(6, held_out=0.1)
        self.whole = self.go(folder / "whole")
        with suppress(KeyboardInterrupt):
            self.go(folder / "runs", progress=self.stop)
        (self.path,) = (folder / "runs").iterdir()
        shutil.copytree(self.path, folder / "kept")

    def stop(self, loop: Any) -> None:
        if loop.step == 4:
            raise KeyboardInterrupt

    def go(self, out: Path, **more: Any) -> sg.Run:
        return sg.run(
            self.stream, "er", protocol=PROTOCOL, out=out, checkpoint=0, log=str, **more
        )  # fmt: skip

    def read(self, file: Path) -> bool:
        return same_log(self.go(self.path.parent), self.whole)

    def after(self) -> None:
        shutil.rmtree(self.path.parent)
        shutil.copytree(self.folder / "kept", self.path)


class Packed:
    """A packed stream: labels, columns, order and inputs."""

    share = 0.08

    def __init__(self, folder: Path) -> None:
        from streamgauge.streams.pack.packing import Packing, pack

        self.path = folder / "packed"
        stream = sg.stream("blobs", per_class=10, held_out=0.1)
        pack(stream, self.path, Packing(shard=32), workers=0)
        self.expected = self.facts()

    def facts(self) -> str:
        stream = sg.stream("packed", path=str(self.path))
        digest = hashlib.blake2b(json.dumps(stream.describe(), default=str).encode())
        digest.update(stream.source.read(np.arange(len(stream.source))).tobytes())
        for column in (stream.source.label, stream.order, *stream.source.columns.values()):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def read(self, file: Path) -> bool:
        return self.facts() == self.expected

    def after(self) -> None:
        pass


class Recorded:
    """The folder of a killed recorder, with a journal."""

    share = 0.08

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mine"
        rec = sg.Recorder(self.path, stream="s", learner="l")
        for call in range(60):
            rec.predict(f"id-{call}", f"class {call % 4}", time=call)
            rec.label(f"id-{call}", f"class {call % 3}", time=call + 1)
            rec.trained([f"id-{call}"], seconds=0.5)
            if call == 30:
                rec._commit_journal()
        self.writer = rec  # stays open: its journal is not committed
        self.expected = facts(sg.Run(self.path))

    def read(self, file: Path) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return facts(sg.Run(self.path)) == self.expected
            except UserWarning as warning:
                raise StreamgaugeError(str(warning)) from None

    def after(self) -> None:
        pass


def _hang(*_: Any) -> None:
    raise TimeoutError("hang")


OUTCOMES = ("found", "no effect", "silent", "traceback", "no end", "file not named")
BAD = (*OUTCOMES[2:], "hang", "crash")


def try_flips(name: str, start: int, stop: int, report: Report, folder: Path, seed: int) -> None:
    """In a worker: flips start..stop-1 of a kind, each of which its number and the seed make."""
    signal.signal(signal.SIGALRM, _hang)
    stored = KINDS[name](folder)
    paths = [path for path in sorted(stored.path.rglob("*")) if path.is_file()]
    files = [path.relative_to(stored.path) for path in paths
             if path.name not in ("lock", "failed.txt") and path.stat().st_size]  # fmt: skip
    data = {file: (stored.path / file).read_bytes() for file in files}
    for number in range(start, stop):
        if not report.begin(number):
            return
        rng = random.Random(f"{name} {seed} {number}")
        flipped = rng.choice(files)
        whole = data[flipped]
        at = rng.randrange(len(whole))
        mask = 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(1, 256)
        file = stored.path / flipped
        file.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
        signal.alarm(60)
        try:
            outcome, why = _outcome(stored, file)
        finally:
            signal.alarm(0)
        if outcome in BAD:
            why = f"{flipped}: byte {at} ^ {mask:#x}: {why[-1500:]}"
        report.note(outcome, number, why)
        if file.exists():
            file.write_bytes(whole)
        stored.after()


def _outcome(stored: Any, file: Path) -> tuple[str, str]:
    try:
        same = stored.read(file)
    except StreamgaugeError as error:
        named = str(file) in str(error) or file.name in str(error)
        return ("found", "") if named else ("file not named", str(error))
    except TimeoutError:
        return "no end", "over 60 s"
    except BaseException:
        return "traceback", traceback.format_exc()
    return ("no effect", "") if same else ("silent", "reads differently")


KINDS: dict[str, Any] = {
    "finished": Finished, "unfinished": Unfinished, "packed": Packed, "recorded": Recorded,
}  # fmt: skip


def campaign(kinds: Iterable[str], flips: int, seed: int, **options: Any) -> Campaign:
    plan = {name: max(1, round(flips * KINDS[name].share)) for name in kinds}
    return Campaign(
        plan, lambda *given: try_flips(*given, seed=seed), OUTCOMES, limit=120, block=500,
        settings={"seed": seed, "flips": flips}, **options,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=50_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="time of this call")
    parser.add_argument("--state", type=Path, help="result, and where to go on")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("finished", "packed"):  # imports and compiled code, once for all workers
        with tempfile.TemporaryDirectory() as folder:
            KINDS[name](Path(folder)).read(Path())
    one_thread()
    made = campaign(chosen.kinds.split(","), chosen.flips, chosen.seed, workers=chosen.workers,
                    seconds=chosen.seconds, state=chosen.state)  # fmt: skip
    made.run()
    print(made.table("flips"))
    sys.exit(1 if made.findings else 0)


if __name__ == "__main__":
    main()
